//! Workloads as rows: a single one, and pages by name or in the order of a queue.
//!
//! Invariants: a page costs its rows, or the rows that it passes over, at most `MAX_PASSED`; a page that ends early has a token
//! to continue. Only namespaces that the reader sees are read, so that a page ends at a row of the reader: one that ended at another
//! would need a token with its name, and one that passes over others until the limit would end the list.

use super::access::Access;
use super::page::{ModelError, PageQuery, QueuedKey, RowKey, token};
use super::selector::WorkloadSelector;
use super::views::{ListMetadata, WorkloadView};
use super::workload_row::Rows;
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::queue::{PendingOrder, PendingPosition, Workload};
use crate::snapshot::Snapshot;
use std::sync::Arc;

/// Maximum number of workloads that a page passes over.
pub(super) const MAX_PASSED: usize = 20_000;

/// A query for workloads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadQuery {
    /// Namespace of the workloads; `None` for all.
    pub namespace: Option<String>,
    /// Selects the workloads.
    pub selector: WorkloadSelector,
    /// The page that is asked for.
    pub page: PageQuery,
}

/// Rows of a page, and the metadata with the token of the next one.
pub type Rowset<T> = (Vec<T>, ListMetadata);

/// Returns a Workload as a row.
///
/// # Errors
/// If the lists are not complete, or the reader may see no Workload of this key.
pub fn workload(snapshot: &Snapshot, access: &Access, key: &ObjectKey) -> Result<WorkloadView, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let visible = snapshot.workloads.get(key).filter(|_| access.sees(&key.namespace));
    visible.map(|record| Rows::of(snapshot, access).row(record)).ok_or(ModelError::NotFound)
}

/// Returns a page of workloads: in the order of the queue for the pending workloads of one queue, otherwise by namespace and
/// name. A reader of some namespaces gets their workloads alone.
///
/// # Errors
/// If the lists are not complete, or the token belongs to another list.
pub fn workloads(
    snapshot: &Snapshot,
    access: &Access,
    query: &WorkloadQuery,
) -> Result<Rowset<WorkloadView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let page = WorkloadPage { rows: Rows::of(snapshot, access), query };
    match page.order() {
        Order::OfClusterQueue(queue) => page.of_cluster_queue(queue),
        Order::OfLocalQueues(namespaces) => page.of_local_queues(&namespaces),
        Order::ByName => page.by_name(),
    }
}

/// Adds to the metadata of a page of `workloads` the number of rows behind it. It stays unknown if more than `MAX_PASSED` Workloads are
/// left to look at.
pub fn with_rows_left(
    snapshot: &Snapshot,
    access: &Access,
    query: &WorkloadQuery,
    metadata: ListMetadata,
) -> ListMetadata {
    if metadata.continue_token.is_empty() || metadata.remaining_item_count.is_some() {
        return metadata;
    }
    let page = PageQuery { continue_token: metadata.continue_token.clone(), ..query.page.clone() };
    let query = WorkloadQuery { page, ..query.clone() };
    let remaining_item_count =
        WorkloadPage { rows: Rows::of(snapshot, access), query: &query }.count().ok().flatten();
    ListMetadata { remaining_item_count, ..metadata }
}

/// The order of a list of workloads.
enum Order<'a> {
    /// That of a ClusterQueue, for a reader of all namespaces.
    OfClusterQueue(&'a str),
    /// By the positions of the LocalQueues of namespaces.
    OfLocalQueues(Vec<&'a str>),
    /// By namespace and name.
    ByName,
}

type Keys<'a> = Box<dyn Iterator<Item = &'a ObjectKey> + 'a>;
type Positions<'a> = Box<dyn Iterator<Item = PendingPosition<'a>> + 'a>;

/// Returns the reserving workloads of a ClusterQueue with the largest part of a limit, at most `most`. Workloads of namespaces
/// that the reader does not see are left out.
pub fn largest(snapshot: &Snapshot, access: &Access, cluster_queue: &str, most: usize) -> Vec<WorkloadView> {
    let rows = Rows::of(snapshot, access);
    let queue: Arc<str> = Arc::from(cluster_queue);
    // The largest workloads by each resource include the largest by any.
    let keys = snapshot.workloads.largest(cluster_queue, most);
    let records = keys.into_iter().filter(|key| access.sees(&key.namespace));
    let records = records.filter_map(|key| snapshot.workloads.get(key));
    let mut found: Vec<_> = records.map(|record| (rows.largest_part(record, &queue), record)).collect();
    found.sort_by(|((part, amount), record), ((other, less), next)| {
        let by_size = other.total_cmp(part).then_with(|| less.total_cmp(amount));
        by_size.then_with(|| record.meta.key.cmp(&next.meta.key))
    });
    found.into_iter().take(most).map(|(_, record)| rows.row(record)).collect()
}

#[derive(Clone, Copy)]
pub(super) struct WorkloadPage<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) query: &'a WorkloadQuery,
}

