//! Stops a job that has no Workload, then creates its Workload or adopts the prebuilt one that the job names.

use super::{Job, job_event};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobError, MissingClass, Priority, WorkloadRequest, workload_body};
use crate::lifecycle::backoff;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::{Effect, Observation, Verb};
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

/// Note of the event on a job that asks to be resized while it runs.
const ELASTIC_NOTE: &str = "Elastic Jobs are not supported by this version: a change of parallelism stops the Job and queues it again";

/// Delay before a job looks again for the Workload that it names.
const PREBUILT_RECHECK: SignedDuration = SignedDuration::from_secs(2);

/// Why no Workload can be created for a job.
enum ComposeError {
    Job(JobError),
    Class(MissingClass),
}

impl Reconciler {
    /// Stops a job that has no Workload, then creates one.
    pub(super) fn step_job_without_workload(&mut self, job: Job<'_>, now: Timestamp) {
        let view = job.view;
        if let Some(patch) = job.row.stop_patches(view, &[]).first() {
            let workload = view.prebuilt_workload_key().unwrap_or_else(|| job.own_workload_key());
            if !view.suspended && !self.is_confirmed(&workload, job.reconcile_key(), now) {
                return;
            }
            let stopped = (!view.suspended)
                .then(|| job.event("Stopped", "Missing Workload; unable to restore pod templates"));
            self.patch_job(job, patch, stopped.into_iter().collect(), now);
            return;
        }
        // The server would refuse the Workload, and each refusal would be reported on the Job and retried.
        if view.status.active_pods > 0 || self.cache.is_namespace_deleting(&view.key.namespace) {
            return;
        }
        if let Some(key) = view.prebuilt_workload_key() {
            self.adopt_prebuilt_workload(job, &key, now);
            return;
        }
        let key = job.own_workload_key();
        if self.cache.workload(&key).is_some() {
            let note = format!("Workload {key} exists and belongs to another object");
            self.warn_of_job(job, "WorkloadNameConflict", &note);
            return;
        }
        if !self.writes.may_write(Kind::Workload, &key, now) {
            // The Workload of that write is already deleted. Without the requeue, the job would get no step when the
            // write ends.
            self.writes.requeue_at_end(Kind::Workload, &key, job.reconcile_key());
            self.retry_after_backoff(Kind::Workload, &key, job.reconcile_key(), now);
            return;
        }
        let Some(raw) = self.raw_job(job) else { return };
        match self.compose_workload(job, &raw, &key) {
            Ok(body) => self.create_workload(job, key, body, now),
            Err(ComposeError::Class(MissingClass::WorkloadClass(name))) => {
                let note = format!("WorkloadPriorityClass {name} not found");
                self.warn_of_job(job, "WorkloadPriorityClassNotFound", &note);
            }
            Err(ComposeError::Class(MissingClass::PodClass(name))) => {
                self.warn_of_job(job, "ErrWorkloadCompose", &format!("PriorityClass {name} not found"));
            }
            Err(ComposeError::Job(error)) => {
                self.warn_of_job(job, "ErrWorkloadCompose", &error.to_string());
            }
        }
    }

    fn create_workload(&mut self, job: Job<'_>, key: ObjectKey, body: Value, now: Timestamp) {
        let view = job.view;
        let mut effects = vec![
            job.event("CreatedWorkload", &format!("Created Workload: {key}")),
            Effect::Observe(Observation::WorkloadCreated {
                job_kind: job.kind().resource().kind,
                latency: Duration::try_from(backoff::elapsed(view.created, now)).unwrap_or_default(),
            }),
        ];
        if view.options.elastic {
            effects.push(job_event(job.row, view, true, "ElasticJobNotSupported", ELASTIC_NOTE));
        }
        let request = WriteRequest::new(Kind::Workload, key, Verb::Create, body);
        self.writes.start(request.with_effects(effects).on_behalf_of(job.reconcile_key()), now);
    }

    /// Returns the raw job if it came with the current deltas. Otherwise requests a read, after which the job gets
    /// another step.
    pub(super) fn raw_job(&mut self, job: Job<'_>) -> Option<Value> {
        let (kind, key) = (job.kind(), &job.view.key);
        let raw = self.cache.raw_object(kind, key).cloned();
        if raw.is_none() {
            self.writes.emit(Effect::Refetch { kind, key: key.clone() });
        }
        raw
    }

    fn compose_workload(&self, job: Job<'_>, raw: &Value, key: &ObjectKey) -> Result<Value, ComposeError> {
        let pod_sets = job.row.pod_sets(raw).map_err(ComposeError::Job)?;
        let priority = Priority::resolve(job.view, &pod_sets, self.cache.priority_classes())
            .map_err(ComposeError::Class)?;
        let request = WorkloadRequest {
            name: &key.name,
            queue_name: job.view.queue_name.as_deref(),
            label_keys_to_copy: &self.settings.label_keys_to_copy,
            priority: &priority,
        };
        workload_body(&job.row, raw, job.view, &request).map_err(ComposeError::Job)
    }

    /// Makes the job the owner of the prebuilt Workload that it names, unless that Workload has an owner.
    fn adopt_prebuilt_workload(&mut self, job: Job<'_>, key: &ObjectKey, now: Timestamp) {
        let Some(record) = self.cache.workload(key).filter(|record| !record.meta.deleting) else {
            // It names no job, so nothing else gives the job a step when it is created.
            self.work_queue.add_at(job.reconcile_key(), backoff::after(now, PREBUILT_RECHECK));
            let note = format!("Workload {key} doesn't exist");
            return self.warn_of_job(job, "PrebuiltWorkloadNotFound", &note);
        };
        if record.owner.is_some() {
            let note = format!("Workload {key} belongs to another object");
            return self.warn_of_job(job, "WorkloadNameConflict", &note);
        }
        if !self.writes.may_write(Kind::Workload, key, now) {
            // The Workload has no owner yet that would get a step when the write ends.
            self.writes.requeue_at_end(Kind::Workload, key, job.reconcile_key());
            return self.retry_after_backoff(Kind::Workload, key, job.reconcile_key(), now);
        }
        let resource = job.kind().resource();
        let owner = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": job.view.key.name,
            "uid": job.view.uid, "controller": true, "blockOwnerDeletion": true,
        });
        let mut finalizers = record.meta.finalizers.to_vec();
        if !record.meta.has_finalizer() {
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
        }
        let body = json!({"metadata": {
            "resourceVersion": record.meta.resource_version, "ownerReferences": [owner], "finalizers": finalizers,
            "labels": {names::JOB_UID_LABEL: job.view.uid},
        }});
        let request = WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body);
        self.writes.start(request.on_behalf_of(job.reconcile_key()), now);
    }
}
