//! Facts about a unit that the lifecycle of its Workload depends on.

use super::comparison::{
    asks_for_what_is_granted, grants_match_job, is_in_other_queue, is_out_of_sync, pod_sets_to_restore,
};
use super::resize::{Size, compare_size};
use super::run::idle_members;
use super::units::{Units, starting_workload};
use super::{LoadedUnit, units};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Component, JobHold, JobKind, Readiness, Role, Stop, Unit, UnitKey, UnitStatus, framework,
};
use crate::lifecycle::facts::Hold;
use crate::lifecycle::workload::{JobFacts, WorkloadOwner};
use crate::lifecycle::{conditions, pods_ready, reservation};
use crate::reconciler::writes::in_flight::Writes;
use jiff::Timestamp;

/// The units, and the writes on their objects that are in flight.
#[derive(Clone, Copy)]
pub(crate) struct UnitFacts<'a> {
    pub(crate) units: Units<'a>,
    pub(crate) writes: &'a Writes,
}

impl<'a> UnitFacts<'a> {
    /// Returns the state of the owner of a Workload.
    pub(crate) fn owner_of(self, record: &WorkloadRecord, now: Timestamp) -> WorkloadOwner {
        if let Some(key) = self.units.of_workload(record) {
            let unit = self.units.load(&key).filter(|unit| is_of_unit(unit, record));
            if let Some(unit) = unit {
                return WorkloadOwner::Job(self.facts(record, &unit, now));
            }
            // The object exists while it has no pods.
            let hold = self.units.hold_of(record);
            let readiness = pods_ready::Readiness::NoPods;
            let moved_to = self.units.moved_to(record, None);
            let without_pods = JobFacts {
                stopped: true,
                hold,
                readiness,
                moved_to,
                absent_pods: Some(0),
                ..JobFacts::default()
            };
            if without_pods.hold != Hold::Unknown {
                return WorkloadOwner::Job(without_pods);
            }
            if !self.units.is_left_without_objects(record) {
                return WorkloadOwner::Missing { runs: false };
            }
        }
        let Some(owner) = &record.owner else {
            return self.former_job(record, now).map_or(WorkloadOwner::None, WorkloadOwner::Job);
        };
        let kind = framework(owner.group(), &owner.kind).map(JobKind::new);
        if let Some(kind) = kind.filter(|kind| self.units.settings.manages_kind(*kind)) {
            WorkloadOwner::Missing { runs: self.units.outlive_job(kind, &owner.uid, &record.meta.key) }
        } else if record.job_uid.as_ref().is_some_and(|uid| *uid != owner.uid) {
            // The garbage collector removed the reference to the job; what remains is a reference that a client added.
            self.former_job(record, now).map_or(WorkloadOwner::None, WorkloadOwner::Job)
        } else {
            WorkloadOwner::External
        }
    }

    /// Returns the job that a Workload with quota was made for, if the Workload has lost its owner and the job has neither
    /// finished nor stopped: the quota stays with the Workload until the pods are gone.
    fn former_job(self, record: &WorkloadRecord, now: Timestamp) -> Option<JobFacts> {
        let former = self.units.cache.former_job_of(record);
        let ((kind, key), _) = former.filter(|_| reservation::holds_quota(&record.status))?;
        let unit = self.units.load(&UnitKey::of_object(*kind, key.clone()))?;
        let status = unit.status(now);
        // Without its Workload it is suspended, but its pod templates are not restored.
        let may_run = !status.suspended && !unit.view.deleting;
        let runs =
            may_run || self.units.has_pods(&unit, &record.meta.key, &status) || !self.is_settled(&unit);
        let facts = JobFacts { stopped: false, start_failed: None, ..self.facts(record, &unit, now) };
        (facts.finished.is_none() && runs).then_some(facts)
    }

