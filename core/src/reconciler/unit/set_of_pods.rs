//! The step of an object that has a Workload for its pods, or of one of its replicas: it makes the Workload, keeps it in agreement
//! with the object, and makes the pods members of the Workload's group. The pods start and stop as members of that group.
//!
//! Invariant: the object alone writes queue, gates and count of its Workload; with replicas, the priority as well. The labels of its
//! pods follow, so that no pod with an old label takes a changed queue back.

use super::comparison::asks_for_the_same;
use super::units::Units;
use super::{LoadedUnit, UnitStep, event};
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::records::WorkloadRecord;
use crate::cache::{JobId, Kind};
use crate::frameworks::{
    Component, JobKind, JobView, OwnedPod, Role, UnitKey, belongs_to_other_framework, owner_annotations,
    owner_reference, replica_workload_key,
};
use crate::lifecycle::facts::Hold;
use crate::lifecycle::{backoff, conditions, reservation};
use crate::reconciler::messages::{EventType, Verb};
use crate::reconciler::work_queue::ReconcileKey;
use crate::reconciler::writes::request::{WriteRequest, delete_options};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Wait before a pod of a replica that its object does not ask for is reported.
const EXTRA_REPLICA_WAIT: SignedDuration = SignedDuration::from_secs(10);

impl<'a> Units<'a> {
    /// Returns the object that a Workload was made for, if it has a Workload for its pods.
    pub(super) fn set_of_workload(self, record: &WorkloadRecord) -> Option<(JobKind, &'a JobView)> {
        let (unit, view) = self.cache.unit_of_own_workload(&record.meta.key)?;
        let is_owner = record.owner_uids().any(|uid| *uid == view.uid);
        (unit.kind.role == Role::PodsOfOwner && is_owner).then_some((unit.kind, &**view))
    }

    /// Returns whether a Workload must give up its quota because the object that it is for has no pods.
    pub(super) fn hold_of(self, record: &WorkloadRecord) -> Hold {
        match self.set_of_workload(record) {
            Some((kind, view)) if wanted(view) == 0 => {
                Hold::Held(format!("{} scaled to zero; workload on hold", kind.gvk.kind))
            }
            Some(_) => Hold::Free,
            None => Hold::Unknown,
        }
    }

    /// Returns the units of a job that may need a step: the job itself, or its replicas without a Workload, with a Workload that
    /// differs from the object, or beyond the present number. The other replicas get their steps with their pods and Workloads.
    fn units_of_job(self, kind: JobKind, key: &ObjectKey) -> Vec<UnitKey> {
        if !kind.has_replicas() {
            return vec![UnitKey::of_object(kind, key.clone())];
        }
        let Some(set) = self.cache.job(&(kind, key.clone())) else { return Vec::new() };
        let owned = self.cache.workloads_owned_by(&set.uid).iter();
        let replica = |workload: &ObjectKey| {
            let component = self.cache.unit_of_own_workload(workload)?.0.component;
            let Component::Replica(index) = component else { return None };
            let record = self.cache.workload(workload)?;
            Some((index, index >= set.status.replicas || differs(set, record)))
        };
        let known: BTreeMap<u32, bool> = owned.filter_map(replica).collect();
        let missing = (0..set.status.replicas).filter(|index| !known.contains_key(index));
        let changed = known.iter().filter(|(_, differs)| **differs).map(|(index, _)| *index);
        missing.chain(changed).map(|index| UnitKey::of_replica(kind, key.clone(), index)).collect()
    }

    /// Returns the Workloads of the replicas of a job, whatever owns them.
    pub(crate) fn workloads_of_replicas(self, kind: JobKind, set: &JobView) -> Vec<ObjectKey> {
        let replicas = if kind.has_replicas() { set.status.replicas } else { 0 };
        let keys = (0..replicas).map(|index| replica_workload_key(&kind, set, index));
        keys.filter(|key| self.cache.workload(key).is_some()).collect()
    }

    /// Returns the steps that may be due after a change of these jobs.
    pub(crate) fn steps_of_jobs<'j>(self, jobs: impl IntoIterator<Item = &'j JobId>) -> Vec<ReconcileKey> {
        let units = jobs.into_iter().flat_map(|(kind, key)| self.units_of_job(*kind, key));
        units.map(ReconcileKey::Unit).collect()
    }

    /// Returns the units of a job that may need a step after a change outside the job: the replicas with pods as well.
    pub(crate) fn units_of_job_with_pods(self, kind: JobKind, key: &ObjectKey) -> Vec<UnitKey> {
        let mut units = self.units_of_job(kind, key);
        if kind.has_replicas() {
            units.extend(self.cache.replicas_with_pods(kind, key).cloned());
        }
        units
    }

    /// Returns whether the pods of an object wait for its Workload, if the object is managed.
    fn may_hold_pods_of(self, kind: JobKind, set: &JobView) -> bool {
        !belongs_to_other_framework(kind, set) && self.ancestor_of(kind, set).is_none()
    }
}

