//! The executor against a scripted API server: which requests are sent, and which deltas are fed back in which order.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use crate::fixtures::scripted_client::{executor, scripted_client, write};
use http::Method;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::api::v1beta2::{RequeueState, WorkloadStatus};
use sluice::cache::Kind;
use sluice::frameworks::JobKind;
use sluice::kube::task_queue::Task;
use sluice::reconciler::{Delta, Verb, Write, WriteClass, WriteOutcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "X", "code": code})
}

async fn run_writes(
    script: impl Fn(&Method, &str) -> (u16, Value) + Clone + Send + Sync + 'static,
    writes: Vec<Write>,
    open: bool,
) -> (Vec<Delta>, Vec<(Method, String, String, Value)>) {
    let (client, seen) = scripted_client(script);
    let (deltas, mut received) = mpsc::channel::<Delta>(64);
    let (tasks, queue) = mpsc::unbounded_channel();
    let running = tokio::spawn(executor(client, open, deltas).run(queue));
    let number = writes.len();
    for write in writes {
        tasks.send(Task::Write(write)).unwrap();
    }
    let mut collected = Vec::new();
    let mut results = 0;
    while results < number {
        let Ok(Some(delta)) = tokio::time::timeout(Duration::from_secs(2), received.recv()).await else {
            break;
        };
        results += usize::from(matches!(delta, Delta::Written(_)));
        collected.push(delta);
    }
    drop(tasks);
    running.await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (collected, seen)
}

fn outcome(delta: &Delta) -> &WriteOutcome {
    match delta {
        Delta::Written(result) => &result.outcome,
        other => panic!("{other:?} is no result"),
    }
}

#[tokio::test]
async fn execute_write_cases() {
    let verbs = [
        (Verb::Create, None, Method::POST, "?fieldManager=kueue-admission", "application/json"),
        (
            Verb::Apply,
            Some("status"),
            Method::PATCH,
            "/w/status?fieldManager=kueue-admission&force=true",
            "application/apply-patch+yaml",
        ),
        (Verb::Merge, None, Method::PATCH, "/w?fieldManager=kueue-admission", "application/merge-patch+json"),
        (Verb::Delete, None, Method::DELETE, "/w", "application/json"),
    ];
    for (verb, subresource, method, path, content) in verbs {
        let answer = json!({"metadata": {"name": "w", "managedFields": []}});
        let requeued = RequeueState { count: Some(2), ..RequeueState::default() };
        let status = WorkloadStatus { requeue_state: Some(requeued), ..WorkloadStatus::default() };
        let status = subresource.map(|_| Arc::new(status));
        let write = Write { status: status.clone(), ..write(1, verb, subresource) };
        let (deltas, seen) = run_writes(move |_, _| (200, answer.clone()), vec![write], true).await;
        let WriteOutcome::Done(object) = outcome(&deltas[0]) else { panic!("{deltas:?}") };
        assert_eq!(*object, json!({"metadata": {"name": "w"}}), "managed fields are removed");
        let path = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads{path}");
        let mut body = json!({"metadata": {"resourceVersion": "7"}});
        if status.is_some() {
            body["status"] = json!({"requeueState": {"count": 2}});
        }
        assert_eq!(seen, vec![(method, path, content.to_owned(), body)]);
    }
}

/// The server drops fields that an installed definition lacks: a job would be started without its gates and node labels.
#[tokio::test]
async fn patches_of_jobs_are_refused_with_unknown_fields() {
    for (kind, subresource, strict) in [
        (Kind::of_job(JobKind::BATCH_JOB), None, true),
        (Kind::of_job(JobKind::BATCH_JOB), Some("status"), false),
        (Kind::Workload, None, false),
    ] {
        let write = Write { kind, ..write(1, Verb::JsonPatch, subresource) };
        let (_, seen) = run_writes(|_, _| (200, json!({"metadata": {"name": "w"}})), vec![write], true).await;
        let (_, path, ..) = &seen[0];
        assert_eq!(path.ends_with("?fieldManager=kueue-admission&fieldValidation=Strict"), strict, "{path}");
    }
}

#[tokio::test]
async fn metadata_only_response_skips_spec_and_status() {
    let answer = json!({"metadata": {"name": "w", "resourceVersion": "8"}, "spec": {}, "status": {}});
    let write = Write { response_metadata_only: true, ..write(1, Verb::Apply, Some("status")) };
    let (deltas, _) = run_writes(move |_, _| (200, answer.clone()), vec![write], true).await;
    let WriteOutcome::Done(object) = outcome(&deltas[0]) else { panic!("{deltas:?}") };
    assert_eq!(*object, json!({"metadata": {"name": "w", "resourceVersion": "8"}}));
}

#[tokio::test]
async fn conflict_returns_newest_object_first() {
    let script = |method: &Method, _: &str| match *method {
        Method::GET => (200, json!({"metadata": {"name": "w", "resourceVersion": "9"}})),
        _ => (409, failure(409)),
    };
    let (deltas, _) = run_writes(script, vec![write(1, Verb::Merge, None)], true).await;
    assert!(
        matches!(&deltas[0], Delta::Read { object: Some(object), .. } if object["metadata"]["resourceVersion"] == "9")
    );
    assert!(matches!(outcome(&deltas[1]), WriteOutcome::Conflict));
}

