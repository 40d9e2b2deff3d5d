//! The state of the core: what the objects say, what was decided and not yet confirmed, and what is to be done next.
//!
//! One owner calls `apply_all` with what came meanwhile and carries out the effects. Invariants:
//! - the ledger follows from reservations alone: what objects say, plus decisions whose write is under way (I1);
//! - at most one write per object is under way, and it carries the resourceVersion that it was decided on (I12);
//! - an object that cannot be read, and a write that fails, concern that object alone (I23);
//! - before all lists are complete nothing is decided, and without leadership nothing is written (I16, I17).

mod ingest;
mod ingest_workload;
mod job;
mod membership;
mod messages;
mod nodes;
mod provisioning;
mod publish;
mod queues;
mod removal;
mod schedule;
pub mod second_pass;
mod settings;
mod workload;
mod writes;

pub use messages::{
    Delta, Effect, Event, Observation, ObservationLabels, Verb, Write, WriteOutcome, WriteResult,
};
pub use settings::{CoreGates, CoreSettings};

use crate::api::{ByKey, ObjectKey};
use crate::cache::Kind;
use crate::cache::interned_templates::InternedTemplates;
use crate::cache::records::{
    self, CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord,
    MultiKueueClusterRecord, WorkloadRecord,
};
use crate::cache::tombstones;
use crate::frameworks::JobView;
use crate::resources::limit_range::LimitRangeSummary;
use crate::scheduler::{self, Engine};
use crate::snapshot::SnapshotBuilder;
use ingest::UnreadableObject;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use membership::assumed::AssumedAdmission;
use nodes::pods;
use queues::{counts as tallies, status as queue_status};
use second_pass::queue as passes;
#[cfg(feature = "failpoints")]
use second_pass::unguarded;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use writes::in_flight::InFlightWrites;
use writes::timers::Timers;
use writes::{status_rate_limit as allowance, workload_queue as turns};

/// Something that may need a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReconcileKey {
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
    MultiKueueCluster(Arc<str>),
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
pub struct Reconciler {
    settings: CoreSettings,
    leading: bool,
    /// Kinds that are followed.
    kinds: Vec<Kind>,
    /// Kinds whose first list is complete.
    listed_kinds: BTreeSet<Kind>,
    /// Whether the first lists of all kinds are complete.
    synced: bool,
    /// Keys seen since a list was started.
    relisted_keys: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    namespaces: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    limit_ranges: BTreeMap<ObjectKey, LimitRange>,
    /// The LimitRanges of each namespace as one.
    limit_range_summaries: BTreeMap<Arc<str>, LimitRangeSummary>,
    /// Overhead of pods by RuntimeClass.
    runtime_classes: BTreeMap<Arc<str>, BTreeMap<String, Quantity>>,
    priority_classes: BTreeMap<Arc<str>, (i32, bool)>,
    workload_priority_classes: BTreeMap<Arc<str>, i32>,
    topologies: BTreeMap<Arc<str>, records::Meta>,
    flavors: BTreeMap<Arc<str>, FlavorRecord>,
    admission_checks: BTreeMap<Arc<str>, CheckRecord>,
    /// MultiKueueClusters.
    multikueue_clusters: BTreeMap<Arc<str>, MultiKueueClusterRecord>,
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
    interned: InternedTemplates,
    engine: Engine,
    /// ClusterQueues as the scheduler has them.
    configured_cluster_queues: BTreeMap<Arc<str>, scheduler::ClusterQueue>,
    queue_counts: tallies::QueueCountIndex,
    assumed: BTreeMap<ObjectKey, AssumedAdmission>,
    /// Second passes that are due or under way.
    second_passes: passes::SecondPassQueue,
    #[cfg(feature = "failpoints")]
    stale_objects: unguarded::StaleObjects,
    /// Jobs and Workloads with checks of the deltas at hand: Workloads and pod templates are made from the objects themselves.
    raw_objects: BTreeMap<(Kind, ObjectKey), Value>,
    dirty: BTreeSet<ReconcileKey>,
    timers: Timers<ReconcileKey>,
    in_flight_writes: InFlightWrites,
    /// Those admitted whose pods are not ready, where admissions wait for them.
    not_ready_workloads: BTreeSet<ObjectKey>,
    /// Workloads whose next write waits for room.
    workload_write_queue: turns::WorkloadWriteQueue,
    status_rate_limiter: allowance::StatusRateLimiter,
    /// When Workloads may be told again what they were not told yet.
    next_message_update: Option<Timestamp>,
    /// When cycles go on that were left for what came meanwhile.
    resume_cycles_at: Option<Timestamp>,
    status_schedule: queue_status::StatusSchedule,
    snapshot_builder: SnapshotBuilder,
    effects: Vec<Effect>,
    tombstones: tombstones::Tombstones,
    /// What was already told of objects that stay as they are, so that it is told once.
    reported_warnings: BTreeMap<(Kind, ObjectKey), String>,
    /// What was already told of the checks of Workloads.
    reported_check_messages: BTreeMap<ObjectKey, String>,
    /// What keeps objects from being read.
    unreadable: BTreeMap<(Kind, ObjectKey), UnreadableObject>,
}

