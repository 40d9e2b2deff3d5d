//! The group `visibility.kueue.x-k8s.io`: pending workloads of ClusterQueues and LocalQueues.
//!
//! Invariants: versions differ only in their name; an answer shows one snapshot and takes the memory of `ROWS_AT_ONCE` rows,
//! however many it has.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::group::{
    ApiGroup, GroupDescription, QueryOption, ResourceDescription, ResourcePath, ResourceRequest,
    SubresourceDescription,
};
use super::negotiation::Format;
use super::status;
use crate::api::{ObjectKey, visibility as names};
use crate::snapshot::Snapshot;
use crate::visibility::table::{IncludeObject, TableRow, column_definitions};
use crate::visibility::{PageRequest, PendingPage, PendingWorkload, QueueId, Unanswered};

/// Rows that are encoded at once.
const ROWS_AT_ONCE: usize = 500;
/// Longest time for which a client may read an answer.
const MAX_READ_TIME: Duration = Duration::from_mins(1);
/// Media type of all answers.
const JSON: &str = "application/json";

const OPTIONS: &[QueryOption] = &[
    QueryOption {
        name: "offset",
        kind: "integer",
        description: "position of the first pending workload, starting from 0; 0 by default",
    },
    QueryOption {
        name: "limit",
        kind: "integer",
        description: "most pending workloads; 1000 by default, at most 100000",
    },
];
const SUMMARY: &str = "PendingWorkloadsSummary";

const fn pending_workloads(description: &'static str) -> SubresourceDescription {
    SubresourceDescription {
        name: "pendingworkloads",
        kind: SUMMARY,
        verbs: &["get"],
        options: OPTIONS,
        description,
    }
}

const OF_CLUSTER_QUEUE: SubresourceDescription =
    pending_workloads("Pending workloads of a ClusterQueue in order.");
const OF_LOCAL_QUEUE: SubresourceDescription =
    pending_workloads("Pending workloads of a LocalQueue in order.");

/// Description of the group.
pub static GROUP: GroupDescription = GroupDescription {
    name: names::GROUP,
    versions: names::VERSIONS,
    resources: &[
        ResourceDescription {
            plural: "clusterqueues",
            singular: "clusterqueue",
            kind: SUMMARY,
            short_names: &[],
            namespaced: false,
            verbs: &[],
            options: &[],
            description: "ClusterQueues with pending workloads.",
            subresources: &[OF_CLUSTER_QUEUE],
        },
        ResourceDescription {
            plural: "localqueues",
            singular: "localqueue",
            kind: SUMMARY,
            short_names: &[],
            namespaced: true,
            verbs: &[],
            options: &[],
            description: "LocalQueues with pending workloads.",
            subresources: &[OF_LOCAL_QUEUE],
        },
    ],
    schemas,
    schema_prefix: "io.x-k8s.kueue.visibility",
};

fn schemas(_: &str) -> Vec<(&'static str, Value)> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number =
        |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    let owner = json!({"type": "object", "description": "An owner of the Workload.", "properties": {
        "apiVersion": text("Group and version of the owner."), "kind": text("Kind of the owner."),
        "name": text("Name of the owner."), "uid": text("UID of the owner."),
    }});
    let metadata = json!({"type": "object", "description": "Part of the metadata of the Workload.", "properties": {
        "name": text("Name of the Workload."), "namespace": text("Namespace of the Workload."),
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "When the Workload was created."},
        "ownerReferences": {"type": "array", "items": owner, "description": "Owners of the Workload."},
    }});
    let workload = json!({
        "type": "object",
        "description": "A pending workload with its positions.",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": metadata,
            "priority": number("Priority of the Workload."),
            "localQueueName": text("LocalQueue of the Workload."),
            "positionInClusterQueue": number("Position in the ClusterQueue, starting from 0."),
            "positionInLocalQueue": number("Position in the LocalQueue, starting from 0."),
        },
    });
    let summary = json!({
        "type": "object",
        "description": "Pending workloads of a queue in order.",
        "required": ["items"],
        "properties": {
            "apiVersion": text("Group and version of this object."), "kind": text("Kind of this object."),
            "metadata": {"type": "object", "description": "Empty."},
            "items": {"type": "array", "items": {"$ref": "schema:PendingWorkload"}, "description": "The workloads."},
        },
    });
    vec![("PendingWorkload", workload), (SUMMARY, summary)]
}

/// Answers from the published snapshot.
pub struct VisibilityGroup {
    published: Arc<ArcSwap<Snapshot>>,
}

