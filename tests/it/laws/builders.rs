//! Small worlds: builders of engine inputs and the configuration that random tests draw from.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use sluice::api::ObjectKey;
use sluice::quota::{FlavorQuotas, QuotaLimits, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{
    AdmissionFairSharing, Charge, ClusterQueue, Cohort, Decision, Engine, EngineSettings, Flavor,
    FlavorResource, Outcome, PodSet, Workload,
};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

pub(super) const FLAVORS: [&str; 2] = ["red", "blue"];
pub(super) const RESOURCES: [&str; 2] = ["cpu", "gpu"];
pub(super) const QUEUES: [&str; 4] = ["q0", "q1", "q2", "q3"];
pub(super) const COHORTS: [&str; 7] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];

/// Returns the seed of random tests and the factor by which their number of cases is multiplied.
#[expect(clippy::disallowed_methods, reason = "they set the number of cases and the seed to replay")]
pub(super) fn seed_and_multiplier(salt: impl std::hash::Hash) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let times = number("SLUICE_SOAK").unwrap_or(1);
    // The seed is fixed, so results repeat; only runs with `SLUICE_SOAK` explore new cases.
    let random = || if number("SLUICE_SOAK").is_some() { RandomState::new().hash_one(salt) } else { 1 };
    let seed = number("PROPTEST_RNG_SEED").unwrap_or_else(random);
    println!("replay with PROPTEST_RNG_SEED={seed} and SLUICE_SOAK={times}");
    (seed, times)
}

/// `cases` times `SLUICE_SOAK` cases. The seed is printed when a test fails; `PROPTEST_RNG_SEED` replays it.
pub(super) fn config(cases: u32) -> Config {
    let (seed, times) = seed_and_multiplier(cases);
    Config {
        cases: cases.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX)),
        failure_persistence: None,
        max_shrink_iters: 2000,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    }
}

/// Returns how many cases run of a law that takes long and finds little beside others: all with `SLUICE_SOAK`, else one of `of`.
pub(crate) fn sample(cases: u32, of: u32) -> u32 {
    if std::env::var_os("SLUICE_SOAK").is_some() { cases } else { cases / of }
}