impl Reconciler {
    /// An empty state.
    pub fn new(settings: CoreSettings) -> Self {
        let told_per_second = settings.status_writes_per_second;
        Self {
            engine: Engine::new(settings.engine.clone()),
            kinds: settings.kinds(),
            settings,
            leading: false,
            listed_kinds: BTreeSet::new(),
            synced: false,
            relisted_keys: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            limit_ranges: BTreeMap::new(),
            limit_range_summaries: BTreeMap::new(),
            runtime_classes: BTreeMap::new(),
            priority_classes: BTreeMap::new(),
            workload_priority_classes: BTreeMap::new(),
            topologies: BTreeMap::new(),
            flavors: BTreeMap::new(),
            admission_checks: BTreeMap::new(),
            multikueue_clusters: BTreeMap::new(),
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
            interned: InternedTemplates::default(),
            configured_cluster_queues: BTreeMap::new(),
            queue_counts: tallies::QueueCountIndex::default(),
            assumed: BTreeMap::new(),
            second_passes: passes::SecondPassQueue::default(),
            #[cfg(feature = "failpoints")]
            stale_objects: unguarded::StaleObjects::default(),
            raw_objects: BTreeMap::new(),
            dirty: BTreeSet::new(),
            timers: Timers::default(),
            in_flight_writes: InFlightWrites::default(),
            not_ready_workloads: BTreeSet::new(),
            workload_write_queue: turns::WorkloadWriteQueue::default(),
            status_rate_limiter: allowance::StatusRateLimiter::new(told_per_second),
            next_message_update: None,
            resume_cycles_at: None,
            status_schedule: queue_status::StatusSchedule::default(),
            snapshot_builder: SnapshotBuilder::default(),
            effects: Vec::new(),
            tombstones: tombstones::Tombstones::default(),
            reported_warnings: BTreeMap::new(),
            reported_check_messages: BTreeMap::new(),
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
            self.handle_delta(delta, now);
        }
        self.reconcile(now);
        self.raw_objects.clear();
        std::mem::take(&mut self.effects)
    }

    fn handle_delta(&mut self, delta: Delta, now: Timestamp) {
        match delta {
            Delta::Applied { kind, object } => self.ingest(kind, object, None),
            Delta::Workload(object) => self.ingest_workload(&object),
            Delta::Deleted { kind, key, uid } => self.record_deletion(kind, &key, Some(&uid)),
            Delta::Restarted { kind } => {
                self.relisted_keys.insert(kind, BTreeSet::new());
            }
            Delta::Synced { kind } => self.finish_list(kind),
            Delta::Written(result) => self.handle_write_result(result, now),
            Delta::Leading(leading) => self.set_leading(leading),
            Delta::Tick => {}
        }
    }

    /// When `Tick` is wanted at the latest.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.leading {
            return None;
        }
        let expiry = self.engine.next_reservation_expiry();
        self.timers
            .next()
            .into_iter()
            .chain(expiry)
            .chain(self.next_message_update)
            .chain(self.resume_cycles_at)
            .min()
    }

    /// Whether the first lists of all kinds are complete.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The kinds that it wants to be told of.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Whether this replica may write.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Starts or stops acting. A new leader looks at everything once; a deposed one forgets what it had assumed.
    fn set_leading(&mut self, leading: bool) {
        self.leading = leading;
        self.in_flight_writes.clear();
        self.workload_write_queue.clear();
        for key in std::mem::take(&mut self.assumed).into_keys() {
            self.engine.release(&key);
            self.dirty.insert(ReconcileKey::Workload(key));
        }
        self.dirty.extend(self.second_passes.clear().into_iter().map(ReconcileKey::Workload));
        if leading {
            self.report_all_unreadable();
            self.dirty.extend(self.all_keys());
        }
    }

    fn all_keys(&self) -> Vec<ReconcileKey> {
        let cluster_queues = self.cluster_queues.keys().cloned().map(ReconcileKey::ClusterQueue);
        let cohorts = self.cohorts.keys().cloned().map(ReconcileKey::Cohort);
        let local_queues = self.local_queues.keys().cloned().map(ReconcileKey::LocalQueue);
        let flavors = self.flavors.keys().cloned().map(ReconcileKey::Flavor);
        let checks = self.admission_checks.keys().cloned().map(ReconcileKey::Check);
        let workers = self.multikueue_clusters.keys().cloned().map(ReconcileKey::MultiKueueCluster);
        let topologies = self.topologies.keys().cloned().map(ReconcileKey::Topology);
        let jobs = self.jobs.keys().cloned().map(|(kind, key)| ReconcileKey::Job(kind, key));
        let workloads = self.workloads.keys().cloned().map(ReconcileKey::Workload);
        let pods = self.pods.workloads().cloned().map(ReconcileKey::Pods);
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
        if let Some(seen) = self.relisted_keys.remove(&kind) {
            for key in self.keys(kind) {
                if !seen.contains(&key) {
                    self.record_deletion(kind, &key, None);
                }
            }
        }
        self.listed_kinds.insert(kind);
        self.synced = self.kinds.iter().all(|kind| self.listed_kinds.contains(kind));
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
            Kind::AdmissionCheck => names(self.admission_checks.keys().cloned().collect()),
            Kind::MultiKueueCluster => names(self.multikueue_clusters.keys().cloned().collect()),
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
