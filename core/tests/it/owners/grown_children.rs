//! Jobs that run on the quota of a JobSet above them: they do not grow beyond what its Workload is charged for.

use crate::fixtures::job_server::{JobServer, kind};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::frameworks::framework;

fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// A queue of 4 CPUs with a JobSet of two pods, which runs, and the Job that its controller has made for one of them.
fn server() -> JobServer {
    server_of(1, 1)
}

/// A queue of 4 CPUs with a JobSet of as many Jobs of two pods, which runs, and the Jobs that its controller has made, with fewer pods.
fn server_of(jobs: usize, pods: i64) -> JobServer {
    let mut server = JobServer::new(&["batch/job", "jobset.x-k8s.io/jobset"], "4");
    let job = json!({"spec": {"parallelism": 2, "completions": 4, "template": template(&json!({}))}});
    let sets = kind("jobset.x-k8s.io", "JobSet");
    server.create(
        sets,
        json!({"metadata": {"name": "js", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "replicatedJobs": [{"name": "a", "replicas": jobs, "template": job}]}}),
    );
    let set = server.get(sets, "js").unwrap();
    assert_eq!(set["spec"]["suspend"], false);
    let labels = &set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["kueue.x-k8s.io/podset"], "a");
    let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js",
        "uid": set["metadata"]["uid"], "controller": true});
    let child = |index: usize| {
        json!({
            "metadata": {"name": format!("js-a-{index}"), "namespace": "ns", "ownerReferences": [owner]},
            "spec": {"parallelism": pods, "completions": 4, "suspend": false, "template": template(labels)},
        })
    };
    for child in (0..jobs).map(child).collect::<Vec<_>>() {
        server.create(JOB, child);
    }
    server
}

/// Returns the error of a change of the first child.
fn changed(server: &JobServer, change: impl FnOnce(&mut Value)) -> Option<String> {
    changed_of(server, "js-a-0", change)
}

fn changed_of(server: &JobServer, name: &str, change: impl FnOnce(&mut Value)) -> Option<String> {
    let old = server.get(JOB, name).unwrap().clone();
    let mut new = old.clone();
    change(&mut new);
    server.admit(framework("batch", "Job").unwrap(), new, Some(&old)).err()
}

fn said(server: &JobServer) -> Vec<&str> {
    let events = server.events.iter().filter(|event| event.reason == "PodExceedsWorkload");
    events.map(|event| &*event.note).collect()
}

#[test]
fn child_does_not_grow_beyond_its_pod_set() {
    let server = server();
    let to = |pods: i64| move |job: &mut Value| job["spec"]["parallelism"] = json!(pods);
    assert_eq!(changed(&server, to(2)), None, "there is quota for two");
    assert_eq!(changed(&server, to(0)), None);
    let refused = changed(&server, to(3)).expect("there is none for three");
    assert!(refused.contains("JobSet js") && refused.contains("has quota for 2"), "{refused}");
    let suspended = changed(&server, |job| {
        to(3)(job);
        job["spec"]["suspend"] = json!(true);
    });
    assert_eq!(suspended, None, "it does not run");
}

fn with_pods(pods: i64) -> impl Fn(&mut Value) {
    move |job: &mut Value| job["spec"]["parallelism"] = json!(pods)
}

/// Each Job may have all pods of the pod set alone, and not beside others.
#[test]
fn children_do_not_grow_beyond_their_pod_set_together() {
    for labels in [None, Some(json!({}))] {
        let mut server = server_of(2, 2);
        for name in ["js-a-0", "js-a-1"] {
            let labels = labels.clone();
            server.edit(JOB, name, |job| {
                if let Some(labels) = labels {
                    job["spec"]["template"]["metadata"]["labels"] = labels;
                }
            });
        }
        let refused = changed(&server, with_pods(3)).expect("the other one has two");
        let says =
            ["JobSet js", "has quota for 2 of these pods beside those of the others below its controller"];
        assert!(says.iter().all(|text| refused.contains(text)), "{refused}");
        // As much as another one gives up.
        server.edit(JOB, "js-a-1", with_pods(1));
        assert_eq!(changed(&server, with_pods(3)), None);
        server.edit(JOB, "js-a-0", with_pods(3));
        assert!(changed_of(&server, "js-a-1", with_pods(2)).is_some());
        // It is no way around that to grow while suspended.
        server.edit(JOB, "js-a-1", |job| {
            with_pods(4)(job);
            job["spec"]["suspend"] = json!(true);
        });
        let start = |job: &mut Value| job["spec"]["suspend"] = json!(false);
        assert!(changed_of(&server, "js-a-1", start).is_some());
        assert_eq!(changed(&server, with_pods(4)), None, "the other one has no pods");
        assert_eq!(said(&server), Vec::<&str>::new());
    }
}

