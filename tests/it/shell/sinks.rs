//! Two API servers followed by one process: what comes from each reaches its own sink, and no other.
#![expect(clippy::disallowed_methods, reason = "the test runs both executors")]

use crate::fixtures::scripted_client::{RecordedRequests, executor, scripted_client, write};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::kube::sink::{DeltaSink, SinkClosed};
use sluice::kube::task_queue::Task;
use sluice::kube::watch::{Selection, WatchSettings, run_watch};
use sluice::kube::watch_status::WatchStatuses;
use sluice::reconciler::{Delta, Verb, WriteOutcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// A sink that says from which server a delta comes.
struct Named {
    server: &'static str,
    deltas: mpsc::Sender<(&'static str, Delta)>,
}

impl DeltaSink for Named {
    async fn deliver(&self, delta: Delta) -> Result<(), SinkClosed> {
        self.deltas.send((self.server, delta)).await.map_err(|_| SinkClosed)
    }
}

/// A server of two cohorts. All servers have the same names, with other UIDs. Watches get no response.
struct Server {
    client: kube::Client,
    requests: RecordedRequests,
    /// Notified when the list is read and the watch begins.
    watched: Arc<Notify>,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let watched = Arc::new(Notify::new());
        let notified = Arc::clone(&watched);
        let (client, requests) = scripted_client(move |_, uri| {
            if uri.contains("watch=true") {
                notified.notify_one();
                return (0, json!(null));
            }
            let cohort = |cohort: &str| {
                let uid = format!("{name} {cohort}");
                json!({"metadata": {"name": cohort, "uid": uid, "resourceVersion": "5"}, "spec": {}})
            };
            let list = json!({"kind": "CohortList", "apiVersion": "kueue.x-k8s.io/v1beta2",
                "metadata": {"resourceVersion": "7"}, "items": [cohort("a"), cohort("b")]});
            (200, list)
        });
        Self { client, requests, watched }
    }

    /// Returns the requests that were sent to it.
    fn uris(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(_, uri, ..)| uri.clone()).collect()
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The sink of one server is full until the other list is complete: only its own watch waits for it.
#[tokio::test]
async fn each_object_reaches_the_sink_of_its_server() {
    let kind = Kind::Cohort;
    let (local, remote) = (Server::start("local"), Server::start("remote"));
    let statuses = [(); 2].map(|()| WatchStatuses::new(&[kind]));
    let [local_statuses, remote_statuses] = statuses.clone();
    let (local_sink, mut local_deltas) = mpsc::channel::<Delta>(1);
    let (deltas, mut remote_deltas) = mpsc::channel(1);
    let labels = Some("example.com/origin=here".to_owned());
    let settings = WatchSettings::default();
    let watches = async {
        let all = Selection { kind, labels: None };
        let selected = Selection { kind, labels };
        let remote_sink = Named { server: "remote", deltas };
        tokio::join!(
            run_watch(local.client.clone(), all, settings, local_statuses, local_sink),
            run_watch(remote.client.clone(), selected, settings, remote_statuses, remote_sink),
        )
    };
    let listen = async {
        let (mut local_uids, mut remote_uids) = (Vec::new(), Vec::new());
        loop {
            match remote_deltas.recv().await.unwrap() {
                ("remote", Delta::Applied { object, .. }) => remote_uids.push(uid(&object)),
                ("remote", Delta::Synced { .. }) => break,
                ("remote", Delta::Restarted { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        remote.watched.notified().await;
        let unsynced = statuses.each_ref().map(WatchStatuses::unsynced);
        assert_eq!(unsynced, [vec!["cohorts"], vec![]], "a full sink holds up its own watch");
        loop {
            match local_deltas.recv().await.unwrap() {
                Delta::Applied { object, .. } => local_uids.push(uid(&object)),
                Delta::Synced { .. } => break,
                Delta::Restarted { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        local.watched.notified().await;
        (local_uids, remote_uids)
    };
    let (local_uids, remote_uids) = tokio::select! {
        _ = watches => panic!("a watch ended"),
        uids = tokio::time::timeout(Duration::from_secs(30), listen) => uids.expect("two complete lists"),
    };
    assert_eq!(local_uids, ["local a", "local b"]);
    assert_eq!(remote_uids, ["remote a", "remote b"]);
    let (local, remote) = (local.uris(), remote.uris());
    // The list and the watch.
    assert!(local.len() == 2 && local.iter().all(|uri| !uri.contains("labelSelector")), "{local:?}");
    let selector = "labelSelector=example.com%2Forigin%3Dhere";
    assert!(remote.len() == 2 && remote.iter().all(|uri| uri.contains(selector)), "{remote:?}");
}

/// Both executors write an object of the same name with the same number.
#[tokio::test]
async fn each_result_reaches_the_sink_of_its_server() {
    let answering = |server: &'static str| {
        let (client, _) =
            scripted_client(move |_, _| (200, json!({"metadata": {"name": "w", "uid": server}})));
        let (tasks, queue) = mpsc::unbounded_channel();
        tasks.send(Task::Write(write(1, Verb::Merge, None))).unwrap();
        (client, queue)
    };
    let (local_sink, mut local_deltas) = mpsc::channel::<Delta>(4);
    let (deltas, mut remote_deltas) = mpsc::channel(4);
    let (client, queue) = answering("local");
    let local = tokio::spawn(executor(client, true, local_sink).run(queue));
    let (client, queue) = answering("remote");
    let remote = tokio::spawn(executor(client, true, Named { server: "remote", deltas }).run(queue));
    // Both end, because no sender of tasks is left, and drop their sinks.
    local.await.unwrap();
    remote.await.unwrap();
    let landed = |delta: Delta| match delta {
        Delta::Written(result) => match result.outcome {
            WriteOutcome::Done(object) => uid(&object),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(local_deltas.recv().await.map(landed).as_deref(), Some("local"));
    let (server, delta) = remote_deltas.recv().await.unwrap();
    assert_eq!((server, landed(delta).as_str()), ("remote", "remote"));
    assert!(local_deltas.recv().await.is_none() && remote_deltas.recv().await.is_none(), "one result each");
}

/// The process ends a watch by dropping the receiver of its sink.
#[tokio::test]
async fn watch_ends_with_its_sink() {
    let server = Server::start("gone");
    let (sink, deltas) = mpsc::channel::<Delta>(1);
    drop(deltas);
    let selection = Selection { kind: Kind::Cohort, labels: None };
    let statuses = WatchStatuses::new(&[Kind::Cohort]);
    let watch = run_watch(server.client.clone(), selection, WatchSettings::default(), statuses, sink);
    assert!(tokio::time::timeout(Duration::from_secs(10), watch).await.is_ok());
}
