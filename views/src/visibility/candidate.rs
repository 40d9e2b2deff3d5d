//! A workload that holds quota, as a candidate for preemption: the ClusterQueues whose heads may evict it, and the quota for
//! which they may, by their policies and the published usage.
//!
//! Invariant: the result has a ClusterQueue exactly if the engine has the workload among the candidates of some head of it
//! (`laws::preemptors`). Heads may ask for any amounts that their ClusterQueue can have; whether a head fits after the evictions
//! plays no part.

use super::quota::PublishedQuota;
use super::workload_row::Rows;
use crate::quota::{FlavorResource, NodeRef, NodeUsage, PathHeadroom};
use crate::scheduler::{Attempt, EvictionRule, EvictionScope, VictimPriority};
use crate::snapshot::ClusterQueueFacts;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The quota for which a ClusterQueue evicts a workload of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gain {
    /// Nominal quota of the preempting ClusterQueue.
    Nominal,
    /// Quota of a cohort above the preempting ClusterQueue and not above the victim's.
    OfCohort,
    /// Borrowed quota.
    Borrowed,
    /// Any quota, as far as the eviction makes shares fairer.
    Share,
}

/// A workload that holds quota.
pub(super) struct Candidate<'a> {
    quota: PublishedQuota<'a>,
    facts: &'a ClusterQueueFacts,
    priority: i64,
    used: &'a [FlavorResource],
    /// The nodes from the ClusterQueue of the workload to the root.
    path: Vec<NodeRef>,
    /// The flavor-resources in which each node of the path borrows.
    borrowed: Vec<BTreeSet<&'a FlavorResource>>,
}

/// A flavor-resource for which heads of a ClusterQueue may need evictions.
struct Need<'a> {
    fr: &'a FlavorResource,
    /// Quota and usage of the nodes from the ClusterQueue to the root.
    along: Vec<NodeUsage>,
    /// Maximum amount of it that a head can have.
    most: i128,
}

impl<'a> Candidate<'a> {
    /// Returns a workload of a ClusterQueue as a candidate; `None` if the ClusterQueue admits nothing: its workloads are never
    /// preempted.
    pub(super) fn of(
        rows: Rows<'a>,
        priority: i64,
        queue: &Arc<str>,
        used: &'a [FlavorResource],
    ) -> Option<Self> {
        let quota = rows.quota;
        let facts = quota.facts.cluster_queues.get(queue).filter(|_| rows.is_active(queue))?;
        let path = quota.path(&NodeRef::ClusterQueue(Arc::clone(queue)))?;
        let borrowed = path.iter().map(|node| quota.borrowing(node)).collect();
        Some(Self { quota, facts, priority, used, path, borrowed })
    }

