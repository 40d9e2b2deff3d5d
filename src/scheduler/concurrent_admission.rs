//! Concurrent admission: of the variants of one workload, each bound to its flavors, one is to run, on the best flavor that
//! can be had.

use super::decision::{Outcome, PreemptionReason};
use super::engine::Engine;
use super::nominate::Entry;
use super::preemption::Target;
use super::reserving_workloads::ReservingWorkload;
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, WakeConditions};
use crate::quota::FlavorResourceId;
use std::sync::Arc;

impl Engine {
    /// The variant of the same workload that holds quota, with the place of its flavor among those of the queue.
    fn reserving_variant(&self, entry: &Entry) -> Option<(usize, Arc<ReservingWorkload>)> {
        let variant = entry.workload.variant.as_ref().filter(|_| self.settings.gates.concurrent_admission)?;
        let queue = self.queues.get(&entry.queue)?;
        let same = |holder: &&Arc<ReservingWorkload>| {
            holder.charge.variant.as_ref().is_some_and(|other| other.parent == variant.parent)
                && holder.key.namespace == entry.workload.key.namespace
                && holder.key != entry.workload.key
                && !holder.is_terminating()
        };
        let sibling = self.reserving_workloads.in_cluster_queue(queue.node).find(same)?;
        let flavors = sibling.charge.usage.keys().map(|pair| &*pair.flavor);
        Some((flavors.filter_map(|flavor| self.rank_of_flavor(entry, flavor)).min()?, Arc::clone(sibling)))
    }

    /// Place of a flavor in the queue's first resource group.
    fn rank_of_flavor(&self, entry: &Entry, flavor: &str) -> Option<usize> {
        let group = self.queues.get(&entry.queue)?.groups.first()?;
        group.flavors.iter().position(|known| *known.name == *flavor)
    }

    fn own_flavor_rank(&self, entry: &Entry) -> Option<usize> {
        let variant = entry.workload.variant.as_ref()?;
        variant.flavors.iter().filter_map(|flavor| self.rank_of_flavor(entry, flavor)).min()
    }

    /// Parks a variant while a better one holds quota.
    pub(super) fn park_behind_better_variant(&mut self, entry: &Entry) -> Option<Outcome> {
        let (theirs, sibling) = self.reserving_variant(entry)?;
        if self.own_flavor_rank(entry)? < theirs {
            return None;
        }
        let text = format!("A variant with a more preferred flavor is admitted: {}", sibling.key);
        Some(self.park_variant(entry, &sibling, &text))
    }

    /// The less preferred variant that must go before this one is admitted, or the end of the matter where the queue does not
    /// let it migrate.
    pub(super) fn migration_target(&mut self, entry: &Entry) -> Option<Result<Target, Outcome>> {
        let (_, sibling) = self.reserving_variant(entry)?;
        let last = self.queues.get(&entry.queue)?.config.last_acceptable_flavor.clone();
        let limit = last.and_then(|flavor| self.rank_of_flavor(entry, &flavor));
        let own = self.own_flavor_rank(entry)?;
        if limit.is_some_and(|limit| own > limit) {
            let text = "The flavor is less preferred than the last acceptable one for a migration";
            return Some(Err(self.park_variant(entry, &sibling, text)));
        }
        Some(Ok(Target { workload: sibling, reason: PreemptionReason::FlavorMigration }))
    }

    /// It waits until its sibling gives something back.
    fn park_variant(&mut self, entry: &Entry, sibling: &ReservingWorkload, text: &str) -> Outcome {
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::PendingEvaluation, text));
        let freed = sibling.usage.iter().map(|(pair, _): &(FlavorResourceId, i128)| *pair).collect();
        let waits = WakeConditions {
            tree: Some(self.tree.root(sibling.node)),
            on_release: freed,
            ..WakeConditions::default()
        };
        let parked = Parked { never_blocks_queue: true, claim: None, wake_conditions: waits };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::Pending(verdict)
    }
}
