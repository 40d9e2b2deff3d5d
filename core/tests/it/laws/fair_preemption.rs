//! I18: the choice of victims with fair sharing, against the restated rules and against all smaller sets.

use super::classic_preemption::subsets;
use super::dominant_shares::WEIGHTS;
use super::fair_preemption_model::{
    ExpectedOutcome, FairSharingModel, PastUsage, PreemptorSpec, ReservingWorkload, Victim, World,
};
use super::fast_model::{FLAVOR_RESOURCES, Quota, node_index};
use crate::fixtures::builders::{
    COHORTS, FLAVORS, QUEUES, RESOURCES, charge, cohort, config, key, limits, pod_set, queue, workload,
};
use crate::fixtures::preemption_policies::{RECLAIM_POLICIES, WITHIN_CLUSTER_QUEUE_POLICIES};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluice_core::api::reason::PendingReason;
use sluice_core::api::v1beta2::ClusterQueuePreemption;
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::scheduler::{
    AdmissionFairSharing, Charge, ClusterQueue, Cohort, Engine, EngineGates, EngineSettings, FairStrategy,
    Flavor, LocalQueue, Outcome, PodSet, PreemptionReason,
};
use sluice_core::topology::PodRequirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels that only the nodes of a flavor have.
fn labels(flavor: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("flavor".to_owned(), flavor.to_owned())])
}

fn local_queue(queue: usize, local: usize) -> String {
    format!("local-{queue}-{local}")
}

fn to_i64(amount: i128) -> i64 {
    i64::try_from(amount).unwrap()
}

impl World {
    fn settings(&self) -> EngineSettings {
        let past = AdmissionFairSharing {
            half_life: SignedDuration::from_hours(1),
            sampling_interval: SignedDuration::from_mins(5),
            resource_weights: BTreeMap::new(),
        };
        EngineSettings {
            fair_sharing: Some(self.strategies.clone()),
            admission_fair_sharing: self.past.as_ref().map(|_| past),
            gates: EngineGates {
                preempt_within_nominal: self.preempts_within_nominal,
                ..EngineGates::default()
            },
            ..EngineSettings::default()
        }
    }

    fn groups(&self, node: usize) -> Vec<ResourceGroup> {
        let limits = |(name, quota): (&&str, &Quota)| {
            let Quota { nominal, borrowing, lending } = *quota;
            (Arc::from(*name), limits(to_i64(nominal), borrowing.map(to_i64), lending.map(to_i64)))
        };
        let flavor = |(name, quotas): (&&str, &Option<[Quota; 2]>)| {
            let limits = RESOURCES.iter().zip(quotas.as_ref()?).map(limits).collect();
            Some(FlavorQuotas { name: Arc::from(*name), limits })
        };
        let flavors: Vec<_> = FLAVORS.iter().zip(&self.quotas[node]).filter_map(flavor).collect();
        if flavors.is_empty() { Vec::new() } else { vec![ResourceGroup::from_flavors(flavors)] }
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(self.settings());
        for name in FLAVORS {
            engine.set_flavor(name, Some(Flavor { node_labels: labels(name), ..Flavor::default() }));
        }
        engine.set_namespace("ns", Some(BTreeMap::new()));
        let parent = |index: usize| self.parents[index].map(|parent| COHORTS[parent]);
        let weight = |index: usize| Some(WEIGHTS[self.weights[index]].0);
        for (index, name) in COHORTS.iter().enumerate() {
            let weight = weight(index);
            engine.set_cohort(name, Some(Cohort { weight, ..cohort(parent(index), self.groups(index)) }));
        }
        for (index, name) in QUEUES.iter().enumerate() {
            let preemption = ClusterQueuePreemption {
                within_cluster_queue: Some(self.preemptor.within),
                reclaim_within_cohort: Some(self.preemptor.reclaim),
                ..ClusterQueuePreemption::default()
            };
            let base = queue(parent(node_index(index)), self.groups(node_index(index)));
            let usage_based = self.past.as_ref().is_some_and(|past| past[index].is_usage_based);
            let preemption = if index == self.preemptor.queue { preemption } else { <_>::default() };
            let weight = weight(node_index(index));
            engine.set_cluster_queue(
                name,
                Some(ClusterQueue { weight, preemption, orders_by_past_usage: usage_based, ..base }),
            );
        }
        self.set_past(&mut engine);
        for (index, reserving) in self.reserving.iter().enumerate() {
            engine.charge(&key(&format!("h{index:02}")), reserving.charge(index));
        }
        engine.enqueue(workload(
            "asks",
            QUEUES[self.preemptor.queue],
            self.preemptor.priority,
            self.preemptor.since,
            self.preemptor.pod_sets(),
        ));
        engine
    }

