//! Pages of the pending workloads of a ClusterQueue or LocalQueue.
//!
//! Invariant: a page shows one snapshot, however slowly it is read, so that its positions have no gap and no duplicate.

use crate::api::ObjectKey;
use crate::scheduler::PendingPosition;
use crate::snapshot::Snapshot;
use crate::visibility::table::{Column, TableRow};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of rows of a page without `limit`.
const DEFAULT_LIMIT: usize = 1_000;
/// Maximum number of rows of a page.
const MAX_LIMIT: usize = 100_000;

/// The queue of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueId {
    /// The ClusterQueue of this name.
    Cluster(Arc<str>),
    /// The LocalQueue with this key.
    Local(ObjectKey),
}

/// The rows that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Position of the first row.
    pub offset: usize,
    /// Maximum number of rows.
    pub limit: usize,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { offset: 0, limit: DEFAULT_LIMIT }
    }
}

impl PageRequest {
    /// Parses the values of `offset` and `limit`, numbers of 64 bits. Negative values count as 0, a limit of 0 or no limit as
    /// 1,000, and a limit above 100,000 as 100,000.
    ///
    /// # Errors
    /// If a value is not such a number; the text names the option.
    pub fn parse(offset: Option<&str>, limit: Option<&str>) -> Result<Self, String> {
        let number = |name: &str, text: Option<&str>| match text.filter(|text| !text.is_empty()) {
            Some(text) => {
                text.parse::<i64>().map_err(|_| format!("{name}: {text:?} is not a number of 64 bits"))
            }
            None => Ok(0),
        };
        let to_rows = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
        let (offset, limit) = (number("offset", offset)?, number("limit", limit)?);
        let limit = if limit == 0 { DEFAULT_LIMIT } else { to_rows(limit).min(MAX_LIMIT) };
        Ok(Self { offset: to_rows(offset), limit })
    }
}

/// Reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The first lists are not complete.
    NotSynced,
    /// The queue does not exist, or the LocalQueue is stopped.
    NotFound,
}

/// A pending workload, in the form of Kueue's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkload {
    /// Metadata of the Workload.
    pub metadata: PendingMetadata,
    /// Priority in the spec.
    pub priority: i32,
    /// Name of the LocalQueue.
    pub local_queue_name: Arc<str>,
    /// Number of workloads before it in its ClusterQueue.
    pub position_in_cluster_queue: usize,
    /// Number of workloads of its LocalQueue before it.
    pub position_in_local_queue: usize,
}

/// Metadata of a pending Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingMetadata {
    /// Name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Creation time, in whole seconds.
    pub creation_timestamp: String,
    /// Owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<PendingOwner>,
}

/// Owner of a pending Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingOwner {
    /// Group and version.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

/// Formats a time as in objects: in whole seconds and UTC.
fn to_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl From<PendingPosition<'_>> for PendingWorkload {
    fn from(position: PendingPosition<'_>) -> Self {
        let workload = position.workload;
        let owner = |owner: &crate::api::OwnerRecord| PendingOwner {
            api_version: Arc::clone(&owner.api_version),
            kind: Arc::clone(&owner.kind),
            name: Arc::clone(&owner.name),
            uid: Arc::clone(&owner.uid),
        };
        Self {
            metadata: PendingMetadata {
                name: Arc::clone(&workload.key.name),
                namespace: Arc::clone(&workload.key.namespace),
                creation_timestamp: to_text(workload.listed.created),
                owner_references: workload.listed.owners().map(owner).collect(),
            },
            priority: workload.listed.spec_priority,
            local_queue_name: Arc::clone(&workload.local_queue),
            position_in_cluster_queue: position.in_cluster_queue,
            position_in_local_queue: position.in_local_queue,
        }
    }
}

