//! A cluster played to the engine: configuration, jobs that come, change, end and fail, a clock, and victims that take
//! their time. It keeps books of its own, from what was done and what was decided.

use super::plain::{Amounts, Node, PAIRS, Plain, Quota};
use super::world::{COHORTS, FLAVORS, QUEUES, RESOURCES, cohort, key, limits, pods, queue, workload};
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
pub(super) const NAMES: usize = 14;

/// Who may evict whom, and in which order flavors are tried.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) strict: bool,
    pub(super) within: WithinClusterQueuePolicy,
    pub(super) reclaim: ReclaimPolicy,
    /// Highest priority that it may evict while it borrows, if any; the largest number stands for no threshold.
    pub(super) borrow: Option<i32>,
    pub(super) fungibility: FlavorFungibility,
}

/// What is configured of a node; quotas by flavor and resource.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) parent: Option<usize>,
    pub(super) flavors: Vec<[Quota; 2]>,
    pub(super) weight: f64,
    pub(super) rules: Rules,
}

/// What a workload asks for.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) at: usize,
    pub(super) queue: usize,
    pub(super) priority: i64,
    pub(super) second: i64,
    pub(super) count: i32,
    pub(super) each: [i64; 2],
    pub(super) partial: bool,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Cohort(usize, Option<Spec>),
    Queue(usize, Option<Spec>),
    /// A workload comes, or one that waits changes.
    Create(Wanted),
    Delete(usize),
    /// The n-th of those that hold quota, counted around, has finished.
    Finish(usize),
    /// It gives half of its quota back.
    Shrink(usize),
    /// Its admission could not be written: it waits again.
    Fail(usize),
    /// The n-th victim has ended and waits again.
    End(usize),
    Tick(i64),
    Cycle,
}

pub(super) struct Cluster {
    pub(super) engine: Engine,
    pub(super) plain: Plain,
    pub(super) specs: BTreeMap<usize, Spec>,
    cohorts: BTreeMap<usize, Spec>,
    /// All that ask, waiting or not.
    pub(super) wanted: BTreeMap<String, Workload>,
    pub(super) held: BTreeMap<String, (usize, Amounts)>,
    pub(super) now: Timestamp,
    settings: EngineSettings,
    /// Number of cycles so far.
    pub(super) cycles: usize,
}

pub(super) fn queue_at(name: &str) -> usize {
    QUEUES.iter().position(|queue| *queue == name).expect("a queue of this world")
}

pub(super) fn pair(at: usize) -> FlavorResource {
    FlavorResource::new(FLAVORS[at / 2], RESOURCES[at % 2])
}

pub(super) fn amounts<'a>(usage: impl Iterator<Item = (&'a FlavorResource, i128)>) -> Amounts {
    let mut sums = [0; PAIRS];
    for (named, amount) in usage {
        let at = (0..PAIRS).find(|at| pair(*at) == *named).expect("a pair of this world");
        sums[at] += amount;
    }
    sums
}

/// On one line, so that a failing history can be read.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { strict, within, reclaim, borrow, fungibility } = &self.rules;
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

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, queue, priority, second, count, each: [cpu, gpu], partial } = self;
        write!(
            f,
            "w{at} q{queue} priority {priority} at {second}: {count} x {cpu} cpu {gpu} gpu partial {partial}"
        )
    }
}

