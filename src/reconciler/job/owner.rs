//! Jobs that an owner is queued for.
//!
//! Invariant: owner references are judged again here, not by the webhook alone, as a Job may be created while no webhook
//! answers. A reference that does not hold leaves the Job to be queued by itself.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{
    Ancestor, FRAMEWORKS, JobPatch, JobView, Management, OwnerLookup, OwnerRef, queued_ancestor,
};
use crate::reconciler::Reconciler;
use crate::reconciler::job::events::job_event;
use crate::reconciler::job::step::may_run;
use serde_json::json;
use std::sync::Arc;

impl Reconciler {
    /// What is queued above the job.
    pub(in crate::reconciler) fn find_ancestor(&self, index: usize, view: &JobView) -> Option<Ancestor> {
        if Self::is_managed_by_other_controller(view) {
            return None;
        }
        let look = |owner: &OwnerRef, management: Management| {
            let key =
                ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(owner.name.as_str()) };
            if management == Management::External {
                return self.external_link(&key, owner);
            }
            let index = FRAMEWORKS.iter().position(|kind| {
                let gvk = kind.gvk;
                (gvk.group, gvk.kind) == (owner.group(), owner.kind.as_str())
            });
            index.and_then(|index| self.jobs.get(&(index, key))).map_or(OwnerLookup::Unmanaged, |job| {
                OwnerLookup::Found {
                    uid: job.uid.to_string(),
                    queued: self.manages_job(job),
                    controller: job.controller.clone(),
                }
            })
        };
        let gvk = Kind::Job(index).resource();
        let kind = (gvk.group, gvk.kind);
        queued_ancestor(kind, &view.uid, view.controller.clone(), &self.settings.managed(), look)
            .ok()
            .flatten()
    }

    /// An object that another controller queues is known by the Workload that it owns in its own namespace.
    fn external_link(&self, key: &ObjectKey, owner: &OwnerRef) -> OwnerLookup {
        let owns = |workload: &ObjectKey| {
            workload.namespace == key.namespace
                && self.workloads.get(workload).and_then(|record| record.owner.as_ref()).is_some_and(|of| {
                    (of.group(), &*of.kind, &of.name) == (owner.group(), owner.kind.as_str(), &key.name)
                })
        };
        let workloads = self.workloads_by_owner.get(owner.uid.as_str());
        if workloads.is_some_and(|keys| keys.iter().any(owns)) {
            OwnerLookup::Found { uid: owner.uid.clone(), queued: true, controller: None }
        } else {
            OwnerLookup::Unmanaged
        }
    }

    /// A child runs while the Workload of its ancestor is admitted.
    pub(in crate::reconciler) fn suspend_child_unless_admitted(
        &mut self,
        index: usize,
        view: &JobView,
        ancestor: &OwnerRef,
    ) {
        let uid = ancestor.uid.as_str();
        let job = self.job_by_uid.get(uid).and_then(|id| Some((id.0, self.jobs.get(id)?)));
        let workload = match job {
            Some((kind, job)) => self.workload_of(kind, job),
            None => self.workloads_by_owner.get(uid).and_then(|keys| keys.first().cloned()),
        };
        let admitted =
            workload.and_then(|key| self.workloads.get(&key)).is_some_and(|record| may_run(record));
        if !admitted && !view.suspended {
            let patch = JobPatch::merge(json!({"spec": {"suspend": true}}));
            let tell = vec![job_event(index, view, false, "Suspended", "Kueue managed child job suspended")];
            self.patch_job(index, view, &patch, tell);
        }
    }
}
