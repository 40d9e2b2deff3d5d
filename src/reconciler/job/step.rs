//! The next write of a job: start, stop, restore, delete.

use super::Job;
use super::start::{grants_match_job, pod_sets_to_restore};
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Ancestor, JobKind, JobPatch};
use crate::lifecycle::{backoff, conditions, eviction, reservation};
use crate::reconciler::Reconciler;
use crate::reconciler::messages::{Effect, Verb};
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;

/// Note of the event on a job that no longer asks for what its admitted Workload has.
const NO_MATCHING_WORKLOAD: &str =
    "No matching Workload; restoring pod templates according to existent Workload";

/// Delay before the next step of a job whose Workload cannot be decoded: its deletion gives the job no step.
const UNREADABLE_RECHECK: SignedDuration = SignedDuration::from_secs(10);

impl Reconciler {
    /// Sends the next write of a job or of its Workload's spec, if there is one.
    pub(crate) fn step_job(&mut self, kind: JobKind, key: &ObjectKey, now: Timestamp) {
        let Some(view) = self.cache.job(&(kind, key.clone())) else { return };
        let view = view.clone();
        let job = Job { row: kind, view: &view };
        if self.has_unreadable_workload(job, now) {
            return;
        }
        let workload = self.job_lookup().workload_of(kind, &view);
        if let Some(record) = workload.and_then(|key| self.cache.workload(&key)).cloned() {
            let owned = record.owner.as_ref().is_some_and(|owner| owner.uid == view.uid);
            if !owned && !record.meta.deleting {
                self.own_workload(job, &record, now);
            }
            if !view.deleting && !self.delete_expired_job(job, &record.meta.key, now) {
                self.step_job_with_workload(job, &record, owned, now);
            }
            return;
        }
        if view.deleting || view.status.finished.is_some() {
            // The job finished before a Workload was created for it.
            return;
        }
        match self.job_lookup().find_ancestor(kind, &view) {
            Some(Ancestor::Queued(ancestor)) => self.suspend_child_unless_admitted(job, &ancestor, now),
            // The framework of the owner would manage the job. A job that names a queue itself is still queued.
            Some(Ancestor::Unsupported(_)) if view.queue_name.is_none() => {}
            _ if self.job_lookup().manages_job(kind, &view) => self.step_job_without_workload(job, now),
            _ => self.warn_of_missed_default_queue(job),
        }
    }

    /// Returns whether the Workload of a job exists and cannot be decoded: it may be admitted, so the job is neither stopped
    /// nor started, and gets a step later.
    fn has_unreadable_workload(&mut self, job: Job<'_>, now: Timestamp) -> bool {
        let key = job.expected_workload_key();
        let unreadable = self.warnings.is_unreadable(Kind::Workload, &key);
        if unreadable {
            self.work_queue.add_at(job.reconcile_key(), backoff::after(now, UNREADABLE_RECHECK));
        }
        unreadable
    }

    /// Deletes the job of a Workload that Sluice deactivated, if the retention period has expired. Returns whether the
    /// job is deleted.
    fn delete_expired_job(&mut self, job: Job<'_>, workload: &ObjectKey, now: Timestamp) -> bool {
        let since = self.cache.workload(workload).filter(|record| !record.active);
        let since = since.and_then(|record| eviction::deactivated_by_manager(&record.status));
        let (Some(since), Some(keep)) = (since, self.settings.lifecycle.retain_deactivated) else {
            return false;
        };
        let end = backoff::after(since, keep);
        if now < end {
            self.work_queue.add_at(job.reconcile_key(), end);
            return false;
        }
        if !self.writes.is_confirmed(workload, job.reconcile_key(), &mut self.work_queue, now) {
            return true;
        }
        let view = job.view;
        let body = json!({
            "preconditions": {"uid": view.uid, "resourceVersion": view.resource_version},
            "propagationPolicy": "Background",
        });
        let note = format!("Deleted: retention period of deactivated Workload {workload} expired");
        let request = WriteRequest::new(job.kind(), view.key.clone(), Verb::Delete, body);
        self.writes.start(request.with_effects(vec![job.event("Deleted", &note)]), now);
        true
    }

    fn step_job_with_workload(&mut self, job: Job<'_>, record: &WorkloadRecord, owned: bool, now: Timestamp) {
        let view = job.view;
        if view.status.finished.is_some() || self.leave_former_workload(job, Some(&record.meta.key), now) {
            return;
        }
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        let reserved = reservation::holds_quota(&record.status);
        if record.may_run() && grants_match_job(record, view) {
            if !view.suspended {
                self.sync_priority_of_running_job(view, record, now);
            } else if view.status.active_pods == 0 && owned {
                self.start_job(job, record, now);
            }
            // Otherwise a user has suspended it: beside the pods that still end, new ones would exceed the grant.
            return;
        }
        if !view.suspended || (reserved && !awaits_admission(record)) {
            self.stop_job(job, record, now);
            return;
        }
        if !finished && !record.meta.deleting && owned {
            self.report_check_messages(job, record);
            self.sync_workload(job, record, now);
        }
    }

