//! The objects of a simulation: listed page by page by a task, decoded by the thread of the simulation.
//!
//! Invariants: one page waits at most; what no decision reads, and may be secret, is dropped at once; beyond a bound of memory nothing
//! more is kept, and what a change adds counts before it is made.

use http::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::NoSimulation;
use crate::cache::Kind;
use crate::kube::client::{CallError, Caller, Content, all_path};
use crate::kube::list::with_type_meta;
use crate::server::bounded_work::WorkTime;
use crate::simulate::estimate::{is_finished, reduce_finished};
use crate::simulate::{Edit, Redaction};

/// Most memory of a simulation, in MiB.
pub(super) const MAX_MEBIBYTES: usize = 64;
/// Copies of the objects of which a simulation has room: as they were read, as they are stored, on their way to the core, and what
/// the core keeps of them.
const COPIES: usize = 4;
/// Memory of a value beside its text: of a field its name, its place in the index and its hash, too.
const VALUE_BYTES: usize = size_of::<Value>() + 48;
/// Objects of a page of a list.
const PAGE_SIZE: u32 = 500;
/// HTTP status for a kind that this process may not list.
const FORBIDDEN: u16 = 403;
/// HTTP status for a kind that is not installed.
const NOT_FOUND: u16 = 404;

/// What is read of finished Workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishedWorkloads {
    /// Nothing.
    Dropped,
    /// What an estimate reads of them: when they ran, and with which amounts.
    Reduced,
}

/// A part of what is read.
pub(super) enum Listed {
    /// Objects of a kind.
    Page(Kind, Vec<Box<RawValue>>),
    /// All objects have been read.
    End,
}

/// A page of a list.
#[derive(Deserialize)]
struct RawPage {
    #[serde(default)]
    metadata: RawMetadata,
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
struct RawMetadata {
    #[serde(default, rename = "continue")]
    token: String,
}

/// Lists the objects of these kinds. Ends early if nothing receives them any longer.
pub(super) async fn read_all(
    caller: &Caller,
    kinds: &[Kind],
    pages: mpsc::Sender<Listed>,
) -> Result<(), CallError> {
    for kind in kinds {
        let resource = kind.resource();
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE_SIZE}&continue={token}", all_path(&resource));
            let read = caller.call_as::<RawPage>(Method::GET, &path, Content::Json, None::<&Value>).await;
            let page = match read {
                Err(error) if is_absent(*kind, &error) => break,
                read => read?,
            };
            if pages.send(Listed::Page(*kind, page.items.unwrap_or_default())).await.is_err() {
                return Ok(());
            }
            token = page.metadata.token;
            if token.is_empty() {
                break;
            }
        }
    }
    // The work may have ended.
    let _ = pages.send(Listed::End).await;
    Ok(())
}

/// Returns whether a kind counts as one without objects: it is not installed, or of jobs that this process may not read, so that it does
/// not manage them either.
fn is_absent(kind: Kind, error: &CallError) -> bool {
    match error.code() {
        Some(NOT_FOUND) => true,
        Some(FORBIDDEN) => matches!(kind, Kind::Job(_)),
        _ => false,
    }
}

/// Receives all objects. Runs on the thread of the work.
pub(super) fn received_objects(
    mut received: mpsc::Receiver<Listed>,
    finished: FinishedWorkloads,
    time: WorkTime,
) -> Result<Vec<(Kind, Value)>, NoSimulation> {
    let (mut objects, mut bytes, mut redaction) = (Vec::new(), 0_usize, Redaction::default());
    loop {
        let (kind, page) = match received.blocking_recv() {
            Some(Listed::Page(kind, page)) => (kind, page),
            Some(Listed::End) => return Ok(objects),
            None => return Err(NoSimulation::Unread),
        };
        for raw in page {
            if !time.is_left() {
                return Err(NoSimulation::TooLong);
            }
            let object: Value =
                serde_json::from_str(raw.get()).map_err(|error| NoSimulation::Invalid(error.to_string()))?;
            let mut object = with_type_meta(object, &kind.resource());
            if kind == Kind::Workload && is_finished(&object) {
                match finished {
                    FinishedWorkloads::Dropped => continue,
                    FinishedWorkloads::Reduced => reduce_finished(&mut object),
                }
            }
            // What no decision reads, and may be secret, need not be in memory.
            redaction.redact(kind, &mut object);
            bytes = bytes.saturating_add(weight(&object));
            check_bytes(bytes)?;
            objects.push((kind, object));
        }
    }
}

