//! Chains of controllers above a job: at any depth, the highest queued object decides whether what is below it runs.

use crate::every_job_kind::{sample, server_of_all_kinds};
use crate::job_server::JobServer;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::frameworks::{Framework, JobKind, framework, frameworks};
use sluice::reconciler::CoreSettings;

pub(crate) fn row(group: &str, kind: &str) -> &'static Framework {
    framework(group, kind).unwrap()
}

pub(crate) fn job_row() -> &'static Framework {
    row("batch", "Job")
}

pub(crate) fn kind_of(row: &'static Framework) -> Kind {
    Kind::of_job(JobKind::new(row))
}

/// A sample of a row with a name, which is part of its UID.
pub(crate) fn named(row: &'static Framework, name: &str, queue: &str) -> Value {
    let mut object = sample(row, queue);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-{name}"));
    // The selectors of samples take it for their own.
    if row.is_pod() {
        object["metadata"]["labels"]["app"] = json!("sample");
    }
    object
}

/// Makes an object with the name, as [`named`] makes it, the controller of another one.
pub(crate) fn below(mut object: Value, owner: &'static Framework, name: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner.gvk.api_version(),
        "kind": owner.gvk.kind, "name": name, "uid": format!("uid-{name}"), "controller": true}]);
    object
}

/// Creates an object as a user: its webhooks default and validate it first.
pub(crate) fn submit(server: &mut JobServer, row: &'static Framework, object: Value) {
    let object = server.admit(row, object, None).unwrap();
    server.load(kind_of(row), object);
}

pub(crate) fn is_suspended(server: &JobServer, row: &'static Framework, name: &str) -> bool {
    let object = server.get(kind_of(row), name).unwrap();
    object.pointer(row.fields.suspend.unwrap()) == Some(&json!(true))
}

pub(crate) fn resume(server: &mut JobServer, row: &'static Framework, name: &str) {
    server.edit(kind_of(row), name, |object| {
        *object.pointer_mut(row.fields.suspend.unwrap()).unwrap() = json!(false);
    });
}

