//! Text of `status`.

use super::Look;
use super::time::{at, since};
use crate::people::text_table::{Tone, printable};
use crate::visibility::views::ManagerView;
use std::fmt::Write as _;

const MEBIBYTE: u64 = 1024 * 1024;

/// Returns the state of the manager; the last line is `ok`, or the names of the conditions that hold.
pub fn status(view: &ManagerView, look: Look) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let decided = view.decisions.as_ref().and_then(|decisions| decisions.last);
    if let Some(leader) = &view.leader {
        let decided =
            decided.map(|time| format!(", decided {} ago", since(Some(time), look))).unwrap_or_default();
        let replicas = match (leader.ready_replicas, leader.replicas) {
            (Some(ready), Some(all)) => format!("; {ready} of {all} replicas ready"),
            (Some(1), None) => "; 1 replica answers".to_owned(),
            (Some(ready), None) => format!("; {ready} replicas answer"),
            _ => String::new(),
        };
        lines.push((
            "leader",
            format!(
                "{} since {}{decided}{replicas}, {}",
                leader.name,
                since(leader.since, look),
                view.version
            ),
        ));
    } else {
        lines.push(("leader", format!("none is known; replica {}, {}", view.metadata.name, view.version)));
    }
    if let Some(decisions) = &view.decisions {
        let rates = [
            (decisions.admissions_per_minute, "admissions/min"),
            (decisions.evictions_per_minute, "evictions/min"),
        ];
        let rates = rates.iter().filter_map(|(rate, unit)| rate.map(|rate| format!("{rate:.1} {unit}")));
        let mut parts = vec![rates.collect::<Vec<_>>().join(", ")];
        parts.extend(
            decisions.cycle_p99_seconds.map(|seconds| format!("cycle p99 {:.2}ms", seconds * 1000.0)),
        );
        parts.retain(|part| !part.is_empty());
        lines.push(("decisions", parts.join("; ")));
    }
    if let Some(writes) = &view.writes {
        let conflicts = writes.conflicts_per_minute;
        let conflicts = conflicts.map(|rate| format!("; conflicts {rate:.1}/min")).unwrap_or_default();
        let text = format!(
            "{} waiting, {} in flight, {} failed; {} assumed admissions{conflicts}",
            writes.waiting, writes.in_flight, writes.failed, writes.assumed_admissions
        );
        lines.push(("writes", text));
    }
    if let Some(watches) = &view.watches {
        let oldest =
            watches.oldest_seconds.map(|seconds| format!(" (oldest {seconds}s)")).unwrap_or_default();
        lines.push(("watches", format!("{} of {} current{oldest}", watches.current, watches.total)));
    }
    lines.push(("ledger", format!("{} flavor-resources differ", view.ledger_drift)));
    if let Some(findings) = &view.findings {
        lines.push((
            "findings",
            format!(
                "{}, {} (sluice audit)",
                counted(findings.errors, "error"),
                counted(findings.warnings, "warning")
            ),
        ));
    }
    if let Some(history) = &view.history {
        let since = history.since.map(|time| format!("since {}, ", at(time, look))).unwrap_or_default();
        let until = history.until.map(|time| format!("until {}, ", at(time, look))).unwrap_or_default();
        let used =
            format!("{} of {} MiB", history.used_bytes.div_ceil(MEBIBYTE), history.limit_bytes / MEBIBYTE);
        lines.push(("history", format!("{since}{until}{used}")));
    }
    if !view.unknown_feature_gates.is_empty() {
        lines.push(("gates", format!("unknown, without effect: {}", view.unknown_feature_gates.join(", "))));
    }
    lines.retain(|(_, text)| !text.is_empty());
    let mut text = String::new();
    for (label, line) in &lines {
        let _ = writeln!(text, "{label:9}   {}", printable(line));
    }
    let (verdict, tone) = match view.conditions.as_slice() {
        [] => ("ok".to_owned(), Tone::Good),
        conditions => (conditions.join(", "), Tone::Bad),
    };
    let verdict = printable(&verdict);
    text.push_str(&if look.color { tone.paint(&verdict) } else { verdict });
    text.push('\n');
    text
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
