//! Warnings about objects: each is reported only once, until its text changes or the object is deleted, or, about what happens again and
//! again, at most once in an interval.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::expiring::Expiring;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Least time between two warnings about what happens again and again to one object.
const REPEAT_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Warnings that were reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings {
    /// Reason, empty if it is not kept, and note of the last one, by object.
    notes: BTreeMap<(Kind, ObjectKey), (String, String)>,
    /// Messages of pending admission checks, by Workload.
    check_messages: BTreeMap<ObjectKey, String>,
    /// Why pods stay gated, by Workload.
    gated_pods: BTreeMap<ObjectKey, String>,
    /// What blocks the pods of an admitted Workload, by Workload.
    blocked_pods: BTreeMap<ObjectKey, String>,
    /// Time of the last warning about what happens again and again, by object.
    repeated: Expiring<(Kind, ObjectKey), Timestamp>,
}

impl Warnings {
    /// Records a warning about an object. Returns whether it is new.
    pub(crate) fn record(&mut self, kind: Kind, key: &ObjectKey, note: &str) -> bool {
        self.record_as(kind, key, "", note)
    }

    /// The same with the reason of the warning, which is kept.
    pub(crate) fn record_as(&mut self, kind: Kind, key: &ObjectKey, reason: &str, note: &str) -> bool {
        let former = self.notes.insert((kind, key.clone()), (reason.to_owned(), note.to_owned()));
        former.is_none_or(|(_, former)| former != note)
    }

    /// Returns whether a warning about what happens again and again to an object is due, and records it then.
    pub(crate) fn is_due(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) -> bool {
        let is_recent = |last: &Timestamp| now.duration_since(*last) < REPEAT_INTERVAL;
        let id = (kind, key.clone());
        let is_due = !self.repeated.get(&id).is_some_and(is_recent);
        if is_due {
            self.repeated.insert(id, now, is_recent);
        }
        is_due
    }

    /// Returns reason and note of the last warning about an object.
    pub(crate) fn last(&self, kind: Kind, key: &ObjectKey) -> Option<(&str, &str)> {
        self.notes.get(&(kind, key.clone())).map(|(reason, note)| (reason.as_str(), note.as_str()))
    }

    /// Returns whether this is the last warning about an object.
    pub(crate) fn is_last(&self, kind: Kind, key: &ObjectKey, note: &str) -> bool {
        self.notes.get(&(kind, key.clone())).is_some_and(|(_, last)| last == note)
    }

    /// Records the messages of a Workload's pending checks; `None` removes them. Returns whether they are new.
    pub(crate) fn record_check_messages(&mut self, workload: &ObjectKey, messages: Option<&str>) -> bool {
        record_or_remove(&mut self.check_messages, workload, messages)
    }

    /// Records why pods of a Workload stay gated; `None` removes it. Returns whether it is new.
    pub(crate) fn record_gated_pods(&mut self, workload: &ObjectKey, note: Option<&str>) -> bool {
        record_or_remove(&mut self.gated_pods, workload, note)
    }

    /// Records what blocks the pods of an admitted Workload. Returns whether it is new since the admission.
    pub(crate) fn record_blocked_pods(&mut self, workload: &ObjectKey, identity: &str) -> bool {
        record_or_remove(&mut self.blocked_pods, workload, Some(identity))
    }

    /// Removes what is known of the pods of a Workload that may not run.
    pub(crate) fn clear_blocked_pods(&mut self, workload: &ObjectKey) {
        self.blocked_pods.remove(workload);
    }

    /// Removes the warnings about a deleted object.
    pub(crate) fn forget(&mut self, kind: Kind, key: &ObjectKey) {
        self.notes.remove(&(kind, key.clone()));
        self.repeated.remove(&(kind, key.clone()));
        if kind == Kind::Workload {
            self.blocked_pods.remove(key);
        }
    }
}

/// Stores the text of an object, or removes it. Returns whether there is a new text.
fn record_or_remove(texts: &mut BTreeMap<ObjectKey, String>, key: &ObjectKey, text: Option<&str>) -> bool {
    let Some(text) = text else {
        texts.remove(key);
        return false;
    };
    texts.insert(key.clone(), text.to_owned()).as_deref() != Some(text)
}
