//! Pods that are jobs: single pods and the members of pod groups, by the unit that shares one Workload.
//!
//! Invariants: pods are kept here only while the framework of pods is managed, so a cluster without it stores nothing; a pod
//! that has ended is kept as long as it exists, since it counts for its group. Of the status only what decides on a unit is
//! kept. Each version of a pod is read once, and changes the summary of its unit by its difference.

use super::records::WorkloadRecord;
use super::{Cache, remove_from_index};
use crate::api::decoding::DecodeError;
use crate::api::{ObjectKey, OwnerRecord};
use crate::frameworks::{
    Component, Framework, JobKind, NO_MEMBERS, PodMember, UnitKey, UnitSummary, framework,
    workload_name_without_hash,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Fields of a pod's status that are kept.
const STATUS_FIELDS: [&str; 3] = ["phase", "message", "conditions"];
/// The field that says when the containers of a pod ended; kept of pods that are being deleted.
const CONTAINERS: &str = "containerStatuses";

/// A pod that is a job, or a part of one.
#[derive(Clone, Debug)]
struct UnitPod {
    unit: UnitKey,
    member: Arc<PodMember>,
}

/// Pods that are jobs, by key and by unit.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitPods {
    by_key: BTreeMap<ObjectKey, UnitPod>,
    members: BTreeMap<UnitKey, BTreeSet<ObjectKey>>,
    /// Pod groups by their key without the hash at its end, as Workloads have it.
    groups_by_name: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    summaries: BTreeMap<UnitKey, UnitSummary>,
    /// Pods by the UID of their controller.
    by_controller: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Number of pods that were read: each version of a pod is read once.
    reads: u64,
}

impl UnitPods {
    /// Returns UID and resourceVersion of a pod.
    pub(super) fn known_version(&self, key: &ObjectKey) -> Option<(&str, &str)> {
        self.by_key.get(key).map(|pod| (&*pod.member.uid, pod.member.resource_version.as_str()))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_key.keys()
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(UnitPod { unit, member }) = self.by_key.remove(key) else { return };
        remove_from_index(&mut self.members, &unit, key);
        if let Some(controller) = member.controller_uid() {
            remove_from_index(&mut self.by_controller, &controller.to_owned(), key);
        }
        if !self.members.contains_key(&unit) {
            self.summaries.remove(&unit);
            if let Some(name) = group_name(&unit) {
                remove_from_index(&mut self.groups_by_name, &name, &unit.key);
            }
        } else if let Some(summary) = self.summaries.get_mut(&unit) {
            summary.remove(&member);
        }
    }

    fn insert(&mut self, key: ObjectKey, pod: UnitPod) {
        let members = self.members.entry(pod.unit.clone()).or_default();
        if members.is_empty()
            && let Some(name) = group_name(&pod.unit)
        {
            self.groups_by_name.entry(name).or_default().insert(pod.unit.key.clone());
        }
        members.insert(key.clone());
        if let Some(controller) = pod.member.controller_uid() {
            self.by_controller.entry(controller.to_owned()).or_default().insert(key.clone());
        }
        self.summaries.entry(pod.unit.clone()).or_default().add(&pod.member);
        self.by_key.insert(key, pod);
    }
}

/// Returns the key of a pod group without the hash at its end.
fn group_name(unit: &UnitKey) -> Option<ObjectKey> {
    if unit.is_pod_group() { without_hash(&unit.key) } else { None }
}

/// Returns the key of a Workload without the hash at its end; `None` if its name may be truncated, or has none.
fn without_hash(key: &ObjectKey) -> Option<ObjectKey> {
    let name = Arc::from(workload_name_without_hash(&key.name)?);
    Some(ObjectKey { namespace: key.namespace.clone(), name })
}

/// Returns the unit of a member.
fn unit_of(member: &PodMember) -> UnitKey {
    let group = |name: &str| ObjectKey { namespace: member.key.namespace.clone(), name: Arc::from(name) };
    match &member.group {
        Some(marks) => UnitKey::of_pod_group(group(&marks.name)),
        None => single_pod(member.key.clone()),
    }
}

