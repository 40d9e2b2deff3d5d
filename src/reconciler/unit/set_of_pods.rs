//! The step of an object that has a Workload for its pods: it makes the Workload, keeps it in agreement with itself, and makes its
//! pods members of the Workload's group. The pods start and stop as members of that group.
//!
//! Invariant: the object alone writes queue, gates and count of its Workload. The labels of its pods follow, so that no pod with
//! an old label takes a changed queue back.

use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Ancestor, JobKind, JobView, Role, belongs_to_other_framework, owner_annotations, owner_reference,
};
use crate::lifecycle::facts::Hold;
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::request::WriteRequest;
use serde_json::{Map, Value, json};

impl<'a> Units<'a> {
    /// Returns the object that a Workload was made for, if it has a Workload for its pods.
    pub(super) fn set_of_workload(self, record: &WorkloadRecord) -> Option<(JobKind, &'a JobView)> {
        let ((kind, _), view) = self.cache.job_of_own_workload(&record.meta.key)?;
        let is_owner = record.owner_uids().any(|uid| *uid == view.uid);
        (kind.role == Role::PodsOfOwner && is_owner).then_some((*kind, &**view))
    }

    /// Returns whether a Workload must give up its quota because the object that it is for has no pods.
    pub(super) fn hold_of(self, record: &WorkloadRecord) -> Hold {
        match self.set_of_workload(record) {
            Some((kind, view)) if replicas(view) == 0 => {
                Hold::Held(format!("{} scaled to zero; workload on hold", kind.gvk.kind))
            }
            Some(_) => Hold::Free,
            None => Hold::Unknown,
        }
    }

    /// Returns whether the pods of an object wait for its Workload.
    fn holds_pods_of(self, kind: JobKind, set: &JobView) -> bool {
        self.manages_job(kind, set)
            && !belongs_to_other_framework(kind, set)
            && !matches!(self.ancestor_of(kind, set), Some(Ancestor::Queued(_)))
    }
}

fn replicas(view: &JobView) -> i32 {
    view.pod_sets.iter().map(|set| set.count).fold(0, i32::saturating_add)
}

/// Returns the number of pods that a Workload asks for.
fn requested(record: &WorkloadRecord) -> i32 {
    record.pod_sets().iter().map(|set| set.count).fold(0, i32::saturating_add)
}

impl UnitStep<'_> {
    /// Sends the next writes of the Workload of an object, and of its pods.
    pub(super) fn step_set(&mut self, unit: &LoadedUnit<'_>) {
        let Some(set) = unit.owner else { return };
        if set.deleting || !self.units.holds_pods_of(unit.key.kind, set) {
            return;
        }
        let Some(record) = self.units.cache.workload(&unit.workload) else {
            if replicas(set) > 0 {
                self.make_workload(unit);
            }
            return;
        };
        if record.meta.deleting || self.keep_workload(unit, set, record) {
            return;
        }
        if requested(record) == replicas(set) {
            self.mark_pods(unit, set);
        }
        self.report_waiting_rollout(unit, set, record);
    }

    /// Says how a roll-out can go on whose pods wait for the admission of a Workload. Its controller waits for each pod before it
    /// replaces the next one, so that a pod of the old revision that waits for quota blocks those of the new one.
    fn report_waiting_rollout(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) {
        let owner = (unit.key.kind, unit.key.key.clone());
        let mut pods = self.units.cache.owned_pods(&owner);
        if !set.status.rolls || record.may_run() || !pods.any(|pod| pod.gated) {
            return;
        }
        let note = format!(
            "The roll-out waits for the admission of Workload {}; to go on with the new revision alone, scale to 0 and back",
            record.meta.key
        );
        self.report(unit, "RolloutWaits", &note);
    }

    /// Writes what a Workload lacks. Returns whether it waits for a write.
    fn keep_workload(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) -> bool {
        if conditions::is_true(&record.status, ConditionType::Finished) {
            // The pods of an object that serves never finish: the Workload was taken from it.
            self.replace_workload(unit, record);
            return true;
        }
        if replicas(set) == 0 {
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
            if requested(record) != replicas(set) {
                let Some(sources) = self.sources(unit) else { return true };
                match unit.rules.pod_sets(&unit.objects(), sources) {
                    Ok(sets) => drop(spec.insert("podSets".to_owned(), Value::Array(sets))),
                    Err(error) => self.report(unit, "ErrWorkloadCompose", &error.to_string()),
                }
            }
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

    /// Makes the object an owner of its Workload, beside the pods.
    fn add_owner(&mut self, unit: &LoadedUnit<'_>, set: &JobView, record: &WorkloadRecord) {
        let version = json!({
            "op": "replace", "path": "/metadata/resourceVersion", "value": record.meta.resource_version,
        });
        let reference = owner_reference(unit.key.kind, set);
        let owners = if record.owner.is_some() {
            json!({"op": "add", "path": "/metadata/ownerReferences/-", "value": reference})
        } else {
            json!({"op": "add", "path": "/metadata/ownerReferences", "value": [reference]})
        };
        let annotations = owner_annotations(unit.key.kind, set).into_iter().map(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            json!({"op": "add", "path": format!("/metadata/annotations/{name}"), "value": value})
        });
        let operations: Vec<Value> = [version, owners].into_iter().chain(annotations).collect();
        let key = record.meta.key.clone();
        self.send(unit, WriteRequest::new(Kind::Workload, key, Verb::JsonPatch, Value::Array(operations)));
    }

    /// Makes the pods of an object members of the group of its Workload.
    fn mark_pods(&mut self, unit: &LoadedUnit<'_>, set: &JobView) {
        let owner = (unit.key.kind, unit.key.key.clone());
        let total = replicas(set);
        let marks = |pod: &crate::frameworks::OwnedPod| {
            let patch = pod.marks(set, &unit.workload.name, total)?;
            Some(WriteRequest::new(Kind::Pod, pod.key.clone(), Verb::Merge, patch))
        };
        let requests: Vec<WriteRequest> = self.units.cache.owned_pods(&owner).filter_map(marks).collect();
        for request in requests {
            self.send(unit, request);
        }
    }
}
