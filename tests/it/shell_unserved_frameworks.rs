//! Objects of kinds that are configured but not served get a warning, against a scripted API server.
#![expect(clippy::disallowed_methods, reason = "the test waits")]

use crate::shell_executor::scripted_client;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::frameworks::{JobKind, framework, frameworks};
use sluice::kube::client::Caller;
use sluice::kube::events::{EventSettings, EventTask};
use sluice::kube::lease::Fence;
use sluice::kube::unserved_frameworks::{FRAMEWORK_NOT_SERVED, UnservedFrameworks};
use sluice::kube::watch::WatchSettings;
use sluice::reconciler::{CoreSettings, Event, EventType};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

fn status(code: u16) -> (u16, Value) {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
    (code, status)
}

fn object(name: &str, queue: &str, owner: Option<(&str, &str)>) -> Value {
    let mut metadata = json!({"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
        "resourceVersion": "3", "labels": {"kueue.x-k8s.io/queue-name": queue}});
    if let Some((version, kind)) = owner {
        metadata["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    }
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
}

fn all_frameworks() -> CoreSettings {
    let frameworks = frameworks().map(|row| row.name.to_owned()).collect();
    let external_kinds = [("example.com".to_owned(), "Foo".to_owned())].into();
    CoreSettings { frameworks, external_kinds, ..CoreSettings::default() }
}

#[test]
fn kinds_are_those_configured_and_not_served() {
    assert!(CoreSettings::default().unserved_frameworks().is_empty());
    let expected: Vec<JobKind> = frameworks().filter(|row| !row.is_served()).map(JobKind::new).collect();
    assert_eq!(all_frameworks().unserved_frameworks(), expected);
}

/// Each object that names a queue is reported once over all lists, unless a served kind owns it. A kind without definition, a
/// kind that may not be read and a server that fails do not keep the others from being reported.
#[tokio::test(start_paused = true)]
async fn each_object_that_names_a_queue_is_reported_once() {
    // The server has objects of the first kind, and answers with errors for the other two.
    let names = [
        "trainer.kubeflow.org/trainjob",
        "sparkoperator.k8s.io/sparkapplication",
        "workload.codeflare.dev/appwrapper",
    ];
    let rows = names.map(|name| frameworks().find(|row| row.name == name).expect("a row"));
    let (set, gvk) = (rows[0], rows[0].gvk);
    let list_of_sets = format!("/apis/{}/{}?", gvk.api_version(), gvk.plural);
    let lists = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&lists);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (client, _) = scripted_client(move |method, uri| {
        log.lock().unwrap().push(format!("{method} {uri}"));
        if uri.contains("/sparkapplications") {
            return status(403);
        }
        if uri.contains("/appwrappers") {
            return status(500);
        }
        if uri.contains("watch=true") {
            // The version is too old, so that another list follows.
            return (200, json!({"type": "ERROR", "object": status(410).1}));
        }
        let mut deleted = object("deleted", "main", None);
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let items: Vec<Value> = match uri {
            _ if uri.starts_with(&list_of_sets) => {
                let late = (count.fetch_add(1, Ordering::Relaxed) > 1).then(|| object("late", "main", None));
                let of_external = object("of-external", "main", Some(("example.com/v1", "Foo")));
                let of_other = object("of-other", "main", Some(("apps/v1", "ReplicaSet")));
                let first =
                    [object("set", "main", None), object("empty", "", None), of_external, of_other, deleted];
                first.into_iter().chain(late).collect()
            }
            _ => return status(404),
        };
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "7"}, "items": items});
        (200, list)
    });
    let core = all_frameworks();
    let (events, mut received) = mpsc::unbounded_channel();
    let recheck = Arc::new(Notify::new());
    let kinds = rows.map(JobKind::new).to_vec();
    let watch = WatchSettings::default();
    let task = UnservedFrameworks { client, kinds, core, watch, events, recheck: Arc::clone(&recheck) };
    tokio::select! {
        () = task.run() => panic!("the watches ended"),
        () = tokio::time::sleep(Duration::from_mins(5)) => {}
    }
    assert!(lists.load(Ordering::Relaxed) > 10, "only {lists:?} lists");
    tokio::time::timeout(Duration::from_secs(1), recheck.notified()).await.expect("a check of permissions");
    for line in seen.lock().unwrap().iter() {
        let metadata_of_labelled =
            line.starts_with("GET /") && line.contains("labelSelector=kueue.x-k8s.io%2Fqueue-name");
        assert!(metadata_of_labelled, "{line}");
    }
    let mut reported = Vec::new();
    while let Ok(event) = received.try_recv() {
        assert!(event.is_warning() && event.once && event.reason == FRAMEWORK_NOT_SERVED, "{event:?}");
        reported.push((event.kind.resource().kind, event.key.to_string(), event.uid, event.note));
    }
    reported.sort();
    let names: Vec<(&str, &str, &str)> =
        reported.iter().map(|(kind, key, uid, _)| (*kind, key.as_str(), uid.as_str())).collect();
    let mut expected = vec![
        (gvk.kind, "ns/late", "uid-late"),
        (gvk.kind, "ns/of-other", "uid-of-other"),
        (gvk.kind, "ns/set", "uid-set"),
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let (_, _, _, note) = reported.iter().find(|report| report.0 == gvk.kind).unwrap();
    let name = set.name;
    for part in [gvk.kind, name, "without quota", "batch/v1 Job", "kueue.x-k8s.io/queue-name"] {
        assert!(note.contains(part), "{part} is not in: {note}");
    }
}

