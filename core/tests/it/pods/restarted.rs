//! Jobs that run pods again that had succeeded, and whose quota was given away: what runs is charged, or stopped.

use crate::fixtures::job_samples::related;
use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::leading_core::job;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, Reclaimable, framework, frameworks};

/// A queue of 4 CPUs and a JobSet or TrainJob whose four Jobs run, of which each asks for 1 CPU.
struct Restarting {
    server: JobServer,
    kind: Kind,
    name: &'static str,
    /// Field of the status with the counts of its Jobs.
    counts: &'static str,
}

const KINDS: [&str; 2] = ["JobSet", "TrainJob"];

fn requests() -> Value {
    json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}])
}

impl Restarting {
    fn new(which: &str) -> Self {
        let frameworks = ["batch/job", "pod", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"];
        let mut server = JobServer::new(&frameworks, "4");
        let template = json!({"spec": {"parallelism": 1, "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": requests()}}}});
        let replicated = json!([{"name": "w", "replicas": 4, "template": template}]);
        let meta = |name: &str| json!({"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        let jobs = kind("jobset.x-k8s.io", "JobSet");
        let (kind, name, counts) = if which == "JobSet" {
            let row = framework("jobset.x-k8s.io", "JobSet").unwrap();
            let spec = json!({"replicatedJobs": replicated});
            server.submit(row, json!({"metadata": meta("set"), "spec": spec})).unwrap();
            (jobs, "set", "replicatedJobsStatus")
        } else {
            let row = framework("trainer.kubeflow.org", "TrainJob").unwrap();
            let mut runtimes =
                related().into_iter().filter(|(_, object)| object["kind"] == "ClusterTrainingRuntime");
            let (runtimes, mut runtime) = runtimes.next().unwrap();
            let jobs = &mut runtime["spec"]["template"]["spec"]["replicatedJobs"];
            let mut node = jobs[1].clone();
            node.as_object_mut().unwrap().shift_remove("dependsOn");
            node["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                json!("0");
            *jobs = json!([replicated[0], node]);
            server.create(runtimes, runtime);
            let runtime = json!({"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime",
                "name": "sample-runtime"});
            let spec = json!({"runtimeRef": runtime});
            server.submit(row, json!({"metadata": meta("train"), "spec": spec})).unwrap();
            (Kind::of_job(JobKind::new(row)), "train", "jobsStatus")
        };
        let mut job = Self { server, kind, name, counts };
        assert!(!job.is_suspended(), "{which}");
        job.count(4, 0);
        job
    }

    fn is_suspended(&self) -> bool {
        self.server.get(self.kind, self.name).unwrap()["spec"]["suspend"] == true
    }

    /// Its controller counts active and succeeded Jobs.
    fn count(&mut self, active: i32, succeeded: i32) {
        let counts = json!([{"name": "w", "ready": active, "active": active, "succeeded": succeeded, "failed": 0,
            "suspended": 0}]);
        let field = self.counts;
        self.server.edit(self.kind, self.name, |job| job["status"][field] = counts);
    }

    fn workload(&self) -> Value {
        let mut all = self.server.all(Kind::Workload).into_iter();
        all.find(|workload| workload["metadata"]["ownerReferences"][0]["name"] == self.name).unwrap()
    }

    fn holds(&self, condition: &str) -> Option<String> {
        let workload = self.workload();
        let conditions = workload["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == condition && c["status"] == "True")?;
        Some(found["reason"].as_str()?.to_owned())
    }
}

fn batch() -> Kind {
    kind("batch", "Job")
}

/// A Job of 2 CPUs.
fn other(server: &mut JobServer) {
    let mut other = job("other");
    other["spec"]["parallelism"] = json!(2);
    other["spec"]["completions"] = json!(2);
    other["spec"]["template"]["spec"]["containers"] = requests();
    server.create(batch(), other);
}

fn runs(server: &JobServer) -> bool {
    server.get(batch(), "other").unwrap()["spec"]["suspend"] == false
}

/// Others have got the quota of the Jobs that had succeeded: the job is stopped, and queued with all of them. No other is preempted.
#[test]
fn job_whose_pods_restart_without_quota_is_queued_again() {
    for which in KINDS {
        let mut job = Restarting::new(which);
        job.count(2, 2);
        assert_eq!(
            job.workload()["status"]["reclaimablePods"],
            json!([{"name": "w", "count": 2}]),
            "{which}"
        );
        other(&mut job.server);
        assert!(runs(&job.server), "{which}");
        job.count(4, 0);
        assert!(job.is_suspended(), "{which}: {}", job.workload());
        assert_eq!(job.holds("Evicted").as_deref(), Some("PodsRestarted"), "{which}");
        let told =
            job.server.events.iter().find(|event| event.reason == "EvictedDueToPodsRestarted").unwrap();
        assert!(told.note.contains("cpu in flavor f"), "{which}: {}", told.note);
        job.count(0, 0);
        let workload = job.workload();
        assert!(runs(&job.server) && job.holds("QuotaReserved").is_none(), "{which}: {workload}");
        assert_eq!(workload["status"]["reclaimablePods"], Value::Null, "{which}");
        assert_eq!(job.holds("Requeued").as_deref(), Some("PodsRestarted"), "{which}");
        job.server.edit(batch(), "other", |job| {
            job["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "message": ""}]});
        });
        assert!(!job.is_suspended(), "{which}");
    }
}

/// There is quota: it is charged for all of them again, and others wait.
#[test]
fn job_whose_pods_restart_takes_free_quota_back() {
    for which in KINDS {
        let mut job = Restarting::new(which);
        job.count(2, 2);
        job.count(4, 0);
        assert!(!job.is_suspended(), "{which}");
        assert_eq!(job.workload()["status"]["reclaimablePods"], Value::Null, "{which}");
        other(&mut job.server);
        assert!(!runs(&job.server), "{which}");
        // Jobs that succeed after the restart are reclaimed again, a while later.
        job.count(2, 2);
        job.server.advance(SignedDuration::from_mins(1));
        assert!(runs(&job.server), "{which}: {}", job.workload());
    }
}

/// The restart of one Job alone takes the quota of one back, while another still counts as succeeded.
#[test]
fn restart_of_one_job_takes_its_quota_back() {
    for which in KINDS {
        let mut job = Restarting::new(which);
        job.count(2, 2);
        job.count(3, 1);
        assert_eq!(
            job.workload()["status"]["reclaimablePods"],
            json!([{"name": "w", "count": 1}]),
            "{which}"
        );
    }
}

/// A status that changes to and fro each second.
#[test]
fn counts_that_change_to_and_fro_cause_few_writes() {
    let mut job = Restarting::new("JobSet");
    let (before, begin) = (job.server.writes, job.server.now());
    for second in 0..600 {
        let succeeded = if second % 2 == 0 { 2 } else { 0 };
        job.count(4 - succeeded, succeeded);
        job.server.advance(SignedDuration::from_secs(1));
    }
    let writes = i64::try_from(job.server.writes - before).unwrap();
    let seconds = job.server.now().duration_since(begin).as_secs();
    // Each time two of the Workload and of both its queues: after 10, 20, 40 and more seconds, and then each ten minutes.
    let most = 2 * 3 * (8 + seconds / 600);
    assert!(writes <= most, "{writes} writes in {seconds} s");
}

/// What a manager reads when it starts says the same.
#[test]
fn manager_that_starts_sees_that_pods_have_restarted() {
    let mut job = Restarting::new("JobSet");
    job.count(2, 2);
    other(&mut job.server);
    let settings = sluice_core::reconciler::CoreSettings {
        frameworks: ["batch/job", "jobset.x-k8s.io/jobset"].map(str::to_owned).into(),
        ..sluice_core::reconciler::CoreSettings::default()
    };
    let counts = json!([{"name": "w", "ready": 4, "active": 4, "succeeded": 0, "failed": 0, "suspended": 0}]);
    job.server.restart_after_edit(settings, (job.kind, job.name), |set| {
        set["status"]["replicatedJobsStatus"] = counts;
    });
    assert!(job.is_suspended() && runs(&job.server));
}

/// A pod of a group that takes the place of one that had succeeded waits for its quota.
#[test]
fn pod_that_replaces_a_succeeded_one_waits_for_its_quota() {
    let mut server = JobServer::new(&["batch/job", "pod"], "2");
    for name in ["a", "b"] {
        server.create(Kind::Pod, pod(name, Some(("g", 2))));
    }
    for name in ["a", "b"] {
        server.run_pod(name);
    }
    server.edit(Kind::Pod, "a", |pod| pod["status"]["phase"] = json!("Succeeded"));
    let mut small = job("other");
    small["spec"]["template"]["spec"]["containers"] = requests();
    server.create(batch(), small);
    assert!(runs(&server), "{:?}", server.all(Kind::Workload));
    server.delete_member("a");
    server.edit(Kind::Pod, "a", |pod| pod["metadata"]["finalizers"] = json!([]));
    server.create(Kind::Pod, pod("c", Some(("g", 2))));
    let gates =
        |server: &JobServer| server.get(Kind::Pod, "c").unwrap()["spec"].get("schedulingGates").is_some();
    assert!(gates(&server) && server.get(Kind::Pod, "b").is_some_and(|b| b["status"]["phase"] == "Running"));
    let told: Vec<_> = server.events.iter().map(|event| (&event.reason, &event.note)).collect();
    assert!(
        told.iter().any(|(reason, _)| *reason == "PodsWaitForQuota"),
        "{told:?} {:?}",
        server.all(Kind::Workload)
    );
    server.edit(batch(), "other", |job| {
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "message": ""}]});
    });
    server.advance(SignedDuration::from_secs(10));
    assert!(!gates(&server), "{:?}", server.get(Kind::Pod, "c"));
}

