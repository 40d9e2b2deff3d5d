//! Writes on the pods of a unit.

use super::{Unit, pod_event};
use crate::cache::Kind;
use crate::frameworks::{Action, PodMember};
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Which writes emit an event on their pod once they have landed, with its reason and note.
#[derive(Clone, Copy)]
pub(super) enum Announce<'a> {
    Nothing,
    /// The patch of each pod.
    Patches(&'a str, &'a str),
    /// The deletion of each pod; not the write of its reason, which comes before.
    Deletions(&'a str, &'a str),
}

impl Reconciler {
    /// Sends writes on the pods of a unit; of each pod the first one, as the next step decides again.
    pub(super) fn write_members(
        &mut self,
        unit: Unit<'_>,
        actions: Vec<Action>,
        events: Announce<'_>,
        now: Timestamp,
    ) {
        for action in actions {
            let (Action::Patch { member: key, .. } | Action::Delete { member: key, .. }) = &action;
            let Some(member) = unit.member(key) else { continue };
            let (request, last) = member_write(member, &action);
            let event = match (&action, events) {
                (Action::Patch { .. }, Announce::Patches(reason, note))
                | (Action::Delete { .. }, Announce::Deletions(reason, note))
                    if last =>
                {
                    Some(pod_event(member, false, reason, note))
                }
                _ => None,
            };
            let request = request.with_effects(event.into_iter().collect());
            self.writes.write_for(unit.reconcile_key(), request, &mut self.work_queue, now);
        }
    }
}

/// Returns the next write of an action on a pod, and whether it is the last one.
fn member_write(member: &PodMember, action: &Action) -> (WriteRequest, bool) {
    let write = |verb: Verb, body: Value| WriteRequest::new(Kind::Pod, member.key.clone(), verb, body);
    match action {
        Action::Patch { patch, .. } => {
            let version = &member.resource_version;
            (WriteRequest::of_patch(Kind::Pod, member.key.clone(), patch, version), true)
        }
        // The reason is written first, so that it is there when the pod is deleted.
        Action::Delete { condition: Some(condition), .. } if !member.is_termination_target() => {
            let body = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": member.key.name, "namespace": member.key.namespace, "uid": member.uid,
                    "resourceVersion": member.resource_version,
                },
                "status": {"conditions": [condition]},
            });
            (write(Verb::Apply, body).of_status(), false)
        }
        Action::Delete { .. } => {
            let body = json!({
                "preconditions": {"uid": member.uid, "resourceVersion": member.resource_version},
            });
            (write(Verb::Delete, body), true)
        }
    }
}
