//! Pods that have not ended: what they take of nodes, and which workload each belongs to.
//!
//! Invariants: a pod on a node is charged once: by the assignment of its workload, if that names the host where it stands,
//! or by itself; so one that was bound by hand, that lost its workload, or that still ends on a node which its workload has
//! left counts for what it is (I21). Of pods of others nothing is kept here but who they are.

use crate::api::{ObjectKey, names};
use crate::frameworks::served_framework;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::resources::{Requests, pod_requests};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::reconciler) struct PodRecord {
    pub(in crate::reconciler) uid: Arc<str>,
    pub(in crate::reconciler) resource_version: String,
    /// The node that it is bound to.
    pub(in crate::reconciler) node: Option<Arc<str>>,
    /// What makes it one of a workload's, if it says so.
    pub(in crate::reconciler) workload_pod: Option<Box<WorkloadPod>>,
}

/// A pod that names its workload.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::reconciler) struct WorkloadPod {
    pub(in crate::reconciler) workload: ObjectKey,
    pub(in crate::reconciler) pod_set: Arc<str>,
    /// UID of its controller.
    pub(in crate::reconciler) controller: Option<Arc<str>>,
    pub(in crate::reconciler) terminating: bool,
    /// Gates that hold it back.
    pub(in crate::reconciler) gates: Vec<String>,
    pub(in crate::reconciler) node_selector: Vec<(String, String)>,
    /// Labels whose values are numbers: one of them may be its index.
    pub(in crate::reconciler) numeric_labels: Vec<(String, i64)>,
    /// What its index begins with; none if that cannot be read.
    pub(in crate::reconciler) index_offset: Option<i64>,
    requests: Requests,
}

impl WorkloadPod {
    pub(in crate::reconciler) fn is_gated(&self) -> bool {
        self.gates.iter().any(|gate| gate == names::TOPOLOGY_GATE)
    }

    /// The number in a label.
    pub(in crate::reconciler) fn numeric_label(&self, label: &str) -> Option<i64> {
        self.numeric_labels.iter().find(|(key, _)| key == label).map(|(_, number)| *number)
    }

    /// What its node must have for a label.
    pub(in crate::reconciler) fn selected_value(&self, label: &str) -> Option<&str> {
        self.node_selector.iter().find(|(key, _)| key == label).map(|(_, value)| value.as_str())
    }
}

/// All pods.
#[derive(Clone, Debug, Default)]
pub(in crate::reconciler) struct Pods {
    by_key: BTreeMap<ObjectKey, PodRecord>,
    by_workload: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

impl Pods {
    pub(in crate::reconciler) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_key.keys()
    }

    /// Workloads that pods name.
    pub(in crate::reconciler) fn workloads(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_workload.keys()
    }

    /// UID and version of a pod.
    pub(in crate::reconciler) fn known_version(&self, key: &ObjectKey) -> Option<(&str, &str)> {
        self.by_key.get(key).map(|pod| (&*pod.uid, pod.resource_version.as_str()))
    }

    /// Pods that name a workload.
    pub(in crate::reconciler) fn of_workload(
        &self,
        workload: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectKey, &PodRecord, &WorkloadPod)> {
        let keys = self.by_workload.get(workload).into_iter().flatten();
        keys.filter_map(|key| {
            let pod = self.by_key.get(key)?;
            Some((key, pod, pod.workload_pod.as_deref()?))
        })
    }
}