/// Returns the number of pods that an object asks for; with replicas, for each.
fn wanted(view: &JobView) -> i32 {
    view.pod_sets.iter().map(|set| set.count).fold(0, i32::saturating_add)
}

/// Returns the number of pods that a Workload asks for.
fn requested(record: &WorkloadRecord) -> i32 {
    record.pod_sets().iter().map(|set| set.count).fold(0, i32::saturating_add)
}

/// Returns the requests in which an object differs from a Workload, for messages. If there are none, its pods may run on the
/// Workload of an earlier object.
fn unlike(set: &JobView, record: &WorkloadRecord) -> Vec<String> {
    let mut unlike = Vec::new();
    if !asks_for_the_same(record, set) {
        unlike.push("for pods with other requests".to_owned());
    }
    let (pods, has) = (wanted(set), requested(record));
    if pods != has {
        unlike.push(format!("for {pods} pods instead of {has}"));
    }
    let (queue, has) = (set.queue_name.as_deref(), record.queue_name.as_deref());
    if queue != has {
        let named =
            |name: Option<&str>| name.map_or_else(|| "no queue".to_owned(), |name| format!("queue {name}"));
        unlike.push(format!("for {} instead of {}", named(queue), named(has)));
    }
    unlike
}

/// Returns whether a Workload may have to be written because it differs from its object.
fn differs(set: &JobView, record: &WorkloadRecord) -> bool {
    let class = record.priority_class.as_ref().filter(|class| class.kind == "WorkloadPriorityClass");
    record.annotations.admission_gated_by != set.options.gated_by
        || class.map(|class| class.name.as_str()) != set.options.priority_class.as_deref()
        || !unlike(set, record).is_empty()
}

