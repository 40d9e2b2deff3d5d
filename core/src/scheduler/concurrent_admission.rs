//! Concurrent admission: of the variants of one workload, each bound to its flavors, only one runs, on the most
//! preferred flavor that is available.

use super::decision::{Outcome, PreemptionReason};
use super::engine::Engine;
use super::nominate::Head;
use super::preemption::Target;
use super::reserving_workloads::ReservingWorkload;
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, WakeConditions};
use crate::quota::FlavorResourceId;
use std::sync::Arc;

impl Engine {
    /// The variant of the same workload that holds quota, with the rank of its flavor.
    fn reserving_variant(&self, head: &Head) -> Option<(usize, Arc<ReservingWorkload>)> {
        let variant = head.workload.variant.as_ref().filter(|_| self.settings.gates.concurrent_admission)?;
        let queue = self.config.cluster_queue(&head.queue)?;
        let is_sibling = |reserving: &&Arc<ReservingWorkload>| {
            reserving.charge.variant.as_ref().is_some_and(|other| other.parent == variant.parent)
                && reserving.key.namespace == head.workload.key.namespace
                && reserving.key != head.workload.key
                && !reserving.is_terminating()
        };
        let sibling = self.reserving_workloads.in_cluster_queue(queue.node).find(is_sibling)?;
        let flavors = sibling.charge.usage.keys().map(|fr| &*fr.flavor);
        Some((flavors.filter_map(|flavor| self.rank_of_flavor(head, flavor)).min()?, Arc::clone(sibling)))
    }

    /// Whether another variant of the same workload holds quota.
    pub(super) fn has_reserving_variant(&self, head: &Head) -> bool {
        self.reserving_variant(head).is_some()
    }

    /// Index of a flavor in the ClusterQueue's first resource group.
    fn rank_of_flavor(&self, head: &Head, flavor: &str) -> Option<usize> {
        let group = self.config.cluster_queue(&head.queue)?.groups.first()?;
        group.flavors.iter().position(|known| *known.name == *flavor)
    }

    fn own_flavor_rank(&self, head: &Head) -> Option<usize> {
        let variant = head.workload.variant.as_ref()?;
        variant.flavors.iter().filter_map(|flavor| self.rank_of_flavor(head, flavor)).min()
    }

    /// Parks a variant while a variant with the same or a more preferred flavor holds quota.
    pub(super) fn park_behind_better_variant(&mut self, head: &Head) -> Option<Outcome> {
        let (other_rank, sibling) = self.reserving_variant(head)?;
        if self.own_flavor_rank(head)? < other_rank {
            return None;
        }
        let text = format!("A variant with a more preferred flavor is admitted: {}", sibling.key);
        Some(self.park_variant(head, &sibling, &text))
    }

    /// Returns the less preferred variant to preempt before this one is admitted, or a pending outcome if the
    /// ClusterQueue does not allow the migration.
    pub(super) fn migration_target(&mut self, head: &Head) -> Option<Result<Target, Outcome>> {
        let (_, sibling) = self.reserving_variant(head)?;
        let last = self.config.cluster_queue(&head.queue)?.config.last_acceptable_flavor.clone();
        let limit = last.and_then(|flavor| self.rank_of_flavor(head, &flavor));
        let own_rank = self.own_flavor_rank(head)?;
        if limit.is_some_and(|limit| own_rank > limit) {
            let text = "Flavor ranks below lastAcceptableFlavorName; migration is not allowed";
            return Some(Err(self.park_variant(head, &sibling, text)));
        }
        Some(Ok(Target { workload: sibling, reason: PreemptionReason::FlavorMigration }))
    }

    /// Parks the variant until its sibling releases quota.
    fn park_variant(&mut self, head: &Head, sibling: &ReservingWorkload, text: &str) -> Outcome {
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::PendingEvaluation, text));
        let on_release = sibling.usage.iter().map(|(fr, _): &(FlavorResourceId, i128)| *fr).collect();
        let wake_conditions = WakeConditions {
            tree: Some(self.tree.root(sibling.node)),
            on_release,
            ..WakeConditions::default()
        };
        let parked = Parked { never_blocks_queue: true, claim: None, wake_conditions };
        self.pending.park(&head.queue, head.class, &verdict, parked);
        Outcome::Pending(verdict)
    }
}
