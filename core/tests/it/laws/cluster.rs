//! A simulated cluster around the engine: configuration, workloads that arrive, change, finish and fail, a clock, and victims
//! that terminate late. It keeps its own record of usage, from the events and decisions alone.

use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, Node, Quota};
use crate::fixtures::builders::{
    COHORTS, FLAVORS, QUEUES, RESOURCES, cohort, key, limits, pod_set, queue, workload,
};
use jiff::{SignedDuration, Timestamp};
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, FlavorFungibility, QueueingStrategy,
    ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::resources::Amount;
use sluice_core::scheduler::{
    Charge, ClusterQueue, Cohort, Engine, EngineSettings, FairStrategy, Flavor, FlavorResource, Workload,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Number of different workload names.
pub(super) const WORKLOAD_NAMES: usize = 14;

/// Queueing strategy, preemption policies and flavor order of a queue.
#[derive(Clone, Debug)]
pub(super) struct QueuePolicies {
    pub(super) strict: bool,
    pub(super) within_cluster_queue: WithinClusterQueuePolicy,
    pub(super) reclaim_within_cohort: ReclaimPolicy,
    /// Highest priority that may be preempted while borrowing, if any; `i32::MAX` means no threshold.
    pub(super) borrow_threshold: Option<i32>,
    pub(super) fungibility: FlavorFungibility,
}

/// Configuration of a node; quotas by flavor and resource.
#[derive(Clone)]
pub(super) struct TreeNodeSpec {
    pub(super) parent: Option<usize>,
    pub(super) flavors: Vec<[Quota; 2]>,
    pub(super) weight: f64,
    pub(super) rules: QueuePolicies,
}

#[derive(Clone)]
pub(super) struct WorkloadSpec {
    pub(super) index: usize,
    pub(super) queue: usize,
    pub(super) priority: i64,
    pub(super) second: i64,
    pub(super) count: i32,
    pub(super) requests: [i64; 2],
    pub(super) allows_partial: bool,
}

/// One step of a history.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Cohort(usize, Option<TreeNodeSpec>),
    Queue(usize, Option<TreeNodeSpec>),
    /// A workload arrives, or a pending one changes.
    Create(WorkloadSpec),
    Delete(usize),
    /// The n-th reserving workload finishes; n is taken modulo their number.
    Finish(usize),
    /// It releases half of its quota.
    ReclaimHalf(usize),
    /// The write of its admission fails: it is pending again.
    FailWrite(usize),
    /// The n-th victim terminates and is pending again.
    ReleaseVictim(usize),
    Tick(i64),
    Cycle,
}

pub(super) struct Cluster {
    pub(super) engine: Engine,
    pub(super) model: FastModel,
    pub(super) queues: BTreeMap<usize, TreeNodeSpec>,
    cohorts: BTreeMap<usize, TreeNodeSpec>,
    /// All workloads, pending or reserving.
    pub(super) workloads: BTreeMap<String, Workload>,
    pub(super) reserved: BTreeMap<String, (usize, Amounts)>,
    pub(super) now: Timestamp,
    settings: EngineSettings,
    /// Number of cycles so far.
    pub(super) cycles: usize,
}

pub(super) fn queue_index(name: &str) -> usize {
    QUEUES.iter().position(|queue| *queue == name).expect("a queue of this world")
}

pub(super) fn flavor_resource(index: usize) -> FlavorResource {
    FlavorResource::new(FLAVORS[index / 2], RESOURCES[index % 2])
}

pub(super) fn sum_amounts<'a>(usage: impl Iterator<Item = (&'a FlavorResource, i128)>) -> Amounts {
    let mut sums = [0; FLAVOR_RESOURCES];
    for (fr, amount) in usage {
        let index = (0..FLAVOR_RESOURCES)
            .find(|index| flavor_resource(*index) == *fr)
            .expect("a flavor-resource of this world");
        sums[index] += amount;
    }
    sums
}

