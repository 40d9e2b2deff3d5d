//! Watches against a scripted API server.

use crate::fixtures::scripted_client::scripted_client;
use serde_json::json;
use sluice::cache::Kind;
use sluice::kube::watch::{Selection, WatchSettings, run_watch};
use sluice::kube::watch_status::WatchStatuses;
use sluice::reconciler::Delta;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

fn all(kind: Kind) -> Selection {
    Selection { kind, labels: None }
}

/// The watcher reports the start of a list before it has sent the request: that is no response, so the backoff grows, and the
/// absence is reported once.
#[tokio::test]
async fn absent_kind_stays_absent_while_polled() {
    let kind = Kind::ProvisioningRequest;
    let statuses = WatchStatuses::new(&[kind]);
    let absent = Arc::new(Mutex::new(Vec::new()));
    let (health, log) = (statuses.clone(), Arc::clone(&absent));
    let (client, _) = scripted_client(move |_, _| {
        log.lock().unwrap().extend(health.iter().map(|(_, health)| health.not_served()));
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
            "reason": "NotFound", "code": 404});
        (404, status)
    });
    let settings = WatchSettings { min_backoff: Duration::from_millis(1), ..WatchSettings::default() };
    let (deltas, mut received) = mpsc::channel::<Delta>(64);
    let listen = async {
        while absent.lock().unwrap().len() < 5 {
            received.recv().await.unwrap();
        }
    };
    tokio::select! {
        () = run_watch(client, all(kind), settings, statuses, deltas) => panic!("the watch ended"),
        () = listen => {}
    }
    let seen: Vec<bool> = absent.lock().unwrap().iter().copied().take(5).collect();
    assert_eq!(seen, [false, true, true, true, true], "absence as seen at each request");
}

/// A cluster may keep older roles, or lack a kind: objects that are only passed by searches for a queue hold up no start.
#[tokio::test]
async fn unread_metadata_holds_up_no_start() {
    let kind = Kind::ReplicaSet;
    for (code, reason) in [(403, "Forbidden"), (404, "NotFound")] {
        let statuses = WatchStatuses::new(&[kind]);
        let (client, _) = scripted_client(move |_, _| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
                "reason": reason, "code": code});
            (code, status)
        });
        let settings = WatchSettings {
            min_backoff: Duration::from_millis(1),
            metadata_only: true,
            ..WatchSettings::default()
        };
        let (deltas, mut received) = mpsc::channel(64);
        let (mut seen, health) = (Vec::new(), statuses.clone());
        let listen = async {
            while seen.iter().filter(|delta| **delta == "list").count() < 4 {
                seen.push(match received.recv().await.unwrap() {
                    Delta::Restarted { .. } => "list",
                    Delta::Unread { .. } => "unread",
                    _ => "other",
                });
            }
        };
        let watched = run_watch(client, all(kind), settings, statuses, deltas);
        let in_time = tokio::time::timeout(Duration::from_secs(10), async {
            tokio::select! {
                () = watched => panic!("the watch ended"),
                () = listen => {}
            }
        });
        assert!(in_time.await.is_ok(), "{code}");
        let told: Vec<&str> = seen.into_iter().filter(|delta| *delta != "list").collect();
        assert_eq!(told, ["unread"], "{code}: told once");
        assert!(health.unsynced().is_empty(), "{code}");
        assert!(health.stale_for_reviews(Duration::ZERO).is_empty(), "{code}");
    }
}

/// The next list makes up for an event that never arrives: it lacks the deleted object.
#[tokio::test]
async fn full_relist_recovers_lost_events() {
    let kind = Kind::Cohort;
    let lists = Arc::new(Mutex::new(0));
    let count = Arc::clone(&lists);
    let (client, _) = scripted_client(move |_, uri| {
        if uri.contains("watch=true") {
            // The watch gets no response.
            return (0, json!(null));
        }
        let mut lists = count.lock().unwrap();
        *lists += 1;
        let item = json!({"metadata": {"name": "one", "uid": "1", "resourceVersion": "5"}, "spec": {}});
        let items = if *lists == 1 { vec![item] } else { Vec::new() };
        let list = json!({"kind": "CohortList", "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": {"resourceVersion": "7"}, "items": items});
        (200, list)
    });
    let settings = WatchSettings { relist_interval: Duration::from_millis(50), ..WatchSettings::default() };
    let (deltas, mut received) = mpsc::channel(64);
    let statuses = WatchStatuses::new(&[kind]);
    let listen = async {
        let mut names = Vec::new();
        while names.iter().filter(|name| **name == "synced").count() < 2 {
            names.push(match received.recv().await.unwrap() {
                Delta::Restarted { .. } => "restarted",
                Delta::Applied { .. } => "applied",
                Delta::Synced { .. } => "synced",
                other => panic!("{other:?}"),
            });
        }
        names
    };
    let names = tokio::select! {
        () = run_watch(client, all(kind), settings, statuses, deltas) => panic!("the watch ended"),
        names = tokio::time::timeout(Duration::from_secs(30), listen) => names.expect("a second list"),
    };
    assert_eq!(names, ["restarted", "applied", "synced", "restarted", "synced"]);
}

/// The API server ends streaming lists of a reader that does not keep up with changes: then the list is read in pages.
#[tokio::test]
async fn streaming_lists_that_end_early_are_replaced() {
    let kind = Kind::Cohort;
    let streams = Arc::new(Mutex::new(0));
    let count = Arc::clone(&streams);
    let item = json!({"metadata": {"name": "one", "uid": "1", "resourceVersion": "5"}, "spec": {}});
    let (client, _) = scripted_client(move |_, uri| {
        if uri.contains("sendInitialEvents=true") {
            *count.lock().unwrap() += 1;
            let mut object = item.clone();
            object["kind"] = json!("Cohort");
            object["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
            return (200, json!({"type": "ADDED", "object": object}));
        }
        if uri.contains("watch=true") {
            // The watch gets no response.
            return (0, json!(null));
        }
        let list = json!({"kind": "CohortList", "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": {"resourceVersion": "7"}, "items": [item]});
        (200, list)
    });
    let settings = WatchSettings { streaming_lists: true, ..WatchSettings::default() };
    let (deltas, mut received) = mpsc::channel(64);
    let statuses = WatchStatuses::new(&[kind]);
    let listen = async { while !matches!(received.recv().await.unwrap(), Delta::Synced { .. }) {} };
    tokio::select! {
        () = run_watch(client, all(kind), settings, statuses, deltas) => panic!("the watch ended"),
        listed = tokio::time::timeout(Duration::from_secs(10), listen) => listed.expect("a complete list"),
    }
    // The third has been asked for when its start is known, and is not read.
    assert_eq!(*streams.lock().unwrap(), 3);
}
