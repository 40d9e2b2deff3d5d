//! Finds the line of a field in a document by its path.
//!
//! Uses the indentation of block style YAML and of JSON with one field per line. For a missing field, or a field within
//! a line, the result is the line of the enclosing value.

/// One step of a path.
#[derive(Debug, PartialEq, Eq)]
enum PathStep<'a> {
    Field(&'a str),
    Item(usize),
}

/// Returns the zero-based line of a field; the path has the form of error paths: `spec.groups[0].name`.
pub(super) fn line_of_field(document: &str, path: &str) -> usize {
    let lines: Vec<Line<'_>> = document.lines().map(Line::read).collect();
    let (mut current, mut column) = (None, None);
    for step in parse_path(path) {
        let from = current.map_or(0, |line: usize| line.saturating_add(1));
        let position = match step {
            PathStep::Field(name) => find_field(&lines, current, from, column, name),
            PathStep::Item(index) => find_item(&lines, from, column, index),
        };
        let Some(position) = position else {
            break;
        };
        (current, column) = (Some(position.line), Some(position.column));
    }
    current.unwrap_or(0)
}

fn parse_path(path: &str) -> Vec<PathStep<'_>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, tail) = rest.split_at(end);
        if !name.is_empty() {
            steps.push(PathStep::Field(name));
        }
        rest = match tail.strip_prefix('[').and_then(|tail| tail.split_once(']')) {
            Some((inner, tail)) => {
                steps.push(inner.parse().map_or(PathStep::Field(inner), PathStep::Item));
                tail.strip_prefix('.').unwrap_or(tail)
            }
            None => tail.strip_prefix('.').unwrap_or_default(),
        };
    }
    steps
}

/// Where a field or a list item begins.
struct FieldPosition {
    /// Zero-based line.
    line: usize,
    /// Column that its own fields must exceed.
    column: usize,
}

/// A line with its indentation.
struct Line<'a> {
    /// Column of the first character, which is the dash of a list item.
    start: usize,
    /// Column of the content after the dash.
    content: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        let trimmed = line.trim_start();
        let start = line.len().saturating_sub(trimmed.len());
        let text = trimmed.strip_prefix("- ").map_or(trimmed, str::trim_start);
        let text = if trimmed == "-" { "" } else { text };
        let content = line.len().saturating_sub(text.len());
        Self { start, content, text: text.trim_end() }
    }

    fn is_blank(&self) -> bool {
        (self.text.is_empty() && self.content == self.start) || self.text.starts_with('#')
    }

    fn is_item(&self) -> bool {
        self.content > self.start
    }

    fn has_key(&self, name: &str) -> bool {
        let bare = self.text.trim_start_matches(['"', '\'']);
        bare.strip_prefix(name)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
    }
}

/// Returns the position of a field of the value at line `parent`.
fn find_field(
    lines: &[Line<'_>],
    parent: Option<usize>,
    from: usize,
    column: Option<usize>,
    name: &str,
) -> Option<FieldPosition> {
    // The first field of a list item is on the line of the item.
    if let Some((number, line)) = parent.and_then(|number| Some((number, lines.get(number)?)))
        && Some(line.start) == column
        && line.is_item()
        && line.has_key(name)
    {
        return Some(FieldPosition { line: number, column: line.content });
    }
    let item = parent
        .and_then(|number| lines.get(number))
        .filter(|line| line.is_item() && Some(line.start) == column);
    let mut depth = item.map(|line| line.content);
    for (number, line) in lines.iter().enumerate().skip(from).filter(|(_, line)| !line.is_blank()) {
        if column.is_some_and(|column| line.start <= column) {
            return None;
        }
        let opens = matches!(line.text, "{" | "[");
        if !opens && line.content == *depth.get_or_insert(line.content) && line.has_key(name) {
            return Some(FieldPosition { line: number, column: line.content });
        }
    }
    None
}

/// Returns the position of a list item.
fn find_item(lines: &[Line<'_>], from: usize, column: Option<usize>, index: usize) -> Option<FieldPosition> {
    let (mut depth, mut seen) = (None, 0);
    for (number, line) in lines.iter().enumerate().skip(from).filter(|(_, line)| !line.is_blank()) {
        let begins = line.is_item() || line.text.starts_with(['{', '"']);
        // A list may start at the column of its field.
        if column.is_some_and(|column| line.start < column || (line.start == column && !line.is_item())) {
            return None;
        }
        if begins && line.start == *depth.get_or_insert(line.start) {
            if seen == index {
                return Some(FieldPosition { line: number, column: line.start });
            }
            seen = seen.saturating_add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_cases() {
        let yaml = "kind: A\nmetadata:\n  name: x\n  labels: {a: b}\nspec:\n  # first\n  groups:\n  - name: one\n    flavors:\n      - name: f\n        quota: 1\n  - flavors:\n    - quota: 2\n    name: two\n  name: last\n";
        let table = [
            ("kind", 0),
            ("metadata.labels.a", 3),
            ("metadata.labels[a]", 3),
            ("spec.groups[0].name", 7),
            ("spec.groups[0].flavors[0].quota", 10),
            ("spec.groups[1].flavors[0].quota", 12),
            ("spec.groups[1].name", 13),
            ("spec.name", 14),
            ("spec.missing", 4),
            ("spec.groups[7].name", 6),
            ("", 0),
        ];
        for (path, line) in table {
            assert_eq!(line_of_field(yaml, path), line, "{path}");
        }
        let json = "{\n  \"kind\": \"A\",\n  \"spec\": {\n    \"groups\": [\n      {\n        \"name\": \"one\"\n      },\n      {\n        \"name\": \"two\"\n      }\n    ],\n    \"name\": 1\n  }\n}";
        for (path, line) in [("spec.groups[1].name", 8), ("spec.name", 11), ("spec", 2)] {
            assert_eq!(line_of_field(json, path), line, "{path}");
        }
        assert_eq!(line_of_field("{\"kind\": \"A\", \"spec\": {}}", "spec.name"), 0);
    }
}
