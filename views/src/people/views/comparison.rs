//! Text of `why --before`.

use super::Look;
use super::time::at;
use crate::people::text_table::{Side, TextTable, Tone, printable};
use crate::visibility::views::{Comparison, Factor, Scope};
use jiff::Timestamp;
use std::fmt::Write as _;

/// Factor that is shown only if it decides: no user can influence a UID.
const LAST_FACTOR: &str = "UID";

/// Returns the comparison of two Workloads, factor by factor.
pub fn comparison(comparison: &Comparison, look: Look) -> String {
    // The namespace is shown only if the two Workloads have different ones.
    let names =
        [&comparison.workload, &comparison.other].map(|text| text.split_once('/').unwrap_or(("", text)));
    let is_one_namespace = names[0].0 == names[1].0;
    let name = |number: usize| match (names.get(number), is_one_namespace) {
        (Some((_, name)), true) => (*name).to_owned(),
        (Some((namespace, name)), false) => format!("{namespace}/{name}"),
        (None, _) => String::new(),
    };
    let (workload, other) = (name(0), name(1));
    let (first, second) = if comparison.other_is_before { (&other, &workload) } else { (&workload, &other) };
    let mut text = printable(&format!("{first} is before {second}: {}.", comparison.because));
    text.push_str("\n\n");
    let columns = [
        ("FACTOR", Side::Whole),
        (workload.as_str(), Side::Left),
        (other.as_str(), Side::Left),
        ("", Side::Left),
    ];
    let mut table = TextTable::new(columns);
    table.wrap_last();
    let is_shown = |factor: &&Factor| factor.decides || factor.name != LAST_FACTOR;
    for factor in comparison.factors.iter().filter(is_shown) {
        let name = if factor.part { format!("  {}", factor.name) } else { factor.name.clone() };
        let note = match (factor.decides, factor.note.as_str()) {
            (true, "") => "<- decides".to_owned(),
            (true, note) => format!("<- decides; {note}"),
            (false, note) => note.to_owned(),
        };
        let tone = if factor.decides { Tone::Waiting } else { Tone::Plain };
        table.push_toned([name, value(&factor.workload, look), value(&factor.other, look), note], 3, tone);
    }
    text.push_str(&look.show(&table));
    let note = match (comparison.note.as_str(), comparison.scope) {
        ("", Scope::Cycle) => "The order holds within one scheduling cycle only",
        (note, _) => note,
    };
    if !note.is_empty() {
        let _ = writeln!(text, "\n{}.", printable(note));
    }
    text
}

/// Returns the value of a factor; times in the format of other texts.
fn value(text: &str, look: Look) -> String {
    // After a time, its source may follow.
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    match first.parse::<Timestamp>() {
        Ok(time) if rest.is_empty() => at(time, look),
        Ok(time) => format!("{} {rest}", at(time, look)),
        Err(_) => text.to_owned(),
    }
}
