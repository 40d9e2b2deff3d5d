//! I8: any single change wakes a parked workload if an engine built from the changed state would admit it or preempt for it,
//! and both make the same decision.

use super::cluster::{TreeNodeSpec, WorkloadSpec, flavor_resource};
use super::strategies::{cohort_spec, queue_spec, small_numbers, workload_spec};
use crate::fixtures::builders::{
    COHORTS, FLAVORS, QUEUES, admission_fair_sharing_settings, charge, config, cpu_workload, engine_with,
    key, limits, queue, run_until_idle, single_flavor_group,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use proptest::prelude::*;
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::{BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, ReclaimPolicy};
use sluice_core::resources::Amount;
use sluice_core::scheduler::{
    Charge, ClusterQueue, Engine, EngineSettings, FairStrategy, Flavor, Inactive, LocalQueue, Outcome,
    Workload,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const CHARGES: usize = 6;
const LOCAL_QUEUES: [&str; 2] = ["lq", "other"];

/// One change of what an evaluation reads.
#[derive(Clone, Debug)]
enum Change {
    Cohort(usize, Option<TreeNodeSpec>),
    Queue(usize, Option<TreeNodeSpec>),
    Stop(usize, bool),
    Taint(usize, bool),
    /// Whether the namespace exists.
    Namespace(bool),
    /// Weight and past usage.
    LocalQueue(usize, u8, u8),
    Charge(usize, Option<ChargeSpec>),
    Priority(usize, i64),
    QueuedSince(usize, i64),
    ReservedAt(usize, Option<i64>),
    Evicted(usize, bool),
    Deactivated(usize, bool),
    OtherLocalQueue(usize, usize),
    /// Pods that will not run again.
    Reclaim(usize),
    PendingPriority(i64),
    /// The pending workload, or another one like it, that was queued at this time.
    PendingSince(bool, i64),
}

#[derive(Clone, Debug)]
struct ChargeSpec {
    queue: usize,
    usage: [i64; 4],
    priority: i64,
    since: i64,
    reserved: Option<i64>,
    local_queue: usize,
}

/// All that a fresh engine is built from.
#[derive(Clone, Debug)]
struct State {
    cohorts: BTreeMap<usize, TreeNodeSpec>,
    queues: BTreeMap<usize, TreeNodeSpec>,
    stopped: [bool; QUEUES.len()],
    tainted: [bool; FLAVORS.len()],
    has_namespace: bool,
    local_queues: BTreeMap<(usize, usize), (u8, u8)>,
    charges: BTreeMap<usize, Charge>,
    /// Pending workloads of one equivalence class, by name.
    pending: BTreeMap<String, Workload>,
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a small number of seconds")
}

fn charge_name(index: usize) -> String {
    format!("h{index}")
}

impl ChargeSpec {
    fn charge(&self, index: usize) -> Charge {
        let usage = self.usage.iter().enumerate().filter(|(_, amount)| **amount > 0);
        Charge {
            usage: usage.map(|(fr, amount)| (flavor_resource(fr), Amount::new(*amount))).collect(),
            uid: Arc::from(charge_name(index)),
            local_queue: Arc::from(LOCAL_QUEUES[self.local_queue]),
            priority: self.priority,
            queued_since: time(self.since),
            reserved_at: self.reserved.map(time),
            ..charge(QUEUES[self.queue], &[])
        }
    }
}

impl State {
    fn cluster_queue(&self, index: usize) -> Option<ClusterQueue> {
        let reason = || Inactive { reason: Arc::from("Stopped"), message: Arc::from("is stopped") };
        let inactive = self.stopped[index].then(reason);
        let spec = self.queues.get(&index)?;
        Some(ClusterQueue { inactive, orders_by_past_usage: index.is_multiple_of(2), ..spec.queue() })
    }

    fn local_queue(&self, queue: usize, index: usize) -> Option<LocalQueue> {
        let (weight, consumed) = self.local_queues.get(&(queue, index))?;
        Some(LocalQueue {
            cluster_queue: Arc::from(QUEUES[queue]),
            weight: Some(f64::from(*weight)),
            consumed: BTreeMap::from([(Arc::from("cpu"), f64::from(*consumed))]),
            sampled_at: None,
            stored_at: None,
        })
    }

    /// Changes the state and the engine alike.
    fn apply(&mut self, change: &Change, engine: &mut Engine) {
        match change {
            Change::Cohort(index, spec) => {
                set(&mut self.cohorts, *index, spec.clone());
                engine.set_cohort(COHORTS[*index], spec.as_ref().map(TreeNodeSpec::cohort));
            }
            Change::Queue(index, spec) => {
                set(&mut self.queues, *index, spec.clone());
                engine.set_cluster_queue(QUEUES[*index], self.cluster_queue(*index));
            }
            Change::Stop(index, stopped) => {
                self.stopped[*index] = *stopped;
                engine.set_cluster_queue(QUEUES[*index], self.cluster_queue(*index));
            }
            Change::Taint(index, tainted) => {
                self.tainted[*index] = *tainted;
                engine.set_flavor(FLAVORS[*index], Some(flavor(*tainted)));
            }
            Change::Namespace(exists) => {
                self.has_namespace = *exists;
                engine.set_namespace("ns", exists.then(BTreeMap::new));
            }
            Change::LocalQueue(index, weight, consumed) => {
                let (queue, name) =
                    (index / LOCAL_QUEUES.len() * 2 % QUEUES.len(), index % LOCAL_QUEUES.len());
                // Past usage of a known LocalQueue is the engine's own.
                let known = self.local_queues.get(&(queue, name)).map(|known| known.1);
                self.local_queues.insert((queue, name), (*weight, known.unwrap_or(*consumed)));
                engine.set_local_queue(&key(LOCAL_QUEUES[name]), self.local_queue(queue, name));
                self.local_queues.retain(|(other, known), _| *known != name || *other == queue);
            }
            Change::Charge(index, spec) => {
                set(&mut self.charges, *index, spec.as_ref().map(|spec| spec.charge(*index)));
                match self.charges.get(index) {
                    Some(charge) => engine.charge(&key(&charge_name(*index)), charge.clone()),
                    None => engine.release(&key(&charge_name(*index))),
                }
            }
            Change::Priority(index, priority) => self.edit(engine, *index, |c| c.priority = *priority),
            Change::QueuedSince(index, at) => self.edit(engine, *index, |c| c.queued_since = time(*at)),
            Change::ReservedAt(index, at) => self.edit(engine, *index, |c| c.reserved_at = at.map(time)),
            Change::Evicted(index, evicted) => self.edit(engine, *index, |c| c.evicted = *evicted),
            Change::Deactivated(index, is) => self.edit(engine, *index, |c| c.deactivated = *is),
            Change::OtherLocalQueue(index, name) => {
                self.edit(engine, *index, |c| c.local_queue = Arc::from(LOCAL_QUEUES[*name]));
            }
            Change::Reclaim(index) => self.edit(engine, *index, |charge| {
                charge.usage.values_mut().for_each(|amount| *amount = Amount::new(amount.get() / 2));
            }),
            Change::PendingPriority(priority) => {
                for workload in self.pending.values_mut() {
                    workload.priority = *priority;
                    engine.enqueue(workload.clone());
                }
            }
            Change::PendingSince(own, second) => {
                let first = self.pending.values().next().expect("one is pending").clone();
                let name = if *own { first.key.name.to_string() } else { "like".to_owned() };
                let changed = Workload {
                    key: key(&name),
                    uid: Arc::from(&*name),
                    queued_since: time(*second),
                    ..first
                };
                engine.enqueue(changed.clone());
                self.pending.insert(name, changed);
            }
        }
    }

    fn edit(&mut self, engine: &mut Engine, index: usize, change: impl FnOnce(&mut Charge)) {
        if let Some(charge) = self.charges.get_mut(&index) {
            change(charge);
            engine.charge(&key(&charge_name(index)), charge.clone());
        }
    }

    fn engine(&self, settings: &EngineSettings) -> Engine {
        let mut engine = Engine::new(settings.clone());
        for (index, tainted) in self.tainted.iter().enumerate() {
            engine.set_flavor(FLAVORS[index], Some(flavor(*tainted)));
        }
        engine.set_namespace("ns", self.has_namespace.then(BTreeMap::new));
        for (index, spec) in &self.cohorts {
            engine.set_cohort(COHORTS[*index], Some(spec.cohort()));
        }
        for (index, name) in QUEUES.iter().enumerate() {
            engine.set_cluster_queue(name, self.cluster_queue(index));
        }
        for (queue, name) in self.local_queues.keys() {
            engine.set_local_queue(&key(LOCAL_QUEUES[*name]), self.local_queue(*queue, *name));
        }
        for (index, charge) in &self.charges {
            engine.charge(&key(&charge_name(*index)), charge.clone());
        }
        for workload in self.pending.values() {
            engine.enqueue(workload.clone());
        }
        engine
    }
}

fn set<T>(map: &mut BTreeMap<usize, T>, index: usize, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(index, value)),
        None => drop(map.remove(&index)),
    }
}