impl VisibilityGroup {
    /// Returns a group that answers from the published snapshot.
    pub const fn new(published: Arc<ArcSwap<Snapshot>>) -> Self {
        Self { published }
    }
}

impl ApiGroup for VisibilityGroup {
    fn description(&self) -> &'static GroupDescription {
        &GROUP
    }

    fn answer(&self, request: ResourceRequest) -> BoxFuture<'static, Response> {
        let snapshot = self.published.load_full();
        Box::pin(async move { answer(snapshot, &request) })
    }
}

fn answer(snapshot: Arc<Snapshot>, request: &ResourceRequest) -> Response {
    let include = IncludeObject::parse(request.option("includeObject").as_deref());
    let rows = PageRequest::parse(request.option("offset").as_deref(), request.option("limit").as_deref());
    let (include, rows) = match (include, rows) {
        (Ok(include), Ok(rows)) => (include, rows),
        (Err(error), _) | (_, Err(error)) => return status::bad_request(&error),
    };
    let path = &request.target;
    let (queue, word) = match path.resource {
        "localqueues" => (QueueId::Local(ObjectKey::new(&path.namespace, &path.name)), "localqueue"),
        _ => (QueueId::Cluster(Arc::from(path.name.as_str())), "clusterqueue"),
    };
    match PendingPage::of(snapshot, &queue, rows) {
        Ok(page) => send(page, Frame::of(path, request.format, include)),
        Err(Unanswered::NotFound) => status::not_found(path, word),
        Err(Unanswered::NotSynced) => status::unavailable("the first lists of objects are not complete yet"),
    }
}

/// The object around the rows, and the encoding of a row.
#[derive(Clone, Debug)]
struct Frame {
    /// The object without its last field and closing brace.
    fields: Value,
    /// Name of the last field, the list of rows.
    list: &'static str,
    /// Contents of the column `object`, for tables; `None` for objects.
    include: Option<IncludeObject>,
}

impl Frame {
    fn of(path: &ResourcePath, format: Format, include: IncludeObject) -> Self {
        match format {
            Format::Json => Self {
                fields: json!({
                    "kind": SUMMARY, "apiVersion": format!("{}/{}", path.group, path.version), "metadata": {},
                }),
                list: "items",
                include: None,
            },
            Format::Table => Self {
                fields: json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
                    "columnDefinitions": column_definitions(PendingWorkload::COLUMNS),
                }),
                list: "rows",
                include: Some(include),
            },
        }
    }

    fn begin(&self) -> String {
        let mut text = self.fields.to_string();
        text.pop();
        text.extend([",\"", self.list, "\":["]);
        text
    }

    /// Writes rows, separated by commas. A later part begins with a comma.
    fn write(&self, text: &mut String, rows: &[PendingWorkload], is_first: bool) {
        for (index, row) in rows.iter().enumerate() {
            if !is_first || index > 0 {
                text.push(',');
            }
            // Both have only string keys, so neither can fail.
            let row = match self.include {
                // No cell is an age, so the time does not matter.
                Some(include) => serde_json::to_string(&row.to_row(include, Timestamp::UNIX_EPOCH)),
                None => serde_json::to_string(row),
            };
            text.push_str(&row.unwrap_or_default());
        }
    }
}

/// Sends a small page at once, a large one in parts.
fn send(mut page: PendingPage, frame: Frame) -> Response {
    let mut text = frame.begin();
    frame.write(&mut text, &page.next_rows(ROWS_AT_ONCE), true);
    if page.rows_left() == 0 {
        text.push_str("]}");
        return ([(CONTENT_TYPE, JSON)], text).into_response();
    }
    let until = Instant::now() + MAX_READ_TIME;
    let parts = stream::unfold(Some((page, frame, Some(text))), move |state| async move {
        let (mut page, frame, begun) = state?;
        if Instant::now() > until {
            // The answer ends with an error and without its end, so that no client takes a part for the whole.
            return Some((Err(std::io::Error::from(std::io::ErrorKind::TimedOut)), None));
        }
        let mut text = begun.unwrap_or_default();
        frame.write(&mut text, &page.next_rows(ROWS_AT_ONCE), false);
        let is_last = page.rows_left() == 0;
        if is_last {
            text.push_str("]}");
        }
        let next = (!is_last).then_some((page, frame, None));
        Some((Ok(Bytes::from(text)), next))
    });
    ([(CONTENT_TYPE, JSON)], Body::from_stream(parts)).into_response()
}
