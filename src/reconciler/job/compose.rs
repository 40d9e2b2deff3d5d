//! Stops a job that has no Workload, then creates its Workload.

use super::{Job, job_event};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{JobError, MissingClass, Priority, WorkloadRequest, workload_body};
use crate::lifecycle::backoff;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::{Effect, Observation, Verb};
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Note of the event on a job that asks to be resized while it runs.
const ELASTIC_NOTE: &str = "Elastic Jobs are not supported by this version: a change of parallelism stops the Job and queues it again";

/// Why no Workload can be created for a job.
enum ComposeError {
    Job(JobError),
    Class(MissingClass),
}

impl Reconciler {
    /// Stops a job that has no Workload, then creates one.
    pub(super) fn step_job_without_workload(&mut self, job: Job<'_>, now: Timestamp) {
        let view = job.view;
        if self.leave_former_workload(job, None, now) {
            return;
        }
        if let Some(patch) = job.row.stop_patches(view, &[]).first() {
            let workload = job.expected_workload_key();
            if !view.suspended
                && !self.writes.is_confirmed(&workload, job.reconcile_key(), &mut self.work_queue, now)
            {
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
            return self.report_missing_prebuilt_workload(job, &key);
        }
        let key = job.own_workload_key();
        if let Some(record) = self.cache.workload(&key).cloned() {
            // It ended while the job did not use it.
            return self.replace_workload(job, &record, now);
        }
        if !self.writes.may_write(Kind::Workload, &key, now) {
            // The Workload of that write is already deleted. Without the requeue, the job would get no step when the
            // write ends.
            self.writes.requeue_at_end(Kind::Workload, &key, job.reconcile_key());
            self.writes.retry_after_backoff(
                (Kind::Workload, &key),
                job.reconcile_key(),
                &mut self.work_queue,
                now,
            );
            return;
        }
        if let Some(until) = self.writes.replacements.waits_until(&key, view.generation, now) {
            return self.work_queue.add_at(job.reconcile_key(), until);
        }
        let Some(raw) = self.raw_job(job) else { return };
        match self.compose_workload(job, &raw, &key) {
            Ok(body) => self.create_workload(job, key, body, now),
            Err(ComposeError::Class(MissingClass::WorkloadClass(name))) => {
                let note = format!("WorkloadPriorityClass {name:?} not found");
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

    /// Reports why a job does not have the prebuilt Workload that it names.
    fn report_missing_prebuilt_workload(&mut self, job: Job<'_>, key: &ObjectKey) {
        if self.cache.workload(key).is_some_and(|record| !record.meta.deleting) {
            let note = format!("Workload {key} belongs to another object");
            self.warn_of_job(job, "WorkloadNameConflict", &note);
        } else {
            self.warn_of_job(job, "PrebuiltWorkloadNotFound", &format!("Workload {key} doesn't exist"));
        }
    }
}
