//! Writes on jobs, and the Workloads made for them.
//!
//! A job runs only while its Workload is admitted and not evicted. What started it is undone exactly when it stops, and
//! its Workload releases its quota only after that.

use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Ancestor, FRAMEWORKS, Framework, JobError, JobPatch, JobView, MissingClass, Priority, PriorityLookup,
    WorkloadRequest, workload_body, workload_name,
};
use crate::lifecycle::{backoff, conditions, eviction, reservation};
use crate::reconciler::job::events::job_event;
use crate::reconciler::job::start::{grants_match_job, is_equivalent_to_job, is_identical_to_job};
use crate::reconciler::messages::{Effect, Observation, Verb};
use crate::reconciler::writes::in_flight::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What is told of a job that is to be resized while it runs.
const ELASTIC_NOTE: &str =
    "Elastic Jobs are not part of this version: a change of parallelism stops the Job and queues it again";

impl Reconciler {
    /// Sends the next write of a job or of its Workload's spec, if there is one.
    pub(in crate::reconciler) fn step_job(&mut self, index: usize, key: &ObjectKey, now: Timestamp) {
        let (Some(view), Some(kind)) = (self.jobs.get(&(index, key.clone())), FRAMEWORKS.get(index)) else {
            return;
        };
        if view.deleting {
            return;
        }
        let view = view.clone();
        if let Some(workload) = self.workload_of(index, &view) {
            if !self.delete_expired_job(index, &view, &workload, now) {
                self.step_job_with_workload(index, kind, &view, &workload, now);
            }
            return;
        }
        if view.status.finished.is_some() {
            // Over before anything was made for it.
            return;
        }
        match self.find_ancestor(index, &view) {
            Some(Ancestor::Queued(ancestor)) => self.suspend_child_unless_admitted(index, &view, &ancestor),
            // Its owner's framework would look after it. One that names a queue itself is queued all the same.
            Some(Ancestor::Unsupported(_)) if view.queue_name.is_none() => {}
            _ if self.manages_job(&view) => self.step_job_without_workload(index, kind, &view, now),
            _ => self.report_not_queued(index, &view),
        }
    }

    /// Key of the Workload of a job: the one that it names, or the one that it owns.
    pub(in crate::reconciler) fn workload_of(&self, index: usize, view: &JobView) -> Option<ObjectKey> {
        if let Some(name) = &view.prebuilt_workload {
            let key = ObjectKey { namespace: view.key.namespace.clone(), name: name.clone() };
            let owner = self.workloads.get(&key)?.owner.as_ref()?;
            return (owner.uid == view.uid).then_some(key);
        }
        let own = own_workload_key(index, view);
        let keys = self.workloads_by_owner.get(&view.uid)?;
        if keys.contains(&own) { Some(own) } else { keys.first().cloned() }
    }

    /// Deletes the job of a Workload that the manager has deactivated, when it was kept long enough. Whether it did.
    fn delete_expired_job(
        &mut self,
        index: usize,
        view: &JobView,
        workload: &ObjectKey,
        now: Timestamp,
    ) -> bool {
        let since = self.workloads.get(workload).filter(|record| !record.active);
        let since = since.and_then(|record| eviction::deactivated_by_manager(&record.status));
        let (Some(since), Some(keep)) = (since, self.settings.lifecycle.retain_deactivated) else {
            return false;
        };
        let end = backoff::after(since, keep);
        if now < end {
            self.timers.wake(ReconcileKey::Job(index, view.key.clone()), end);
            return false;
        }
        let body = json!({
            "preconditions": {"uid": view.uid, "resourceVersion": view.resource_version},
            "propagationPolicy": "Background",
        });
        let note = format!("Deleted: Workload {workload} was deactivated and has been kept long enough");
        let tell = vec![job_event(index, view, false, "Deleted", &note)];
        self.send_write(Kind::Job(index), &view.key, Verb::Delete, None, body, tell);
        true
    }

