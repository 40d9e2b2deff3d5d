//! What would keep a Workload in another place, which it only is supposed to have: in another LocalQueue, or with another priority.
//!
//! Invariants: what the engine found out for the place comes first; a workload of another tenant is named by its namespace's readers alone.

use super::queue_state::behind_never;
use super::views::{BlockerKindView, BlockerView, Verdict, WorkloadView};
use super::workload_row::{Rows, node_text};
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::queue::Workload;
use crate::quota::NodeRef;
use crate::scheduler::Obstacle;
use std::sync::Arc;

/// A pending Workload in a place that it is supposed to have.
pub(super) struct Supposed<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) record: &'a WorkloadRecord,
    /// The row, with the queues and the priority of that place.
    pub(super) row: &'a WorkloadView,
    /// Whether it is supposed to be in another LocalQueue.
    pub(super) is_elsewhere: bool,
}

impl Supposed<'_> {
    /// Adds to a verdict what would keep the Workload there without end and has no line yet: the state of an object, which the message of
    /// its condition does not name, or a workload before it that can never be admitted. Returns whether there is something.
    pub(super) fn add_to(&self, verdict: &mut Verdict, obstacle: &Obstacle) -> bool {
        if verdict.never_fits {
            return true;
        }
        if self.is_elsewhere {
            let of_object = match obstacle {
                Obstacle::Object(known) if obstacle.stays() => Some(known.to_string()),
                _ => self.stopped(),
            };
            if let Some(text) = of_object {
                verdict.obstacle = text;
                return true;
            }
        }
        let Some(behind) = self.behind_never() else { return false };
        let queue = NodeRef::ClusterQueue(Arc::from(self.row.cluster_queue.as_str()));
        verdict.obstacle = behind.sentence(&self.row.cluster_queue, &self.rows.reader(&queue));
        if !verdict.blockers.iter().any(|blocker| blocker.kind == BlockerKindView::Behind) {
            verdict.blockers.push(BlockerView {
                kind: BlockerKindView::Behind,
                node: node_text(&queue),
                text: verdict.obstacle.clone(),
                ..BlockerView::default()
            });
        }
        true
    }

    /// Says that the LocalQueue is stopped, if it is.
    fn stopped(&self) -> Option<String> {
        let key = ObjectKey::new(&self.row.metadata.namespace, &self.row.local_queue);
        let queue = self.rows.snapshot.references.local_queues.get(&key)?;
        queue.stopped.then(|| format!("LocalQueue {} is stopped", self.row.local_queue))
    }

    fn behind_never(&self) -> Option<Obstacle> {
        let queue = Arc::from(self.row.cluster_queue.as_str());
        let own = self.rows.order_of(self.record, &queue)?;
        let (local_queue, priority) = (Arc::from(self.row.local_queue.as_str()), self.row.priority);
        behind_never(self.rows.snapshot, &Workload { local_queue, priority, ..own })
    }
}
