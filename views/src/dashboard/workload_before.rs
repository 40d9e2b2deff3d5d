//! Which of two pending workloads is first, on the page of one of them.
//!
//! Invariant: the comparison is made once, when the page is opened: updates follow the workload of the page alone.

use super::links::{Links, encode};
use super::page::AddressedPage;
use super::text::Moment;
use crate::visibility::questions::WorkloadName;
use crate::visibility::views::{Comparison, Factor};
use jiff::Timestamp;

/// The page of a Workload, with its comparison with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeforeQuery {
    /// The Workload.
    pub workload: WorkloadName,
    /// The other one.
    pub other: WorkloadName,
}

impl AddressedPage for BeforeQuery {
    fn href(&self, links: &Links) -> String {
        let WorkloadName { namespace, name } = &self.other;
        let is_near = *namespace == self.workload.namespace;
        let other = if is_near { name.clone() } else { format!("{namespace}/{name}") };
        format!("{}?before={}", self.workload.href(links), encode(&other))
    }

    fn namespace(&self) -> Option<&str> {
        AddressedPage::namespace(&self.workload)
    }

    fn subject(&self) -> String {
        self.workload.subject()
    }

    fn object(&self) -> String {
        self.workload.object()
    }

    fn asks_core(&self) -> bool {
        true
    }
}

/// The comparison, as the page shows it.
pub(super) struct ComparedPart {
    pub(super) sentence: String,
    pub(super) rows: Vec<FactorRow>,
    /// What the order does not say; empty for nothing.
    pub(super) note: String,
}

pub(super) struct FactorRow {
    pub(super) name: String,
    pub(super) own: Value,
    pub(super) other: Value,
    pub(super) note: String,
    pub(super) decides: bool,
    /// Whether it is a part of the factor before it.
    pub(super) is_part: bool,
}

/// A value of a factor: a time if it is one, and text.
pub(super) struct Value {
    pub(super) time: Moment,
    pub(super) text: String,
}

impl Value {
    fn of(text: &str, now: Timestamp) -> Self {
        // After a time, its source may follow.
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        match first.parse::<Timestamp>() {
            Ok(time) => Self { time: Moment::clock_on(time, now), text: rest.to_owned() },
            Err(_) => Self { time: Moment::default(), text: text.to_owned() },
        }
    }
}

impl ComparedPart {
    /// Returns a comparison as the page shows it.
    pub(super) fn of(compared: &Comparison, now: Timestamp) -> Self {
        let (own, other) = (&compared.workload, &compared.other);
        let (first, second) = if compared.other_is_before { (other, own) } else { (own, other) };
        let row = |factor: &Factor| FactorRow {
            name: factor.name.clone(),
            own: Value::of(&factor.workload, now),
            other: Value::of(&factor.other, now),
            note: factor.note.clone(),
            decides: factor.decides,
            is_part: factor.part,
        };
        Self {
            sentence: format!("{first} is before {second}: {}.", compared.because),
            rows: compared.factors.iter().map(row).collect(),
            note: if compared.note.is_empty() { String::new() } else { format!("{}.", compared.note) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_named_first_and_times_are_times() {
        let factor = |name: &str, workload: &str, decides: bool| Factor {
            name: name.to_owned(),
            workload: workload.to_owned(),
            decides,
            ..Factor::default()
        };
        let mut compared = Comparison {
            workload: "team/a".to_owned(),
            other: "team/b".to_owned(),
            other_is_before: true,
            because: "it was queued earlier".to_owned(),
            factors: vec![
                factor("Priority", "5", false),
                factor("Queued since", "2026-11-26T13:02:46Z (eviction)", true),
            ],
            ..Comparison::default()
        };
        let now: Timestamp = "2026-11-26T14:00:00Z".parse().unwrap();
        let shown = ComparedPart::of(&compared, now);
        assert_eq!(shown.sentence, "team/b is before team/a: it was queued earlier.");
        let values: Vec<(&str, &str, bool)> =
            shown.rows.iter().map(|row| (&*row.own.text, &*row.own.time.shown, row.decides)).collect();
        assert_eq!(values, [("5", "", false), ("(eviction)", "13:02:46", true)]);
        compared.other_is_before = false;
        let shown = ComparedPart::of(&compared, now);
        assert_eq!(shown.sentence, "team/a is before team/b: it was queued earlier.");
    }
}
