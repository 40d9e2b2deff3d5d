//! The measured cluster: 30 ClusterQueues in 5 cohorts, two flavors with two resources each.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice::api::ObjectKey;
use sluice::quota::{FlavorQuotas, QuotaLimits, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, Flavor, FlavorResource, PodSet, Workload,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUEUES: usize = 30;
const COHORTS: usize = 5;

/// One group of flavors, each with this nominal quota of every resource.
pub(crate) fn groups(flavors: &[&str], resources: &[&str], nominal: i64) -> Vec<ResourceGroup> {
    let limits = QuotaLimits { nominal: Amount::new(nominal), ..QuotaLimits::default() };
    let flavor = |name: &&str| FlavorQuotas {
        name: Arc::from(*name),
        limits: resources.iter().map(|resource| (Arc::from(*resource), limits)).collect(),
    };
    vec![ResourceGroup::from_flavors(flavors.iter().map(flavor).collect())]
}

/// Every tenth workload has requests, and so an equivalence class, of its own.
pub(crate) fn workload(n: usize) -> Workload {
    let number = i64::try_from(n).unwrap_or_default();
    let own = if n.is_multiple_of(10) { 1 + number % 500 } else { 10 };
    let requests =
        [("cpu", own), ("memory", 10)].into_iter().map(|(r, a)| (Arc::from(r), Amount::new(a))).collect();
    let pods = PodSet { name: Arc::from("main"), count: 1, requests, ..PodSet::default() };
    Workload {
        key: ObjectKey::new("ns", &format!("w{n}")),
        uid: Arc::from(format!("u{n}")),
        cluster_queue: Arc::from(format!("q{}", n % QUEUES)),
        local_queue: Arc::from("lq"),
        priority: number % 3,
        queued_since: Timestamp::from_second(number).unwrap_or_default(),
        pod_sets: vec![pods].into(),
        ..Workload::default()
    }
}

/// An engine with the namespace and the flavors.
pub(crate) fn empty(settings: EngineSettings) -> Engine {
    let mut engine = Engine::new(settings);
    engine.set_namespace("ns", Some(BTreeMap::new()));
    for flavor in ["spot", "on-demand"] {
        engine.set_flavor(flavor, Some(Flavor::default()));
    }
    engine
}

/// An engine with pending workloads, none of them nominated yet; each queue owns `nominal` of each resource and flavor.
pub(crate) fn world(pending: usize, nominal: i64) -> Engine {
    let mut engine = empty(EngineSettings::default());
    for n in 0..QUEUES {
        let queue = ClusterQueue {
            cohort: Some(Arc::from(format!("c{}", n % COHORTS))),
            groups: groups(&["spot", "on-demand"], &["cpu", "memory"], nominal),
            namespace_selector: Some(LabelSelector::default()),
            ..ClusterQueue::default()
        };
        engine.set_cluster_queue(&format!("q{n}"), Some(queue));
    }
    for n in 0..pending {
        engine.enqueue(workload(n));
    }
    engine
}

/// Runs cycles until no work is left.
pub(crate) fn settle(engine: &mut Engine) {
    while engine.has_work() {
        engine.run_cycle(Timestamp::UNIX_EPOCH);
    }
}

/// A charge of one unit of each resource.
pub(crate) fn charge(cluster_queue: &str, resources: &[&str], n: usize) -> Charge {
    let usage = resources.iter().map(|r| (FlavorResource::new("spot", r), Amount::new(1))).collect();
    Charge {
        cluster_queue: Arc::from(cluster_queue),
        usage,
        uid: Arc::from(format!("held-{n}")),
        local_queue: Arc::from("lq"),
        reserved_at: Timestamp::from_second(i64::try_from(n).unwrap_or_default()).ok(),
        ..Charge::default()
    }
}
