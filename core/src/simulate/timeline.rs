//! Timeline of events, derived from changes of Workload statuses.

use super::objects::{ConditionFlags, condition, field_text, has_owner, key_of, text_at, value_at};
use crate::api::ObjectKey;
use indexmap::IndexMap;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// Seconds since the start.
    pub seconds: f64,
    /// Kind of the event.
    pub event: TimelineEventKind,
    /// The affected workload.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// The ClusterQueue, if the event concerns one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// The preemptor of a preempted workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[serde(rename = "by")]
    pub preemptor: String,
    /// Reason of the condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Flavors, or message of the condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A Workload and its job; keys are `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkloadRef {
    /// The Workload.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// The job, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TimelineEventKind {
    /// Quota is reserved; admission checks are outstanding.
    Reserved,
    /// The workload is admitted.
    Admitted,
    /// The workload is pending, or the reason has changed.
    Pending,
    /// The workload was evicted for a preemptor.
    Preempted,
    /// The workload was evicted for another reason.
    Evicted,
    /// Its quota is released.
    Released,
    /// The workload has finished.
    Finished,
    /// The change in `detail` was applied.
    Changed,
}

impl TimelineEventKind {
    /// Returns the word shown in tables.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Admitted => "admitted",
            Self::Pending => "pending",
            Self::Preempted => "preempted",
            Self::Evicted => "evicted",
            Self::Released => "quota released",
            Self::Finished => "finished",
            Self::Changed => "changed",
        }
    }
}

impl WorkloadRef {
    /// Reads the keys of a Workload and its job.
    pub(super) fn from_workload(workload: &Value) -> Self {
        let key = key_of(workload);
        let owner = text_at(workload, "/metadata/ownerReferences/0/name");
        let of_pods = text_at(workload, "/metadata/ownerReferences/0/kind") == "Pod"
            && value_at(workload, "/metadata/ownerReferences/0/controller").is_none();
        let job = if of_pods {
            // A pod group, which has the name of its Workload.
            key.to_string()
        } else if has_owner(workload) {
            ObjectKey::new(&key.namespace, owner).to_string()
        } else {
            String::new()
        };
        Self { workload: key.to_string(), job }
    }

    /// Returns the name to display: the job if there is one, else the Workload.
    pub fn display_name(&self) -> &str {
        if self.job.is_empty() { &self.workload } else { &self.job }
    }
}

/// The entries so far, and the names of Workloads.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) entries: Vec<TimelineEntry>,
    /// Names of Workloads by UID, to resolve preemptors.
    names_by_uid: IndexMap<String, String>,
}

impl Timeline {
    /// Records the name of a Workload.
    pub(super) fn register(&mut self, workload: &Value) {
        let uid = text_at(workload, "/metadata/uid");
        if !uid.is_empty() && !self.names_by_uid.contains_key(uid) {
            self.names_by_uid
                .insert(uid.to_owned(), WorkloadRef::from_workload(workload).display_name().to_owned());
        }
    }

    /// Adds an entry if a change of a Workload status is an event.
    pub(super) fn observe(&mut self, old: &StatusSummary, new: &Value, elapsed: SignedDuration) {
        let Some((event, condition_type)) = classify_change(old, &StatusSummary::from_workload(new)) else {
            return;
        };
        let granted = matches!(event, TimelineEventKind::Admitted | TimelineEventKind::Reserved);
        let current_queue = text_at(new, "/status/admission/clusterQueue");
        self.entries.push(TimelineEntry {
            seconds: elapsed.as_secs_f64(),
            event,
            workload: WorkloadRef::from_workload(new),
            cluster_queue: if current_queue.is_empty() {
                old.cluster_queue.clone()
            } else {
                current_queue.to_owned()
            },
            preemptor: if event == TimelineEventKind::Preempted {
                self.preemptor(new)
            } else {
                String::new()
            },
            reason: if granted {
                String::new()
            } else {
                condition_field(new, condition_type, "reason").to_owned()
            },
            detail: if granted {
                format_flavors(new)
            } else {
                condition_field(new, condition_type, "message").to_owned()
            },
        });
    }

