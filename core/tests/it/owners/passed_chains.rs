//! Chains of controllers that go on through objects that are not queued: ReplicaSets, pods, kinds that are not enabled, and objects that
//! cannot be decoded.

use crate::fixtures::every_job_kind::server_of_all_kinds;
use crate::fixtures::job_server::JobServer;
use crate::fixtures::owner_chains::{below, is_suspended, job_row, kind_of, named, row, submit};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::api::names::DEFAULT_NAME;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, OwnerRef};
use sluice_core::reconciler::{CoreSettings, Delta, Reconciler};

/// A manager of some kinds, or of all if none are named.
fn server(names: &[&str], all_managed: bool) -> JobServer {
    server_of_all_kinds(|core: &mut CoreSettings, admission: &mut AdmissionSettings| {
        if !names.is_empty() {
            core.frameworks = names.iter().map(|name| (*name).to_owned()).collect();
            admission.frameworks.clone_from(&core.frameworks);
        }
        core.manage_jobs_without_queue_name = all_managed;
        admission.manage_jobs_without_queue_name = all_managed;
    })
}

fn reference(row: &Framework, name: &str) -> OwnerRef {
    OwnerRef {
        api_version: row.gvk.api_version(),
        kind: row.gvk.kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

fn under(mut object: Value, owner: &OwnerRef) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner.api_version, "kind": owner.kind,
        "name": owner.name, "uid": owner.uid, "controller": true}]);
    object
}

fn replica_set(name: &str, owner: &OwnerRef) -> (Value, OwnerRef) {
    let uid = format!("uid-{name}");
    let object = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "ns", "uid": uid}});
    let own = OwnerRef { api_version: "apps/v1".into(), kind: "ReplicaSet".into(), name: name.into(), uid };
    (under(object, owner), own)
}

fn is_gated(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap();
    pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/")
}

/// Pods of a Deployment in a queued AppWrapper run on its quota, whichever labels they have, and whatever the manager sees first.
#[test]
fn pods_of_a_deployment_in_an_app_wrapper() {
    let (wrapper, deployment, pod) =
        (row("workload.codeflare.dev", "AppWrapper"), row("apps", "Deployment"), row("", "Pod"));
    for (labelled, all_managed, enabled) in
        [(true, false, true), (true, true, true), (false, true, true), (true, false, false)]
    {
        for order in [[0, 1, 2, 3], [0, 3, 2, 1], [3, 1, 2, 0]] {
            let case =
                format!("labelled {labelled}, all managed {all_managed}, enabled {enabled}, {order:?}");
            let names: &[&str] = if enabled { &[] } else { &["workload.codeflare.dev/appwrapper", "pod"] };
            let mut server = server(names, all_managed);
            let queue = if labelled { "lq" } else { "" };
            let web = below(named(deployment, "web", queue), wrapper, "serving");
            let (set, set_reference) = replica_set("web-1", &reference(deployment, "web"));
            let replica = under(named(pod, "web-1-a", queue), &set_reference);
            for step in order {
                match step {
                    0 => submit(&mut server, wrapper, named(wrapper, "serving", "lq")),
                    1 => server.load(kind_of(deployment), web.clone()),
                    2 => server.load(Kind::ReplicaSet, set.clone()),
                    // No controller makes the pod before its owner; where the manager sees it first, its review came too early.
                    _ if order[0] == 3 => server.load(Kind::Pod, replica.clone()),
                    _ => match server.admit(pod, replica.clone(), None) {
                        Ok(object) => server.load(Kind::Pod, object),
                        Err(message) => {
                            assert!(order[1] == 3 && message.contains("not found"), "{case}: {message}");
                        }
                    },
                }
            }
            if server.get(Kind::Pod, "web-1-a").is_none() {
                submit(&mut server, pod, replica);
            }
            assert!(!is_gated(&server, "web-1-a"), "{case}");
            let workloads = server.all(Kind::Workload);
            assert_eq!(workloads.len(), 1, "{case}: {workloads:?}");
        }
    }
}

