//! Configuration of ClusterQueues in the scheduler: whether they are active, and the finalizers of ClusterQueues and of the
//! objects that they refer to.

use super::QueueState;
use super::admission_checks::AdmissionChecks;
use crate::api::ObjectKey;
use crate::api::names;
use crate::api::names::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use crate::api::v1beta2::{
    self, AdmissionMode, ClusterQueuePreemption, ClusterQueueSpec, FairSharing, ReclaimPolicy, StopPolicy,
};
use crate::cache::kinds::to_resource_groups;
use crate::cache::records::{ClusterQueueRecord, Meta};
use crate::cache::{Cache, Kind};
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::request::{WriteRequest, remove_finalizer_patch};
use crate::scheduler::{ClusterQueue, Engine, Inactive};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

impl QueueState {
    /// Configures a ClusterQueue in the scheduler as it is now. Returns whether the configuration changed.
    pub(crate) fn configure(
        &mut self,
        name: &Arc<str>,
        checks: AdmissionChecks<'_>,
        engine: &mut Engine,
    ) -> bool {
        let Some(record) = checks.cache.cluster_queue(name) else {
            return self.configured.remove(name).is_some();
        };
        let queue = to_scheduler_queue(record, checks);
        if self.configured.get(name) == Some(&queue) {
            return false;
        }
        engine.set_cluster_queue(name, Some(queue.clone()));
        self.configured.insert(name.clone(), queue);
        true
    }
}

/// Returns the preemption policies of a spec; no preemption if no API server has set the defaults.
pub(in crate::reconciler) fn preemption_of(spec: &ClusterQueueSpec) -> ClusterQueuePreemption {
    spec.preemption.clone().unwrap_or_else(|| ClusterQueuePreemption {
        reclaim_within_cohort: Some(ReclaimPolicy::Never),
        ..ClusterQueuePreemption::default()
    })
}

fn to_scheduler_queue(record: &ClusterQueueRecord, checks: AdmissionChecks<'_>) -> ClusterQueue {
    let spec = &record.object.spec;
    let delayed = delayed_topology(&record.object, checks.cache);
    ClusterQueue {
        cohort: spec.cohort_name.as_deref().map(Arc::from),
        strategy: spec.queueing_strategy,
        groups: to_resource_groups(record.object.quota_groups()),
        namespace_selector: spec.namespace_selector.clone(),
        fungibility: spec.flavor_fungibility.clone().unwrap_or_default(),
        preemption: preemption_of(spec),
        inactive: inactive_reason(record, checks),
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
        provisioned_flavors: delayed.provisioned_flavors,
        topology_by_worker_cluster: delayed.by_worker_cluster,
    }
}

/// Why topologies of a ClusterQueue are assigned after quota is reserved.
#[derive(Default)]
struct DelayedTopology {
    /// Flavors whose nodes are provisioned after quota is reserved.
    provisioned_flavors: BTreeSet<Arc<str>>,
    /// Whether a worker cluster assigns the topology.
    by_worker_cluster: bool,
}

fn delayed_topology(queue: &v1beta2::ClusterQueue, cache: &Cache) -> DelayedTopology {
    let mut delayed = DelayedTopology::default();
    let strategy = queue.spec.admission_checks_strategy.iter();
    for rule in strategy.flat_map(|strategy| &strategy.admission_checks) {
        let check = cache.check(&rule.name);
        let controller = check.map(|check| check.object.spec.controller_name.as_str());
        delayed.by_worker_cluster |= controller == Some(MULTIKUEUE_CONTROLLER);
        if controller != Some(PROVISIONING_REQUEST_CONTROLLER) {
            continue;
        }
        let names: Vec<&str> = if rule.on_flavors.is_empty() {
            queue.quota_flavors().collect()
        } else {
            rule.on_flavors.iter().map(String::as_str).collect()
        };
        delayed.provisioned_flavors.extend(names.into_iter().map(Arc::from));
    }
    delayed
}

/// Returns why a ClusterQueue is inactive: the reason is that of the first problem, the message lists all problems.
fn inactive_reason(record: &ClusterQueueRecord, admission_checks: AdmissionChecks<'_>) -> Option<Inactive> {
    if record.meta.is_deleting() {
        return Some(inactive("Terminating", "Can't admit new workloads; clusterQueue is terminating"));
    }
    let (spec, cache) = (&record.object.spec, admission_checks.cache);
    let mut problems: Vec<(&str, String)> = Vec::new();
    if spec.stop_policy.unwrap_or_default() != StopPolicy::None {
        problems.push(("Stopped", "is stopped".to_owned()));
    }
    let unreadable = unreadable_texts(record, cache);
    if !unreadable.is_empty() {
        problems.push(("Unreadable", unreadable.join(", ")));
    }
    let flavors: BTreeSet<&str> = record.object.quota_flavors().collect();
    let missing: Vec<&str> = flavors.iter().copied().filter(|f| cache.flavor(f).is_none()).collect();
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
    let absent: Vec<&str> = checks.iter().copied().filter(|c| cache.check(c).is_none()).collect();
    if !absent.is_empty() {
        problems.push((
            "AdmissionCheckNotFound",
            format!("references missing AdmissionCheck(s): {}", absent.join(", ")),
        ));
    }
    if let Some(text) = admission_checks.inactive_text(&checks).filter(|_| absent.is_empty()) {
        problems.push(("AdmissionCheckInactive", text));
    }
    let topologies: Vec<&str> = flavors
        .iter()
        .filter_map(|f| cache.flavor(f)?.object.spec.topology_name.as_deref())
        .filter(|t| cache.topology(t).is_none())
        .collect();
    if !topologies.is_empty() {
        problems
            .push(("TopologyNotFound", format!("references missing Topology(s): {}", topologies.join(", "))));
    }
    let (reason, _) = problems.first()?;
    let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
    Some(inactive(reason, &format!("Can't admit new workloads: {}.", texts.join(", "))))
}

