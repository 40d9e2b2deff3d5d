//! Every decision of a cycle, checked against books that the engine does not keep: I2, I3, I18, I19.

use super::cluster::{Cluster, amounts, queue_at};
use super::plain::{Amounts, Figures, PAIRS, node_of};
use super::world::key;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use sluice::scheduler::{Assignment, Decision, Outcome, PreemptionReason, Victim, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Who is there while a cycle is looked at turn by turn.
struct Books {
    held: BTreeMap<String, (usize, Amounts)>,
    /// In the plan these are gone.
    leaving: BTreeMap<String, String>,
    /// In the plan these are in.
    kept: BTreeMap<String, (usize, Amounts)>,
    /// Somebody of this cycle has to go already. Victims are chosen before that, as the rules have it, and may turn out
    /// needless by it.
    eased: bool,
}

impl Books {
    /// Sums of what is planned, without what is kept for one workload.
    fn plan(&self, cluster: &Cluster, but: &str) -> Figures {
        let stays =
            self.held.iter().filter(|(name, _)| !self.leaving.contains_key(*name)).map(|(_, held)| held);
        let kept = self.kept.iter().filter(|(name, _)| *name != but).map(|(_, kept)| kept);
        cluster.plain.figures(stays.chain(kept).map(|(queue, usage)| (*queue, usage)))
    }

    fn real(&self, cluster: &Cluster) -> Figures {
        cluster.plain.figures(self.held.values().map(|(queue, usage)| (*queue, usage)))
    }
}

fn given(assignment: &Assignment) -> (usize, Amounts) {
    let mut sum = [0; PAIRS];
    for set in &assignment.pod_sets {
        for (resource, flavor) in &set.flavors {
            let named = sluice::scheduler::FlavorResource::new(flavor, resource);
            let part = amounts([(&named, set.usage[resource].wide())].into_iter());
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
    (queue_at(&assignment.cluster_queue), sum)
}

/// One cycle with all its decisions looked at; answers with who must go for whom since.
pub(super) fn cycle(cluster: &mut Cluster) -> Result<Vec<(String, String)>, TestCaseError> {
    let mut books =
        Books { held: cluster.held.clone(), leaving: cluster.leaving(), kept: cluster.kept(), eased: false };
    let expires = cluster.engine.next_expiry().is_some_and(|at| at <= cluster.now);
    let heads = cluster.heads_of_cycle();
    let decisions = cluster.engine.cycle_of(heads, cluster.now);
    let after = cluster.kept();
    if std::env::var_os("SLUICE_TRACE").is_some() {
        println!(
            "{decisions:#?}\nkept {after:?} leaving {:?} held before {:?}",
            cluster.leaving(),
            cluster.held
        );
    }
    let start = books.plan(cluster, "");
    let mut pairs = Vec::new();
    for Decision { key, outcome, .. } in &decisions {
        let name = key.name.to_string();
        match outcome {
            Outcome::Admitted(assignment) => {
                let (queue, usage) = given(assignment);
                admitted(cluster, &mut books, &name, (queue, usage), expires)?;
                cluster.held.insert(name, (queue, usage));
            }
            Outcome::Preempting(_, victims) => {
                pairs.extend(victims.iter().map(|victim| (name.clone(), victim.key.name.to_string())));
                let Some((queue, usage)) = after.get(&name) else {
                    return Err(TestCaseError::fail(format!("nothing is kept for {name}")));
                };
                prop_assert_eq!(queue_at(&cluster.wanted[&name].cluster_queue), *queue);
                preempted(cluster, &mut books, &name, usage, victims, &start, expires)?;
            }
            Outcome::Pending(_) | Outcome::Skipped(_) | Outcome::Gated(_) => {
                if let Some(kept) = after.get(&name) {
                    books.kept.insert(name.clone(), *kept);
                } else {
                    books.kept.remove(&name);
                    books.leaving.retain(|_, preemptor| *preemptor != name);
                }
            }
            Outcome::Placed(_) | Outcome::Unplaced(_) | Outcome::NodesFailed(_) => {
                return Err(TestCaseError::fail(format!("nobody asked for a second pass of {name}")));
            }
        }
    }
    for (_, victim) in &pairs {
        cluster.evict(victim);
    }
    if !expires {
        prop_assert_eq!(&books.kept, &after, "room is kept as decided");
        prop_assert_eq!(&books.leaving, &cluster.leaving(), "victims are those of the decisions");
    }
    Ok(pairs)
}

fn admitted(
    cluster: &Cluster,
    books: &mut Books,
    name: &str,
    (queue, usage): (usize, Amounts),
    expires: bool,
) -> TestCaseResult {
    prop_assert!(!books.held.contains_key(name), "{} is admitted twice", name);
    let real = books.real(cluster);
    prop_assert!(cluster.plain.fits(&real, queue, &usage), "I2: {} takes what is not free", name);
    if !expires {
        let plan = books.plan(cluster, name);
        prop_assert!(cluster.plain.fits(&plan, queue, &usage), "I19: {} takes what is kept for others", name);
    }
    // Room came from elsewhere: those who have not gone yet may stay.
    books.leaving.retain(|_, preemptor| preemptor != name);
    books.kept.remove(name);
    books.held.insert(name.to_owned(), (queue, usage));
    let real = books.real(cluster);
    let path = cluster.plain.path(queue);
    for pair in (0..PAIRS).filter(|pair| usage[*pair] > 0) {
        for at in &path {
            let node = &cluster.plain.nodes[*at];
            let most = if node.parent.is_none() { Some(0) } else { node.quotas[pair].borrowing };
            let over = most.is_some_and(|most| real.usage[*at][pair] > real.subtree[*at][pair] + most);
            prop_assert!(!over, "I2: node {} is above its limit of {}", at, pair);
            if real.usage[*at][pair] <= real.local[*at][pair] {
                break;
            }
        }
    }
    Ok(())
}

fn preempted(
    cluster: &Cluster,
    books: &mut Books,
    name: &str,
    usage: &Amounts,
    victims: &[Victim],
    start: &Figures,
    expires: bool,
) -> TestCaseResult {
    let preemptor = &cluster.wanted[name];
    let queue = queue_at(&preemptor.cluster_queue);
    let now = books.plan(cluster, name);
    let gone: BTreeSet<&str> = victims.iter().map(|victim| &*victim.key.name).collect();
    prop_assert!(!gone.is_empty() && gone.len() == victims.len());
    for victim in victims {
        let other = &*victim.key.name;
        prop_assert!(books.held.contains_key(other), "I18: {} holds nothing", other);
        prop_assert!(expires || !books.leaving.contains_key(other), "I18: {} must go already", other);
        if !expires {
            permitted(cluster, preemptor, victim, &[start, &now], usage, books)?;
        }
    }
    for victim in &gone {
        books.leaving.insert((*victim).to_owned(), name.to_owned());
    }
    if !expires {
        let plan = books.plan(cluster, name);
        prop_assert!(
            cluster.plain.fits(&plan, queue, usage),
            "I18: {} does not fit without its victims",
            name
        );
        for victim in &gone {
            let preemptor = books.leaving.remove(*victim).unwrap();
            let plan = books.plan(cluster, name);
            // What may only be taken by one that does not borrow is judged so.
            let strictly =
                victims.iter().any(|victim| victim.reason == PreemptionReason::InCohortReclamation)
                    && cluster.engine_is_classic();
            let fits = if strictly {
                cluster.plain.fits_own(&plan, queue, usage)
            } else {
                cluster.plain.fits(&plan, queue, usage)
            };
            let own_only = cluster.specs[&queue].rules.reclaim == ReclaimPolicy::Never;
            prop_assert!(
                books.eased || !fits || !(strictly || own_only || !cluster.engine_is_classic()),
                "I18: {} need not go for {}",
                victim,
                name
            );
            books.leaving.insert((*victim).to_owned(), preemptor);
        }
    }
    books.eased = true;
    books.kept.insert(name.to_owned(), (queue, *usage));
    Ok(())
}

/// Whether the rules let the preemptor take this victim for this reason.
fn permitted(
    cluster: &Cluster,
    preemptor: &Workload,
    victim: &Victim,
    plans: &[&Figures],
    usage: &Amounts,
    books: &Books,
) -> TestCaseResult {
    let (queue, name) = (queue_at(&preemptor.cluster_queue), &*victim.key.name);
    let (theirs, holds) = books.held[name];
    let rules = &cluster.specs[&queue].rules;
    let other = &cluster.wanted[name];
    let charge = cluster.engine.charge_of(&key(name)).expect("it holds quota");
    prop_assert_eq!(charge.priority, other.priority);
    prop_assert!(
        (0..PAIRS).any(|pair| usage[pair] > 0 && holds[pair] > 0),
        "I18: {} has nothing of use",
        name
    );
    let lower = other.priority < preemptor.priority;
    if theirs == queue {
        let newer = other.priority == preemptor.priority && preemptor.queued_since < other.queued_since;
        let allowed = match rules.within {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => lower,
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => lower || newer,
        };
        prop_assert!(allowed, "I18: {} is protected in its own queue", name);
        prop_assert_eq!(victim.reason, PreemptionReason::InClusterQueue);
        return Ok(());
    }
    prop_assert!(cluster.specs.contains_key(&theirs), "I18: nobody takes from a queue that is closed");
    prop_assert_eq!(
        cluster.plain.path(queue).last().copied(),
        cluster.plain.path(theirs).last().copied(),
        "I18: of another tree"
    );
    let allowed = match rules.reclaim {
        ReclaimPolicy::Never => false,
        ReclaimPolicy::LowerPriority => lower,
        ReclaimPolicy::Any => true,
    };
    prop_assert!(allowed, "I18: {} is protected in the cohort", name);
    let at = node_of(theirs);
    let over = |sums: &&Figures| (0..PAIRS).any(|pair| sums.usage[at][pair] > sums.subtree[at][pair]);
    prop_assert!(plans.iter().any(over), "I18: {} is within what its queue owns", name);
    match victim.reason {
        PreemptionReason::InCohortReclaimWhileBorrowing => {
            let most = rules.borrow.map(i64::from);
            prop_assert!(lower && most.is_some_and(|most| other.priority <= most));
        }
        PreemptionReason::InCohortReclamation => {}
        PreemptionReason::InCohortFairSharing => prop_assert!(!cluster.engine_is_classic()),
        other => return Err(TestCaseError::fail(format!("reason {other:?} across queues"))),
    }
    Ok(())
}

impl Cluster {
    /// How many heads the next cycle is for, all of them every other time.
    fn heads_of_cycle(&mut self) -> usize {
        self.cycles += 1;
        [usize::MAX, 1, usize::MAX, 2][self.cycles % 4]
    }

    /// One cycle that nobody looks at; its decisions.
    pub(super) fn plain_cycle(&mut self) -> Vec<Decision> {
        let heads = self.heads_of_cycle();
        let decisions = self.engine.cycle_of(heads, self.now);
        for decision in &decisions {
            if let Outcome::Admitted(assignment) = &decision.outcome {
                self.held.insert(decision.key.name.to_string(), given(assignment));
            }
        }
        decisions
    }
}