/// A queued Job, and Jobs below it, each the controller of the next, whatever order they come in, and whether the manager saw them
/// come, or they came while there was none.
#[test]
fn nested_jobs_follow_the_highest_queued_one() {
    let names = ["l0", "l1", "l2", "l3"];
    let chain = |number: usize| {
        let job = named(job_row(), names[number], if number == 0 { "lq" } else { "" });
        if number == 0 { job } else { below(job, job_row(), names[number - 1]) }
    };
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 1, 2]];
    for (order, unseen) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        let mut server = server_of_all_kinds(|_, _| {});
        server.edit_queue("0");
        for number in order {
            if unseen {
                server.load_unseen(kind_of(job_row()), chain(number));
            } else {
                server.load(kind_of(job_row()), chain(number));
            }
        }
        if unseen {
            let frameworks = frameworks().map(|row| row.name.to_owned()).collect();
            server.restart(CoreSettings { frameworks, ..CoreSettings::default() });
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
pub(crate) fn workload(name: &str, second: usize, (condition, status): (&str, &str), owner: &Value) -> Value {
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

/// A Job with a Workload of its own comes below a JobSet that is queued later: whatever its Workload is at, the pods of the Job are
/// charged once, and its Workload goes, or stays without quota if it was prebuilt.
#[test]
fn job_that_comes_below_a_queued_object_gives_its_workload_up() {
    let set_row = row("jobset.x-k8s.io", "JobSet");
    let set_queue = "kueue.x-k8s.io/queue-name";
    // Whether the Job was admitted when the JobSet is queued, whether it is evicted then, and whether there is room for the JobSet.
    for (admitted, evicted, room) in
        [(true, false, true), (false, false, true), (true, true, true), (true, false, false)]
    {
        for prebuilt in [false, true] {
            let case = format!("admitted {admitted}, evicted {evicted}, room {room}, prebuilt {prebuilt}");
            let mut server = server_of_all_kinds(|_, _| {});
            if !admitted {
                server.edit_queue("0");
            }
            server.load(kind_of(set_row), named(set_row, "set", ""));
            let mut job = below(named(job_row(), "job", "lq"), set_row, "set");
            if prebuilt {
                job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("own");
                let template = job["spec"]["template"].clone();
                server.create(Kind::Workload, json!({"metadata": {"name": "own", "namespace": "ns"}, "spec": {
                    "queueName": "lq", "active": true, "podSets": [{"name": "main", "count": 3, "template": template}]}}));
            }
            server.load(kind_of(job_row()), job);
            assert_eq!(!is_suspended(&server, job_row(), "job"), admitted, "{case}");
            if evicted {
                server.deactivate();
            }
            if !room {
                server.edit_any(Kind::ClusterQueue, &sluice::api::ObjectKey::cluster("cq"), |queue| {
                    queue["spec"]["stopPolicy"] = json!("Hold");
                });
            }
            server.edit(kind_of(set_row), "set", |set| {
                set["metadata"]["labels"][set_queue] = json!("lq");
                set["spec"]["suspend"] = json!(true);
            });
            if !admitted {
                server.edit_queue("100");
            }
            server.advance(jiff::SignedDuration::from_secs(30));
            let workloads = server.all(Kind::Workload);
            let owned_by = |name: &str| {
                workloads.iter().filter(|w| w["metadata"]["ownerReferences"][0]["name"] == name).count()
            };
            assert_eq!(owned_by("set"), 1, "{case}: {workloads:?}");
            if prebuilt {
                let own = server.get(Kind::Workload, "own").expect("it is not deleted");
                assert!(own["status"].to_string().contains("OutOfSync"), "{case}: {own}");
                let metadata = own["metadata"].to_string();
                assert!(!metadata.contains("uid-job") && !metadata.contains("in-use"), "{case}: {own}");
            } else {
                assert_eq!(owned_by("job"), 0, "{case}: {workloads:?}");
            }
            assert_eq!(is_suspended(&server, set_row, "set"), !room, "{case}");
            resume(&mut server, job_row(), "job");
            assert_eq!(is_suspended(&server, job_row(), "job"), !room, "{case}: it follows the JobSet");
            let (writes, events) = (server.writes, server.events.len());
            server.advance(jiff::SignedDuration::from_secs(300));
            assert_eq!(
                (server.writes, server.events.len()),
                (writes, events),
                "{case}: nothing is left to do"
            );
        }
    }
}

/// A pod that was held before its controller was queued runs where the flavor is that the controller is charged for.
#[test]
fn held_pods_start_on_the_flavor_of_the_object_above() {
    let pod_row = row("", "Pod");
    for (label, zone, starts) in [
        (None, None, true),
        (Some("main"), None, true),
        (Some("other"), None, true),
        (None, Some("other"), false),
    ] {
        let case = format!("{label:?} {zone:?}");
        let mut server = server_of_all_kinds(|_, _| {});
        server.edit_cluster_object(Kind::ResourceFlavor, "f", |flavor| {
            flavor["spec"]["nodeLabels"] = json!({"zone": "z"});
        });
        server.edit_queue("0");
        let mut pod = named(pod_row, "pod", "lq");
        if let Some(zone) = zone {
            pod["spec"]["nodeSelector"] = json!({"zone": zone});
        }
        submit(&mut server, pod_row, pod);
        server.edit(Kind::Pod, "pod", |pod| {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job",
                "uid": "uid-job", "controller": true}]);
            if let Some(label) = label {
                pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!(label);
            }
        });
        submit(&mut server, job_row(), named(job_row(), "job", "lq"));
        server.edit_queue("100");
        server.advance(jiff::SignedDuration::from_secs(30));
        assert!(!is_suspended(&server, job_row(), "job"), "{case}");
        let pod = server.get(Kind::Pod, "pod").unwrap();
        let gated = pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission");
        assert_eq!(gated, !starts, "{case}: {pod}");
        let (selector, labels) = (&pod["spec"]["nodeSelector"], &pod["metadata"]["labels"]);
        if label != Some("other") && starts {
            assert_eq!(selector["zone"], "z", "{case}");
            assert_eq!(labels["kueue.x-k8s.io/podset"], "main", "{case}");
            assert_eq!(
                pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"],
                server.workload_name(),
                "{case}"
            );
        }
        let said = server.events.iter().any(|event| event.note.contains("cannot run where Job job has"));
        assert_eq!(said, !starts, "{case}: {:?}", server.events);
    }
}

/// A pod with a gate and a Workload of its own whose controller is queued, or is seen to be, later: it waits for that one's
/// admission, and is not charged apart.
#[test]
fn pods_that_come_below_a_queued_object_are_not_charged_apart() {
    let pod_row = row("", "Pod");
    for (admitted, running) in [(true, false), (true, true), (false, false)] {
        let case = format!("admitted {admitted}, running {running}");
        let mut server = server_of_all_kinds(|_, _| {});
        if !running {
            server.edit_queue("0");
        }
        // The webhook does not know the Job yet, so that the pod is held like one without a controller.
        submit(&mut server, pod_row, named(pod_row, "pod", "lq"));
        let gated = |server: &JobServer| {
            let pod = server.get(Kind::Pod, "pod").unwrap();
            pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission")
        };
        assert_eq!(gated(&server), !running, "{case}");
        server.edit(Kind::Pod, "pod", |pod| {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job",
                "uid": "uid-job", "controller": true}]);
        });
        submit(&mut server, job_row(), named(job_row(), "job", "lq"));
        if !admitted {
            let said = server.events.iter().any(|event| event.reason == "WaitsForOwner");
            assert!(gated(&server) && said, "{case}: it is held with a reason");
        }
        server.edit_queue("100");
        server.advance(jiff::SignedDuration::from_secs(30));
        // A pod that ran is stopped with its own Workload if the Job does not have its quota yet.
        let waits = server.get(Kind::Pod, "pod").is_some_and(|_| gated(&server));
        assert!(!waits, "{case}");
        let workloads = server.all(Kind::Workload);
        assert_eq!(workloads.len(), 1, "{case}: {workloads:?}");
        assert_eq!(workloads[0]["metadata"]["ownerReferences"][0]["kind"], "Job", "{case}");
    }
}
