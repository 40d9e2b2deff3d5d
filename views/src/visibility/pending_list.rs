//! Pending workloads of all queues, or of some, in an order of the reader's choice.
//!
//! Invariants: a page costs one look into each queue and namespace and the rows that it passes over, at most `MAX_PASSED`; these are
//! rows of namespaces that the reader sees; workloads in no queue come last, except in the orders by wait and size, where they have
//! their own places; any replica can return the next page.

use super::access::Access;
use super::page::{ModelError, QueuedKey, RowKey};
use super::views::WorkloadView;
use super::workload_row::Rows;
use super::workloads::{
    MAX_PASSED, Rowset, WorkloadPage, WorkloadQuery, list_metadata, merged_by_position, row_key, to_order,
};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::cache::size_index::Requesting;
use crate::cache::state_index::Waiting;
use crate::queue::{PendingOrder, PendingPosition, Workload};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of workloads that are sorted for one page. Below it, the order by wait is sorted, not read from an index.
const MAX_SORTED: usize = 4_000;

/// The order of a list of pending workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// By ClusterQueue, and by position in it.
    #[default]
    Position,
    /// By priority, the highest first, then by time.
    Priority,
    /// By wait, the longest first.
    Wait,
    /// By requests, the largest first: devices, then CPU, then memory.
    Size,
}

impl ListOrder {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::Position, Self::Priority, Self::Wait, Self::Size];

    /// Returns the word for the order.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Priority => "priority",
            Self::Wait => "wait",
            Self::Size => "size",
        }
    }

    /// Returns whether workloads in no queue have their own places in the order, instead of the last ones.
    const fn is_of_all(self) -> bool {
        matches!(self, Self::Wait | Self::Size)
    }

    /// Parses the word; an empty text means the default.
    ///
    /// # Errors
    /// If there is no such order; the text lists the orders.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|order| order.as_str() == text);
        known.or_else(|| text.is_empty().then(Self::default)).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown order {text:?}: use one of {words}")
        })
    }
}

/// Returns a page of pending workloads. Namespace, ClusterQueue, LocalQueue and reason select as in every list.
///
/// # Errors
/// If the lists are not complete, or the token belongs to another list.
pub fn pending_workloads(
    snapshot: &Snapshot,
    access: &Access,
    query: &WorkloadQuery,
    order: ListOrder,
) -> Result<Rowset<WorkloadView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    PendingList { page: WorkloadPage { rows: Rows::of(snapshot, access), query }, order }.page()
}

/// Returns the number of pending workloads in no queue.
fn in_no_queue(snapshot: &Snapshot) -> usize {
    let pending: usize = snapshot.workloads.pending_by_reason().map(|summary| summary.count).sum();
    let queued = snapshot.pending.cluster_queues_from("").map(|queue| snapshot.pending.len(queue));
    pending.saturating_sub(queued.sum())
}

/// A row with its place in the order.
#[derive(Clone, Copy)]
enum Place<'a> {
    Queued(&'a Arc<Workload>),
    Waits(&'a ObjectKey, Timestamp),
    Requesting(&'a Requesting),
}

impl<'a> Place<'a> {
    fn key(self) -> &'a ObjectKey {
        match self {
            Self::Queued(workload) => &workload.key,
            Self::Waits(key, _) => key,
            Self::Requesting(item) => &item.key,
        }
    }

    fn row_key(self) -> RowKey {
        match self {
            Self::Queued(workload) => {
                let key = row_key(workload);
                let cluster_queue = workload.cluster_queue.to_string();
                RowKey { queued: key.queued.map(|queued| QueuedKey { cluster_queue, ..queued }), ..key }
            }
            Self::Waits(key, since) => RowKey { waiting: Some(since), ..RowKey::named(key) },
            Self::Requesting(item) => RowKey { size: Some(item.size()), ..RowKey::named(&item.key) },
        }
    }
}

type Places<'a> = Box<dyn Iterator<Item = Place<'a>> + 'a>;

#[derive(Clone, Copy)]
struct PendingList<'a> {
    page: WorkloadPage<'a>,
    order: ListOrder,
}