    fn set_past(&self, engine: &mut Engine) {
        for (index, past) in self.past.iter().flatten().enumerate() {
            for (local, used) in past.used.iter().enumerate() {
                let spec = LocalQueue {
                    cluster_queue: Arc::from(QUEUES[index]),
                    consumed: BTreeMap::from([(Arc::from("cpu"), f64::from(*used))]),
                    ..LocalQueue::default()
                };
                engine.set_local_queue(&key(&local_queue(index, local)), Some(spec));
            }
        }
    }

    /// Returns the engine's decision.
    fn engine_outcome(&self) -> ExpectedOutcome {
        let decisions = self.engine().run_cycle(Timestamp::UNIX_EPOCH);
        let number = |name: &str| name.trim_start_matches('h').parse().unwrap();
        match decisions.into_iter().next().map(|decision| decision.outcome) {
            Some(Outcome::Admitted(_)) => ExpectedOutcome::Admitted,
            Some(Outcome::Preempting(_, victims)) => {
                let victims = victims.iter().map(|victim| (number(&victim.key.name), victim.reason));
                ExpectedOutcome::Preempts(victims.collect())
            }
            Some(Outcome::Pending(verdict)) => ExpectedOutcome::Pending(verdict.reason),
            other => panic!("{other:?}"),
        }
    }
}

impl ReservingWorkload {
    fn charge(&self, index: usize) -> Charge {
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        let entry = |fr: usize| (FLAVORS[fr / 2], RESOURCES[fr % 2], to_i64(self.amounts[fr]));
        let usage: Vec<_> = (0..FLAVOR_RESOURCES).filter(|fr| self.amounts[*fr] > 0).map(entry).collect();
        Charge {
            uid: Arc::from(format!("{index:02}")),
            local_queue: Arc::from(local_queue(self.queue, self.local_queue)),
            priority: self.priority,
            queued_since: time(self.since),
            reserved_at: self.reserved.map(time),
            evicted: self.evicted,
            ..charge(QUEUES[self.queue], &usage)
        }
    }
}

impl PreemptorSpec {
    /// One pod set per flavor; its node selector excludes the other flavor.
    fn pod_sets(&self) -> Vec<PodSet> {
        let set = |(flavor, requests): (&&str, &[Option<i64>; 2])| {
            let requested =
                RESOURCES.iter().zip(requests).filter_map(|(name, amount)| Some((*name, (*amount)?)));
            let set = pod_set(flavor, 1, &requested.collect::<Vec<_>>());
            PodSet {
                pod_requirements: Arc::new(PodRequirements {
                    node_selector: labels(flavor),
                    ..PodRequirements::default()
                }),
                ..set
            }
        };
        FLAVORS.iter().zip(&self.requests).map(set).collect()
    }
}

/// Checks I18 over all sets of victims: no smaller set than the chosen one is enough and, where none is chosen, no set of
/// candidates that may be evicted whatever the shares are.
fn check_world(world: &World) -> TestCaseResult {
    let rules = FairSharingModel::new(world);
    let (expected, actual) = (rules.expected_outcome(), world.engine_outcome());
    prop_assert_eq!(&expected, &actual, "I18: victims, their order and reasons");
    let Ok((usage, shortfall)) = rules.request_and_shortfall() else {
        return Ok(());
    };
    let victims_of = |removed: &[usize]| -> Vec<Victim> {
        removed.iter().map(|index| (*index, PreemptionReason::InCohortReclamation)).collect()
    };
    match actual {
        ExpectedOutcome::Preempts(victims) => {
            let all: Vec<usize> = victims.iter().map(|(index, _)| *index).collect();
            prop_assert!(rules.fits(&victims_of(&all), &usage), "I18: {:?} are not enough", all);
            for fewer in subsets(&all).filter(|fewer| fewer.len() < all.len()) {
                let enough = rules.fits(&victims_of(&fewer), &usage);
                prop_assert!(!enough, "I18: {:?} would have been enough, of {:?}", fewer, all);
            }
        }
        ExpectedOutcome::Pending(_) => {
            for removed in subsets(&world.certainly_preemptible(
                &rules,
                &shortfall,
                rules.is_within_nominal(&usage, &shortfall),
            )) {
                prop_assert!(
                    !rules.fits(&victims_of(&removed), &usage),
                    "I18: the preemptor fits without {:?}",
                    removed
                );
            }
        }
        ExpectedOutcome::Admitted => {}
    }
    Ok(())
}

