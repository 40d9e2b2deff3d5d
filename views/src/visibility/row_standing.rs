//! The obstacle of a pending Workload, for its row: from the published order and the core's verdict on its class. It replaces the
//! condition where that is older than the order.

use super::amounts::{amount_view, limit_view};
use super::selector::keeps_out;
use super::views::{BlockerKindView, BlockerView, WorkloadState};
use super::workload_row::{Rows, node_text, reason_of};
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use crate::scheduler::{Obstacle, ObstacleReader};
use std::sync::Arc;

impl<'a> Rows<'a> {
    /// Returns the obstacle of a Workload, as far as its class and the order determine it.
    pub(super) fn obstacle(
        self,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
        state: WorkloadState,
    ) -> Obstacle {
        let known = || {
            let standing = self.snapshot.queues.standings.get(cluster_queue)?;
            let order = self.order_of(record, cluster_queue)?;
            let workload = self.snapshot.pending.get(&order)?;
            Some(Obstacle::in_queue(standing, workload, &self.snapshot.pending))
        };
        let is_evaluated = state == WorkloadState::Pending && !keeps_out(reason_of(record, state));
        if is_evaluated { known().unwrap_or_default() } else { Obstacle::None }
    }

    /// Returns the present reason of a Workload's state, and whether the Workload is stuck: pending, and not admitted even if all
    /// reserving workloads end.
    pub(super) fn standing_in<'r>(
        self,
        record: &'r WorkloadRecord,
        cluster_queue: &Arc<str>,
        state: WorkloadState,
    ) -> (&'r str, bool) {
        Self::said_of(&self.obstacle(record, cluster_queue, state), record, state)
    }

    pub(super) fn said_of<'r>(
        obstacle: &Obstacle,
        record: &'r WorkloadRecord,
        state: WorkloadState,
    ) -> (&'r str, bool) {
        let of_condition = reason_of(record, state);
        let is_kept_out = state == WorkloadState::Pending && keeps_out(of_condition);
        let reason = obstacle.reason().map_or(of_condition, |reason| reason.as_str());
        (reason, is_kept_out || obstacle.stays())
    }

    /// Returns the blocker of a row for an obstacle; `None` if the message of the row already has it.
    pub(super) fn obstacle_blocker(self, obstacle: &Obstacle, queue: &NodeRef) -> Option<BlockerView> {
        let text = || {
            let text = obstacle.sentence(queue.as_str(), &self.reader(queue));
            let mut letters = text.chars();
            let first = letters.next().map(|first| first.to_ascii_lowercase());
            first.into_iter().chain(letters).collect()
        };
        match obstacle {
            Obstacle::None | Obstacle::InUse | Obstacle::Object(_) => None,
            Obstacle::NeverFits(never) if never.is_quota() => {
                let stays = |blocker: &&Blocker| {
                    matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::Undeclared)
                };
                let first = never.blockers.iter().find(stays).or(never.blockers.first());
                first.map(|first| self.blocker_view(first, queue))
            }
            Obstacle::NeverFits(never) => Some(BlockerView {
                kind: BlockerKindView::Mismatch,
                flavor: never.limit.as_ref().map(|limit| limit.flavor.to_string()).unwrap_or_default(),
                text: text(),
                ..BlockerView::default()
            }),
            Obstacle::Behind(_) => Some(BlockerView {
                kind: BlockerKindView::Behind,
                node: node_text(queue),
                text: text(),
                ..BlockerView::default()
            }),
        }
    }

    /// Returns a reader of sentences about the obstacles of a queue.
    pub(super) const fn reader<'q>(self, queue: &'q NodeRef) -> RowsReader<'a, 'q> {
        RowsReader { rows: self, queue }
    }

    pub(super) fn blocker_view(self, blocker: &Blocker, queue: &NodeRef) -> BlockerView {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let concerns_quota = matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::InUse);
        let units = &self.quota.facts.units;
        let amount = |amount: i128| concerns_quota.then(|| amount_view(units, queue, &fr, amount));
        let headroom = self.quota.headroom(queue, &fr).0;
        let never = blocker.kind == BlockerKind::NeverFits;
        // Usage beyond the limits must be released as well.
        let available = if never { headroom.potential } else { headroom.available };
        let limit = blocker.node.is_some() && concerns_quota && self.access.sees_sums();
        let requested = blocker.requested.to_i128();
        BlockerView {
            kind: match blocker.kind {
                BlockerKind::NeverFits => BlockerKindView::NeverFits,
                BlockerKind::InUse => BlockerKindView::InUse,
                BlockerKind::Undeclared => BlockerKindView::Undeclared,
                BlockerKind::NodesInUse(_) => BlockerKindView::NodesInUse,
                BlockerKind::Mismatch(_) => BlockerKindView::Mismatch,
            },
            pod_set: blocker.pod_set.to_string(),
            flavor: blocker.flavor.to_string(),
            resource: blocker.resource.to_string(),
            node: blocker.node.as_ref().map(node_text).unwrap_or_default(),
            requested: amount(requested),
            available: amount(available.max(0)),
            limit: limit.then(|| limit_view(units, queue, &fr, blocker.limit.to_i128())),
            missing: amount((requested - available).max(0)),
            borrowed: blocker.borrowed.to_string(),
            text: blocker.to_string(),
        }
    }
}

/// A reader of sentences with the access of the rows.
pub(super) struct RowsReader<'a, 'q> {
    rows: Rows<'a>,
    queue: &'q NodeRef,
}

impl ObstacleReader for RowsReader<'_, '_> {
    fn name(&self, key: &ObjectKey) -> Option<String> {
        self.rows.access.sees(&key.namespace).then(|| key.to_string())
    }

    fn missing(&self, key: &ObjectKey, blocker: &Blocker) -> Option<String> {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let later = match self.rows.snapshot.workloads.get(key) {
            Some(record) => self.rows.later_request(record, self.queue, &fr, &blocker.pod_set),
            None => 0,
        };
        let requested = blocker.requested.plus(Amount::saturating_from_i128(later));
        let of_all = Blocker { requested, ..blocker.clone() };
        let missing = self.rows.blocker_view(&of_all, self.queue).missing;
        missing.filter(|_| self.rows.access.sees_sums()).map(|missing| missing.value)
    }

    fn limit(&self, blocker: &Blocker) -> Option<String> {
        self.rows.blocker_view(blocker, self.queue).limit.map(|limit| limit.value)
    }
}