impl<'a> PendingList<'a> {
    const fn snapshot(self) -> &'a Snapshot {
        self.page.rows.snapshot
    }

    const fn pending(self) -> &'a PendingOrder {
        &self.snapshot().pending
    }

    fn namespace(self) -> Option<&'a str> {
        self.page.query.namespace.as_deref()
    }

    fn cluster_queue(self) -> Option<&'a str> {
        self.page.query.selector.cluster_queue()
    }

    fn scope(self) -> String {
        let words = [self.namespace(), self.cluster_queue(), self.page.query.selector.local_queue()];
        format!("pending/{}/{}", self.order.as_str(), words.map(|word| word.unwrap_or("*")).join("/"))
    }

    fn page(self) -> Result<Rowset<WorkloadView>, ModelError> {
        let (scope, query) = (self.scope(), self.page.query);
        let after = query.page.after(&scope)?;
        // Behind the queues come the workloads in no queue.
        let belongs = |place: &Place<'_>, row: &WorkloadView| {
            matches!(place, Place::Queued(_)) || self.order.is_of_all() || row.position.is_none()
        };
        let (rows, last) = self.page.take(self.places(after.as_ref()), |place| place.key(), belongs);
        let remaining = last.and_then(|place| self.remaining(place));
        Ok((rows, list_metadata(&scope, last.map(Place::row_key), remaining)))
    }

    /// Returns the rows after a place.
    fn places(self, after: Option<&RowKey>) -> Places<'a> {
        let waits = after.and_then(|key| {
            Some(Waiting { since: key.waiting?, key: ObjectKey::new(&key.namespace, &key.name) })
        });
        match self.order {
            ListOrder::Wait => return self.by_wait(waits.as_ref()),
            ListOrder::Size => {
                let after = after.and_then(|key| {
                    Some(Requesting::new(key.size?, ObjectKey::new(&key.namespace, &key.name)))
                });
                let all = self
                    .snapshot()
                    .workloads
                    .largest_first(move |queue| self.is_meant(queue), after.as_ref());
                return Box::new(all.map(Place::Requesting));
            }
            ListOrder::Position | ListOrder::Priority => {}
        }
        let queued: Places<'a> = match (&waits, self.order) {
            (Some(_), _) => Box::new(std::iter::empty()),
            (None, ListOrder::Priority) => {
                let after = after.and_then(|key| to_order(key, ""));
                Box::new(self.by_priority(after.as_ref()).map(Place::Queued))
            }
            (None, _) => self.by_position(after),
        };
        if in_no_queue(self.snapshot()) == 0 {
            return queued;
        }
        Box::new(queued.chain(self.waiting(PendingReason::is_unevaluated, waits.as_ref())))
    }

    /// Returns the listed workloads of reasons by wait, the longest first.
    fn waiting<F: Fn(PendingReason) -> bool + 'a>(
        self,
        is_meant: F,
        after: Option<&Waiting>,
    ) -> impl Iterator<Item = Place<'a>> + use<'a, F> {
        let is_listed =
            move |reason: PendingReason, namespace: &str| is_meant(reason) && self.page.lists(namespace);
        let found = self.snapshot().workloads.longest_waiting(is_listed, after);
        found.map(|item| Place::Waits(&item.key, item.since))
    }

    /// Returns whether the workloads of a LocalQueue are selected.
    fn is_meant(self, queue: &ObjectKey) -> bool {
        let of_cluster_queue = |name: &str| {
            let known = self.snapshot().references.local_queues.get(queue);
            known.is_some_and(|reference| *reference.cluster_queue == *name)
        };
        self.page.lists(&queue.namespace)
            && self.page.query.selector.local_queue().is_none_or(|name| *queue.name == *name)
            && self.cluster_queue().is_none_or(of_cluster_queue)
            && self.is_within(queue)
    }

    /// Returns whether the ClusterQueue of a LocalQueue may be selected.
    fn is_within(self, queue: &ObjectKey) -> bool {
        let known = self.snapshot().references.local_queues.get(queue);
        self.page.query.selector.is_within(known.map_or("", |reference| &*reference.cluster_queue))
    }

    /// Returns the listed workloads of the queues by priority.
    fn by_priority(self, after: Option<&Workload>) -> impl Iterator<Item = &'a Arc<Workload>> + use<'a> {
        let namespaces = self.page.namespaces();
        self.pending().by_priority(self.cluster_queue(), namespaces.as_deref(), after)
    }

    /// Returns the workloads of all queues from the index of their waits. Up to `MAX_SORTED` workloads of one ClusterQueue are sorted
    /// instead: the index has them among all others.
    fn by_wait(self, after: Option<&Waiting>) -> Places<'a> {
        if self.cluster_queue().is_none() {
            return Box::new(self.waiting(|_| true, after));
        }
        let queued = self.by_priority(None).take(MAX_SORTED.saturating_add(1));
        let queued: Vec<&ObjectKey> = queued.map(|workload| &workload.key).collect();
        if queued.len() > MAX_SORTED {
            return Box::new(self.waiting(|_| true, after));
        }
        let index = &self.snapshot().workloads;
        let since = |key: &'a ObjectKey| {
            let record = index.get(key)?;
            Some((crate::cache::state_index::pending_since(record), &record.meta.key))
        };
        let mut all: Vec<(Timestamp, &ObjectKey)> = queued.into_iter().filter_map(since).collect();
        if in_no_queue(self.snapshot()) > 0 {
            let is_listed = |reason: PendingReason, namespace: &str| {
                reason.is_unevaluated() && self.page.lists(namespace)
            };
            let others = index.longest_waiting(is_listed, None).take(MAX_PASSED);
            all.extend(others.map(|item| (item.since, &item.key)));
        }
        all.sort_unstable();
        all.dedup();
        if let Some(after) = after {
            all.retain(|(since, key)| (*since, *key) > (after.since, &after.key));
        }
        Box::new(all.into_iter().map(|(since, key)| Place::Waits(key, since)))
    }

    /// Returns the rows of one ClusterQueue after another.
    fn by_position(self, after: Option<&RowKey>) -> Places<'a> {
        let after = after.cloned();
        let last = after.as_ref().and_then(|key| key.queued.as_ref());
        let from = last.map(|queued| queued.cluster_queue.clone()).unwrap_or_default();
        let local = self.local_queues();
        let queues: Vec<Arc<str>> = match (&local, self.cluster_queue()) {
            (Some(local), _) => local.keys().map(Arc::clone).collect(),
            (None, Some(queue)) => vec![Arc::from(queue)],
            (None, None) => self.pending().cluster_queues_from(&from).map(Arc::clone).collect(),
        };
        let selector = &self.page.query.selector;
        let queues = queues.into_iter().skip_while(|queue| **queue < *from);
        let queues: Vec<Arc<str>> = queues.filter(|queue| selector.is_within(queue)).collect();
        Box::new(queues.into_iter().flat_map(move |queue| {
            let after = after.as_ref().filter(|_| *queue == *from);
            let positions: Box<dyn Iterator<Item = PendingPosition<'a>> + 'a> = if let Some(local) = &local {
                let keys = local.get(&queue).map_or(&[][..], Vec::as_slice);
                let queues: Vec<_> = keys.iter().map(|key| (*key, &queue)).collect();
                Box::new(merged_by_position(self.pending(), &queues, after))
            } else {
                let probe = after.and_then(|after| to_order(after, &queue));
                let first = probe.map_or(0, |probe| self.pending().up_to(&probe));
                Box::new(self.pending().from_position(&queue, first))
            };
            positions.map(|position| Place::Queued(position.workload))
        }))
    }

    /// Returns the LocalQueues of the listed namespaces by ClusterQueue; `None` for all namespaces.
    fn local_queues(self) -> Option<BTreeMap<Arc<str>, Vec<&'a ObjectKey>>> {
        let (namespaces, selector) = (self.page.namespaces()?, &self.page.query.selector);
        let mut found: BTreeMap<Arc<str>, Vec<&ObjectKey>> = BTreeMap::new();
        for namespace in namespaces {
            let known = self.snapshot().references.local_queues.range(ObjectKey::new(namespace, "")..);
            for (key, reference) in known.take_while(|(key, _)| *key.namespace == *namespace) {
                let is_wanted = selector.local_queue().is_none_or(|name| *key.name == *name)
                    && selector.cluster_queue().is_none_or(|name| *reference.cluster_queue == *name);
                if is_wanted {
                    found.entry(Arc::clone(&reference.cluster_queue)).or_default().push(key);
                }
            }
        }
        Some(found)
    }

    /// Returns the number of rows after a place, if the list selects by queues only.
    fn remaining(self, place: Place<'_>) -> Option<usize> {
        if !self.page.query.selector.is_by_queue() || !self.page.rows.access.sees_everything() {
            return None;
        }
        let workload = match place {
            Place::Requesting(item) => {
                return Some(self.snapshot().workloads.count_after(|queue| self.is_meant(queue), item));
            }
            Place::Queued(workload) if self.order == ListOrder::Position && self.namespace().is_none() => {
                workload
            }
            _ => return None,
        };
        let (position, _) = self.pending().position(workload)?;
        let here = self.pending().len(&workload.cluster_queue).saturating_sub(position.saturating_add(1));
        if self.cluster_queue().is_some() {
            return Some(here);
        }
        let queues = self.pending().cluster_queues_from(&workload.cluster_queue).skip(1);
        let later: usize = queues.map(|queue| self.pending().len(queue)).sum();
        Some(here.saturating_add(later).saturating_add(in_no_queue(self.snapshot())))
    }
}
