//! Checks every decision of a cycle against usage that the test records itself: I2, I3, I18, I19.

use super::cluster::{Cluster, queue_index, sum_amounts};
use super::fast_model::{Amounts, FLAVOR_RESOURCES, NodeSums, node_index};
use crate::fixtures::builders::key;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice_core::scheduler::{Assignment, Decision, Outcome, PreemptionReason, Victim};
use std::collections::{BTreeMap, BTreeSet};

/// Expected state during a cycle, updated decision by decision.
struct CycleAudit {
    reserved: BTreeMap<String, (usize, Amounts)>,
    /// Victims with their preemptors; subtracted from projected usage.
    victims: BTreeMap<String, String>,
    /// Capacity reservations; added to projected usage.
    reservations: BTreeMap<String, (usize, Amounts)>,
    /// A decision of this cycle already evicts. Targets of later decisions were computed before it and may be unnecessary.
    capacity_freed: bool,
}

impl CycleAudit {
    /// Returns sums of projected usage, without the capacity reservation of workload `except`.
    fn projected_sums(&self, cluster: &Cluster, except: &str) -> NodeSums {
        let stays =
            self.reserved.iter().filter(|(name, _)| !self.victims.contains_key(*name)).map(|(_, held)| held);
        let reservations =
            self.reservations.iter().filter(|(name, _)| *name != except).map(|(_, reservation)| reservation);
        cluster.model.sums(stays.chain(reservations).map(|(queue, usage)| (*queue, usage)))
    }

    fn current_sums(&self, cluster: &Cluster) -> NodeSums {
        cluster.model.sums(self.reserved.values().map(|(queue, usage)| (*queue, usage)))
    }
}