    /// A job that has no Workload yet: it must rest, then one is made.
    fn step_job_without_workload(&mut self, index: usize, kind: &Framework, view: &JobView, now: Timestamp) {
        if let Some(patch) = kind.stop_patches(view, &[]).first() {
            let stopped = (!view.suspended).then(|| {
                job_event(index, view, false, "Stopped", "Missing Workload; unable to restore pod templates")
            });
            self.patch_job(index, view, patch, stopped.into_iter().collect());
            return;
        }
        if view.status.active_pods > 0 {
            return;
        }
        if let Some(name) = view.prebuilt_workload.clone() {
            let key = ObjectKey { namespace: view.key.namespace.clone(), name };
            self.adopt_prebuilt_workload(index, view, &key, now);
            return;
        }
        let key = own_workload_key(index, view);
        if self.workloads.contains_key(&key) {
            let note = format!("Workload {key} exists and belongs to another object");
            self.report_job_warning(index, view, "WorkloadNameConflict", &note);
            return;
        }
        if !self.in_flight_writes.may_write(Kind::Workload, &key, now) {
            // What is written is gone already: its end would give nobody a step.
            self.in_flight_writes.requeue_at_end(
                Kind::Workload,
                &key,
                ReconcileKey::Job(index, view.key.clone()),
            );
            if let Some(until) = self.in_flight_writes.backoff_until(Kind::Workload, &key) {
                self.timers.wake(ReconcileKey::Job(index, view.key.clone()), until);
            }
            return;
        }
        let Some(job) = self.raw_job(index, view) else { return };
        match self.compose_workload(kind, &job, view, &key) {
            Ok(body) => {
                let note = format!("Created Workload: {key}");
                let latency = backoff::elapsed(view.created, now);
                let elastic = view
                    .elastic
                    .then(|| job_event(index, view, true, "ElasticJobNotSupported", ELASTIC_NOTE));
                let tell = vec![
                    job_event(index, view, false, "CreatedWorkload", &note),
                    Effect::Observe(Observation::WorkloadCreated {
                        job_kind: Kind::Job(index).resource().kind,
                        latency: Duration::try_from(latency).unwrap_or_default(),
                    }),
                ];
                self.start_write(WriteRequest {
                    effects: tell.into_iter().chain(elastic).collect(),
                    on_behalf_of: Some(ReconcileKey::Job(index, view.key.clone())),
                    ..WriteRequest::new(Kind::Workload, key, Verb::Create, body)
                });
            }
            Err(ComposeError::Class(MissingClass::WorkloadClass(name))) => {
                let note = format!("WorkloadPriorityClass {name} not found");
                self.report_job_warning(index, view, "WorkloadPriorityClassNotFound", &note);
            }
            Err(ComposeError::Class(MissingClass::PodClass(name))) => {
                self.report_job_warning(
                    index,
                    view,
                    "ErrWorkloadCompose",
                    &format!("PriorityClass {name} not found"),
                );
            }
            Err(ComposeError::Job(error)) => {
                self.report_job_warning(index, view, "ErrWorkloadCompose", &error.to_string());
            }
        }
    }

    /// The raw job, if it came with this delta; else it is fetched and this step comes again with it.
    fn raw_job(&mut self, index: usize, view: &JobView) -> Option<Value> {
        let id = (Kind::Job(index), view.key.clone());
        let raw = self.raw_objects.get(&id).cloned();
        if raw.is_none() {
            let (kind, key) = id;
            self.effects.push(Effect::Refetch { kind, key });
        }
        raw
    }

    fn compose_workload(
        &self,
        kind: &Framework,
        job: &Value,
        view: &JobView,
        key: &ObjectKey,
    ) -> Result<Value, ComposeError> {
        let pod_sets = kind.pod_sets(job).map_err(ComposeError::Job)?;
        let priority = Priority::resolve(view, &pod_sets, self).map_err(ComposeError::Class)?;
        let request = WorkloadRequest {
            name: &key.name,
            queue_name: view.queue_name.as_deref(),
            label_keys_to_copy: &self.settings.label_keys_to_copy,
            priority: &priority,
        };
        workload_body(kind, job, view, &request).map_err(ComposeError::Job)
    }

