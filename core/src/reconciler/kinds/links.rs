//! Objects that may stand between a queued object and the objects below it, and are not stored as jobs; `cache::links` has their
//! places.

use super::{KindRules, Received, Steps, Unread};
use crate::api::{ObjectKey, names};
use crate::cache::{Kind, OwnerEntry};
use crate::frameworks::{Above, End, OwnPlace, OwnerRef, PodIdentity, REPLICA_SET, Searched, framework};
use crate::reconciler::Reconciler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// Pods, as (group, kind).
const POD: (&str, &str) = ("", "Pod");

/// ReplicaSets, which are known only as a place between a Deployment and its pods.
pub(super) struct ReplicaSets;

impl KindRules for ReplicaSets {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        let mut entry = OwnerEntry::of_metadata(&received.object);
        entry.pod_identity = PodIdentity::of_replica_set(&received.object, entry.controller.as_ref());
        set_link(core, Kind::ReplicaSet, key, Some(entry));
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        set_link(core, Kind::ReplicaSet, key, None);
    }

    fn follow_write(&self, _: &mut Reconciler, _: &ObjectKey) {}

    fn steps(&self) -> Option<&dyn Steps> {
        None
    }
}

/// Records that the objects of a kind cannot be read: known objects stay, and nothing waits for unknown ones.
pub(in crate::reconciler) fn mark_unread(core: &mut Reconciler, kind: Kind) {
    set_read(core, kind, false);
    core.lists.mark_listed(kind);
    if core.leading {
        // Objects that waited for one of this kind continue.
        core.work_queue.add_all(core.all_keys());
    }
}

pub(in crate::reconciler) fn set_read(core: &mut Reconciler, kind: Kind, read: bool) {
    if core.cache.set_read(kind, read) {
        core.snapshot_builder.set_unread_kinds(core.cache.unread_kinds());
    }
}

/// Stores or removes an object.
pub(super) fn set_link(core: &mut Reconciler, kind: Kind, key: &ObjectKey, entry: Option<OwnerEntry>) {
    let (id, entry) = ((kind, key.clone()), entry.map(Arc::new));
    let moved = core.cache.set_link(&id, entry.clone());
    if !moved.is_empty() {
        core.snapshot_builder.set_owner(&id, entry.as_ref());
    }
    for uid in moved {
        follow_move(core, &uid);
    }
}

/// Handles that the object with a UID has appeared, was deleted, or has another place: another object may now be queued in place
/// of the objects below it.
pub(super) fn follow_move(core: &mut Reconciler, uid: &str) {
    core.work_queue.add_all(core.units().steps_below(uid));
    let below = core.cache.below(uid).links.into_iter();
    let pods = below.filter(|(kind, _)| *kind == Kind::Pod).map(|(_, key)| key);
    let is_idle = |key: &&ObjectKey| {
        let entry = core.cache.link(&(Kind::Pod, (*key).clone()));
        entry.is_some_and(|entry| {
            let waits = entry.queue_name.is_some() || entry.place != OwnPlace::Nowhere;
            !waits && !entry.controller.as_ref().is_some_and(|owner| leads_on(core, key, &entry.uid, owner))
        })
    };
    let idle: Vec<ObjectKey> = pods.filter(is_idle).cloned().collect();
    for key in idle {
        set_link(core, Kind::Pod, &key, None);
    }
}

/// Returns a pod as a possible owner of others; `None` if pods are no jobs, or no search for a queue stops at this pod or
/// continues from it. Most pods of a cluster are of that sort.
pub(super) fn pod_entry(core: &Reconciler, pod: &ObjectMeta) -> Option<OwnerEntry> {
    if !core.settings.manages_pods() {
        return None;
    }
    let label = |key| pod.labels.as_ref()?.get(key).filter(|value| !value.is_empty());
    let queue_name = label(names::QUEUE_NAME_LABEL).map(|name| Arc::from(name.as_str()));
    let owners = pod.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| OwnerRef {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    });
    let uid: Arc<str> = Arc::from(pod.uid.as_deref().unwrap_or_default());
    let is_held = label(names::MANAGED_LABEL).is_some();
    let waits = queue_name.is_some() || is_held;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let key = ObjectKey::new(&text(&pod.namespace), &text(&pod.name));
    let controller = controller.filter(|owner| waits || leads_on(core, &key, &uid, owner));
    let place = if is_held { OwnPlace::Queued } else { OwnPlace::Nowhere };
    (waits || controller.is_some()).then_some(OwnerEntry {
        uid,
        queue_name,
        place,
        controller,
        deleting: pod.deletion_timestamp.is_some(),
        pod_sets: None,
        pod_requests: None,
        pod_identity: PodIdentity::Unknown,
        submitter: None,
    })
}

/// Returns whether the search from the objects below a pod must continue to the controller of the pod: the kind of the controller
/// is known, whether it makes pods or not. A ReplicaSet has many pods; they count only below a queued object, or below one that
/// may be queued as far as is known.
fn leads_on(core: &Reconciler, pod: &ObjectKey, uid: &str, controller: &OwnerRef) -> bool {
    if (controller.group(), controller.kind.as_str()) != REPLICA_SET {
        let is_known = framework(controller.group(), &controller.kind).is_some();
        return is_known || core.settings.managed().is_external(controller);
    }
    let object = Searched { kind: POD, uid, names_queue: false, controller: Some(controller) };
    let above = core.units().above_object(&pod.namespace, object);
    above.is_ok_and(|above| !matches!(above, Above::Nothing(End::Top | End::Unread(_))))
}
