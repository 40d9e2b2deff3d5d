//! The events of a workload, from its conditions and from the history, which also has earlier waits with their reasons, and the
//! evictions before the last one.
//!
//! Invariants: a preemptor that the reader may not see is named by its ClusterQueue only; an event of the conditions occurs once.

use super::{preemptor_view, workload_text};
use crate::api::reason::{ConditionType, PendingReason};
use crate::history::{EvictionEvent, HistoryView, OpenWait, RecordEvent, WaitEvent, WaitResult};
use crate::visibility::access::Access;
use crate::visibility::age::human;
use crate::visibility::views::{HistoryEntry, WorkloadReference};
use jiff::Timestamp;

/// Adds the evictions of a Workload in a history to the events of its conditions, ordered by time.
pub fn add_evictions(entries: &mut Vec<HistoryEntry>, history: &HistoryView, uid: &str, access: &Access) {
    let (evicted, preempted) = (ConditionType::Evicted.as_str(), ConditionType::Preempted.as_str());
    for record in history.records.iter().filter(|record| *record.key.uid == *uid) {
        let RecordEvent::Eviction(eviction) = &record.event else { continue };
        let Ok(time) = Timestamp::from_millisecond(eviction.at) else { continue };
        let is_same =
            |entry: &HistoryEntry| entry.time == time && (entry.event == evicted || entry.event == preempted);
        let known = entries.iter().find(|entry| is_same(entry) && !entry.text.is_empty()).cloned();
        entries.retain(|entry| !is_same(entry));
        let mut entry = entry(time, eviction, access);
        if entry.text.is_empty() {
            entry.text = known.map(|known| known.text).unwrap_or_default();
        }
        entries.push(entry);
    }
    HistoryEntry::sort(entries);
}

/// Adds the waits of a Workload in a history, and the wait that has not ended, to its events, ordered by time.
pub fn add_waits(entries: &mut Vec<HistoryEntry>, history: &HistoryView, uid: &str, open: Option<&OpenWait>) {
    let open = open.filter(|open| !open.earlier.is_empty());
    if open.is_some() {
        // The object shows the open wait with its present reason alone.
        entries.retain(|entry| entry.event != HistoryEntry::PENDING);
    }
    for record in history.records.iter().filter(|record| *record.key.uid == *uid) {
        match &record.event {
            RecordEvent::Wait(wait) => add_wait(entries, wait),
            RecordEvent::Eviction(EvictionEvent { released: Some(at), .. }) => {
                entries.extend(event(*at, HistoryEntry::QUOTA_RELEASED, ""));
            }
            _ => {}
        }
    }
    if let Some(open) = open {
        add_open_wait(entries, open);
    }
    HistoryEntry::sort(entries);
}

/// Adds a wait that has ended.
fn add_wait(entries: &mut Vec<HistoryEntry>, wait: &WaitEvent) {
    let started = event(wait.start, HistoryEntry::PENDING, "");
    entries.extend(started.map(|started| with_reasons(started, &wait.by_reason)));
    let waited = format!("after {}", seconds_text(wait.end.saturating_sub(wait.start)));
    match wait.result {
        WaitResult::Reserved => {
            let Some(ended) = event(wait.end, ConditionType::QuotaReserved.as_str(), &waited) else { return };
            // The condition shows the last reservation.
            let same = |entry: &&mut HistoryEntry| {
                entry.event == ended.event && entry.time.as_second() == ended.time.as_second()
            };
            match entries.iter_mut().find(same) {
                Some(known) => known.text = waited,
                None => entries.push(ended),
            }
        }
        WaitResult::Deactivated => entries.extend(event(wait.end, HistoryEntry::LEFT_QUEUE, &waited)),
        // The end of the Workload is an event of its own.
        WaitResult::Deleted => {}
    }
}

/// Adds the wait that has not ended: its start with the earlier reasons, and the change to the present one.
fn add_open_wait(entries: &mut Vec<HistoryEntry>, open: &OpenWait) {
    let started = event(open.since, HistoryEntry::PENDING, "");
    entries.extend(started.map(|started| with_reasons(started, &open.earlier)));
    let present = event(open.reason_since, HistoryEntry::PENDING, "now");
    entries
        .extend(present.map(|present| HistoryEntry { reason: open.reason.as_str().to_owned(), ..present }));
}

/// Adds the reasons of a wait: one as the reason of the entry, several with the time of each.
fn with_reasons(entry: HistoryEntry, reasons: &[(PendingReason, i64)]) -> HistoryEntry {
    match reasons {
        [] => entry,
        [(reason, _)] => HistoryEntry { reason: reason.as_str().to_owned(), ..entry },
        several => {
            let text = |(reason, time): &(PendingReason, i64)| {
                format!("{} {}", reason.as_str(), seconds_text(*time))
            };
            HistoryEntry { text: several.iter().map(text).collect::<Vec<_>>().join(", "), ..entry }
        }
    }
}

fn seconds_text(milliseconds: i64) -> String {
    human(milliseconds.div_euclid(1_000).max(0))
}

/// Returns an event at a time in milliseconds since the epoch; `None` for a time that no calendar has.
fn event(at: i64, event: &str, text: &str) -> Option<HistoryEntry> {
    Some(HistoryEntry {
        time: Timestamp::from_millisecond(at).ok()?,
        event: event.to_owned(),
        reason: String::new(),
        text: text.to_owned(),
        by: None,
    })
}

fn entry(time: Timestamp, eviction: &EvictionEvent, access: &Access) -> HistoryEntry {
    let Some(preemption) = &eviction.preemption else {
        return HistoryEntry {
            time,
            event: ConditionType::Evicted.as_str().to_owned(),
            reason: eviction.reason.to_string(),
            text: String::new(),
            by: None,
        };
    };
    let by = preemption.preemptor.as_ref().map(|preemptor| preemptor_view(preemptor, access));
    let text = by.as_ref().map(|by| format!("preempted by {}", workload_text(by)));
    HistoryEntry {
        time,
        event: ConditionType::Preempted.as_str().to_owned(),
        reason: preemption.reason.to_string(),
        text: text.unwrap_or_default(),
        by: by
            .filter(|by| !by.name.is_empty())
            .map(|by| WorkloadReference { namespace: by.namespace, name: by.name }),
    }
}
