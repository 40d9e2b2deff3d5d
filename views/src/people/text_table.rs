//! Tables of text as kubectl prints them: columns separated by three spaces, no borders.
//!
//! Invariants: a cell has no line end and no other control character, whatever text an object has; without a width everything is
//! printed in full, and numbers always are.

mod fit;

use super::line_wrap::words_within;

/// Spaces between columns.
const GAP: usize = 3;
/// Least number of characters to which a text is cut; a shorter rest would not be readable.
const LEAST_CUT: usize = 8;
/// Least width of a column of kubectl's tables, the gap included.
const KUBECTL_WIDTH: usize = 6;

/// Alignment of the cells of a column, and whether a terminal may shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Texts.
    Left,
    /// Texts that mean nothing if a part is missing: drawings, codes, times.
    Whole,
    /// Numbers, which are never shortened.
    Right,
    /// Texts among numbers.
    Words,
}

/// Meaning of a cell's colour. The text of the cell carries it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// As intended.
    Good,
    /// Waiting.
    Waiting,
    /// Wrong.
    Bad,
}

impl Tone {
    /// Returns a text in its colour, of the sixteen that every terminal has.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Good => 32,
            Self::Waiting => 33,
            Self::Bad => 31,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// A row of a table.
#[derive(Clone, Debug)]
struct Row {
    cells: Vec<String>,
    /// Column and tone of the cell that is painted.
    tone: Option<(usize, Tone)>,
    /// A text in place of the cells that are missing.
    rest: Option<String>,
    /// Whether its cells are never shortened.
    is_whole: bool,
}

/// What a table gives up, step by step until it fits, on a terminal that is too narrow for it. Columns are named by headings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Narrow {
    /// The column that becomes the last one.
    pub last: Option<&'static str>,
    /// Columns that are omitted if they have the same value in all rows, in this order.
    pub constant: &'static [&'static str],
    /// Columns that are omitted whatever they have, in this order.
    pub optional: &'static [&'static str],
}

/// A table that is complete before it is printed, because widths follow from all rows.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<(String, Side)>,
    rows: Vec<Row>,
    least_width: usize,
    narrow: Narrow,
    /// Whether the last text of a line continues in further lines instead of being cut.
    wraps: bool,
}

