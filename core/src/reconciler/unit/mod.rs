//! Units: creates their Workloads, starts and stops them, and keeps unit and Workload in agreement.
//!
//! Start reading at `step.rs`. A unit is a job that can be suspended, a pod or pod group, or an object with pods that are
//! held back; the rules of its kind's row make the writes ([`crate::frameworks::UnitRules`]), and this folder decides when
//! they are due. It is reconciled as a whole, from its objects as they are: nothing is remembered between two steps. Invariants:
//! - a unit runs only while its Workload is admitted and not evicted;
//! - when a unit stops, the changes made by its start are undone, and its Workload releases its quota only after that;
//! - an object has at most one write in flight; a change that takes two requests continues in the next step;
//! - a pod keeps its finalizer until it is replaced, its group has finished, or its Workload was deleted, so that ended pods
//!   still count.

mod ancestors;
pub(super) mod comparison;
pub(super) mod facts;
mod following;
mod foreign_members;
pub(super) mod grants;
mod inherited;
mod kept_children;
mod members;
mod no_workload;
mod ownership;
mod resize;
mod run;
mod running_pods;
mod set_of_pods;
mod siblings;
mod slices;
mod step;
mod sync;
mod taken_over;
mod ungated;
pub(super) mod units;
mod without_workload;
mod writes;

use super::Reconciler;
use super::events::event_on;
use super::messages::{Effect, EventType};
use super::warnings::Warnings;
use super::work_queue::{ReconcileKey, WorkQueue};
use super::writes::assumed::AssumedAdmissions;
use super::writes::in_flight::Writes;
use super::writes::request::WriteRequest;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{JobView, PodMember, Unit, UnitKey, UnitRules, UnitStatus, UnitSummary};
use jiff::Timestamp;
use std::borrow::Cow;
use std::sync::Arc;
use units::Units;

/// A unit with its objects as the cache has them.
pub(crate) struct LoadedUnit<'a> {
    key: UnitKey,
    rules: &'static dyn UnitRules,
    owner: Option<&'a JobView>,
    members: Vec<Arc<PodMember>>,
    summary: Cow<'a, UnitSummary>,
    /// The owner, or a view made of the members.
    view: Cow<'a, JobView>,
    /// Key of the Workload that the unit has or waits for: the prebuilt one that it names, or its own.
    workload: ObjectKey,
}

impl LoadedUnit<'_> {
    fn objects(&self) -> Unit<'_> {
        Unit {
            kind: self.key.kind,
            component: self.key.component,
            owner: self.owner,
            members: &self.members,
            summary: &self.summary,
        }
    }

    fn status(&self, now: Timestamp) -> UnitStatus {
        self.rules.status(&self.objects(), now)
    }

    fn reconcile_key(&self) -> ReconcileKey {
        ReconcileKey::Unit(self.key.clone())
    }

    fn members(&self) -> impl Iterator<Item = &PodMember> {
        self.members.iter().map(|member| &**member)
    }

    fn member(&self, key: &ObjectKey) -> Option<&PodMember> {
        // They are in order of their keys.
        let found = self.members.binary_search_by(|member| member.key.cmp(key));
        found.ok().and_then(|at| self.members.get(at)).map(|member| &**member)
    }

    /// Returns kind, key and UID of the object that events about the unit are on: its owner, or its first member.
    fn subject(&self) -> (Kind, &ObjectKey, &Arc<str>) {
        match (self.owner, self.members.first()) {
            (None, Some(first)) => (Kind::of_job(self.key.kind), &first.key, &first.uid),
            _ => (Kind::of_job(self.key.kind), &self.view.key, &self.view.uid),
        }
    }

    /// Returns a normal event on the unit.
    fn event(&self, reason: &str, note: &str) -> Effect {
        event(self.subject(), EventType::Normal, reason, note)
    }

    /// Returns a warning event on the unit.
    fn warning(&self, reason: &str, note: &str) -> Effect {
        event(self.subject(), EventType::Warning, reason, note)
    }
}

fn event(
    (kind, key, uid): (Kind, &ObjectKey, &Arc<str>),
    event_type: EventType,
    reason: &str,
    note: &str,
) -> Effect {
    Effect::Event(event_on((kind, key, uid), event_type, reason, note.to_owned()))
}

/// The parts of the reconciler that a step of a unit uses.
pub(super) struct UnitStep<'a> {
    units: Units<'a>,
    assumed: &'a AssumedAdmissions,
    writes: &'a mut Writes,
    work_queue: &'a mut WorkQueue,
    warnings: &'a mut Warnings,
    now: Timestamp,
}

impl UnitStep<'_> {
    /// Emits a warning about a unit, once for each text.
    fn report(&mut self, unit: &LoadedUnit<'_>, reason: &str, note: &str) {
        let (kind, key, _) = unit.subject();
        if self.warnings.record_as(kind, key, reason, note) {
            self.writes.emit(unit.warning(reason, note));
        }
    }

    /// Sends a write that the unit needs, or takes another step at the end of its backoff.
    fn send(&mut self, unit: &LoadedUnit<'_>, request: WriteRequest) {
        self.writes.write_for(unit.reconcile_key(), request, self.work_queue, self.now);
    }

    /// Returns whether the known state of a Workload is confirmed. Otherwise the unit gets another step after a read.
    fn is_confirmed(&mut self, unit: &LoadedUnit<'_>, workload: &ObjectKey) -> bool {
        self.writes.is_confirmed(workload, unit.reconcile_key(), self.work_queue, self.now)
    }
}

impl Reconciler {
    /// Sends the next writes of a unit and of its Workload's spec, if there are any.
    pub(super) fn step_unit(&mut self, key: &UnitKey, now: Timestamp) {
        let units = Units { cache: &self.cache, settings: &self.settings };
        let (unit, foreign) = (units.load(key), units.foreign_members(key));
        let mut step = UnitStep {
            units,
            assumed: &self.membership.assumed,
            writes: &mut self.writes,
            work_queue: &mut self.work_queue,
            warnings: &mut self.warnings,
            now,
        };
        if let Some(foreign) = &foreign {
            step.stop_foreign_members(foreign);
        }
        if let Some(unit) = &unit {
            step.take(unit);
        }
    }
}