impl UnitStep<'_> {
    /// Deletes the Workload of an object in whose place another one is queued, when it has finished or has no pods left.
    fn delete_workload_of_taken_over(&mut self, unit: &LoadedUnit<'_>, set: &JobView) {
        let Some(above) = self.units.ancestor_of(unit.key.kind, set).filter(|_| !set.deleting) else {
            return;
        };
        let record = self.units.cache.workload(&unit.workload).filter(|record| {
            let ended = conditions::is_true(&record.status, ConditionType::Finished);
            !record.meta.is_deleting() && (ended || unit.members.is_empty())
        });
        if let Some(record) = record.filter(|record| record.owner_uids().any(|uid| *uid == set.uid)) {
            self.delete_given_up(unit, record, &above);
        }
    }

    /// Sends the next writes of the Workload of an object, and of its pods.
    pub(super) fn step_set(&mut self, unit: &LoadedUnit<'_>) {
        let Some(set) = unit.owner else { return };
        if set.deleting || !self.units.may_hold_pods_of(unit.key.kind, set) {
            return self.delete_workload_of_taken_over(unit, set);
        }
        if !self.units.manages_job(unit.key.kind, set) {
            return self.warn_of_held_job(unit);
        }
        match unit.key.component {
            // Its replicas are units.
            Component::Object if unit.key.kind.has_replicas() => return,
            Component::Replica(index) if index >= set.status.replicas => {
                self.report_extra_replica(unit, set);
                return self.end_replica(unit);
            }
            Component::Object | Component::Replica(_) | Component::PodGroup => {}
        }
        let Some(record) = self.units.cache.workload(&unit.workload) else {
            if wanted(set) > 0 {
                self.make_workload(unit);
            }
            return;
        };
        let own = unit.rules.workload_name(&unit.objects()).ok();
        let inherited = own.as_deref().filter(|own| **own != *unit.workload.name);
        if let Some(own) = inherited {
            self.delete_spare_workload(unit, set, own);
        }
        if record.meta.is_deleting() || self.keep_workload(unit, set, record) {
            return;
        }
        let unlike = if inherited.is_some() { unlike(set, record) } else { Vec::new() };
        if !unlike.is_empty() {
            if wanted(set) > 0 && !self.give_up_inherited_workload(unit, record) {
                self.report_unlike_predecessor(unit, record, &unlike);
            }
        } else if requested(record) == wanted(set) {
            self.mark_pods(unit, set);
        } else if wanted(set) > 0 && record.may_run() {
            let (kind, asked, granted) = (unit.key.kind.gvk.kind, wanted(set), requested(record));
            let note = format!(
                "The {kind} asks for {asked} pods and Workload {} for {granted}, which does not change while it has quota; \
                 to go on, scale to 0 and then to {asked}",
                record.meta.key
            );
            self.report(unit, "ScalingWaits", &note);
        }
        self.report_waiting_rollout(unit, set, record);
    }

    /// Reports why new pods of an object wait that has taken over the Workload of an earlier object and requests something else.
    fn report_unlike_predecessor(
        &mut self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
        unlike: &[String],
    ) {
        let note = format!(
            "It runs on with the pods of an earlier {} of its name and their Workload {}, but asks {}. The Workload does not change while \
             it has quota; to go on, scale to 0 and then back",
            unit.key.kind.gvk.kind,
            record.meta.key,
            unlike.join(" and "),
        );
        self.report(unit, "ScalingWaits", &note);
    }

    /// Deletes the Workload that was made for an object before the object took over an earlier one.
    fn delete_spare_workload(&mut self, unit: &LoadedUnit<'_>, set: &JobView, own: &str) {
        let key = ObjectKey::new(&unit.workload.namespace, own);
        let spare = self.units.cache.workload(&key).filter(|record| !record.meta.is_deleting());
        if let Some(record) = spare.filter(|record| record.owner_uids().any(|uid| *uid == set.uid)) {
            let note = format!(
                "Deleted Workload {key}: its pods run on the quota of {}, which was made for an earlier object of this name",
                unit.workload
            );
            self.delete_workload(unit, record, &note);
        }
    }

    /// Reports how a roll-out can continue whose pods wait for the admission of a Workload. Its controller waits for each pod
    /// before it replaces the next one, so that a pod of the old revision that waits for quota blocks the pods of the new one.
    fn report_waiting_rollout(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) {
        let mut pods = self.units.cache.owned_pods(&unit.key);
        if !set.status.rolls || record.may_run() || !pods.any(|pod| pod.gated) {
            return;
        }
        let note = format!(
            "The roll-out waits for the admission of Workload {}; to go on with the new revision alone, scale to 0 and back",
            record.meta.key
        );
        self.report(unit, "RolloutWaits", &note);
    }

    /// Reports that pods wait although no Workload is made for them: their object does not ask for their replica. The status of
    /// the object may be later than a pod that it makes in a roll-out.
    fn report_extra_replica(&mut self, unit: &LoadedUnit<'_>, set: &JobView) {
        let held = self.units.cache.owned_pods(&unit.key);
        let first = held.filter_map(|pod| Some((pod.held_since()?, &pod.key.name))).min();
        let Some((since, pod)) = first else { return };
        let due = backoff::after(since, EXTRA_REPLICA_WAIT);
        if self.now < due {
            return self.work_queue.add_at(unit.reconcile_key(), due);
        }
        let kind = unit.key.kind.gvk.kind;
        let note = format!(
            "Pod {pod} waits, and no Workload is made for its replica: the {kind} asks for {} replicas, with those by which its \
             roll-out may exceed spec.replicas",
            set.status.replicas
        );
        self.report(unit, "ReplicaWaits", &note);
    }

    /// Deletes the Workload of a replica that its object no longer has. Its quota is free after its pods have ended.
    fn end_replica(&mut self, unit: &LoadedUnit<'_>) {
        let Some(record) =
            self.units.cache.workload(&unit.workload).filter(|record| !record.meta.is_deleting())
        else {
            return;
        };
        let key = record.meta.key.clone();
        let event = unit.event("DeletedWorkload", &format!("Deleted Workload of a removed replica: {key}"));
        let request = WriteRequest::new(Kind::Workload, key, Verb::Delete, delete_options(&record.meta));
        self.send(unit, request.with_effects(vec![event]));
    }

    /// Writes the missing parts of a Workload. Returns whether it waits for a write.
    fn keep_workload(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) -> bool {
        if conditions::is_true(&record.status, ConditionType::Finished) {
            // The pods of an object that serves never finish: the Workload was taken from it.
            self.replace_workload(unit, record);
            return true;
        }
        if wanted(set) == 0 {
            return false;
        }
        if record.owner_uids().all(|uid| *uid != set.uid) {
            self.add_owner(unit, set, record);
            return true;
        }
        let mut spec = Map::new();
        if !reservation::holds_quota(&record.status) {
            if record.queue_name.as_deref() != set.queue_name.as_deref() {
                spec.insert("queueName".to_owned(), json!(set.queue_name));
            }
            if requested(record) != wanted(set) || !asks_for_the_same(record, set) {
                let Some(sources) = self.sources(unit) else { return true };
                match unit.rules.pod_sets(&unit.objects(), sources) {
                    Ok(sets) => drop(spec.insert("podSets".to_owned(), Value::Array(sets))),
                    Err(error) => self.report(unit, "ErrWorkloadCompose", &error.to_string()),
                }
            }
        }
        if unit.key.kind.has_replicas() {
            // The labels of pods do not follow: they come from the templates.
            let reserved = reservation::holds_quota(&record.status);
            self.sync_priority_class(set, record, reserved, &mut spec);
        }
        let mut metadata = json!({"resourceVersion": record.meta.resource_version});
        let gates = &record.annotations.admission_gated_by;
        let gates_changed = gates.is_some() && *gates != set.options.gated_by;
        if let Some(metadata) = metadata.as_object_mut().filter(|_| gates_changed) {
            let annotations = json!({names::ADMISSION_GATED_BY_ANNOTATION: set.options.gated_by});
            metadata.insert("annotations".to_owned(), annotations);
        }
        if spec.is_empty() && !gates_changed {
            return false;
        }
        let key = record.meta.key.clone();
        let event = unit.event("UpdatedWorkload", &format!("Updated Workload: {key}"));
        let body = json!({"metadata": metadata, "spec": spec});
        let request = WriteRequest::new(Kind::Workload, key, Verb::Merge, body);
        self.send(unit, request.with_effects(vec![event]));
        true
    }

    /// Makes the object an owner of its Workload, before the pods: the Workload is found by its first owner.
    fn add_owner(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) {
        let version = json!({
            "op": "replace", "path": "/metadata/resourceVersion", "value": record.meta.resource_version,
        });
        let reference = owner_reference(unit.key.kind, set);
        let owners = if record.owner.is_some() {
            json!({"op": "add", "path": "/metadata/ownerReferences/0", "value": reference})
        } else {
            json!({"op": "add", "path": "/metadata/ownerReferences", "value": [reference]})
        };
        let entry = |map: &str, name: &str, value: Value| {
            let name = name.replace('~', "~0").replace('/', "~1");
            json!({"op": "add", "path": format!("/metadata/{map}/{name}"), "value": value})
        };
        let annotations = owner_annotations(unit.key.kind, unit.key.component, set);
        let annotations = annotations.into_iter().map(|(name, value)| entry("annotations", &name, value));
        // The label names an earlier object. Without it a user has removed it, and there may be no labels to add it to.
        let former = record.job_uid.as_ref().filter(|uid| **uid != set.uid);
        let label = former.map(|_| entry("labels", names::JOB_UID_LABEL, json!(set.uid)));
        let operations: Vec<Value> = [version, owners].into_iter().chain(annotations).chain(label).collect();
        let key = record.meta.key.clone();
        self.send(unit, WriteRequest::new(Kind::Workload, key, Verb::JsonPatch, Value::Array(operations)));
    }

    /// Makes the pods of an object members of the group of its Workload. Reports on pods in another group why they wait.
    fn mark_pods(&mut self, unit: &LoadedUnit<'_>, set: &JobView) {
        let total = wanted(set);
        let (kind, name) = (unit.key.kind.gvk.kind, &set.key.name);
        for pod in self.units.cache.owned_pods(&unit.key).filter(|pod| pod.gated) {
            let Some(group) = pod.other_group(set, &unit.workload.name) else { continue };
            let note = format!(
                "The pod is in group {group}, and stays in it: it does not start with Workload {} of {kind} {name}",
                unit.workload
            );
            let reason = "WorkloadNameConflict";
            if self.warnings.record_as(Kind::Pod, &pod.key, reason, &note) {
                let subject = (Kind::Pod, &pod.key, &pod.uid);
                self.writes.emit(event(subject, EventType::Warning, reason, &note));
            }
        }
        let marks = |pod: &OwnedPod| {
            let patch = pod.marks(set, &unit.workload.name, total)?;
            Some(WriteRequest::new(Kind::Pod, pod.key.clone(), Verb::Merge, patch))
        };
        let requests: Vec<WriteRequest> = self.units.cache.owned_pods(&unit.key).filter_map(marks).collect();
        for request in requests {
            self.send(unit, request);
        }
    }
}
