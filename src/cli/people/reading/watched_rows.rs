//! Rows of a list that is read repeatedly, aligned with the headings above them.
//!
//! Invariant: a row has the column widths of the headings that were printed last; before a wider value the headings are printed
//! again.

/// Headings that were printed last.
#[derive(Debug, Default)]
pub(super) struct Printed {
    headings: String,
}

impl Printed {
    /// Returns the text to print of a table: the rows that changed, below headings unless the last ones are the same. A table
    /// has a line for each row; a text with other lines, such as a tree, is printed in full.
    pub(super) fn changed(&mut self, text: &str, is_changed: &[bool], with_headings: bool) -> String {
        let mut lines = text.split_inclusive('\n');
        let headings = if with_headings { lines.next().unwrap_or_default() } else { "" };
        let rows: Vec<&str> = lines.collect();
        let is_same = self.headings == headings;
        headings.clone_into(&mut self.headings);
        if rows.len() != is_changed.len() {
            return text.to_owned();
        }
        let changed = rows.into_iter().zip(is_changed).filter(|(_, is_changed)| **is_changed);
        let changed: String = changed.map(|(row, _)| row).collect();
        if is_same || changed.is_empty() { changed } else { format!("{headings}{changed}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::text_table::{Side, TextTable};

    fn table(rows: &[(&str, &str)], headings: bool) -> String {
        let mut table = TextTable::new([("NAME", Side::Left), ("WAIT", Side::Right)]);
        for (name, wait) in rows {
            table.push([*name, *wait].map(str::to_owned));
        }
        table.text(headings, None)
    }

    #[test]
    fn rows_are_in_line_with_the_headings_above_them() {
        let mut printed = Printed::default();
        let first = [("job-a", "1m"), ("job-b", "2m")];
        assert_eq!(
            printed.changed(&table(&first, true), &[true, true], true),
            "NAME    WAIT\njob-a     1m\njob-b     2m\n"
        );
        let second = [("job-a", "1m"), ("job-b", "3m")];
        assert_eq!(printed.changed(&table(&second, true), &[false, true], true), "job-b     3m\n");
        let wider = [("job-a", "1m"), ("job-long", "1m"), ("job-b", "3m")];
        assert_eq!(
            printed.changed(&table(&wider, true), &[false, true, false], true),
            "NAME       WAIT\njob-long     1m\n"
        );
        let last = [("job-a", "2m"), ("job-long", "1m"), ("job-b", "3m")];
        assert_eq!(printed.changed(&table(&last, true), &[true, false, false], true), "job-a        2m\n");
        assert_eq!(printed.changed(&table(&last, true), &[false, false, false], true), "");
    }

    #[test]
    fn without_headings_rows_have_the_widths_of_all() {
        let mut printed = Printed::default();
        let rows = [("job-a", "1m"), ("job-long", "1m")];
        assert_eq!(printed.changed(&table(&rows, false), &[true, false], false), "job-a      1m\n");
        let tree = "a\n`- b\n   `- c\n";
        assert_eq!(printed.changed(tree, &[true], false), tree, "not a line for each row");
    }
}