    /// Adds an entry for an applied change of the input.
    pub(super) fn record_change(&mut self, what: &str, elapsed: SignedDuration) {
        self.entries.push(TimelineEntry {
            seconds: elapsed.as_secs_f64(),
            event: TimelineEventKind::Changed,
            workload: WorkloadRef::default(),
            cluster_queue: String::new(),
            preemptor: String::new(),
            reason: String::new(),
            detail: what.to_owned(),
        });
    }

    /// Returns the name of the preemptor of a Workload, whose UID is in the condition message.
    pub(super) fn preemptor(&self, workload: &Value) -> String {
        let message = condition_field(workload, "Preempted", "message");
        let uid = message.split_once("(UID: ").and_then(|(_, rest)| rest.split(',').next());
        let uid = uid.unwrap_or_default();
        self.names_by_uid.get(uid).map_or(uid, String::as_str).to_owned()
    }
}

/// The part of a Workload status on which events depend.
#[derive(Debug, Default)]
pub(super) struct StatusSummary {
    flags: ConditionFlags,
    cluster_queue: String,
    /// Reason and message of `QuotaReserved=False`.
    pending_reason: (String, String),
}

impl StatusSummary {
    pub(super) fn from_workload(workload: &Value) -> Self {
        let word = |field: &str| condition_field(workload, "QuotaReserved", field).to_owned();
        let flags = ConditionFlags::from_workload(workload);
        Self {
            flags,
            cluster_queue: text_at(workload, "/status/admission/clusterQueue").to_owned(),
            pending_reason: if flags.reserved { <_>::default() } else { (word("reason"), word("message")) },
        }
    }
}

/// Returns the event that a status change means, and the type of the condition that explains it.
fn classify_change(
    before: &StatusSummary,
    after: &StatusSummary,
) -> Option<(TimelineEventKind, &'static str)> {
    let (old, new) = (before.flags, after.flags);
    if new.finished && !old.finished {
        Some((TimelineEventKind::Finished, "Finished"))
    } else if new.evicted && !old.evicted && new.preempted && !old.preempted {
        Some((TimelineEventKind::Preempted, "Preempted"))
    } else if new.evicted && !old.evicted {
        Some((TimelineEventKind::Evicted, "Evicted"))
    } else if new.admitted && !old.admitted {
        Some((TimelineEventKind::Admitted, "Admitted"))
    } else if new.reserved && !old.reserved {
        Some((TimelineEventKind::Reserved, "QuotaReserved"))
    } else if old.reserved && !new.reserved {
        Some((TimelineEventKind::Released, "QuotaReserved"))
    } else if !new.reserved && before.pending_reason != after.pending_reason {
        Some((TimelineEventKind::Pending, "QuotaReserved"))
    } else {
        None
    }
}

/// Returns a field of a condition, or an empty text.
fn condition_field<'a>(workload: &'a Value, kind: &str, field: &str) -> &'a str {
    condition(workload, kind).map(|c| field_text(c, field)).unwrap_or_default()
}

/// Formats the flavors of an admission as `2 pods on cpu=spot memory=spot`; merges pod sets with equal flavors.
pub(super) fn format_flavors(workload: &Value) -> String {
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    let mut parts: Vec<(String, i64)> = Vec::new();
    for set in sets.into_iter().flatten() {
        let flavors = set.get("flavors").and_then(Value::as_object).into_iter().flatten();
        let mut assigned: Vec<String> = flavors
            .map(|(resource, flavor)| format!("{resource}={}", flavor.as_str().unwrap_or_default()))
            .collect();
        assigned.sort();
        let count = set.get("count").and_then(Value::as_i64).unwrap_or(0);
        let words = assigned.join(" ");
        match parts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, pods)) => *pods = pods.saturating_add(count),
            None => parts.push((words, count)),
        }
    }
    let shown: Vec<String> = parts
        .iter()
        .map(|(words, pods)| {
            let noun = if *pods == 1 { "pod" } else { "pods" };
            // Pods that request no resource of a quota have no flavor.
            if words.is_empty() { format!("{pods} {noun}") } else { format!("{pods} {noun} on {words}") }
        })
        .collect();
    shown.join(", ")
}
