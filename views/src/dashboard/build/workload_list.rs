//! The value of a list of workloads that are not pending.

use super::search::Search;
use super::{choices, number, rows, selector};
use crate::dashboard::workload_list::{ListedState, WorkloadListPage, WorkloadListQuery};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::recent_list::{RecentList, recent_workloads};
use crate::visibility::views::Source;
use crate::visibility::workloads::WorkloadQuery;

/// Returns the value of a page.
///
/// # Errors
/// The lists are not complete, or a parameter is invalid.
pub fn workload_list_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&WorkloadListQuery, Source),
) -> Result<WorkloadListPage, ModelError> {
    let search = Search::of("", &query.q)?;
    let (list, status) = match query.list {
        ListedState::Admitted => (RecentList::Reserving, ""),
        ListedState::Finished => (RecentList::Finished, "finished"),
    };
    let asked = WorkloadQuery {
        namespace: Some(query.namespace.clone()).filter(|name| !name.is_empty()),
        selector: selector(&[
            ("status", status),
            ("clusterQueue", &query.cluster_queue),
            ("localQueue", &query.local_queue),
        ])?,
        page: PageQuery { limit: rows(query.limit), continue_token: query.after.clone() },
    };
    let found = search.page(asked, |asked| recent_workloads(snapshot, access, asked, list))?;
    let filters = [&query.namespace, &query.cluster_queue, &query.local_queue];
    let is_whole = access.sees_everything() && filters.iter().all(|filter| filter.is_empty());
    let (cluster_queues, namespaces) = choices(snapshot, access);
    Ok(WorkloadListPage {
        query: query.clone(),
        metadata: found.metadata,
        items: found.items,
        total: is_whole.then(|| number(snapshot.workloads.count(list))),
        cluster_queues,
        namespaces,
        searched: found.searched,
        source,
        partial: false,
    })
}
