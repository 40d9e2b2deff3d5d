//! Which workloads may preempt one that holds quota, as its verdict says, against the engine's candidates.
//!
//! A verdict answers by ClusterQueue and condition ("a workload of ClusterQueue a with a priority above 3, also to borrow"), the engine
//! by head. So both are asked over all heads that can arise: of every ClusterQueue, below, at and above every priority that a victim
//! has, older and newer than every victim, for one unit, for all that the ClusterQueue can have and for an amount between, of each
//! resource alone and of both. What the verdict says is *exactly* right if for each ClusterQueue, priority and age
//!
//! - a sentence covers them if and only if some head of that ClusterQueue, priority and age has the victim among its candidates
//!   ([`Engine::eviction_candidates`]), whatever it asks for; and
//! - a sentence covers them that is not only about taking back quota ("that reclaims its nominal quota") if and only if the engine has
//!   the victim as a candidate to borrow, or for a fairer share.
//!
//! A candidate is what the policies, the quota that its ClusterQueue and cohorts borrow, and the size of the request let the engine
//! evict in the search of targets. Not compared, because it follows from all candidates and their amounts together: whether a head fits
//! once they are gone, and under fair sharing whether shares let it evict them, which is a sentence of its own. Both are asked of one
//! core in which nothing terminates and no capacity is reserved, so that published and projected usage are the same.
//!
//! [`Engine::eviction_candidates`]: sluice::scheduler::Engine::eviction_candidates

use crate::fixtures::builders::{COHORTS, QUEUES, config};
use crate::fixtures::leading_core::{Core, START, condition};
use crate::fixtures::preemption_policies::preemption_policies;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseResult, TestRunner};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::cache::Kind;
use sluice::quota::{FlavorResource, NodeRef, NodeUsage, PathHeadroom};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::resources::Amount;
use sluice::scheduler::{FairStrategy, PreemptionReason, Workload};
use sluice::visibility::access::Access;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::verdict::verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const RESOURCES: [&str; 2] = ["cpu", "example.com/gpu"];
/// The cohorts of a world are the first ones.
const NUMBER_OF_COHORTS: usize = 4;
const PRIORITIES: std::ops::Range<i64> = 0..3;
/// Seconds between the times at which workloads are queued.
const AGES: [i64; 2] = [10, 20];

/// Nominal quota, borrowing limit and lending limit.
type Limits = (i64, Option<i64>, Option<i64>);

#[derive(Clone, Debug)]
struct Queue {
    cohort: Option<usize>,
    /// By resource; `None` where it declares none.
    quotas: [Option<Limits>; 2],
    policies: (WithinClusterQueuePolicy, ReclaimPolicy, Option<i32>),
    is_stopped: bool,
}

#[derive(Clone, Debug)]
struct Holder {
    queue: usize,
    amounts: [i64; 2],
    priority: i64,
    age: usize,
}

#[derive(Clone, Debug)]
struct World {
    is_fair: bool,
    /// By cohort: its parent and its quotas.
    cohorts: Vec<(Option<usize>, [Option<Limits>; 2])>,
    queues: Vec<Queue>,
    holders: Vec<Holder>,
    /// What heads ask for beside one unit and all, in tenths of all.
    part: i64,
}

/// A ClusterQueue, a priority and the time at which a head was queued.
type Asker = (usize, i64, i64);

/// Which heads may evict a workload, and which of them to borrow or for a fairer share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Preemptors {
    all: BTreeSet<Asker>,
    borrowing: BTreeSet<Asker>,
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

fn fr(resource: usize) -> FlavorResource {
    FlavorResource::new("f", RESOURCES[resource])
}

/// One resource group with the resources that have quotas.
fn groups(quotas: &[Option<Limits>; 2], in_cohort: bool) -> Value {
    let resource = |(name, limits): (&&str, &Option<Limits>)| {
        let (nominal, borrowing, lending) = (*limits)?;
        let mut resource = json!({"name": name, "nominalQuota": nominal.to_string()});
        for (limit, amount) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
            if let Some(amount) = amount.filter(|_| in_cohort) {
                resource[limit] = json!(amount.to_string());
            }
        }
        Some(resource)
    };
    let resources: Vec<Value> = RESOURCES.iter().zip(quotas).filter_map(resource).collect();
    let covered: Vec<&Value> = resources.iter().map(|resource| &resource["name"]).collect();
    if resources.is_empty() {
        return json!([]);
    }
    json!([{"coveredResources": covered, "flavors": [{"name": "f", "resources": resources}]}])
}

