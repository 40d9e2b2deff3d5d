//! Pods that have not ended: the node that each is bound to, and the workload that it belongs to.
//!
//! Invariants: usage of a pod on a node is charged once: through the topology assignment of its workload if that names
//! the host, otherwise as non-TAS usage of the pod itself. So a pod that was bound by hand, whose workload was deleted,
//! or that still terminates on a node that is no longer in the assignment is charged on its node (I21), until it counts as ended
//! as it does for quota. Whether a charged pod ends with what holds quota follows from the pod and its workload; the usage is reported again
//! when either changes. `pod_owners` decides which workload a pod belongs to. Of pods that name no workload only the identity and
//! the node are stored.

use super::Cache;
use super::owned_pods::OwnedPods;
use super::pod_owners::{PodsByController, RecheckedPods};
use super::records::WorkloadRecord;
use super::remove_from_index;
use super::units::UnitPods;
use crate::api::{ObjectKey, names};
use crate::frameworks::bound_pod_counts_as_ended_at;
use crate::lifecycle::pod_blocker::PodBlocker;
use crate::lifecycle::provisioning::POD_ANNOTATIONS;
use crate::lifecycle::reservation;
use crate::resources::{Requests, pod_requests};
use crate::topology::NonTasPod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Non-TAS usage of a pod.
pub(crate) type PodUsage = NonTasPod;

/// Change of a pod's non-TAS usage.
#[derive(Clone, Debug, Default)]
pub(crate) enum UsageUpdate {
    /// Unchanged.
    #[default]
    Keep,
    /// The new usage; `None` removes it.
    Set(Option<PodUsage>),
}

/// Effects of storing or removing a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodChange {
    pub(crate) usage: UsageUpdate,
    /// Workloads that the pod named before or names now, and that may ungate it.
    pub(crate) workloads: Vec<ObjectKey>,
    /// The workload that the pod named before, if its job may wait for the end of the pod.
    pub(crate) held_up: Option<ObjectKey>,
    /// Pods that it controls whose membership was checked again.
    pub(crate) below: RecheckedPods,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodRecord {
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: String,
    /// The node that the pod is bound to.
    pub(crate) node: Option<Arc<str>>,
    /// Whether its containers run, as its phase says. No decision depends on it.
    pub(crate) running: bool,
    /// When it counts as ended, if it is being deleted on a node.
    ends_at: Option<Timestamp>,
    /// Whether it counts as ended.
    lost: bool,
    /// Set if the pod names a workload.
    pub(crate) workload_pod: Option<Box<WorkloadPod>>,
}

impl PodRecord {
    /// Returns the node on which it needs room.
    fn used_node(&self) -> Option<&Arc<str>> {
        self.node.as_ref().filter(|_| !self.lost)
    }

    /// Returns whether it is being deleted on its node, so that it ends by itself.
    const fn is_ending(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Returns whether both are the same pod below the same controller: then what pods below it belong to is the same.
    fn has_same_place(&self, other: &Self) -> bool {
        let place = |record: &Self| {
            record.workload_pod.as_deref().map(|pod| (pod.workload.clone(), pod.controller.clone()))
        };
        self.uid == other.uid && place(self) == place(other)
    }
}

/// A pod that names its workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkloadPod {
    /// The workload, or the first of the slices that take over from one another.
    pub(crate) workload: ObjectKey,
    pub(crate) pod_set: Arc<str>,
    /// UID of the pod's controller.
    pub(crate) controller: Option<Arc<str>>,
    pub(crate) terminating: bool,
    /// Whether its spec was changed after its creation.
    pub(crate) changed: bool,
    /// Names of the scheduling gates.
    pub(crate) gates: Vec<String>,
    /// What keeps the pod from running once its Workload is admitted.
    pub(crate) blocker: Option<PodBlocker>,
    pub(crate) node_selector: Vec<(String, String)>,
    /// The annotations by which the pod names its ProvisioningRequest.
    pub(crate) annotations: Vec<(String, String)>,
    /// Labels with integer values: one of them may be the index of the pod.
    pub(crate) numeric_labels: Vec<(String, i64)>,
    /// Index of the first pod; `None` if the annotation cannot be parsed.
    pub(crate) index_offset: Option<i64>,
    requests: Requests,
}