/// A patch that does not apply was made for another version, so it is decided again; an invalid result is not retried.
#[tokio::test]
async fn json_patch_cases() {
    let operations = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/spec/suspend", "value": false},
    ]);
    let does_not_apply = "the server rejected our request due to an error in our request";
    for (code, message, conflict) in
        [(409, "modified", true), (422, does_not_apply, true), (422, "JobSet \"x\" is invalid", false)]
    {
        let mut refusal = failure(code);
        refusal["message"] = json!(message);
        let script = move |method: &Method, _: &str| match *method {
            Method::GET => (200, json!({"metadata": {"name": "w", "resourceVersion": "9"}})),
            _ => (code, refusal.clone()),
        };
        let write = Write { body: operations.clone(), ..write(1, Verb::JsonPatch, None) };
        let (deltas, seen) = run_writes(script, vec![write], true).await;
        assert_eq!((&*seen[0].2, &seen[0].3), ("application/json-patch+json", &operations));
        assert_eq!(matches!(deltas[0], Delta::Read { .. }), conflict, "{message}");
        let result = outcome(deltas.last().unwrap());
        assert_eq!(matches!(result, WriteOutcome::Conflict), conflict, "{message}: {result:?}");
    }
}

#[tokio::test]
async fn conflict_with_deleted_object_reports_deletion() {
    let script = |method: &Method, _: &str| match *method {
        Method::GET => (404, failure(404)),
        _ => (409, failure(409)),
    };
    let (deltas, _) = run_writes(script, vec![write(1, Verb::Merge, None)], true).await;
    assert!(matches!(&deltas[0], Delta::Read { object: None, .. }));
    assert!(matches!(outcome(&deltas[1]), WriteOutcome::Conflict));
}

#[tokio::test]
async fn write_outcome_cases() {
    for (code, expected) in [(404, "not found"), (403, "rejected"), (422, "rejected"), (400, "rejected")] {
        let (deltas, seen) =
            run_writes(move |_, _| (code, failure(code)), vec![write(1, Verb::Apply, None)], true).await;
        let actual = match outcome(&deltas[0]) {
            WriteOutcome::NotFound => "not found",
            WriteOutcome::Rejected { .. } => "rejected",
            other => panic!("{code}: {other:?}"),
        };
        assert_eq!((actual, seen.len()), (expected, 1), "{code}");
    }
    let undeclared = "failed to create typed patch object (ns/w; kueue.x-k8s.io/v1beta2, Kind=Workload): .status.x: \
                      field not declared in schema";
    for message in ["etcdserver: request is too large", undeclared] {
        let mut refusal = failure(500);
        refusal["message"] = json!(message);
        let script = move |_: &Method, _: &str| (500, refusal.clone());
        let (deltas, seen) = run_writes(script, vec![write(1, Verb::Apply, Some("status"))], true).await;
        assert!(matches!(outcome(&deltas[0]), WriteOutcome::Rejected { code: 500, .. }), "{deltas:?}");
        assert_eq!(seen.len(), 1, "{message}");
    }
    // Code 0: no response at all.
    for code in [0, 429, 500, 503, 504] {
        let script = move |method: &Method, _: &str| match *method {
            Method::GET => (200, json!({"metadata": {"name": "w"}})),
            _ => (code, failure(code)),
        };
        let (deltas, seen) = run_writes(script, vec![write(1, Verb::Apply, None)], true).await;
        assert!(matches!(&deltas[0], Delta::Read { .. }), "{code}");
        assert!(matches!(outcome(&deltas[1]), WriteOutcome::Unavailable { .. }), "{code}");
        assert_eq!(seen.len(), 2, "{code}: the write is not sent twice");
    }
}

#[tokio::test]
async fn closed_fence_blocks_writes() {
    let (deltas, seen) = run_writes(|_, _| (200, json!({})), vec![write(1, Verb::Apply, None)], false).await;
    assert!(seen.is_empty());
    assert!(
        matches!(outcome(&deltas[0]), WriteOutcome::Unavailable { .. }),
        "it is retried later: {deltas:?}"
    );
}

/// While a server answers slowly and a namespace has hundreds of writes, those of another namespace wait for a few only,
/// and the admission for least.
#[tokio::test]
async fn saturated_server_admits_first() {
    let named = |id: u64, namespace: &str, class: WriteClass| {
        let key = ObjectKey::new(namespace, &format!("w{id}"));
        Write { key, class, ..write(id, Verb::Merge, None) }
    };
    let noise = (0..400).map(|id| named(id, "noisy", WriteClass::Other));
    let admissions = (400..500).map(|id| named(id, "noisy", WriteClass::Quota));
    let quiet = [
        named(1000, "quiet", WriteClass::Other),
        named(1001, "quiet", WriteClass::Explanation),
        named(1002, "quiet", WriteClass::Quota),
    ];
    let writes = noise.chain(admissions).chain(quiet).collect();
    let (deltas, seen) = run_writes(|_, _| (200, json!({})), writes, true).await;
    assert_eq!((deltas.len(), seen.len()), (503, 503), "each is sent once");
    let started = |id: u64| seen.iter().position(|(_, path, ..)| path.contains(&format!("/w{id}?"))).unwrap();
    // The first sixteen may be in flight before the rest is known.
    assert!(started(1002) < 16 + 8, "{}", started(1002));
    assert!(started(1000) < 16 + 16 && started(1001) < 16 + 16, "{} {}", started(1000), started(1001));
    assert!(started(0) < started(399), "writes of one namespace and class keep their order");
}

#[tokio::test]
async fn writes_of_one_object_keep_order() {
    let writes = (1..=20).map(|id| write(id, Verb::Merge, None)).collect();
    let (deltas, _) = run_writes(|_, _| (200, json!({})), writes, true).await;
    let ids: Vec<u64> =
        deltas.iter().map(|delta| if let Delta::Written(result) = delta { result.id } else { 0 }).collect();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>());
}
