//! The value of the page of what the viewer submitted.

use super::all;
use crate::dashboard::mine::{MinePage, MineQuery};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::own_workloads::own_workloads;
use crate::visibility::page::ModelError;
use crate::visibility::queue_views::local_queues;
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
    let mut queues = Vec::new();
    for namespace in namespaces.into_iter().take(MAX_NAMESPACES) {
        queues.extend(all(|page| local_queues(snapshot, access, (Some(namespace), page)))?);
    }
    Ok(MinePage {
        query: query.clone(),
        local_queues: queues,
        workloads: found,
        history: None,
        source,
        partial: false,
    })
}