impl WorkloadPod {
    /// Returns in what the pod, if it was changed, asks for more than its pod set in a Workload is charged, for messages.
    pub(crate) fn excess(&self, record: &WorkloadRecord) -> Option<String> {
        self.changed.then(|| record.excess_of_pod(&self.pod_set, &self.requests)).flatten()
    }

    pub(crate) fn has_gate(&self, name: &str) -> bool {
        self.gates.iter().any(|gate| gate == name)
    }

    /// Returns the integer value of a label.
    pub(crate) fn numeric_label(&self, label: &str) -> Option<i64> {
        self.numeric_labels.iter().find(|(key, _)| key == label).map(|(_, number)| *number)
    }

    /// Returns the value that the node selector requires for a node label.
    pub(crate) fn selected_value(&self, label: &str) -> Option<&str> {
        self.node_selector.iter().find(|(key, _)| key == label).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    by_key: BTreeMap<ObjectKey, PodRecord>,
    by_workload: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Pods that name a workload.
    by_uid: BTreeMap<Arc<str>, ObjectKey>,
    /// Pods that are being deleted on a node, by the time when they count as ended, until then.
    expected_ends: BTreeSet<(Timestamp, ObjectKey)>,
    pub(super) by_controller: PodsByController,
    /// Pods that are jobs, including ended pods.
    pub(super) units: UnitPods,
    /// Pods of marked templates.
    pub(super) owned: OwnedPods,
}

impl Pods {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&PodRecord> {
        self.by_key.get(key)
    }

    /// Returns the keys of all known pods, in order.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        let keys: BTreeSet<&ObjectKey> = self.by_key.keys().chain(self.units.keys()).collect();
        keys.into_iter().cloned().collect()
    }

    /// Returns the workloads that pods name.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_workload.keys()
    }

    /// Returns UID and resourceVersion of a pod.
    pub(crate) fn known_version(&self, key: &ObjectKey) -> Option<(&str, &str)> {
        let known = self.by_key.get(key).map(|pod| (&*pod.uid, pod.resource_version.as_str()));
        // A pod that has ended is known as a job only.
        self.units.known_version(key).or(known)
    }

    /// Returns the pod with this UID if it names a workload.
    pub(super) fn with_uid(&self, uid: &str) -> Option<&WorkloadPod> {
        self.by_key.get(self.by_uid.get(uid)?)?.workload_pod.as_deref()
    }

    /// Returns the pods that name a workload.
    pub(crate) fn of_workload<'a>(
        &'a self,
        workload: &ObjectKey,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a PodRecord, &'a WorkloadPod)> + use<'a> {
        let keys = self.by_workload.get(workload).into_iter().flatten();
        keys.filter_map(|key| {
            let pod = self.by_key.get(key)?;
            Some((key, pod, pod.workload_pod.as_deref()?))
        })
    }
}

/// Returns the message of a scheduler that found no node for a pod.
fn unschedulable(status: Option<&PodStatus>) -> Option<String> {
    let conditions = status?.conditions.as_deref()?;
    let condition = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    })?;
    Some(condition.message.clone().unwrap_or_else(|| "unschedulable".to_owned()))
}

