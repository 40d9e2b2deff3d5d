//! Strategies for random clusters and histories.

use super::cluster::{Event, QueuePolicies, TreeNodeSpec, WORKLOAD_NAMES, WorkloadSpec};
use super::fast_model::Quota;
use crate::fixtures::builders::{COHORTS, QUEUES};
use crate::fixtures::preemption_policies::preemption_policies;
use proptest::prelude::*;
use sluice_core::api::v1beta2::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};

/// Strategies for the numbers of a world.
#[derive(Clone, Debug)]
pub(super) struct NumberStrategies {
    /// Quotas of cohorts, which are small so that queues lend and borrow, and of queues.
    quotas: [BoxedStrategy<i128>; 2],
    requests: [BoxedStrategy<i64>; 2],
    counts: BoxedStrategy<i32>,
    priorities: BoxedStrategy<i64>,
    weights: Vec<f64>,
}

/// Small numbers, of which many are equal.
pub(super) fn small_numbers() -> NumberStrategies {
    NumberStrategies {
        quotas: [(0..5_i128).boxed(), (0..12_i128).boxed()],
        requests: [(0..6_i64).boxed(), (0..4_i64).boxed()],
        counts: (1..4_i32).boxed(),
        priorities: (0..4_i64).boxed(),
        weights: vec![0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 4.0],
    }
}

/// Numbers at the edges of their range.
pub(super) fn edges() -> NumberStrategies {
    let most = i64::MAX;
    let amount = prop::sample::select(vec![0, 1, 7, most / 3, most / 2, most - 1, most]);
    let quota = amount.clone().prop_map(i128::from).boxed();
    NumberStrategies {
        quotas: [quota.clone(), quota],
        requests: [amount.clone().boxed(), amount.boxed()],
        counts: prop::sample::select(vec![1, 2, i32::MAX]).boxed(),
        priorities: prop::sample::select(vec![i64::MIN, -1, 0, i64::MAX]).boxed(),
        weights: vec![0.0, f64::MIN_POSITIVE, 1.0, 1e300, f64::MAX],
    }
}

fn quota(most: &BoxedStrategy<i128>) -> impl Strategy<Value = Quota> + use<> {
    let limit = || proptest::option::weighted(0.3, most.clone());
    (most.clone(), limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

fn rules() -> impl Strategy<Value = QueuePolicies> {
    let policy = || {
        proptest::option::weighted(
            0.5,
            prop::sample::select(vec![FungibilityPolicy::MayStopSearch, FungibilityPolicy::TryNextFlavor]),
        )
    };
    let preference = proptest::option::weighted(0.4, Just(FungibilityPreference::PreemptionOverBorrowing));
    (prop::bool::weighted(0.25), preemption_policies(), policy(), policy(), preference).prop_map(
        |(strict, (within, reclaim, borrow), when_can_borrow, when_can_preempt, preference)| QueuePolicies {
            strict,
            within_cluster_queue: within,
            reclaim_within_cohort: reclaim,
            borrow_threshold: borrow,
            fungibility: FlavorFungibility { when_can_borrow, when_can_preempt, preference },
        },
    )
}

fn tree_node_spec(
    parents: std::ops::Range<usize>,
    kind: usize,
    scale: &NumberStrategies,
) -> impl Strategy<Value = TreeNodeSpec> + use<> {
    let parent = if parents.is_empty() {
        Just(None).boxed()
    } else {
        proptest::option::weighted(0.9, parents).boxed()
    };
    let flavors = prop::collection::vec(
        (quota(&scale.quotas[kind]), quota(&scale.quotas[kind])).prop_map(|(a, b)| [a, b]),
        0..=2,
    );
    let weight = prop::sample::select(scale.weights.clone());
    (parent, flavors, weight, rules()).prop_map(|(parent, flavors, weight, rules)| TreeNodeSpec {
        parent,
        flavors,
        weight,
        rules,
    })
}

pub(super) fn cohort_spec(
    index: usize,
    scale: &NumberStrategies,
) -> impl Strategy<Value = TreeNodeSpec> + use<> {
    tree_node_spec(index.saturating_sub(2)..index, 0, scale)
}

pub(super) fn queue_spec(scale: &NumberStrategies) -> impl Strategy<Value = TreeNodeSpec> + use<> {
    tree_node_spec(0..COHORTS.len(), 1, scale)
}

pub(super) fn workload_spec(scale: &NumberStrategies) -> impl Strategy<Value = WorkloadSpec> + use<> {
    let each = scale.requests.clone();
    let (priority, count) = (scale.priorities.clone(), scale.counts.clone());
    (0..WORKLOAD_NAMES, 0..QUEUES.len(), priority, 0..6_i64, count, each, prop::bool::weighted(0.2)).prop_map(
        |(index, queue, priority, second, count, each, partial)| WorkloadSpec {
            index,
            queue,
            priority,
            second,
            count,
            requests: each,
            allows_partial: partial,
        },
    )
}

/// Configuration of a whole tree of depth up to 6, as the first events of a history.
pub(super) fn start() -> impl Strategy<Value = Vec<Event>> {
    start_of(&small_numbers())
}

/// [`start`] with other numbers.
pub(super) fn start_of(scale: &NumberStrategies) -> impl Strategy<Value = Vec<Event>> + use<> {
    let cohorts: Vec<_> = (0..COHORTS.len())
        .map(|index| cohort_spec(index, scale).prop_map(move |spec| Event::Cohort(index, Some(spec))))
        .collect();
    let queues: Vec<_> = (0..QUEUES.len())
        .map(|index| queue_spec(scale).prop_map(move |spec| Event::Queue(index, Some(spec))))
        .collect();
    (cohorts, queues).prop_map(|(cohorts, queues)| cohorts.into_iter().chain(queues).collect())
}

fn config_event(scale: NumberStrategies) -> impl Strategy<Value = Event> {
    let queue = (0..QUEUES.len(), proptest::option::weighted(0.8, queue_spec(&scale)));
    let cohort = (0..COHORTS.len()).prop_flat_map(move |index| {
        proptest::option::weighted(0.8, cohort_spec(index, &scale))
            .prop_map(move |spec| Event::Cohort(index, spec))
    });
    prop_oneof![cohort, queue.prop_map(|(index, spec)| Event::Queue(index, spec))]
}

/// Any event; `config` is the weight of configuration changes.
pub(super) fn event(config: u32) -> impl Strategy<Value = Event> {
    event_of(config, small_numbers())
}

/// [`event`] with other numbers.
pub(super) fn event_of(config: u32, scale: NumberStrategies) -> impl Strategy<Value = Event> {
    let spec = workload_spec(&scale);
    prop_oneof![
        config => config_event(scale),
        12 => spec.prop_map(Event::Create),
        1 => (0..WORKLOAD_NAMES).prop_map(Event::Delete),
        3 => (0..WORKLOAD_NAMES).prop_map(Event::Finish),
        1 => (0..WORKLOAD_NAMES).prop_map(Event::ReclaimHalf),
        1 => (0..WORKLOAD_NAMES).prop_map(Event::FailWrite),
        4 => (0..WORKLOAD_NAMES).prop_map(Event::ReleaseVictim),
        1 => (1..2400_i64).prop_map(Event::Tick),
        14 => Just(Event::Cycle),
    ]
}