    /// A Workload that the job names becomes its own, unless it has an owner.
    fn adopt_prebuilt_workload(&mut self, index: usize, view: &JobView, key: &ObjectKey, now: Timestamp) {
        let Some(record) = self.workloads.get(key) else {
            self.report_job_warning(
                index,
                view,
                "PrebuiltWorkloadNotFound",
                &format!("Workload {key} doesn't exist"),
            );
            return;
        };
        if record.owner.is_some() {
            self.report_job_warning(
                index,
                view,
                "WorkloadNameConflict",
                &format!("Workload {key} belongs to another object"),
            );
            return;
        }
        if record.meta.deleting || !self.in_flight_writes.may_write(Kind::Workload, key, now) {
            return;
        }
        let resource = Kind::Job(index).resource();
        let owner = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": view.key.name, "uid": view.uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        let mut finalizers = record.meta.finalizers.to_vec();
        if !record.meta.has_finalizer() {
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
        }
        let body = json!({"metadata": {
            "resourceVersion": record.meta.resource_version, "ownerReferences": [owner], "finalizers": finalizers,
            "labels": {names::JOB_UID_LABEL: view.uid},
        }});
        self.start_write(WriteRequest {
            on_behalf_of: Some(ReconcileKey::Job(index, view.key.clone())),
            ..WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body)
        });
    }

    /// A job with its Workload.
    fn step_job_with_workload(
        &mut self,
        index: usize,
        kind: &Framework,
        view: &JobView,
        key: &ObjectKey,
        now: Timestamp,
    ) {
        let Some(record) = self.workloads.get(key).cloned() else {
            return;
        };
        if view.status.finished.is_some() {
            return;
        }
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        let reserved = reservation::holds_quota(&record.status);
        if may_run(&record) && grants_match_job(&record, view) {
            if view.suspended {
                self.start_job(index, view, &record);
            } else {
                self.sync_priority_of_running_job(view, &record, now);
            }
            return;
        }
        if !view.suspended || (reserved && !awaits_admission(&record)) {
            self.stop_job(index, kind, view, &record);
            return;
        }
        if !finished && !record.meta.deleting {
            self.report_check_messages(index, view, &record);
            self.sync_workload(index, kind, view, &record, now);
        }
    }

    fn start_job(&mut self, index: usize, view: &JobView, record: &WorkloadRecord) {
        // A start that contradicts the template finishes the Workload; its life cycle says so.
        let Ok(patches) = self.start_patches(record, view) else {
            return;
        };
        let Some(patch) = patches.first() else { return };
        let queue = record.status.admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let tell =
            vec![job_event(index, view, false, "Started", &format!("Admitted by clusterQueue {queue}"))];
        self.patch_job(index, view, patch, tell);
    }

    fn stop_job(&mut self, index: usize, kind: &Framework, view: &JobView, record: &WorkloadRecord) {
        let Some(patch) = kind.stop_patches(view, record.originals()).into_iter().next() else {
            if !may_run(record) {
                return;
            }
            // Admitted, stopped, and not what was asked for: the Workload is made again.
            if !record.meta.deleting {
                self.delete_not_matching(index, view, record);
            }
            return;
        };
        let why = conditions::find(&record.status, ConditionType::Evicted)
            .filter(|c| c.status == "True")
            .map_or_else(|| "Not admitted by cluster queue".to_owned(), |c| c.message.clone());
        let tell = (!view.suspended).then(|| job_event(index, view, false, "Stopped", &why));
        self.patch_job(index, view, &patch, tell.into_iter().collect());
    }

    /// Brings the spec of a Workload in line with its suspended job.
    fn sync_workload(
        &mut self,
        index: usize,
        kind: &Framework,
        view: &JobView,
        record: &WorkloadRecord,
        now: Timestamp,
    ) {
        let key = &record.meta.key;
        if !self.in_flight_writes.may_write(Kind::Workload, key, now) {
            return;
        }
        let reserved = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        let mut spec = Map::new();
        let mut tell = Vec::new();
        let decided = reserved || self.assumed.contains_key(key);
        let in_line =
            if decided { is_equivalent_to_job(record, view) } else { is_identical_to_job(record, view) };
        if view.prebuilt_workload.is_none() && !in_line {
            if decided {
                if reserved {
                    self.delete_not_matching(index, view, record);
                }
                return;
            }
            let Some(job) = self.raw_job(index, view) else { return };
            match kind.pod_sets(&job) {
                Ok(pod_sets) => {
                    spec.insert("podSets".to_owned(), Value::Array(pod_sets));
                    let note = format!("Updated not matching Workload for suspended job: {key}");
                    tell.push(job_event(index, view, false, "UpdatedWorkload", &note));
                }
                Err(error) => {
                    return self.report_job_warning(index, view, "ErrWorkloadCompose", &error.to_string());
                }
            }
        }
        self.sync_spec_fields(view, record, reserved, &mut spec);
        let mut body = json!({"metadata": {"resourceVersion": record.meta.resource_version}});
        let gates_changed = record.admission_gated_by != view.gated_by && record.has_admission_gates;
        if spec.is_empty() && !gates_changed {
            return;
        }
        if let Some(metadata) =
            body.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| gates_changed)
        {
            let annotations = json!({names::ADMISSION_GATED_BY_ANNOTATION: view.gated_by});
            metadata.insert("annotations".to_owned(), annotations);
        }
        if let Some(body) = body.as_object_mut() {
            body.insert("spec".to_owned(), Value::Object(spec));
        }
        self.send_write(Kind::Workload, key, Verb::Merge, None, body, tell);
    }

    /// Queue, priority class and execution time follow the job's labels where the Workload's state allows it.
    fn sync_spec_fields(
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
        if !admitted && record.max_execution_seconds != view.max_exec_seconds {
            spec.insert("maximumExecutionTimeSeconds".to_owned(), json!(view.max_exec_seconds));
        }
    }

    /// The priority class follows the label while the job runs as well: whether it may be preempted depends on it.
    fn sync_priority_of_running_job(&mut self, view: &JobView, record: &WorkloadRecord, now: Timestamp) {
        let mut spec = Map::new();
        self.sync_priority_class(view, record, true, &mut spec);
        let key = &record.meta.key;
        if !spec.is_empty() && self.in_flight_writes.may_write(Kind::Workload, key, now) {
            let body = json!({"metadata": {"resourceVersion": record.meta.resource_version}, "spec": spec});
            self.send_write(Kind::Workload, key, Verb::Merge, None, body, Vec::new());
        }
    }

    /// Another priority class, if the label names one that exists. One with quota may not get its first.
    fn sync_priority_class(
        &self,
        view: &JobView,
        record: &WorkloadRecord,
        reserved: bool,
        spec: &mut Map<String, Value>,
    ) {
        let class = record.priority_class.as_ref().filter(|c| c.kind == "WorkloadPriorityClass");
        let class = class.map(|c| c.name.as_str());
        let Some(name) = view.priority_class.as_deref().filter(|name| class != Some(*name)) else {
            return;
        };
        let allowed = !reserved || class.is_some();
        if let Some(value) = self.workload_priority_classes.get(name).filter(|_| allowed) {
            spec.insert("priority".to_owned(), json!(value));
            let group = crate::api::GROUP;
            let class = json!({"group": group, "kind": "WorkloadPriorityClass", "name": name});
            spec.insert("priorityClassRef".to_owned(), class);
        }
    }

    pub(in crate::reconciler) fn patch_job(
        &mut self,
        index: usize,
        view: &JobView,
        patch: &JobPatch,
        tell: Vec<Effect>,
    ) {
        let body = patch.at_version(&view.resource_version);
        let subresource = patch.status.then_some("status");
        self.send_write(Kind::Job(index), &view.key, Verb::Merge, subresource, body, tell);
    }

    /// A Job that should have got the default queue, but was made while no webhook answered, runs on; its owner is told.
    fn report_not_queued(&mut self, index: usize, view: &JobView) {
        let key = ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(names::DEFAULT_NAME) };
        let Some(queue) = self.local_queues.get(&key) else { return };
        let ours = view.queue_name.is_none() && view.controller.is_none() && view.managed_by.is_none();
        if ours
            && !view.suspended
            && view.created > queue.meta.created
            && self.manages_namespace(&key.namespace)
        {
            let note = "It was created while no webhook answered, so LocalQueue default does not hold it";
            self.report_job_warning(index, view, "NotQueued", note);
        }
    }
}