/// Returns the unit of a pod that is in no group.
const fn single_pod(key: ObjectKey) -> UnitKey {
    UnitKey::of_object(JobKind::POD, key)
}

/// Returns the unit of the pod that is this owner.
fn owning_pod(namespace: &Arc<str>, owner: Option<&OwnerRecord>) -> Option<UnitKey> {
    let is_pod = |owner: &&OwnerRecord| framework(owner.group(), &owner.kind).is_some_and(Framework::is_pod);
    let owner = owner.filter(is_pod)?;
    Some(single_pod(ObjectKey { namespace: namespace.clone(), name: owner.name.clone() }))
}

impl Cache {
    /// Stores a pod if it is a job or a part of one.
    ///
    /// # Errors
    /// If what the pod says about its group cannot be read; the pod is in no unit then.
    pub(crate) fn ingest_unit_pod(&mut self, key: &ObjectKey, raw: &Value) -> Result<(), DecodeError> {
        if !self.gates.pod_units {
            return Ok(());
        }
        self.remove_unit_pod(key);
        self.pods.owned.insert(key, raw)?;
        if !PodMember::is_managed(raw) {
            return Ok(());
        }
        self.pods.units.reads = self.pods.units.reads.saturating_add(1);
        let mut kept = raw.clone();
        let deleted = raw.pointer("/metadata/deletionTimestamp").is_some();
        if let Some(status) = kept.get_mut("status").and_then(Value::as_object_mut) {
            status
                .retain(|name, _| STATUS_FIELDS.contains(&name.as_str()) || (deleted && name == CONTAINERS));
        }
        if let Some(member) = PodMember::read(Arc::new(kept))? {
            let unit = unit_of(&member);
            self.pods.units.insert(key.clone(), UnitPod { unit, member: Arc::new(member) });
        }
        Ok(())
    }

    pub(crate) fn remove_unit_pod(&mut self, key: &ObjectKey) {
        self.pods.units.remove(key);
        self.pods.owned.remove(key);
    }

    /// Returns the unit that a pod is in.
    pub(crate) fn unit_of_pod(&self, key: &ObjectKey) -> Option<&UnitKey> {
        self.pods.units.by_key.get(key).map(|pod| &pod.unit)
    }

    /// Returns the members of a unit, ordered by name.
    pub(crate) fn unit_members(&self, unit: &UnitKey) -> Vec<Arc<PodMember>> {
        let keys = self.pods.units.members.get(unit).into_iter().flatten();
        keys.filter_map(|key| Some(Arc::clone(&self.pods.units.by_key.get(key)?.member))).collect()
    }

    /// Returns the numbers of a unit's members.
    pub(crate) fn unit_summary(&self, unit: &UnitKey) -> &UnitSummary {
        self.pods.units.summaries.get(unit).unwrap_or(&NO_MEMBERS)
    }

    /// Returns how many pods were read as members of units.
    pub(crate) const fn unit_pod_reads(&self) -> u64 {
        self.pods.units.reads
    }

    /// Returns the keys of a unit's pods, in order.
    pub(crate) fn unit_pod_keys(&self, unit: &UnitKey) -> impl Iterator<Item = &ObjectKey> {
        self.pods.units.members.get(unit).into_iter().flatten()
    }

    /// Returns the units of the pods whose controller has a UID.
    pub(crate) fn units_controlled_by(&self, uid: &str) -> impl Iterator<Item = &UnitKey> {
        let pods = self.pods.units.by_controller.get(uid).into_iter().flatten();
        pods.filter_map(|pod| self.unit_of_pod(pod))
    }

    /// Returns all units.
    pub(crate) fn units(&self) -> impl Iterator<Item = &UnitKey> {
        self.pods.units.members.keys()
    }

    /// Returns the keys of the pod groups with the name of a Workload but for its hash, in order: those of Workloads that were made for
    /// objects of the same kind and name.
    pub(crate) fn groups_named_like(&self, workload: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        let name = without_hash(workload);
        name.and_then(|name| self.pods.units.groups_by_name.get(&name)).into_iter().flatten()
    }

