//! Selection and order of the rows of the screen.
//!
//! Invariant: rows with equal keys of an order keep the order of the manager.

use super::{Order, Reading, TopKind, TopScreen};
use crate::visibility::views::{ClusterQueueView, WorkloadState, WorkloadView};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The rows that match the filters of a screen.
#[derive(Debug)]
pub enum TopRows<'a> {
    /// Workloads.
    Workloads(Vec<&'a WorkloadView>),
    /// ClusterQueues.
    Queues(Vec<&'a ClusterQueueView>),
}

impl<'a> TopRows<'a> {
    /// Selects and sorts the rows.
    pub fn of(screen: &TopScreen, reading: &'a Reading) -> Self {
        match screen.kind {
            TopKind::Workloads => Self::Workloads(workloads(screen, &reading.workloads)),
            TopKind::Queues => {
                let all = reading.queues.iter().flatten();
                let mut queues: Vec<_> =
                    all.filter(|queue| queue.metadata.name.contains(&screen.filter)).collect();
                queues.sort_by_key(|queue| Reverse(queue.pending.total));
                Self::Queues(queues)
            }
        }
    }

    /// Number of rows.
    pub const fn len(&self) -> usize {
        match self {
            Self::Workloads(rows) => rows.len(),
            Self::Queues(rows) => rows.len(),
        }
    }

    /// Whether no row matches.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key by which a row is found after another reading: the UID of a Workload, the name of a queue.
    pub fn key(&self, place: usize) -> Option<String> {
        match self {
            Self::Workloads(rows) => rows.get(place).map(|row| key_of(row)),
            Self::Queues(rows) => rows.get(place).map(|row| row.metadata.name.clone()),
        }
    }

    /// Returns the index of a row; 0 if the row no longer exists.
    pub fn place(&self, key: Option<&str>) -> usize {
        let Some(key) = key else { return 0 };
        let found = match self {
            Self::Workloads(rows) => rows.iter().position(|row| key_of(row) == key),
            Self::Queues(rows) => rows.iter().position(|row| row.metadata.name == key),
        };
        found.unwrap_or_default()
    }

    /// Returns a Workload.
    pub fn workload(&self, place: usize) -> Option<&'a WorkloadView> {
        match self {
            Self::Workloads(rows) => rows.get(place).copied(),
            Self::Queues(_) => None,
        }
    }
}

fn key_of(row: &WorkloadView) -> String {
    format!("{}/{}", row.metadata.namespace, row.metadata.name)
}

fn workloads<'a>(screen: &TopScreen, all: &'a [WorkloadView]) -> Vec<&'a WorkloadView> {
    let is_wanted = |row: &&WorkloadView| {
        let is_named = key_of(row).contains(&screen.filter) || row.cluster_queue.contains(&screen.filter);
        is_named
            && screen.reason.as_ref().is_none_or(|reason| *reason == row.reason)
            && screen.namespace.as_ref().is_none_or(|namespace| *namespace == row.metadata.namespace)
    };
    let mut rows: Vec<&WorkloadView> = all.iter().filter(is_wanted).collect();
    let need = |row: &WorkloadView| {
        let number = row.needs.first().and_then(|need| need.amount.number.as_ref()?.as_f64());
        number.unwrap_or_default()
    };
    // Pending Workloads precede running ones.
    let has_quota = |row: &WorkloadView| row.state != WorkloadState::Pending;
    match screen.order {
        Order::Wait => rows.sort_by_key(|row| (has_quota(row), row.since)),
        Order::Position => rows.sort_by_key(|row| {
            let place = row.position.map(|position| position.cluster_queue);
            (place.is_none(), &row.cluster_queue, place)
        }),
        Order::Need => rows.sort_by(|a, b| need(b).total_cmp(&need(a))),
        Order::Priority => rows.sort_by_key(|row| Reverse(row.priority)),
    }
    rows
}

/// Returns the reasons of the Workloads.
pub(super) fn reasons(reading: &Reading) -> Vec<String> {
    let reasons = reading.workloads.iter().map(|row| row.reason.clone()).filter(|reason| !reason.is_empty());
    reasons.collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns the namespaces of the Workloads.
pub(super) fn namespaces(reading: &Reading) -> Vec<String> {
    let names = reading.workloads.iter().map(|row| row.metadata.namespace.clone());
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns the pending Workload that waits longest.
pub(super) fn oldest(reading: &Reading) -> Option<&WorkloadView> {
    let pending = reading.workloads.iter().filter(|row| row.state == WorkloadState::Pending);
    pending.filter(|row| row.since.is_some()).min_by_key(|row| row.since)
}
