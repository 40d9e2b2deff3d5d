//! Updates the spec of a Workload to match its job.

use super::Job;
use super::start::{charge_covers_requests, is_equivalent_to_job, is_identical_to_job};
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::JobView;
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

impl Reconciler {
    /// Updates the spec of a Workload to match its suspended job.
    pub(super) fn sync_workload(&mut self, job: Job<'_>, record: &WorkloadRecord, now: Timestamp) {
        let view = job.view;
        let key = &record.meta.key;
        if !self.writes.may_write(Kind::Workload, key, now) {
            // Without the retry, a write that failed or changed nothing would be repeated only when the job changes.
            return self.writes.retry_after_backoff(
                (Kind::Workload, key),
                job.reconcile_key(),
                &mut self.work_queue,
                now,
            );
        }
        let reserved = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        let mut spec = Map::new();
        let mut effects = Vec::new();
        let decided = reserved || self.membership.assumed.contains(key);
        let matches = if decided {
            is_equivalent_to_job(record, view) && charge_covers_requests(record)
        } else {
            is_identical_to_job(record, view)
        };
        if view.options.prebuilt_workload.is_none() && !matches {
            if decided {
                if reserved {
                    self.replace_workload(job, record, now);
                }
                return;
            }
            if counts_more_reclaimable(record, view) {
                // Its status is written first: until then the webhook would refuse fewer pods.
                return;
            }
            let Some(raw) = self.raw_job(job) else { return };
            match job.row.pod_sets(&raw) {
                Ok(pod_sets) => {
                    spec.insert("podSets".to_owned(), Value::Array(pod_sets));
                    let note = format!("Updated not matching Workload for suspended job: {key}");
                    effects.push(job.event("UpdatedWorkload", &note));
                }
                Err(error) => {
                    return self.warn_of_job(job, "ErrWorkloadCompose", &error.to_string());
                }
            }
        }
        self.sync_spec_fields(view, record, reserved, &mut spec);
        if let Some(request) = spec_write(view, record, &spec) {
            self.writes.start(request.with_effects(effects), now);
        }
    }

    /// Sets queue, priority class and execution time from the job's labels, where the state of the Workload allows it.
    pub(crate) fn sync_spec_fields(
        &self,
        view: &JobView,
        record: &WorkloadRecord,
        reserved: bool,
        spec: &mut Map<String, Value>,
    ) {
        if !reserved && record.queue_name.as_deref() != view.queue_name.as_deref() {
            spec.insert("queueName".to_owned(), json!(view.queue_name));
        }
        self.sync_priority_class(view, record, reserved, spec);
        let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
        if !admitted && record.max_execution_seconds != view.options.max_exec_seconds {
            spec.insert("maximumExecutionTimeSeconds".to_owned(), json!(view.options.max_exec_seconds));
        }
    }

    /// Updates the priority class from the label while the job runs, because it decides whether the Workload may be
    /// preempted.
    pub(crate) fn sync_priority_of_running_job(
        &mut self,
        view: &JobView,
        record: &WorkloadRecord,
        now: Timestamp,
    ) {
        let mut spec = Map::new();
        self.sync_priority_class(view, record, true, &mut spec);
        let key = &record.meta.key;
        if !spec.is_empty() && self.writes.may_write(Kind::Workload, key, now) {
            let body = json!({"metadata": {"resourceVersion": record.meta.resource_version}, "spec": spec});
            self.writes.start(WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body), now);
        }
    }

    /// Sets the priority class if the label names another class that exists. A Workload that holds quota and has no
    /// class gets none.
    fn sync_priority_class(
        &self,
        view: &JobView,
        record: &WorkloadRecord,
        reserved: bool,
        spec: &mut Map<String, Value>,
    ) {
        let class = record.priority_class.as_ref().filter(|c| c.kind == "WorkloadPriorityClass");
        let class = class.map(|c| c.name.as_str());
        let Some(name) = view.options.priority_class.as_deref().filter(|name| class != Some(*name)) else {
            return;
        };
        let allowed = !reserved || class.is_some();
        if let Some(value) = self.cache.workload_priority(name).filter(|_| allowed) {
            spec.insert("priority".to_owned(), json!(value));
            let group = crate::api::GROUP;
            let class = json!({"group": group, "kind": "WorkloadPriorityClass", "name": name});
            spec.insert("priorityClassRef".to_owned(), class);
        }
    }
}

/// Returns whether a Workload reports more reclaimable pods of a pod set than its job, made smaller since, has pods.
fn counts_more_reclaimable(record: &WorkloadRecord, view: &JobView) -> bool {
    let pods = |name: &str| view.pod_sets.iter().find(|set| *set.name == *name).map(|set| set.count);
    record.status.reclaimable_pods.iter().any(|r| pods(&r.name).is_some_and(|count| r.count > count))
}

/// Returns the write of the changed fields of a Workload's spec, and of the admission gates of the job; `None` if nothing
/// has changed.
pub(crate) fn spec_write(
    view: &JobView,
    record: &WorkloadRecord,
    spec: &Map<String, Value>,
) -> Option<WriteRequest> {
    let gated_by = &record.annotations.admission_gated_by;
    let gates_changed = gated_by.is_some() && *gated_by != view.options.gated_by;
    if spec.is_empty() && !gates_changed {
        return None;
    }
    let mut metadata = json!({"resourceVersion": record.meta.resource_version});
    if let Some(metadata) = metadata.as_object_mut().filter(|_| gates_changed) {
        let annotations = json!({names::ADMISSION_GATED_BY_ANNOTATION: view.options.gated_by});
        metadata.insert("annotations".to_owned(), annotations);
    }
    let body = json!({"metadata": metadata, "spec": spec});
    Some(WriteRequest::new(Kind::Workload, record.meta.key.clone(), Verb::Merge, body))
}
