//! The state of the core: what the objects say, what was decided and not yet confirmed, and what is to be done next.
//!
//! One owner calls `apply_all` with what came meanwhile and carries out the effects. Invariants:
//! - the ledger follows from reservations alone: what objects say, plus decisions whose write is under way (I1);
//! - at most one write per object is under way, and it carries the resourceVersion that it was decided on (I12);
//! - an object that cannot be read, and a write that fails, concern that object alone (I23);
//! - before all lists are complete nothing is decided, and without leadership nothing is written (I16, I17).

mod allowance;
mod assumed;
mod decode;
mod facts;
mod fair_sharing;
mod ingest;
mod ingest_workload;
mod interface;
mod job_events;
mod job_owner;
mod job_start;
mod job_step;
pub mod moments;
mod nodes;
mod outlook;
mod own_checks;
mod passes;
mod pods;
mod provisioning;
mod queue_status;
mod queues;
mod readiness;
mod records;
mod removal;
mod schedule;
mod second_pass;
mod settings;
mod shared;
mod snapshot;
mod tallies;
mod telling;
mod templates;
mod timers;
mod tombstones;
mod topology;
mod turns;
mod ungating;
#[cfg(feature = "moments")]
mod unguarded;
mod workload_object;
mod workload_step;
mod writes;

pub use interface::{
    Delta, Effect, Event, Kind, Labels, Observation, Resource, Verb, Write, WriteOutcome, WriteResult,
};
pub use settings::{Gates, Settings};
pub use snapshot::{ClusterQueueView, CohortView, LocalQueueView, QueueView, Snapshot};
pub use tallies::Unadmitted;
pub use workload_object::WorkloadObject;

use crate::api::{ByKey, ObjectKey};
use crate::jobs::JobView;
use crate::resources::limit_range::LimitRangeSummary;
use crate::scheduler::{self, Engine};
use assumed::Assumed;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use records::{
    CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord, Unreadable, WorkerRecord,
    WorkloadRecord,
};
use serde_json::Value;
use snapshot::Published;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use templates::Templates;
use timers::Timers;
use writes::Writes;

/// Something that may need a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// A ClusterQueue: finalizer and status.
    ClusterQueue(Arc<str>),
    /// A Cohort: status.
    Cohort(Arc<str>),
    /// A LocalQueue: status.
    LocalQueue(ObjectKey),
    /// A ResourceFlavor: finalizer.
    Flavor(Arc<str>),
    /// An AdmissionCheck: finalizer.
    Check(Arc<str>),
    /// A MultiKueueCluster: status.
    Worker(Arc<str>),
    /// A Topology: finalizer.
    Topology(Arc<str>),
    /// A job, by kind.
    Job(usize, ObjectKey),
    /// A Workload.
    Workload(ObjectKey),
    /// The pods of a Workload with a topology.
    Pods(ObjectKey),
}

