//! The workloads that one user submitted, by state.
//!
//! Invariants: only workloads that the reader may see are listed, whatever name they have; one pass over the workloads of the user, and
//! rows only of the shown ones.

use super::access::Access;
use super::page::ModelError;
use super::views::{WorkloadState, WorkloadView};
use super::workload_row::{Rows, state_of};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The workloads of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnWorkloads {
    /// Pending, the longest wait first.
    pub pending: OwnList,
    /// With quota, the newest first: admitted, waiting for checks, or being stopped.
    pub running: OwnList,
    /// Finished and still stored, the newest first.
    pub finished: OwnList,
    /// Evicted and not admitted since, the newest first.
    pub evicted: Vec<EvictedWorkload>,
    /// Namespaces of all of them.
    pub namespaces: BTreeSet<String>,
}

/// Workloads of a user in a state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnList {
    /// Number of workloads.
    pub total: u64,
    /// The first rows.
    pub items: Vec<WorkloadView>,
}

/// A workload whose condition says that it was evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictedWorkload {
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// UID of the workload.
    pub uid: String,
    /// Reason of the eviction, such as `Preempted` or `PodsReadyTimeout`.
    pub reason: String,
    /// When it was evicted.
    pub since: Option<Timestamp>,
}

/// Returns the Workloads of a user, in namespace order.
fn own<'a>(
    snapshot: &'a Snapshot,
    access: &'a Access,
    user: &str,
) -> impl Iterator<Item = &'a WorkloadRecord> + use<'a> {
    let index = &snapshot.workloads;
    let keys = index.of_submitter(user, ObjectKey::new("", ""));
    keys.filter(move |key| access.sees(&key.namespace))
        .filter_map(move |key| index.get(key))
        .map(|record| &**record)
}

/// Returns the first namespaces with workloads of a user, at most `most`, whatever the user may read: the caller reviews a right in each
/// of them before it shows a name.
pub fn own_namespaces(snapshot: &Snapshot, user: &str, most: usize) -> Vec<String> {
    let everything = Access::everything();
    let mut found: Vec<String> = Vec::new();
    for record in own(snapshot, &everything, user) {
        let namespace = &*record.meta.key.namespace;
        if found.last().is_some_and(|last| last == namespace) {
            continue;
        }
        if found.len() >= most {
            break;
        }
        found.push(namespace.to_owned());
    }
    found
}

/// Returns the workloads of a user, at most `most` rows of each state; only of one namespace if it is not empty.
///
/// # Errors
/// The lists are not complete.
pub fn own_workloads(
    snapshot: &Snapshot,
    access: &Access,
    user: &str,
    (namespace, most): (&str, usize),
) -> Result<OwnWorkloads, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let (mut pending, mut running, mut finished) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = OwnWorkloads::default();
    let meant = |record: &&WorkloadRecord| namespace.is_empty() || *record.meta.key.namespace == *namespace;
    for record in own(snapshot, access, user).filter(meant) {
        let state = state_of(record);
        found.namespaces.insert(record.meta.key.namespace.to_string());
        let place = (Rows::since(record, state), record);
        match state {
            WorkloadState::Pending => pending.push(place),
            WorkloadState::Finished => finished.push(place),
            WorkloadState::QuotaReserved | WorkloadState::Admitted | WorkloadState::Evicted => {
                running.push(place);
            }
        }
        if matches!(state, WorkloadState::Pending | WorkloadState::Evicted) {
            found.evicted.extend(evicted(record));
        }
    }
    found.evicted.sort_by_key(|row| std::cmp::Reverse(row.since));
    found.evicted.truncate(most);
    let rows = Rows::of(snapshot, access);
    let list = |mut places: Vec<(Timestamp, &WorkloadRecord)>, newest_first: bool| {
        // Stable, so that workloads of one time stay in the order of their names.
        places.sort_by(|(a, _), (b, _)| if newest_first { b.cmp(a) } else { a.cmp(b) });
        OwnList {
            total: u64::try_from(places.len()).unwrap_or(u64::MAX),
            items: places.iter().take(most).map(|(_, record)| rows.row(record)).collect(),
        }
    };
    found.pending = list(pending, false);
    found.running = list(running, true);
    found.finished = list(finished, true);
    Ok(found)
}

/// Returns the eviction of a Workload that was not admitted since.
fn evicted(record: &WorkloadRecord) -> Option<EvictedWorkload> {
    let since = conditions::true_since(&record.status, ConditionType::Evicted)?;
    Some(EvictedWorkload {
        namespace: record.meta.key.namespace.to_string(),
        name: record.meta.key.name.to_string(),
        uid: record.meta.uid.to_string(),
        reason: conditions::reason(&record.status, ConditionType::Evicted).to_owned(),
        since: Some(since),
    })
}