/// Checks the memory of these objects with what changes add to them, of which the reader says the number.
pub(super) fn check_with_changes(objects: &[(Kind, Value)], edits: &[Edit]) -> Result<(), NoSimulation> {
    let stored = objects.iter().map(|(_, object)| weight(object));
    let added = edits.iter().filter_map(|edit| edit.added_node(objects));
    let added = added.map(|(node, count)| weight(&node).saturating_mul(count));
    check_bytes(stored.chain(added).fold(0, usize::saturating_add))
}

/// Checks the memory of objects of this weight with their copies.
const fn check_bytes(bytes: usize) -> Result<(), NoSimulation> {
    if bytes.saturating_mul(COPIES) > MAX_MEBIBYTES << 20 { Err(NoSimulation::TooLarge) } else { Ok(()) }
}

/// Returns about how many bytes a value takes in memory.
fn weight(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len().saturating_add(weight(field))).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner.saturating_add(VALUE_BYTES)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::server::bounded_work::WorkLimits;
    use serde_json::json;

    /// Receives these objects as a simulation does; `ends` says whether the list is whole.
    pub(crate) fn received(
        objects: &[(Kind, Value)],
        finished: FinishedWorkloads,
        ends: bool,
    ) -> Result<Vec<(Kind, Value)>, NoSimulation> {
        let (pages, received) = mpsc::channel(objects.len() + 1);
        for (kind, object) in objects {
            let raw = serde_json::value::to_raw_value(object).unwrap();
            pages.try_send(Listed::Page(*kind, vec![raw])).ok().unwrap();
        }
        if ends {
            pages.try_send(Listed::End).ok().unwrap();
        }
        drop(pages);
        received_objects(received, finished, WorkTime::of(&WorkLimits::default()))
    }

    #[test]
    fn large_clusters_and_lists_that_end_early_have_no_answer() {
        let large = json!({"metadata": {"name": "n", "labels": {"x": "y".repeat(17 << 20)}}});
        let found = received(&[(Kind::Namespace, large)], FinishedWorkloads::Dropped, true);
        assert_eq!(found, Err(NoSimulation::TooLarge));
        assert!(NoSimulation::TooLarge.to_string().contains("more than the 64 MiB"));
        let small = (Kind::Namespace, json!({"metadata": {"name": "n"}}));
        let found = received(std::slice::from_ref(&small), FinishedWorkloads::Dropped, false);
        assert_eq!(found, Err(NoSimulation::Unread));
        assert_eq!(received(&[small], FinishedWorkloads::Dropped, true).unwrap().len(), 1);
    }

    #[test]
    fn of_finished_workloads_nothing_is_kept_or_what_their_runs_say() {
        let condition = json!({"type": "Finished", "status": "True", "message": "done"});
        let workload = json!({"metadata": {"namespace": "ns", "name": "w", "labels": {"a": "b"}},
            "spec": {"queueName": "q", "priority": 1}, "status": {"conditions": [condition]}});
        let objects = [(Kind::Workload, workload)];
        assert_eq!(received(&objects, FinishedWorkloads::Dropped, true), Ok(Vec::new()));
        let reduced = json!({"metadata": {"namespace": "ns", "name": "w"}, "spec": {"queueName": "q"},
            "status": {"conditions": [{"type": "Finished", "status": "True"}]},
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"});
        assert_eq!(received(&objects, FinishedWorkloads::Reduced, true), Ok(vec![(Kind::Workload, reduced)]));
    }

    #[test]
    fn jobs_that_may_not_be_read_are_absent_and_queues_are_not() {
        let error = |code: u16| CallError::Status { code, reason: String::new(), message: String::new() };
        let job = Kind::from_group_kind("batch", "Job").unwrap();
        for (kind, code, absent) in [
            (job, 403, true),
            (job, 404, true),
            (job, 500, false),
            (Kind::LocalQueue, 403, false),
            (Kind::LocalQueue, 404, true),
        ] {
            assert_eq!(is_absent(kind, &error(code)), absent, "{kind:?} {code}");
        }
    }
}