    /// Returns whether pods may run on the quota of a removed Workload: pods of its unit, unless another Workload lets them run.
    /// A job that may create pods is stopped, as it has no Workload.
    pub(crate) fn outlives(self, record: &WorkloadRecord, now: Timestamp) -> bool {
        let (units, key) = (self.units, &record.meta.key);
        let made_for = || {
            let ((kind, job), _) = units.cache.former_job_of(record)?;
            Some(UnitKey::of_object(*kind, job.clone()))
        };
        let Some(unit) = units.of_workload(record).or_else(made_for) else {
            let Some(owner) = &record.owner else { return false };
            let kind = framework(owner.group(), &owner.kind).map(JobKind::new);
            let kind = kind.filter(|kind| units.settings.manages_kind(*kind));
            return kind.is_some_and(|kind| units.outlive_job(kind, &owner.uid, key));
        };
        let Some(unit) = units.load(&unit).filter(|unit| is_of_unit(unit, record)) else { return false };
        let status = unit.status(now);
        let is_managed = unit.owner.is_none_or(|owner| units.manages_job(unit.key.kind, owner));
        if !is_managed || status.finished.is_some() || self.runs_on_other(record, &unit) {
            return false;
        }
        let is_held = unit.view.status.hold == JobHold::Held;
        let may_create = unit.key.kind.role == Role::Suspended && !status.suspended && !is_held;
        (may_create && !unit.view.deleting) || units.has_pods(&unit, key, &status) || !self.is_settled(&unit)
    }

    /// Returns whether the pods of a unit run on the quota of another Workload: its own, or that of an object above it.
    fn runs_on_other(self, record: &WorkloadRecord, unit: &LoadedUnit<'a>) -> bool {
        let above = self.units.above_unit(unit);
        let is_other = |name: &str| *name != *record.meta.key.name;
        let is_started_by_other = self.units.slices_of(unit).map_or_else(
            || unit.owner.and_then(starting_workload).is_some_and(is_other),
            |slices| slices.is_other_in_use(record),
        );
        is_started_by_other || above.is_some_and(|above| self.units.may_run_below(&unit.view, &above))
    }

    fn facts(self, record: &WorkloadRecord, unit: &LoadedUnit<'a>, now: Timestamp) -> JobFacts {
        let status = unit.status(now);
        let superfluous = unit.owner.is_some() && self.units.is_superfluous(record, unit);
        let stopped = self.is_stopped(record, unit, &status, superfluous);
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        // Another Workload replaces one that was made for the pods.
        let prebuilt = unit.view.options.prebuilt_workload.is_some() && !unit.view.deleting;
        let compared = unit.key.is_pod_group() || (prebuilt && unit.owner.is_none());
        let membership = (compared && !finished).then(|| self.units.membership(unit, record));
        let unfit = prebuilt && membership.as_ref().is_some_and(|membership| !membership.matches);
        let slices = self.units.slices_of(unit);
        let out_of_sync = (superfluous && slices.is_none())
            || unfit
            || unit.owner.is_some_and(|owner| is_out_of_sync(record, owner));
        let waiting = membership.as_ref().map_or(&[][..], |membership| &membership.waiting);
        let start_failed = self.start_error(record, unit, &status, waiting);
        let hold = match unit.view.status.hold {
            JobHold::Held => Hold::Held("Job is on hold".to_owned()),
            JobHold::Free => Hold::Free,
            JobHold::Unknown => hold_by_missing_object(unit).unwrap_or_else(|| self.units.hold_of(record)),
        };
        let above = self.units.above_unit(unit);
        let released = above.filter(|owner| stopped || self.units.may_run_below(&unit.view, owner));
        let taken_over = released.map(|owner| {
            format!(
                "Its pods run on the quota of {} {}, which is queued in their place",
                owner.kind, owner.name
            )
        });
        JobFacts {
            stopped,
            taken_over,
            waits_for_successor: self.waits_for_successor(record, unit, now),
            // A slice is replaced.
            moved_to: (!superfluous && slices.is_none())
                .then(|| self.units.moved_to(record, Some(unit)))
                .flatten(),
            start_failed: start_failed.filter(|_| !superfluous && !unfit),
            readiness: self.readiness(record, unit, &status, now),
            reclaimable: self.reclaimable_pods(record, unit, &status),
            // Once it is finished, it holds no quota and cannot be restored.
            out_of_sync: stopped && out_of_sync,
            absent_pods: match hold {
                Hold::Unknown => {
                    membership.filter(|_| unit.key.is_pod_group()).map(|membership| membership.absent)
                }
                // The controller of the object replaces the pods. The group may have waited while the object did not exist.
                Hold::Free | Hold::Held(_) => unit.key.is_pod_group().then_some(0),
            },
            hold,
            finished: status.finished.map(|result| (result.success, result.message)),
        }
    }