impl<'a> WorkloadPage<'a> {
    pub(super) fn selects(self, record: &WorkloadRecord, queue: &Arc<str>) -> bool {
        let selector = &self.query.selector;
        let fields = self.rows.selected_fields(record, queue, selector.reads_standing());
        selector.matches(&fields) && selector.matches_labels(record) && selector.matches_submitter(record)
    }

    /// Takes the rows of places that the reader sees and the query selects, until the page is full or `MAX_PASSED` places were
    /// passed over. Also returns the last examined place if others follow. `belongs` returns whether a row has its own place
    /// there.
    pub(super) fn take<P>(
        self,
        places: impl Iterator<Item = P>,
        key: impl Fn(&P) -> &'a ObjectKey,
        belongs: impl Fn(&P, &WorkloadView) -> bool,
    ) -> (Vec<WorkloadView>, Option<P>) {
        let mut places = places.peekable();
        let (mut rows, mut passed, mut last) = (Vec::new(), 0_usize, None);
        while rows.len() < self.query.page.limit && passed < MAX_PASSED {
            let Some(place) = places.next() else { break };
            passed = passed.saturating_add(1);
            let key = key(&place);
            if !self.lists(&key.namespace) {
                continue;
            }
            if let Some(record) = self.rows.snapshot.workloads.get(key)
                && self.selects(record, &self.rows.cluster_queue(record))
            {
                let row = brief(self.rows.row(record));
                if belongs(&place, &row) {
                    rows.push(row);
                }
            }
            last = Some(place);
        }
        (rows, last.filter(|_| places.peek().is_some()))
    }

    /// Returns whether workloads of a namespace are listed.
    pub(super) fn lists(self, namespace: &str) -> bool {
        self.rows.access.sees(namespace) && self.query.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Returns the namespaces whose workloads are listed, in order; `None` for all.
    pub(super) fn namespaces(self) -> Option<Vec<&'a str>> {
        self.rows.access.listed(self.query.namespace.as_deref())
    }

