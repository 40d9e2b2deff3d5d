//! Chains of controllers above a job: at any depth, the highest queued object decides whether what is below it runs.

use crate::every_job_kind::{sample, server_of_all_kinds};
use crate::job_server::JobServer;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::frameworks::{Framework, JobKind, framework, frameworks};

fn row(group: &str, kind: &str) -> &'static Framework {
    framework(group, kind).unwrap()
}

fn job_row() -> &'static Framework {
    row("batch", "Job")
}

fn kind_of(row: &'static Framework) -> Kind {
    Kind::of_job(JobKind::new(row))
}

/// A sample of a row with a name, which is part of its UID.
fn named(row: &'static Framework, name: &str, queue: &str) -> Value {
    let mut object = sample(row, queue);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-{name}"));
    object
}

/// Makes an object with the name, as [`named`] makes it, the controller of another one.
fn below(mut object: Value, owner: &'static Framework, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner.gvk.api_version(),
        "kind": owner.gvk.kind, "name": name, "uid": format!("uid-{name}"), "controller": true}]);
    object
}

/// Creates an object as a user: its webhooks default and validate it first.
fn submit(server: &mut JobServer, row: &'static Framework, object: Value) {
    let object = server.admit(row, object, None).unwrap();
    server.load(kind_of(row), object);
}

fn is_suspended(server: &JobServer, row: &'static Framework, name: &str) -> bool {
    let object = server.get(kind_of(row), name).unwrap();
    object.pointer(row.fields.suspend.unwrap()) == Some(&json!(true))
}

fn resume(server: &mut JobServer, row: &'static Framework, name: &str) {
    server.edit(kind_of(row), name, |object| {
        *object.pointer_mut(row.fields.suspend.unwrap()).unwrap() = json!(false);
    });
}

/// A queued Job, and Jobs below it, each the controller of the next, whatever order they come in, and whether the manager saw them
/// come.
#[test]
fn nested_jobs_follow_the_highest_queued_one() {
    let names = ["l0", "l1", "l2", "l3"];
    let chain = |number: usize| {
        let job = named(job_row(), names[number], if number == 0 { "lq" } else { "" });
        if number == 0 { job } else { below(job, job_row(), names[number - 1]) }
    };
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 1, 2]] {
        let mut server = server_of_all_kinds(|_, _| {});
        server.edit_queue("0");
        for number in order {
            server.load(kind_of(job_row()), chain(number));
        }
        let all = |server: &JobServer| names.map(|name| is_suspended(server, job_row(), name));
        assert_eq!(all(&server), [true; 4], "{order:?}: the first is not admitted");
        let said = |name: &str| {
            let mut events = server.events.iter().filter(|event| *event.key.name == *name);
            events.any(|event| event.reason == "Suspended")
        };
        assert!(names[1..].iter().all(|name| said(name)), "{order:?}: {:?}", server.events);
        server.edit_queue("10");
        assert!(!is_suspended(&server, job_row(), "l0"), "{order:?}");
        for name in &names[1..] {
            resume(&mut server, job_row(), name);
        }
        assert_eq!(all(&server), [false; 4], "{order:?}: each runs with the first");
        server.deactivate();
        assert_eq!(all(&server), [true; 4], "{order:?}: each is stopped with the first");
        resume(&mut server, job_row(), "l3");
        assert!(is_suspended(&server, job_row(), "l3"), "{order:?}: and again");
    }
}

/// Whichever kinds are between a queued Job and a job that names no queue, it waits for that Job.
#[test]
fn every_kind_between_two_jobs() {
    let suspended = || frameworks().filter(|row| row.fields.suspend.is_some());
    for between in suspended() {
        for lowest in suspended() {
            let mut server = server_of_all_kinds(|_, _| {});
            server.edit_queue("0");
            server.load(kind_of(job_row()), named(job_row(), "top", "lq"));
            server.load(kind_of(between), below(named(between, "between", ""), job_row(), "top"));
            server.load(kind_of(lowest), below(named(lowest, "lowest", ""), between, "between"));
            let case = format!("{} below {}", lowest.name, between.name);
            assert!(is_suspended(&server, between, "between"), "{case}");
            assert!(is_suspended(&server, lowest, "lowest"), "{case}");
            assert_eq!(server.all(Kind::Workload).len(), 1, "{case}");
        }
    }
}

