//! The work queue: objects that need a step now or at a later time.

use super::timers::Timers;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::UnitKey;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What may need a step, in the order of the steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReconcileKey {
    /// A unit: its objects, and the spec of its Workload.
    Unit(UnitKey),
    /// An object of a kind that has steps.
    Object(Kind, ObjectKey),
    /// The pods of a Workload with a topology assignment.
    Pods(ObjectKey),
}

impl ReconcileKey {
    /// Returns the key of a Workload.
    pub(crate) const fn workload(key: ObjectKey) -> Self {
        Self::Object(Kind::Workload, key)
    }

    /// Returns the key of a cluster-scoped object.
    pub(crate) fn named(kind: Kind, name: &Arc<str>) -> Self {
        Self::Object(kind, ObjectKey { namespace: Arc::default(), name: Arc::clone(name) })
    }

    /// Returns kind and key of the object that a step would write.
    pub(crate) fn written_object(&self) -> (Kind, ObjectKey) {
        match self {
            Self::Object(kind, key) => (*kind, key.clone()),
            Self::Unit(unit) if !unit.is_pod_group() => (Kind::of_job(unit.kind), unit.key.clone()),
            Self::Unit(UnitKey { key, .. }) | Self::Pods(key) => (Kind::Workload, key.clone()),
        }
    }
}

/// A timer that does not belong to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// Continues cycles that were interrupted to handle newer deltas first.
    Cycle,
    /// Writes the next pending reasons once the rate limit permits them.
    PendingReasons,
    /// Checks whether heads fit that are not admitted.
    HeadCheck,
    /// Releases the capacity of a pod that should have ended.
    LostPod,
}

impl Alarm {
    /// Returns the name under which it is shown.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cycle => "cycle",
            Self::PendingReasons => "pendingReasons",
            Self::HeadCheck => "headCheck",
            Self::LostPod => "lostPod",
        }
    }
}

/// Objects that need a step now or later.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkQueue {
    dirty: BTreeSet<ReconcileKey>,
    timers: Timers<ReconcileKey>,
    alarms: BTreeMap<Alarm, Timestamp>,
}

impl WorkQueue {
    /// Adds an object that needs a step now.
    pub(crate) fn add(&mut self, item: ReconcileKey) {
        self.dirty.insert(item);
    }

    /// Adds objects that need a step now.
    pub(crate) fn add_all(&mut self, items: impl IntoIterator<Item = ReconcileKey>) {
        self.dirty.extend(items);
    }

    /// Adds an object that needs a step at a later time, unless it is already due earlier.
    pub(crate) fn add_at(&mut self, item: ReconcileKey, at: Timestamp) {
        self.timers.wake(item, at);
    }

    /// Removes and returns the objects that need a step now.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> BTreeSet<ReconcileKey> {
        self.dirty.extend(self.timers.take_due(now));
        std::mem::take(&mut self.dirty)
    }

    /// Defers objects that were added by a step: they get their step with the next delta, or immediately.
    pub(crate) fn defer_added(&mut self, now: Timestamp) {
        for item in std::mem::take(&mut self.dirty) {
            self.timers.wake(item, now);
        }
    }

    /// Sets or clears an alarm.
    pub(crate) fn set_alarm(&mut self, alarm: Alarm, at: Option<Timestamp>) {
        match at {
            Some(at) => drop(self.alarms.insert(alarm, at)),
            None => drop(self.alarms.remove(&alarm)),
        }
    }

    /// Returns the number of objects that need a step now.
    pub(crate) fn due_count(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the objects that need a step later, the earliest first.
    pub(crate) fn timers(&self) -> impl Iterator<Item = (Timestamp, &ReconcileKey)> {
        self.timers.iter()
    }

    /// Returns the alarms with their due times.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = (Alarm, Timestamp)> {
        self.alarms.iter().map(|(alarm, at)| (*alarm, *at))
    }

    /// Returns when the next step or alarm is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers.next().into_iter().chain(self.alarms.values().copied()).min()
    }
}