    /// Returns whether the pods of a unit are ready, and since when they are not because some have succeeded.
    fn readiness(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        status: &UnitStatus,
        now: Timestamp,
    ) -> pods_ready::Readiness {
        match status.readiness {
            Readiness::Ready => pods_ready::Readiness::Ready,
            Readiness::Completing => {
                let since = self.writes.completing.since(&record.meta.key).unwrap_or(now);
                pods_ready::Readiness::CompletingSince(since)
            }
            Readiness::NotReady if are_slice_pods_ready(record, unit) => pods_ready::Readiness::Ready,
            // The number of pods is unknown until the object is listed, and they were ready before this manager started.
            Readiness::NotReady if awaits_list(unit) && is_ready(record) => pods_ready::Readiness::Ready,
            Readiness::NotReady => pods_ready::Readiness::NotReady,
        }
    }

    /// Returns whether no pod of a unit runs on the quota of a Workload, and its start is undone.
    fn is_stopped(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        status: &UnitStatus,
        superfluous: bool,
    ) -> bool {
        // Until its pod sets are known, its pod templates cannot be restored; a job that is being deleted is not restored.
        let unknown = unit.view.related.waits_for.is_some() && unit.view.options.patches.is_none();
        if !self.is_settled(unit) || (unknown && !unit.view.deleting) {
            return false;
        }
        if let Some(slices) = self.units.slices_of(unit)
            && !slices.is_in_use(record)
        {
            return true;
        }
        // The pods of a job that another Workload started do not run on its quota.
        let other = |name: &str| *name != *record.meta.key.name;
        if superfluous && unit.owner.and_then(starting_workload).is_some_and(other) {
            return true;
        }
        if self.units.has_pods(unit, &record.meta.key, status) {
            return false;
        }
        // It has no pods. It is not suspended, because its controller decides why it does not run.
        if unit.view.status.hold == JobHold::Held && !record.meta.is_deleting() {
            return true;
        }
        // No pod is created for a job that is being deleted; its last ones run until then. It exists until its Workload is
        // gone, because the Workload blocks a deletion in the foreground.
        if unit.owner.is_some() && unit.view.deleting {
            return true;
        }
        let scope = self.units.scope_of_stop(unit, record);
        let originals = pod_sets_to_restore(record, &unit.view);
        let stop = Stop { reason: "", message: "", scope, originals: &originals, now: "" };
        unit.rules.stop(&unit.objects(), &stop).is_empty()
    }

    /// Returns whether no object of a unit is being written: until then its cached version does not show whether it has
    /// stopped.
    fn is_settled(self, unit: &LoadedUnit<'_>) -> bool {
        let kind = Kind::of_job(unit.key.kind);
        let owner = unit.owner.is_none_or(|owner| !self.writes.is_in_flight(kind, &owner.key));
        owner && unit.members().all(|member| !self.writes.is_in_flight(Kind::Pod, &member.key))
    }

    fn start_error(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        status: &UnitStatus,
        waiting: &[ObjectKey],
    ) -> Option<String> {
        if !record.may_run() || !status.suspended || status.finished.is_some() {
            return None;
        }
        if unit.owner.is_some_and(|owner| !grants_match_job(record, owner)) {
            // It has changed since: it is not started, and its Workload is replaced.
            return None;
        }
        let idle = idle_members(unit, waiting, self.writes);
        let objects = Unit { members: &idle, ..unit.objects() };
        self.units.start_actions(unit, &objects, record).err().map(|error| error.to_string())
    }

