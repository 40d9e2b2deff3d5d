//! The order in which fair sharing would take the heads of sibling queues and cohorts in the next cycle, if all of them fit.
//!
//! Invariants: only nodes with a head have a place; the order follows the present shares, then the heads; nodes below a cycle
//! have no place.

use super::quota::Children;
use crate::quota::NodeRef;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Order of heads with equal shares: priority, then time.
type Head = (Reverse<i64>, Timestamp);

/// Places among siblings; 1 is the first.
#[derive(Clone, Debug, Default)]
pub(super) struct NextHeads(BTreeMap<NodeRef, u64>);

impl NextHeads {
    /// Orders the heads of all cohorts. Without fair sharing no node has a place.
    pub(super) fn of(snapshot: &Snapshot, children: &Children) -> Self {
        let mut next = Self::default();
        if snapshot.facts.fair_sharing.is_none() {
            return next;
        }
        let queues = &snapshot.queues;
        let is_root =
            |name: &&Arc<str>| queues.cohorts.get(*name).is_some_and(|cohort| cohort.parent.is_none());
        let mut order: Vec<&Arc<str>> = queues.cohorts.keys().filter(is_root).collect();
        let mut at = 0;
        while let Some(name) = order.get(at).copied() {
            order.extend(children.of_cohort(name).iter().filter_map(|child| match child {
                NodeRef::Cohort(name) => Some(name),
                NodeRef::ClusterQueue(_) => None,
            }));
            at = at.saturating_add(1);
        }
        let mut heads: BTreeMap<&Arc<str>, Head> = BTreeMap::new();
        for name in order.into_iter().rev() {
            let head_of = |child: &NodeRef| match child {
                NodeRef::ClusterQueue(name) => {
                    let queue = queues.cluster_queues.get(name).filter(|queue| queue.active)?;
                    let head = snapshot.pending.from_position(name, 0).next()?.workload;
                    Some((queue.weighted_share.unwrap_or(0), (Reverse(head.priority), head.queued_since)))
                }
                NodeRef::Cohort(name) => {
                    let share = queues.cohorts.get(name)?.weighted_share.unwrap_or(0);
                    Some((share, *heads.get(name)?))
                }
            };
            let mut with_heads: Vec<(i64, Head, &NodeRef)> = children
                .of_cohort(name)
                .iter()
                .filter_map(|child| head_of(child).map(|(share, head)| (share, head, child)))
                .collect();
            with_heads.sort();
            if let Some((_, head, _)) = with_heads.first() {
                heads.insert(name, *head);
            }
            for (place, (_, _, child)) in (1_u64..).zip(with_heads) {
                next.0.insert(child.clone(), place);
            }
        }
        next
    }

    /// Returns the place of a node among its siblings.
    pub(super) fn get(&self, node: &NodeRef) -> Option<u64> {
        self.0.get(node).copied()
    }
}
