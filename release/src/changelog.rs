//! The changelog: subjects of commits (`area: imperative subject`), grouped by area.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Heading of subjects without an area.
const OTHER: &str = "other";

/// Writes the changelog of a version.
pub fn write(version: &str, date: &str, since: Option<&str>, subjects: &[String]) -> String {
    let mut areas: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut others = Vec::new();
    for subject in subjects {
        match split(subject) {
            Some((area, rest)) => areas.entry(area).or_default().push(rest),
            None => others.push(subject.as_str()),
        }
    }
    let day = date.split('T').next().unwrap_or_default();
    let range = since.map_or_else(|| "All commits".to_owned(), |tag| format!("Changes since {tag}"));
    let mut text = format!("# {version} ({day})\n\n{range}, by area, newest first.\n");
    let other = Some((OTHER, others)).filter(|(_, subjects)| !subjects.is_empty());
    for (area, subjects) in areas.into_iter().chain(other) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {area}\n\n");
        for subject in subjects {
            let _ = writeln!(text, "- {subject}");
        }
    }
    text
}

/// Splits a subject into area and rest. An area is a few words in lower case, possibly several separated by commas.
fn split(subject: &str) -> Option<(&str, &str)> {
    let (area, rest) = subject.split_once(": ")?;
    let is_area =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_/, ".contains(letter);
    (!area.is_empty() && area.len() <= 40 && area.chars().all(is_area)).then_some((area, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_grouped_by_area() {
        let subjects = [
            "server: bound request bodies",
            "cli: accept Kueue's command line",
            "A subject without area",
            "server: reload certificates: twice",
            "Server code: not an area",
            "frameworks, tests: share code",
        ]
        .map(str::to_owned);
        let text = write("1.2.3", "2026-01-02T03:04:05Z", Some("v1.2.2"), &subjects);
        let expected = "# 1.2.3 (2026-01-02)\n\nChanges since v1.2.2, by area, newest first.\n\n\
            ## cli\n\n- accept Kueue's command line\n\n\
            ## frameworks, tests\n\n- share code\n\n\
            ## server\n\n- bound request bodies\n- reload certificates: twice\n\n\
            ## other\n\n- A subject without area\n- Server code: not an area\n";
        assert_eq!(text, expected);
        assert!(write("1.2.3", "", None, &[]).contains("All commits"));
    }
}