fn granted(assignment: &Assignment) -> (usize, Amounts) {
    let mut sum = [0; FLAVOR_RESOURCES];
    for set in &assignment.pod_sets {
        for (resource, flavor) in &set.flavors {
            let fr = sluice_core::scheduler::FlavorResource::new(flavor, resource);
            let part = sum_amounts([(&fr, set.usage[resource].to_i128())].into_iter());
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
    (queue_index(&assignment.cluster_queue), sum)
}

/// Runs one cycle and checks all its decisions. Returns the new pairs of preemptor and victim.
pub(super) fn checked_cycle(cluster: &mut Cluster) -> Result<Vec<(String, String)>, TestCaseError> {
    let mut audit = CycleAudit {
        reserved: cluster.reserved.clone(),
        victims: cluster.victims(),
        reservations: cluster.reservations(),
        capacity_freed: false,
    };
    let expires = cluster.engine.next_reservation_expiry().is_some_and(|at| at <= cluster.now);
    let heads = cluster.next_cycle_limit();
    let decisions = cluster.engine.run_cycle_limited(heads, cluster.now);
    let reservations = cluster.reservations();
    if std::env::var_os("SLUICE_TRACE").is_some() {
        println!(
            "{decisions:#?}\nreservations {reservations:?} victims {:?} reserved before {:?}",
            cluster.victims(),
            cluster.reserved
        );
    }
    let start = audit.projected_sums(cluster, "");
    let mut pairs = Vec::new();
    for Decision { key, outcome, .. } in &decisions {
        let name = key.name.to_string();
        match outcome {
            Outcome::Admitted(assignment) => {
                let (queue, usage) = granted(assignment);
                check_admission(cluster, &mut audit, &name, (queue, usage), expires)?;
                cluster.reserved.insert(name, (queue, usage));
            }
            Outcome::Preempting(_, victims) => {
                pairs.extend(victims.iter().map(|victim| (name.clone(), victim.key.name.to_string())));
                let Some((queue, usage)) = reservations.get(&name) else {
                    return Err(TestCaseError::fail(format!("{name} has no capacity reservation")));
                };
                prop_assert_eq!(queue_index(&cluster.workloads[&name].cluster_queue), *queue);
                let decision = PreemptionDecision { name: &name, usage, victims, start: &start };
                check_preemption(cluster, &mut audit, &decision, expires)?;
            }
            Outcome::Pending(_) | Outcome::Skipped(_) | Outcome::PreemptionGated(_) => {
                if let Some(reservation) = reservations.get(&name) {
                    audit.reservations.insert(name.clone(), *reservation);
                } else {
                    audit.reservations.remove(&name);
                    audit.victims.retain(|_, preemptor| *preemptor != name);
                }
            }
            Outcome::TopologyAssigned(_) | Outcome::TopologyPending(_) | Outcome::ReplacementFailed(_) => {
                return Err(TestCaseError::fail(format!("no second pass of {name} was requested")));
            }
        }
    }
    for (_, victim) in &pairs {
        cluster.mark_evicted(victim);
    }
    if !expires {
        prop_assert_eq!(&audit.reservations, &reservations, "reservations match the decisions");
        prop_assert_eq!(&audit.victims, &cluster.victims(), "victims match the decisions");
    }
    Ok(pairs)
}

fn check_admission(
    cluster: &Cluster,
    audit: &mut CycleAudit,
    name: &str,
    (queue, usage): (usize, Amounts),
    expires: bool,
) -> TestCaseResult {
    prop_assert!(!audit.reserved.contains_key(name), "{} is admitted twice", name);
    let current = audit.current_sums(cluster);
    prop_assert!(cluster.model.fits(&current, queue, &usage), "I2: {} exceeds current availability", name);
    if !expires {
        let projected = audit.projected_sums(cluster, name);
        prop_assert!(
            cluster.model.fits(&projected, queue, &usage),
            "I19: {} uses capacity reserved for others",
            name
        );
    }
    // The workload fits without its remaining victims: they are not evicted.
    audit.victims.retain(|_, preemptor| preemptor != name);
    audit.reservations.remove(name);
    audit.reserved.insert(name.to_owned(), (queue, usage));
    let current = audit.current_sums(cluster);
    let path = cluster.model.path_to_root(queue);
    for fr in (0..FLAVOR_RESOURCES).filter(|fr| usage[*fr] > 0) {
        for node_index in &path {
            let node = &cluster.model.nodes[*node_index];
            let limit = if node.parent.is_none() { Some(0) } else { node.quotas[fr].borrowing };
            let over = limit.is_some_and(|limit| {
                current.usage[*node_index][fr] > current.subtree_quota[*node_index][fr] + limit
            });
            prop_assert!(!over, "I2: node {} is above its limit of {}", node_index, fr);
            if current.usage[*node_index][fr] <= current.local_quota[*node_index][fr] {
                break;
            }
        }
    }
    Ok(())
}

/// A decision to preempt, and projected usage at the start of its cycle.
struct PreemptionDecision<'a> {
    name: &'a str,
    usage: &'a Amounts,
    victims: &'a [Victim],
    start: &'a NodeSums,
}

fn check_preemption(
    cluster: &Cluster,
    audit: &mut CycleAudit,
    decision: &PreemptionDecision<'_>,
    expires: bool,
) -> TestCaseResult {
    let PreemptionDecision { name, usage, victims, .. } = *decision;
    let preemptor = &cluster.workloads[name];
    let queue = queue_index(&preemptor.cluster_queue);
    let now = audit.projected_sums(cluster, name);
    let evicted: BTreeSet<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
    prop_assert!(!evicted.is_empty() && evicted.len() == victims.len());
    for victim in victims {
        let victim_name = &*victim.key.name;
        prop_assert!(audit.reserved.contains_key(victim_name), "I18: {} has no quota", victim_name);
        prop_assert!(
            expires || !audit.victims.contains_key(victim_name),
            "I18: {} is already a victim",
            victim_name
        );
        if !expires {
            check_victim_allowed(cluster, audit, decision, victim, &now)?;
        }
    }
    for victim in &evicted {
        audit.victims.insert((*victim).to_owned(), name.to_owned());
    }
    if !expires {
        let projected = audit.projected_sums(cluster, name);
        prop_assert!(
            cluster.model.fits(&projected, queue, usage),
            "I18: {} does not fit without its victims",
            name
        );
        for victim in &evicted {
            let preemptor = audit.victims.remove(*victim).unwrap();
            let projected = audit.projected_sums(cluster, name);
            // Targets that are allowed only without borrowing are checked that way.
            let without_borrowing =
                victims.iter().any(|victim| victim.reason == PreemptionReason::InCohortReclamation)
                    && cluster.is_classical();
            let fits = if without_borrowing {
                cluster.model.fits_without_borrowing(&projected, queue, usage)
            } else {
                cluster.model.fits(&projected, queue, usage)
            };
            let own_only = cluster.queues[&queue].rules.reclaim_within_cohort == ReclaimPolicy::Never;
            prop_assert!(
                audit.capacity_freed || !fits || !(without_borrowing || own_only || !cluster.is_classical()),
                "I18: {} is evicted for {} without need",
                victim,
                name
            );
            audit.victims.insert((*victim).to_owned(), preemptor);
        }
    }
    audit.capacity_freed = true;
    audit.reservations.insert(name.to_owned(), (queue, *usage));
    Ok(())
}

/// Checks that the policies allow the preemptor to evict this victim for this reason.
fn check_victim_allowed(
    cluster: &Cluster,
    audit: &CycleAudit,
    decision: &PreemptionDecision<'_>,
    victim: &Victim,
    now: &NodeSums,
) -> TestCaseResult {
    let (preemptor, usage) = (&cluster.workloads[decision.name], decision.usage);
    let (queue, name) = (queue_index(&preemptor.cluster_queue), &*victim.key.name);
    let (victim_queue, victim_usage) = audit.reserved[name];
    let rules = &cluster.queues[&queue].rules;
    let victim_workload = &cluster.workloads[name];
    let charge = cluster.engine.charge_of(&key(name)).expect("a victim has a charge");
    prop_assert_eq!(charge.priority, victim_workload.priority);
    prop_assert!(
        (0..FLAVOR_RESOURCES).any(|fr| usage[fr] > 0 && victim_usage[fr] > 0),
        "I18: {} has no quota of a requested flavor-resource",
        name
    );
    let lower = victim_workload.priority < preemptor.priority;
    if victim_queue == queue {
        let newer = victim_workload.priority == preemptor.priority
            && preemptor.queued_since < victim_workload.queued_since;
        let allowed = match rules.within_cluster_queue {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => lower,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => lower || newer,
        };
        prop_assert!(allowed, "I18: {} is protected in its own queue", name);
        prop_assert_eq!(victim.reason, PreemptionReason::InClusterQueue);
        return Ok(());
    }
    prop_assert!(cluster.queues.contains_key(&victim_queue), "I18: the victim's queue is deleted");
    prop_assert_eq!(
        cluster.model.path_to_root(queue).last().copied(),
        cluster.model.path_to_root(victim_queue).last().copied(),
        "I18: the victim is in another tree"
    );
    let allowed = match rules.reclaim_within_cohort {
        ReclaimPolicy::Never => false,
        ReclaimPolicy::LowerPriority => lower,
        ReclaimPolicy::Any => true,
    };
    prop_assert!(allowed, "I18: {} is protected in the cohort", name);
    let node = node_index(victim_queue);
    let over = |sums: &&NodeSums| {
        (0..FLAVOR_RESOURCES).any(|fr| sums.usage[node][fr] > sums.subtree_quota[node][fr])
    };
    prop_assert!([decision.start, now].iter().any(over), "I18: the queue of {} is within its quota", name);
    match victim.reason {
        PreemptionReason::InCohortReclaimWhileBorrowing => {
            let most = rules.borrow_threshold.map(i64::from);
            prop_assert!(lower && most.is_some_and(|most| victim_workload.priority <= most));
        }
        PreemptionReason::InCohortReclamation => {}
        PreemptionReason::InCohortFairSharing => prop_assert!(!cluster.is_classical()),
        reason => return Err(TestCaseError::fail(format!("reason {reason:?} across queues"))),
    }
    Ok(())
}

impl Cluster {
    /// Returns the number of heads of the next cycle, unlimited every other time.
    fn next_cycle_limit(&mut self) -> usize {
        self.cycles += 1;
        [usize::MAX, 1, usize::MAX, 2][self.cycles % 4]
    }

    /// Runs one cycle without checks. Returns its decisions.
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
