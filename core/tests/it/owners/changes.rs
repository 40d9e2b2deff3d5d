//! Chains of controllers that change while objects below run: a queue is lost, a manager is replaced, a Workload takes the place of
//! another, pods of a group come below a job.

use crate::fixtures::every_job_kind::server_of_all_kinds;
use crate::fixtures::job_server::JobServer;
use crate::fixtures::owner_chains::{
    below, is_suspended, job_row, kind_of, named, resume, row, submit, workload,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, frameworks};
use sluice_core::reconciler::CoreSettings;

const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Workload of an object of another controller: it waits, or has quota.
const WAITS: (&str, &str) = ("QuotaReserved", "False");
const OPEN: (&str, &str) = ("Admitted", "True");

/// Settings of a manager of all kinds.
fn all_kinds() -> CoreSettings {
    let frameworks = frameworks().map(|row| row.name.to_owned()).collect();
    CoreSettings { frameworks, ..CoreSettings::default() }
}

fn gated(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap();
    pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission")
}

fn owned_by(server: &JobServer, name: &str) -> usize {
    let is_owned = |workload: &&Value| workload["metadata"]["ownerReferences"][0]["name"] == name;
    server.all(Kind::Workload).iter().filter(is_owned).count()
}

/// A pod of a group of two.
fn member(name: &str) -> Value {
    let mut pod = named(row("", "Pod"), name, "lq");
    pod["metadata"]["labels"][GROUP] = json!("group");
    pod["metadata"]["annotations"] = json!({TOTAL: "2"});
    pod
}

/// A Job that is admitted, and one below it that runs on its quota.
fn two_jobs() -> JobServer {
    let mut server = server_of_all_kinds(|_, _| {});
    submit(&mut server, job_row(), named(job_row(), "top", "lq"));
    submit(&mut server, job_row(), below(named(job_row(), "low", ""), job_row(), "top"));
    resume(&mut server, job_row(), "low");
    assert!(!is_suspended(&server, job_row(), "top") && !is_suspended(&server, job_row(), "low"));
    server
}

/// A job that loses its queue keeps its quota until its Workload ends, and so does what is below it.
#[test]
fn children_of_a_job_that_loses_its_queue_run_on_its_workload() {
    let mut server = two_jobs();
    server.edit(kind_of(job_row()), "top", |job| job["metadata"]["labels"] = json!({}));
    server.advance(SignedDuration::from_secs(30));
    assert!(!is_suspended(&server, job_row(), "low"), "the Workload still has its quota");
    assert_eq!((owned_by(&server, "top"), owned_by(&server, "low")), (1, 0));
    server.deactivate();
    server.advance(SignedDuration::from_secs(30));
    assert!(is_suspended(&server, job_row(), "low"), "it has no quota any more");
}

/// A manager that manages jobs without a queue takes the place of one that does not: a child that runs gets no Workload.
#[test]
fn children_run_on_when_all_jobs_are_managed_from_a_restart_on() {
    let mut server = two_jobs();
    server.restart(CoreSettings { manage_jobs_without_queue_name: true, ..all_kinds() });
    server.advance(SignedDuration::from_secs(30));
    assert!(!is_suspended(&server, job_row(), "top") && !is_suspended(&server, job_row(), "low"));
    assert_eq!((owned_by(&server, "top"), owned_by(&server, "low")), (1, 0));
}

/// The kind of the object above a queued Job is enabled when the manager starts again: the Job gives its Workload up.
#[test]
fn kind_of_the_owner_is_enabled_at_a_restart() {
    let set = row("jobset.x-k8s.io", "JobSet");
    let mut server = server_of_all_kinds(|core, admission| {
        core.frameworks = [job_row().name.to_owned()].into();
        admission.frameworks.clone_from(&core.frameworks);
    });
    // The manager does not read the kind yet.
    server.load_unseen(kind_of(set), named(set, "set", "lq"));
    server.load(kind_of(job_row()), below(named(job_row(), "job", "lq"), set, "set"));
    assert_eq!(owned_by(&server, "job"), 1, "it is queued by itself");
    server.restart(all_kinds());
    server.advance(SignedDuration::from_secs(30));
    assert_eq!((owned_by(&server, "set"), owned_by(&server, "job")), (1, 0), "only the JobSet is charged");
    resume(&mut server, job_row(), "job");
    assert!(!is_suspended(&server, set, "set") && !is_suspended(&server, job_row(), "job"));
}

