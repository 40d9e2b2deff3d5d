//! Which Workload is that of a job, and which job a Workload belongs to.
//!
//! Owner references and the label with the UID of the job are metadata that any client may edit, so they alone do not decide:
//! a Workload whose name is that of a job's own Workload, which has a hash of the job's UID, belongs to that job, and its
//! owner reference is written again. Invariants: a Workload belongs to one job at most; a job has one Workload at most, and
//! what else it owns (another prebuilt Workload that it named before, a second one) ends as out of sync as soon as no pod
//! runs on its quota; a job is not started on a Workload before it owns it.

use super::{Job, JobLookup};
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::records::WorkloadRecord;
use crate::cache::{JobId, Kind};
use crate::frameworks::{JobKind, JobView, own_workload_key};
use crate::lifecycle::conditions;
use crate::reconciler::events::workload_event;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::in_flight::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

impl<'a> JobLookup<'a> {
    /// Returns the key of the Workload of a job: the prebuilt Workload that the job names, the Workload that was made for
    /// it, or another one that it owns.
    pub(crate) fn workload_of(self, kind: JobKind, view: &JobView) -> Option<ObjectKey> {
        if let Some(key) = view.prebuilt_workload_key() {
            let (_, job) = self.job_of_workload(self.cache.workload(&key)?)?;
            return (job.uid == view.uid).then_some(key);
        }
        let own = own_workload_key(&kind, view);
        if self.cache.workload(&own).is_some_and(|record| !is_given_up(record)) {
            return Some(own);
        }
        let belongs = |record: &WorkloadRecord| {
            record.meta.key.namespace == view.key.namespace
                && self.job_of_workload(record).is_some_and(|(_, job)| job.uid == view.uid)
        };
        let owned =
            self.cache.workloads_owned_by(&view.uid).iter().filter_map(|key| self.cache.workload(key));
        let usable = owned.filter(|record| !is_given_up(record) && belongs(record));
        let finished =
            |record: &&Arc<WorkloadRecord>| conditions::is_true(&record.status, ConditionType::Finished);
        usable.min_by_key(finished).map(|record| record.meta.key.clone())
    }

    /// Returns the job that a Workload belongs to: the one that it was made for, its owner, or the job that names it while
    /// it has no owner.
    pub(crate) fn job_of_workload(self, record: &WorkloadRecord) -> Option<(&'a JobId, &'a Arc<JobView>)> {
        let key = &record.meta.key;
        self.cache.job_of_own_workload(key).or_else(|| match record.owner {
            Some(_) => self.cache.job_of(record).filter(|(id, _)| id.1.namespace == key.namespace),
            None => self.cache.jobs_naming(key).find(|(id, view)| {
                let ends = view.deleting || view.status.finished.is_some();
                !ends && self.manages_job(id.0, view) && self.find_ancestor(id.0, view).is_none()
            }),
        })
    }

    /// Returns the jobs that a change of a Workload with this key concerns, beside its owner.
    pub(crate) fn jobs_by_workload_name(self, key: &ObjectKey) -> Vec<ReconcileKey> {
        let jobs = self.cache.job_of_own_workload(key).into_iter().chain(self.cache.jobs_naming(key));
        jobs.map(|((kind, job), _)| ReconcileKey::Job(*kind, job.clone())).collect()
    }

    /// Returns the Workloads that a change of a job concerns, beside those that it owns.
    pub(crate) fn workloads_by_job_name(self, kind: JobKind, view: &JobView) -> Vec<ReconcileKey> {
        let keys = view.prebuilt_workload_key().into_iter().chain([own_workload_key(&kind, view)]);
        keys.filter(|key| self.cache.workload(key).is_some()).map(ReconcileKey::Workload).collect()
    }

    /// Returns whether a Workload belongs to a job that has another one. Slices of an elastic job replace one another.
    pub(crate) fn is_superfluous(self, record: &WorkloadRecord, (kind, _): &JobId, view: &JobView) -> bool {
        let key = &record.meta.key;
        let used = self.workload_of(*kind, view);
        let slice_of = |other: &WorkloadRecord| other.annotations.replaces.as_deref() == Some(key);
        used.as_ref() != Some(key)
            && record.annotations.replaces.is_none()
            && !used.and_then(|used| self.cache.workload(&used)).is_some_and(|other| slice_of(other))
    }

    /// Returns the Workload on whose quota the pods of a job run, or whose start is not undone yet, if the job has another
    /// Workload now, or none.
    pub(super) fn former_workload(
        self,
        job: Job<'_>,
        used: Option<&ObjectKey>,
    ) -> Option<Arc<WorkloadRecord>> {
        let name = starting_workload(job.view)?;
        let key = ObjectKey { namespace: job.view.key.namespace.clone(), name: Arc::from(name) };
        let record = self.cache.workload(&key).filter(|_| used != Some(&key))?;
        let uid = &job.view.uid;
        let made_for_job = || record.job_uid.as_ref() == Some(uid) || key == job.own_workload_key();
        let belongs = record.owner.as_ref().map_or_else(made_for_job, |owner| owner.uid == *uid);
        (belongs && !record.pod_sets().is_empty()).then(|| Arc::clone(record))
    }
}

impl Reconciler {
    /// Makes a job the only owner of its Workload, which has no owner yet, or has lost it by an edit.
    pub(super) fn own_workload(&mut self, job: Job<'_>, record: &WorkloadRecord, now: Timestamp) {
        let resource = job.kind().resource();
        let (key, view) = (&record.meta.key, job.view);
        let owner = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": view.key.name,
            "uid": view.uid, "controller": true, "blockOwnerDeletion": true,
        });
        let mut finalizers = record.meta.finalizers.to_vec();
        if !record.meta.has_finalizer() && !conditions::is_true(&record.status, ConditionType::Finished) {
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
        }
        let body = json!({"metadata": {
            "resourceVersion": record.meta.resource_version, "ownerReferences": [owner], "finalizers": finalizers,
            "labels": {names::JOB_UID_LABEL: view.uid},
        }});
        let request = WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body);
        let note = "Added 1 owner reference(s)".to_owned();
        let event = workload_event(record, false, "OwnerReferencesAdded", note);
        self.writes.write_for(
            job.reconcile_key(),
            request.with_effects(vec![event]),
            &mut self.work_queue,
            now,
        );
    }
}

/// Returns whether a Workload ended because no job used it: a job may need it again, or another one in its place.
pub(super) fn is_given_up(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Finished)
        && matches!(
            conditions::reason(&record.status, ConditionType::Finished),
            "OwnerNotFound" | "OutOfSync"
        )
}

/// Returns the name of the Workload whose admission started a job; `None` if the start was undone.
pub(crate) fn starting_workload(view: &JobView) -> Option<&str> {
    let mut annotations = view.pod_sets.iter().map(|set| &set.template.annotations);
    annotations.find_map(|map| map.get(names::WORKLOAD_ANNOTATION)).map(String::as_str)
}
