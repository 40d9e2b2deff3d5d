//! The lines of a frame.
//!
//! Invariant: colours and the inverse line repeat information that the text has too.

use super::rows::{TopRows, namespaces, oldest};
use super::{Overlay, Reading, TopKind, TopScreen};
use crate::people::rows_left::RowsLeft;
use crate::people::text_table::printable;
use crate::people::views::{self, Look, blocked_by, default_flavor_resource};
use crate::visibility::views::{ClusterQueueView, WorkloadState, WorkloadView};
use std::fmt::Write as _;

/// Lines above the rows, with the headings, and below them.
const AROUND: usize = 5;
const HELP: &str = "\
q        quit
/        show rows whose name, namespace or queue contains a text
o        order: wait, position, need, priority
r        next reason
n        next namespace
Esc      all rows
Enter    why the marked workload waits
Space    stop reading again, and go on
Up Down PgUp PgDn Home End   move the mark, as j and k
";
const KEYS: &str = "? help  q quit  / filter  o order  r reason  n namespace  Enter why  Space freeze";

/// Columns and lines of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub lines: usize,
}

impl Size {
    /// Returns the number of rows that fit.
    pub fn page(self) -> usize {
        self.lines.saturating_sub(AROUND).max(1)
    }
}

impl TopScreen {
    /// Returns the lines to show.
    pub fn frame(&self, reading: &Reading, look: Look, size: Size) -> Vec<String> {
        let mut lines = match &self.overlay {
            Overlay::Help => HELP.lines().map(str::to_owned).collect(),
            Overlay::Text(text, first) => text.lines().skip(*first).map(str::to_owned).collect(),
            Overlay::None => self.rows(reading, look, size),
        };
        if self.overlay != Overlay::None {
            lines.truncate(size.lines.saturating_sub(1));
            lines.resize(size.lines.saturating_sub(1), String::new());
            lines.push("any other key goes back".to_owned());
        }
        lines.truncate(size.lines);
        lines.into_iter().map(|line| cut(&line, size.columns)).collect()
    }

    /// Returns the output of `top` without a terminal: the first lines and all rows.
    pub fn page(&self, reading: &Reading, look: Look) -> String {
        let rows = TopRows::of(self, reading);
        let mut lines = vec![counts(reading)];
        lines.extend(oldest(reading).map(|row| oldest_line(row, look)));
        lines.join("\n") + "\n" + &table(&rows, namespaces(reading).len() > 1, look)
    }

    fn rows(&self, reading: &Reading, look: Look, size: Size) -> Vec<String> {
        let rows = TopRows::of(self, reading);
        let place = rows.place(self.marked.as_deref());
        let mut lines = vec![counts(reading)];
        lines.push(
            oldest(reading).map_or_else(|| "nothing is pending".to_owned(), |row| oldest_line(row, look)),
        );
        lines.push(self.filters(&rows));
        // Two characters before each row mark it. What does not fit is cut by `cut`, which counts no colours.
        let width = Some(size.columns.saturating_sub(2));
        let look = Look { width, headings: true, csv: false, ..look };
        let text = table(&rows, namespaces(reading).len() > 1, look);
        let mut table = text.lines();
        lines.push(format!("  {}", table.next().unwrap_or("no row matches")));
        let first = place.saturating_sub(size.page() / 2).min(rows.len().saturating_sub(size.page()));
        for (at, row) in table.enumerate().skip(first).take(size.page()) {
            // An inverse line has no colours, because their end would end the inversion too.
            let marked = || format!("\u{1b}[7m> {}\u{1b}[0m", without_colors(row));
            lines.push(if at == place { marked() } else { format!("  {row}") });
        }
        lines.resize(size.lines.saturating_sub(1).max(lines.len().min(size.lines)), String::new());
        lines.push(self.last_line());
        lines
    }

