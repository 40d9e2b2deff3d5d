//! The value of the page of what the viewer submitted.

use crate::dashboard::mine::{MinePage, MineQuery};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::own_workloads::own_workloads;
use crate::visibility::page::ModelError;
use crate::visibility::queue_views::local_queues_of;
use crate::visibility::views::Source;

/// Rows of each state.
const ROWS: usize = 50;
/// Most namespaces whose LocalQueues are listed.
const MAX_NAMESPACES: usize = 8;

/// Returns the value of the page, without what the history has.
///
/// # Errors
/// The lists are not complete.
pub fn mine_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&MineQuery, Source),
) -> Result<MinePage, ModelError> {
    let found = own_workloads(snapshot, access, &query.user, (&query.namespace, ROWS))?;
    let mut namespaces: Vec<&str> = found.namespaces.iter().map(String::as_str).collect();
    if !query.namespace.is_empty() {
        namespaces = vec![query.namespace.as_str()];
    } else if namespaces.is_empty() {
        namespaces = access.namespaces.iter().map(String::as_str).collect();
    }
    namespaces.truncate(MAX_NAMESPACES);
    Ok(MinePage {
        query: query.clone(),
        local_queues: local_queues_of(snapshot, access, &namespaces)?,
        workloads: found,
        history: None,
        source,
        partial: false,
    })
}