impl Cache {
    /// Stores a pod, or removes it if it has ended.
    pub(crate) fn ingest_pod(&mut self, key: &ObjectKey, pod: Pod) -> PodChange {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            return self.remove_pod(key);
        }
        let running = phase == "Running";
        let unschedulable = unschedulable(pod.status.as_ref());
        let spec = pod.spec.unwrap_or_default();
        let requests = pod_requests(&spec);
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
        let deleted_at = pod.metadata.deletion_timestamp.as_ref().filter(|_| node.is_some());
        let ends_at = deleted_at.map(|grace_ends| bound_pod_counts_as_ended_at(grace_ends.0));
        let record = PodRecord {
            ends_at,
            lost: false,
            uid: Arc::from(pod.metadata.uid.as_deref().unwrap_or_default()),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            node: node.map(|node| self.nodes.interned_name(node)),
            running,
            workload_pod: self.to_workload_pod(&pod.metadata).map(|workload_pod| {
                let gates = spec.scheduling_gates.unwrap_or_default();
                let waits = node.is_none() && !workload_pod.terminating;
                let names = gates.iter().map(|gate| gate.name.as_str());
                Box::new(WorkloadPod {
                    blocker: waits.then(|| PodBlocker::of(names, unschedulable.as_deref())).flatten(),
                    gates: gates.into_iter().map(|gate| gate.name).collect(),
                    node_selector: spec.node_selector.unwrap_or_default().into_iter().collect(),
                    requests: requests.clone(),
                    ..workload_pod
                })
            }),
        };
        let same = |old: &&mut PodRecord| {
            let place = |pod: &PodRecord| (pod.node.clone(), pod.ends_at);
            old.uid == record.uid && place(old) == place(&record) && old.workload_pod == record.workload_pod
        };
        if let Some(known) = self.pods.by_key.get_mut(key).filter(same) {
            known.resource_version = record.resource_version;
            known.running = record.running;
            // Requests of a workload's pod were compared above; those of other pods may have changed (in-place resize).
            let usage = match known.workload_pod {
                Some(_) => UsageUpdate::Keep,
                None => UsageUpdate::Set(known.used_node().map(|node| NonTasPod {
                    node: Arc::clone(node),
                    requests,
                    ends: known.is_ending(),
                })),
            };
            return PodChange { usage, ..PodChange::default() };
        }
        let held_up = self.workload_held_up(key);
        let uid = Arc::clone(&record.uid);
        let replaced = self.uid_of_pod(key).filter(|known| *known != uid);
        // The other changes of a pod, such as those of its status, leave the pods below it where they are.
        let keeps_place = self.pods.by_key.get(key).is_some_and(|known| known.has_same_place(&record));
        let mut workloads = self.forget_pod(key);
        let usage = self.non_tas_usage(&record, || requests);
        if let Some(workload_pod) = &record.workload_pod {
            let pods = self.pods.by_workload.entry(workload_pod.workload.clone()).or_default();
            pods.insert(key.clone());
            self.pods.by_uid.insert(Arc::clone(&uid), key.clone());
        }
        self.pods.expected_ends.extend(record.ends_at.map(|at| (at, key.clone())));
        self.pods.by_key.insert(key.clone(), record);
        self.index_controllers(key);
        workloads.extend(self.placed_workload_of_pod(key));
        workloads.extend(self.blocked_workload_of_pod(key).filter(|_| workloads.is_empty()));
        let below = if keeps_place {
            RecheckedPods::default()
        } else {
            self.recheck_pods_below(replaced.into_iter().chain([uid]))
        };
        PodChange { usage: UsageUpdate::Set(usage), workloads, held_up, below }
    }

    pub(crate) fn remove_pod(&mut self, key: &ObjectKey) -> PodChange {
        let (held_up, uid) = (self.workload_held_up(key), self.uid_of_pod(key));
        let workloads = self.forget_pod(key);
        let below = self.recheck_pods_below(uid);
        PodChange { usage: UsageUpdate::Set(None), workloads, held_up, below }
    }

    /// Returns the pods that count as ended from now on, although they are still there: they need no room on their nodes.
    pub(crate) fn take_lost_pods(&mut self, now: Timestamp) -> Vec<ObjectKey> {
        let mut lost = Vec::new();
        while self.next_lost_pod_at().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.pods.expected_ends.pop_first() else { break };
            if let Some(pod) = self.pods.by_key.get_mut(&key) {
                pod.lost = true;
            }
            lost.push(key);
        }
        lost
    }

    /// Returns when the next pod counts as ended.
    pub(crate) fn next_lost_pod_at(&self) -> Option<Timestamp> {
        self.pods.expected_ends.first().map(|(at, _)| *at)
    }

    fn uid_of_pod(&self, key: &ObjectKey) -> Option<Arc<str>> {
        self.pods.by_key.get(key).map(|pod| Arc::clone(&pod.uid))
    }

    fn forget_pod(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let workload = self.placed_workload_of_pod(key);
        self.pods.by_controller.remove(key);
        let Some(pod) = self.pods.by_key.remove(key) else { return Vec::new() };
        if let Some(at) = pod.ends_at {
            self.pods.expected_ends.remove(&(at, key.clone()));
        }
        if let Some(workload_pod) = &pod.workload_pod {
            remove_from_index(&mut self.pods.by_workload, &workload_pod.workload, key);
            self.pods.by_uid.remove(&pod.uid);
        }
        workload.into_iter().collect()
    }

    /// Returns the workload that a pod names, if that workload is assigned to hosts or a slice, so that it may ungate the pod.
    pub(super) fn placed_workload_of_pod(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let workload = &self.slice_of_pod(self.pods.by_key.get(key)?)?;
        let ungated_here =
            workload.annotations.is_slice || self.nodes.assigned_hosts(&workload.meta.key).is_some();
        ungated_here.then(|| workload.meta.key.clone())
    }

    /// Returns the workload of a pod that something else than this manager keeps from running.
    fn blocked_workload_of_pod(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let pod = self.pods.by_key.get(key)?;
        pod.workload_pod.as_ref()?.blocker.as_ref()?;
        Some(self.slice_of_pod(pod)?.meta.key.clone())
    }

    /// Decodes the workload of a pod from its metadata. Gates, node selector and requests stay empty: they are in the
    /// spec.
    fn to_workload_pod(&self, meta: &ObjectMeta) -> Option<WorkloadPod> {
        let empty = BTreeMap::new();
        let (labels, annotations) =
            (meta.labels.as_ref().unwrap_or(&empty), meta.annotations.as_ref().unwrap_or(&empty));
        let named = |key| annotations.get(key).filter(|name| !name.is_empty());
        let workload = named(names::WORKLOAD_ANNOTATION)?;
        // The template of an elastic job names the slice that started it, and slices after it take over.
        let workload = named(names::SLICE_NAME_ANNOTATION).unwrap_or(workload);
        let workload = ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), workload);
        let known = self.workloads.interned_key(&workload).cloned();
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        let offset = annotations.get(names::POD_INDEX_OFFSET_ANNOTATION);
        Some(WorkloadPod {
            workload: known.unwrap_or(workload),
            pod_set: Arc::from(labels.get(names::POD_SET_LABEL).map_or("", String::as_str)),
            controller: controller.map(|owner| Arc::from(owner.uid.as_str())),
            terminating: meta.deletion_timestamp.is_some(),
            changed: meta.generation.is_some_and(|generation| generation > 1),
            gates: Vec::new(),
            blocker: None,
            node_selector: Vec::new(),
            annotations: POD_ANNOTATIONS
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), annotations.get(*key)?.clone())))
                .collect(),
            numeric_labels: labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.parse().ok()?)))
                .collect(),
            index_offset: offset.map_or(Some(0), |text| text.parse().ok().filter(|offset| *offset >= 0)),
            requests: Requests::default(),
        })
    }

    /// Returns the pods that name a workload, or the first of the slices before it.
    pub(crate) fn pods_of(
        &self,
        workload: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectKey, &PodRecord, &WorkloadPod)> {
        let chain = self.workloads.get(workload).filter(|record| record.annotations.chain.is_some());
        let first = chain.map_or_else(|| workload.clone(), |record| record.chain_key());
        self.pods.of_workload(&first)
    }

    /// Returns the workloads that pods name, and the slices after them.
    pub(crate) fn workloads_of_pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pods.workloads().flat_map(|first| self.workloads.in_chain(first)).map(|record| &record.meta.key)
    }

    /// Returns what a pod is charged for on its node; `None` if the topology assignment of its workload covers it, or if it is not
    /// bound. A pod whose workload holds quota ends with it, one that is being deleted by itself.
    fn non_tas_usage(&self, pod: &PodRecord, requests: impl FnOnce() -> Requests) -> Option<PodUsage> {
        let node = pod.used_node()?;
        let slice = self.slice_of_pod(pod);
        let charged_to_workload = pod.workload_pod.as_ref().is_some_and(|workload_pod| {
            let assigned = slice.and_then(|record| self.nodes.assigned_hosts(&record.meta.key));
            assigned.is_some_and(|assigned| {
                assigned.pod_sets_above_host_level.contains(&workload_pod.pod_set)
                    || assigned.hosts.contains(&self.nodes.host_of(node))
            })
        });
        let holds_quota = || slice.is_some_and(|record| reservation::holds_quota(&record.status));
        (!charged_to_workload).then(|| NonTasPod {
            node: Arc::clone(node),
            requests: requests(),
            ends: pod.is_ending() || holds_quota(),
        })
    }

    /// Returns the non-TAS usage of each of a workload's pods.
    pub(super) fn non_tas_usage_of(&self, workload: &ObjectKey) -> Vec<(ObjectKey, Option<PodUsage>)> {
        let usage = |(key, pod, workload_pod): (&ObjectKey, &PodRecord, &WorkloadPod)| {
            (key.clone(), self.usage_of(pod, workload_pod))
        };
        self.pods_of(workload).map(usage).collect()
    }

    /// Returns the non-TAS usage of a pod that names a workload.
    pub(super) fn non_tas_usage_of_pod(&self, key: &ObjectKey) -> Option<PodUsage> {
        let pod = self.pods.by_key.get(key)?;
        self.usage_of(pod, pod.workload_pod.as_deref()?)
    }

    fn usage_of(&self, pod: &PodRecord, workload_pod: &WorkloadPod) -> Option<PodUsage> {
        self.non_tas_usage(pod, || workload_pod.requests.clone())
    }

    /// Returns whether a workload has a pod on a host that neither terminates nor has ended.
    pub(crate) fn has_running_pod(&self, workload: &ObjectKey, host: &str) -> bool {
        self.pods_of(workload).any(|(_, pod, workload_pod)| {
            let on_host = pod.node.as_ref().is_some_and(|node| *self.nodes.host_of(node) == *host);
            on_host && !workload_pod.terminating && self.belongs_to(pod, workload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::DecodeGates;
    use crate::resources::transform::Transform;
    use serde_json::{Value, json};

    fn ingest(cache: &mut Cache, key: &ObjectKey, pod: &Value) {
        cache.ingest_unit_pod(key, pod).unwrap();
        cache.ingest_pod(key, serde_json::from_value(pod.clone()).unwrap());
    }

    /// However large a pod is that is no job and names no workload, little of it is kept, and nothing when it has ended: clusters have
    /// many times more of them than of managed ones.
    #[test]
    fn identity_and_node_are_kept_of_other_pods() {
        let mut cache = Cache::new(DecodeGates::OF_PODS, Transform::default());
        let key = ObjectKey::new("ns", "p");
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "web", "index": "3"}, "annotations": {"note": "x".repeat(100_000)},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r",
                    "controller": true}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "message": "x".repeat(100_000)},
        });
        ingest(&mut cache, &key, &pod);
        let kept = PodRecord {
            uid: Arc::from("u"),
            resource_version: "7".to_owned(),
            node: Some(Arc::from("n")),
            running: true,
            ends_at: None,
            lost: false,
            workload_pod: None,
        };
        assert_eq!(cache.pods.get(&key), Some(&kept));
        assert!(cache.pods.by_workload.is_empty(), "{:?}", cache.pods);
        assert_eq!((cache.unit_pod_reads(), cache.owner_of_pod(&key)), (0, None));
        pod["status"]["phase"] = json!("Succeeded");
        ingest(&mut cache, &key, &pod);
        assert!(cache.pods.keys().is_empty());
    }
}