/// Whatever kind the queued object is of, all below it starts and stops with it.
#[test]
fn tops_of_other_kinds_than_job() {
    let (torch, set) = (row("kubeflow.org", "PyTorchJob"), row("jobset.x-k8s.io", "JobSet"));
    let chains: [(&'static Framework, &[&str]); 2] = [(torch, &["a"]), (set, &["a", "b"])];
    for (top, children) in chains {
        let mut server = server_of_all_kinds(|_, _| {});
        server.edit_queue("0");
        server.load(kind_of(top), named(top, "top", "lq"));
        let mut above = (top, "top");
        for name in children {
            server.load(kind_of(job_row()), below(named(job_row(), name, ""), above.0, above.1));
            above = (job_row(), *name);
        }
        server.advance(SignedDuration::from_secs(60));
        let all = |server: &JobServer, state: bool| {
            is_suspended(server, top, "top") == state
                && children.iter().all(|name| is_suspended(server, job_row(), name) == state)
        };
        assert!(all(&server, true), "{}: it waits", top.name);
        server.edit_queue("10");
        for name in children {
            resume(&mut server, job_row(), name);
        }
        assert!(all(&server, false), "{}: it is admitted", top.name);
        server.deactivate();
        server.advance(SignedDuration::from_secs(60));
        assert!(all(&server, true), "{}: it is stopped", top.name);
    }
}

/// A Job below a pod of a group waits for the Workload of the group.
#[test]
fn job_below_a_member_of_a_group() {
    let pod = row("", "Pod");
    let mut server = server_of_all_kinds(|_, _| {});
    server.edit_queue("0");
    submit(&mut server, pod, member("first"));
    submit(&mut server, pod, member("second"));
    server.load(kind_of(job_row()), below(named(job_row(), "low", ""), pod, "first"));
    assert!(is_suspended(&server, job_row(), "low"), "the group waits");
    server.edit_queue("10");
    assert!(!gated(&server, "first") && !gated(&server, "second"));
    resume(&mut server, job_row(), "low");
    assert!(!is_suspended(&server, job_row(), "low"), "it runs on the quota of the group");
    assert_eq!(server.all(Kind::Workload).len(), 1);
}

/// Pods of a group that wait by themselves, and whose controller is queued later, are not charged apart.
#[test]
fn groups_that_come_below_a_queued_object_are_not_charged_apart() {
    let pod = row("", "Pod");
    let mut server = server_of_all_kinds(|_, _| {});
    server.edit_queue("0");
    for name in ["first", "second"] {
        submit(&mut server, pod, member(name));
    }
    for name in ["first", "second"] {
        assert!(gated(&server, name));
        server.edit(Kind::Pod, name, |pod| *pod = below(pod.clone(), job_row(), "top"));
    }
    submit(&mut server, job_row(), named(job_row(), "top", "lq"));
    assert!(gated(&server, "first") && gated(&server, "second"), "the Job waits");
    server.edit_queue("100");
    server.advance(SignedDuration::from_secs(30));
    assert!(!gated(&server, "first") && !gated(&server, "second"), "the Job is admitted");
    assert_eq!((server.all(Kind::Workload).len(), owned_by(&server, "top")), (1, 1));
}

/// State of a Workload, and what is changed in it.
type Changed<'a> = ((&'a str, &'a str), &'a dyn Fn(&mut Value));

/// A manager with an external object `t` that owns Workloads, and a Job below it; returns whether that runs.
fn child_runs(workloads: &[Changed<'_>]) -> bool {
    let mut server = server_of_all_kinds(|core, admission| {
        admission.external_kinds = [("example.com".to_owned(), "Train".to_owned())].into();
        core.external_kinds.clone_from(&admission.external_kinds);
    });
    server.edit_queue("0");
    server.create(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    server.create(
        Kind::LocalQueue,
        json!({"metadata": {"name": "lq", "namespace": "other"}, "spec": {"clusterQueue": "cq"}}),
    );
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Train", "name": "t", "uid": "uid-t",
        "controller": true}]);
    for (number, (state, change)) in workloads.iter().enumerate() {
        let mut object = workload(&format!("w{number}"), number, *state, &owner);
        change(&mut object);
        server.load(Kind::Workload, object);
    }
    let mut child = named(job_row(), "low", "");
    child["metadata"]["ownerReferences"] = owner;
    submit(&mut server, job_row(), child);
    !is_suspended(&server, job_row(), "low")
}

/// An earlier Workload that is deactivated or being deleted does not count beside a later one that is admitted, nor does one in another
/// namespace, whose owner has the same UID.
#[test]
fn which_workload_of_several_counts() {
    let as_it_is = |_: &mut Value| {};
    let inactive = |workload: &mut Value| workload["spec"]["active"] = json!(false);
    let deleting = |workload: &mut Value| {
        workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
        workload["metadata"]["finalizers"] = json!(["test/kept"]);
    };
    let elsewhere = |workload: &mut Value| workload["metadata"]["namespace"] = json!("other");
    assert!(child_runs(&[(WAITS, &inactive), (OPEN, &as_it_is)]), "the first is deactivated");
    assert!(child_runs(&[(WAITS, &deleting), (OPEN, &as_it_is)]), "the first is being deleted");
    assert!(!child_runs(&[(OPEN, &as_it_is), (WAITS, &inactive)]), "the later one is deactivated");
    assert!(!child_runs(&[(WAITS, &as_it_is), (OPEN, &elsewhere)]), "the admitted one is elsewhere");
    assert!(child_runs(&[(OPEN, &as_it_is), (WAITS, &elsewhere)]), "the one that waits is elsewhere");
}
