//! Missing permissions, from the start or later, are reported until they are granted.
#![expect(clippy::disallowed_methods, reason = "the test runs the server and waits")]

use crate::fixtures::leading_core::JOB;
use crate::fixtures::scripted_client::scripted_client_with_body;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::kube::certificates::{CertificateMode, CertificateSettings};
use sluice::kube::client::Caller;
use sluice::kube::rbac_check::{
    MissingPermissions, Permission, PermissionCheck, PermissionRequirements, WriteRequirements,
    required_permissions, run_permission_checks,
};
use sluice::kube::watch_status::WatchStatuses;
use sluice::kube::webhook_ownership::ServiceName;
use sluice::lifecycle::certificates::RotationSettings as Rotation;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

fn right(verb: &'static str, resource: &str) -> Permission {
    Permission {
        namespace: Some("here".to_owned()),
        group: "batch".to_owned(),
        resource: resource.to_owned(),
        name: None,
        verb,
        needed_for_reviews: false,
        framework: None,
        only_if_served: None,
    }
}

/// What the scripted server grants, as verb and resource, and how it answers.
#[derive(Default)]
struct Server {
    granted: Vec<(&'static str, &'static str)>,
    /// Whether it lists its rules.
    lists_rules: bool,
    /// Whether it fails.
    is_down: bool,
    /// Number of reviews of one permission.
    access_reviews: u32,
    /// Number of reviews of all rules.
    rules_reviews: u32,
    /// Attributes of the last review of one permission.
    last_access_review: Value,
}

type Script = Arc<Mutex<Server>>;

fn start(
    server: &Script,
    permissions: Vec<Permission>,
) -> (Arc<MissingPermissions>, Arc<Notify>, tokio::task::JoinHandle<()>) {
    let script = Arc::clone(server);
    let (client, _) = scripted_client_with_body(move |_, uri, body| {
        let mut server = script.lock().unwrap();
        if server.is_down {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "X", "code": 503});
            return (503, status);
        }
        if uri.ends_with("selfsubjectrulesreviews") {
            server.rules_reviews += 1;
            let here = body["spec"]["namespace"] == "here" && server.lists_rules;
            let rule = |(verb, resource): &(&str, &str)| json!({"verbs": [verb], "apiGroups": ["batch"], "resources": [resource]});
            let rules: Vec<Value> = server.granted.iter().filter(|_| here).map(rule).collect();
            return (201, json!({"status": {"resourceRules": rules, "incomplete": !here}}));
        }
        assert!(uri.ends_with("selfsubjectaccessreviews"), "{uri}");
        server.access_reviews += 1;
        server.last_access_review = body["spec"]["resourceAttributes"].clone();
        let text = |field: &str| server.last_access_review[field].as_str().unwrap_or_default().to_owned();
        let resource = format!("{}/{}", text("resource"), text("subresource"));
        let resource = resource.trim_end_matches('/');
        let allowed = server.granted.iter().any(|(v, r)| *v == text("verb") && *r == resource);
        (201, json!({"status": {"allowed": allowed}}))
    });
    let (missing, recheck) = (Arc::new(MissingPermissions::default()), Arc::new(Notify::new()));
    let check = PermissionCheck {
        caller: Caller::new(client, Duration::from_secs(5)),
        permissions,
        watch_statuses: WatchStatuses::new(&[]),
        missing_permissions: Arc::clone(&missing),
        recheck: Arc::clone(&recheck),
    };
    (missing, recheck, tokio::spawn(run_permission_checks(check)))
}

/// Reviews so far, of one permission and of all rules.
fn review_counts(server: &Script) -> (u32, u32) {
    let server = server.lock().unwrap();
    (server.access_reviews, server.rules_reviews)
}

fn missing_texts(missing: &MissingPermissions) -> Vec<String> {
    missing.list().iter().map(ToString::to_string).collect()
}

const STATUS: &str = "patch jobs/status of batch in namespace here";