/// Those that have ended, and those that are replaced, leave their pods to others. What a controller makes is not compared.
#[test]
fn children_that_are_over_leave_their_pods() {
    let mut server = server_of(2, 2);
    let made = server.get(JOB, "js-a-1").unwrap().clone();
    server.edit(JOB, "js-a-1", |job| {
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    });
    assert_eq!(changed(&server, with_pods(4)), None);
    server.edit(JOB, "js-a-0", with_pods(4));
    server.delete(JOB, "js-a-1");
    assert!(server.admit(framework("batch", "Job").unwrap(), made, None).is_ok());
}

/// While no webhook answers, they grow together, and an event says so on one that has.
#[test]
fn children_that_have_grown_together_are_said() {
    let mut server = server_of(2, 2);
    assert_eq!(said(&server), Vec::<&str>::new());
    server.edit(JOB, "js-a-0", with_pods(4));
    let note = *said(&server).first().expect("it has grown");
    assert!(note.contains("4 pods") && note.contains("charged for 2 beside those of the others"), "{note}");
    assert_eq!(changed(&server, with_pods(3)), None, "it shrinks");
}

/// It does not start with more pods than it may have, either.
#[test]
fn suspended_child_does_not_start_beyond_its_pod_set() {
    let mut server = server();
    for (pods, refused) in [(2, false), (3, true)] {
        server.edit(JOB, "js-a-0", |job| {
            job["spec"]["parallelism"] = json!(pods);
            job["spec"]["suspend"] = json!(true);
        });
        let started = changed(&server, |job| job["spec"]["suspend"] = json!(false));
        assert_eq!(started.is_some(), refused, "{pods}: {started:?}");
    }
}

fn set_cpu(job: &mut Value, cpu: &str) {
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
}

/// Newer API servers let the template of a suspended Job be changed. It does not start with pods that request more.
#[test]
fn child_does_not_start_with_larger_pods() {
    let mut server = server();
    for (cpu, refused) in [("500m", false), ("1", false), ("64", true)] {
        server.edit(JOB, "js-a-0", |job| {
            set_cpu(job, cpu);
            job["spec"]["suspend"] = json!(true);
        });
        let started = changed(&server, |job| job["spec"]["suspend"] = json!(false));
        assert_eq!(started.is_some(), refused, "{cpu}: {started:?}");
        if let Some(error) = started {
            let says = ["spec.template.spec", "64 of cpu", "JobSet js", "asks for 1:"];
            assert!(says.iter().all(|text| error.contains(text)), "{error}");
        }
        let waits = changed(&server, |job| set_cpu(job, "128"));
        assert_eq!(waits, None, "it does not run");
    }
    assert_eq!(said(&server), Vec::<&str>::new(), "none has run");
}

/// A resource of which the pod set requests nothing counts, and so does a template of no known pod set.
#[test]
fn pods_of_a_child_do_not_grow() {
    let mut server = server();
    let to = |cpu: &'static str| move |job: &mut Value| set_cpu(job, cpu);
    for labels in [json!({"kueue.x-k8s.io/podset": "a"}), json!({})] {
        server.edit(JOB, "js-a-0", |job| job["spec"]["template"]["metadata"]["labels"] = labels.clone());
        assert_eq!(changed(&server, to("1")), None);
        let refused = changed(&server, to("1001m")).expect("the pod set requests 1");
        assert!(refused.contains("1001m of cpu"), "{refused}");
        let memory = changed(&server, |job| {
            job["spec"]["template"]["spec"]["initContainers"] =
                json!([{"name": "i", "image": "x", "resources": {"limits": {"memory": "1Gi"}}}]);
        });
        assert!(memory.as_ref().is_some_and(|error| error.contains("1Gi of memory")), "{memory:?}");
    }
}

