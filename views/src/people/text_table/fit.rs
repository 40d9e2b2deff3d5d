//! Tables on a terminal that is too narrow for them.
//!
//! The rule of all tables, in this order, until the lines fit: a column becomes the last one, columns are omitted, texts are shortened in
//! their middle, and the last text of a line is cut or continues in further lines. Invariant: if nothing makes the lines fit, no text is
//! shortened.

use super::{GAP, LEAST_CUT, Narrow, Side, TextTable, Tone};

/// Least widths of texts and of the last text of a line, one after the other. The last text has the reason, which is why a list is read,
/// and the longest reason has 28 characters; 12 characters distinguish a name from others.
const STEPS: [(usize, usize); 3] = [(12, 28), (LEAST_CUT, 16), (LEAST_CUT, LEAST_CUT)];
/// Characters of a text over the last columns for which no column is omitted.
const REST: usize = 28;

impl TextTable {
    /// Takes the steps of `narrow` until the lines fit.
    pub(super) fn omit(&mut self, headings: bool, width: usize) {
        let Narrow { last, constant, optional } = self.narrow;
        if self.whole_width(headings) <= width {
            return;
        }
        if let Some(place) = last.and_then(|heading| self.place(heading)) {
            self.move_last(place);
        }
        let steps = constant.iter().map(|heading| (heading, true));
        for (heading, only_constant) in steps.chain(optional.iter().map(|heading| (heading, false))) {
            if self.whole_width(headings) <= width {
                return;
            }
            let place = self.place(heading);
            if let Some(place) = place.filter(|place| !only_constant || self.is_constant(*place)) {
                self.remove(place);
            }
        }
    }

    /// Returns the width of each column: that of its cells and, if they are shown, of its heading.
    pub(super) fn widths(&self, headings: bool) -> Vec<usize> {
        let heading = |heading: &str| if headings { heading.chars().count() } else { 0 };
        let columns = self.columns.iter().enumerate();
        columns.map(|(place, (text, _))| self.cells_width(place, false).max(heading(text))).collect()
    }

    /// Lowers widths until the lines fit, always that of the widest text.
    pub(super) fn shortened(&self, widths: Vec<usize>, width: usize) -> Vec<usize> {
        let rests = self.rests();
        for (text, last) in STEPS {
            let least: Vec<usize> = widths
                .iter()
                .enumerate()
                .map(|(place, width)| self.least_width_of(place, *width, text))
                .collect();
            let mut lowered = widths.clone();
            while self.line_width(&lowered, &rests, (last, last)) > width {
                let wider =
                    lowered.iter().zip(&least).enumerate().filter(|(_, (width, least))| width > least);
                let widest = wider.max_by_key(|(_, (width, _))| **width).map(|(place, _)| place);
                let Some(place) = widest else { break };
                let Some(widest) = lowered.get_mut(place) else { break };
                *widest -= 1;
            }
            if self.line_width(&lowered, &rests, (last, last)) <= width {
                return lowered;
            }
        }
        widths
    }

    /// Returns the least width to which a column may be lowered: to `text` characters of a text, and to whole numbers.
    fn least_width_of(&self, place: usize, width: usize, text: usize) -> usize {
        let is_last = place + 1 == self.columns.len();
        match self.columns.get(place).map(|(_, side)| *side) {
            // It is cut by itself.
            Some(Side::Left) if is_last => width,
            Some(Side::Left | Side::Words) => width.min(self.cells_width(place, true).max(text)),
            Some(Side::Right | Side::Whole) | None => {
                self.cells_width(place, false).max(width.min(LEAST_CUT))
            }
        }
    }

    /// Returns the width of the widest cell of a column, or only of the ones that are never shortened.
    fn cells_width(&self, place: usize, only_whole: bool) -> usize {
        let rows = self.rows.iter().filter(|row| row.is_whole || !only_whole);
        let cells = rows.filter_map(|row| row.cells.get(place));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    }

    /// Returns the numbers of cells and the lengths of texts over the last columns, each once.
    fn rests(&self) -> Vec<(usize, usize)> {
        let rests =
            self.rows.iter().filter_map(|row| Some((row.cells.len(), row.rest.as_ref()?.chars().count())));
        let mut rests: Vec<(usize, usize)> = rests.collect();
        rests.sort_unstable();
        rests.dedup();
        rests
    }

