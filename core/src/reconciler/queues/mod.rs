//! ClusterQueues, LocalQueues and Cohorts: activity, status, counts and shares.

pub(super) mod activity;
pub(super) mod admission_checks;
pub(super) mod counts;
pub(super) mod fair_sharing;
pub(super) mod status;
pub(super) mod waiting_heads;

use super::CoreSettings;
use super::work_queue::{ReconcileKey, WorkQueue};
use crate::api::ObjectKey;
use crate::cache::{Cache, Kind};
use crate::scheduler::{ClusterQueue, Engine};
use crate::snapshot::UnadmittedKey;
use counts::{QueueCountIndex, QueueCounts};
use status::StatusSchedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use waiting_heads::WaitingHeads;

/// An object with the status of a queue, in the order in which statuses are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueKey {
    ClusterQueue(Arc<str>),
    Cohort(Arc<str>),
    LocalQueue(ObjectKey),
}

impl QueueKey {
    /// Returns the key under which the object gets its steps.
    fn reconcile_key(&self) -> ReconcileKey {
        match self {
            Self::ClusterQueue(name) => ReconcileKey::named(Kind::ClusterQueue, name),
            Self::Cohort(name) => ReconcileKey::named(Kind::Cohort, name),
            Self::LocalQueue(key) => ReconcileKey::Object(Kind::LocalQueue, key.clone()),
        }
    }
}

/// State of queues that is not in their objects.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueState {
    /// ClusterQueues as last configured in the scheduler.
    configured: BTreeMap<Arc<str>, ClusterQueue>,
    counts: QueueCountIndex,
    status_schedule: StatusSchedule,
    pub(super) waiting_heads: WaitingHeads,
}

impl QueueState {
    pub(super) fn cluster_queue_counts(&self, name: &str) -> &QueueCounts {
        self.counts.cluster_queue(name)
    }

    /// Returns why workloads are not admitted, by LocalQueue.
    pub(super) fn unadmitted(&self) -> impl Iterator<Item = (&ObjectKey, &BTreeMap<UnadmittedKey, usize>)> {
        self.counts.unadmitted()
    }

    pub(super) fn local_queue_counts(&self, key: &ObjectKey) -> &QueueCounts {
        self.counts.local_queue(key)
    }

    /// Marks the status of a queue: it may be out of date.
    pub(super) fn mark_status_stale(&mut self, queue: QueueKey) {
        self.status_schedule.mark_stale(queue);
    }
}

/// The part of the queues that a change of a Workload or of a LocalQueue updates: counts, past usage, and marks on stale
/// statuses.
pub(super) struct QueueUpdates<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a CoreSettings,
    pub(super) engine: &'a mut Engine,
    pub(super) queues: &'a mut QueueState,
    pub(super) work_queue: &'a mut WorkQueue,
}

/// The input of the statuses of queues.
#[derive(Clone, Copy)]
pub(super) struct QueueStatuses<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a CoreSettings,
    pub(super) engine: &'a Engine,
    pub(super) queues: &'a QueueState,
}