impl TableRow for PendingWorkload {
    const COLUMNS: &'static [Column] = &[
        Column {
            name: "Name",
            kind: "string",
            format: "name",
            description: "Name of the Workload.",
            wide: false,
        },
        Column {
            name: "Namespace",
            kind: "string",
            format: "",
            description: "Namespace of the Workload.",
            wide: false,
        },
        Column {
            name: "Local Queue",
            kind: "string",
            format: "",
            description: "LocalQueue of the Workload.",
            wide: false,
        },
        Column {
            name: "Priority",
            kind: "integer",
            format: "",
            description: "Priority of the Workload.",
            wide: false,
        },
        Column {
            name: "Position",
            kind: "integer",
            format: "",
            description: "Number of Workloads before it in the ClusterQueue.",
            wide: false,
        },
        Column {
            name: "Local Position",
            kind: "integer",
            format: "",
            description: "Number of Workloads of the LocalQueue before it.",
            wide: false,
        },
        Column {
            name: "Created At",
            kind: "date",
            format: "",
            description: "When the Workload was created.",
            wide: false,
        },
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        vec![
            json!(self.metadata.name),
            json!(self.metadata.namespace),
            json!(self.local_queue_name),
            json!(self.priority),
            json!(self.position_in_cluster_queue),
            json!(self.position_in_local_queue),
            json!(self.metadata.creation_timestamp),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

/// A page that is read in parts.
#[derive(Clone, Debug)]
pub struct PendingPage {
    snapshot: Arc<Snapshot>,
    cluster_queue: Arc<str>,
    local_queue: Option<ObjectKey>,
    next: usize,
    left: usize,
}

impl PendingPage {
    /// Returns the page of a queue.
    ///
    /// # Errors
    /// If the snapshot has no answer.
    pub fn of(snapshot: Arc<Snapshot>, queue: &QueueId, request: PageRequest) -> Result<Self, Unanswered> {
        if !snapshot.synced {
            return Err(Unanswered::NotSynced);
        }
        let (cluster_queue, local_queue) = match queue {
            QueueId::Cluster(name) => {
                let known = snapshot.references.cluster_queues.get(name);
                (Arc::clone(known.ok_or(Unanswered::NotFound)?), None)
            }
            QueueId::Local(key) => {
                let known = snapshot.references.local_queues.get(key).filter(|known| !known.stopped);
                (Arc::clone(&known.ok_or(Unanswered::NotFound)?.cluster_queue), Some(key.clone()))
            }
        };
        let total = match &local_queue {
            Some(key) => snapshot.pending.local_len(&cluster_queue, key),
            None => snapshot.pending.len(&cluster_queue),
        };
        let left = total.saturating_sub(request.offset).min(request.limit);
        Ok(Self { snapshot, cluster_queue, local_queue, next: request.offset, left })
    }

    /// Returns the number of rows that have not been returned yet.
    pub const fn rows_left(&self) -> usize {
        self.left
    }

    /// Returns the next rows, at most `limit`.
    pub fn next_rows(&mut self, limit: usize) -> Vec<PendingWorkload> {
        let limit = limit.min(self.left);
        let (order, queue) = (&self.snapshot.pending, &self.cluster_queue);
        let rows: Vec<PendingWorkload> = match &self.local_queue {
            Some(key) => {
                order.local_from_position(queue, key, self.next).take(limit).map(Into::into).collect()
            }
            None => order.from_position(queue, self.next).take(limit).map(Into::into).collect(),
        };
        self.next = self.next.saturating_add(rows.len());
        // If the snapshot has no further row, the page ends.
        self.left = if rows.is_empty() { 0 } else { self.left.saturating_sub(rows.len()) };
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{ListedFields, QueueManager, Workload};
    use crate::snapshot::LocalQueueReference;

    fn page(offset: usize, limit: usize) -> PageRequest {
        PageRequest { offset, limit }
    }

    #[test]
    fn page_requests_have_kueues_defaults_and_bounds() {
        for (offset, limit, expected) in [
            (None, None, page(0, 1_000)),
            (Some(""), Some("0"), page(0, 1_000)),
            (Some("7"), Some("20"), page(7, 20)),
            (Some("-7"), Some("-1"), page(0, 0)),
            (
                Some("9223372036854775807"),
                Some("9223372036854775807"),
                page(i64::MAX.try_into().unwrap(), 100_000),
            ),
        ] {
            assert_eq!(PageRequest::parse(offset, limit), Ok(expected), "{offset:?} {limit:?}");
        }
        for (offset, limit, named) in [
            (Some("x"), None, "offset: \"x\""),
            (None, Some("1.5"), "limit: \"1.5\""),
            (None, Some("9223372036854775808"), "limit: "),
        ] {
            let error = PageRequest::parse(offset, limit).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    fn snapshot(count: i64) -> Arc<Snapshot> {
        let mut manager = QueueManager::default();
        for number in 0..count {
            let created = Timestamp::from_second(1_800_000_000 + number).unwrap();
            manager.insert(Workload {
                key: ObjectKey::new("ns", &format!("w{number}")),
                uid: Arc::from(format!("{number}")),
                cluster_queue: Arc::from("cq"),
                local_queue: Arc::from(if number % 2 == 0 { "even" } else { "odd" }),
                // A boost does not show.
                priority: 100,
                queued_since: created,
                listed: ListedFields { created, spec_priority: -3, ..ListedFields::default() },
                ..Workload::default()
            });
        }
        let mut snapshot = Snapshot { synced: true, pending: manager.order().clone(), ..Snapshot::default() };
        let references = Arc::make_mut(&mut snapshot.references);
        references.cluster_queues.insert(Arc::from("cq"));
        references.cluster_queues.insert(Arc::from("idle"));
        for (name, queue, stopped) in
            [("even", "cq", false), ("odd", "cq", false), ("held", "cq", true), ("lost", "gone", false)]
        {
            let reference =
                LocalQueueReference { cluster_queue: Arc::from(queue), stopped, is_remote: false };
            references.local_queues.insert(ObjectKey::new("ns", name), reference);
        }
        Arc::new(snapshot)
    }

    fn local(name: &str) -> QueueId {
        QueueId::Local(ObjectKey::new("ns", name))
    }

    /// Returns the name and both positions of all rows, read in parts.
    fn rows(mut page: PendingPage) -> Vec<(String, usize, usize)> {
        let mut rows = Vec::new();
        while page.rows_left() > 0 {
            rows.extend(page.next_rows(3));
        }
        assert!(page.next_rows(3).is_empty());
        let row = |w: PendingWorkload| {
            (w.metadata.name.to_string(), w.position_in_cluster_queue, w.position_in_local_queue)
        };
        rows.into_iter().map(row).collect()
    }

    #[test]
    fn pages_have_positions_in_both_queues() {
        let snapshot = snapshot(20);
        let cq =
            PendingPage::of(Arc::clone(&snapshot), &QueueId::Cluster(Arc::from("cq")), page(4, 8)).unwrap();
        let expected: Vec<_> = (4..12).map(|n| (format!("w{n}"), n, n / 2)).collect();
        assert_eq!(rows(cq), expected);
        let odd = PendingPage::of(Arc::clone(&snapshot), &local("odd"), page(8, 8)).unwrap();
        assert_eq!(rows(odd), [("w17".to_owned(), 17, 8), ("w19".to_owned(), 19, 9)]);
        for (queue, request) in [
            (QueueId::Cluster(Arc::from("cq")), page(20, 5)),
            (QueueId::Cluster(Arc::from("cq")), page(usize::MAX, 5)),
            (QueueId::Cluster(Arc::from("cq")), page(0, 0)),
            (QueueId::Cluster(Arc::from("idle")), page(0, 5)),
            (local("lost"), page(0, 5)),
            (local("even"), page(10, 5)),
        ] {
            assert_eq!(
                rows(PendingPage::of(Arc::clone(&snapshot), &queue, request).unwrap()),
                [],
                "{queue:?}"
            );
        }
    }

    #[test]
    fn unknown_and_stopped_queues_are_not_found() {
        let known = snapshot(1);
        for queue in [QueueId::Cluster(Arc::from("gone")), local("gone"), local("held")] {
            let answer = PendingPage::of(Arc::clone(&known), &queue, PageRequest::default());
            assert_eq!(answer.map(|_| ()), Err(Unanswered::NotFound), "{queue:?}");
        }
        let other = QueueId::Local(ObjectKey::new("other", "even"));
        assert!(PendingPage::of(Arc::clone(&known), &other, PageRequest::default()).is_err());
        let early = Arc::new(Snapshot::default());
        let answer = PendingPage::of(early, &QueueId::Cluster(Arc::from("cq")), PageRequest::default());
        assert_eq!(answer.map(|_| ()), Err(Unanswered::NotSynced), "also of queues that are not known");
    }

    #[test]
    fn a_row_equals_the_one_of_kueue() {
        let mut page = PendingPage::of(snapshot(1), &local("even"), PageRequest::default()).unwrap();
        let row = page.next_rows(1).pop().unwrap();
        let expected = json!({
            "metadata": {"name": "w0", "namespace": "ns", "creationTimestamp": "2027-01-15T08:00:00Z"},
            "priority": -3, "localQueueName": "even", "positionInClusterQueue": 0, "positionInLocalQueue": 0,
        });
        assert_eq!(json!(row), expected);
        assert_eq!(row.cells(Timestamp::UNIX_EPOCH).len(), PendingWorkload::COLUMNS.len());
    }
}