impl TextTable {
    /// Creates a table with columns of text, as kubectl's own: with at least six characters for each column.
    pub fn kubectl<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = headings.into_iter().map(|heading| (heading.to_uppercase(), Side::Left)).collect();
        let narrow = Narrow::default();
        Self { columns, rows: Vec::new(), least_width: KUBECTL_WIDTH, narrow, wraps: false }
    }

    /// Creates a table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Side)>) -> Self {
        let columns = columns.into_iter().map(|(heading, side)| (heading.to_owned(), side)).collect();
        Self { columns, rows: Vec::new(), least_width: 0, narrow: Narrow::default(), wraps: false }
    }

    /// Sets what a narrow terminal omits. A column that becomes the last one is for tables whose rows all have a cell for each column.
    pub const fn when_narrow(&mut self, narrow: Narrow) {
        self.narrow = narrow;
    }

    /// Makes the last text of a line continue in further lines: for sentences, of which several would read alike if they were cut.
    pub const fn wrap_last(&mut self) {
        self.wraps = true;
    }

    /// Adds a row with one cell for each column.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| one_line(&cell)).collect();
        self.rows.push(Row { cells, tone: None, rest: None, is_whole: false });
    }

    /// Adds a row whose cells no terminal shortens, because they are no names.
    pub fn push_whole(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push(cells);
        if let Some(row) = self.rows.last_mut() {
            row.is_whole = true;
        }
    }

    /// Adds a row with one painted cell.
    pub fn push_toned(&mut self, cells: impl IntoIterator<Item = String>, column: usize, tone: Tone) {
        self.push(cells);
        if let Some(row) = self.rows.last_mut() {
            row.tone = Some((column, tone));
        }
    }

    /// Adds a row whose last columns are one text.
    pub fn push_text(&mut self, cells: impl IntoIterator<Item = String>, rest: &str) {
        self.push(cells);
        if let Some(row) = self.rows.last_mut() {
            row.rest = Some(one_line(rest));
        }
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the text without colour; with headings if `headings`.
    pub fn text(&self, headings: bool, width: Option<usize>) -> String {
        self.painted(headings, width, false)
    }

    /// Returns the rows as comma-separated values (RFC 4180, with line feeds).
    pub fn csv(&self, headings: bool) -> String {
        let heading = headings.then(|| self.columns.iter().map(|(text, _)| text.clone()).collect());
        let rows = self.rows.iter().map(|row| row.cells.iter().chain(&row.rest).cloned().collect());
        let line = |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
        heading.into_iter().chain(rows).map(|cells: Vec<String>| line(cells) + "\n").collect()
    }

    /// Returns the text. With `width`, columns are omitted until the lines fit; then texts are shortened.
    pub fn painted(&self, headings: bool, width: Option<usize>, color: bool) -> String {
        let mut fitting = self.clone();
        if let Some(width) = width {
            fitting.omit(headings, width);
        }
        fitting.lines(headings, width, color)
    }

    fn lines(&self, headings: bool, width: Option<usize>, color: bool) -> String {
        let heading = Row {
            cells: self.columns.iter().map(|(text, _)| text.clone()).collect(),
            tone: None,
            rest: None,
            is_whole: false,
        };
        let mut widths = self.widths(headings);
        if let Some(width) = width {
            widths = self.shortened(widths, width);
        }
        let lines = headings.then_some(&heading).into_iter().chain(&self.rows);
        lines.map(|line| self.line(line, &widths, width, color)).collect()
    }

    fn line(&self, row: &Row, widths: &[usize], width: Option<usize>, color: bool) -> String {
        let last = self.columns.len().saturating_sub(1);
        let mut out = String::new();
        // Characters so far, without colour sequences.
        let mut used = 0;
        for (position, ((cell, width_of), (_, side))) in
            row.cells.iter().zip(widths).zip(&self.columns).enumerate()
        {
            let texts = if *side == Side::Left && position == last {
                self.last_text(cell, width, used)
            } else {
                vec![middle_cut(cell, *width_of)]
            };
            let length = texts.first().map_or(0, |text| text.chars().count());
            let missing = width_of.saturating_sub(length);
            let tone = row
                .tone
                .filter(|(column, _)| color && *column == position)
                .map_or(Tone::Plain, |(_, tone)| tone);
            let (before, after) = match side {
                Side::Right | Side::Words => (missing, GAP),
                Side::Left | Side::Whole => (0, (missing + GAP).max(self.least_width.saturating_sub(length))),
            };
            out.push_str(&" ".repeat(before));
            push_lines(&mut out, &texts, used, tone);
            if position != last {
                out.push_str(&" ".repeat(after));
            }
            used += before + length + after;
        }
        if let Some(rest) = &row.rest {
            push_lines(&mut out, &self.last_text(rest, width, used), used, Tone::Plain);
        }
        // kubectl does not pad an empty last cell, but keeps the gap before it.
        let line = if self.least_width == 0 { out.trim_end() } else { &out };
        format!("{line}\n")
    }

    /// Returns the last text of a line, after `used` characters: cut at its end, or in several lines.
    fn last_text(&self, text: &str, width: Option<usize>, used: usize) -> Vec<String> {
        match width.and_then(|width| width_left(width, used)) {
            Some(left) if self.wraps => words_within(text, left),
            Some(left) => vec![cut(text, left)],
            None => vec![text.to_owned()],
        }
    }
}

/// Appends the lines of a text; the ones after the first are indented.
fn push_lines(out: &mut String, lines: &[String], indent: usize, tone: Tone) {
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&tone.paint(line));
    }
}

/// Quotes a value that a CSV reader would split otherwise.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Returns how many characters of the last text of a line are shown after `used` characters; `None`, which means all, if fewer
/// than `LEAST_CUT` would be left.
fn width_left(width: usize, used: usize) -> Option<usize> {
    Some(width.saturating_sub(used)).filter(|left| *left >= LEAST_CUT)
}

/// Cuts a text to a number of characters; an ellipsis marks the cut.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Characters of the branches of a tree.
const BRANCHES: &str = " │├└─|`-";

