//! Units whose owner is queued in their place.
//!
//! Invariant: owner references are checked here as well as in the webhook, because a Job may be created while no
//! webhook answers. With an invalid reference the Job is queued by itself.

use super::units::{Units, is_managed_by_other_controller};
use super::{LoadedUnit, UnitStep};
use crate::api::{ObjectKey, names};
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    AncestryError, ChildGroup, JobKind, JobView, Management, OwnerLookup, OwnerRef, PodSetSize, PodSetView,
    Stop, StopScope, UnitKey, first_excess_group, framework, queued_ancestor,
};
use jiff::Timestamp;
use std::sync::Arc;

impl<'a> Units<'a> {
    /// Returns the ancestor of a job that is queued in place of the job.
    pub(crate) fn ancestor_of(self, kind: JobKind, view: &JobView) -> Option<OwnerRef> {
        self.search_ancestor(kind, view).ok().flatten()
    }

    /// Returns why no ancestor of a job can be found: its owner references form a cycle or are too deep. It is then queued by itself.
    pub(super) fn ancestry_fault(self, kind: JobKind, view: &JobView) -> Option<AncestryError> {
        self.search_ancestor(kind, view).err()
    }

    fn search_ancestor(self, kind: JobKind, view: &JobView) -> Result<Option<OwnerRef>, AncestryError> {
        if is_managed_by_other_controller(kind, view) {
            return Ok(None);
        }
        let look_up = |owner: &OwnerRef, management: Management| {
            let key =
                ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(owner.name.as_str()) };
            if management == Management::External {
                return self.look_up_external(&key, owner);
            }
            let kind = framework(owner.group(), &owner.kind).map(JobKind::new);
            let job = kind.and_then(|kind| Some((kind, self.cache.job(&(kind, key))?)));
            job.map_or(OwnerLookup::Unmanaged, |(kind, job)| OwnerLookup::Found {
                uid: job.uid.to_string(),
                queued: self.manages_job(kind, job),
                controller: job.controller.clone(),
            })
        };
        let kind = (kind.gvk.group, kind.gvk.kind);
        queued_ancestor(kind, &view.uid, view.controller.clone(), &self.settings.managed(), look_up)
    }

    /// Returns the controller that a job names if that is queued, or below a job that is. It need not create objects of the
    /// kind, so the job is not exempt from its queue, but a job that names none waits for it, as with Kueue.
    pub(crate) fn queued_controller_of(self, kind: JobKind, view: &JobView) -> Option<OwnerRef> {
        let controller = view.controller.as_ref().filter(|_| !is_managed_by_other_controller(kind, view))?;
        let id = self.cache.job_id(&controller.uid).filter(|(_, key)| key.namespace == view.key.namespace)?;
        let owner = self.cache.job(id)?;
        let managed = || self.manages_job(id.0, owner).then(|| controller.clone());
        self.ancestor_of(id.0, owner).or_else(managed)
    }

    /// Looks up an external owner by the Workload that it owns in the same namespace.
    fn look_up_external(self, key: &ObjectKey, owner: &OwnerRef) -> OwnerLookup {
        let owns = |workload: &ObjectKey| {
            let actual = self.cache.workload(workload).and_then(|record| record.owner.as_ref());
            workload.namespace == key.namespace
                && actual.is_some_and(|actual| {
                    (actual.group(), &*actual.kind, &actual.name)
                        == (owner.group(), owner.kind.as_str(), &key.name)
                })
        };
        if self.cache.workloads_owned_by(&owner.uid).iter().any(owns) {
            OwnerLookup::Found { uid: owner.uid.clone(), queued: true, controller: None }
        } else {
            OwnerLookup::Unmanaged
        }
    }

    /// Returns the Workload on which the children of an owner run: the Workload itself if it exists, or the key under which
    /// it is expected.
    fn workload_of_ancestor(self, ancestor: &OwnerRef) -> Option<ExpectedWorkload<'a>> {
        let uid = ancestor.uid.as_str();
        let Some((kind, key)) = self.cache.job_id(uid) else {
            let key = self.cache.workloads_owned_by(uid).first()?;
            return Some(ExpectedWorkload {
                key: key.clone(),
                record: self.cache.workload(key),
                elastic: false,
            });
        };
        let parent = self.load(&UnitKey::of_object(*kind, key.clone()))?;
        let record = self.workload_of(&parent);
        let elastic = parent.view.options.slice.is_some();
        let key = record.map_or(parent.workload, |record| record.meta.key.clone());
        Some(ExpectedWorkload { key, record, elastic })
    }
}

