//! Rights that are missing, from the start or later, are named until they are granted.
#![expect(clippy::disallowed_methods, reason = "the other side of the connection runs and waits too")]

use super::shell_executor::reading_client;
use serde_json::{Value, json};
use sluice::kube::access::{Asking, Missing, Right, Uses, check, needed};
use sluice::kube::board::WatchBoard;
use sluice::kube::certificates::{CertificateSettings, Mode};
use sluice::kube::client::Caller;
use sluice::lifecycle::certificates::Settings as Rotation;
use sluice::state::Kind;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

fn right(verb: &'static str, resource: &str) -> Right {
    Right {
        namespace: Some("here".to_owned()),
        group: "batch".to_owned(),
        resource: resource.to_owned(),
        name: None,
        verb,
        for_reviews: false,
        only_with: None,
    }
}

/// What the scripted server grants, as verb and resource, and how it answers.
#[derive(Default)]
struct Server {
    granted: Vec<(&'static str, &'static str)>,
    /// It lists its rules.
    lists: bool,
    /// It fails.
    down: bool,
    /// Questions about one right.
    single: u32,
    /// Questions about all rules.
    whole: u32,
    /// The last question about one right.
    last: Value,
}

type Script = Arc<Mutex<Server>>;

fn start(server: &Script, rights: Vec<Right>) -> (Arc<Missing>, Arc<Notify>, tokio::task::JoinHandle<()>) {
    let script = Arc::clone(server);
    let (client, _) = reading_client(move |_, uri, body| {
        let mut server = script.lock().unwrap();
        if server.down {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "X", "code": 503});
            return (503, status);
        }
        if uri.ends_with("selfsubjectrulesreviews") {
            server.whole += 1;
            let here = body["spec"]["namespace"] == "here" && server.lists;
            let rule = |(verb, resource): &(&str, &str)| json!({"verbs": [verb], "apiGroups": ["batch"], "resources": [resource]});
            let rules: Vec<Value> = server.granted.iter().filter(|_| here).map(rule).collect();
            return (201, json!({"status": {"resourceRules": rules, "incomplete": !here}}));
        }
        assert!(uri.ends_with("selfsubjectaccessreviews"), "{uri}");
        server.single += 1;
        server.last = body["spec"]["resourceAttributes"].clone();
        let text = |field: &str| server.last[field].as_str().unwrap_or_default().to_owned();
        let resource = format!("{}/{}", text("resource"), text("subresource"));
        let resource = resource.trim_end_matches('/');
        let allowed = server.granted.iter().any(|(v, r)| *v == text("verb") && *r == resource);
        (201, json!({"status": {"allowed": allowed}}))
    });
    let (missing, suspicion) = (Arc::new(Missing::default()), Arc::new(Notify::new()));
    let asking = Asking {
        caller: Caller::new(client, Duration::from_secs(5)),
        rights,
        board: WatchBoard::new(&[]),
        missing: Arc::clone(&missing),
        suspicion: Arc::clone(&suspicion),
    };
    (missing, suspicion, tokio::spawn(check(asking)))
}

/// Questions so far, about one right and about all rules.
fn asked(server: &Script) -> (u32, u32) {
    let server = server.lock().unwrap();
    (server.single, server.whole)
}

fn words(missing: &Missing) -> Vec<String> {
    missing.list().iter().map(ToString::to_string).collect()
}

const STATUS: &str = "patch jobs/status of batch in namespace here";