/// The manager alone may write fewer reclaimable pods of a Workload with quota.
#[test]
fn only_the_manager_takes_reclaimed_pods_back() {
    let mut job = Restarting::new("JobSet");
    job.count(2, 2);
    let old = job.workload();
    let mut new = old.clone();
    new["status"]["reclaimablePods"] = json!([]);
    for (manager, allowed) in [("kueue-admission", true), ("kubectl-edit", false)] {
        let request = json!({"uid": "r", "operation": "UPDATE", "namespace": "ns", "name": old["metadata"]["name"],
            "kind": {"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "Workload"}, "subResource": "status",
            "object": new, "oldObject": old, "options": {"fieldManager": manager}});
        let (is_allowed, message) = job.server.review("/validate-kueue-x-k8s-io-v1beta2-workload", &request);
        assert_eq!(is_allowed, allowed, "{manager}: {message}");
    }
}

/// Every kind that gives quota of pods back is played by this file: those above, Jobs that cannot run them again, and pod groups.
#[test]
fn kinds_that_give_quota_of_pods_back() {
    let gives = |row: &&'static Framework| !matches!(row.status.reclaimable, Reclaimable::None);
    let names: Vec<&str> = frameworks().filter(gives).map(|row| row.gvk.kind).collect();
    assert_eq!(names, ["Job", "JobSet", "TrainJob"]);
    // A Job counts the pods that have succeeded for good. That of an AppWrapper gives nothing back: its wrapper is charged.
    let pods = frameworks().filter(|row| row.is_pod()).count();
    assert_eq!(pods, 1);
}