/// Cuts the middle out of a text, because names begin alike and often differ only at their ends. The branches before the name in a tree
/// stay.
fn middle_cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let branches = text.chars().take_while(|character| BRANCHES.contains(*character)).count();
    let branches = branches.min(width.saturating_sub(LEAST_CUT));
    let kept = width.saturating_sub(branches).saturating_sub(1);
    let end = kept / 2;
    let start = text.chars().take(branches + kept - end).chain(['…']);
    start.chain(text.chars().skip(length - end)).collect()
}

/// Returns the first line of a text without characters that control a terminal; an ellipsis marks further lines.
pub fn one_line(text: &str) -> String {
    let mut lines = text.split(['\n', '\r', '\u{c}']);
    let first = printable(lines.next().unwrap_or_default());
    if lines.next().is_some() { first + "..." } else { first }
}

/// Replaces characters that control a terminal or the direction of text.
pub fn printable(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if controls(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_looks_as_kubectls() {
        let mut table = TextTable::kubectl(["Name", "Cohort", "A", "Age"]);
        table.push(["cq1", "", "0", "5s"].map(str::to_owned));
        table.push(["long-name-of-queue", "c", "", ""].map(str::to_owned));
        let expected = "NAME                 COHORT   A     AGE\ncq1                           0     5s\nlong-name-of-queue   c              \n";
        assert_eq!(table.text(true, None), expected);
        let without: Vec<&str> = expected.lines().skip(1).collect();
        let text = table.text(false, None);
        assert_eq!(text.lines().count(), without.len());
        assert_eq!(
            text.lines().next(),
            Some("cq1                        0     5s"),
            "widths are those of the rows"
        );
    }

    #[test]
    fn numbers_are_right_aligned_and_only_the_last_text_is_cut() {
        let mut table = TextTable::new([("NAME", Side::Left), ("USED", Side::Right), ("TEXT", Side::Left)]);
        table.push(["a", "1", "short"].map(str::to_owned));
        table.push(["bb", "10000", "a long text at the end"].map(str::to_owned));
        assert_eq!(
            table.text(true, None),
            "NAME    USED   TEXT\na          1   short\nbb     10000   a long text at the end\n"
        );
        assert_eq!(
            table.text(true, Some(24)),
            "NAME    USED   TEXT\na          1   short\nbb     10000   a long t…\n"
        );
        assert_eq!(
            table.text(false, Some(20)).lines().last(),
            Some("bb   10000   a long text at the end"),
            "names and numbers stay, and a cut that leaves almost nothing makes nothing fit"
        );
    }

    #[test]
    fn values_are_separated_by_commas() {
        let mut table = TextTable::new([("NAME", Side::Left), ("BLOCKED BY", Side::Left)]);
        table.push(["a", "8 gpu, \"x\""].map(str::to_owned));
        table.push_toned(["b", "-"].map(str::to_owned), 0, Tone::Bad);
        assert_eq!(table.csv(true), "NAME,BLOCKED BY\na,\"8 gpu, \"\"x\"\"\"\nb,-\n");
        assert_eq!(table.csv(false).lines().next(), Some("a,\"8 gpu, \"\"x\"\"\""));
    }

    #[test]
    fn colour_changes_no_width() {
        let mut table = TextTable::new([("NAME", Side::Left), ("STATE", Side::Left), ("N", Side::Right)]);
        table.push_toned(["a", "in use", "1"].map(str::to_owned), 1, Tone::Bad);
        table.push_text(["b", "mismatch"].map(str::to_owned), "a long text over all columns");
        let plain = table.text(true, None);
        assert_eq!(
            plain,
            "NAME   STATE      N\na      in use     1\nb      mismatch   a long text over all columns\n"
        );
        let painted = table.painted(true, None, true);
        assert!(painted.contains("\u{1b}[31min use\u{1b}[0m"));
        assert_eq!(painted.replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""), plain);
    }

    #[test]
    fn cells_are_one_line_without_controls() {
        for (given, expected) in [
            ("a\nb", "a..."),
            ("a\r\nb", "a..."),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            ("a\u{202e}b", "a\u{fffd}b"),
            ("ü…", "ü…"),
        ] {
            assert_eq!(one_line(given), expected);
        }
    }
}
