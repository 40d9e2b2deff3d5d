//! A cluster played to the engine: configuration, jobs that come, change, end and fail, a clock, and victims that take
//! their time. It keeps books of its own, from what was done and what was decided.

use super::builders::{COHORTS, FLAVORS, QUEUES, RESOURCES, cohort, key, limits, pod_set, queue, workload};
use super::fast_model::{Amounts, FLAVOR_RESOURCES, FastModel, Node, Quota};
use jiff::{SignedDuration, Timestamp};
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, FlavorFungibility, QueueingStrategy,
    ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice::quota::{FlavorQuotas, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{
    Charge, ClusterQueue, Cohort, Engine, EngineSettings, FairStrategy, Flavor, FlavorResource, Workload,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Names that workloads may have.
pub(super) const WORKLOAD_NAMES: usize = 14;

/// Who may evict whom, and in which order flavors are tried.
#[derive(Clone, Debug)]
pub(super) struct QueuePolicies {
    pub(super) strict: bool,
    pub(super) within_cluster_queue: WithinClusterQueuePolicy,
    pub(super) reclaim_within_cohort: ReclaimPolicy,
    /// Highest priority that it may evict while it borrows, if any; the largest number stands for no threshold.
    pub(super) borrow_threshold: Option<i32>,
    pub(super) fungibility: FlavorFungibility,
}

/// What is configured of a node; quotas by flavor and resource.
#[derive(Clone)]
pub(super) struct TreeNodeSpec {
    pub(super) parent: Option<usize>,
    pub(super) flavors: Vec<[Quota; 2]>,
    pub(super) weight: f64,
    pub(super) rules: QueuePolicies,
}

/// What a workload asks for.
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

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Cohort(usize, Option<TreeNodeSpec>),
    Queue(usize, Option<TreeNodeSpec>),
    /// A workload comes, or one that waits changes.
    Create(WorkloadSpec),
    Delete(usize),
    /// The n-th of those that hold quota, counted around, has finished.
    Finish(usize),
    /// It gives half of its quota back.
    ReclaimHalf(usize),
    /// Its admission could not be written: it waits again.
    FailWrite(usize),
    /// The n-th victim has ended and waits again.
    ReleaseVictim(usize),
    Tick(i64),
    Cycle,
}

pub(super) struct Cluster {
    pub(super) engine: Engine,
    pub(super) model: FastModel,
    pub(super) queues: BTreeMap<usize, TreeNodeSpec>,
    cohorts: BTreeMap<usize, TreeNodeSpec>,
    /// All that ask, waiting or not.
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

pub(super) fn flavor_resource(at: usize) -> FlavorResource {
    FlavorResource::new(FLAVORS[at / 2], RESOURCES[at % 2])
}

pub(super) fn sum_amounts<'a>(usage: impl Iterator<Item = (&'a FlavorResource, i128)>) -> Amounts {
    let mut sums = [0; FLAVOR_RESOURCES];
    for (named, amount) in usage {
        let at =
            (0..FLAVOR_RESOURCES).find(|at| flavor_resource(*at) == *named).expect("a pair of this world");
        sums[at] += amount;
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
        let Self { index: at, queue, priority, second, count, requests: [cpu, gpu], allows_partial: partial } =
            self;
        write!(
            f,
            "w{at} q{queue} priority {priority} at {second}: {count} x {cpu} cpu {gpu} gpu partial {partial}"
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

    fn queue(&self) -> ClusterQueue {
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

    fn cohort(&self) -> Cohort {
        let weight = Some(self.weight);
        Cohort { weight, ..cohort(self.parent.map(|up| COHORTS[up]), self.groups()) }
    }
}

/// Settings with fair sharing, or without.
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

    /// A cluster that has seen nothing but the present state, with nobody waiting.
    pub(super) fn rebuilt(&self) -> Self {
        let mut fresh = Self::new(self.settings.clone());
        fresh.now = self.now;
        for (at, spec) in &self.cohorts {
            fresh.apply(&Event::Cohort(*at, Some(spec.clone())));
        }
        for (at, spec) in &self.queues {
            fresh.apply(&Event::Queue(*at, Some(spec.clone())));
        }
        for (key, charge) in self.engine.charges() {
            fresh.engine.charge(key, charge.clone());
        }
        fresh.reserved.clone_from(&self.reserved);
        fresh
    }

    /// Everything but cycles.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Cohort(at, spec) => {
                self.model.nodes[*at] = spec.as_ref().map(TreeNodeSpec::node).unwrap_or_default();
                self.engine.set_cohort(COHORTS[*at], spec.as_ref().map(TreeNodeSpec::cohort));
                set_or_remove(&mut self.cohorts, *at, spec.clone());
            }
            Event::Queue(at, spec) => {
                self.model.nodes[COHORTS.len() + at] =
                    spec.as_ref().map(TreeNodeSpec::node).unwrap_or_default();
                self.engine.set_cluster_queue(QUEUES[*at], spec.as_ref().map(TreeNodeSpec::queue));
                set_or_remove(&mut self.queues, *at, spec.clone());
            }
            Event::Create(wanted) => {
                let made = wanted.workload();
                if !self.reserved.contains_key(&*made.key.name) {
                    self.engine.enqueue(made.clone());
                    self.workloads.insert(made.key.name.to_string(), made);
                }
            }
            Event::Delete(at) => {
                let name = format!("w{at}");
                self.engine.remove_pending(&key(&name));
                self.engine.release(&key(&name));
                self.workloads.remove(&name);
                self.reserved.remove(&name);
            }
            Event::Finish(at) => {
                if let Some(name) = nth_name(self.reserved.keys(), *at) {
                    self.engine.release(&key(&name));
                    self.reserved.remove(&name);
                    self.workloads.remove(&name);
                }
            }
            Event::ReclaimHalf(at) => self.halve_usage(*at),
            Event::FailWrite(at) => {
                if let Some(name) = nth_name(self.reserved.keys(), *at) {
                    self.requeue(&name);
                }
            }
            Event::ReleaseVictim(at) => {
                let going: Vec<String> = self.evicted_names().collect();
                if let Some(name) = nth_name(going.iter(), *at) {
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

    fn halve_usage(&mut self, at: usize) {
        let Some(name) = nth_name(self.reserved.keys(), at) else { return };
        let (queue, all) = self.reserved[&name];
        let half = all.map(|amount| amount / 2);
        let usage = (0..FLAVOR_RESOURCES)
            .filter(|at| half[*at] > 0)
            .map(|at| (flavor_resource(at), Amount::saturating_from_i128(half[at])));
        let old = self.engine.charge_of(&key(&name)).expect("it holds quota").clone();
        let charge = Charge { usage: usage.collect(), reserved_at: Some(self.now), ..old };
        self.engine.charge(&key(&name), charge);
        self.reserved.insert(name, (queue, half));
    }

    /// Those whose eviction has begun.
    pub(super) fn evicted_names(&self) -> impl Iterator<Item = String> {
        self.engine.charges().filter(|(_, charge)| charge.evicted).map(|(key, _)| key.name.to_string())
    }

    /// The eviction of one that holds quota has begun; nothing takes that back.
    pub(super) fn mark_evicted(&mut self, name: &str) {
        if let Some(charge) = self.engine.charge_of(&key(name)).cloned() {
            self.engine.charge(&key(name), Charge { evicted: true, ..charge });
        }
    }

    /// Those who must go, and for whom.
    pub(super) fn victims(&self) -> BTreeMap<String, String> {
        let goes = |name: &String| {
            Some((name.clone(), self.engine.preemption_of(&key(name))?.preemptor.name.to_string()))
        };
        self.reserved.keys().filter_map(goes).collect()
    }

    /// Room that is kept, by the workload that it is kept for.
    pub(super) fn reservations(&self) -> BTreeMap<String, (usize, Amounts)> {
        let of = |(key, queue, usage): (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)| {
            let usage = sum_amounts(usage.iter().map(|(pair, amount)| (pair, amount.to_i128())));
            (key.name.to_string(), (queue_index(&queue), usage))
        };
        self.engine.reservations().map(of).collect()
    }

    pub(super) fn is_classical(&self) -> bool {
        self.settings.fair_sharing.is_none()
    }

    /// Whether somebody before it blocks its StrictFIFO queue.
    pub(super) fn is_behind_strict_head(&self, name: &str) -> bool {
        let queue = &self.workloads[name].cluster_queue;
        let strict = self.queues.get(&queue_index(queue)).is_some_and(|spec| spec.rules.strict);
        strict && self.engine.ahead_of(&key(name)) != Some(0)
    }

    /// Names of those that wait.
    pub(super) fn pending_names(&self) -> Vec<String> {
        self.workloads.keys().filter(|name| !self.reserved.contains_key(*name)).cloned().collect()
    }
}

fn set_or_remove<T>(map: &mut BTreeMap<usize, T>, at: usize, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(at, value)),
        None => drop(map.remove(&at)),
    }
}

fn nth_name<'a>(mut names: impl ExactSizeIterator<Item = &'a String>, at: usize) -> Option<String> {
    let number = names.len();
    names.nth(at % number.max(1)).cloned()
}

impl WorkloadSpec {
    pub(super) fn workload(&self) -> Workload {
        let mut set = pod_set("main", self.count, &[("cpu", self.requests[0]), ("gpu", self.requests[1])]);
        set.min_count = self.allows_partial.then_some(1);
        workload(&format!("w{}", self.index), QUEUES[self.queue], self.priority, self.second, vec![set])
    }
}