async fn wait_for_missing(missing: &MissingPermissions, expected: &[&str]) -> Duration {
    let start = Instant::now();
    while missing_texts(missing) != expected {
        assert!(start.elapsed() < Duration::from_mins(1), "{:?} after a minute", missing_texts(missing));
        sleep(Duration::from_millis(100)).await;
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn permission_changes_are_seen_within_one_minute() {
    for lists_rules in [true, false] {
        let granted = vec![("list", "jobs"), ("get", "jobs")];
        let server = Arc::new(Mutex::new(Server { granted, lists_rules, ..Server::default() }));
        let permissions = vec![right("list", "jobs"), right("patch", "jobs/status"), right("get", "jobs")];
        let (missing, _, task) = start(&server, permissions);
        wait_for_missing(&missing, &[STATUS]).await;
        let expected = json!({"namespace": "here", "group": "batch", "resource": "jobs", "subresource": "status",
            "name": null, "verb": "patch"});
        if lists_rules {
            assert_eq!(server.lock().unwrap().last_access_review, expected);
        }
        server.lock().unwrap().granted.push(("patch", "jobs/status"));
        wait_for_missing(&missing, &[]).await;
        // For an hour everything is granted; then one permission is revoked.
        // Between two rounds of reviews.
        sleep(Duration::from_millis(37)).await;
        let before = review_counts(&server);
        sleep(Duration::from_hours(1)).await;
        let after = review_counts(&server);
        assert!(after.1 - before.1 <= 150, "{} reviews of rules in an hour", after.1 - before.1);
        assert_eq!(
            after.0 - before.0,
            if lists_rules { 0 } else { 3 * (after.1 - before.1) },
            "single reviews"
        );
        server.lock().unwrap().granted.retain(|(verb, _)| *verb != "get");
        wait_for_missing(&missing, &["get jobs of batch in namespace here"]).await;
        // While reviews fail, the reported permissions stay.
        server.lock().unwrap().is_down = true;
        sleep(Duration::from_mins(5)).await;
        assert_eq!(missing_texts(&missing), ["get jobs of batch in namespace here"]);
        server.lock().unwrap().is_down = false;
        server.lock().unwrap().granted.push(("get", "jobs"));
        wait_for_missing(&missing, &[]).await;
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_write_triggers_permission_check() {
    let granted = vec![("patch", "jobs/status")];
    let server = Arc::new(Mutex::new(Server { granted, lists_rules: true, ..Server::default() }));
    let (missing, recheck, task) = start(&server, vec![right("patch", "jobs/status")]);
    sleep(Duration::from_millis(10)).await;
    server.lock().unwrap().granted.clear();
    recheck.notify_one();
    let took = wait_for_missing(&missing, &[STATUS]).await;
    assert!(took < Duration::from_secs(7), "{took:?} of the scripted clock");
    // Continuous refusals do not cause continuous reviews.
    let before = server.lock().unwrap().rules_reviews;
    for _ in 0..600 {
        recheck.notify_one();
        sleep(Duration::from_millis(100)).await;
    }
    let reviews = server.lock().unwrap().rules_reviews - before;
    assert!(reviews <= 13, "{reviews} reviews in a minute");
    task.abort();
}

fn needed_for(kinds: &[Kind], deletes_jobs: bool) -> Vec<Permission> {
    needed_with(kinds, deletes_jobs, false)
}

fn needed_with(kinds: &[Kind], deletes_jobs: bool, pods_are_jobs: bool) -> Vec<Permission> {
    let day = Duration::from_hours(24);
    let rotation = Rotation { ca_lifetime: day, leaf_lifetime: day, overlap: day, retirement: day };
    let name = || "x".to_owned();
    let certificates = CertificateSettings {
        visibility: None,
        namespace: name(),
        serving_secret: name(),
        ca_secret: name(),
        ca_config_map: name(),
        mutating: name(),
        validating: name(),
        service: ServiceName { namespace: name(), name: name() },
        conversion: None,
        names: Vec::new(),
        observers: Vec::new(),
        is_observer: false,
        mode: CertificateMode::External,
        folder: None,
        rotation,
    };
    required_permissions(&PermissionRequirements {
        kinds,
        passing: &[],
        certificates: &certificates,
        lease: None,
        serves_visibility: false,
        authorizes_metrics: false,
        writes: Some(WriteRequirements { deletes_jobs, pods_are_jobs }),
    })
}

#[test]
fn needed_permissions_follow_enabled_kinds_and_reviews() {
    let is = |permission: &Permission, verb: &str, resource: &str| {
        permission.verb == verb && permission.resource == resource
    };
    let has = |permissions: &[Permission], verb: &str, resource: &str| {
        permissions.iter().any(|r| is(r, verb, resource))
    };
    let job = JOB;
    let plural = job.resource().plural;
    assert!(
        has(&needed_for(&[job], true), "delete", plural)
            && !has(&needed_for(&[job], false), "delete", plural)
    );
    for resource in ["pods", "pods/status"] {
        assert!(
            has(&needed_for(&[Kind::Pod], false), "patch", resource)
                && !has(&needed_for(&[job], false), "patch", resource)
        );
    }
    for pods_are_jobs in [false, true] {
        let permissions = needed_with(&[Kind::Pod], false, pods_are_jobs);
        assert_eq!(has(&permissions, "delete", "pods"), pods_are_jobs);
        assert!(has(&permissions, "patch", "pods") && has(&permissions, "patch", "pods/status"));
    }
    for resource in ["provisioningrequests", "podtemplates"] {
        assert!(has(&needed_for(&Kind::all(), false), "create", resource));
        assert!(!has(&needed_for(&[job], false), "create", resource));
    }
    let permissions = needed_for(&Kind::all(), true);
    for permission in &permissions {
        let autoscaler = permission.verb != "get"
            && permission.verb != "list"
            && permission.verb != "watch"
            && ["provisioningrequests", "podtemplates"].contains(&permission.resource.as_str());
        assert_eq!(
            permission.only_if_served,
            autoscaler.then_some(Kind::ProvisioningRequest),
            "{permission}"
        );
        if permission.needed_for_reviews {
            assert!(["get", "list", "watch"].contains(&permission.verb), "{permission} does not only read");
        }
    }
    let needed_by_reviews =
        |resource: &str| permissions.iter().any(|r| r.needed_for_reviews && r.resource == resource);
    for resource in ["namespaces", "localqueues", "clusterqueues", plural] {
        assert!(needed_by_reviews(resource), "{resource}");
    }
    for resource in ["nodes", "pods", "provisioningrequests", "events", "secrets"] {
        assert!(!needed_by_reviews(resource), "{resource}");
    }
}