impl Reconciler {
    pub(in crate::reconciler) fn ingest_pod(&mut self, key: &ObjectKey, pod: Pod) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            return self.remove_pod(key);
        }
        let spec = pod.spec.unwrap_or_default();
        let requests = pod_requests(&spec);
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
        let record = PodRecord {
            uid: Arc::from(pod.metadata.uid.as_deref().unwrap_or_default()),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            node: node.map(|node| self.nodes.interned_name(node)),
            workload_pod: self.to_workload_pod(&pod.metadata).map(|member| {
                let gates = spec.scheduling_gates.unwrap_or_default();
                Box::new(WorkloadPod {
                    gates: gates.into_iter().map(|gate| gate.name).collect(),
                    node_selector: spec.node_selector.unwrap_or_default().into_iter().collect(),
                    requests: requests.clone(),
                    ..member
                })
            }),
        };
        let before = self.pods.by_key.get_mut(key);
        let same = |old: &&mut PodRecord| {
            old.uid == record.uid && old.node == record.node && old.workload_pod == record.workload_pod
        };
        if let Some(known) = before.filter(same) {
            known.resource_version = record.resource_version;
            // What an own pod asks for is part of what was compared; what others ask for may change under way.
            if known.workload_pod.is_none() {
                let takes = known.node.clone().map(|node| (node, requests));
                self.engine.set_pod(key, takes);
            }
            return;
        }
        self.forget_pod(key);
        let takes = self.non_tas_node(&record).map(|node| (node, requests));
        self.engine.set_pod(key, takes);
        if let Some(member) = &record.workload_pod {
            self.pods.by_workload.entry(member.workload.clone()).or_default().insert(key.clone());
        }
        self.pods.by_key.insert(key.clone(), record);
        self.mark_workload_of_pod(key);
    }

    pub(in crate::reconciler) fn remove_pod(&mut self, key: &ObjectKey) {
        self.engine.set_pod(key, None);
        self.forget_pod(key);
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        self.mark_workload_of_pod(key);
        if let Some(member) = self.pods.by_key.remove(key).and_then(|pod| pod.workload_pod) {
            crate::reconciler::ingest::remove_from_index(&mut self.pods.by_workload, &member.workload, key);
        }
    }

    /// The workload of a pod looks again, if it was given places.
    fn mark_workload_of_pod(&mut self, key: &ObjectKey) {
        let member = self.pods.by_key.get(key).and_then(|pod| pod.workload_pod.as_deref());
        if let Some(member) = member.filter(|member| self.nodes.assigned_hosts(&member.workload).is_some()) {
            self.dirty.insert(ReconcileKey::Workload(member.workload.clone()));
            self.dirty.insert(ReconcileKey::Pods(member.workload.clone()));
        }
    }

    /// What a pod's metadata says of its workload; gates, selector and requests are not known from there.
    fn to_workload_pod(&self, meta: &ObjectMeta) -> Option<WorkloadPod> {
        let empty = BTreeMap::new();
        let (labels, annotations) =
            (meta.labels.as_ref().unwrap_or(&empty), meta.annotations.as_ref().unwrap_or(&empty));
        let workload = annotations.get(names::WORKLOAD_ANNOTATION).filter(|name| !name.is_empty())?;
        let workload = ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), workload);
        let known = self.workloads.get_key_value(&workload).map(|(known, _)| known.clone());
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        let offset = annotations.get(names::POD_INDEX_OFFSET_ANNOTATION);
        Some(WorkloadPod {
            workload: known.unwrap_or(workload),
            pod_set: Arc::from(labels.get(names::POD_SET_LABEL).map_or("", String::as_str)),
            controller: controller.map(|owner| Arc::from(owner.uid.as_str())),
            terminating: meta.deletion_timestamp.is_some(),
            gates: Vec::new(),
            node_selector: Vec::new(),
            numeric_labels: labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.parse().ok()?)))
                .collect(),
            index_offset: offset.map_or(Some(0), |text| text.parse().ok()),
            requests: Requests::default(),
        })
    }

    /// Whether a pod is one of the workload's that it names: a job's pods are those that it controls.
    pub(in crate::reconciler) fn belongs_to_workload(&self, member: &WorkloadPod) -> bool {
        let Some(record) = self.workloads.get(&member.workload) else {
            return false;
        };
        let served = |owner: &&crate::cache::records::OwnerRecord| {
            served_framework(owner.group(), &owner.kind).is_some()
        };
        record
            .owner
            .as_deref()
            .filter(served)
            .is_none_or(|owner| member.controller.as_ref() == Some(&owner.uid))
    }

    /// The node whose room the pod takes by itself; none when its workload pays, or it is on no node.
    fn non_tas_node(&self, pod: &PodRecord) -> Option<Arc<str>> {
        let node = pod.node.as_ref()?;
        let paid = pod.workload_pod.as_ref().is_some_and(|member| {
            let footing =
                self.nodes.assigned_hosts(&member.workload).filter(|_| self.belongs_to_workload(member));
            footing.is_some_and(|footing| {
                footing.pod_sets_above_host_level.contains(&member.pod_set)
                    || footing.hosts.contains(&self.nodes.host_of(node))
            })
        });
        (!paid).then(|| Arc::clone(node))
    }

    /// A workload stands elsewhere than before: who pays for its pods is settled anew.
    pub(in crate::reconciler) fn sync_non_tas_pods(&mut self, workload: &ObjectKey) {
        let settled: Vec<_> = self
            .pods
            .of_workload(workload)
            .map(|(key, pod, member)| {
                let takes = self.non_tas_node(pod).map(|node| (node, member.requests.clone()));
                (key.clone(), takes)
            })
            .collect();
        for (key, takes) in settled {
            self.engine.set_pod(&key, takes);
        }
    }

    /// Whether a pod of a workload on a host neither ends nor has ended.
    pub(in crate::reconciler) fn has_running_pod(&self, workload: &ObjectKey, host: &str) -> bool {
        self.pods.of_workload(workload).any(|(_, pod, member)| {
            let here = pod.node.as_ref().is_some_and(|node| *self.nodes.host_of(node) == *host);
            here && !member.terminating && self.belongs_to_workload(member)
        })
    }
}
