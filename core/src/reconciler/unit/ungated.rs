//! Pods that reach the manager without the gate of the webhook, and may not run.
//!
//! They are deleted at once, and whatever makes them makes others at once. The deletions are not paced: a pod without a gate is bound to
//! a node within moments, so that nothing but its deletion keeps it from running without quota. Invariant: the object at the top, and
//! not each pod, has the warning that says why, at most once in a while.

use super::units::Units;
use super::{LoadedUnit, UnitStep, event};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{Action, Change, OwnerRef, PodMember, Target};
use crate::reconciler::messages::EventType;
use std::sync::Arc;

/// Maximum number of controllers above a pod that are considered. Ends the search if owner references form a cycle.
const MAX_DEPTH: usize = 8;
/// Cause and remedy.
const NOTE: &str = "Pods arrive without the scheduling gate kueue.x-k8s.io/admission, and are deleted because they may not run without \
                    quota: the mutating webhook of pods is missing, or does not match them. Install the webhooks again, or take the \
                    labels kueue.x-k8s.io/queue-name and kueue.x-k8s.io/managed from the pod template";

impl UnitStep<'_> {
    /// Emits a warning if pods are stopped that no webhook has seen.
    pub(super) fn report_ungated(&mut self, unit: &LoadedUnit<'_>, actions: &[Action]) {
        let is_ungated = |action: &Action| match &action.target {
            Target::Member(key) if action.change == Change::Stop => {
                unit.member(key).is_some_and(arrived_without_gate)
            }
            _ => false,
        };
        if !actions.iter().any(is_ungated) {
            return;
        }
        let (kind, key, uid) = self.units.maker_of(unit);
        if self.warnings.is_due(kind, &key, self.now) {
            self.writes.emit(event((kind, &key, &uid), EventType::Warning, "PodsWithoutGate", NOTE));
        }
    }
}

impl Units<'_> {
    /// Returns kind, key and UID of the highest known object that makes the pods of a unit, or else of the one that events about the
    /// unit are on.
    fn maker_of(self, unit: &LoadedUnit<'_>) -> (Kind, ObjectKey, Arc<str>) {
        let (kind, key, uid) = unit.subject();
        let mut top = (kind, key.clone(), Arc::clone(uid));
        let mut next = unit.view.controller.clone();
        for _ in 0..MAX_DEPTH {
            let Some(owner) = next else { break };
            let Some(kind) = Kind::from_group_kind(owner.group(), &owner.kind) else { break };
            let key = ObjectKey::new(&unit.view.key.namespace, &owner.name);
            next = self.controller_above(kind, &key, &owner);
            top = (kind, key, Arc::from(owner.uid.as_str()));
        }
        top
    }

    /// Returns the controller of an object that is known with this UID.
    fn controller_above(self, kind: Kind, key: &ObjectKey, owner: &OwnerRef) -> Option<OwnerRef> {
        if let Some(job) = self.cache.job_id(&owner.uid).and_then(|id| self.cache.job(id)) {
            return job.controller.clone();
        }
        let link = self.cache.link(&(kind, key.clone())).filter(|link| *link.uid == *owner.uid)?;
        link.controller.clone()
    }
}

/// Returns whether a pod has nothing that the webhook adds to each pod that it holds. One that the manager has started has lost its
/// gate alone.
fn arrived_without_gate(member: &PodMember) -> bool {
    let annotations = member.pod.pointer("/metadata/annotations");
    let is_known = annotations.is_some_and(|all| all.get(names::ROLE_HASH_ANNOTATION).is_some());
    !member.state.gated && !member.state.has_finalizer && !is_known
}