fn preemption((within, reclaim, borrow): (WithinClusterQueuePolicy, ReclaimPolicy, Option<i32>)) -> Value {
    let mut policies = json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim});
    if let Some(most) = borrow {
        policies["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
        if most < i32::MAX {
            policies["borrowWithinCohort"]["maxPriorityThreshold"] = json!(most);
        }
    }
    policies
}

impl Holder {
    fn object(&self, name: &str) -> Value {
        let amounts: BTreeMap<&str, String> =
            RESOURCES.iter().zip(self.amounts).map(|(name, amount)| (*name, amount.to_string())).collect();
        let flavors: BTreeMap<&str, &str> = RESOURCES.iter().map(|name| (*name, "f")).collect();
        let container = json!({"name": "c", "image": "x", "resources": {"requests": amounts}});
        let reserved = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", kind));
        json!({
            "metadata": {"name": name, "namespace": "ns", "creationTimestamp": time(AGES[self.age]).to_string()},
            "spec": {"queueName": format!("to-{}", QUEUES[self.queue]), "priority": self.priority,
                "podSets": [{"name": "main", "count": 1,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}]},
            "status": {"conditions": reserved, "admission": {"clusterQueue": QUEUES[self.queue], "podSetAssignments": [
                {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": amounts}]}},
        })
    }
}

impl World {
    /// A follower, so that nothing is decided.
    fn core(&self) -> Core {
        let mut settings = CoreSettings::default();
        settings.engine.fair_sharing = self.is_fair.then(|| vec![FairStrategy::LessThanOrEqualToFinalShare]);
        let mut core = Core::new(settings);
        core.feed(Delta::Leading(false));
        let mut objects = Vec::new();
        for (index, (parent, quotas)) in self.cohorts.iter().enumerate() {
            let mut spec = json!({"resourceGroups": groups(quotas, parent.is_some())});
            if let Some(parent) = parent {
                spec["parentName"] = json!(COHORTS[*parent]);
            }
            objects.push((Kind::Cohort, json!({"metadata": {"name": COHORTS[index]}, "spec": spec})));
        }
        for (name, queue) in QUEUES.iter().zip(&self.queues) {
            let mut spec = json!({
                "namespaceSelector": {}, "resourceGroups": groups(&queue.quotas, queue.cohort.is_some()),
                "preemption": preemption(queue.policies), "stopPolicy": if queue.is_stopped { "Hold" } else { "None" },
            });
            if let Some(cohort) = queue.cohort {
                spec["cohortName"] = json!(COHORTS[cohort]);
            }
            objects.push((Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec})));
            let local = json!({"metadata": {"name": format!("to-{name}"), "namespace": "ns"}, "spec": {"clusterQueue": name}});
            objects.push((Kind::LocalQueue, local));
        }
        for (index, holder) in self.holders.iter().enumerate() {
            objects.push((Kind::Workload, holder.object(&format!("w{index}"))));
        }
        let deltas: Vec<Delta> =
            objects.into_iter().map(|(kind, object)| core.applied_delta(kind, object)).collect();
        core.feed_all(deltas);
        // The view of the queues is published at intervals.
        core.advance_seconds(120);
        core
    }

    /// The most that a ClusterQueue can have of each resource that it declares.
    fn most(&self, core: &mut Core, queue: usize) -> [Option<i128>; 2] {
        let engine = core.state.engine_mut();
        let mut path = vec![NodeRef::ClusterQueue(Arc::from(QUEUES[queue]))];
        let mut cohort = self.queues[queue].cohort;
        while let Some(index) = cohort {
            path.push(NodeRef::Cohort(Arc::from(COHORTS[index])));
            cohort = self.cohorts[index].0;
        }
        [0, 1].map(|resource| {
            self.queues[queue].quotas[resource]?;
            let usage = |node: &NodeRef| engine.usage(node).get(&fr(resource)).copied().unwrap_or_default();
            let along: Vec<NodeUsage> = path.iter().map(usage).collect();
            Some(PathHeadroom::of_path(&along).potential).filter(|most| *most > 0)
        })
    }

    /// What the heads of a ClusterQueue may ask for.
    fn requests(&self, most: [Option<i128>; 2]) -> Vec<BTreeMap<FlavorResource, Amount>> {
        let amounts = |most: Option<i128>| {
            let mut amounts = BTreeSet::from([0]);
            amounts.extend(
                most.into_iter().flat_map(|most| [1, (most * i128::from(self.part) / 10).max(1), most]),
            );
            amounts
        };
        let [cpu, gpu] = most.map(amounts);
        let pairs = cpu.iter().flat_map(|cpu| gpu.iter().map(move |gpu| [*cpu, *gpu]));
        let request = |amounts: [i128; 2]| {
            let asked = amounts.into_iter().enumerate().filter(|(_, amount)| *amount > 0);
            asked.map(|(index, amount)| (fr(index), Amount::saturating_from_i128(amount))).collect()
        };
        pairs.map(request).filter(|request: &BTreeMap<_, _>| !request.is_empty()).collect()
    }

    fn askers() -> impl Iterator<Item = Asker> {
        let ages = || [AGES[0] - 5, AGES[0] + 5, AGES[1] + 5];
        let priorities = PRIORITIES.start - 1..=PRIORITIES.end;
        (0..QUEUES.len()).flat_map(move |queue| {
            priorities.clone().flat_map(move |priority| ages().map(move |age| (queue, priority, age)))
        })
    }

    /// Which heads have each workload among their candidates.
    fn of_engine(&self, core: &mut Core) -> Vec<Preemptors> {
        let requests: Vec<_> = (0..QUEUES.len())
            .map(|queue| {
                let most = self.most(core, queue);
                self.requests(most)
            })
            .collect();
        let mut found = vec![Preemptors::default(); self.holders.len()];
        for (queue, priority, age) in Self::askers() {
            let head = Workload {
                key: ObjectKey::new("ns", "head"),
                cluster_queue: Arc::from(QUEUES[queue]),
                priority,
                queued_since: time(age),
                ..Workload::default()
            };
            for request in &requests[queue] {
                for (key, reason) in core.state.engine_mut().eviction_candidates(&head, request) {
                    let index: usize = key.name.trim_start_matches('w').parse().unwrap();
                    found[index].all.insert((queue, priority, age));
                    if matches!(
                        reason,
                        PreemptionReason::InCohortReclaimWhileBorrowing
                            | PreemptionReason::InCohortFairSharing
                    ) {
                        found[index].borrowing.insert((queue, priority, age));
                    }
                }
            }
        }
        found
    }

    /// Which heads may preempt each workload, as its verdict says.
    fn of_views(&self, core: &Core) -> Vec<Preemptors> {
        let snapshot = core.state.snapshot();
        let sentences = |index: usize| {
            let question = VerdictQuestion {
                access: Access::everything(),
                workload: WorkloadName::parse(&format!("w{index}"), "ns"),
                before: None,
                queue: None,
                priority: None,
            };
            verdict(&snapshot, &question, None).unwrap().admission.unwrap().preemptible_by
        };
        let read = |(index, holder): (usize, &Holder)| {
            let mut found = Preemptors::default();
            let sentences = sentences(index);
            for sentence in sentences.iter().filter(|sentence| !sentence.starts_with("under fair sharing")) {
                let said = Said::parse(sentence, holder.priority);
                for asker in Self::askers().filter(|asker| said.covers(*asker, holder)) {
                    found.all.insert(asker);
                    if !said.reclaims && asker.0 != holder.queue {
                        found.borrowing.insert(asker);
                    }
                }
            }
            let is_fair = sentences.iter().any(|sentence| sentence.starts_with("under fair sharing"));
            assert_eq!(is_fair, self.is_fair && found.all.iter().any(|asker| asker.0 != holder.queue));
            found
        };
        self.holders.iter().enumerate().map(read).collect()
    }
}

/// A sentence about workloads that may preempt.
struct Said {
    queues: BTreeSet<usize>,
    takes_higher_priority: bool,
    takes_older: bool,
    /// Whether it is only about workloads that take back quota.
    reclaims: bool,
}

impl Said {
    fn parse(sentence: &str, priority: i64) -> Self {
        let rest = sentence.strip_prefix("a workload of ClusterQueue ").unwrap();
        let end = [" with a priority", " that reclaims", ", also to borrow"]
            .iter()
            .filter_map(|text| rest.find(text));
        let (names, condition) = rest.split_at(end.min().unwrap_or(rest.len()));
        let names = names.split(", ").flat_map(|part| part.split(" or "));
        let above = format!(" with a priority above {priority}");
        assert!(!condition.contains("priority") || condition.starts_with(&above), "{sentence}");
        Self {
            queues: names.map(|name| QUEUES.iter().position(|queue| *queue == name).unwrap()).collect(),
            takes_higher_priority: condition.starts_with(&above),
            takes_older: condition.ends_with(", or of the same and older"),
            reclaims: condition.contains(" that reclaims "),
        }
    }

    fn covers(&self, (queue, priority, age): Asker, holder: &Holder) -> bool {
        let older = self.takes_older && priority == holder.priority && age < AGES[holder.age];
        self.queues.contains(&queue) && (!self.takes_higher_priority || priority > holder.priority || older)
    }
}

fn check(world: &World) -> TestCaseResult {
    let mut core = world.core();
    let (engine, views) = (world.of_engine(&mut core), world.of_views(&core));
    let names = |askers: &BTreeSet<Asker>, others: &BTreeSet<Asker>| -> Vec<String> {
        let name =
            |(queue, priority, age): &Asker| format!("{} priority {priority} at {age}", QUEUES[*queue]);
        askers.difference(others).map(name).collect()
    };
    for (index, (engine, views)) in engine.iter().zip(&views).enumerate() {
        for (what, engine, views) in
            [("preempts", &engine.all, &views.all), ("borrows", &engine.borrowing, &views.borrowing)]
        {
            let hidden = names(engine, views);
            prop_assert!(hidden.is_empty(), "w{} {}: the verdict does not name {:?}", index, what, hidden);
            let invented = names(views, engine);
            prop_assert!(invented.is_empty(), "w{} {}: no head is {:?}", index, what, invented);
        }
    }
    Ok(())
}

fn quotas(declared: f64) -> impl Strategy<Value = [Option<Limits>; 2]> {
    let limits = || {
        let limit = || proptest::option::weighted(0.25, 0..4_i64);
        let nominal = prop_oneof![1 => Just(0_i64), 2 => 0..5_i64];
        proptest::option::weighted(declared, (nominal, limit(), limit()))
    };
    [limits(), limits()]
}

fn queue() -> impl Strategy<Value = Queue> {
    let cohort = proptest::option::weighted(0.9, 0..NUMBER_OF_COHORTS);
    (cohort, quotas(0.8), preemption_policies(), prop::bool::weighted(0.1))
        .prop_map(|(cohort, quotas, policies, is_stopped)| Queue { cohort, quotas, policies, is_stopped })
}

fn holder() -> impl Strategy<Value = Holder> {
    let amount = || prop_oneof![1 => Just(0_i64), 2 => 1..5_i64];
    (0..QUEUES.len(), [amount(), amount()], PRIORITIES, 0..AGES.len())
        .prop_map(|(queue, amounts, priority, age)| Holder { queue, amounts, priority, age })
}

/// A world in which the parent of each cohort precedes it.
fn world() -> impl Strategy<Value = World> {
    let cohorts: Vec<_> = (0..NUMBER_OF_COHORTS)
        .map(|index| {
            let parent = if index == 0 {
                Just(None).boxed()
            } else {
                proptest::option::weighted(0.9, 0..index).boxed()
            };
            (parent, quotas(0.4))
        })
        .collect();
    let flat = prop::bool::weighted(0.3);
    let queues = prop::collection::vec(queue(), QUEUES.len());
    let holders = prop::collection::vec(holder(), 1..6);
    (any::<bool>(), cohorts, flat, queues, holders, 1..10_i64).prop_map(
        |(is_fair, cohorts, flat, mut queues, holders, part)| {
            for queue in queues.iter_mut().filter(|_| flat) {
                queue.cohort = Some(0);
            }
            World { is_fair, cohorts, queues, holders, part }
        },
    )
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn i25_verdicts_name_the_preemptors_that_the_engine_allows(world in world()) {
        check(&world)?;
    }
}

/// Random worlds must have candidates for all reasons, and ClusterQueues that differ in what they may evict.
#[test]
fn generator_covers_all_reasons() {
    let mut runner = TestRunner::new(config(1));
    let [mut own, mut reclaimed, mut borrowed, mut shared] = [0; 4];
    for _ in 0..60 {
        let world = world().new_tree(&mut runner).unwrap().current();
        let mut core = world.core();
        for (holder, found) in world.holders.iter().zip(world.of_engine(&mut core)) {
            let others = |askers: &BTreeSet<Asker>| askers.iter().any(|asker| asker.0 != holder.queue);
            own += usize::from(found.all.iter().any(|asker| asker.0 == holder.queue));
            reclaimed += usize::from(!world.is_fair && others(&found.all));
            borrowed += usize::from(!world.is_fair && others(&found.borrowing));
            shared += usize::from(world.is_fair && others(&found.borrowing));
        }
    }
    assert!(
        [own, reclaimed, borrowed, shared].iter().all(|count| *count >= 5),
        "{own} {reclaimed} {borrowed} {shared}"
    );
}
