//! `why --before`.

use super::Look;
use crate::people::text_table::{Side, TextTable, Tone, printable};
use crate::visibility::views::{Comparison, Scope};
use std::fmt::Write as _;

/// Returns the comparison of two Workloads, factor by factor.
pub fn comparison(comparison: &Comparison, look: Look) -> String {
    // The namespace is shown only where it tells the two apart.
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
        ("FACTOR", Side::Left),
        (workload.as_str(), Side::Left),
        (other.as_str(), Side::Left),
        ("", Side::Left),
    ];
    let mut table = TextTable::new(columns);
    for factor in &comparison.factors {
        let name = if factor.part { format!("  {}", factor.name) } else { factor.name.clone() };
        let note = match (factor.decides, factor.note.as_str()) {
            (true, "") => "<- decides".to_owned(),
            (true, note) => format!("<- decides; {note}"),
            (false, note) => note.to_owned(),
        };
        let tone = if factor.decides { Tone::Waiting } else { Tone::Plain };
        table.push_toned([name, factor.workload.clone(), factor.other.clone(), note], 3, tone);
    }
    text.push_str(&table.painted(look.headings, look.width, look.color));
    let scope =
        (comparison.scope == Scope::Cycle).then_some("The order holds within one scheduling cycle only");
    let notes = scope.into_iter().chain(Some(comparison.note.as_str()).filter(|note| !note.is_empty()));
    for note in notes {
        let _ = writeln!(text, "\n{}.", printable(note));
    }
    text
}