/// On one line, so that a failing history can be read.
impl fmt::Debug for TreeNodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueuePolicies {
            strict,
            within_cluster_queue: within,
            reclaim_within_cohort: reclaim,
            borrow_threshold: borrow,
            fungibility,
        } = &self.rules;
        write!(f, "up {:?} weight {} strict {strict} {within:?} {reclaim:?} ", self.parent, self.weight)?;
        let FlavorFungibility { when_can_borrow, when_can_preempt, preference } = fungibility;
        write!(f, "{borrow:?} {when_can_borrow:?} {when_can_preempt:?} {preference:?}")?;
        for (flavor, quotas) in FLAVORS.iter().zip(&self.flavors) {
            for (resource, quota) in RESOURCES.iter().zip(quotas) {
                let Quota { nominal, borrowing, lending } = quota;
                write!(f, " {flavor}/{resource}: {nominal} {borrowing:?} {lending:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, queue, priority, second, count, requests: [cpu, gpu], allows_partial: partial } =
            self;
        write!(
            f,
            "w{index} q{queue} priority {priority} at {second}: {count} x {cpu} cpu {gpu} gpu partial {partial}"
        )
    }
}

impl TreeNodeSpec {
    fn node(&self) -> Node {
        let mut node = Node { parent: self.parent, ..Node::default() };
        for (flavor, quotas) in self.flavors.iter().enumerate() {
            for (resource, quota) in quotas.iter().enumerate() {
                node.quotas[flavor * 2 + resource] = *quota;
            }
        }
        node
    }

    fn groups(&self) -> Vec<ResourceGroup> {
        let small = |amount: i128| i64::try_from(amount).unwrap();
        let quota = |(name, quota): (&&str, &Quota)| {
            let limits = limits(small(quota.nominal), quota.borrowing.map(small), quota.lending.map(small));
            (Arc::from(*name), limits)
        };
        let flavor = |(name, quotas): (&&str, &[Quota; 2])| FlavorQuotas {
            name: Arc::from(*name),
            limits: RESOURCES.iter().zip(quotas).map(quota).collect(),
        };
        let flavors: Vec<FlavorQuotas> = FLAVORS.iter().zip(&self.flavors).map(flavor).collect();
        if flavors.is_empty() { Vec::new() } else { vec![ResourceGroup::from_flavors(flavors)] }
    }

    pub(super) fn queue(&self) -> ClusterQueue {
        let rules = &self.rules;
        let borrow = |most: i32| BorrowWithinCohort {
            policy: Some(BorrowPolicy::LowerPriority),
            max_priority_threshold: Some(most).filter(|most| *most < i32::MAX),
        };
        ClusterQueue {
            strategy: if rules.strict {
                QueueingStrategy::StrictFIFO
            } else {
                QueueingStrategy::BestEffortFIFO
            },
            preemption: ClusterQueuePreemption {
                within_cluster_queue: Some(rules.within_cluster_queue),
                reclaim_within_cohort: Some(rules.reclaim_within_cohort),
                borrow_within_cohort: rules.borrow_threshold.map(borrow),
            },
            fungibility: rules.fungibility.clone(),
            weight: Some(self.weight),
            ..queue(self.parent.map(|up| COHORTS[up]), self.groups())
        }
    }

    pub(super) fn cohort(&self) -> Cohort {
        let weight = Some(self.weight);
        Cohort { weight, ..cohort(self.parent.map(|up| COHORTS[up]), self.groups()) }
    }
}

/// Engine settings with or without fair sharing.
pub(super) fn settings(fair: Option<Vec<FairStrategy>>) -> EngineSettings {
    EngineSettings { fair_sharing: fair, ..EngineSettings::default() }
}

impl Cluster {
    pub(super) fn new(settings: EngineSettings) -> Self {
        let mut fresh = Engine::new(settings.clone());
        for flavor in FLAVORS {
            fresh.set_flavor(flavor, Some(Flavor::default()));
        }
        fresh.set_namespace("ns", Some(BTreeMap::new()));
        Self {
            engine: fresh,
            model: FastModel::new(),
            queues: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            workloads: BTreeMap::new(),
            reserved: BTreeMap::new(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            settings,
            cycles: 0,
        }
    }

    /// Returns a cluster built from the present state alone, without pending workloads.
    pub(super) fn rebuilt(&self) -> Self {
        let mut fresh = Self::new(self.settings.clone());
        fresh.now = self.now;
        for (index, spec) in &self.cohorts {
            fresh.apply(&Event::Cohort(*index, Some(spec.clone())));
        }
        for (index, spec) in &self.queues {
            fresh.apply(&Event::Queue(*index, Some(spec.clone())));
        }
        for (key, charge) in self.engine.charges() {
            fresh.engine.charge(key, charge.clone());
        }
        fresh.reserved.clone_from(&self.reserved);
        fresh
    }

    /// Applies any event except a cycle.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Cohort(index, spec) => {
                self.model.nodes[*index] = spec.as_ref().map(TreeNodeSpec::node).unwrap_or_default();
                self.engine.set_cohort(COHORTS[*index], spec.as_ref().map(TreeNodeSpec::cohort));
                set_or_remove(&mut self.cohorts, *index, spec.clone());
            }
            Event::Queue(index, spec) => {
                self.model.nodes[COHORTS.len() + index] =
                    spec.as_ref().map(TreeNodeSpec::node).unwrap_or_default();
                self.engine.set_cluster_queue(QUEUES[*index], spec.as_ref().map(TreeNodeSpec::queue));
                set_or_remove(&mut self.queues, *index, spec.clone());
            }
            Event::Create(spec) => {
                let created = spec.workload();
                if !self.reserved.contains_key(&*created.key.name) {
                    self.engine.enqueue(created.clone());
                    self.workloads.insert(created.key.name.to_string(), created);
                }
            }
            Event::Delete(index) => {
                let name = format!("w{index}");
                self.engine.remove_pending(&key(&name));
                self.engine.release(&key(&name));
                self.workloads.remove(&name);
                self.reserved.remove(&name);
            }
            Event::Finish(index) => {
                if let Some(name) = nth_name(self.reserved.keys(), *index) {
                    self.engine.release(&key(&name));
                    self.reserved.remove(&name);
                    self.workloads.remove(&name);
                }
            }
            Event::ReclaimHalf(index) => self.halve_usage(*index),
            Event::FailWrite(index) => {
                if let Some(name) = nth_name(self.reserved.keys(), *index) {
                    self.requeue(&name);
                }
            }
            Event::ReleaseVictim(index) => {
                let evicted: Vec<String> = self.evicted_names().collect();
                if let Some(name) = nth_name(evicted.iter(), *index) {
                    self.requeue(&name);
                }
            }
            Event::Tick(seconds) => self.now += SignedDuration::from_secs(*seconds),
            Event::Cycle => {}
        }
    }

    fn requeue(&mut self, name: &str) {
        self.engine.release(&key(name));
        self.reserved.remove(name);
        self.engine.enqueue(self.workloads[name].clone());
    }

    fn halve_usage(&mut self, index: usize) {
        let Some(name) = nth_name(self.reserved.keys(), index) else { return };
        let (queue, all) = self.reserved[&name];
        let half = all.map(|amount| amount / 2);
        let usage = (0..FLAVOR_RESOURCES)
            .filter(|index| half[*index] > 0)
            .map(|index| (flavor_resource(index), Amount::saturating_from_i128(half[index])));
        let old = self.engine.charge_of(&key(&name)).expect("it has a charge").clone();
        let charge = Charge { usage: usage.collect(), reserved_at: Some(self.now), ..old };
        self.engine.charge(&key(&name), charge);
        self.reserved.insert(name, (queue, half));
    }

    /// Names of the workloads whose eviction has begun.
    pub(super) fn evicted_names(&self) -> impl Iterator<Item = String> {
        self.engine.charges().filter(|(_, charge)| charge.evicted).map(|(key, _)| key.name.to_string())
    }

    /// Marks the eviction of a reserving workload as begun; this is never undone.
    pub(super) fn mark_evicted(&mut self, name: &str) {
        if let Some(charge) = self.engine.charge_of(&key(name)).cloned() {
            self.engine.charge(&key(name), Charge { evicted: true, ..charge });
        }
    }

    /// Names of victims and of their preemptors.
    pub(super) fn victims(&self) -> BTreeMap<String, String> {
        let entry = |name: &String| {
            Some((name.clone(), self.engine.preemption_of(&key(name))?.preemptor.name.to_string()))
        };
        self.reserved.keys().filter_map(entry).collect()
    }

    /// Capacity reservations by the name of their workload.
    pub(super) fn reservations(&self) -> BTreeMap<String, (usize, Amounts)> {
        let entry = |(key, queue, usage): (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)| {
            let usage = sum_amounts(usage.iter().map(|(fr, amount)| (fr, amount.to_i128())));
            (key.name.to_string(), (queue_index(&queue), usage))
        };
        self.engine.reservations().map(entry).collect()
    }

    pub(super) fn is_classical(&self) -> bool {
        self.settings.fair_sharing.is_none()
    }

    /// Whether the workload is pending behind the head of a StrictFIFO queue.
    pub(super) fn is_behind_strict_head(&self, name: &str) -> bool {
        let queue = &self.workloads[name].cluster_queue;
        let strict = self.queues.get(&queue_index(queue)).is_some_and(|spec| spec.rules.strict);
        strict && self.engine.ahead_of(&key(name)) != Some(0)
    }

    pub(super) fn pending_names(&self) -> Vec<String> {
        self.workloads.keys().filter(|name| !self.reserved.contains_key(*name)).cloned().collect()
    }
}

fn set_or_remove<T>(map: &mut BTreeMap<usize, T>, index: usize, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(index, value)),
        None => drop(map.remove(&index)),
    }
}

fn nth_name<'a>(mut names: impl ExactSizeIterator<Item = &'a String>, index: usize) -> Option<String> {
    let number = names.len();
    names.nth(index % number.max(1)).cloned()
}

impl WorkloadSpec {
    pub(super) fn workload(&self) -> Workload {
        let mut set = pod_set("main", self.count, &[("cpu", self.requests[0]), ("gpu", self.requests[1])]);
        set.min_count = self.allows_partial.then_some(1);
        workload(&format!("w{}", self.index), QUEUES[self.queue], self.priority, self.second, vec![set])
    }
}
