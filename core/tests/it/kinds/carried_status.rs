//! Workloads that take the place of others of the same job: what was counted about the job goes on.

use crate::fixtures::job_server::{JobServer, kind};
use crate::fixtures::leading_core::START;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, framework};
use sluice_core::reconciler::CoreSettings;

const LIMIT: i64 = 60;
const LIMIT_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";

/// A job, and the field that makes it larger.
struct Case {
    row: &'static Framework,
    is_elastic: bool,
    spec: Value,
    size: &'static str,
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn cases() -> Vec<Case> {
    let case = |group, kind, is_elastic, spec, size| Case {
        row: framework(group, kind).unwrap(),
        is_elastic,
        spec,
        size,
    };
    let job = || json!({"parallelism": 1, "completions": 1000, "template": template()});
    vec![
        case("batch", "Job", false, job(), "/spec/parallelism"),
        case("batch", "Job", true, job(), "/spec/parallelism"),
        case(
            "kubeflow.org",
            "PyTorchJob",
            false,
            json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template()}}}),
            "/spec/pytorchReplicaSpecs/Worker/replicas",
        ),
        case(
            "jobset.x-k8s.io",
            "JobSet",
            false,
            json!({"replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": job()}}]}),
            "/spec/replicatedJobs/0/replicas",
        ),
        case(
            "ray.io",
            "RayCluster",
            true,
            json!({"enableInTreeAutoscaling": true, "headGroupSpec": {"template": template()}, "workerGroupSpecs": [
                {"groupName": "a", "replicas": 1, "minReplicas": 1, "maxReplicas": 90, "template": template()}]}),
            "/spec/workerGroupSpecs/0/replicas",
        ),
    ]
}

fn settings(case: &Case) -> CoreSettings {
    CoreSettings { frameworks: [case.row.name.to_owned()].into(), ..CoreSettings::default() }
}

fn server(case: &Case, limit: Option<&str>) -> (JobServer, Kind) {
    let mut server = JobServer::with_settings(settings(case), AdmissionSettings::default(), "100");
    let mut metadata = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    if let Some(limit) = limit {
        metadata["labels"][LIMIT_LABEL] = json!(limit);
    }
    if case.is_elastic {
        metadata["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    }
    server.submit(case.row, json!({"metadata": metadata, "spec": case.spec})).unwrap();
    assert!(server.holds_quota(), "{}", case.row.name);
    (server, kind(case.row.gvk.group, case.row.gvk.kind))
}

/// Returns how long the job has run, in seconds: it has been admitted since the beginning, apart from the seconds of a replacement.
fn elapsed(server: &JobServer) -> i64 {
    server.now().as_second() - START
}

fn is_true(workload: &Value, name: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == name && c["status"] == "True"))
}

/// Returns the only Workload that has not finished.
fn used(server: &JobServer) -> Value {
    let mut all = server.all(Kind::Workload);
    all.retain(|workload| !is_true(workload, "Finished"));
    let [one] = &all[..] else { panic!("{all:?}") };
    one.clone()
}

fn used_name(server: &JobServer) -> String {
    used(server)["metadata"]["name"].as_str().unwrap().to_owned()
}

fn is_deactivated(server: &JobServer) -> bool {
    server.all(Kind::Workload).iter().any(|workload| workload["spec"]["active"] == json!(false))
}

fn resize(server: &mut JobServer, kind: Kind, case: &Case) {
    server.edit(kind, "j", |job| {
        let size = job.pointer_mut(case.size).unwrap();
        *size = json!(size.as_i64().unwrap() + 1);
    });
}

/// How the Workload of a job is replaced.
#[derive(Clone, Copy, Debug)]
enum Replaced {
    ByResize,
    ByItsUser,
    WhileThereIsNoManager,
}

const WAYS: [Replaced; 3] = [Replaced::ByResize, Replaced::ByItsUser, Replaced::WhileThereIsNoManager];

fn replace(server: &mut JobServer, kind: Kind, case: &Case, way: Replaced) {
    match way {
        Replaced::ByResize => resize(server, kind, case),
        Replaced::ByItsUser => {
            let name = used_name(server);
            server.delete(Kind::Workload, &name);
        }
        Replaced::WhileThereIsNoManager => {
            let name = used_name(server);
            server.restart_after_deletion(settings(case), Kind::Workload, &name);
        }
    }
}

