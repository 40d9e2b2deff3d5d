//! Jobs whose owner is queued in their place.
//!
//! Invariant: owner references are checked here as well as in the webhook, because a Job may be created while no
//! webhook answers. With an invalid reference the Job is queued by itself.

use super::management::is_managed_by_other_controller;
use super::{Job, JobLookup};
use crate::api::ObjectKey;
use crate::frameworks::{
    Ancestor, JobKind, JobView, Management, OwnerLookup, OwnerRef, framework, own_workload_key,
    queued_ancestor,
};
use crate::reconciler::Reconciler;
use jiff::Timestamp;
use std::sync::Arc;

impl JobLookup<'_> {
    /// Returns the ancestor of a job that is queued in place of the job.
    pub(crate) fn find_ancestor(self, kind: JobKind, view: &JobView) -> Option<Ancestor> {
        if is_managed_by_other_controller(kind, view) {
            return None;
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
            .ok()
            .flatten()
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
}

impl Reconciler {
    /// Suspends a child that runs while the Workload of its ancestor is not admitted.
    pub(super) fn suspend_child_unless_admitted(
        &mut self,
        job: Job<'_>,
        ancestor: &OwnerRef,
        now: Timestamp,
    ) {
        let uid = ancestor.uid.as_str();
        let parent = self.cache.job_id(uid).and_then(|id| Some((id.0, self.cache.job(id)?)));
        let workload = match parent {
            Some((kind, view)) => self.job_lookup().workload_of(kind, view),
            None => self.cache.workloads_owned_by(uid).first().cloned(),
        };
        let record = workload.as_ref().and_then(|key| self.cache.workload(key));
        let admitted = record.is_some_and(|record| record.may_run());
        if admitted || job.view.suspended {
            return;
        }
        let parent = parent.map(|(kind, view)| own_workload_key(&kind, view));
        if let Some(workload) = workload.or(parent)
            && !self.writes.is_confirmed(&workload, job.reconcile_key(), &mut self.work_queue, now)
        {
            return;
        }
        if let Some(patch) = job.row.stop_patches(job.view, &[]).first() {
            let effects = vec![job.event("Suspended", "Kueue managed child job suspended")];
            self.patch_job(job, patch, effects, now);
        }
    }
}