    /// Stops a job whose pods run on the quota of another Workload than its present one, and undoes the start by that other
    /// Workload. Returns whether the job must wait for it.
    pub(super) fn leave_former_workload(
        &mut self,
        job: Job<'_>,
        used: Option<&ObjectKey>,
        now: Timestamp,
    ) -> bool {
        let view = job.view;
        let Some(former) = self.job_lookup().former_workload(job, used) else { return false };
        let patch = job.row.stop_patches(view, &pod_sets_to_restore(&former, view)).into_iter().next();
        let Some(patch) = patch else { return view.status.active_pods > 0 };
        if view.suspended
            || self.writes.is_confirmed(&former.meta.key, job.reconcile_key(), &mut self.work_queue, now)
        {
            let note = format!("The job has another Workload than {}, which started it", former.meta.key);
            let stopped = (!view.suspended).then(|| job.event("Stopped", &note));
            self.patch_job(job, &patch, stopped.into_iter().collect(), now);
        }
        true
    }

    fn start_job(&mut self, job: Job<'_>, record: &WorkloadRecord, now: Timestamp) {
        // A start that contradicts the template finishes the Workload; its lifecycle reports the error.
        let Ok(patches) = self.job_lookup().start_patches(record, job.view) else {
            return;
        };
        let Some(patch) = patches.first() else { return };
        if !self.writes.is_confirmed(&record.meta.key, job.reconcile_key(), &mut self.work_queue, now) {
            return;
        }
        let queue = record.status.admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let started = job.event("Started", &format!("Admitted by clusterQueue {queue}"));
        self.patch_job(job, patch, vec![started], now);
    }

    fn stop_job(&mut self, job: Job<'_>, record: &WorkloadRecord, now: Timestamp) {
        let view = job.view;
        let restored = pod_sets_to_restore(record, view);
        let Some(patch) = job.row.stop_patches(view, &restored).into_iter().next() else {
            // Admitted, but not as the job is now. The quota is needed as long as there are pods.
            if record.may_run() && view.status.active_pods == 0 {
                self.replace_workload(job, record, now);
            }
            return;
        };
        if !view.suspended
            && !self.writes.is_confirmed(&record.meta.key, job.reconcile_key(), &mut self.work_queue, now)
        {
            return;
        }
        let stopped = (!view.suspended).then(|| job.event("Stopped", &stop_reason(record)));
        self.patch_job(job, &patch, stopped.into_iter().collect(), now);
    }

    pub(super) fn patch_job(&mut self, job: Job<'_>, patch: &JobPatch, effects: Vec<Effect>, now: Timestamp) {
        let view = job.view;
        let request = WriteRequest::of_patch(job.kind(), view.key.clone(), patch, &view.resource_version);
        self.writes.start(request.with_effects(effects), now);
    }

    /// Emits a warning for a Job that should be in the default queue but was created while no webhook answered. The Job
    /// keeps running.
    fn warn_of_missed_default_queue(&mut self, job: Job<'_>) {
        let view = job.view;
        let key = ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(names::DEFAULT_NAME) };
        let Some(queue) = self.cache.local_queue(&key) else { return };
        let eligible = view.queue_name.is_none() && view.controller.is_none() && view.managed_by.is_none();
        if eligible
            && !view.suspended
            && view.created > queue.meta.created
            && self.job_lookup().manages_namespace(&key.namespace)
        {
            let note = "Not managed: the Job was created while the webhook was unavailable and has no queue-name label";
            self.warn_of_job(job, "NotQueued", note);
        }
    }
}

/// Returns why a job whose Workload does not let it run is stopped.
fn stop_reason(record: &WorkloadRecord) -> String {
    let holds = |kind| conditions::find(&record.status, kind).filter(|condition| condition.status == "True");
    if let Some(finished) = holds(ConditionType::Finished) {
        // The job itself has not finished: another client wrote it, or the manager did, because the job cannot be run.
        return format!("Workload {} has finished: {}", record.meta.key, finished.message);
    }
    if let Some(evicted) = holds(ConditionType::Evicted) {
        return evicted.message.clone();
    }
    let reason = if record.may_run() { NO_MATCHING_WORKLOAD } else { "Not admitted by cluster queue" };
    reason.to_owned()
}

/// Returns whether a Workload holds quota and only its admission is missing.
fn awaits_admission(record: &WorkloadRecord) -> bool {
    reservation::holds_quota(&record.status)
        && !conditions::is_true(&record.status, ConditionType::Evicted)
        && !conditions::is_true(&record.status, ConditionType::Admitted)
        && !record.meta.deleting
}