/// An event that is written once has the same name whenever it is sent, so a later leader's is a conflict, which is no loss.
#[tokio::test(start_paused = true)]
async fn later_leader_repeats_no_event() {
    let stored = Arc::new(Mutex::new(Vec::<String>::new()));
    let refused = Arc::new(AtomicU64::new(0));
    let dropped = Arc::new(AtomicU64::new(0));
    let kind = Kind::Job(JobKind::new(framework("jobset.x-k8s.io", "JobSet").unwrap()));
    let event = |uid: &str, once: bool| Event {
        kind,
        key: ObjectKey::new("ns", "set"),
        uid: uid.to_owned(),
        event_type: EventType::Warning,
        reason: "R".to_owned(),
        note: "n".to_owned(),
        once,
    };
    for _ in 0..2 {
        let (names, conflicts) = (Arc::clone(&stored), Arc::clone(&refused));
        let (client, _) = crate::shell_executor::scripted_client_with_body(move |method, _, body| {
            assert_eq!(method, http::Method::POST);
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            let mut names = names.lock().unwrap();
            if names.contains(&name) {
                conflicts.fetch_add(1, Ordering::Relaxed);
                return status(409);
            }
            names.push(name);
            (201, body.clone())
        });
        let fence = Fence::default();
        fence.open_forever();
        let lost = Arc::clone(&dropped);
        let task = EventTask {
            caller: Caller::new(client, Duration::from_secs(1)),
            settings: EventSettings {
                rate: 100.0,
                burst: 10.0,
                queue_capacity: 10,
                max_age: Duration::from_mins(5),
                aggregation_window: Duration::from_mins(5),
                controller: "c".to_owned(),
                instance: "i".to_owned(),
            },
            fence,
            under_load: Arc::default(),
            on_dropped: Arc::new(move |_, number| {
                lost.fetch_add(number, Ordering::Relaxed);
            }),
            on_queued: Arc::new(|_| {}),
        };
        let (sender, events) = mpsc::unbounded_channel();
        for event in [event("a", true), event("b", true), event("a", false)] {
            sender.send(event).unwrap();
        }
        tokio::select! {
            () = task.run(events, std::future::pending()) => panic!("the task ended"),
            () = tokio::time::sleep(Duration::from_secs(30)) => {}
        }
        drop(sender);
    }
    let names = stored.lock().unwrap();
    assert_eq!(names.len(), 4, "two events that are written once, and one for each leader: {names:?}");
    assert_eq!((refused.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed)), (2, 0));
}
