//! Jobs that are pods: a unit is a single pod, or the pods of a group, and has one Workload.
//!
//! A unit is reconciled as a whole, from its pods as they are: nothing is remembered between two steps. A pod has at most
//! one write in flight; a write that takes two requests, such as a deletion with its reason, continues in the next step.
//! Invariants:
//! - a pod runs only after its Workload was admitted: gates are removed then, and stopping deletes the pod;
//! - a pod keeps its finalizer until it is replaced, its group has finished, or its Workload was deleted, so that what has
//!   ended still counts;
//! - the Workload releases its quota only when no pod of the unit runs and none is left to stop.

mod compose;
pub(super) mod facts;
mod run;
mod step;
mod sync;
mod writes;

use super::ReconcileKey;
use super::messages::{Effect, Event};
use crate::api::ObjectKey;
use crate::cache::{Kind, UnitKey};
use crate::frameworks::{JobUnit, JobView, PodMember};

/// The pods of a unit, and what they say about their Workload.
#[derive(Clone, Copy)]
struct Unit<'a> {
    key: &'a UnitKey,
    pods: JobUnit<'a>,
    view: &'a JobView,
}

impl<'a> Unit<'a> {
    fn reconcile_key(&self) -> ReconcileKey {
        ReconcileKey::Unit(self.key.clone())
    }

    fn members(&self) -> impl Iterator<Item = &'a PodMember> + use<'a> {
        self.pods.iter()
    }

    fn member(&self, key: &ObjectKey) -> Option<&'a PodMember> {
        // They are in order of their keys.
        let found = self.pods.members.binary_search_by(|member| member.key.cmp(key));
        found.ok().and_then(|at| self.pods.members.get(at)).map(|member| &**member)
    }

    /// Returns an event on the first pod of the unit.
    fn event(&self, warning: bool, reason: &str, note: &str) -> Option<Effect> {
        Some(pod_event(self.pods.first()?, warning, reason, note))
    }
}

fn pod_event(member: &PodMember, warning: bool, reason: &str, note: &str) -> Effect {
    Effect::Event(Event {
        kind: Kind::Pod,
        key: member.key.clone(),
        uid: member.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note: note.to_owned(),
        once: false,
    })
}