impl World {
    /// Candidates that may be evicted whatever the shares and the order: workloads of the preemptor's queue and, if it reclaims
    /// its own quota, of sibling queues that lend nothing to each other's cohorts.
    fn certainly_preemptible(
        &self,
        rules: &FairSharingModel,
        shortfall: &[usize],
        within: bool,
    ) -> Vec<usize> {
        let own = node_index(self.preemptor.queue);
        let sums = rules.sums(&[], None);
        let root = self.parents[own].filter(|parent| self.parents[*parent].is_none());
        let is_only_candidate = |index: usize| {
            let candidates =
                (0..self.reserving.len()).filter(|other| rules.may_be_preempted(&sums, shortfall, *other));
            candidates.filter(|other| self.reserving[*other].queue == self.reserving[index].queue).count()
                == 1
        };
        let in_sibling_queue = |index: usize| {
            let node = node_index(self.reserving[index].queue);
            let beside = root.is_some() && self.parents[node] == root;
            self.preempts_within_nominal
                && within
                && beside
                && rules.borrows(&sums, node)
                && is_only_candidate(index)
        };
        let certain =
            |index: &usize| self.reserving[*index].queue == self.preemptor.queue || in_sibling_queue(*index);
        (0..self.reserving.len())
            .filter(|index| rules.may_be_preempted(&sums, shortfall, *index))
            .filter(certain)
            .collect()
    }
}

fn quota(most: i128) -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.15, 0..most);
    let nominal = prop_oneof![1 => Just(0), 3 => 0..most];
    (nominal, limit(), limit()).prop_map(|(nominal, borrowing, lending)| Quota {
        nominal,
        borrowing,
        lending,
    })
}

fn node(most: i128) -> impl Strategy<Value = [Option<[Quota; 2]>; 2]> {
    let flavor = move || proptest::option::weighted(0.9, [quota(most), quota(most)]);
    [flavor(), flavor()]
}

fn reserving_workload() -> impl Strategy<Value = ReservingWorkload> {
    let amount = || prop_oneof![2 => Just(0_i128), 3 => 1..8_i128];
    let amounts = [amount(), amount(), amount(), amount()];
    let reserved = proptest::option::weighted(0.8, 0..4_i64);
    let evicted = prop::bool::weighted(0.15);
    (0..QUEUES.len(), amounts, 0..4_i64, 0..4_i64, reserved, evicted, 0..2_usize).prop_map(
        |(queue, amounts, priority, since, reserved, evicted, local)| ReservingWorkload {
            queue,
            amounts,
            priority,
            since,
            reserved,
            evicted,
            local_queue: local,
        },
    )
}

fn preemptor_spec() -> impl Strategy<Value = PreemptorSpec> {
    let request = |weight: f64| proptest::option::weighted(weight, 1..6_i64);
    let requests = [[request(0.9), request(0.5)], [request(0.4), request(0.2)]];
    let rules = (
        prop::sample::select(&WITHIN_CLUSTER_QUEUE_POLICIES[..]),
        prop::sample::select(&RECLAIM_POLICIES[..]),
    );
    (0..QUEUES.len(), requests, 1..6_i64, 0..4_i64, rules).prop_map(
        |(queue, requests, priority, since, (within, reclaim))| PreemptorSpec {
            queue,
            requests,
            priority,
            since,
            within,
            reclaim,
        },
    )
}