/// A controller may make a child of its own that requests more, as of a TrainJob: it starts as in Kueue, and an event says by how much it
/// exceeds its job. One that is known to be of a pod set does not start.
#[test]
fn child_of_no_pod_set_that_was_made_larger_starts() {
    for (labels, starts) in [(json!({}), true), (json!({"kueue.x-k8s.io/podset": "a"}), false)] {
        let mut server = server();
        server.edit(JOB, "js-a-0", |job| {
            set_cpu(job, "2");
            job["spec"]["suspend"] = json!(true);
            job["spec"]["template"]["metadata"]["labels"] = labels.clone();
        });
        let resumed = changed(&server, |job| job["spec"]["suspend"] = json!(false));
        assert_eq!(resumed.is_none(), starts, "{resumed:?}");
    }
}

/// While no webhook answers, they grow, and an event says by how much.
#[test]
fn child_whose_pods_have_grown_is_said() {
    let mut server = server();
    server.edit(JOB, "js-a-0", |job| set_cpu(job, "500m"));
    assert_eq!(said(&server), Vec::<&str>::new());
    server.edit(JOB, "js-a-0", |job| set_cpu(job, "64"));
    let [note] = said(&server)[..] else { panic!("{:?}", server.events) };
    assert!(note.contains("64 of cpu") && note.contains("charged for 1:"), "{note}");
    // They can be made smaller again, although they are still too large.
    assert_eq!(changed(&server, |job| set_cpu(job, "32")), None);
}

/// A RuntimeClass may have an overhead, and a claim is charged by no queue: their amounts are in no template.
#[test]
fn pods_of_a_child_get_no_other_runtime_class_and_no_claim() {
    let class = |job: &mut Value| job["spec"]["template"]["spec"]["runtimeClassName"] = json!("kata");
    let claim = |job: &mut Value| {
        job["spec"]["template"]["spec"]["resourceClaims"] =
            json!([{"name": "g", "resourceClaimTemplateName": "gpu"}]);
    };
    let changes: [fn(&mut Value); 2] = [class, claim];
    for (name, change) in ["runtimeClassName kata", "resourceClaim gpu"].into_iter().zip(changes) {
        let mut server = server();
        let refused = changed(&server, change).expect("the JobSet has none");
        assert!(refused.contains(&format!("1 of {name}")), "{refused}");
        server.edit(JOB, "js-a-0", change);
        let [note] = said(&server)[..] else { panic!("{:?}", server.events) };
        assert!(note.contains(&format!("1 of {name}")), "{note}");
        assert_eq!(changed(&server, |job| set_cpu(job, "500m")), None, "it had that before");
    }
}

/// One without the label that a start writes is bounded by all that its JobSet is charged for.
#[test]
fn child_of_an_unknown_pod_set_does_not_grow_beyond_its_job() {
    let mut server = server();
    server.edit(JOB, "js-a-0", |job| job["spec"]["template"]["metadata"]["labels"] = json!({}));
    let to = |pods: i64| move |job: &mut Value| job["spec"]["parallelism"] = json!(pods);
    assert_eq!(changed(&server, to(2)), None);
    let refused = changed(&server, to(3)).expect("the JobSet has quota for two");
    assert!(refused.contains("has quota for 2"), "{refused}");
}

/// While no webhook answers, it grows, and an event says by how much.
#[test]
fn child_that_has_grown_is_said() {
    let mut server = server();
    server.edit(JOB, "js-a-0", |job| job["spec"]["parallelism"] = json!(2));
    assert_eq!(said(&server), Vec::<&str>::new());
    server.edit(JOB, "js-a-0", |job| job["spec"]["parallelism"] = json!(4));
    let [note] = said(&server)[..] else { panic!("{:?}", server.events) };
    assert!(note.contains("4 pods") && note.contains("charged for 2"), "{note}");
    // It can be made smaller again, although it is still too large.
    assert_eq!(changed(&server, |job| job["spec"]["parallelism"] = json!(3)), None);
}