/// The core.
pub struct State {
    settings: Settings,
    leading: bool,
    /// Kinds that are followed.
    kinds: Vec<Kind>,
    /// Kinds whose first list is complete.
    listed: BTreeSet<Kind>,
    /// Whether the first lists of all kinds are complete.
    synced: bool,
    /// Keys seen since a list was started.
    relisting: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    namespaces: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    limit_ranges: BTreeMap<ObjectKey, LimitRange>,
    /// The LimitRanges of each namespace as one.
    limits: BTreeMap<Arc<str>, LimitRangeSummary>,
    /// Overhead of pods by RuntimeClass.
    runtime_classes: BTreeMap<Arc<str>, BTreeMap<String, Quantity>>,
    priority_classes: BTreeMap<Arc<str>, (i32, bool)>,
    workload_priority_classes: BTreeMap<Arc<str>, i32>,
    topologies: BTreeMap<Arc<str>, records::Meta>,
    flavors: BTreeMap<Arc<str>, FlavorRecord>,
    checks: BTreeMap<Arc<str>, CheckRecord>,
    /// MultiKueueClusters.
    workers: BTreeMap<Arc<str>, WorkerRecord>,
    provisioning: provisioning::Provisioning,
    nodes: nodes::Nodes,
    pods: pods::Pods,
    cohorts: BTreeMap<Arc<str>, CohortRecord>,
    cluster_queues: BTreeMap<Arc<str>, ClusterQueueRecord>,
    local_queues: BTreeMap<ObjectKey, LocalQueueRecord>,
    workloads: ByKey<Arc<WorkloadRecord>>,
    jobs: BTreeMap<(usize, ObjectKey), Arc<JobView>>,
    /// Jobs by UID.
    job_by_uid: BTreeMap<Arc<str>, (usize, ObjectKey)>,
    /// Workloads by the UID of their owner: rarely more than one, in order.
    workloads_by_owner: BTreeMap<Arc<str>, Vec<ObjectKey>>,
    /// Workloads that are not finished, by LocalQueue.
    workloads_by_queue: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// LocalQueues by ClusterQueue.
    queues_by_cluster_queue: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    templates: Templates,
    engine: Engine,
    /// ClusterQueues as the scheduler has them.
    configured: BTreeMap<Arc<str>, scheduler::ClusterQueue>,
    tallies: tallies::Tallies,
    assumed: BTreeMap<ObjectKey, Assumed>,
    /// Second passes that are due or under way.
    passes: passes::Passes,
    #[cfg(feature = "moments")]
    captured: unguarded::Captured,
    /// Jobs and Workloads with checks of the deltas at hand: Workloads and pod templates are made from the objects themselves.
    raw: BTreeMap<(Kind, ObjectKey), Value>,
    dirty: BTreeSet<Item>,
    timers: Timers<Item>,
    writes: Writes,
    /// Those admitted whose pods are not ready, where admissions wait for them.
    unready: BTreeSet<ObjectKey>,
    /// Workloads whose next write waits for room.
    turns: turns::Turns,
    allowance: allowance::Allowance,
    /// When Workloads may be told again what they were not told yet.
    news_due: Option<Timestamp>,
    /// When cycles go on that were left for what came meanwhile.
    cycles_due: Option<Timestamp>,
    queue_clock: queue_status::Clock,
    published: Published,
    effects: Vec<Effect>,
    tombstones: tombstones::Tombstones,
    /// What was already told of objects that stay as they are, so that it is told once.
    told: BTreeMap<(Kind, ObjectKey), String>,
    /// What was already told of the checks of Workloads.
    told_checks: BTreeMap<ObjectKey, String>,
    /// What keeps objects from being read.
    unreadable: BTreeMap<(Kind, ObjectKey), Unreadable>,
}

impl State {
    /// An empty state.
    pub fn new(settings: Settings) -> Self {
        let told_per_second = settings.told_per_second;
        Self {
            engine: Engine::new(settings.engine.clone()),
            kinds: settings.kinds(),
            settings,
            leading: false,
            listed: BTreeSet::new(),
            synced: false,
            relisting: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            limit_ranges: BTreeMap::new(),
            limits: BTreeMap::new(),
            runtime_classes: BTreeMap::new(),
            priority_classes: BTreeMap::new(),
            workload_priority_classes: BTreeMap::new(),
            topologies: BTreeMap::new(),
            flavors: BTreeMap::new(),
            checks: BTreeMap::new(),
            workers: BTreeMap::new(),
            provisioning: provisioning::Provisioning::default(),
            nodes: nodes::Nodes::default(),
            pods: pods::Pods::default(),
            cohorts: BTreeMap::new(),
            cluster_queues: BTreeMap::new(),
            local_queues: BTreeMap::new(),
            workloads: ByKey::default(),
            jobs: BTreeMap::new(),
            job_by_uid: BTreeMap::new(),
            workloads_by_owner: BTreeMap::new(),
            workloads_by_queue: BTreeMap::new(),
            queues_by_cluster_queue: BTreeMap::new(),
            templates: Templates::default(),
            configured: BTreeMap::new(),
            tallies: tallies::Tallies::default(),
            assumed: BTreeMap::new(),
            passes: passes::Passes::default(),
            #[cfg(feature = "moments")]
            captured: unguarded::Captured::default(),
            raw: BTreeMap::new(),
            dirty: BTreeSet::new(),
            timers: Timers::default(),
            writes: Writes::default(),
            unready: BTreeSet::new(),
            turns: turns::Turns::default(),
            allowance: allowance::Allowance::new(told_per_second),
            news_due: None,
            cycles_due: None,
            queue_clock: queue_status::Clock::default(),
            published: Published::default(),
            effects: Vec::new(),
            tombstones: tombstones::Tombstones::default(),
            told: BTreeMap::new(),
            told_checks: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Takes in one delta and says what to do. Total: bad input ends in an event on the object that it came with.
    pub fn apply(&mut self, delta: Delta, now: Timestamp) -> Vec<Effect> {
        self.apply_all([delta], now)
    }

    /// The same with several deltas that are decided on together.
    pub fn apply_all(&mut self, deltas: impl IntoIterator<Item = Delta>, now: Timestamp) -> Vec<Effect> {
        for delta in deltas {
            self.take_in(delta, now);
        }
        self.settle(now);
        self.raw.clear();
        std::mem::take(&mut self.effects)
    }

    fn take_in(&mut self, delta: Delta, now: Timestamp) {
        match delta {
            Delta::Applied { kind, object } => self.ingest(kind, object, None),
            Delta::Workload(object) => self.ingest_workload(&object),
            Delta::Deleted { kind, key, uid } => self.bury(kind, &key, Some(&uid)),
            Delta::Restarted { kind } => {
                self.relisting.insert(kind, BTreeSet::new());
            }
            Delta::Synced { kind } => self.finish_list(kind),
            Delta::Written(result) => self.take_result(result, now),
            Delta::Leading(leading) => self.lead(leading),
            Delta::Tick => {}
        }
    }

    /// When `Tick` is wanted at the latest.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.leading {
            return None;
        }
        let expiry = self.engine.next_expiry();
        self.timers.next().into_iter().chain(expiry).chain(self.news_due).chain(self.cycles_due).min()
    }

