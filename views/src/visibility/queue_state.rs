//! Whether the workloads of a LocalQueue may be admitted: by the states of its queues, by the selector of its ClusterQueue, and by what
//! is before every new workload.
//!
//! Invariants: it follows from the published state alone, also if no workload waits in the queue; of a namespace that is not known
//! nothing is said, because it may be one that cannot be read, as for the engine.

use crate::api::{ObjectKey, selector};
use crate::queue::Workload;
use crate::scheduler::{BehindHead, Obstacle};
use crate::snapshot::{LocalQueueView, Snapshot};
use jiff::Timestamp;
use std::sync::Arc;

/// Reason of a LocalQueue whose ClusterQueue excludes its namespace.
pub(super) const NOT_SELECTED: &str = "NamespaceNotSelected";
/// Reason of a LocalQueue whose new workloads are behind one that can never be admitted.
pub(super) const BLOCKED: &str = "BlockedByWorkload";

/// Returns whether the namespaceSelector of a ClusterQueue excludes a namespace.
pub(super) fn excludes(snapshot: &Snapshot, cluster_queue: &str, namespace: &str) -> bool {
    let facts = snapshot.facts.cluster_queues.get(cluster_queue);
    let labels = snapshot.references.namespaces.get(namespace);
    facts.zip(labels).is_some_and(|(facts, labels)| {
        facts.namespace_selector.as_ref().is_none_or(|selector| !selector::matches(selector, labels))
    })
}

/// Returns what a workload at a place in its ClusterQueue is behind without end: one that can never be admitted, if the ClusterQueue
/// is `StrictFIFO`. The workload need not be pending there.
pub(super) fn behind_never(snapshot: &Snapshot, place: &Workload) -> Option<Obstacle> {
    let standing = snapshot.queues.standings.get(&place.cluster_queue)?;
    let (barrier, never) = standing.barrier.as_ref().filter(|(barrier, _)| barrier.key != place.key)?;
    let (before, _) = snapshot.pending.position(barrier)?;
    let head = standing.head.as_ref().filter(|head| head.key != place.key).unwrap_or(barrier);
    (before < snapshot.pending.up_to(place)).then(|| {
        Obstacle::Behind(Box::new(BehindHead {
            head: head.key.clone(),
            lacks: standing.lacks.clone(),
            never: Some((barrier.key.clone(), Arc::clone(never))),
        }))
    })
}

/// Returns what a new workload of a LocalQueue with priority 0 would be behind without end.
pub(super) fn blocked(snapshot: &Snapshot, key: &ObjectKey, cluster_queue: &Arc<str>) -> Option<Obstacle> {
    let new = Workload {
        key: ObjectKey { namespace: Arc::clone(&key.namespace), name: Arc::default() },
        cluster_queue: Arc::clone(cluster_queue),
        local_queue: Arc::clone(&key.name),
        queued_since: Timestamp::MAX,
        ..Workload::default()
    };
    behind_never(snapshot, &new)
}

/// Returns why the workloads of a LocalQueue are not admitted; empty if they may be.
pub(super) fn inactive_reason(snapshot: &Snapshot, key: &ObjectKey, queue: &LocalQueueView) -> String {
    let (queues, name) = (&snapshot.queues, &queue.cluster_queue);
    let of_active = || {
        if excludes(snapshot, name, &key.namespace) {
            NOT_SELECTED
        } else if blocked(snapshot, key, name).is_some() {
            BLOCKED
        } else {
            ""
        }
    };
    if queue.active {
        return of_active().to_owned();
    }
    if snapshot.references.local_queues.get(key).is_some_and(|reference| reference.stopped) {
        return "Stopped".to_owned();
    }
    if !queues.cluster_queues.contains_key(name) {
        return "ClusterQueueDoesNotExist".to_owned();
    }
    let inactive = queues.inactive.get(name);
    inactive.map_or_else(
        || "ClusterQueueIsInactive".to_owned(),
        |inactive| format!("ClusterQueue{}", inactive.reason),
    )
}