fn own_workload_key(index: usize, view: &JobView) -> ObjectKey {
    let gvk = Kind::Job(index).resource();
    ObjectKey::new(&view.key.namespace, &workload_name(gvk.group, gvk.kind, &view.key.name, &view.uid, None))
}

/// Why no Workload can be made for a job.
enum ComposeError {
    Job(JobError),
    Class(MissingClass),
}

impl PriorityLookup for Reconciler {
    fn workload_class(&self, name: &str) -> Option<i32> {
        self.workload_priority_classes.get(name).copied()
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        self.priority_classes.get(name).map(|(value, _)| *value)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        let classes = self.priority_classes.iter().filter(|(_, (_, default))| *default);
        classes.map(|(name, (value, _))| (name.to_string(), *value)).min_by_key(|(_, value)| *value)
    }
}

/// Whether the job may run now.
pub(in crate::reconciler) fn may_run(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Admitted)
        && !conditions::is_true(&record.status, ConditionType::Evicted)
        && !conditions::is_true(&record.status, ConditionType::Finished)
        && !record.meta.deleting
}

/// Whether the reservation stands and only the admission is missing.
fn awaits_admission(record: &WorkloadRecord) -> bool {
    reservation::holds_quota(&record.status)
        && !conditions::is_true(&record.status, ConditionType::Evicted)
        && !conditions::is_true(&record.status, ConditionType::Admitted)
        && !record.meta.deleting
}