    /// Returns reason and message of the end of a slice of an elastic job that is no longer part of the job.
    pub(crate) fn slice_end(self, record: &WorkloadRecord, now: Timestamp) -> Option<(&'static str, String)> {
        let unit = self.units.load(&self.units.of_workload(record)?)?;
        let slices = self.units.slices_of(&unit).filter(|slices| slices.is_superfluous(record))?;
        let stopped = self.is_stopped(record, &unit, &unit.status(now), true);
        stopped.then(|| slices.end_of(record)).map(|(reason, message)| (reason, message.to_owned()))
    }

    /// Returns the reclaimable pods of a unit. If a job was resized since its Workload got quota, the number stays as it is until
    /// the Workload is replaced: a number above that of its pods would be refused.
    fn reclaimable_pods(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        status: &UnitStatus,
    ) -> Vec<(String, i32)> {
        if !self.units.settings.gates.reclaimable_pods {
            return Vec::new();
        }
        let resized = || {
            unit.owner.is_some_and(|owner| match owner.options.slice {
                Some(_) => compare_size(record, owner) != Some(Size::Same),
                None => !asks_for_what_is_granted(record, owner),
            })
        };
        if reservation::holds_quota(&record.status) && resized() {
            let known = &record.status.reclaimable_pods;
            return known.iter().map(|pods| (pods.name.clone(), pods.count)).collect();
        }
        let pods = status.reclaimable_pods.iter().filter(|(_, count)| *count > 0);
        pods.map(|(name, count)| (name.to_string(), *count)).collect()
    }
}

impl Units<'_> {
    /// Returns the queue that the object of a Workload, or else its unit, names, if the Workload is in another one.
    fn moved_to(self, record: &WorkloadRecord, unit: Option<&LoadedUnit<'_>>) -> Option<String> {
        let set = self.set_of_workload(record).map(|(_, set)| set);
        let source = set.or_else(|| unit.map(|unit| &*unit.view))?;
        let queue = || source.queue_name.as_deref().unwrap_or_default().to_owned();
        is_in_other_queue(record, source).then(queue)
    }
}

/// Returns whether a job that patches of another object start gives up its quota: while it waits, it cannot start without that
/// object, or if the object is invalid. `None` for other kinds, and until this is known.
fn hold_by_missing_object(unit: &LoadedUnit<'_>) -> Option<Hold> {
    let patches = unit.view.options.patches.as_ref()?;
    let waits = unit.view.suspended && !patches.are_written();
    let Some(awaited) = unit.view.related.waits_for.as_ref().filter(|_| waits) else {
        return Some(Hold::Free);
    };
    let problem = awaited.problem.as_ref()?;
    Some(Hold::Held(format!("{} {problem}", awaited.object)))
}

/// Returns whether the pod sets of a unit are made from an object whose kind is not listed yet.
fn awaits_list(unit: &LoadedUnit<'_>) -> bool {
    unit.view.related.waits_for.as_ref().is_some_and(|awaited| awaited.problem.is_none())
}

fn is_ready(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::PodsReady)
}

/// Returns whether as many pods of an elastic job are ready as the slice in use has, although the job asks for more.
fn are_slice_pods_ready(record: &WorkloadRecord, unit: &LoadedUnit<'_>) -> bool {
    let Some(owner) = unit.owner.filter(|owner| owner.options.slice.is_some() && !owner.suspended) else {
        return false;
    };
    let ready = owner.status.ready_pods.saturating_add(owner.status.succeeded_pods);
    let pods = record.pod_sets().iter().fold(0_i32, |sum, set| sum.saturating_add(set.count));
    let was_ready = conditions::is_true(&record.status, ConditionType::PodsReady);
    compare_size(record, owner) == Some(Size::Larger) && (was_ready || ready >= pods)
}

/// Returns whether a Workload is that of a unit: the pod that owns it may have been replaced by another of its name.
fn is_of_unit(unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
    match (unit.key.component, unit.owner, unit.members.first()) {
        (Component::PodGroup, _, first) => first.is_some(),
        (Component::Object, None, _) => units::owns(unit, record),
        (Component::Object | Component::Replica(_), _, _) => true,
    }
}