    /// Whether the first lists of all kinds are complete.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The kinds that it wants to be told of.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Whether this replica may write.
    pub fn leading(&self) -> bool {
        self.leading
    }

    /// Starts or stops acting. A new leader looks at everything once; a deposed one forgets what it had assumed.
    fn lead(&mut self, leading: bool) {
        self.leading = leading;
        self.writes.clear();
        self.turns.clear();
        for key in std::mem::take(&mut self.assumed).into_keys() {
            self.engine.release(&key);
            self.dirty.insert(Item::Workload(key));
        }
        self.dirty.extend(self.passes.clear().into_iter().map(Item::Workload));
        if leading {
            self.tell_all_unreadable();
            self.dirty.extend(self.everything());
        }
    }

    fn everything(&self) -> Vec<Item> {
        let cluster_queues = self.cluster_queues.keys().cloned().map(Item::ClusterQueue);
        let cohorts = self.cohorts.keys().cloned().map(Item::Cohort);
        let local_queues = self.local_queues.keys().cloned().map(Item::LocalQueue);
        let flavors = self.flavors.keys().cloned().map(Item::Flavor);
        let checks = self.checks.keys().cloned().map(Item::Check);
        let workers = self.workers.keys().cloned().map(Item::Worker);
        let topologies = self.topologies.keys().cloned().map(Item::Topology);
        let jobs = self.jobs.keys().cloned().map(|(kind, key)| Item::Job(kind, key));
        let workloads = self.workloads.keys().cloned().map(Item::Workload);
        let pods = self.pods.workloads().cloned().map(Item::Pods);
        cluster_queues
            .chain(cohorts)
            .chain(local_queues)
            .chain(flavors)
            .chain(checks)
            .chain(workers)
            .chain(topologies)
            .chain(jobs)
            .chain(workloads)
            .chain(pods)
            .collect()
    }

    /// Objects that a complete list did not hold are gone.
    fn finish_list(&mut self, kind: Kind) {
        if let Some(seen) = self.relisting.remove(&kind) {
            for key in self.keys(kind) {
                if !seen.contains(&key) {
                    self.bury(kind, &key, None);
                }
            }
        }
        self.listed.insert(kind);
        self.synced = self.kinds.iter().all(|kind| self.listed.contains(kind));
    }

    /// Keys of the objects of a kind.
    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        let names = |names: Vec<Arc<str>>| names.iter().map(|name| ObjectKey::cluster(name)).collect();
        match kind {
            Kind::Namespace => names(self.namespaces.keys().cloned().collect()),
            Kind::LimitRange => self.limit_ranges.keys().cloned().collect(),
            Kind::RuntimeClass => names(self.runtime_classes.keys().cloned().collect()),
            Kind::PriorityClass => names(self.priority_classes.keys().cloned().collect()),
            Kind::ResourceFlavor => names(self.flavors.keys().cloned().collect()),
            Kind::Topology => names(self.topologies.keys().cloned().collect()),
            Kind::AdmissionCheck => names(self.checks.keys().cloned().collect()),
            Kind::MultiKueueCluster => names(self.workers.keys().cloned().collect()),
            Kind::WorkloadPriorityClass => names(self.workload_priority_classes.keys().cloned().collect()),
            Kind::Cohort => names(self.cohorts.keys().cloned().collect()),
            Kind::ClusterQueue => names(self.cluster_queues.keys().cloned().collect()),
            Kind::LocalQueue => self.local_queues.keys().cloned().collect(),
            Kind::Workload => self.workloads.keys().cloned().collect(),
            Kind::ProvisioningRequestConfig | Kind::ProvisioningRequest | Kind::PodTemplate => {
                self.provisioning.keys(kind)
            }
            Kind::Node => names(self.nodes.names().cloned().collect()),
            Kind::Pod => self.pods.keys().cloned().collect(),
            Kind::Job(index) => {
                self.jobs.keys().filter(|(i, _)| *i == index).map(|(_, key)| key.clone()).collect()
            }
        }
    }
}