    /// Returns the width of the longest line; the last text of a line, and a text over the last columns, have at most so many characters.
    fn line_width(&self, widths: &[usize], rests: &[(usize, usize)], (last, rest): (usize, usize)) -> usize {
        let before = |count: usize| -> usize {
            widths.iter().take(count).map(|width| (width + GAP).max(self.least_width)).sum()
        };
        let others = before(widths.len().saturating_sub(1));
        let is_text = self.columns.last().is_some_and(|(_, side)| *side == Side::Left);
        let whole = match widths.last() {
            // An empty column has no gap before it.
            Some(0) | None => others.saturating_sub(GAP),
            Some(width) if is_text => others + (*width).min(last),
            Some(width) => others + width,
        };
        rests.iter().map(|(cells, length)| before(*cells) + (*length).min(rest)).fold(whole, usize::max)
    }

    /// Returns the width of the longest line without a shortened text.
    fn whole_width(&self, headings: bool) -> usize {
        self.line_width(&self.widths(headings), &self.rests(), (usize::MAX, REST))
    }

    /// Returns the place of a column.
    fn place(&self, heading: &str) -> Option<usize> {
        self.columns.iter().position(|(known, _)| known == heading)
    }

    /// Returns whether several rows have the same cell in a column.
    fn is_constant(&self, place: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.cells.get(place));
        let first = cells.next();
        self.rows.len() > 1 && cells.all(|cell| Some(cell) == first)
    }

    /// Moves a column behind all others.
    fn move_last(&mut self, place: usize) {
        let column = self.columns.remove(place);
        self.columns.push(column);
        let last = self.columns.len().saturating_sub(1);
        for row in &mut self.rows {
            if place < row.cells.len() {
                let cell = row.cells.remove(place);
                row.cells.push(cell);
            }
            row.tone = match row.tone {
                Some((column, tone)) if column == place => Some((last, tone)),
                tone => without_column(tone, place),
            };
        }
    }

    /// Removes a column.
    fn remove(&mut self, place: usize) {
        self.columns.remove(place);
        for row in &mut self.rows {
            if place < row.cells.len() {
                row.cells.remove(place);
            }
            row.tone = without_column(row.tone, place);
        }
    }
}

