//! Writes on the objects of a unit.

use super::{LoadedUnit, UnitStep, event};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Action, ActionWrite, Change, JobView, PodMember, Target};
use crate::reconciler::messages::{EventType, Verb};
use crate::reconciler::nodes::pod_change::gate_removed_observation;
use crate::reconciler::writes::request::WriteRequest;
use serde_json::{Value, json};
use std::sync::Arc;

/// An object of a unit in the version that is written.
struct Object<'a> {
    kind: Kind,
    key: &'a ObjectKey,
    uid: &'a Arc<str>,
    resource_version: &'a str,
    /// Whether the status already has the reason of the deletion.
    says_why: bool,
}

impl<'a> Object<'a> {
    fn of_owner(kind: Kind, owner: &'a JobView) -> Self {
        let JobView { key, uid, resource_version, .. } = owner;
        Self { kind, key, uid, resource_version, says_why: false }
    }

    fn of_member(member: &'a PodMember) -> Self {
        let PodMember { key, uid, resource_version, .. } = member;
        Self { kind: Kind::Pod, key, uid, resource_version, says_why: member.is_termination_target() }
    }
}

impl UnitStep<'_> {
    /// Sends writes on the objects of a unit; of each object the first one, as the next step decides again. A start and a stop
    /// emit an event with this reason and note on their object once they have landed.
    pub(super) fn perform(&mut self, unit: &LoadedUnit<'_>, actions: Vec<Action>, reason: &str, note: &str) {
        self.perform_by(unit, actions, (reason, note), None);
    }

    /// Like [`Self::perform`], for the start by a Workload: a pod that starts loses its admission gate.
    pub(super) fn perform_by(
        &mut self,
        unit: &LoadedUnit<'_>,
        actions: Vec<Action>,
        (reason, note): (&str, &str),
        started_by: Option<&WorkloadRecord>,
    ) {
        for action in actions {
            let object = match &action.target {
                Target::Owner => unit.owner.map(|owner| Object::of_owner(Kind::of_job(unit.key.kind), owner)),
                Target::Member(key) => unit.member(key).map(Object::of_member),
            };
            let Some(object) = object else { continue };
            let (request, last) = next_write(&object, &action.write);
            let (reason, note) = match action.change {
                Change::Start | Change::Stop => (reason, note),
                Change::Remove => ("ExcessPodDeleted", "Excess pod deleted"),
                Change::None => ("", ""),
            };
            let announced = last && action.change != Change::None;
            let subject = (object.kind, object.key, object.uid);
            let event = announced.then(|| event(subject, EventType::Normal, reason, note));
            let ungates = object.kind == Kind::Pod && action.change == Change::Start;
            let ungated = started_by.filter(|_| ungates);
            let observed =
                ungated.map(|record| gate_removed_observation(record, names::ADMISSION_GATE, self.now));
            self.send(unit, request.with_effects(event.into_iter().chain(observed).collect()));
        }
    }

    /// Removes the finalizers of some members.
    pub(super) fn release_members(&mut self, unit: &LoadedUnit<'_>, which: impl Fn(&PodMember) -> bool) {
        let released = unit.members().filter(|member| which(member));
        let actions = released.filter_map(|member| unit.rules.release(member)).collect();
        self.perform(unit, actions, "", "");
    }
}

/// Returns the next write of an action on an object, and whether it is the last one.
fn next_write(object: &Object<'_>, write: &ActionWrite) -> (WriteRequest, bool) {
    let Object { kind, key, uid, resource_version, says_why } = object;
    match write {
        ActionWrite::Patch(patch) => {
            (WriteRequest::of_patch(*kind, (*key).clone(), patch, resource_version), true)
        }
        // The reason is written first, so that it is there when the pod is deleted.
        ActionWrite::Delete { condition: Some(condition) } if !says_why => {
            let resource = kind.resource();
            let body = json!({
                "apiVersion": resource.api_version(), "kind": resource.kind,
                "metadata": {
                    "name": key.name, "namespace": key.namespace, "uid": uid, "resourceVersion": resource_version,
                },
                "status": {"conditions": [condition]},
            });
            (WriteRequest::new(*kind, (*key).clone(), Verb::Apply, body).of_status(), false)
        }
        ActionWrite::Delete { .. } => {
            let body: Value = json!({"preconditions": {"uid": uid, "resourceVersion": resource_version}});
            (WriteRequest::new(*kind, (*key).clone(), Verb::Delete, body), true)
        }
    }
}