fn flavor(tainted: bool) -> Flavor {
    let taint = || Taint { key: "t".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    Flavor { node_taints: tainted.then(taint).into_iter().collect(), ..Flavor::default() }
}

/// The first decision other than to wait: the workload, with what it gets or evicts.
fn first_decision(engine: &mut Engine) -> Option<String> {
    run_until_idle(engine).into_iter().find_map(|decision| match decision.outcome {
        Outcome::Admitted(assignment) => Some(format!("{} gets {assignment:?}", decision.key)),
        Outcome::Preempting(_, victims) => {
            let names: Vec<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
            Some(format!("{} evicts {names:?}", decision.key))
        }
        Outcome::Pending(verdict) if verdict.reason == PendingReason::WaitingForPreemptedWorkloads => {
            Some(format!("{} reserves capacity", decision.key))
        }
        _ => None,
    })
}

/// Applies changes until one lets the parked workload in. Returns that change.
fn follow(
    settings: &EngineSettings,
    mut state: State,
    changes: &[Change],
) -> Result<Option<Change>, TestCaseError> {
    let mut engine = state.engine(settings);
    if first_decision(&mut engine).is_some() {
        return Ok(None);
    }
    for change in changes {
        state.apply(change, &mut engine);
        let expected = first_decision(&mut state.engine(settings));
        let actual = first_decision(&mut engine);
        prop_assert_eq!(&actual, &expected, "after {:?} in {:?}", change, state);
        if actual.is_some() {
            return Ok(Some(change.clone()));
        }
    }
    Ok(None)
}

fn charge_spec() -> impl Strategy<Value = ChargeSpec> {
    let amount = || prop_oneof![1 => Just(0), 3 => 1..7_i64];
    let reserved = prop::option::weighted(0.8, 0..6_i64);
    (0..QUEUES.len(), [amount(), amount(), amount(), amount()], 0..4_i64, 0..6_i64, reserved, 0..2_usize)
        .prop_map(|(queue, usage, priority, since, reserved, local_queue)| ChargeSpec {
            queue,
            usage,
            priority,
            since,
            reserved,
            local_queue,
        })
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = small_numbers();
    let (queue, cohort) = (queue_spec(&numbers), numbers.clone());
    let cohort = (0..COHORTS.len()).prop_flat_map(move |index| {
        let spec = prop::option::weighted(0.8, cohort_spec(index, &cohort));
        spec.prop_map(move |spec| Change::Cohort(index, spec))
    });
    let at = || 0..CHARGES;
    prop_oneof![
        1 => cohort,
        2 => (0..QUEUES.len(), prop::option::weighted(0.9, queue)).prop_map(|(q, spec)| Change::Queue(q, spec)),
        1 => (0..QUEUES.len(), any::<bool>()).prop_map(|(queue, stopped)| Change::Stop(queue, stopped)),
        1 => (0..FLAVORS.len(), prop::bool::weighted(0.3)).prop_map(|(f, tainted)| Change::Taint(f, tainted)),
        1 => prop::bool::weighted(0.8).prop_map(Change::Namespace),
        2 => (0..4_usize, 0..3_u8, 0..9_u8).prop_map(|(lq, weight, used)| Change::LocalQueue(lq, weight, used)),
        2 => (at(), prop::option::weighted(0.7, charge_spec())).prop_map(|(n, spec)| Change::Charge(n, spec)),
        4 => (at(), -1..5_i64).prop_map(|(n, priority)| Change::Priority(n, priority)),
        3 => (at(), 0..6_i64).prop_map(|(n, second)| Change::QueuedSince(n, second)),
        3 => (at(), prop::option::weighted(0.8, 0..6_i64)).prop_map(|(n, second)| Change::ReservedAt(n, second)),
        2 => (at(), any::<bool>()).prop_map(|(n, evicted)| Change::Evicted(n, evicted)),
        1 => (at(), any::<bool>()).prop_map(|(n, is)| Change::Deactivated(n, is)),
        2 => (at(), 0..2_usize).prop_map(|(n, name)| Change::OtherLocalQueue(n, name)),
        1 => at().prop_map(Change::Reclaim),
        1 => (0..4_i64).prop_map(Change::PendingPriority),
        2 => (any::<bool>(), 0..6_i64).prop_map(|(own, second)| Change::PendingSince(own, second)),
    ]
}

fn state() -> impl Strategy<Value = State> {
    let numbers = small_numbers();
    let cohorts: Vec<_> = (0..COHORTS.len()).map(|index| cohort_spec(index, &numbers)).collect();
    let queue = (queue_spec(&numbers), prop::bool::weighted(0.7)).prop_map(|(mut spec, near)| {
        spec.parent = if near { Some(0) } else { spec.parent };
        spec
    });
    let queues = prop::collection::vec(queue, QUEUES.len());
    let charges = prop::collection::vec(charge_spec(), CHARGES);
    let pending = workload_spec(&numbers).prop_map(|spec: WorkloadSpec| spec.workload());
    (cohorts, queues, charges, pending).prop_map(|(cohorts, queues, charges, pending)| State {
        cohorts: cohorts.into_iter().enumerate().collect(),
        queues: queues.into_iter().enumerate().collect(),
        stopped: [false; QUEUES.len()],
        tainted: [false; FLAVORS.len()],
        has_namespace: true,
        local_queues: BTreeMap::new(),
        charges: charges.iter().enumerate().map(|(index, spec)| (index, spec.charge(index))).collect(),
        pending: BTreeMap::from([(pending.key.name.to_string(), pending)]),
    })
}

fn settings() -> impl Strategy<Value = EngineSettings> {
    let both = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
    let fair =
        prop_oneof![2 => Just(None), 1 => Just(Some(both.clone())), 1 => Just(Some(both[1..].to_vec()))];
    (fair, any::<bool>()).prop_map(|(fair_sharing, by_past_usage)| {
        let day = SignedDuration::from_hours(24);
        let base =
            if by_past_usage { admission_fair_sharing_settings(day, day) } else { EngineSettings::default() };
        EngineSettings { fair_sharing, ..base }
    })
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn i08_any_change_wakes_what_it_lets_in(
        settings in settings(), state in state(), changes in prop::collection::vec(change(), 1..25),
    ) {
        follow(&settings, state, &changes)?;
    }
}

/// Random histories must cover changes of each kind that let a workload in.
#[test]
fn generator_covers_changes_that_wake() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(1));
    let histories = (settings(), state(), prop::collection::vec(change(), 1..25));
    let mut kinds = BTreeMap::<String, u32>::new();
    for _ in 0..1500 {
        let (settings, state, changes) = histories.new_tree(&mut runner).unwrap().current();
        if let Some(change) = follow(&settings, state, &changes).unwrap() {
            let name = format!("{change:?}");
            *kinds.entry(name.split('(').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    let drawn = ["Priority", "PendingSince", "Deactivated", "Reclaim", "Queue", "Cohort", "Charge"];
    assert!(drawn.iter().all(|kind| kinds.contains_key(*kind)), "{kinds:?}");
}

/// A change of a charge.
type Edit = fn(&mut Charge);

/// A preemptor that would borrow finds targets only if the larger workload comes first: without the smaller one, the
/// queue of both borrows nothing, and the larger one is protected. Changes that the random histories rarely draw.
#[test]
fn i08_changed_order_of_candidates_wakes() {
    let day = SignedDuration::from_hours(24);
    let local_queue = |consumed: f64| LocalQueue {
        cluster_queue: Arc::from("guest"),
        consumed: BTreeMap::from([(Arc::from("cpu"), consumed)]),
        ..LocalQueue::default()
    };
    let edits: [(&str, Option<Edit>); 5] = [
        ("a lower priority", Some(|charge| charge.priority = -1)),
        ("an eviction", Some(|charge| charge.evicted = true)),
        ("a later reservation", Some(|charge| charge.reserved_at = Some(time(9)))),
        ("another LocalQueue", Some(|charge| charge.local_queue = Arc::from("heavy"))),
        ("past usage of the LocalQueue", None),
    ];
    for (change, edit) in edits {
        let mut engine = engine_with(admission_fair_sharing_settings(day, day));
        let borrow =
            BorrowWithinCohort { policy: Some(BorrowPolicy::LowerPriority), max_priority_threshold: None };
        let preemption = ClusterQueuePreemption {
            reclaim_within_cohort: Some(ReclaimPolicy::LowerPriority),
            borrow_within_cohort: Some(borrow),
            ..ClusterQueuePreemption::default()
        };
        let cpu = |nominal| single_flavor_group("red", "cpu", limits(nominal, None, None));
        engine.set_cluster_queue("owner", Some(ClusterQueue { preemption, ..queue(Some("all"), cpu(3)) }));
        let guest = ClusterQueue { orders_by_past_usage: true, ..queue(Some("all"), cpu(4)) };
        engine.set_cluster_queue("guest", Some(guest));
        engine.set_local_queue(&key("heavy"), Some(local_queue(5.0)));
        let reserved = |amount, second, local: &str| Charge {
            reserved_at: Some(time(second)),
            local_queue: Arc::from(local),
            ..charge("guest", &[("red", "cpu", amount)])
        };
        let large = reserved(4, 1, "lq");
        engine.charge(&key("large"), large.clone());
        engine.charge(&key("small"), reserved(2, 5, "lq"));
        engine.enqueue(Workload { priority: 7, ..cpu_workload("w", "owner", 0, 4) });
        assert_eq!(first_decision(&mut engine), None, "{change}");
        if let Some(edit) = edit {
            let mut changed = large;
            edit(&mut changed);
            engine.charge(&key("large"), changed);
        } else {
            engine.charge(&key("small"), reserved(2, 5, "heavy"));
            engine.charge(&key("large"), Charge { local_queue: Arc::from("light"), ..large });
            assert_eq!(first_decision(&mut engine), None, "{change}");
            engine.set_local_queue(&key("light"), Some(local_queue(6.0)));
        }
        assert_eq!(first_decision(&mut engine).as_deref(), Some("ns/w evicts [\"large\"]"), "{change}");
    }
}
