//! Names that a user may have meant.

/// Most names that are proposed.
const PROPOSED: usize = 3;
/// Longest name that is compared: the comparison takes the product of both lengths.
const COMPARED: usize = 253;

/// Returns `; similar: a, b` with the names that are like the one that was not found; empty if none is.
pub fn similar<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut found: Vec<(usize, &str)> =
        known.into_iter().filter_map(|name| Some((likeness(wanted, name)?, name))).collect();
    found.sort_unstable();
    found.dedup();
    let names: Vec<&str> = found.into_iter().take(PROPOSED).map(|(_, name)| name).collect();
    if names.is_empty() { String::new() } else { format!("; similar: {}", names.join(", ")) }
}

/// Returns the number of changes from one name to the other if they are few; a name that contains the other counts as like it.
fn likeness(wanted: &str, name: &str) -> Option<usize> {
    if wanted.is_empty() || wanted.len() > COMPARED || name.len() > COMPARED {
        return None;
    }
    let distance = edit_distance(wanted, name);
    if distance <= 2 && distance < wanted.chars().count() {
        return Some(distance);
    }
    (wanted.len() > 2 && name.contains(wanted)).then_some(distance.max(3))
}

/// Returns the number of insertions, removals, replacements and swaps of neighbours between two texts.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (row, from) in a.chars().enumerate() {
        let mut next = vec![row + 1];
        for (column, to) in b.iter().enumerate() {
            let at = |line: &[usize], place: usize| line.get(place).copied().unwrap_or(usize::MAX - 1);
            let replaced = at(&last, column) + usize::from(from != *to);
            let mut least = replaced.min(at(&last, column + 1) + 1).min(at(&next, column) + 1);
            let is_swap = column > 0 && previous == Some(*to) && b.get(column - 1) == Some(&from);
            if is_swap {
                least = least.min(at(&before_last, column - 1).saturating_add(1));
            }
            next.push(least);
        }
        before_last = std::mem::replace(&mut last, next);
        previous = Some(from);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_names_are_proposed() {
        let known = ["night", "train", "job-llama-ft-7c2-4b1d9", "nlp", "nightly", "main"];
        for (wanted, expected) in [
            ("nigth", "; similar: night"),
            ("nlpx", "; similar: nlp"),
            ("llama", "; similar: job-llama-ft-7c2-4b1d9"),
            ("night", "; similar: night, nightly"),
            ("zzz", ""),
            ("", ""),
            ("x", ""),
        ] {
            assert_eq!(similar(wanted, known), expected, "{wanted}");
        }
        assert_eq!(edit_distance("ab", "ba"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
