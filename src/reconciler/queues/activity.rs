//! ClusterQueues and what they refer to: whether they can admit, and finalizers of what is in use.

use crate::api::v1beta2::{AdmissionMode, ClusterQueuePreemption, FairSharing, ReclaimPolicy, StopPolicy};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::kinds::to_resource_groups;
use crate::cache::records::{ClusterQueueRecord, Meta};
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::workload::step::remove_finalizer_patch;
use crate::scheduler::{ClusterQueue, Inactive};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// Hands a ClusterQueue to the scheduler as it is now. Returns whether anything changed for it.
    pub(in crate::reconciler) fn configure_cluster_queue(&mut self, name: &Arc<str>) -> bool {
        let Some(record) = self.cluster_queues.get(name) else {
            return self.configured_cluster_queues.remove(name).is_some();
        };
        let spec = &record.object.spec;
        let (provisioned_flavors, placed_elsewhere) = self.delayed_topology(&record.object);
        let queue = ClusterQueue {
            cohort: spec.cohort_name.as_deref().map(Arc::from),
            strategy: spec.queueing_strategy,
            groups: to_resource_groups(record.object.quota_groups()),
            namespace_selector: spec.namespace_selector.clone(),
            fungibility: spec.flavor_fungibility.clone().unwrap_or_default(),
            preemption: spec.preemption.clone().unwrap_or_else(|| ClusterQueuePreemption {
                reclaim_within_cohort: Some(ReclaimPolicy::Never),
                ..ClusterQueuePreemption::default()
            }),
            inactive: self.inactive_reason(record),
            weight: spec.fair_sharing.as_ref().and_then(FairSharing::number),
            orders_by_past_usage: spec
                .admission_scope
                .as_ref()
                .is_some_and(|scope| scope.admission_mode == AdmissionMode::UsageBasedAdmissionFairSharing),
            last_acceptable_flavor: spec
                .concurrent_admission_policy
                .as_ref()
                .and_then(|policy| policy.migration.constraints.as_ref())
                .and_then(|constraints| constraints.last_acceptable_flavor_name.as_deref())
                .map(Arc::from),
            provisioned_flavors,
            topology_by_worker_cluster: placed_elsewhere,
        };
        if self.configured_cluster_queues.get(name) == Some(&queue) {
            return false;
        }
        self.engine.set_cluster_queue(name, Some(queue.clone()));
        self.configured_cluster_queues.insert(name.clone(), queue);
        true
    }

    /// Why a ClusterQueue cannot admit: the first reason gives the word, the message names all.
    fn inactive_reason(&self, record: &ClusterQueueRecord) -> Option<Inactive> {
        if record.meta.deleting {
            return Some(inactive("Terminating", "Can't admit new workloads; clusterQueue is terminating"));
        }
        let spec = &record.object.spec;
        let mut found: Vec<(&str, String)> = Vec::new();
        if spec.stop_policy.unwrap_or_default() != StopPolicy::None {
            found.push(("Stopped", "is stopped".to_owned()));
        }
        let flavors: BTreeSet<&str> = record.object.quota_flavors().collect();
        let missing: Vec<&str> = flavors.iter().copied().filter(|f| !self.flavors.contains_key(*f)).collect();
        if !missing.is_empty() {
            found.push((
                "FlavorNotFound",
                format!("references missing ResourceFlavor(s): {}", missing.join(", ")),
            ));
        }
        let checks: Vec<&str> = spec
            .admission_checks_strategy
            .iter()
            .flat_map(|s| s.admission_checks.iter().map(|c| c.name.as_str()))
            .collect();
        let absent: Vec<&str> =
            checks.iter().copied().filter(|c| !self.admission_checks.contains_key(*c)).collect();
        if !absent.is_empty() {
            found.push((
                "AdmissionCheckNotFound",
                format!("references missing AdmissionCheck(s): {}", absent.join(", ")),
            ));
        }
        if let Some(text) = self.inactive_checks(&checks).filter(|_| absent.is_empty()) {
            found.push(("AdmissionCheckInactive", text));
        }
        let topologies: Vec<&str> = flavors
            .iter()
            .filter_map(|f| self.flavors.get(*f)?.object.spec.topology_name.as_deref())
            .filter(|t| !self.topologies.contains_key(*t))
            .collect();
        if !topologies.is_empty() {
            found.push((
                "TopologyNotFound",
                format!("references missing Topology(s): {}", topologies.join(", ")),
            ));
        }
        let (reason, _) = found.first()?;
        let all: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        Some(inactive(reason, &format!("Can't admit new workloads: {}.", all.join(", "))))
    }

    /// Finalizer of a ClusterQueue: there while it exists for good, gone when no workload holds its quota.
    pub(in crate::reconciler) fn step_cluster_queue(&mut self, name: &Arc<str>) {
        let Some(record) = self.cluster_queues.get(name) else {
            return;
        };
        let held = self.engine.reserving_workloads(name) > 0;
        let body = finalizer_patch(&record.meta, held);
        self.send_finalizer(Kind::ClusterQueue, name, body);
    }

    pub(in crate::reconciler) fn step_flavor(&mut self, name: &Arc<str>) {
        let Some(record) = self.flavors.get(name) else {
            return;
        };
        let used = self.cluster_queues.values().any(|q| q.object.quota_flavors().any(|f| *f == **name));
        let body = finalizer_patch(&record.meta, used);
        self.send_finalizer(Kind::ResourceFlavor, name, body);
    }

    pub(in crate::reconciler) fn step_check(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.admission_checks.get(name) else {
            return;
        };
        let used = self.cluster_queues.values().any(|q| {
            let strategy = q.object.spec.admission_checks_strategy.as_ref();
            strategy.is_some_and(|s| s.admission_checks.iter().any(|c| *c.name == **name))
        });
        let body = finalizer_patch(&record.meta, used);
        if body.is_none()
            && let Some(status) = self.own_check_status(name, now)
        {
            let key = ObjectKey::cluster(name);
            self.send_write(Kind::AdmissionCheck, &key, Verb::Merge, Some("status"), status, Vec::new());
            return;
        }
        self.send_finalizer(Kind::AdmissionCheck, name, body);
    }

    pub(in crate::reconciler) fn step_topology(&mut self, name: &Arc<str>) {
        let Some(meta) = self.topologies.get(name) else {
            return;
        };
        let used = self.flavors.values().any(|f| f.object.spec.topology_name.as_deref() == Some(name));
        let body = finalizer_patch(meta, used);
        self.send_finalizer(Kind::Topology, name, body);
    }

    fn send_finalizer(&mut self, kind: Kind, name: &Arc<str>, body: Option<Value>) {
        if let Some(body) = body {
            let key = crate::api::ObjectKey::cluster(name);
            self.send_write(kind, &key, Verb::Merge, None, body, Vec::new());
        }
    }
}

fn inactive(reason: &str, message: &str) -> Inactive {
    Inactive { reason: Arc::from(reason), message: Arc::from(message) }
}

/// The finalizer is there from the start; on deletion it goes when nothing uses the object any more.
fn finalizer_patch(meta: &Meta, used: bool) -> Option<Value> {
    match (meta.deleting, meta.has_finalizer()) {
        (false, false) => {
            let mut finalizers = meta.finalizers.to_vec();
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
            Some(json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}))
        }
        (true, true) if !used => Some(remove_finalizer_patch(meta)),
        _ => None,
    }
}
