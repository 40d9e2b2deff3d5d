//! The report as human-readable tables.

use super::report::{AdmittedRow, PendingRow, QueueRow, Report};
use super::timeline::{TimelineEntry, TimelineEventKind};
use jiff::{SignedDuration, Unit};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A table; the last column has no fixed width.
struct Table {
    title: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: &'static str, head: &[&str]) -> Self {
        Self { title, rows: vec![head.iter().map(|word| (*word).to_owned()).collect()] }
    }

    /// Appends the table to `text` unless it has only a header.
    fn print(&self, text: &mut String) {
        if self.rows.len() < 2 {
            return;
        }
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, word) in widths.iter_mut().zip(row) {
                *width = (*width).max(word.chars().count());
            }
        }
        heading(text, self.title);
        for row in &self.rows {
            let mut line = String::new();
            for (word, width) in row.iter().zip(&widths) {
                let width = *width;
                // Writing to a String does not fail.
                let _ = write!(line, "  {word:<width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
}

fn heading(text: &mut String, title: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(title);
    text.push('\n');
}

impl Report {
    /// Formats the report as tables, with at most `history` timeline entries.
    pub fn tables(&self, history: usize) -> String {
        let mut text = String::new();
        self.print_history(history, &mut text);
        let rows = |table: Table, rows: Vec<Vec<String>>| {
            let mut table = table;
            table.rows.extend(rows);
            table
        };
        let head = ["NAME", "CLUSTERQUEUE", "PRIORITY", "STATE", "FINISHES", "PODS"];
        let admitted = self.admitted.iter().map(admitted_columns).collect();
        rows(Table::new("Admitted", &head), admitted).print(&mut text);
        let head = ["NAME", "AT", "CLUSTERQUEUE", "NOW", "BY", "REASON"];
        let preempted = self.preempted.iter().map(|p| {
            let (at, queue) = (format_duration(p.seconds), p.cluster_queue.clone());
            vec![
                p.workload.display_name().to_owned(),
                at,
                queue,
                p.current_state.to_owned(),
                p.preemptor.clone(),
                p.reason.clone(),
            ]
        });
        rows(Table::new("Preempted", &head), preempted.collect()).print(&mut text);
        let head = ["NAME", "CLUSTERQUEUE", "PRIORITY", "POSITION", "REASON", "WHY"];
        let pending = self.pending.iter().map(pending_columns).collect();
        rows(Table::new("Pending", &head), pending).print(&mut text);
        let head = ["NAME", "COHORT", "RESERVING", "PENDING", "SHARE", "USED / NOMINAL (BORROWED)"];
        rows(Table::new("Queues", &head), self.queues.iter().map(queue_columns).collect()).print(&mut text);
        self.print_rest(&mut text);
        text
    }

    pub(super) fn print_history(&self, max_entries: usize, text: &mut String) {
        let mut table = Table::new("Timeline", &["TIME", "EVENT", "NAME", "CLUSTERQUEUE", "WHY"]);
        table.rows.extend(self.timeline.iter().take(max_entries).map(entry_columns));
        table.print(text);
        let omitted = self.timeline.len().saturating_sub(max_entries);
        if omitted > 0 {
            let _ = writeln!(text, "  … {omitted} more; --history 0 shows all");
        }
    }

    fn print_rest(&self, text: &mut String) {
        let list = |text: &mut String, title: &str, lines: &[String]| {
            if !lines.is_empty() {
                heading(text, title);
                for line in lines {
                    let _ = writeln!(text, "  {line}");
                }
            }
        };
        list(text, "Unmanaged Jobs (no queue name; not subject to quota)", &self.unqueued);
        list(text, "Not managed (a queue name without effect; not subject to quota)", &self.not_managed);
        let warnings: Vec<String> =
            self.warnings.iter().map(|(object, note)| format!("{object}: {note}")).collect();
        list(text, "Warnings", &warnings);
        list(text, "Notes", &self.notes);
        let ignored: Vec<String> =
            self.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        list(text, "Ignored (kinds that do not affect scheduling)", &ignored);
        if !text.is_empty() {
            text.push('\n');
        }
        let how = match (self.end.settled, self.end.livelocked) {
            (true, _) => "Settled",
            (_, true) => "Livelock",
            _ => "Stopped",
        };
        let _ = write!(text, "{how} ");
        let _ = writeln!(
            text,
            "after {}: {} admitted, {} pending, {} finished, {} preemptions, {} skipped.",
            format_duration(self.end.seconds),
            self.admitted.len(),
            self.pending.len(),
            self.finished.len(),
            self.preempted.len(),
            self.problems.len(),
        );
    }
}

fn entry_columns(entry: &TimelineEntry) -> Vec<String> {
    let by = if entry.preemptor.is_empty() { String::new() } else { format!("for {}", entry.preemptor) };
    let detail = match entry.event {
        // The reason is sufficient.
        TimelineEventKind::Preempted => "",
        _ => &entry.detail,
    };
    let parts = [&by, &entry.reason, detail];
    let words: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let (at, event) = (format_duration(entry.seconds), entry.event.as_str().to_owned());
    vec![at, event, entry.workload.display_name().to_owned(), entry.cluster_queue.clone(), words.join(": ")]
}

fn admitted_columns(row: &AdmittedRow) -> Vec<String> {
    let sets = row.grant.pod_sets.iter().map(|set| {
        let usage = set.resource_usage.iter().map(|(resource, amount)| {
            let flavor = set.flavors.get(resource).map_or("", String::as_str);
            format!("{amount} {resource} of {flavor}")
        });
        let usage: Vec<String> = usage.collect();
        let pods = format!("{} {}", set.count.unwrap_or(0), set.name);
        if usage.is_empty() { pods } else { format!("{pods}: {}", usage.join(", ")) }
    });
    let sets: Vec<String> = sets.collect();
    vec![
        row.workload.display_name().to_owned(),
        row.grant.cluster_queue.clone(),
        row.priority.to_string(),
        row.state.to_owned(),
        row.ends_at.map_or_else(|| "never".to_owned(), format_duration),
        sets.join("; "),
    ]
}

fn pending_columns(row: &PendingRow) -> Vec<String> {
    // The available quota is not part of the message.
    let mut why = row.message.clone();
    // Each amount once, though several pod sets lack it.
    let mut free: BTreeMap<String, String> = BTreeMap::new();
    for blocker in row.blockers.iter().filter(|blocker| blocker.kind == "inUse") {
        let amount = format!("{} {} of {}", blocker.available, blocker.resource, blocker.flavor);
        let by_all = free.entry(amount).or_default();
        if !blocker.requested_by_all.is_empty() {
            *by_all = format!("; all pod sets request {}", blocker.requested_by_all);
        }
    }
    if !free.is_empty() {
        let free: Vec<String> =
            free.into_iter().map(|(amount, by_all)| format!("{amount}{by_all}")).collect();
        let _ = write!(why, " (free now: {})", free.join(", "));
    }
    match (row.never_fits, row.stuck) {
        (true, _) => {
            let _ = write!(why, " (never fits: {})", row.obstacle);
        }
        // What keeps it out is its message.
        (false, true) if row.obstacle.is_empty() || row.obstacle == row.message => why.push_str(" (stuck)"),
        (false, true) => why = format!("{} (stuck)", row.obstacle),
        (false, false) if !row.obstacle.is_empty() => why.clone_from(&row.obstacle),
        (false, false) => {}
    }
    vec![
        row.workload.display_name().to_owned(),
        row.cluster_queue.clone(),
        row.priority.to_string(),
        row.position.map_or_else(|| "-".to_owned(), |position| position.to_string()),
        row.reason.clone(),
        why,
    ]
}

fn queue_columns(row: &QueueRow) -> Vec<String> {
    let usage = row.usage.iter().map(|fr| {
        let borrowed = if fr.borrowed == "0" { String::new() } else { format!(" ({})", fr.borrowed) };
        format!("{} {}: {} / {}{borrowed}", fr.flavor, fr.resource, fr.used, fr.nominal)
    });
    let usage: Vec<String> = usage.collect();
    let share =
        if row.weighted_share == i64::MAX { "∞".to_owned() } else { row.weighted_share.to_string() };
    let count = |number: usize| if row.kind == "Cohort" { "-".to_owned() } else { number.to_string() };
    vec![
        format!("{}/{}", row.kind, row.name),
        row.cohort.clone(),
        count(row.reserving),
        count(row.pending),
        share,
        usage.join(", "),
    ]
}

/// Formats a time since the start as `1h 2m 3s`, rounded to seconds, below a minute to milliseconds: the start may be a cluster's current
/// time.
pub fn format_duration(seconds: f64) -> String {
    let read = SignedDuration::try_from_secs_f64(seconds).and_then(|d| {
        let is_short = d.as_secs().unsigned_abs() < 60;
        d.round(if is_short { Unit::Millisecond } else { Unit::Second })
    });
    read.map_or_else(|_| format!("{seconds}s"), |d| format!("{d:#}"))
}

#[cfg(test)]
mod tests {
    use super::format_duration;

    #[test]
    fn length_cases() {
        let cases = [
            (0.0, "0s"),
            (7.25, "7s 250ms"),
            (59.999_9, "1m"),
            (596.904_339_763, "9m 57s"),
            (3723.0, "1h 2m 3s"),
            (6_959.658, "1h 56m"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_duration(seconds), text, "{seconds}");
        }
    }
}
