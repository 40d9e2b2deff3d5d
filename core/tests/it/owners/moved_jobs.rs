//! Jobs that their users change while they have quota and wait for admission checks: what they can no longer start with is given back
//! at once, so that no check is waited for in vain.

use crate::fixtures::every_job_kind::{sample, server_of_all_kinds};
use crate::fixtures::job_server::{JobServer, kind, pod};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, Role, frameworks};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A manager of all kinds, whose queue has the checks `machines` and `budget` of other controllers. Two LocalQueues lead to it.
fn server() -> JobServer {
    let mut server = server_of_all_kinds(|_, _| {});
    let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    for name in ["machines", "budget"] {
        let spec = json!({"controllerName": format!("example.com/{name}")});
        server.create(
            Kind::AdmissionCheck,
            json!({"metadata": {"name": name}, "spec": spec, "status": active}),
        );
    }
    let queue = json!({"metadata": {"name": "lq2", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
    server.create(Kind::LocalQueue, queue);
    server.edit_cluster_object(Kind::ClusterQueue, "cq", |queue| {
        let checks = json!([{"name": "machines"}, {"name": "budget"}]);
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    });
    server
}

fn suspended() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.role == Role::Suspended)
}

/// Creates the sample of a row, whose Workload gets quota and waits for its checks.
fn waiting(row: &'static Framework) -> (JobServer, Kind, String) {
    let mut server = server();
    server.submit(row, sample(row, "lq")).unwrap();
    assert!(server.holds_quota() && server.condition("Admitted").is_none_or(|(held, _)| held == "False"));
    (server, Kind::of_job(JobKind::new(row)), row.gvk.kind.to_lowercase())
}

fn workload(server: &JobServer) -> Value {
    server.get(Kind::Workload, &server.workload_name()).unwrap().clone()
}

/// One check is ready, with changes of the pods; the others are not.
fn answer(server: &mut JobServer, check: &str) {
    let name = server.workload_name();
    server.edit(Kind::Workload, &name, |workload| {
        let set = workload["spec"]["podSets"][0]["name"].clone();
        let states = workload["status"]["admissionChecks"].as_array_mut().unwrap();
        let state = states.iter_mut().find(|state| state["name"] == check).unwrap();
        state["state"] = json!("Ready");
        state["podSetUpdates"] = json!([{"name": set, "nodeSelector": {"machines": "of-lq"}}]);
    });
}

fn states(workload: &Value) -> Vec<(&str, &str, bool)> {
    let states = workload["status"]["admissionChecks"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |state: &'_ Value, field: &str| state[field].as_str().unwrap().to_owned();
    states
        .iter()
        .map(|state| {
            let (name, value) = (text(state, "name"), text(state, "state"));
            let known =
                |word: &str| ["machines", "budget", "Ready", "Pending"].into_iter().find(|k| *k == word);
            (known(&name).unwrap(), known(&value).unwrap(), state.get("podSetUpdates").is_some())
        })
        .collect()
}

const FRESH: [(&str, &str, bool); 2] = [("budget", "Pending", false), ("machines", "Pending", false)];

/// The move of a job that waits for its checks is carried out at once: it asks for quota in the new queue, and what checks have said of
/// its reservation is gone. It starts when they have answered again.
#[test]
fn job_that_waits_for_checks_is_moved_at_once() {
    for row in suspended() {
        let (mut server, kind, name) = waiting(row);
        answer(&mut server, "machines");
        assert!(states(&workload(&server)).contains(&("machines", "Ready", true)), "{}", row.name);
        server.events.clear();
        server.edit(kind, &name, |job| job["metadata"]["labels"][QUEUE] = json!("lq2"));
        let moved = workload(&server);
        assert_eq!(moved["spec"]["queueName"], "lq2", "{}", row.name);
        assert!(server.holds_quota(), "{}: {moved}", row.name);
        assert_eq!(states(&moved), FRESH, "{}", row.name);
        let told = server.events.iter().any(|event| event.note.contains("moved to LocalQueue lq2"));
        assert!(told, "{}: {:?}", row.name, server.events);
        for check in ["machines", "budget"] {
            answer(&mut server, check);
        }
        let job = server.get(kind, &name).unwrap();
        assert_ne!(job.pointer(row.fields.suspend.unwrap()), Some(&json!(true)), "{}", row.name);
        assert!(job.to_string().contains("of-lq"), "{}: the checks are those of the new queue", row.name);
    }
}

/// Into a queue that does not exist, it waits there without quota.
#[test]
fn job_that_is_moved_to_a_missing_queue_has_no_quota() {
    for row in suspended() {
        let (mut server, kind, name) = waiting(row);
        server.edit(kind, &name, |job| job["metadata"]["labels"][QUEUE] = json!("gone"));
        assert_eq!(workload(&server)["spec"]["queueName"], "gone", "{}", row.name);
        assert!(!server.holds_quota(), "{}", row.name);
    }
}

/// Pods, groups and objects with pods of their own keep their pods when they are moved.
#[test]
fn pods_that_wait_for_checks_are_moved_and_stay() {
    let mut single = server();
    single.create(Kind::Pod, pod("a", None));
    let mut group = server();
    for name in ["a", "b"] {
        group.create(Kind::Pod, pod(name, Some(("g", 2))));
    }
    for (case, mut server, pods) in [("pod", single, &["a"][..]), ("group", group, &["a", "b"])] {
        assert!(server.holds_quota(), "{case}");
        answer(&mut server, "machines");
        for name in pods {
            server.edit(Kind::Pod, name, |pod| pod["metadata"]["labels"][QUEUE] = json!("lq2"));
        }
        let moved = workload(&server);
        assert_eq!(moved["spec"]["queueName"], "lq2", "{case}");
        assert!(server.holds_quota() && states(&moved) == FRESH, "{case}: {moved}");
        for name in pods {
            assert!(
                server.get(Kind::Pod, name).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            );
        }
    }
}

#[test]
fn set_that_waits_for_checks_is_moved() {
    let sets = kind("apps", "StatefulSet");
    let mut server = server();
    let template = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    server.create(
        sets,
        json!({"metadata": {"name": "s", "namespace": "ns", "labels": {QUEUE: "lq"}},
            "spec": {"replicas": 1, "template": template}}),
    );
    assert!(server.holds_quota());
    answer(&mut server, "machines");
    let name = server.workload_name();
    server.edit(sets, "s", |set| set["metadata"]["labels"][QUEUE] = json!("lq2"));
    let moved = workload(&server);
    assert_eq!(
        (moved["metadata"]["name"].as_str(), &moved["spec"]["queueName"]),
        (Some(&*name), &json!("lq2"))
    );
    assert!(server.holds_quota() && states(&moved) == FRESH, "{moved}");
}

/// What a job asks for is changed: the Workload is made again at once, as its quota is of no use.
#[test]
fn job_whose_requests_change_while_it_waits_for_checks_is_queued_at_once() {
    let row = sluice_core::frameworks::framework("batch", "Job").unwrap();
    let (mut server, kind, name) = waiting(row);
    answer(&mut server, "machines");
    server.edit(kind, &name, |job| {
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    });
    let made = workload(&server);
    assert!(made.to_string().contains(r#""requests":{"cpu":"2"}"#), "{made}");
    assert!(server.holds_quota() && states(&made) == FRESH, "{made}");
}

/// A job that names a prebuilt Workload while its own waits for checks gives its own up.
#[test]
fn job_that_names_a_prebuilt_workload_while_it_waits_gives_its_own_up() {
    let row = sluice_core::frameworks::framework("batch", "Job").unwrap();
    let (mut server, kind, name) = waiting(row);
    let own = server.workload_name();
    server.edit(kind, &name, |job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("other");
    });
    let left = server.get(Kind::Workload, &own).unwrap();
    let ended = left["status"]["conditions"].to_string();
    assert!(ended.contains("OutOfSync"), "{ended}");
    assert_eq!(server.get(kind, &name).unwrap()["spec"]["suspend"], true);
}

/// A priority class that is named meanwhile counts at once; the reservation stays.
#[test]
fn priority_class_that_is_added_while_a_job_waits_for_checks_counts() {
    let row = sluice_core::frameworks::framework("batch", "Job").unwrap();
    let (mut server, kind, name) = waiting(row);
    server.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": "high"}, "value": 7}));
    let reserved = workload(&server)["metadata"]["uid"].clone();
    server.edit(kind, &name, |job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    });
    let raised = workload(&server);
    assert_eq!((&raised["metadata"]["uid"], &raised["spec"]["priority"]), (&reserved, &json!(7)));
    assert!(server.holds_quota());
    // Moved, it names the class.
    server.edit(kind, &name, |job| job["metadata"]["labels"][QUEUE] = json!("lq2"));
    assert_eq!(workload(&server)["spec"]["priorityClassRef"]["name"], "high");
}