async fn until(missing: &Missing, wanted: &[&str]) -> Duration {
    let began = Instant::now();
    while words(missing) != wanted {
        assert!(began.elapsed() < Duration::from_mins(1), "{:?} after a minute", words(missing));
        sleep(Duration::from_millis(100)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn rights_that_go_and_come_back_are_seen_within_a_minute() {
    for lists in [true, false] {
        let granted = vec![("list", "jobs"), ("get", "jobs")];
        let server = Arc::new(Mutex::new(Server { granted, lists, ..Server::default() }));
        let rights = vec![right("list", "jobs"), right("patch", "jobs/status"), right("get", "jobs")];
        let (missing, _, task) = start(&server, rights);
        until(&missing, &[STATUS]).await;
        let wanted = json!({"namespace": "here", "group": "batch", "resource": "jobs", "subresource": "status",
            "name": null, "verb": "patch"});
        if lists {
            assert_eq!(server.lock().unwrap().last, wanted);
        }
        server.lock().unwrap().granted.push(("patch", "jobs/status"));
        until(&missing, &[]).await;
        // All is well for an hour, and then one goes.
        // Between two rounds of questions.
        sleep(Duration::from_millis(37)).await;
        let before = asked(&server);
        sleep(Duration::from_hours(1)).await;
        let after = asked(&server);
        assert!(after.1 - before.1 <= 150, "{} questions in an hour", after.1 - before.1);
        assert_eq!(after.0 - before.0, if lists { 0 } else { 3 * (after.1 - before.1) }, "one by one");
        server.lock().unwrap().granted.retain(|(verb, _)| *verb != "get");
        until(&missing, &["get jobs of batch in namespace here"]).await;
        // What cannot be asked for stays as it is.
        server.lock().unwrap().down = true;
        sleep(Duration::from_mins(5)).await;
        assert_eq!(words(&missing), ["get jobs of batch in namespace here"]);
        server.lock().unwrap().down = false;
        server.lock().unwrap().granted.push(("get", "jobs"));
        until(&missing, &[]).await;
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reason_to_ask() {
    let granted = vec![("patch", "jobs/status")];
    let server = Arc::new(Mutex::new(Server { granted, lists: true, ..Server::default() }));
    let (missing, suspicion, task) = start(&server, vec![right("patch", "jobs/status")]);
    sleep(Duration::from_millis(10)).await;
    server.lock().unwrap().granted.clear();
    suspicion.notify_one();
    let took = until(&missing, &[STATUS]).await;
    assert!(took < Duration::from_secs(7), "{took:?} of the scripted clock");
    // Refusals all the time do not make questions all the time.
    let before = server.lock().unwrap().whole;
    for _ in 0..600 {
        suspicion.notify_one();
        sleep(Duration::from_millis(100)).await;
    }
    let asked = server.lock().unwrap().whole - before;
    assert!(asked <= 13, "{asked} questions in a minute");
    task.abort();
}

fn all(kinds: &[Kind], deletes_jobs: bool) -> Vec<Right> {
    let day = Duration::from_hours(24);
    let rotation = Rotation { authority_lifetime: day, leaf_lifetime: day, overlap: day, retirement: day };
    let name = || "x".to_owned();
    let certificates = CertificateSettings {
        namespace: name(),
        serving_secret: name(),
        authority_secret: name(),
        mutating: name(),
        validating: name(),
        names: Vec::new(),
        mode: Mode::External,
        folder: None,
        rotation,
    };
    needed(&Uses { kinds, certificates: &certificates, lease: None, guarded: false, deletes_jobs })
}

#[test]
fn only_what_is_on_is_asked_for_and_only_what_reviews_read_decides_readiness() {
    let is = |right: &Right, verb: &str, resource: &str| right.verb == verb && right.resource == resource;
    let has = |rights: &[Right], verb: &str, resource: &str| rights.iter().any(|r| is(r, verb, resource));
    let job = Kind::Job(0);
    let plural = job.resource().plural;
    assert!(has(&all(&[job], true), "delete", plural) && !has(&all(&[job], false), "delete", plural));
    for resource in ["pods", "pods/status"] {
        assert!(
            has(&all(&[Kind::Pod], false), "patch", resource) && !has(&all(&[job], false), "patch", resource)
        );
    }
    let rights = all(&Kind::all(), true);
    for right in &rights {
        let autoscaler = right.verb != "get"
            && right.verb != "list"
            && right.verb != "watch"
            && ["provisioningrequests", "podtemplates"].contains(&right.resource.as_str());
        assert_eq!(right.only_with, autoscaler.then_some(Kind::ProvisioningRequest), "{right}");
        if right.for_reviews {
            assert!(["get", "list", "watch"].contains(&right.verb), "{right} is no reading");
        }
    }
    let needed_by_reviews = |resource: &str| rights.iter().any(|r| r.for_reviews && r.resource == resource);
    for resource in ["namespaces", "localqueues", "clusterqueues", plural] {
        assert!(needed_by_reviews(resource), "{resource}");
    }
    for resource in ["nodes", "pods", "provisioningrequests", "events", "secrets"] {
        assert!(!needed_by_reviews(resource), "{resource}");
    }
}
