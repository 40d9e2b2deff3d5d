//! Updates the spec of a Workload to match its unit, and replaces a Workload that cannot be updated.

use super::comparison::{charge_covers_requests, is_equivalent_to_job, is_identical_to_job};
use super::run::awaits_admission;
use super::units::ended_with_its_job;
use super::{LoadedUnit, UnitStep};
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{JobKind, JobView};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::messages::{Effect, Verb};
use crate::reconciler::writes::request::{WriteRequest, delete_options};
use serde_json::{Map, Value, json};

impl UnitStep<'_> {
    /// Updates the spec of a Workload to match its unit, which waits.
    pub(super) fn sync_workload(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let key = &record.meta.key;
        if unit.owner.is_none() && self.units.set_of_workload(record).is_some() {
            // The object that made the Workload writes it itself.
            return;
        }
        if !self.writes.may_write(Kind::Workload, key, self.now) {
            // Without the retry, a write that failed or changed nothing would be repeated only when the unit changes.
            let item = unit.reconcile_key();
            return self.writes.retry_after_backoff((Kind::Workload, key), item, self.work_queue, self.now);
        }
        let reserved = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        let mut spec = Map::new();
        let mut effects = Vec::new();
        if let Some(owner) = unit.owner.filter(|owner| owner.options.prebuilt_workload.is_none()) {
            match self.compare_pod_sets(unit, owner, record, reserved) {
                Comparison::Same => {}
                Comparison::Waits => return,
                Comparison::Differs(pod_sets) => {
                    spec.insert("podSets".to_owned(), Value::Array(pod_sets));
                    let note = format!("Updated not matching Workload for suspended job: {key}");
                    effects.push(unit.event("UpdatedWorkload", &note));
                }
            }
        }
        self.sync_spec_fields(&unit.view, record, reserved, &mut spec);
        if let Some(request) = spec_write(&unit.view, record, &spec) {
            self.writes.start(request.with_effects(effects), self.now);
        }
    }

    /// Compares the pod sets of a Workload with the pod sets of the owner that it is made from.
    fn compare_pod_sets(
        &mut self,
        unit: &LoadedUnit<'_>,
        owner: &JobView,
        record: &WorkloadRecord,
        reserved: bool,
    ) -> Comparison {
        let decided = reserved || self.assumed.contains(&record.meta.key);
        let matches = if decided {
            is_equivalent_to_job(record, owner) && charge_covers_requests(record)
        } else {
            is_identical_to_job(record, unit.key.kind, owner)
        };
        if matches {
            return Comparison::Same;
        }
        if decided {
            if reserved {
                self.replace_workload(unit, record);
            }
            return Comparison::Waits;
        }
        if counts_more_reclaimable(record, owner) {
            // Its status is written first: until then the webhook would refuse fewer pods.
            return Comparison::Waits;
        }
        let Some(sources) = self.sources(unit) else { return Comparison::Waits };
        match unit.rules.pod_sets(&unit.objects(), sources) {
            Ok(pod_sets) => Comparison::Differs(pod_sets),
            Err(error) => {
                self.report(unit, "ErrWorkloadCompose", &error.to_string());
                Comparison::Waits
            }
        }
    }

    /// Writes the pod sets of waiting members into their Workload, which has the same number of pods and no quota. Returns
    /// whether it can be written.
    pub(super) fn rewrite_pod_sets(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        let key = &record.meta.key;
        let decided = reservation::holds_quota(&record.status) || self.assumed.contains(key);
        let prebuilt = unit.view.options.prebuilt_workload.is_some();
        if unit.owner.is_some() || decided || prebuilt || record.meta.is_deleting() {
            return false;
        }
        let Some(Ok(pod_sets)) =
            self.sources(unit).map(|sources| unit.rules.pod_sets(&unit.objects(), sources))
        else {
            return false;
        };
        let asked: i64 = pod_sets.iter().filter_map(|set| set["count"].as_i64()).sum();
        if asked != record.pod_sets().iter().map(|set| i64::from(set.count)).sum::<i64>() {
            return false;
        }
        let note = format!("Updated not matching Workload for suspended job: {key}");
        let body = json!({
            "metadata": {"resourceVersion": record.meta.resource_version}, "spec": {"podSets": pod_sets},
        });
        let request = WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body);
        self.send(unit, request.with_effects(vec![unit.event("UpdatedWorkload", &note)]));
        true
    }

    /// Replaces the Workload of a unit that asks for something else than the Workload: it is deleted, and another is created
    /// when it is gone. A prebuilt Workload is not replaced: its life cycle finishes it as out of sync.
    pub(super) fn replace_workload(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let key = &record.meta.key;
        if unit.view.options.prebuilt_workload.is_some() || record.meta.is_deleting() {
            return;
        }
        if self.is_followed_after_end(unit, record) {
            return self.follow(unit, record);
        }
        let item = unit.reconcile_key();
        if !self.writes.may_write(Kind::Workload, key, self.now) {
            return self.writes.retry_after_backoff((Kind::Workload, key), item, self.work_queue, self.now);
        }
        self.record_replacement(unit, record);
        let why = if ended_with_its_job(record) {
            "Workload of a run that has ended"
        } else {
            "not matching Workload"
        };
        self.delete_workload(unit, record, &format!("Deleted {why}: {key}"));
    }

    /// Deletes a Workload of a unit, or takes another step when it may be written.
    pub(super) fn delete_workload(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord, note: &str) {
        let options = delete_options(&record.meta);
        let request = WriteRequest::new(Kind::Workload, record.meta.key.clone(), Verb::Delete, options);
        self.send(unit, request.with_effects(vec![unit.event("DeletedWorkload", note)]));
    }

    /// Counts the replacements of the Workload of a unit, and reports that the next one must wait.
    pub(super) fn record_replacement(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let key = &record.meta.key;
        // Each start and stop of a job that comes back changes its spec.
        let returned = ended_with_its_job(record);
        let generation = (!returned).then_some(unit.view.generation);
        if self.writes.replacements.record(&unit.workload, generation, self.now) {
            let cause = if returned {
                "the status of the job says again and again that it has finished, and then that it has not"
            } else {
                "it does not say what the job asks for: see whether a webhook changes new Workloads"
            };
            let note = format!(
                "Workload {key} is replaced again and again, because {cause}; the next one is created with back-off"
            );
            self.report(unit, "WorkloadReplacedRepeatedly", &note);
        }
    }

    /// Emits the messages of pending admission checks while the unit waits for them, once for each change.
    pub(super) fn report_check_messages(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let checks = &record.status.admission_checks;
        let pending = checks.iter().filter(|check| check.state.is_waiting());
        let with_message = pending.filter(|check| !check.message.is_empty());
        let messages: Vec<String> =
            with_message.map(|check| format!("{}: {}", check.name, check.message)).collect();
        let waits = !messages.is_empty() && reservation::holds_quota(&record.status);
        let note = waits.then(|| messages.join("; "));
        let new = self.warnings.record_check_messages(&record.meta.key, note.as_deref());
        let event: Option<Effect> =
            note.filter(|_| new).map(|note| unit.event("UpdatedAdmissionCheck", &note));
        self.writes.emit_all(event);
    }

    /// Sets queue, priority class and execution time from the job's labels, where the state of the Workload allows it.
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
        if !admitted && record.max_execution_seconds != view.options.max_exec_seconds {
            spec.insert("maximumExecutionTimeSeconds".to_owned(), json!(view.options.max_exec_seconds));
        }
    }

    /// Updates the priority class from the label while the unit runs, because it decides whether the Workload may be
    /// preempted.
    pub(super) fn sync_priority_of_running_unit(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let of_replica = |(kind, _): (JobKind, &JobView)| kind.has_replicas();
        if unit.owner.is_none() && self.units.set_of_workload(record).is_some_and(of_replica) {
            return;
        }
        let mut spec = Map::new();
        self.sync_priority_class(&unit.view, record, true, &mut spec);
        let key = &record.meta.key;
        if !spec.is_empty() && self.writes.may_write(Kind::Workload, key, self.now) {
            let body = json!({"metadata": {"resourceVersion": record.meta.resource_version}, "spec": spec});
            self.writes.start(WriteRequest::new(Kind::Workload, key.clone(), Verb::Merge, body), self.now);
        }
    }

    /// Sets the priority class if the label names another class that exists. A Workload that holds quota and has no
    /// class gets none, but the priority of a class that was named while its job waits for admission.
    pub(super) fn sync_priority_class(
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
        let counts = allowed || (view.suspended && awaits_admission(record));
        let Some(value) = self.units.cache.workload_priority(name).filter(|_| counts) else { return };
        if allowed || value != record.priority {
            spec.insert("priority".to_owned(), json!(value));
        }
        if allowed {
            let group = crate::api::GROUP;
            let class = json!({"group": group, "kind": "WorkloadPriorityClass", "name": name});
            spec.insert("priorityClassRef".to_owned(), class);
        }
    }
}

/// Result of the comparison of a Workload's pod sets with the owner's.
enum Comparison {
    Same,
    /// The pod sets differ, and the Workload cannot be updated now.
    Waits,
    /// The pod sets differ; contains the owner's.
    Differs(Vec<Value>),
}

/// Returns whether a Workload reports more reclaimable pods of a pod set than its job, made smaller since, has pods.
fn counts_more_reclaimable(record: &WorkloadRecord, view: &JobView) -> bool {
    let pods = |name: &str| view.pod_sets.iter().find(|set| *set.name == *name).map(|set| set.count);
    record.status.reclaimable_pods.iter().any(|r| pods(&r.name).is_some_and(|count| r.count > count))
}

/// Returns the write of the changed fields of a Workload's spec, and of the admission gates of the job; `None` if nothing
/// has changed.
fn spec_write(view: &JobView, record: &WorkloadRecord, spec: &Map<String, Value>) -> Option<WriteRequest> {
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
