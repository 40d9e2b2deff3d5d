//! Names that resemble one that does not exist, for errors.

/// A name that shares less with the wanted one is none that was meant.
const RESEMBLES: f64 = 0.8;
/// Number of names that an error gives.
const SHOWN: usize = 3;

/// Returns the names that resemble `wanted` most, the best first; of equal ones the first by name.
fn names<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(wanted, name), name));
    let mut scored: Vec<(f64, &str)> = scored.filter(|(score, _)| *score >= RESEMBLES).collect();
    scored.sort_by(|(a, first), (b, second)| b.total_cmp(a).then_with(|| first.cmp(second)));
    scored.into_iter().map(|(_, name)| name).take(SHOWN).collect()
}

/// Returns the end of an error about a name that does not exist: the names that resemble it, if there are any.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let similar = names(wanted, known);
    if similar.is_empty() { String::new() } else { format!("; similar: {}", similar.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_meant() {
        let known = ["nlp", "night", "train", "vision", "interns"];
        for (wanted, expected) in
            [("nlpx", vec!["nlp"]), ("nigth", vec!["night"]), ("gpu", vec![]), ("visoin", vec!["vision"])]
        {
            assert_eq!(names(wanted, known), expected, "{wanted}");
        }
    }
}
