//! Ages and periods where the clock of this machine is not that of the manager.
#![expect(clippy::disallowed_methods, reason = "the program reads the clock, too")]

use crate::fixtures::people_server::PeopleServer;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const VIEWS: &str = "/apis/visibility.sluice.dev/v1alpha1";
const WORKLOAD: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/w";

fn ago(now: Timestamp, seconds: i64) -> String {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap().to_string()
}

fn source(now: Timestamp) -> Value {
    json!({"kind": "manager", "replica": "m-0", "role": "leader", "stateVersion": 1, "time": now.to_string()})
}

/// A manager whose clock shows `now`, which has decided 20 s ago, and a Workload that has been admitted for 40 s.
fn server(now: Timestamp) -> PeopleServer {
    let server = PeopleServer::start();
    server.put(VIEWS, json!({"resources": [{"name": "workloadviews/verdict"}]}));
    let manager = json!({"metadata": {"name": "m-0"}, "version": "v", "leads": true, "conditions": [],
        "leader": {"name": "m-0", "since": ago(now, 3_600)}, "decisions": {"last": ago(now, 20)}});
    let list = json!({"metadata": {}, "items": [manager], "source": source(now)});
    server.put(&format!("{VIEWS}/managerviews"), list);
    let row = json!({"metadata": {"namespace": "default", "name": "w"}, "state": "Admitted", "priority": 0, "clusterQueue": "cq", "localQueue": "main",
        "reason": "", "since": ago(now, 40), "source": source(now)});
    for path in ["w", "w/verdict"] {
        server.put(&format!("{VIEWS}/namespaces/default/workloadviews/{path}"), row.clone());
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": ago(now, 40)});
    let admission = json!({"clusterQueue": "cq", "podSetAssignments": []});
    let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {},
        "spec": {"queueName": "main", "active": true, "podSets": [{"name": "main", "count": 1}]},
        "status": {"admission": admission, "conditions": [condition("QuotaReserved"), condition("Admitted")]}});
    server.put(WORKLOAD, workload);
    let recorded = json!({"from": ago(now, 600), "until": now.to_string(), "replica": "m-0", "complete": true, "drift": 0});
    let report = json!({"by": "queue", "metadata": {}, "items": [], "sums": [], "recorded": recorded, "source": source(now)});
    for resource in ["clusterusagereports", "clusterusagerecords"] {
        server.put(&format!("{VIEWS}/{resource}"), report.clone());
    }
    server
}

#[test]
fn ages_and_periods_are_those_of_the_manager() {
    for minutes in [5, -5] {
        let now = Timestamp::now().checked_add(SignedDuration::from_mins(minutes)).unwrap();
        let server = server(now);
        for (line, says) in [
            ("status", "m-0 since 60m, decided 20s ago"),
            ("why w", "has been admitted in ClusterQueue cq for 40s"),
            ("tree job w", "ClusterQueue cq, 40s"),
            ("describe workload w", "40s   QuotaReserved"),
            ("usage --since 10m", "Recorded 10m of 10m (complete)."),
        ] {
            let outcome = server.run("sluice", line);
            assert_eq!(outcome.code, 0, "{minutes} {line}: {outcome:?}");
            assert!(outcome.out.contains(says), "{minutes} {line}: {outcome:?}");
        }
        server.requests();
        let outcome = server.run("sluice", "usage export --since 10m --until 1m");
        assert_eq!(
            (outcome.code, outcome.err.as_str()),
            (0, "Recorded 10m of 10m (complete).\n"),
            "{outcome:?}"
        );
        let asked = server.requests();
        assert!(asked.iter().any(|(_, path)| path.ends_with("&since=10m&until=1m")), "{asked:?}");
        // A minute ago by the manager's clock is the future by one that is behind.
        let minute_ago = ago(now, 60);
        for verb in ["usage", "usage export", "list preemption -A"] {
            server.run("sluice", &format!("{verb} --since {minute_ago}"));
            let time = minute_ago.replace(':', "%3A");
            let asked = server.requests();
            assert!(
                asked.iter().any(|(_, path)| path.contains(&format!("since={time}"))),
                "{verb}: {asked:?}"
            );
        }
    }
}

/// The clock is asked for only where an answer of the manager is wanted.
#[test]
fn objects_alone_are_shown_by_the_clock_of_this_machine() {
    let server = server(Timestamp::now().checked_add(SignedDuration::from_mins(5)).unwrap());
    let outcome = server.run("sluice", "tree job w --source cluster");
    assert!(outcome.code == 0 && !outcome.out.contains("ClusterQueue cq, 40s"), "{outcome:?}");
    let asked = server.requests();
    assert!(!asked.iter().any(|(_, path)| path.starts_with(VIEWS)), "{asked:?}");
}

#[test]
fn a_time_slightly_ahead_is_now() {
    // The leader's clock is 30 s ahead of that of the replica that answers, and of this machine's.
    let now = Timestamp::now();
    let server = server(now);
    let ahead = now.checked_add(SignedDuration::from_secs(30)).unwrap();
    let manager = json!({"metadata": {"name": "m-0"}, "version": "v", "leads": true, "conditions": [],
        "leader": {"name": "m-0", "since": ahead.to_string()}, "decisions": {"last": ahead.to_string()}});
    server.put(
        &format!("{VIEWS}/managerviews"),
        json!({"metadata": {}, "items": [manager], "source": source(now)}),
    );
    let outcome = server.run("sluice", "status");
    assert!(outcome.out.contains("m-0 since 0s, decided 0s ago"), "{outcome:?}");
}