/// However its Workload is replaced, a job runs no longer than it may.
#[test]
fn limit_of_a_job_holds_for_all_its_workloads() {
    for case in cases() {
        for way in WAYS {
            let (mut server, kind) = server(&case, Some(&LIMIT.to_string()));
            for _ in 0..3 {
                server.advance(SignedDuration::from_secs(13));
                assert!(!is_deactivated(&server), "{} {way:?}: after {} s", case.row.name, elapsed(&server));
                replace(&mut server, kind, &case, way);
                assert!(is_true(&used(&server), "Admitted"), "{} {way:?}", case.row.name);
            }
            assert!(elapsed(&server) < LIMIT, "the times of this test");
            server.advance(SignedDuration::from_secs(LIMIT - elapsed(&server) + 5));
            assert!(is_deactivated(&server), "{} {way:?}: {:?}", case.row.name, used(&server)["status"]);
        }
    }
}

/// Whenever the manager is killed, nothing is counted twice, or lost.
#[test]
fn time_is_counted_once_whenever_the_manager_is_killed() {
    for case in cases() {
        for way in WAYS {
            for writes in 0..12 {
                let (mut server, kind) = server(&case, Some("1000"));
                server.advance(SignedDuration::from_secs(100));
                server.dies_after = Some(writes);
                match way {
                    Replaced::WhileThereIsNoManager => {
                        let name = used_name(&server);
                        server.delete(Kind::Workload, &name);
                        resize(&mut server, kind, &case);
                    }
                    Replaced::ByResize | Replaced::ByItsUser => replace(&mut server, kind, &case, way),
                }
                server.restart(settings(&case));
                server.advance(SignedDuration::from_secs(61));
                let workload = used(&server);
                assert!(is_true(&workload, "Admitted"), "{} {way:?} {writes}", case.row.name);
                let past = workload["status"]["accumulatedPastExecutionTimeSeconds"].as_i64().unwrap_or(0);
                let admitted = workload["status"]["conditions"].as_array().unwrap().iter();
                let admitted = admitted.clone().find(|condition| condition["type"] == "Admitted").unwrap();
                let since: jiff::Timestamp =
                    admitted["lastTransitionTime"].as_str().unwrap().parse().unwrap();
                let total = past + server.now().duration_since(since).as_secs();
                let lost = elapsed(&server) - total;
                assert!(
                    (0..=6).contains(&lost),
                    "{} {way:?} {writes}: {total} s, {lost} s lost",
                    case.row.name
                );
            }
        }
    }
}

/// Each Workload that makes room for another one is deleted by one write.
#[test]
fn a_replaced_workload_is_deleted_once() {
    for case in cases() {
        let (mut server, kind) = server(&case, Some("10000"));
        for round in 1..=10 {
            server.advance(SignedDuration::from_secs(600));
            resize(&mut server, kind, &case);
            assert!(is_true(&used(&server), "Admitted"), "{} {round}", case.row.name);
        }
        server.advance(SignedDuration::from_secs(600));
        let mut deleted: Vec<_> =
            server.deletions.iter().filter(|(kind, ..)| *kind == Kind::Workload).collect();
        let sent = deleted.len();
        deleted.sort();
        deleted.dedup();
        assert_eq!(sent, deleted.len(), "{}: {deleted:?}", case.row.name);
        assert_eq!(deleted.len(), if case.is_elastic { 0 } else { 10 }, "{}: {deleted:?}", case.row.name);
    }
}

/// Counts and back-off go with the job, also without a limit.
#[test]
fn requeues_evictions_and_backoff_go_to_the_next_workload() {
    for case in cases() {
        let (mut server, _) = server(&case, None);
        server.edit_queue("0");
        let name = used_name(&server);
        server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(false));
        server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(true));
        let until = server.now().checked_add(SignedDuration::from_secs(600)).unwrap();
        let evictions = used(&server)["status"]["schedulingStats"].clone();
        assert!(evictions["evictions"][0]["count"].is_i64(), "{}", case.row.name);
        server.edit(Kind::Workload, &name, |workload| {
            workload["status"]["requeueState"] = json!({"count": 3, "requeueAt": until.to_string()});
        });
        server.edit_queue("100");
        assert!(!is_true(&used(&server), "QuotaReserved"), "{}", case.row.name);
        for _ in 0..2 {
            let name = used_name(&server);
            server.delete(Kind::Workload, &name);
            let next = used(&server);
            assert!(next["metadata"]["name"] != json!(name), "{}", case.row.name);
            server.advance(SignedDuration::from_secs(100));
            assert!(!is_true(&used(&server), "QuotaReserved"), "{}: it backs off", case.row.name);
        }
        server.advance(SignedDuration::from_secs(500));
        let status = &used(&server)["status"];
        assert!(is_true(&used(&server), "Admitted"), "{}", case.row.name);
        assert_eq!(status["requeueState"], json!({"count": 3}), "{}", case.row.name);
        assert_eq!(status["schedulingStats"], evictions, "{}", case.row.name);
    }
}

