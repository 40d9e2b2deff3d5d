//! Elastic jobs: they run on the quota of one slice while the next, larger one waits for its own.
//!
//! Invariants: a running job is not stopped because it grew; its new pods keep their gate until a slice with their number is
//! admitted. A slice with quota only shrinks, each pod set after its surplus pods have ended; a larger slice is made beside it.

use super::comparison::{charge_covers_requests, is_in_other_queue};
use super::run::{StopCause, awaits_admission};
use super::slices::Slices;
use super::step::is_on_hold;
use super::units::starting_workload;
use super::{LoadedUnit, UnitStep};
use crate::api::ObjectKey;
use crate::api::names::ELASTIC_JOB_ANNOTATION as GATE;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::frameworks::{Action, ActionWrite, Change, JobPatch, JobView, PodSetView, Target};
use crate::lifecycle::{backoff, conditions, reservation};
use crate::reconciler::messages::{Verb, WriteClass};
use crate::reconciler::nodes::shrunk_slices::admission_after_shrink;
use crate::reconciler::writes::request::WriteRequest;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;

/// Delay before the next step of a job of which a pod is being ungated.
const UNGATING_RECHECK: SignedDuration = SignedDuration::from_secs(1);

/// The size of a job beside that of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Same,
    /// Some pod sets are smaller and none is larger.
    Smaller,
    /// At least one pod set is larger.
    Larger,
}

/// Compares the size of a job with that of a slice; `None` if the slice cannot be one of its sizes: it has other pod sets, or
/// pods that request something else.
pub(super) fn compare_size(record: &WorkloadRecord, view: &JobView) -> Option<Size> {
    let (has, asks) = (record.pod_sets(), &view.pod_sets);
    let mut size = Size::Same;
    for (has, asks) in has.iter().zip(asks) {
        if has.name != asks.name || !has.template_fingerprint.same_requests(&asks.fingerprint) {
            return None;
        }
        size = match asks.count.cmp(&has.count) {
            Ordering::Greater => Size::Larger,
            Ordering::Less if size == Size::Same => Size::Smaller,
            Ordering::Less | Ordering::Equal => size,
        };
    }
    (has.len() == asks.len()).then_some(size)
}

/// Returns whether a job may start on the quota of a slice, or keep running on it.
fn fits(record: &WorkloadRecord, view: &JobView) -> bool {
    let moved = view.suspended && (is_in_other_queue(record, view) || !charge_covers_requests(record));
    compare_size(record, view).is_some() && !moved
}