    fn order(self) -> Order<'a> {
        let selector = &self.query.selector;
        let of_local_queue = self.query.namespace.is_some() && selector.local_queue().is_some();
        match (selector.only_pending(), selector.cluster_queue(), self.namespaces()) {
            (true, Some(queue), None) => Order::OfClusterQueue(queue),
            (true, queue, Some(namespaces)) if queue.is_some() || of_local_queue => {
                Order::OfLocalQueues(namespaces)
            }
            _ => Order::ByName,
        }
    }

    /// Counts the rows of the page and behind it; `None` if more than `MAX_PASSED` Workloads would have to be looked at.
    fn count(self) -> Result<Option<u64>, ModelError> {
        let of_positions = |positions: Positions<'a>| -> Keys<'a> {
            Box::new(positions.map(|position| &position.workload.key))
        };
        let keys = match self.order() {
            Order::OfClusterQueue(queue) => of_positions(self.positions_of_cluster_queue(queue)?.1),
            Order::OfLocalQueues(namespaces) => of_positions(self.positions_of_local_queues(&namespaces)?.1),
            Order::ByName => self.keys_by_name()?.1,
        };
        let mut rows = 0_u64;
        for (passed, key) in keys.enumerate() {
            if passed >= MAX_PASSED {
                return Ok(None);
            }
            let record = self.rows.snapshot.workloads.get(key).filter(|_| self.lists(&key.namespace));
            let is_row = record.is_some_and(|record| self.selects(record, &self.rows.cluster_queue(record)));
            rows = rows.saturating_add(u64::from(is_row));
        }
        Ok(Some(rows))
    }

    /// Iterates over the keys of Workloads behind a key, in their order; of a submitter's alone if the query is about one.
    fn keys_after(self, start: &ObjectKey) -> Keys<'a> {
        let index = &self.rows.snapshot.workloads;
        if let Some(user) = self.query.selector.submitter() {
            let start = start.clone();
            let own = index.of_submitter(user, start.clone());
            return Box::new(own.skip_while(move |key| **key == start));
        }
        Box::new(index.starting_at(index.up_to(start)).map(|record| &record.meta.key))
    }

    fn by_name(self) -> Result<Rowset<WorkloadView>, ModelError> {
        let (scope, keys) = self.keys_by_name()?;
        let (rows, last) = self.take(keys, |key| *key, |_, _| true);
        Ok((rows, list_metadata(&scope, last.map(RowKey::named), None)))
    }

    /// Returns the scope of the pages by name, and the keys from the page on.
    fn keys_by_name(self) -> Result<(String, Keys<'a>), ModelError> {
        let scope = format!("name/{}", self.query.namespace.as_deref().unwrap_or_default());
        let after = self.query.page.after(&scope)?.map(|key| ObjectKey::new(&key.namespace, &key.name));
        let keys: Keys<'a> = match self.namespaces() {
            None => self.keys_after(&after.unwrap_or_else(|| ObjectKey::new("", ""))),
            Some(namespaces) => Box::new(namespaces.into_iter().flat_map(move |namespace| {
                let first = ObjectKey::new(namespace, "");
                // Of a namespace before that of the last row, nothing is left.
                let start = after.clone().unwrap_or_else(|| first.clone()).max(first);
                self.keys_after(&start).take_while(move |key| *key.namespace == *namespace)
            })),
        };
        Ok((scope, keys))
    }

    /// Returns the pending workloads of a ClusterQueue, for a reader of all namespaces.
    fn of_cluster_queue(self, queue: &str) -> Result<Rowset<WorkloadView>, ModelError> {
        let (scope, positions) = self.positions_of_cluster_queue(queue)?;
        let total = self.rows.snapshot.pending.len(queue);
        Ok(self.in_order(&scope, positions, Some(total).filter(|_| self.query.selector.is_by_queue())))
    }

    /// Returns the scope of these pages, and the positions from the page on.
    fn positions_of_cluster_queue(self, queue: &str) -> Result<(String, Positions<'a>), ModelError> {
        let order = &self.rows.snapshot.pending;
        let scope = format!("queue/{queue}");
        let after = self.query.page.after(&scope)?.and_then(|key| to_order(&key, queue));
        let first = after.map_or(0, |after| order.up_to(&after));
        Ok((scope, Box::new(order.from_position(queue, first))))
    }

    /// Returns the pending workloads of LocalQueues of namespaces, merged by their positions in the ClusterQueue.
    fn of_local_queues(self, namespaces: &[&str]) -> Result<Rowset<WorkloadView>, ModelError> {
        let (scope, positions) = self.positions_of_local_queues(namespaces)?;
        Ok(self.in_order(&scope, positions, None))
    }

    /// Returns the scope of these pages, and the positions from the page on.
    fn positions_of_local_queues(self, namespaces: &[&str]) -> Result<(String, Positions<'a>), ModelError> {
        let selector = &self.query.selector;
        let known = &self.rows.snapshot.references.local_queues;
        let wanted = |key: &ObjectKey, queue: &str| {
            selector.local_queue().is_none_or(|name| *key.name == *name)
                && selector.cluster_queue().is_none_or(|name| queue == name)
        };
        let of_namespace = |namespace: &&str| {
            let first = ObjectKey::new(namespace, "");
            let namespace = Arc::clone(&first.namespace);
            known.range(first..).take_while(move |(key, _)| key.namespace == namespace)
        };
        let queues: Vec<(&ObjectKey, &Arc<str>)> = namespaces
            .iter()
            .flat_map(of_namespace)
            .map(|(key, reference)| (key, &reference.cluster_queue))
            .filter(|(key, queue)| wanted(key, queue))
            .collect();
        let words = [self.query.namespace.as_deref(), selector.cluster_queue(), selector.local_queue()];
        let scope = format!("queues/{}", words.map(|word| word.unwrap_or("*")).join("/"));
        let after = self.query.page.after(&scope)?;
        let merged = merged_by_position(&self.rows.snapshot.pending, &queues, after.as_ref());
        Ok((scope, Box::new(merged)))
    }

    /// Takes rows in the order of a queue. `total` is the number of rows of all pages, if it is known.
    fn in_order(
        self,
        scope: &str,
        positions: impl Iterator<Item = PendingPosition<'a>>,
        total: Option<usize>,
    ) -> Rowset<WorkloadView> {
        let (rows, last) = self.take(positions, |position| &position.workload.key, |_, _| true);
        let remaining = last.as_ref().zip(total);
        let remaining =
            remaining.map(|(last, total)| total.saturating_sub(last.in_cluster_queue.saturating_add(1)));
        let key = last.map(|last| row_key(last.workload));
        (rows, list_metadata(scope, key, remaining))
    }
}