pub(super) fn limits(nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> QuotaLimits {
    let amount = |units: Option<i64>| units.map(Amount::new);
    QuotaLimits {
        nominal: Amount::new(nominal),
        borrowing_limit: amount(borrowing),
        lending_limit: amount(lending),
    }
}

/// One group of one flavor with one resource.
pub(super) fn single_flavor_group(flavor: &str, resource: &str, quota: QuotaLimits) -> Vec<ResourceGroup> {
    flavor_group(&[flavor], resource, &[quota])
}

/// One group of several flavors with one resource.
pub(super) fn flavor_group(flavors: &[&str], resource: &str, quotas: &[QuotaLimits]) -> Vec<ResourceGroup> {
    let flavor = |(name, quota): (&&str, &QuotaLimits)| FlavorQuotas {
        name: Arc::from(*name),
        limits: BTreeMap::from([(Arc::from(resource), *quota)]),
    };
    vec![ResourceGroup::from_flavors(flavors.iter().zip(quotas).map(flavor).collect())]
}

/// One group of cpu and gpu; each flavor is given as name, nominal cpu and nominal gpu.
pub(super) fn cpu_gpu_group(flavors: &[(&str, i64, i64)]) -> Vec<ResourceGroup> {
    let flavor = |(name, cpu, gpu): &(&str, i64, i64)| {
        let quota = RESOURCES.iter().zip([*cpu, *gpu]);
        let limits = quota.map(|(resource, n)| (Arc::from(*resource), limits(n, None, None))).collect();
        FlavorQuotas { name: Arc::from(*name), limits }
    };
    vec![ResourceGroup::from_flavors(flavors.iter().map(flavor).collect())]
}

pub(super) fn queue(cohort: Option<&str>, groups: Vec<ResourceGroup>) -> ClusterQueue {
    let namespace_selector = Some(LabelSelector::default());
    ClusterQueue { cohort: cohort.map(Arc::from), groups, namespace_selector, ..ClusterQueue::default() }
}

pub(super) fn cohort(parent: Option<&str>, groups: Vec<ResourceGroup>) -> Cohort {
    Cohort { parent: parent.map(Arc::from), groups, ..Cohort::default() }
}

/// An engine that knows the flavors and the namespace `ns`.
pub(super) fn engine() -> Engine {
    engine_with(EngineSettings::default())
}

/// [`engine`] with settings.
pub(super) fn engine_with(settings: EngineSettings) -> Engine {
    let mut engine = Engine::new(settings);
    for flavor in FLAVORS {
        engine.set_flavor(flavor, Some(Flavor::default()));
    }
    engine.set_namespace("ns", Some(BTreeMap::new()));
    engine
}

/// Admission fair sharing with this half-life and sampling interval.
pub(super) fn admission_fair_sharing_settings(
    half_life: SignedDuration,
    sampling: SignedDuration,
) -> EngineSettings {
    let weights = BTreeMap::new();
    EngineSettings {
        admission_fair_sharing: Some(AdmissionFairSharing {
            half_life,
            sampling_interval: sampling,
            resource_weights: weights,
        }),
        ..EngineSettings::default()
    }
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

pub(super) fn pod_set(name: &str, count: i32, requests: &[(&str, i64)]) -> PodSet {
    let requests = requests.iter().map(|(r, units)| (Arc::from(*r), Amount::new(*units))).collect();
    PodSet { name: Arc::from(name), count, requests, ..PodSet::default() }
}

/// A workload of one pod without priority.
pub(super) fn cpu_workload(name: &str, queue: &str, second: i64, milli: i64) -> Workload {
    workload(name, queue, 0, second, vec![pod_set("main", 1, &[("cpu", milli)])])
}

pub(super) fn workload(
    name: &str,
    queue: &str,
    priority: i64,
    second: i64,
    pod_sets: Vec<PodSet>,
) -> Workload {
    Workload {
        key: key(name),
        uid: Arc::from(name),
        cluster_queue: Arc::from(queue),
        local_queue: Arc::from("lq"),
        priority,
        queued_since: Timestamp::from_second(second).expect("a small number of seconds"),
        pod_sets: pod_sets.into(),
        ..Workload::default()
    }
}

pub(super) fn charge(queue: &str, usage: &[(&str, &str, i64)]) -> Charge {
    let usage = usage.iter().map(|(f, r, units)| (FlavorResource::new(f, r), Amount::new(*units))).collect();
    Charge {
        cluster_queue: Arc::from(queue),
        usage,
        uid: Arc::from("u"),
        local_queue: Arc::from("lq"),
        ..Charge::default()
    }
}

/// Runs cycles until no work is left, at most 1000.
pub(super) fn run_until_idle(engine: &mut Engine) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for _ in 0..1000 {
        if !engine.has_work() {
            return decisions;
        }
        decisions.extend(engine.run_cycle(Timestamp::UNIX_EPOCH));
    }
    panic!("no end after 1000 cycles: {decisions:?}");
}

/// Names of the workloads admitted, in order.
pub(super) fn admitted_names(decisions: &[Decision]) -> Vec<String> {
    let admitted = |decision: &&Decision| matches!(decision.outcome, Outcome::Admitted(_));
    decisions.iter().filter(admitted).map(|decision| decision.key.name.to_string()).collect()
}

/// One step: sets a node with its parent and quotas, or deletes it; sets or releases a charge. Numbers are indexes.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Cohort(usize, Option<(Option<usize>, Vec<ResourceGroup>)>),
    Queue(usize, Option<(Option<usize>, Vec<ResourceGroup>)>),
    Charge(usize, usize, Vec<(usize, usize, i64)>),
    Release(usize),
}