/// A kind that is known and not enabled between two that are: the chain goes on through its objects.
#[test]
fn jobs_below_a_kind_that_is_not_enabled() {
    let wrapper = row("workload.codeflare.dev", "AppWrapper");
    let cases = [
        (row("jobset.x-k8s.io", "JobSet"), job_row()),
        (row("ray.io", "RayJob"), row("ray.io", "RayCluster")),
        (row("kubeflow.org", "MPIJob"), job_row()),
        (row("apps", "StatefulSet"), row("", "Pod")),
        (row("kubeflow.org", "PyTorchJob"), row("", "Pod")),
    ];
    for (between, lowest) in cases {
        let case = format!("{} below {}", lowest.name, between.name);
        let names = ["workload.codeflare.dev/appwrapper", lowest.name];
        let mut server = server(&names, false);
        submit(&mut server, wrapper, named(wrapper, "top", "lq"));
        let child = below(named(lowest, "lowest", "lq"), between, "between");
        let early = server.admit(lowest, child.clone(), None).unwrap_err();
        assert!(early.contains("was not found"), "{case}: the object between is not known yet: {early}");
        server.load(kind_of(between), below(named(between, "between", "lq"), wrapper, "top"));
        submit(&mut server, lowest, child);
        let waits = if lowest.is_pod() {
            is_gated(&server, "lowest")
        } else {
            is_suspended(&server, lowest, "lowest")
        };
        assert!(!waits, "{case}: it runs on the quota of the AppWrapper");
        assert_eq!(server.all(Kind::Workload).len(), 1, "{case}");
    }
}