/// Merges the workloads of LocalQueues by their positions in their ClusterQueues, after a row.
pub(super) fn merged_by_position<'a>(
    order: &'a PendingOrder,
    queues: &[(&ObjectKey, &Arc<str>)],
    after: Option<&RowKey>,
) -> impl Iterator<Item = PendingPosition<'a>> + use<'a> {
    let mut parts = Vec::new();
    for (key, queue) in queues {
        let probe = after.and_then(|after| to_order(after, queue));
        let first = probe.map_or(0, |probe| {
            if probe.key.namespace == key.namespace && probe.local_queue == key.name {
                return order.local_up_to(&probe);
            }
            // Positions increase along the LocalQueue: rows up to the last one of the page before come first.
            order.local_before(queue, key, order.up_to(&probe))
        });
        parts.push(order.local_from_position(queue, key, first).peekable());
    }
    std::iter::from_fn(move || {
        let next = parts.iter_mut().enumerate().filter_map(|(index, part)| {
            let head = part.peek()?;
            Some((head.in_cluster_queue, index))
        });
        let (_, index) = next.min()?;
        parts.get_mut(index)?.next()
    })
}

/// Leaves out what a row contains twice: the text of a blocker with amounts is a part of the message.
fn brief(mut row: WorkloadView) -> WorkloadView {
    if let Some(blocker) = row.first_blocker.as_mut().filter(|blocker| blocker.missing.is_some()) {
        blocker.text.clear();
    }
    row
}

pub(super) fn row_key(workload: &Workload) -> RowKey {
    RowKey {
        namespace: workload.key.namespace.to_string(),
        name: workload.key.name.to_string(),
        queued: Some(QueuedKey {
            priority: workload.priority,
            since: workload.queued_since,
            uid: workload.uid.to_string(),
            local_queue: workload.local_queue.to_string(),
            cluster_queue: String::new(),
        }),
        waiting: None,
        size: None,
    }
}

/// Returns a workload with the order of a row.
pub(super) fn to_order(key: &RowKey, cluster_queue: &str) -> Option<Workload> {
    let queued = key.queued.as_ref()?;
    Some(Workload {
        key: ObjectKey::new(&key.namespace, &key.name),
        uid: Arc::from(queued.uid.as_str()),
        cluster_queue: Arc::from(cluster_queue),
        local_queue: Arc::from(queued.local_queue.as_str()),
        priority: queued.priority,
        queued_since: queued.since,
        ..Workload::default()
    })
}

/// Returns the metadata of a page that ends with a row.
pub(super) fn list_metadata(scope: &str, after: Option<RowKey>, remaining: Option<usize>) -> ListMetadata {
    ListMetadata {
        remaining_item_count: remaining
            .filter(|_| after.is_some())
            .and_then(|remaining| u64::try_from(remaining).ok()),
        continue_token: after.map(|key| token(scope, key)).unwrap_or_default(),
    }
}