pub(super) fn apply_step(engine: &mut Engine, step: &Step) {
    let parent = |index: &Option<usize>| index.map(|index| COHORTS[index]);
    match step {
        Step::Cohort(index, None) => engine.set_cohort(COHORTS[*index], None),
        Step::Cohort(index, Some((up, groups))) => {
            engine.set_cohort(COHORTS[*index], Some(cohort(parent(up), groups.clone())));
        }
        Step::Queue(index, None) => engine.set_cluster_queue(QUEUES[*index], None),
        Step::Queue(index, Some((up, groups))) => {
            engine.set_cluster_queue(QUEUES[*index], Some(queue(parent(up), groups.clone())));
        }
        Step::Charge(number, index, usage) => {
            let usage: Vec<_> =
                usage.iter().map(|(f, r, units)| (FLAVORS[*f], RESOURCES[*r], *units)).collect();
            engine.charge(&key(&format!("h{number}")), charge(QUEUES[*index], &usage));
        }
        Step::Release(number) => engine.release(&key(&format!("h{number}"))),
    }
}

/// Scale of the amounts of a random world.
#[derive(Clone, Copy, Debug)]
pub(super) enum AmountRange {
    Small,
    Extreme,
}

pub(super) fn units(scale: AmountRange) -> BoxedStrategy<i64> {
    match scale {
        AmountRange::Small => (0..20_i64).boxed(),
        AmountRange::Extreme => prop_oneof![
            Just(i64::MIN),
            Just(-1_i64),
            Just(0_i64),
            Just(7_i64),
            Just(i64::MAX - 1),
            Just(i64::MAX)
        ]
        .boxed(),
    }
}

fn quota(scale: AmountRange) -> impl Strategy<Value = QuotaLimits> {
    let limit = || proptest::option::weighted(0.4, units(scale));
    (units(scale), limit(), limit())
        .prop_map(|(nominal, borrowing, lending)| limits(nominal, borrowing, lending))
}

/// One resource group with both resources, on one or two flavors; or none.
pub(super) fn groups(scale: AmountRange) -> impl Strategy<Value = Vec<ResourceGroup>> {
    proptest::collection::vec((quota(scale), quota(scale)), 0..=2).prop_map(|flavors| {
        let flavor = |(name, (cpu, gpu)): (&&str, (QuotaLimits, QuotaLimits))| FlavorQuotas {
            name: Arc::from(*name),
            limits: BTreeMap::from([(Arc::from("cpu"), cpu), (Arc::from("gpu"), gpu)]),
        };
        let flavors: Vec<FlavorQuotas> = FLAVORS.iter().zip(flavors).map(flavor).collect();
        if flavors.is_empty() { Vec::new() } else { vec![ResourceGroup::from_flavors(flavors)] }
    })
}

/// Any step. Parents are drawn freely, so cycles, missing parents and deep chains all occur.
pub(super) fn step(scale: AmountRange) -> impl Strategy<Value = Step> {
    let node = move || {
        let parent = proptest::option::weighted(0.8, 0..COHORTS.len());
        proptest::option::weighted(0.85, (parent, groups(scale)))
    };
    let usage = proptest::collection::vec((0..2_usize, 0..2_usize, units(scale)), 1..3);
    prop_oneof![
        3 => (0..COHORTS.len(), node()).prop_map(|(index, node)| Step::Cohort(index, node)),
        2 => (0..QUEUES.len(), node()).prop_map(|(index, node)| Step::Queue(index, node)),
        4 => (0..6_usize, 0..QUEUES.len(), usage).prop_map(|(number, index, usage)| Step::Charge(number, index, usage)),
        2 => (0..6_usize).prop_map(Step::Release),
    ]
}

/// A tree of depth up to 6 without cycles: each cohort's parent has a smaller number.
pub(super) fn tree(scale: AmountRange) -> impl Strategy<Value = Vec<Step>> {
    let cohorts: Vec<_> = (0..COHORTS.len())
        .map(|index| {
            let parent = if index == 0 {
                Just(None).boxed()
            } else {
                (index.saturating_sub(2)..index).prop_map(Some).boxed()
            };
            (parent, groups(scale)).prop_map(move |node| Step::Cohort(index, Some(node)))
        })
        .collect();
    let queues: Vec<_> = (0..QUEUES.len())
        .map(|index| {
            let parent = proptest::option::weighted(0.9, 0..COHORTS.len());
            (parent, groups(scale)).prop_map(move |node| Step::Queue(index, Some(node)))
        })
        .collect();
    (cohorts, queues).prop_map(|(cohorts, queues)| cohorts.into_iter().chain(queues).collect())
}
