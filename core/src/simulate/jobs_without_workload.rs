//! Jobs that have no Workload: those that wait for one, and those that are not subject to quota.
//!
//! Invariant: a job that names a queue is never reported as unmanaged without the reason.

use super::objects::{describe, field_text, has_owner, key_of, text_at, value_at};
use super::pods::{self, PodPhase};
use super::report::PendingRow;
use super::simulation::Simulation;
use super::timeline::WorkloadRef;
use crate::api::reason::PendingReason;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobKind, JobView, Role, frameworks};
use crate::snapshot::NoWorkload;
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
        let owners: BTreeSet<&str> = workloads
            .iter()
            .filter_map(|workload| value_at(workload, "/metadata/ownerReferences")?.as_array())
            .flatten()
            .map(|owner| field_text(owner, "uid"))
            .collect();
        let mut found = JobsWithoutWorkload::default();
        for row in frameworks().map(JobKind::new) {
            let kind = Kind::of_job(row);
            let enabled = self.harness.core.units().settings.manages_kind(row);
            for job in self.harness.server.all(kind) {
                if !enabled {
                    found.not_managed.extend(disabled_reason(row, job));
                } else if !owners.contains(text_at(job, "/metadata/uid")) {
                    self.add_without_workload(&mut found, row, job);
                }
            }
        }
        found
    }

    fn add_without_workload(&self, found: &mut JobsWithoutWorkload, row: JobKind, job: &Value) {
        let beside = self.harness.core.units().cache.beside_jobs();
        let Ok(view) = row.decode_after(job, None, beside) else {
            if !row.played_job(job, beside.related).is_ok_and(|state| state.finished) {
                found.unqueued.push(describe(job));
            }
            return;
        };
        if row.is_pod() {
            return self.add_pod_without_workload(found, row, job, &view);
        }
        if view.status.finished.is_some() {
            return;
        }
        if self.harness.core.units().manages_job(row, &view) {
            let pods = view.pod_sets.iter().any(|set| set.count > 0);
            match row.role {
                // Its pods have the Workloads, or it has no pods.
                Role::PassThrough => {}
                Role::PodsOfOwner if !pods => {}
                _ => found.pending.push(self.waiting_job(Kind::of_job(row), job, &view)),
            }
        } else if view.queue_name.is_some() {
            found.not_managed.push(self.unmanaged(row, job));
        } else {
            found.unqueued.push(describe(job));
        }
    }

    /// Adds a pod that waits for the rest of its group, or that is in no queue although it names one.
    fn add_pod_without_workload(
        &self,
        found: &mut JobsWithoutWorkload,
        row: JobKind,
        pod: &Value,
        view: &JobView,
    ) {
        if has_owner(pod) || view.queue_name.is_none() {
            return;
        }
        match pods::phase_of(pod) {
            Some(PodPhase::Idle) if value_at(pod, "/spec/schedulingGates").is_some() => {
                found.pending.push(self.waiting_job(Kind::Pod, pod, view));
            }
            Some(_) => {}
            None => found.not_managed.push(self.unmanaged(row, pod)),
        }
    }

    /// Returns why a job has no Workload: what objects say, else the latest warning about it.
    fn why_no_workload(&self, kind: Kind, key: &ObjectKey) -> Option<NoWorkload> {
        let Kind::Job(row) = kind else {
            let pod = frameworks().map(JobKind::new).find(|row| row.is_pod())?;
            return self.why_no_workload_of(pod, kind, key);
        };
        self.why_no_workload_of(row, kind, key)
    }

    fn why_no_workload_of(&self, row: JobKind, kind: Kind, key: &ObjectKey) -> Option<NoWorkload> {
        let warning = self.warnings.get(&(kind, key.clone()));
        let reported = warning.map(|warning| (warning.reason.as_str(), warning.note.as_str()));
        self.harness.core.units().why_no_workload(row, key, reported)
    }

    /// Returns the line of a job that names a queue and is not managed.
    fn unmanaged(&self, row: JobKind, job: &Value) -> String {
        let why = self.why_no_workload_of(row, Kind::of_job(row), &key_of(job));
        let why = why.map_or_else(|| "the manager does not manage it".to_owned(), |why| why.message);
        format!("{}: {why}", describe(job))
    }

    /// Returns the row of a job for which no Workload exists.
    fn waiting_job(&self, kind: Kind, job: &Value, view: &JobView) -> PendingRow {
        let key = key_of(job);
        let local_queue = view.queue_name.as_deref().unwrap_or_default();
        let queue = self.harness.server.get(Kind::LocalQueue, &ObjectKey::new(&key.namespace, local_queue));
        let class =
            job.pointer("/metadata/labels").and_then(|labels| labels.get(names::PRIORITY_CLASS_LABEL));
        let class = class.and_then(Value::as_str).map(ObjectKey::cluster);
        let class = class.and_then(|name| self.harness.server.get(Kind::WorkloadPriorityClass, &name));
        let why = self.why_no_workload(kind, &key);
        PendingRow {
            workload: WorkloadRef { workload: String::new(), job: key.to_string() },
            cluster_queue: queue
                .map(|queue| text_at(queue, "/spec/clusterQueue").to_owned())
                .unwrap_or_default(),
            local_queue: local_queue.to_owned(),
            priority: class.and_then(|class| class.get("value")?.as_i64()).unwrap_or(0),
            position: None,
            since: text_at(job, "/metadata/creationTimestamp").to_owned(),
            reason: why.as_ref().map_or_else(
                || PendingReason::PendingEvaluation.as_str().to_owned(),
                |why| why.reason.clone(),
            ),
            // Only a change of the object that the reason names makes its Workload.
            stuck: why.is_some(),
            message: why.map(|why| why.message).unwrap_or_default(),
            obstacle: String::new(),
            obstacle_in_namespace: String::new(),
            never_fits: false,
            blockers: Vec::new(),
            conditions: BTreeMap::new(),
        }
    }
}

/// Returns why an object is not managed that names a queue and is of a kind that the configuration does not list. What its owner is,
/// the owner's entry says.
fn disabled_reason(kind: JobKind, object: &Value) -> Option<String> {
    let labels = value_at(object, "/metadata/labels")?;
    let queue = field_text(labels, names::QUEUE_NAME_LABEL);
    let named = !queue.is_empty() && !has_owner(object);
    named.then(|| format!("{}: {} is not in integrations.frameworks", describe(object), kind.name))
}