    /// Returns the line about the filters.
    fn filters(&self, rows: &TopRows<'_>) -> String {
        let mut parts = vec![format!("{} rows", rows.len())];
        if self.kind == TopKind::Workloads {
            parts.push(format!("by {}", self.order.as_str()));
            parts.extend(self.namespace.as_ref().map(|name| format!("namespace {name}")));
            parts.extend(self.reason.as_ref().map(|reason| format!("reason {reason}")));
        }
        if !self.filter.is_empty() {
            parts.push(format!("with {:?}", self.filter));
        }
        if self.is_frozen {
            parts.push("frozen".to_owned());
        }
        printable(&parts.join(", "))
    }

    fn last_line(&self) -> String {
        match &self.error {
            _ if self.is_typing => format!("/{}", printable(&self.filter)),
            Some(error) => printable(&format!("cannot read: {error}")),
            None => KEYS.to_owned(),
        }
    }
}

/// Returns the line with the numbers of Workloads and the manager's decisions.
fn counts(reading: &Reading) -> String {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let count = |state| number(reading.workloads.iter().filter(|row| row.state == state).count());
    // The counts of the queues include Workloads that were not read.
    let (admitted, pending) = match &reading.queues {
        Some(queues) => (
            queues.iter().map(|queue| queue.admitted).sum(),
            queues.iter().map(|queue| queue.pending.total).sum(),
        ),
        None => (count(WorkloadState::Admitted), count(WorkloadState::Pending)),
    };
    let mut text = format!("{admitted} admitted, {pending} pending");
    if let Some(decisions) = &reading.decisions {
        let rates = [
            (decisions.admissions_per_minute, "admissions/min"),
            (decisions.evictions_per_minute, "evictions/min"),
        ];
        for (rate, unit) in rates.iter().filter_map(|(rate, unit)| rate.map(|rate| (rate, unit))) {
            let _ = write!(text, "; {rate:.1} {unit}");
        }
    }
    let read = number(reading.workloads.len());
    let _ = match reading.left {
        RowsLeft::None => Ok(()),
        RowsLeft::Number(left) => {
            write!(text, "; rows are the first {read} of {}", read.saturating_add(left))
        }
        RowsLeft::Some => write!(text, "; rows are the first {read}, there are more"),
    };
    text
}

fn oldest_line(row: &WorkloadView, look: Look) -> String {
    let blocker = row.first_blocker.as_ref().map(blocked_by).filter(|text| text != "-");
    let reason = blocker.unwrap_or_else(|| row.reason.clone());
    let wait = views::since(row.since, look);
    printable(&format!(
        "oldest pending: {}/{} for {wait}: {reason}",
        row.metadata.namespace, row.metadata.name
    ))
}

fn table(rows: &TopRows<'_>, namespaces: bool, look: Look) -> String {
    match rows {
        TopRows::Workloads(rows) => {
            let rows: Vec<WorkloadView> = rows.iter().map(|&row| row.clone()).collect();
            if rows.is_empty() { String::new() } else { views::workloads(&rows, namespaces, look) }
        }
        TopRows::Queues(rows) => {
            let rows: Vec<ClusterQueueView> = rows.iter().map(|&row| row.clone()).collect();
            let shown = default_flavor_resource(rows.iter().flat_map(|row| &row.quota));
            if rows.is_empty() { String::new() } else { views::cluster_queues(&rows, shown.as_ref(), look) }
        }
    }
}

/// Splits a line into characters and the sequences that colour them, which have no width.
fn pieces(line: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_color = first == '\u{1b}';
        let end = if is_color { rest.find('m').map_or(rest.len(), |at| at + 1) } else { first.len_utf8() };
        let (piece, left) = rest.split_at(end);
        rest = left;
        Some((piece, is_color))
    })
}

pub(super) fn without_colors(line: &str) -> String {
    pieces(line).filter(|(_, is_color)| !is_color).map(|(piece, _)| piece).collect()
}

/// Cuts a line to a width; colours stay whole.
fn cut(line: &str, width: usize) -> String {
    let mut used = 0;
    let kept = pieces(line).filter(|(_, is_color)| {
        used += usize::from(!is_color);
        *is_color || used <= width
    });
    kept.map(|(piece, _)| piece).collect()
}
