//! Chains of controllers above a job: at any depth, the highest queued object decides whether what is below it runs.

use crate::fixtures::every_job_kind::server_of_all_kinds;
use crate::fixtures::job_server::JobServer;
use crate::fixtures::owner_chains::{
    below, is_suspended, job_row, kind_of, named, resume, row, submit, workload,
};
use serde_json::json;
use sluice_core::cache::Kind;
use sluice_core::frameworks::frameworks;
use sluice_core::reconciler::CoreSettings;

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
                server.edit_any(Kind::ClusterQueue, &sluice_core::api::ObjectKey::cluster("cq"), |queue| {
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
