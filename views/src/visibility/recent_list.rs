//! Workloads that have quota, or have finished, the newest first.
//!
//! Invariants: a page costs its rows and the rows that it passes over, at most `MAX_PASSED`; any replica can return the next
//! page.

use super::access::Access;
use super::page::{ModelError, RowKey};
use super::views::WorkloadView;
use super::workload_row::Rows;
use super::workloads::{Rowset, WorkloadPage, WorkloadQuery, list_metadata};
use crate::api::ObjectKey;
use crate::cache::state_index::Recent;
pub use crate::cache::state_index::RecentList;
use crate::snapshot::Snapshot;
use std::cmp::Reverse;

/// Returns a page. Namespace, ClusterQueue and LocalQueue select as in every list; finished workloads need `status=finished`.
///
/// # Errors
/// If the lists are not complete, or the token belongs to another list.
pub fn recent_workloads(
    snapshot: &Snapshot,
    access: &Access,
    query: &WorkloadQuery,
    list: RecentList,
) -> Result<Rowset<WorkloadView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let (selector, namespace) = (&query.selector, query.namespace.as_deref());
    let word = match list {
        RecentList::Reserving => "reserving",
        RecentList::Finished => "finished",
    };
    let words = [namespace, selector.cluster_queue(), selector.local_queue()];
    let scope = format!("{word}/{}", words.map(|word| word.unwrap_or("*")).join("/"));
    let after = query.page.after(&scope)?.and_then(|key| {
        Some(Recent { since: Reverse(key.waiting?), key: ObjectKey::new(&key.namespace, &key.name) })
    });
    let page = WorkloadPage { rows: Rows::of(snapshot, access), query };
    let places = snapshot.workloads.newest(list, |namespace| page.lists(namespace), after.as_ref());
    let (rows, last) = page.take(places, |place| &place.key, |_, _| true);
    let is_whole = access.sees_everything() && selector.is_by_queue() && words == [None; 3];
    let remaining = last.filter(|_| is_whole).map(|place| {
        let passed = snapshot.workloads.count_newer(list, place).saturating_add(1);
        snapshot.workloads.count(list).saturating_sub(passed)
    });
    let key = last.map(|place| RowKey { waiting: Some(place.since.0), ..RowKey::named(&place.key) });
    Ok((rows, list_metadata(&scope, key, remaining)))
}