impl UnitStep<'_> {
    /// Takes the step of an elastic job.
    pub(super) fn step_slices(&mut self, unit: &LoadedUnit<'_>, owner: &JobView, slices: &Slices<'_>) {
        let (Some(used), Some(latest)) = (slices.in_use(), slices.latest) else {
            return self.step_without_workload(unit);
        };
        if owner.deleting || self.delete_expired_owner(unit, used) {
            return;
        }
        let status = unit.status(self.now);
        if status.finished.is_some() || self.leave_former_workload(unit, Some(&used.meta.key)) {
            return;
        }
        if is_on_hold(unit, used) {
            return;
        }
        if self.annotate(unit, owner) {
            return;
        }
        if used.keeps_quota() && !used.active {
            // It is about to be evicted; that gives the job a step.
            return;
        }
        // Another client may have removed the mark of the start.
        let may_have_started = starting_workload(owner).is_none() && slices.are_admitted();
        let runs_on_slices = !status.suspended && (slices.started(owner) || may_have_started);
        if used.keeps_quota() && fits(used, owner) && (status.suspended || runs_on_slices) {
            if awaits_admission(used) {
                self.report_check_messages(unit, used);
            } else if status.suspended {
                self.start(unit, used, &[]);
            } else {
                self.restore_marks(unit, used);
            }
            for slice in slices.ranked() {
                self.sync_priority_of_running_unit(unit, slice);
            }
            return self.resize(unit, owner, used, latest);
        }
        if self.stop_slice(unit, used, !status.suspended) {
            return;
        }
        if !reservation::holds_quota(&used.status) {
            if let Some(former) = self.units.slice_to_follow(unit, self.now) {
                return self.follow(unit, former);
            }
            return self.sync_workload(unit, latest);
        }
        if used.keeps_quota() && !self.has_pods(unit, &used.meta.key) {
            // It is reserved or admitted, but not for the job as it is now.
            self.replace_workload(unit, used);
        }
    }

    /// Writes the annotation of an elastic job from which the name of its next slice is made. Returns whether the job lacks it.
    pub(super) fn annotate(&mut self, unit: &LoadedUnit<'_>, owner: &JobView) -> bool {
        let outdated = owner.related.outdated_annotation.as_ref().filter(|_| owner.options.slice.is_some());
        let Some((key, value)) = outdated else { return false };
        let patch = JobPatch::merge(json!({"metadata": {"annotations": {*key: value}}}));
        let write = ActionWrite::Patch(patch);
        self.perform(unit, vec![Action { target: Target::Owner, write, change: Change::None }], "", "");
        true
    }

    /// Stops a job that may not run on the quota of its slice. Returns whether there is anything left to do.
    fn stop_slice(&mut self, unit: &LoadedUnit<'_>, used: &WorkloadRecord, runs: bool) -> bool {
        let restores = reservation::holds_quota(&used.status);
        (runs || restores) && self.stop(unit, used, &StopCause::of_workload(unit, used))
    }

    /// Updates the latest slice to the size of the job, or makes the next one.
    fn resize(
        &mut self,
        unit: &LoadedUnit<'_>,
        owner: &JobView,
        used: &WorkloadRecord,
        latest: &Arc<WorkloadRecord>,
    ) {
        let Some(size) = compare_size(latest, owner) else { return };
        let reserved = reservation::holds_quota(&latest.status);
        let ending = self.pod_sets_with_pods_to_end(unit, used, owner);
        let needed = compare_size(used, owner) == Some(Size::Larger);
        if needed && conditions::is_false(&latest.status, ConditionType::QuotaReserved) {
            self.report_next_child(unit);
        }
        match size {
            // The slice in use is large enough again. That must not depend on whether its queue admits Workloads.
            _ if !reserved && !needed && ending.is_empty() => {
                self.set_counts(unit, used, owner.pod_sets.iter().map(|set| set.count).collect());
                self.replace_workload(unit, latest);
            }
            Size::Same if reserved => {}
            // Ended pods are not charged, however long a larger slice waits.
            _ if self.shrinks(unit, used, owner, &ending) => {}
            Size::Same => self.sync_workload(unit, latest),
            // The end of each pod gives the job a step.
            Size::Larger if reserved && !ending.is_empty() => {}
            Size::Larger if reserved => {
                if !self.writes.creates_for(&unit.reconcile_key()) {
                    self.create_when_possible(unit, Some(latest));
                }
            }
            Size::Smaller | Size::Larger if owner.suspended && !reserved => self.sync_workload(unit, latest),
            Size::Smaller | Size::Larger => {
                let kept = |name: &str| {
                    let ends = ending.iter().any(|set| **set == *name);
                    let sets = used.pod_sets().iter().filter(|_| ends);
                    sets.filter(|set| *set.name == *name).map(|set| set.count).max().unwrap_or(0)
                };
                let count = |set: &PodSetView| set.count.max(kept(&set.name));
                self.set_counts(unit, latest, owner.pod_sets.iter().map(count).collect());
            }
        }
    }

    /// Shrinks the slice in use by its ended pods, first its quota and then its nodes, before a larger slice takes over: that
    /// slice starts from the assignment, which does not name the remaining pods. Returns whether the larger slice must wait.
    fn shrinks(
        &mut self,
        unit: &LoadedUnit<'_>,
        used: &WorkloadRecord,
        owner: &JobView,
        ending: &[Arc<str>],
    ) -> bool {
        let kept = |set: &PodSetRecord| {
            let asked = owner.pod_sets.iter().find(|asked| *asked.name == *set.name);
            let asked = asked.filter(|_| !ending.iter().any(|name| **name == *set.name));
            asked.map_or(set.count, |asked| asked.count.min(set.count))
        };
        let counts: Vec<i32> = used.pod_sets().iter().map(kept).collect();
        let shrinks = used.pod_sets().iter().zip(&counts).any(|(set, count)| set.count > *count);
        if shrinks {
            self.set_counts(unit, used, counts);
        }
        // The end of either write gives the job a step.
        shrinks || admission_after_shrink(self.units.cache, used).is_some()
    }

    /// Returns the pod sets of which more pods may run than the job asks for: some of these pods must end. A pod that is being
    /// ungated runs as soon as that write has landed.
    fn pod_sets_with_pods_to_end(
        &mut self,
        unit: &LoadedUnit<'_>,
        used: &WorkloadRecord,
        owner: &JobView,
    ) -> Vec<Arc<str>> {
        let (cache, key) = (self.units.cache, &used.meta.key);
        let ungating = |pod: &ObjectKey| self.writes.is_in_flight(Kind::Pod, pod);
        // While one slice takes over from another, its pods may still belong to the former one.
        let pods: Vec<_> = cache.pods_of(key).filter(|(_, pod, _)| cache.is_charged(pod)).collect();
        let running = |pod_set: &str| {
            let own = pods.iter().filter(|(.., member)| *member.pod_set == *pod_set);
            own.filter(|(pod, _, member)| !member.has_gate(GATE) || ungating(pod)).count()
        };
        let asked = |set: &PodSetView| usize::try_from(set.count).unwrap_or(0);
        let ending = owner.pod_sets.iter().filter(|set| running(&set.name) > asked(set));
        let ending = ending.map(|set| Arc::clone(&set.name)).collect();
        if pods.iter().any(|(pod, ..)| ungating(pod)) {
            // The end of a write that fails gives the job no step.
            self.work_queue.add_at(unit.reconcile_key(), backoff::after(self.now, UNGATING_RECHECK));
        }
        ending
    }

    /// Writes the counts of a slice's pod sets, unless it has them.
    fn set_counts(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord, counts: Vec<i32>) {
        let changed: Vec<Value> = record
            .pod_sets()
            .iter()
            .zip(counts)
            .enumerate()
            .filter(|(_, (set, count))| set.count != *count)
            .map(|(index, (_, count))| {
                json!({"op": "replace", "path": format!("/spec/podSets/{index}/count"), "value": count})
            })
            .collect();
        if changed.is_empty() || self.assumed.contains(&record.meta.key) {
            return;
        }
        let version = json!({
            "op": "replace", "path": "/metadata/resourceVersion", "value": record.meta.resource_version,
        });
        let body = Value::Array(std::iter::once(version).chain(changed).collect());
        let request = WriteRequest::new(Kind::Workload, record.meta.key.clone(), Verb::JsonPatch, body);
        self.send(unit, WriteRequest { class: WriteClass::Quota, ..request });
    }
}
