//! Watches against a scripted API server.

use crate::shell_executor::scripted_client;
use serde_json::json;
use sluice::kube::watch::{WatchSettings, run_watch};
use sluice::kube::watch_status::WatchStatuses;
use sluice::state::{Delta, Kind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// The watcher says that a list begins before it has asked for it: that is no answer, so the pauses grow, and the absence
/// is told once.
#[tokio::test]
async fn unserved_kind_stays_absent_while_polled() {
    let kind = Kind::ProvisioningRequest;
    let board = WatchStatuses::new(&[kind]);
    let absent = Arc::new(Mutex::new(Vec::new()));
    let (health, log) = (board.clone(), Arc::clone(&absent));
    let (client, _) = scripted_client(move |_, _| {
        log.lock().unwrap().extend(health.iter().map(|(_, health)| health.not_served()));
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
            "reason": "NotFound", "code": 404});
        (404, status)
    });
    let settings = WatchSettings { min_backoff: Duration::from_millis(1), ..WatchSettings::default() };
    let (deltas, mut received) = mpsc::channel(64);
    let listen = async {
        while absent.lock().unwrap().len() < 5 {
            received.recv().await.unwrap();
        }
    };
    tokio::select! {
        () = run_watch(client, kind, settings, board, deltas) => panic!("it ended"),
        () = listen => {}
    }
    let seen: Vec<bool> = absent.lock().unwrap().iter().copied().take(5).collect();
    assert_eq!(seen, [false, true, true, true, true], "whether it was absent when it was asked for");
}

/// An event that never comes is made up for by the next list, which lacks what is gone.
#[tokio::test]
async fn full_relist_recovers_lost_events() {
    let kind = Kind::Cohort;
    let lists = Arc::new(Mutex::new(0));
    let count = Arc::clone(&lists);
    let (client, _) = scripted_client(move |_, uri| {
        if uri.contains("watch=true") {
            // It never answers.
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
    let board = WatchStatuses::new(&[kind]);
    let listen = async {
        let mut told = Vec::new();
        while told.iter().filter(|what| **what == "synced").count() < 2 {
            told.push(match received.recv().await.unwrap() {
                Delta::Restarted { .. } => "restarted",
                Delta::Applied { .. } => "applied",
                Delta::Synced { .. } => "synced",
                other => panic!("{other:?}"),
            });
        }
        told
    };
    let told = tokio::select! {
        () = run_watch(client, kind, settings, board, deltas) => panic!("it ended"),
        told = tokio::time::timeout(Duration::from_secs(30), listen) => told.expect("one list alone"),
    };
    assert_eq!(told, ["restarted", "applied", "synced", "restarted", "synced"]);
}