/// Nor does it matter whether the Workload waits for the next one: a client may take its finalizers from it before it deletes it, or after.
#[test]
fn counts_outlive_workloads_that_are_removed_by_force() {
    for case in cases() {
        for finalized in [true, false] {
            let (mut server, _) = server(&case, Some(&LIMIT.to_string()));
            let name = used_name(&server);
            server.edit(Kind::Workload, &name, |workload| {
                workload["status"]["requeueState"] = json!({"count": 3});
            });
            for _ in 0..3 {
                server.advance(SignedDuration::from_secs(13));
                assert!(!is_deactivated(&server), "{}: after {} s", case.row.name, elapsed(&server));
                let name = used_name(&server);
                if finalized {
                    server.remove_by_force(Kind::Workload, &name);
                } else {
                    server.edit_unseen(Kind::Workload, &name, |workload| {
                        workload["metadata"]["finalizers"] = json!([]);
                    });
                    server.delete(Kind::Workload, &name);
                }
                server.advance(SignedDuration::from_secs(1));
                let next = used(&server);
                assert!(is_true(&next, "Admitted"), "{}: {next:?}", case.row.name);
                assert_eq!(next["status"]["requeueState"]["count"], 3, "{}", case.row.name);
            }
            server.advance(SignedDuration::from_secs(LIMIT - elapsed(&server) + 5));
            assert!(is_deactivated(&server), "{}: {:?}", case.row.name, used(&server)["status"]);
        }
    }
}

/// Deleting the Workload of a job whose time is used up gives the job no time.
#[test]
fn used_up_time_is_no_new_time_for_the_next_workload() {
    for case in cases() {
        let (mut server, _) = server(&case, Some(&LIMIT.to_string()));
        server.advance(SignedDuration::from_secs(LIMIT + 1));
        assert!(is_deactivated(&server), "{}", case.row.name);
        let name = used_name(&server);
        server.delete(Kind::Workload, &name);
        assert!(used_name(&server) != name && is_deactivated(&server), "{}", case.row.name);
        // Its user may give it more.
        let name = used_name(&server);
        server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(true));
        server.advance(SignedDuration::from_secs(LIMIT / 2));
        assert!(!is_deactivated(&server) && is_true(&used(&server), "Admitted"), "{}", case.row.name);
        server.advance(SignedDuration::from_secs(LIMIT / 2 + 5));
        assert!(is_deactivated(&server), "{}", case.row.name);
    }
}

/// A Workload that waits for the next one goes with its job, whatever keeps that from being made.
#[test]
fn nothing_is_left_of_a_job_that_is_gone() {
    for case in cases() {
        let (mut server, kind) = server(&case, Some(&LIMIT.to_string()));
        server.advance(SignedDuration::from_secs(6));
        server.edit(kind, "j", |job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("missing");
        });
        let name = used_name(&server);
        server.delete(Kind::Workload, &name);
        let left = used(&server);
        assert!(left["metadata"]["deletionTimestamp"].is_string(), "{}: {left:?}", case.row.name);
        assert!(!is_true(&left, "QuotaReserved"), "{}: it holds no quota", case.row.name);
        server.advance(SignedDuration::from_secs(600));
        assert_eq!(used_name(&server), name, "{}", case.row.name);
        server.delete(kind, "j");
        assert_eq!(server.all(Kind::Workload), Vec::<Value>::new(), "{}", case.row.name);
    }
}

/// A Workload without anything to hand over keeps its name.
#[test]
fn name_stays_where_nothing_was_counted() {
    for case in cases().into_iter().filter(|case| !case.is_elastic) {
        let (mut server, _) = server(&case, None);
        server.advance(SignedDuration::from_secs(6));
        let (name, uid) = (used_name(&server), used(&server)["metadata"]["uid"].clone());
        server.delete(Kind::Workload, &name);
        assert_eq!(used_name(&server), name, "{}", case.row.name);
        assert!(used(&server)["metadata"]["uid"] != uid, "{}", case.row.name);
    }
}
