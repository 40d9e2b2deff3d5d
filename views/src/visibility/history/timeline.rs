//! The events of a workload, from its conditions and from the history, which also has the evictions before the last one.
//!
//! Invariant: a preemptor that the reader may not see is named by its ClusterQueue only.

use super::{preemptor_view, workload_text};
use crate::api::reason::ConditionType;
use crate::history::{EvictionEvent, HistoryView, RecordEvent};
use crate::visibility::access::Access;
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