impl Spec {
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
        if flavors.is_empty() { Vec::new() } else { vec![ResourceGroup::of(flavors)] }
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
                within_cluster_queue: Some(rules.within),
                reclaim_within_cohort: Some(rules.reclaim),
                borrow_within_cohort: rules.borrow.map(borrow),
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
            plain: Plain::new(),
            specs: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            wanted: BTreeMap::new(),
            held: BTreeMap::new(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            settings,
            cycles: 0,
        }
    }

    /// A cluster that has seen nothing but the present state, with nobody waiting.
    pub(super) fn afresh(&self) -> Self {
        let mut fresh = Self::new(self.settings.clone());
        fresh.now = self.now;
        for (at, spec) in &self.cohorts {
            fresh.happen(&Event::Cohort(*at, Some(spec.clone())));
        }
        for (at, spec) in &self.specs {
            fresh.happen(&Event::Queue(*at, Some(spec.clone())));
        }
        for (key, charge) in self.engine.charges() {
            fresh.engine.charge(key, charge.clone());
        }
        fresh.held.clone_from(&self.held);
        fresh
    }

    /// Everything but cycles.
    pub(super) fn happen(&mut self, event: &Event) {
        match event {
            Event::Cohort(at, spec) => {
                self.plain.nodes[*at] = spec.as_ref().map(Spec::node).unwrap_or_default();
                self.engine.set_cohort(COHORTS[*at], spec.as_ref().map(Spec::cohort));
                set(&mut self.cohorts, *at, spec.clone());
            }
            Event::Queue(at, spec) => {
                self.plain.nodes[COHORTS.len() + at] = spec.as_ref().map(Spec::node).unwrap_or_default();
                self.engine.set_cluster_queue(QUEUES[*at], spec.as_ref().map(Spec::queue));
                set(&mut self.specs, *at, spec.clone());
            }
            Event::Create(wanted) => {
                let made = wanted.workload();
                if !self.held.contains_key(&*made.key.name) {
                    self.engine.enqueue(made.clone());
                    self.wanted.insert(made.key.name.to_string(), made);
                }
            }
            Event::Delete(at) => {
                let name = format!("w{at}");
                self.engine.forget(&key(&name));
                self.engine.release(&key(&name));
                self.wanted.remove(&name);
                self.held.remove(&name);
            }
            Event::Finish(at) => {
                if let Some(name) = nth(self.held.keys(), *at) {
                    self.engine.release(&key(&name));
                    self.held.remove(&name);
                    self.wanted.remove(&name);
                }
            }
            Event::Shrink(at) => self.shrink(*at),
            Event::Fail(at) => {
                if let Some(name) = nth(self.held.keys(), *at) {
                    self.queue_again(&name);
                }
            }
            Event::End(at) => {
                let going: Vec<String> = self.evicted().collect();
                if let Some(name) = nth(going.iter(), *at) {
                    self.queue_again(&name);
                }
            }
            Event::Tick(seconds) => self.now += SignedDuration::from_secs(*seconds),
            Event::Cycle => {}
        }
    }

    fn queue_again(&mut self, name: &str) {
        self.engine.release(&key(name));
        self.held.remove(name);
        self.engine.enqueue(self.wanted[name].clone());
    }

    fn shrink(&mut self, at: usize) {
        let Some(name) = nth(self.held.keys(), at) else { return };
        let (queue, all) = self.held[&name];
        let half = all.map(|amount| amount / 2);
        let usage = (0..PAIRS).filter(|at| half[*at] > 0).map(|at| (pair(at), Amount::from_wide(half[at])));
        let old = self.engine.charge_of(&key(&name)).expect("it holds quota").clone();
        let charge = Charge { usage: usage.collect(), reserved_at: Some(self.now), ..old };
        self.engine.charge(&key(&name), charge);
        self.held.insert(name, (queue, half));
    }

    /// Those whose eviction has begun.
    pub(super) fn evicted(&self) -> impl Iterator<Item = String> {
        self.engine.charges().filter(|(_, charge)| charge.evicted).map(|(key, _)| key.name.to_string())
    }

    /// The eviction of one that holds quota has begun; nothing takes that back.
    pub(super) fn evict(&mut self, name: &str) {
        if let Some(charge) = self.engine.charge_of(&key(name)).cloned() {
            self.engine.charge(&key(name), Charge { evicted: true, ..charge });
        }
    }

    /// Those who must go, and for whom.
    pub(super) fn leaving(&self) -> BTreeMap<String, String> {
        let goes = |name: &String| {
            Some((name.clone(), self.engine.preemption_of(&key(name))?.preemptor.name.to_string()))
        };
        self.held.keys().filter_map(goes).collect()
    }

    /// Room that is kept, by the workload that it is kept for.
    pub(super) fn kept(&self) -> BTreeMap<String, (usize, Amounts)> {
        let of = |(key, queue, usage): (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)| {
            let usage = amounts(usage.iter().map(|(pair, amount)| (pair, amount.wide())));
            (key.name.to_string(), (queue_at(&queue), usage))
        };
        self.engine.kept().map(of).collect()
    }

    pub(super) fn engine_is_classic(&self) -> bool {
        self.settings.fair_sharing.is_none()
    }

    /// Whether somebody before it blocks its StrictFIFO queue.
    pub(super) fn is_behind_a_strict_head(&self, name: &str) -> bool {
        let queue = &self.wanted[name].cluster_queue;
        let strict = self.specs.get(&queue_at(queue)).is_some_and(|spec| spec.rules.strict);
        strict && self.engine.ahead_of(&key(name)) != Some(0)
    }

    /// Names of those that wait.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.wanted.keys().filter(|name| !self.held.contains_key(*name)).cloned().collect()
    }
}

fn set<T>(map: &mut BTreeMap<usize, T>, at: usize, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(at, value)),
        None => drop(map.remove(&at)),
    }
}

fn nth<'a>(mut names: impl ExactSizeIterator<Item = &'a String>, at: usize) -> Option<String> {
    let number = names.len();
    names.nth(at % number.max(1)).cloned()
}

impl Wanted {
    pub(super) fn workload(&self) -> Workload {
        let mut set = pods("main", self.count, &[("cpu", self.each[0]), ("gpu", self.each[1])]);
        set.min_count = self.partial.then_some(1);
        workload(&format!("w{}", self.at), QUEUES[self.queue], self.priority, self.second, vec![set])
    }
}
