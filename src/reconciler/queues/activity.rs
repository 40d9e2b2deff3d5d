//! Configuration of ClusterQueues: whether they are active, and the finalizers of ClusterQueues and of the objects that
//! they refer to.

use crate::api::names::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use crate::api::v1beta2::{
    self, AdmissionMode, ClusterQueuePreemption, FairSharing, ReclaimPolicy, StopPolicy,
};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::kinds::to_resource_groups;
use crate::cache::records::{ClusterQueueRecord, Meta};
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::bodies::remove_finalizer_patch;
use crate::reconciler::writes::in_flight::WriteRequest;
use crate::scheduler::{ClusterQueue, Inactive};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// Configures a ClusterQueue in the scheduler as it is now. Returns whether the configuration changed.
    pub(crate) fn configure_cluster_queue(&mut self, name: &Arc<str>) -> bool {
        let Some(record) = self.cache.cluster_queue(name) else {
            return self.queues.configured.remove(name).is_some();
        };
        let spec = &record.object.spec;
        let (provisioned_flavors, topology_by_worker_cluster) = self.delayed_topology(&record.object);
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
            topology_by_worker_cluster,
        };
        if self.queues.configured.get(name) == Some(&queue) {
            return false;
        }
        self.engine.set_cluster_queue(name, Some(queue.clone()));
        self.queues.configured.insert(name.clone(), queue);
        true
    }

    /// Returns the flavors of a ClusterQueue whose nodes are provisioned after quota is reserved, and whether a worker
    /// cluster assigns the topology.
    fn delayed_topology(&self, queue: &v1beta2::ClusterQueue) -> (BTreeSet<Arc<str>>, bool) {
        let mut flavors = BTreeSet::new();
        let mut by_worker_cluster = false;
        let strategy = queue.spec.admission_checks_strategy.iter();
        for rule in strategy.flat_map(|strategy| &strategy.admission_checks) {
            let check = self.cache.check(&rule.name);
            let controller = check.map(|check| check.object.spec.controller_name.as_str());
            by_worker_cluster |= controller == Some(MULTIKUEUE_CONTROLLER);
            if controller != Some(PROVISIONING_REQUEST_CONTROLLER) {
                continue;
            }
            let names: Vec<&str> = if rule.on_flavors.is_empty() {
                queue.quota_flavors().collect()
            } else {
                rule.on_flavors.iter().map(String::as_str).collect()
            };
            flavors.extend(names.into_iter().map(Arc::from));
        }
        (flavors, by_worker_cluster)
    }

    /// Returns why a ClusterQueue is inactive: the reason is that of the first problem, the message lists all problems.
    fn inactive_reason(&self, record: &ClusterQueueRecord) -> Option<Inactive> {
        if record.meta.deleting {
            return Some(inactive("Terminating", "Can't admit new workloads; clusterQueue is terminating"));
        }
        let spec = &record.object.spec;
        let mut problems: Vec<(&str, String)> = Vec::new();
        if spec.stop_policy.unwrap_or_default() != StopPolicy::None {
            problems.push(("Stopped", "is stopped".to_owned()));
        }
        let flavors: BTreeSet<&str> = record.object.quota_flavors().collect();
        let missing: Vec<&str> = flavors.iter().copied().filter(|f| self.cache.flavor(f).is_none()).collect();
        if !missing.is_empty() {
            problems.push((
                "FlavorNotFound",
                format!("references missing ResourceFlavor(s): {}", missing.join(", ")),
            ));
        }
        let checks: Vec<&str> = spec
            .admission_checks_strategy
            .iter()
            .flat_map(|s| s.admission_checks.iter().map(|c| c.name.as_str()))
            .collect();
        let absent: Vec<&str> = checks.iter().copied().filter(|c| self.cache.check(c).is_none()).collect();
        if !absent.is_empty() {
            problems.push((
                "AdmissionCheckNotFound",
                format!("references missing AdmissionCheck(s): {}", absent.join(", ")),
            ));
        }
        if let Some(text) = self.inactive_checks(&checks).filter(|_| absent.is_empty()) {
            problems.push(("AdmissionCheckInactive", text));
        }
        let topologies: Vec<&str> = flavors
            .iter()
            .filter_map(|f| self.cache.flavor(f)?.object.spec.topology_name.as_deref())
            .filter(|t| self.cache.topology(t).is_none())
            .collect();
        if !topologies.is_empty() {
            problems.push((
                "TopologyNotFound",
                format!("references missing Topology(s): {}", topologies.join(", ")),
            ));
        }
        let (reason, _) = problems.first()?;
        let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
        Some(inactive(reason, &format!("Can't admit new workloads: {}.", texts.join(", "))))
    }

    /// Adds the finalizer to a ClusterQueue; removes it on deletion once no workload holds quota in the ClusterQueue.
    pub(crate) fn step_cluster_queue(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.cache.cluster_queue(name) else {
            return;
        };
        let used = self.engine.reserving_workloads(name) > 0;
        let body = finalizer_patch(&record.meta, used);
        self.send_finalizer(Kind::ClusterQueue, name, body, now);
    }

    pub(crate) fn step_flavor(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.cache.flavor(name) else {
            return;
        };
        let uses = |(_, queue): (_, &ClusterQueueRecord)| queue.object.quota_flavors().any(|f| *f == **name);
        let used = self.cache.cluster_queues().any(uses);
        let body = finalizer_patch(&record.meta, used);
        self.send_finalizer(Kind::ResourceFlavor, name, body, now);
    }

    pub(crate) fn step_check(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.cache.check(name) else {
            return;
        };
        let used = self.cache.cluster_queues().map(|(_, record)| record).any(|q| {
            let strategy = q.object.spec.admission_checks_strategy.as_ref();
            strategy.is_some_and(|s| s.admission_checks.iter().any(|c| *c.name == **name))
        });
        let body = finalizer_patch(&record.meta, used);
        if body.is_none()
            && let Some(status) = self.own_check_status(name, now)
        {
            let key = ObjectKey::cluster(name);
            let request = WriteRequest::new(Kind::AdmissionCheck, key, Verb::Merge, status);
            self.writes.start(request.of_status(), now);
            return;
        }
        self.send_finalizer(Kind::AdmissionCheck, name, body, now);
    }

    pub(crate) fn step_topology(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.cache.topology(name) else {
            return;
        };
        let used = self
            .cache
            .flavors()
            .map(|(_, record)| record)
            .any(|f| f.object.spec.topology_name.as_deref() == Some(name));
        let body = finalizer_patch(&record.meta, used);
        self.send_finalizer(Kind::Topology, name, body, now);
    }

    fn send_finalizer(&mut self, kind: Kind, name: &Arc<str>, body: Option<Value>, now: Timestamp) {
        if let Some(body) = body {
            let request = WriteRequest::new(kind, ObjectKey::cluster(name), Verb::Merge, body);
            self.writes.start(request, now);
        }
    }
}

fn inactive(reason: &str, message: &str) -> Inactive {
    Inactive { reason: Arc::from(reason), message: Arc::from(message) }
}

/// Returns the patch that adds the finalizer to an object, or removes it from an object that is being deleted and is
/// not in use.
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