    /// Returns the units with a member that names this WorkloadPriorityClass.
    pub(crate) fn units_naming_class<'a>(&'a self, class: &'a str) -> impl Iterator<Item = &'a UnitKey> {
        let units = &self.pods.units;
        let names = move |pod: &UnitPod| pod.member.priority_class.as_deref() == Some(class);
        units.members.iter().filter_map(move |(unit, keys)| {
            keys.iter().filter_map(|key| units.by_key.get(key)).any(names).then_some(unit)
        })
    }

    /// Returns the unit whose Workload this is; `None` if it belongs to another kind of job, or pods are not managed.
    pub(crate) fn unit_of_workload(&self, record: &WorkloadRecord) -> Option<UnitKey> {
        if !self.gates.pod_units {
            return None;
        }
        if record.annotations.is_pod_group {
            return Some(UnitKey::of_pod_group(record.meta.key.clone()));
        }
        owning_pod(&record.meta.key.namespace, record.owner.as_deref())
    }

    /// Returns the units to which a Workload with this key and owner matters, whether it exists or was removed: the pod
    /// that owns it, and the group of its name.
    pub(crate) fn units_near_workload(&self, key: &ObjectKey, owner: Option<&OwnerRecord>) -> Vec<UnitKey> {
        if !self.gates.pod_units {
            return Vec::new();
        }
        let group = UnitKey::of_pod_group(key.clone());
        let single = owning_pod(&key.namespace, owner);
        let known = |unit: &UnitKey| self.pods.units.members.contains_key(unit);
        [Some(group), single].into_iter().flatten().filter(known).collect()
    }

    /// Returns the Workloads of a unit: the one of the group's name, or the Workloads that the pod owns.
    pub(crate) fn workloads_of_unit(&self, unit: &UnitKey) -> Vec<ObjectKey> {
        let key = &unit.key;
        match unit.component {
            Component::PodGroup => self.workloads.get(key).map(|_| key.clone()).into_iter().collect(),
            // Its pods are members of the pod group that its Workload is.
            Component::Replica(_) => Vec::new(),
            Component::Object => {
                let uid = self.pods.units.known_version(key).map(|(uid, _)| uid);
                uid.map_or_else(Vec::new, |uid| self.workloads_owned_by(uid).to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::DecodeGates;
    use crate::resources::transform::Transform;
    use serde_json::json;

    /// The names of the groups may begin alike in any number: only those with one more hash are looked at.
    #[test]
    fn groups_are_found_by_their_name_without_hash() {
        let mut cache = Cache::new(DecodeGates::OF_PODS, Transform::default());
        let workload = ObjectKey::new("ns", "statefulset-web-00000");
        let found = |cache: &Cache| -> Vec<String> {
            cache.groups_named_like(&workload).map(|group| group.name.to_string()).collect()
        };
        let (first, second) = ("statefulset-web-aaaaa", "statefulset-web-bbbbb");
        for (namespace, pod, group) in [
            ("ns", "a-0", first),
            ("ns", "a-1", first),
            ("ns", "b", second),
            ("ns", "c", "statefulset-web-1-ccccc"),
            ("ns", "d", "statefulset-web1-ddddd"),
            ("other", "e", "statefulset-web-eeeee"),
            ("ns", first, ""),
        ] {
            let object = json!({"metadata": {"name": pod, "namespace": namespace, "uid": pod,
                "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": group},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}});
            cache.ingest_unit_pod(&ObjectKey::new(namespace, pod), &object).unwrap();
        }
        assert_eq!(found(&cache), [first, second]);
        // A single pod has the name of a group.
        cache.remove_unit_pod(&ObjectKey::new("ns", first));
        cache.remove_unit_pod(&ObjectKey::new("ns", "a-0"));
        assert_eq!(found(&cache), [first, second]);
        cache.remove_unit_pod(&ObjectKey::new("ns", "a-1"));
        assert_eq!(found(&cache), [second]);
    }
}