/// Where jobs without a queue name are managed, one below a queued one gets no Workload, whether its webhook has seen it or not.
#[test]
fn jobs_without_queue_below_a_job_are_not_queued_apart() {
    for reviewed in [true, false] {
        for lowest in frameworks().filter(|row| row.fields.suspend.is_some()) {
            let mut server = server_of_all_kinds(|core, admission| {
                core.manage_jobs_without_queue_name = true;
                admission.manage_jobs_without_queue_name = true;
            });
            submit(&mut server, job_row(), named(job_row(), "driver", "lq"));
            let step = below(named(lowest, "step", ""), job_row(), "driver");
            if reviewed {
                submit(&mut server, lowest, step);
            } else {
                server.load(kind_of(lowest), step);
            }
            assert!(!is_suspended(&server, lowest, "step"), "{} {reviewed}", lowest.name);
            assert_eq!(server.all(Kind::Workload).len(), 1, "{} {reviewed}", lowest.name);
        }
    }
}

/// Nothing waits for a Deployment: it has no Workload.
#[test]
fn jobs_below_a_queued_deployment_run() {
    let deployment = row("apps", "Deployment");
    let mut server = server_of_all_kinds(|_, _| {});
    submit(&mut server, deployment, named(deployment, "web", "lq"));
    submit(&mut server, job_row(), below(named(job_row(), "free", ""), deployment, "web"));
    assert!(!is_suspended(&server, job_row(), "free"), "it is in no queue");
    submit(&mut server, job_row(), below(named(job_row(), "queued", "lq"), deployment, "web"));
    assert_eq!(server.all(Kind::Workload).len(), 1, "{:?}", server.all(Kind::Workload));
}

/// Of several Workloads of an external object, the latest that has not finished counts, whatever their names.
#[test]
fn latest_open_workload_of_an_external_object_counts() {
    const OPEN: (&str, &str) = ("Admitted", "True");
    const FINISHED: (&str, &str) = ("Finished", "True");
    const PENDING: (&str, &str) = ("QuotaReserved", "False");
    // States of the Workloads in the order of their creation, whether they are in another namespace, and whether a child that names
    // no queue runs.
    let cases: [(&[(&str, &str)], bool); 6] = [
        (&[FINISHED, OPEN], true),
        (&[OPEN, PENDING], false),
        (&[OPEN, FINISHED], true),
        (&[PENDING, OPEN], true),
        (&[FINISHED, FINISHED], false),
        (&[FINISHED, PENDING], false),
    ];
    for (states, runs) in cases {
        for names in [["a", "b"], ["b", "a"]] {
            let mut server = server_of_all_kinds(|core, admission| {
                let external = [("example.com".to_owned(), "Train".to_owned())].into();
                admission.external_kinds = external;
                core.external_kinds = admission.external_kinds.clone();
            });
            server.edit_queue("0");
            let owner = json!([{"apiVersion": "example.com/v1", "kind": "Train", "name": "t", "uid": "uid-t",
                "controller": true}]);
            for (number, ((condition, status), name)) in states.iter().zip(names).enumerate() {
                server.load(Kind::Workload, workload(name, number, (condition, status), &owner));
            }
            let case = format!("{states:?} {names:?}");
            let mut child = named(job_row(), "run", "");
            child["metadata"]["ownerReferences"] = owner.clone();
            submit(&mut server, job_row(), child);
            assert_eq!(is_suspended(&server, job_row(), "run"), !runs, "{case}");
            let mut own = named(job_row(), "own", "lq");
            own["metadata"]["ownerReferences"] = owner.clone();
            submit(&mut server, job_row(), own);
            let all_over = states.iter().all(|state| *state == FINISHED);
            let workloads = server.all(Kind::Workload).len();
            assert_eq!(
                workloads,
                if all_over { 3 } else { 2 },
                "{case}: only an owner that is over does not count"
            );
        }
    }
}

/// A Workload of another controller, created at a second of its own, in a state.
fn workload(name: &str, second: usize, (condition, status): (&str, &str), owner: &Value) -> Value {
    let time = format!("2026-01-01T00:00:0{second}Z");
    let state = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": time});
    let admission = json!({"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1,
        "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}]});
    let mut object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": time, "ownerReferences": owner},
        "spec": {"queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}]},
        "status": {"conditions": [state(condition, status)]},
    });
    if condition == "Admitted" {
        object["status"] = json!({"admission": admission, "conditions": [state("QuotaReserved", "True"), state("Admitted", "True")]});
    }
    object
}
