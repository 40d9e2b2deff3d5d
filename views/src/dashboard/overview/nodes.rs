//! The nodes of the quota tree in the order of the rows: each cohort, then what is below it.
//!
//! Invariant: each node is there once, also if parents form a cycle.

use crate::dashboard::data::Overview;
use crate::dashboard::links::Links;
use crate::visibility::views::{ClusterQueueView, CohortView, QuotaView, ShareView};
use std::collections::{BTreeMap, BTreeSet};

/// A cohort or ClusterQueue.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    Cohort(&'a CohortView),
    ClusterQueue(&'a ClusterQueueView),
}

impl<'a> Node<'a> {
    pub(super) const fn is_cohort(self) -> bool {
        matches!(self, Self::Cohort(_))
    }

    pub(super) fn name(self) -> &'a str {
        match self {
            Self::Cohort(cohort) => &cohort.metadata.name,
            Self::ClusterQueue(queue) => &queue.metadata.name,
        }
    }

    /// Returns quota and usage of a flavor-resource, if the node has it.
    pub(super) fn quota(self, flavor: &str, resource: &str) -> Option<&'a QuotaView> {
        let quota = match self {
            Self::Cohort(cohort) => &cohort.quota,
            Self::ClusterQueue(queue) => &queue.quota,
        };
        quota.iter().find(|quota| quota.flavor == flavor && quota.resource == resource)
    }

    pub(super) const fn share(self) -> Option<&'a ShareView> {
        match self {
            Self::Cohort(cohort) => cohort.share.as_ref(),
            Self::ClusterQueue(queue) => queue.share.as_ref(),
        }
    }

    pub(super) const fn pending(self) -> u64 {
        match self {
            Self::Cohort(cohort) => cohort.pending,
            Self::ClusterQueue(queue) => queue.pending.total,
        }
    }

    /// Returns the page of the node.
    pub(super) fn href(self, links: &Links) -> String {
        if self.is_cohort() { links.cohort(self.name()) } else { links.cluster_queue(self.name()) }
    }

    /// Returns the list of the node's pending workloads.
    pub(super) fn pending_href(self, links: &Links) -> String {
        let filter = if self.is_cohort() { "cohort" } else { "cq" };
        links.with_query("/pending", &[(filter, self.name())])
    }
}

/// Returns the nodes of the start page with their depths: of all trees, or of the subtree of a cohort.
pub(super) fn nodes(data: &Overview) -> Vec<(usize, Node<'_>)> {
    let mut walk = Walk {
        cohorts: data.cohorts.iter().map(|cohort| (cohort.metadata.name.as_str(), cohort)).collect(),
        queues: BTreeMap::new(),
        seen: BTreeSet::new(),
        nodes: Vec::new(),
    };
    for queue in &data.cluster_queues {
        walk.queues.entry(queue.cohort.as_str()).or_default().push(queue);
    }
    let is_root = |cohort: &&CohortView| {
        if data.cohort.is_empty() {
            !walk.cohorts.contains_key(cohort.parent.as_str())
        } else {
            cohort.metadata.name == data.cohort
        }
    };
    let roots: Vec<&CohortView> = data.cohorts.iter().filter(is_root).collect();
    for root in roots {
        walk.add_cohort(root, 0);
    }
    if data.cohort.is_empty() {
        // ClusterQueues without a cohort, or below a cohort that is not shown.
        let shown = |name: &str| !name.is_empty() && walk.seen.contains(name);
        let alone: Vec<&ClusterQueueView> =
            data.cluster_queues.iter().filter(|queue| !shown(&queue.cohort)).collect();
        walk.nodes.extend(alone.into_iter().map(|queue| (0, Node::ClusterQueue(queue))));
    }
    walk.nodes
}

/// The nodes while they are collected.
struct Walk<'a> {
    cohorts: BTreeMap<&'a str, &'a CohortView>,
    queues: BTreeMap<&'a str, Vec<&'a ClusterQueueView>>,
    /// Cohorts that have been added; without it a cycle of parents would not end.
    seen: BTreeSet<&'a str>,
    nodes: Vec<(usize, Node<'a>)>,
}

impl<'a> Walk<'a> {
    fn add_cohort(&mut self, cohort: &'a CohortView, depth: usize) {
        let name = cohort.metadata.name.as_str();
        if !self.seen.insert(name) {
            return;
        }
        self.nodes.push((depth, Node::Cohort(cohort)));
        for child in &cohort.cohorts {
            if let Some(child) = self.cohorts.get(child.as_str()).copied() {
                self.add_cohort(child, depth + 1);
            }
        }
        let below = self.queues.get(name).into_iter().flatten().copied();
        self.nodes.extend(below.map(|queue| (depth + 1, Node::ClusterQueue(queue))));
    }
}