    /// Returns the priority at which heads of its own ClusterQueue may evict it; `None` if none may.
    pub(super) fn within_cluster_queue(&self) -> Option<VictimPriority> {
        let policy = &self.facts.preemption;
        let below_root = self.path.len().saturating_sub(1);
        // If only the root of the tree could provide an amount, the engine finds without a search that it does not fit.
        let is_searched = |need: &Need<'_>| {
            policy.searches_while_borrowing()
                || need.nominal() > 0
                || (0..below_root).any(|level| need.is_covered(level, 1))
        };
        let needs = needs(self.quota, &self.path, self.facts);
        let is_candidate = needs.iter().any(|need| self.used.contains(need.fr) && is_searched(need));
        policy.own().filter(|_| is_candidate).map(|rule| rule.priority)
    }

    /// Returns the quota for which heads of another ClusterQueue may evict it, each with the priority at which they may.
    pub(super) fn gains(&self, name: &Arc<str>, facts: &'a ClusterQueueFacts) -> Vec<(Gain, VictimPriority)> {
        let rules = facts.preemption.rules().filter(|rule| rule.scope == EvictionScope::BorrowingQueues);
        let rules: Vec<EvictionRule> = rules.filter(|rule| rule.priority.reaches(self.priority)).collect();
        if rules.is_empty() || !facts.order.iter().any(|fr| self.used.contains(fr)) {
            return Vec::new();
        }
        let Some(path) = self.quota.path(&NodeRef::ClusterQueue(Arc::clone(name))) else {
            return Vec::new();
        };
        let shared = path.iter().rev().zip(self.path.iter().rev()).take_while(|(a, b)| a == b).count();
        if shared == 0 {
            return Vec::new();
        }
        let other = Other {
            needs: needs(self.quota, &path, facts),
            levels: path.len().saturating_sub(shared),
            borrows: facts.preemption.borrow().is_some(),
        };
        let gain = |rule: &EvictionRule| Some((self.gain(*rule, &other, shared)?, rule.priority));
        rules.iter().filter_map(gain).collect()
    }

    /// Returns the quota for which a rule of another ClusterQueue lets its heads evict the candidate. `shared` is the number of
    /// nodes above both.
    fn gain(&self, rule: EvictionRule, other: &Other<'_>, shared: usize) -> Option<Gain> {
        let is_fair = self.quota.facts.fair_sharing.is_some();
        // Each node below the lowest common cohort must borrow. Under fair sharing, the shares of cohorts decide instead.
        let nodes = if is_fair { 1 } else { self.path.len().saturating_sub(shared) };
        let is_candidate = |of: &dyn Fn(&Need<'_>) -> bool| {
            let frs: Vec<&FlavorResource> =
                other.needs.iter().filter(|need| of(need)).map(|need| need.fr).collect();
            frs.iter().any(|fr| self.used.contains(fr))
                && self.borrowed.iter().take(nodes).all(|node| frs.iter().any(|fr| node.contains(fr)))
        };
        if is_fair {
            return is_candidate(&|_| true).then_some(Gain::Share);
        }
        if rule.borrowing == Attempt::Borrowing {
            let exceeds = |level| other.needs.iter().any(|need| !need.is_covered(level, need.most));
            return (is_candidate(&|_| true) && (0..other.levels).all(exceeds)).then_some(Gain::Borrowed);
        }
        // If a ClusterQueue may also evict to borrow, its heads may get below nominal quota by evicting workloads of the
        // candidate's queue.
        let nominal = |need: &Need<'_>| need.nominal() > 0 && (other.borrows || need.is_below_nominal());
        if is_candidate(&nominal) {
            return Some(Gain::Nominal);
        }
        let of_cohort = |level: usize| is_candidate(&|need| need.is_covered(level, 1));
        (1..other.levels).any(of_cohort).then_some(Gain::OfCohort)
    }
}

/// Another ClusterQueue of the tree.
struct Other<'a> {
    needs: Vec<Need<'a>>,
    /// Number of nodes of its path that are not above the candidate: the ClusterQueue itself, and cohorts.
    levels: usize,
    /// Whether its policies allow preemption while it borrows.
    borrows: bool,
}

impl Need<'_> {
    fn of_queue(&self) -> NodeUsage {
        self.along.first().copied().unwrap_or_default()
    }

    fn nominal(&self) -> i128 {
        self.of_queue().subtree_quota.to_i128()
    }

    fn is_below_nominal(&self) -> bool {
        self.of_queue().usage.to_i128() < self.nominal()
    }

    /// Returns whether the quota of a node of the path covers an amount.
    fn is_covered(&self, level: usize, amount: i128) -> bool {
        NodeUsage::covered_along(&self.along, amount).get(level).copied().unwrap_or(false)
    }
}

/// Returns the flavor-resources that heads of a ClusterQueue with this path may ask for.
fn needs<'a>(quota: PublishedQuota<'a>, path: &[NodeRef], facts: &'a ClusterQueueFacts) -> Vec<Need<'a>> {
    let need = |fr: &'a FlavorResource| {
        let along: Vec<NodeUsage> = path.iter().map(|node| quota.usage(node, fr)).collect();
        let most = PathHeadroom::of_path(&along).potential;
        (most > 0).then_some(Need { fr, along, most })
    };
    facts.order.iter().filter_map(need).collect()
}