/// Describes which of a ClusterQueue and the objects that it refers to cannot be read, and why.
fn unreadable_texts(record: &ClusterQueueRecord, cache: &Cache) -> Vec<String> {
    let unreadable = cache.unreadable();
    if unreadable.is_empty() {
        return Vec::new();
    }
    let own = unreadable.problem(Kind::ClusterQueue, &record.meta.key);
    let flavors: BTreeSet<&str> = record.object.quota_flavors().collect();
    let checks = record.object.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
    let topologies = flavors.iter().filter_map(|f| cache.flavor(f)?.object.spec.topology_name.as_deref());
    let cohorts = cache.cohorts_above(&record.meta.key.name);
    let mut references: Vec<(Kind, &str)> = topologies.map(|name| (Kind::Topology, name)).collect();
    references.extend(flavors.iter().map(|name| (Kind::ResourceFlavor, *name)));
    references.extend(checks.map(|check| (Kind::AdmissionCheck, check.name.as_str())));
    references.extend(cohorts.iter().map(|name| (Kind::Cohort, name.as_str())));
    let others = references.into_iter().filter_map(|(kind, name)| {
        let problem = unreadable.problem(kind, &ObjectKey::cluster(name))?;
        Some(format!("{} {name} cannot be read: {problem}", kind.resource().kind))
    });
    own.map(|problem| format!("it cannot be read: {problem}")).into_iter().chain(others).collect()
}

/// Returns the write that adds the finalizer to a ClusterQueue, or removes it on deletion once no workload holds quota in
/// the ClusterQueue.
pub(crate) fn cluster_queue_write(name: &str, cache: &Cache, engine: &Engine) -> Option<WriteRequest> {
    let record = cache.cluster_queue(name)?;
    finalizer_write(Kind::ClusterQueue, &record.meta, engine.reserving_workloads(name) > 0)
}

/// Returns the write that adds the finalizer to a ResourceFlavor, or removes it on deletion once no ClusterQueue refers to it.
pub(crate) fn flavor_write(name: &str, cache: &Cache) -> Option<WriteRequest> {
    let uses = |(_, queue): (_, &ClusterQueueRecord)| queue.object.quota_flavors().any(|f| *f == *name);
    finalizer_write(Kind::ResourceFlavor, &cache.flavor(name)?.meta, cache.cluster_queues().any(uses))
}

/// Returns the write that adds the finalizer to a Topology, or removes it on deletion once no flavor refers to it.
pub(crate) fn topology_write(name: &str, cache: &Cache) -> Option<WriteRequest> {
    let record = cache.topology(name)?;
    let mut flavors = cache.flavors().map(|(_, record)| record);
    let used = flavors.any(|f| f.object.spec.topology_name.as_deref() == Some(name));
    finalizer_write(Kind::Topology, &record.meta, used)
}

/// Returns the next write of an AdmissionCheck: the finalizer, as for a ResourceFlavor, or its status.
pub(crate) fn check_write(name: &str, checks: AdmissionChecks<'_>, now: Timestamp) -> Option<WriteRequest> {
    let record = checks.cache.check(name)?;
    let used = checks.cache.cluster_queues().map(|(_, record)| record).any(|q| {
        let strategy = q.object.spec.admission_checks_strategy.as_ref();
        strategy.is_some_and(|s| s.admission_checks.iter().any(|c| *c.name == *name))
    });
    finalizer_write(Kind::AdmissionCheck, &record.meta, used).or_else(|| checks.own_status_write(name, now))
}

fn inactive(reason: &str, message: &str) -> Inactive {
    Inactive { reason: Arc::from(reason), message: Arc::from(message) }
}

/// Returns the write that adds the finalizer to an object, or removes it from an object that is being deleted and is not in
/// use.
fn finalizer_write(kind: Kind, meta: &Meta, used: bool) -> Option<WriteRequest> {
    let body = match (meta.is_deleting(), meta.has_finalizer()) {
        (false, false) => {
            let mut finalizers = meta.finalizers.to_vec();
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
            json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}})
        }
        (true, true) if !used => remove_finalizer_patch(meta),
        _ => return None,
    };
    Some(WriteRequest::new(kind, meta.key.clone(), Verb::Merge, body))
}
