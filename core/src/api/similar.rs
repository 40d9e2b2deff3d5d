//! Names that resemble one that does not exist, for errors.

/// A name that shares less with the wanted one is none that was meant.
const RESEMBLES: f64 = 0.8;
/// Number of names that an error gives.
const SHOWN: usize = 3;
/// A shorter text is a part of too many names.
const SHORTEST_PART: usize = 3;

/// Returns the few names that resemble `wanted` most, the best first; of equal ones the first by name. A name of which it is a part
/// resembles it, too.
pub fn names<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let is_part = |name: &str| wanted.len() >= SHORTEST_PART && name.contains(wanted);
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(wanted, name), name));
    let mut scored: Vec<(f64, &str)> =
        scored.filter(|(score, name)| *score >= RESEMBLES || is_part(name)).collect();
    scored.sort_by(|(a, first), (b, second)| b.total_cmp(a).then_with(|| first.cmp(second)));
    scored.dedup();
    scored.into_iter().map(|(_, name)| name).take(SHOWN).collect()
}

/// Returns the end of an error about a name that does not exist: the names that resemble it, if there are any.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let similar = names(wanted, known);
    if similar.is_empty() { String::new() } else { format!("; similar: {}", similar.join(", ")) }
}

/// Most edits between names of which one was probably meant to be the other.
const MAX_EDITS: usize = 2;
/// Length of the longest name of an object.
const MAX_NAME: usize = 253;

/// Returns the other name that is the fewest edits away, at most two: letters inserted, removed, replaced or swapped with the next.
/// Stricter than `hint`, for what is said without being asked.
pub fn nearest<'a>(name: &str, others: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let comparable = |other: &&str| {
        let (a, b) = (name.len(), other.len());
        *other != name && a.max(b) <= MAX_NAME && a.abs_diff(b) <= MAX_EDITS * MAX_UTF8
    };
    let near = others.into_iter().filter(comparable);
    let near = near.map(|other| (strsim::osa_distance(name, other), other));
    near.filter(|(edits, _)| *edits <= MAX_EDITS).min().map(|(_, other)| other)
}

/// Most bytes of a letter.
const MAX_UTF8: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names_are_two_edits_away_at_most() {
        for (name, others, expected) in [
            ("reserach", vec!["product", "research"], Some("research")),
            ("nigth", vec!["night", "day", "nigth"], Some("night")),
            ("night", vec!["nights", "nightly"], Some("nights")),
            ("night", vec!["day"], None),
            ("abc", vec!["xyz"], None),
        ] {
            assert_eq!(nearest(name, others), expected, "{name}");
        }
    }

    #[test]
    fn names_that_were_meant() {
        let known = ["nlp", "night", "train", "vision", "interns", "job-llama-ft-7c2-4b1d9"];
        for (wanted, expected) in [
            ("nlpx", vec!["nlp"]),
            ("nigth", vec!["night"]),
            ("gpu", vec![]),
            ("visoin", vec!["vision"]),
            ("llama", vec!["job-llama-ft-7c2-4b1d9"]),
            ("j", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(names(wanted, known), expected, "{wanted}");
        }
    }
}
