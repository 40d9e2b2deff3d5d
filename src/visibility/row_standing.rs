//! What keeps a pending Workload even if all that holds quota ends, for its row: from the published order, whatever its condition said
//! before that order changed.

use super::selector::keeps_out;
use super::views::{BlockerKindView, BlockerView, WorkloadState};
use super::workload_row::{Rows, node_text, reason_of};
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::queue::{QueueStanding, Workload};
use crate::quota::NodeRef;
use std::sync::Arc;

impl<'a> Rows<'a> {
    /// The standing of its queue, with the Workload there; `None` unless a cycle evaluates it.
    fn standing(
        self,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
        state: WorkloadState,
    ) -> Option<(&'a QueueStanding, &'a Arc<Workload>)> {
        if state != WorkloadState::Pending || keeps_out(reason_of(record, state)) {
            return None;
        }
        let standing = self.snapshot.queues.standings.get(cluster_queue)?;
        let order = self.order_of(record, cluster_queue)?;
        Some((standing, self.snapshot.pending.get(&order)?))
    }

    /// Whether a Workload is pending and not admitted even if all that holds quota ends.
    pub(super) fn is_stuck(
        self,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
        state: WorkloadState,
    ) -> bool {
        let is_kept_out = state == WorkloadState::Pending && keeps_out(reason_of(record, state));
        let standing = || self.standing(record, cluster_queue, state);
        is_kept_out
            || standing().is_some_and(|(standing, workload)| standing.stays(workload, &self.snapshot.pending))
    }

    /// The head of a StrictFIFO ClusterQueue that a Workload is behind.
    pub(super) fn behind(
        self,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
        state: WorkloadState,
    ) -> Option<&'a ObjectKey> {
        let (standing, workload) = self.standing(record, cluster_queue, state)?;
        standing.behind(workload, &self.snapshot.pending)
    }

    pub(super) fn behind_blocker(self, head: &ObjectKey, cluster_queue: &Arc<str>) -> BlockerView {
        let name = if self.access.sees(&head.namespace) {
            head.to_string()
        } else {
            "a workload of another namespace".to_owned()
        };
        BlockerView {
            kind: BlockerKindView::Behind,
            node: node_text(&NodeRef::ClusterQueue(Arc::clone(cluster_queue))),
            text: format!("behind {name}, the head of the StrictFIFO ClusterQueue {cluster_queue}"),
            ..BlockerView::default()
        }
    }
}
