//! Jobs that have no Workload: those that wait for one, and those that are not subject to quota.
//!
//! Invariant: a job that names a queue is never reported as unmanaged without the reason.

use super::objects::{describe, key_of, text_at};
use super::report::PendingRow;
use super::simulation::Simulation;
use super::timeline::WorkloadRef;
use crate::api::reason::PendingReason;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobKind, JobView};
use crate::reconciler::is_managed_by_other_controller;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Unfinished jobs without a Workload.
#[derive(Debug, Default)]
pub(super) struct JobsWithoutWorkload {
    /// Managed jobs: suspended until a Workload can be created.
    pub(super) pending: Vec<PendingRow>,
    /// Jobs that name a queue and are not managed, with the reason.
    pub(super) not_managed: Vec<String>,
    /// Jobs that name no queue.
    pub(super) unqueued: Vec<String>,
}

impl Simulation {
    /// Returns the unfinished jobs that own none of the Workloads.
    pub(super) fn jobs_without_workload(&self, workloads: &[&Value]) -> JobsWithoutWorkload {
        let owners: BTreeSet<&str> =
            workloads.iter().map(|w| text_at(w, "/metadata/ownerReferences/0/uid")).collect();
        let mut found = JobsWithoutWorkload::default();
        for kind in self.harness.core.kinds().iter().copied() {
            let Kind::Job(job_kind) = kind else { continue };
            for job in self.harness.server.all(kind) {
                let finished = job_kind.played_job(job).is_ok_and(|state| state.finished);
                if finished || owners.contains(text_at(job, "/metadata/uid")) {
                    continue;
                }
                let view = job_kind.decode(job).ok();
                match view {
                    Some(view) if self.harness.core.units().manages_job(job_kind, &view) => {
                        found.pending.push(self.waiting_job(kind, job, &view));
                    }
                    Some(view) if view.queue_name.is_some() => {
                        found.not_managed.push(format!(
                            "{}: {}",
                            describe(job),
                            unmanaged_reason(job_kind, &view)
                        ));
                    }
                    _ => found.unqueued.push(describe(job)),
                }
            }
        }
        found
    }

    /// Returns the row of a job for which no Workload exists; the reason is that of the job's latest warning event.
    fn waiting_job(&self, kind: Kind, job: &Value, view: &JobView) -> PendingRow {
        let key = key_of(job);
        let local_queue = view.queue_name.as_deref().unwrap_or_default();
        let queue = self.harness.server.get(Kind::LocalQueue, &ObjectKey::new(&key.namespace, local_queue));
        let class =
            job.pointer("/metadata/labels").and_then(|labels| labels.get(names::PRIORITY_CLASS_LABEL));
        let class = class.and_then(Value::as_str).map(ObjectKey::cluster);
        let class = class.and_then(|name| self.harness.server.get(Kind::WorkloadPriorityClass, &name));
        let warning = self.warnings.get(&(kind, key.clone()));
        PendingRow {
            workload: WorkloadRef { workload: String::new(), job: key.to_string() },
            cluster_queue: queue
                .map(|queue| text_at(queue, "/spec/clusterQueue").to_owned())
                .unwrap_or_default(),
            local_queue: local_queue.to_owned(),
            priority: class.and_then(|class| class.get("value")?.as_i64()).unwrap_or(0),
            position: None,
            since: text_at(job, "/metadata/creationTimestamp").to_owned(),
            reason: warning.map_or_else(
                || PendingReason::PendingEvaluation.as_str().to_owned(),
                |warning| warning.reason.clone(),
            ),
            message: warning.map(|warning| warning.note.clone()).unwrap_or_default(),
            never_fits: false,
            blockers: Vec::new(),
            conditions: BTreeMap::new(),
        }
    }
}

/// Returns why a job that names a queue is not managed.
fn unmanaged_reason(kind: JobKind, view: &JobView) -> String {
    if is_managed_by_other_controller(kind, view) {
        let by = view.managed_by.as_deref().unwrap_or_default();
        format!("spec.managedBy names another controller, {by}")
    } else {
        format!("namespace {} is not selected by managedJobsNamespaceSelector", view.key.namespace)
    }
}