/// Returns the painted column of a row after another column was taken out; `None` if it was that one.
fn without_column(tone: Option<(usize, Tone)>, place: usize) -> Option<(usize, Tone)> {
    match tone {
        Some((column, _)) if column == place => None,
        Some((column, tone)) if column > place => Some((column.saturating_sub(1), tone)),
        tone => tone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_omitted_before_the_last_is_cut() {
        let columns = ["NAME", "STATE", "PRIO", "NEEDS", "REASON"].map(|heading| (heading, Side::Left));
        let mut table = TextTable::new(columns);
        table.when_narrow(Narrow { optional: &["PRIO", "NEEDS"], ..Narrow::default() });
        table.push_toned(
            ["job-a", "Pending", "100", "8 gpu", "WaitingForQuota"].map(str::to_owned),
            1,
            Tone::Bad,
        );
        table.push_toned(
            ["job-b", "Pending", "0", "16 gpu", "Inadmissible"].map(str::to_owned),
            3,
            Tone::Bad,
        );
        let line = |width| table.text(true, Some(width)).lines().nth(1).unwrap().to_owned();
        assert_eq!(line(80), "job-a   Pending   100    8 gpu    WaitingForQuota");
        assert_eq!(line(45), "job-a   Pending   8 gpu    WaitingForQuota");
        assert_eq!(line(35), "job-a   Pending   WaitingForQuota");
        assert_eq!(line(28), "job-a   Pending   WaitingFo…");
        assert_eq!(line(20), "job-a   Pending   WaitingForQuota", "no cut makes it fit");
        for width in 1..80 {
            let fits = table.text(true, Some(width)).lines().all(|line| line.chars().count() <= width);
            assert_eq!(fits, width >= 26, "{width}");
        }
        assert!(table.painted(true, Some(35), true).contains("\u{1b}[31mPending"));
    }

    #[test]
    fn a_narrow_terminal_moves_a_column_then_omits_constant_ones() {
        let mut table = TextTable::new([
            ("NAME", Side::Left),
            ("STATE", Side::Left),
            ("PRIO", Side::Right),
            ("NEEDS", Side::Right),
            ("REASON", Side::Left),
        ]);
        let (last, constant) = (Some("NEEDS"), &["PRIO", "STATE"]);
        table.when_narrow(Narrow { last, constant, optional: &["PRIO", "NEEDS"] });
        let mut push = |name: &str, priority: &str, needs: &str| {
            let cells = [name, "Pending", priority, needs, "WaitingForQuota"].map(str::to_owned);
            table.push_toned(cells, 1, Tone::Waiting);
        };
        push("job-a", "0", "8 gpu");
        push("job-b", "5", "16 gpu");
        let line = |width| table.text(true, Some(width)).lines().nth(2).unwrap().to_owned();
        assert_eq!(line(52), "job-b   Pending      5   16 gpu   WaitingForQuota");
        // In the order of the last column, no step is enough without the next one.
        assert_eq!(line(48), "job-b      5   WaitingForQuota   16 gpu");
        assert_eq!(line(38), "job-b   WaitingForQuota   16 gpu");
        assert_eq!(line(30), "job-b   WaitingForQuota");
        assert_eq!(line(20), "job-b   WaitingForQ…");
        assert!(table.painted(true, Some(52), true).contains("\u{1b}[33mPending"));
        assert!(!table.painted(true, Some(48), true).contains('\u{1b}'), "the painted column is omitted");
        let mut single = TextTable::new([("NAME", Side::Left), ("STATE", Side::Left)]);
        single.when_narrow(Narrow { constant: &["STATE"], ..Narrow::default() });
        single.push(["job-a", "Pending"].map(str::to_owned));
        // One row has no column that is the same in all.
        assert_eq!(single.text(true, Some(10)).lines().last(), Some("job-a   Pending"));
    }

    #[test]
    fn texts_lose_their_middle_before_the_reason_is_cut_and_numbers_never_do() {
        let name = |end: &str| format!("{}-{end}", "n".repeat(250));
        let columns = [("NAME", Side::Left), ("A LONG HEADING", Side::Right), ("REASON", Side::Left)];
        let mut table = TextTable::new(columns);
        for end in ["0c1f2", "77ac2"] {
            table.push([name(end), "123456789".to_owned(), "WaitingForPreemptedWorkloads".to_owned()]);
        }
        let lines =
            |width| -> Vec<String> { table.text(true, Some(width)).lines().map(str::to_owned).collect() };
        let start = "n".repeat(16);
        let expected = [
            format!("NAME{}   A LONG HEADING   REASON", " ".repeat(28)),
            format!("{start}…nnnnnnnnn-0c1f2        123456789   WaitingForPreemptedWorkloads"),
            format!("{start}…nnnnnnnnn-77ac2        123456789   WaitingForPreemptedWorkloads"),
        ];
        assert_eq!(lines(80), expected);
        assert_eq!(lines(58)[1], "nnnnnn…0c1f2      123456789   WaitingForPreemptedWorkloads");
        // Then the reason gives way, too.
        assert_eq!(lines(42)[1], "nnnnn…c1f2    123456789   WaitingForPreem…");
        assert_eq!(lines(31)[1], "nnnn…1f2   123456789   Waiting…");
        for width in 1..120 {
            let lines = lines(width);
            assert!(lines.iter().skip(1).all(|line| line.contains(" 123456789 ")), "{width}: {lines:?}");
            assert_eq!(
                lines.iter().all(|line| line.chars().count() <= width),
                width >= 31,
                "{width}: {lines:?}"
            );
            assert_ne!(lines[1], lines[2], "{width}: rows read alike");
        }
    }

    #[test]
    fn a_row_that_has_no_names_is_not_shortened() {
        let mut table = TextTable::new([("", Side::Left), ("WITH", Side::Words), ("", Side::Left)]);
        table.push_whole(["admitted in 20m", "2", ""].map(str::to_owned));
        table.push(["nlp-train/job-llama-ft-7c2", "preempted at 1h 5m 9s", "evicted"].map(str::to_owned));
        let expected = [
            format!("{}WITH", " ".repeat(27)),
            format!("admitted in 20m{}2", " ".repeat(15)),
            "nlp-tra…-ft-7c2   preemp… 5m 9s   evicted".to_owned(),
        ];
        assert_eq!(table.text(true, Some(41)).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_last_text_continues_in_further_lines() {
        let columns = [("CHECK", Side::Whole), ("FINDING", Side::Left)];
        let mut table = TextTable::new(columns);
        table.wrap_last();
        table.push_toned(["stuck", "1 workload: a pod asks for 9 gpu"].map(str::to_owned), 1, Tone::Bad);
        table.push_text(["idle".to_owned()], "no workload for 30 days");
        assert_eq!(
            table.text(true, Some(24)),
            "CHECK   FINDING\nstuck   1 workload: a\n        pod asks for 9\n        gpu\nidle    no workload for\n        30 days\n"
        );
        assert_eq!(table.text(false, None).lines().count(), 2);
        assert_eq!(table.painted(true, Some(24), true).matches("\u{1b}[31m").count(), 3);
    }

    #[test]
    fn a_drawing_stays_whole_and_its_heading_does_not() {
        let bar = "[####|....]";
        let mut table = TextTable::new([("NAME", Side::Left), ("nvidia.com/gpu h100-80g", Side::Whole)]);
        table.push(["a-long-name-of-a-queue".to_owned(), bar.to_owned()]);
        let expected = format!("NAME{}nvidi…0-80g\na-long…queue   {bar}\n", " ".repeat(11));
        assert_eq!(table.text(true, Some(26)), expected);
    }
}