/// An AppWrapper around a LeaderWorkerSet, whose leader pod is the controller of the StatefulSet of its workers.
#[test]
fn workers_of_a_leader_in_an_app_wrapper() {
    let (wrapper, group, set, pod) = (
        row("workload.codeflare.dev", "AppWrapper"),
        row("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        row("apps", "StatefulSet"),
        row("", "Pod"),
    );
    let mut server = server(&[], false);
    submit(&mut server, wrapper, named(wrapper, "top", "lq"));
    let chain = [
        (group, "serve", (wrapper, "top")),
        (set, "leaders", (group, "serve")),
        (pod, "leaders-0", (set, "leaders")),
        (set, "workers", (pod, "leaders-0")),
        (pod, "workers-0", (set, "workers")),
    ];
    for (kind, name, (owner, above)) in chain {
        submit(&mut server, kind, below(named(kind, name, "lq"), owner, above));
    }
    assert!(!is_gated(&server, "leaders-0") && !is_gated(&server, "workers-0"));
    let workloads = server.all(Kind::Workload);
    assert_eq!(workloads.len(), 1, "{workloads:?}");
}

/// A Job below an object through which the chain goes on gets no default queue.
#[test]
fn jobs_that_run_on_the_quota_of_another_object_get_no_default_queue() {
    let wrapper = row("workload.codeflare.dev", "AppWrapper");
    let set = row("jobset.x-k8s.io", "JobSet");
    let mut server = server(&["workload.codeflare.dev/appwrapper", "batch/job"], false);
    server.create(
        Kind::LocalQueue,
        json!({"metadata": {"name": DEFAULT_NAME, "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
    );
    submit(&mut server, wrapper, named(wrapper, "top", "lq"));
    server.load(kind_of(set), below(named(set, "set", ""), wrapper, "top"));
    submit(&mut server, job_row(), below(named(job_row(), "job", ""), set, "set"));
    assert_eq!(server.all(Kind::Workload).len(), 1);
    let job = server.get(kind_of(job_row()), "job").unwrap();
    assert!(!job["metadata"].to_string().contains("queue-name\":\"default"), "{job}");
}

/// Pods of a Deployment in a queued AppWrapper, and the Deployment, get no default queue, and neither does a Job below a queued one.
#[test]
fn what_runs_on_the_quota_of_another_object_gets_no_default_queue() {
    let (wrapper, deployment, pod) =
        (row("workload.codeflare.dev", "AppWrapper"), row("apps", "Deployment"), row("", "Pod"));
    let mut server = server(&[], false);
    server.create(
        Kind::LocalQueue,
        json!({"metadata": {"name": DEFAULT_NAME, "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
    );
    submit(&mut server, wrapper, named(wrapper, "serving", "lq"));
    submit(&mut server, deployment, below(named(deployment, "web", ""), wrapper, "serving"));
    let (set, set_reference) = replica_set("web-1", &reference(deployment, "web"));
    server.load(Kind::ReplicaSet, set);
    submit(&mut server, pod, under(named(pod, "web-1-a", ""), &set_reference));
    assert!(!is_gated(&server, "web-1-a"), "it runs on the quota of the AppWrapper");
    submit(&mut server, job_row(), named(job_row(), "driver", "lq"));
    submit(&mut server, job_row(), below(named(job_row(), "step", ""), job_row(), "driver"));
    for (kind, name) in [(kind_of(deployment), "web"), (Kind::Pod, "web-1-a"), (kind_of(job_row()), "step")] {
        let object = server.get(kind, name).unwrap();
        assert!(!object["metadata"].to_string().contains("queue-name\":\"default"), "{object}");
    }
    assert_eq!(server.all(Kind::Workload).len(), 2, "of the AppWrapper and the Job driver");
}

/// An object that cannot be decoded is there: what is below it in no queue is left alone, and nothing is said of it. What is queued above
/// it counts.
#[test]
fn objects_below_one_that_cannot_be_decoded() {
    let (spark, wrapper) =
        (row("sparkoperator.k8s.io", "SparkApplication"), row("workload.codeflare.dev", "AppWrapper"));
    let unreadable = |queue: &str| {
        let mut object = named(spark, "odd", queue);
        object["spec"]["dynamicAllocation"] = json!({"enabled": true});
        object
    };
    let (pod, deployment) = (row("", "Pod"), row("apps", "Deployment"));
    for queue in ["", "lq"] {
        let mut server = server(&[], false);
        server.load(kind_of(spark), unreadable(queue));
        let said = server.events.iter().any(|event| event.reason == "Unreadable");
        assert_eq!(said, !queue.is_empty(), "queue {queue:?}: {:?}", server.events);
        for child in [job_row(), deployment] {
            let object = below(named(child, "child", ""), spark, "odd");
            let admitted = server.admit(child, object.clone(), None).unwrap();
            if queue.is_empty() {
                assert_eq!(admitted, object, "{}: in no queue it is left as it is", child.name);
            }
        }
        let stored = named(job_row(), "stored", "lq");
        let edited = below(stored.clone(), spark, "gone");
        let answer = server.admit(job_row(), edited, Some(&stored));
        assert!(answer.is_ok(), "a stored object is left for an owner that is not there: {answer:?}");
        // What names a queue is queued on its own, as long as the object above is not in one.
        submit(&mut server, pod, below(named(pod, "own", "lq"), spark, "odd"));
        let workloads = server.all(Kind::Workload).len();
        assert_eq!(workloads, usize::from(queue.is_empty()), "queue {queue:?}");
    }
    let mut server = server(&[], false);
    submit(&mut server, wrapper, named(wrapper, "top", "lq"));
    server.load(kind_of(spark), below(unreadable(""), wrapper, "top"));
    submit(&mut server, pod, below(named(pod, "driver", "lq"), spark, "odd"));
    assert!(!is_gated(&server, "driver"), "it runs on the quota of the AppWrapper");
    assert_eq!(server.all(Kind::Workload).len(), 1);
}

/// Without the right to read ReplicaSets, a search ends at one: nothing waits for it, neither the start nor a pod.
#[test]
fn kinds_that_cannot_be_read_end_the_search() {
    let frameworks = [row("apps", "Deployment"), row("workload.codeflare.dev", "AppWrapper"), row("", "Pod")]
        .map(|row| row.name.to_owned())
        .into();
    let settings = CoreSettings { frameworks, ..CoreSettings::default() };
    let passing = settings.passing_kinds();
    assert!(passing.contains(&Kind::ReplicaSet));
    let mut core = Reconciler::new(settings);
    let lists =
        core.kinds().to_vec().into_iter().map(|kind| {
            if passing.contains(&kind) { Delta::Unread { kind } } else { Delta::Synced { kind } }
        });
    core.apply_all(lists, Timestamp::UNIX_EPOCH);
    assert!(core.is_synced());

    let (pod, deployment) = (row("", "Pod"), row("apps", "Deployment"));
    let mut server = server(&[], false);
    let (_, set) = replica_set("web-1", &reference(deployment, "web"));
    let refused = server.admit(pod, under(named(pod, "early", "lq"), &set), None);
    assert!(refused.unwrap_err().contains("was not found"), "it is read, and not there yet");
    server.forbid(Kind::ReplicaSet);
    submit(&mut server, pod, under(named(pod, "own", "lq"), &set));
    assert_eq!(server.all(Kind::Workload).len(), 1, "it is queued by itself");
    assert!(!is_gated(&server, "own"));
    let plain = under(named(pod, "plain", ""), &set);
    assert_eq!(server.admit(pod, plain.clone(), None), Ok(plain), "it is in no queue");
}

/// A Job in a queued AppWrapper has no Workload of its own: the reason names what is queued in its place.
#[test]
fn a_job_below_a_queued_object_says_what_is_above_it() {
    let wrapper = row("workload.codeflare.dev", "AppWrapper");
    let mut server = server(&["workload.codeflare.dev/appwrapper", "batch/job"], false);
    submit(&mut server, wrapper, named(wrapper, "wrapped", "lq"));
    submit(&mut server, job_row(), below(named(job_row(), "train", "lq"), wrapper, "wrapped"));
    assert_eq!(
        server.why_no_workload("job", "train").as_deref(),
        Some("AppWrapper wrapped, which is above it, is queued in its place")
    );
    assert_eq!(server.why_no_workload("appwrapper", "wrapped"), None);
}
