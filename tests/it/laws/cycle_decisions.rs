//! Every decision of a cycle, checked against books that the engine does not keep: I2, I3, I18, I19.

use super::builders::key;
use super::cluster::{Cluster, queue_index, sum_amounts};
use super::fast_model::{Amounts, FLAVOR_RESOURCES, NodeSums, node_index};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::scheduler::{Assignment, Decision, Outcome, PreemptionReason, Victim, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Who is there while a cycle is looked at turn by turn.
struct CycleAudit {
    reserved: BTreeMap<String, (usize, Amounts)>,
    /// In the plan these are gone.
    victims: BTreeMap<String, String>,
    /// In the plan these are in.
    reservations: BTreeMap<String, (usize, Amounts)>,
    /// Somebody of this cycle has to go already. Victims are chosen before that, as the rules have it, and may turn out
    /// needless by it.
    capacity_freed: bool,
}

impl CycleAudit {
    /// Sums of what is planned, without what is kept for one workload.
    fn projected_sums(&self, cluster: &Cluster, but: &str) -> NodeSums {
        let stays =
            self.reserved.iter().filter(|(name, _)| !self.victims.contains_key(*name)).map(|(_, held)| held);
        let kept = self.reservations.iter().filter(|(name, _)| *name != but).map(|(_, kept)| kept);
        cluster.model.sums(stays.chain(kept).map(|(queue, usage)| (*queue, usage)))
    }

    fn current_sums(&self, cluster: &Cluster) -> NodeSums {
        cluster.model.sums(self.reserved.values().map(|(queue, usage)| (*queue, usage)))
    }
}

fn granted(assignment: &Assignment) -> (usize, Amounts) {
    let mut sum = [0; FLAVOR_RESOURCES];
    for set in &assignment.pod_sets {
        for (resource, flavor) in &set.flavors {
            let named = sluice::scheduler::FlavorResource::new(flavor, resource);
            let part = sum_amounts([(&named, set.usage[resource].to_i128())].into_iter());
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
    (queue_index(&assignment.cluster_queue), sum)
}

/// One cycle with all its decisions looked at; answers with who must go for whom since.
pub(super) fn checked_cycle(cluster: &mut Cluster) -> Result<Vec<(String, String)>, TestCaseError> {
    let mut books = CycleAudit {
        reserved: cluster.reserved.clone(),
        victims: cluster.victims(),
        reservations: cluster.reservations(),
        capacity_freed: false,
    };
    let expires = cluster.engine.next_reservation_expiry().is_some_and(|at| at <= cluster.now);
    let heads = cluster.next_cycle_limit();
    let decisions = cluster.engine.run_cycle_limited(heads, cluster.now);
    let after = cluster.reservations();
    if std::env::var_os("SLUICE_TRACE").is_some() {
        println!(
            "{decisions:#?}\nkept {after:?} leaving {:?} held before {:?}",
            cluster.victims(),
            cluster.reserved
        );
    }
    let start = books.projected_sums(cluster, "");
    let mut pairs = Vec::new();
    for Decision { key, outcome, .. } in &decisions {
        let name = key.name.to_string();
        match outcome {
            Outcome::Admitted(assignment) => {
                let (queue, usage) = granted(assignment);
                check_admission(cluster, &mut books, &name, (queue, usage), expires)?;
                cluster.reserved.insert(name, (queue, usage));
            }
            Outcome::Preempting(_, victims) => {
                pairs.extend(victims.iter().map(|victim| (name.clone(), victim.key.name.to_string())));
                let Some((queue, usage)) = after.get(&name) else {
                    return Err(TestCaseError::fail(format!("nothing is kept for {name}")));
                };
                prop_assert_eq!(queue_index(&cluster.workloads[&name].cluster_queue), *queue);
                check_preemption(cluster, &mut books, &name, usage, victims, &start, expires)?;
            }
            Outcome::Pending(_) | Outcome::Skipped(_) | Outcome::PreemptionGated(_) => {
                if let Some(kept) = after.get(&name) {
                    books.reservations.insert(name.clone(), *kept);
                } else {
                    books.reservations.remove(&name);
                    books.victims.retain(|_, preemptor| *preemptor != name);
                }
            }
            Outcome::TopologyAssigned(_) | Outcome::TopologyPending(_) | Outcome::ReplacementFailed(_) => {
                return Err(TestCaseError::fail(format!("nobody asked for a second pass of {name}")));
            }
        }
    }
    for (_, victim) in &pairs {
        cluster.mark_evicted(victim);
    }
    if !expires {
        prop_assert_eq!(&books.reservations, &after, "room is kept as decided");
        prop_assert_eq!(&books.victims, &cluster.victims(), "victims are those of the decisions");
    }
    Ok(pairs)
}

fn check_admission(
    cluster: &Cluster,
    books: &mut CycleAudit,
    name: &str,
    (queue, usage): (usize, Amounts),
    expires: bool,
) -> TestCaseResult {
    prop_assert!(!books.reserved.contains_key(name), "{} is admitted twice", name);
    let real = books.current_sums(cluster);
    prop_assert!(cluster.model.fits(&real, queue, &usage), "I2: {} takes what is not free", name);
    if !expires {
        let plan = books.projected_sums(cluster, name);
        prop_assert!(cluster.model.fits(&plan, queue, &usage), "I19: {} takes what is kept for others", name);
    }
    // Room came from elsewhere: those who have not gone yet may stay.
    books.victims.retain(|_, preemptor| preemptor != name);
    books.reservations.remove(name);
    books.reserved.insert(name.to_owned(), (queue, usage));
    let real = books.current_sums(cluster);
    let path = cluster.model.path_to_root(queue);
    for pair in (0..FLAVOR_RESOURCES).filter(|pair| usage[*pair] > 0) {
        for at in &path {
            let node = &cluster.model.nodes[*at];
            let most = if node.parent.is_none() { Some(0) } else { node.quotas[pair].borrowing };
            let over = most.is_some_and(|most| real.usage[*at][pair] > real.subtree_quota[*at][pair] + most);
            prop_assert!(!over, "I2: node {} is above its limit of {}", at, pair);
            if real.usage[*at][pair] <= real.local_quota[*at][pair] {
                break;
            }
        }
    }
    Ok(())
}

fn check_preemption(
    cluster: &Cluster,
    books: &mut CycleAudit,
    name: &str,
    usage: &Amounts,
    victims: &[Victim],
    start: &NodeSums,
    expires: bool,
) -> TestCaseResult {
    let preemptor = &cluster.workloads[name];
    let queue = queue_index(&preemptor.cluster_queue);
    let now = books.projected_sums(cluster, name);
    let gone: BTreeSet<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
    prop_assert!(!gone.is_empty() && gone.len() == victims.len());
    for victim in victims {
        let other = &*victim.key.name;
        prop_assert!(books.reserved.contains_key(other), "I18: {} holds nothing", other);
        prop_assert!(expires || !books.victims.contains_key(other), "I18: {} must go already", other);
        if !expires {
            check_victim_allowed(cluster, preemptor, victim, &[start, &now], usage, books)?;
        }
    }
    for victim in &gone {
        books.victims.insert((*victim).to_owned(), name.to_owned());
    }
    if !expires {
        let plan = books.projected_sums(cluster, name);
        prop_assert!(
            cluster.model.fits(&plan, queue, usage),
            "I18: {} does not fit without its victims",
            name
        );
        for victim in &gone {
            let preemptor = books.victims.remove(*victim).unwrap();
            let plan = books.projected_sums(cluster, name);
            // What may only be taken by one that does not borrow is judged so.
            let strictly =
                victims.iter().any(|victim| victim.reason == PreemptionReason::InCohortReclamation)
                    && cluster.is_classical();
            let fits = if strictly {
                cluster.model.fits_without_borrowing(&plan, queue, usage)
            } else {
                cluster.model.fits(&plan, queue, usage)
            };
            let own_only = cluster.queues[&queue].rules.reclaim_within_cohort == ReclaimPolicy::Never;
            prop_assert!(
                books.capacity_freed || !fits || !(strictly || own_only || !cluster.is_classical()),
                "I18: {} need not go for {}",
                victim,
                name
            );
            books.victims.insert((*victim).to_owned(), preemptor);
        }
    }
    books.capacity_freed = true;
    books.reservations.insert(name.to_owned(), (queue, *usage));
    Ok(())
}

/// Whether the rules let the preemptor take this victim for this reason.
fn check_victim_allowed(
    cluster: &Cluster,
    preemptor: &Workload,
    victim: &Victim,
    plans: &[&NodeSums],
    usage: &Amounts,
    books: &CycleAudit,
) -> TestCaseResult {
    let (queue, name) = (queue_index(&preemptor.cluster_queue), &*victim.key.name);
    let (theirs, holds) = books.reserved[name];
    let rules = &cluster.queues[&queue].rules;
    let other = &cluster.workloads[name];
    let charge = cluster.engine.charge_of(&key(name)).expect("it holds quota");
    prop_assert_eq!(charge.priority, other.priority);
    prop_assert!(
        (0..FLAVOR_RESOURCES).any(|pair| usage[pair] > 0 && holds[pair] > 0),
        "I18: {} has nothing of use",
        name
    );
    let lower = other.priority < preemptor.priority;
    if theirs == queue {
        let newer = other.priority == preemptor.priority && preemptor.queued_since < other.queued_since;
        let allowed = match rules.within_cluster_queue {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => lower,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => lower || newer,
        };
        prop_assert!(allowed, "I18: {} is protected in its own queue", name);
        prop_assert_eq!(victim.reason, PreemptionReason::InClusterQueue);
        return Ok(());
    }
    prop_assert!(cluster.queues.contains_key(&theirs), "I18: nobody takes from a queue that is closed");
    prop_assert_eq!(
        cluster.model.path_to_root(queue).last().copied(),
        cluster.model.path_to_root(theirs).last().copied(),
        "I18: of another tree"
    );
    let allowed = match rules.reclaim_within_cohort {
        ReclaimPolicy::Never => false,
        ReclaimPolicy::LowerPriority => lower,
        ReclaimPolicy::Any => true,
    };
    prop_assert!(allowed, "I18: {} is protected in the cohort", name);
    let at = node_index(theirs);
    let over = |sums: &&NodeSums| {
        (0..FLAVOR_RESOURCES).any(|pair| sums.usage[at][pair] > sums.subtree_quota[at][pair])
    };
    prop_assert!(plans.iter().any(over), "I18: {} is within what its queue owns", name);
    match victim.reason {
        PreemptionReason::InCohortReclaimWhileBorrowing => {
            let most = rules.borrow_threshold.map(i64::from);
            prop_assert!(lower && most.is_some_and(|most| other.priority <= most));
        }
        PreemptionReason::InCohortReclamation => {}
        PreemptionReason::InCohortFairSharing => prop_assert!(!cluster.is_classical()),
        other => return Err(TestCaseError::fail(format!("reason {other:?} across queues"))),
    }
    Ok(())
}

impl Cluster {
    /// How many heads the next cycle is for, all of them every other time.
    fn next_cycle_limit(&mut self) -> usize {
        self.cycles += 1;
        [usize::MAX, 1, usize::MAX, 2][self.cycles % 4]
    }

    /// One cycle that nobody looks at; its decisions.
    pub(super) fn unchecked_cycle(&mut self) -> Vec<Decision> {
        let heads = self.next_cycle_limit();
        let decisions = self.engine.run_cycle_limited(heads, self.now);
        for decision in &decisions {
            if let Outcome::Admitted(assignment) = &decision.outcome {
                self.reserved.insert(decision.key.name.to_string(), granted(assignment));
            }
        }
        decisions
    }
}