/// A Workload that exists or is expected.
struct ExpectedWorkload<'a> {
    key: ObjectKey,
    record: Option<&'a Arc<WorkloadRecord>>,
    /// Whether its job is elastic.
    elastic: bool,
}

impl UnitStep<'_> {
    /// Suspends a child that runs while the Workload of its ancestor is not admitted, unless the operator above it is about to.
    pub(super) fn suspend_child_unless_admitted(&mut self, unit: &LoadedUnit<'_>, ancestor: &OwnerRef) {
        let workload = self.units.workload_of_ancestor(ancestor);
        let elastic = unit.view.options.slice.is_some() || workload.as_ref().is_some_and(|w| w.elastic);
        // The gates hold the pods of an elastic job until they have quota.
        let runs = |record: &Arc<WorkloadRecord>| record.may_run() || (elastic && record.may_wait_gated());
        let admitted = workload.as_ref().and_then(|w| w.record).is_some_and(runs);
        if admitted || unit.view.suspended {
            if let Some(record) = workload.and_then(|w| w.record).filter(|_| !elastic) {
                self.report_larger_child(unit, record);
            }
            return self.writes.running_children.remove(&unit.view.uid);
        }
        if let Some(until) = self.left_to_operator_until(unit) {
            return self.work_queue.add_at(unit.reconcile_key(), until);
        }
        if workload.is_some_and(|workload| !self.is_confirmed(unit, &workload.key)) {
            return;
        }
        let stop = Stop { reason: "", message: "", scope: StopScope::Running, originals: &[], now: "" };
        let actions = unit.rules.stop(&unit.objects(), &stop);
        self.perform(unit, actions, "Suspended", "Kueue managed child job suspended");
        self.writes.running_children.remove(&unit.view.uid);
    }

    /// Says that a child has more pods than the Workload that it runs on is charged for: it was resized while no webhook answered.
    fn report_larger_child(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        if unit.view.suspended || !unit.key.kind.hooks.is_sized_apart_from_owner() {
            return;
        }
        let group = |set: &PodSetView| ChildGroup {
            label: set.template.labels.get(names::POD_SET_LABEL).cloned(),
            name: Some(set.name.to_string()),
            pods: i64::from(set.count),
        };
        let groups: Vec<ChildGroup> = unit.view.pod_sets.iter().map(group).collect();
        let charged: Vec<PodSetSize> =
            record.pod_sets().iter().map(|set| (Arc::clone(&set.name), set.count)).collect();
        let excess = first_excess_group(&groups, &charged);
        let excess = excess.and_then(|excess| Some((unit.view.pod_sets.get(excess.index)?, excess.allowed)));
        if let Some((set, allowed)) = excess {
            let note = format!(
                "It has {} pods of {}, and Workload {} is charged for {allowed}: scale it back",
                set.count, set.name, record.meta.key
            );
            self.report(unit, "PodExceedsWorkload", &note);
        }
    }

    /// Returns how long a child that must stop is left to the operator that has made it, because an object above is or was about
    /// to be suspended.
    fn left_to_operator_until(&mut self, unit: &LoadedUnit<'_>) -> Option<Timestamp> {
        let controller = unit.view.controller.as_ref()?;
        framework(controller.group(), &controller.kind).filter(|row| row.flags.resumes_children)?;
        let above = self.units.cache.controllers_of_job(&unit.view);
        let above_runs = above.iter().any(|(_, view)| !view.suspended);
        self.writes.running_children.left_until(&unit.view.uid, above_runs, self.now)
    }
}