fn past_usage() -> impl Strategy<Value = Option<Vec<PastUsage>>> {
    let past = (prop::bool::weighted(0.7), [0..4_u8, 0..4_u8]);
    let past = past.prop_map(|(counts, used)| PastUsage { is_usage_based: counts, used });
    proptest::option::weighted(0.4, prop::collection::vec(past, QUEUES.len()))
}

/// A world in which the parent of each cohort precedes it, and queues hang anywhere or all below one cohort. The preemptor's
/// queue has quotas for both flavors.
fn world() -> impl Strategy<Value = World> {
    use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    let parents =
        |index: usize| if index == 0 { Just(None).boxed() } else { (0..index).prop_map(Some).boxed() };
    let cohorts: Vec<_> = (0..COHORTS.len()).map(parents).collect();
    let deep = prop::collection::vec(proptest::option::weighted(0.95, 0..COHORTS.len()), QUEUES.len());
    let queues = prop_oneof![3 => deep, 1 => Just(vec![Some(0); QUEUES.len()])];
    let quotas =
        (prop::collection::vec(node(4), COHORTS.len()), prop::collection::vec(node(9), QUEUES.len()));
    let weights = prop::collection::vec(0..WEIGHTS.len(), COHORTS.len() + QUEUES.len());
    let reserving = prop::collection::vec(reserving_workload(), 4..12);
    let strategies = prop::sample::select(vec![
        vec![],
        vec![LessThanOrEqualToFinalShare],
        vec![LessThanInitialShare],
        vec![LessThanOrEqualToFinalShare, LessThanInitialShare],
    ]);
    let settings = (strategies, prop::bool::weighted(0.6), past_usage());
    (cohorts, queues, quotas, weights, reserving, preemptor_spec(), settings).prop_map(
        |(
            cohorts,
            queues,
            quotas,
            weights,
            reserving,
            preemptor,
            (strategies, preempts_within_nominal, past),
        )| {
            let mut quotas: Vec<_> = quotas.0.into_iter().chain(quotas.1).collect();
            for flavor in &mut quotas[node_index(preemptor.queue)] {
                flavor.get_or_insert_with(Default::default);
            }
            let parents = cohorts.into_iter().chain(queues).collect();
            World {
                parents,
                quotas,
                weights,
                reserving,
                preemptor,
                strategies,
                preempts_within_nominal,
                past,
            }
        },
    )
}

proptest! {
    #![proptest_config(config(4000))]

    #[test]
    fn i18_fair_victims_match_model_and_are_minimal(world in world()) {
        check_world(&world)?;
    }
}

/// Random worlds must cover all preemption reasons, several victims at a time, victims of the second strategy alone, queues
/// with an unlimited share, and orders that depend on past usage alone.
#[test]
fn generator_covers_fair_preemption_scenarios() {
    let mut runner = TestRunner::new(config(1));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reasons = BTreeSet::new();
    for _ in 0..3000 {
        let world = world().new_tree(&mut runner).unwrap().current();
        let fate = FairSharingModel::new(&world).expected_outcome();
        let ExpectedOutcome::Preempts(victims) = &fate else {
            let never = fate == ExpectedOutcome::Pending(PendingReason::ExceedsMaxQuota);
            *seen.entry(if never { "never" } else { "pending or admitted" }).or_default() += 1;
            continue;
        };
        let otherwise = |world: World| FairSharingModel::new(&world).expected_outcome() != fate;
        let one_strategy = world.strategies.first().copied().into_iter().collect();
        let cases = [
            ("preempts", true),
            ("several", victims.len() > 1),
            (
                "of several queues",
                victims
                    .iter()
                    .any(|(index, _)| world.reserving[*index].queue != world.reserving[victims[0].0].queue),
            ),
            ("second strategy", otherwise(World { strategies: one_strategy, ..world.clone() })),
            ("past usage", otherwise(World { past: None, ..world.clone() })),
            ("weights", otherwise(World { weights: vec![2; world.weights.len()], ..world.clone() })),
            ("takes back", otherwise(World { preempts_within_nominal: false, ..world.clone() })),
        ];
        for (name, so) in cases {
            *seen.entry(name).or_default() += usize::from(so);
        }
        reasons.extend(victims.iter().map(|(_, reason)| *reason));
    }
    println!("{seen:?} {reasons:?}");
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    assert!(seen.values().all(|times| *times > 10), "{seen:?}");
}
