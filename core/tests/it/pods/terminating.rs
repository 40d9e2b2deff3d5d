//! Pods that terminate: the status of most kinds leaves them out as soon as their operator has deleted them, and they keep the quota
//! of their Workload until they have ended. Each kind that can be suspended is tried, by its sample.

use crate::fixtures::every_job_kind::{sample, server_of_all_kinds};
use crate::fixtures::job_samples::RelatedSamples;
use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, PlayedState, Role, frameworks};
use sluice_core::reconciler::CoreSettings;

fn suspended() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.role == Role::Suspended)
}

/// Kinds whose own status tells of no pods that terminate.
fn without_terminating_pods() -> impl Iterator<Item = &'static Framework> {
    suspended().filter(|row| !row.tells_end_of_pods())
}

/// A job that was started, with a running pod.
struct Started {
    server: JobServer,
    row: &'static Framework,
    name: String,
}

/// What controls the pod of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    /// The job itself.
    Job,
    /// A batch/v1 Job that the job's operator has made.
    Child,
    /// An object that is not known: it is gone, or of a kind that is not watched.
    Unknown,
    /// None: a client has written a pod that names the Workload.
    Nothing,
    /// A Job that is not below the job.
    OtherJob,
}

fn reference(kind: (&str, &str), object: &Value) -> Value {
    json!([{"apiVersion": kind.0, "kind": kind.1, "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true}])
}

/// A Job that its owner runs.
fn child_job(owners: Option<Value>) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    let mut job = json!({"metadata": {"name": "child", "namespace": "ns"},
        "spec": {"parallelism": 1, "completions": 1, "suspend": false, "template": template},
        "status": {"active": 1}});
    if let Some(owners) = owners {
        job["metadata"]["ownerReferences"] = owners;
    }
    job
}

impl Started {
    /// Starts a job. Its status says what the operator writes once it has deleted the pods: none is active.
    fn new(row: &'static Framework) -> Self {
        let mut server = server_of_all_kinds(|_, _| {});
        server.submit(row, sample(row, "lq")).unwrap();
        let started = Self { server, row, name: row.gvk.kind.to_lowercase() };
        assert!(!started.is_suspended() && started.server.holds_quota(), "{}", row.name);
        started
    }

    fn kind(&self) -> Kind {
        Kind::of_job(JobKind::new(self.row))
    }

    fn job(&self) -> &Value {
        self.server.get(self.kind(), &self.name).unwrap()
    }

    fn is_suspended(&self) -> bool {
        self.job().pointer(self.row.fields.suspend.unwrap()) == Some(&json!(true))
    }

    fn owner(&self) -> Value {
        reference((&self.row.gvk.api_version(), self.row.gvk.kind), self.job())
    }

    /// Creates the child of the job with a running pod, as its operator does.
    fn run_child(&mut self) {
        let owner = self.owner();
        self.server.create(kind("batch", "Job"), child_job(Some(owner)));
    }

    /// Lets a pod run that names the Workload of the job.
    fn run_pod(&mut self, controller: Controller) {
        let jobs = kind("batch", "Job");
        let owners = match controller {
            Controller::Job => self.owner(),
            Controller::Unknown => json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone",
                "uid": "gone", "controller": true}]),
            Controller::Nothing => json!([]),
            Controller::Child | Controller::OtherJob => {
                let owner = self.owner();
                self.server.create(jobs, child_job((controller == Controller::Child).then_some(owner)));
                let job = self.server.get(jobs, "child").unwrap();
                let reference = reference(("batch/v1", "Job"), job);
                // The Job's own status tells of no pod: the pod alone does.
                self.server.edit(jobs, "child", |job| job["status"] = json!({}));
                reference
            }
        };
        let workload = self.server.workload_name();
        self.server.create(
            Kind::Pod,
            json!({"metadata": {"name": "pod", "namespace": "ns", "ownerReferences": owners,
                    "annotations": {"kueue.x-k8s.io/workload": workload}},
                "spec": {"containers": [{"name": "c", "image": "x"}]}, "status": {"phase": "Pending"}}),
        );
        self.server.run_pod("pod");
    }

    /// The operator has deleted the pods of the job that was suspended, and says that none is active.
    fn play_stopped(&mut self) {
        let (now, row) = (self.server.now(), self.row);
        self.server.edit(self.kind(), &self.name.clone(), |job| {
            row.play(job, &RelatedSamples, PlayedState::Stopped, now).unwrap();
        });
    }
}

/// The quota of an evicted job is free when its pods have ended, not when they are deleted.
#[test]
fn terminating_pods_hold_the_quota_of_an_evicted_job() {
    for controller in [Controller::Job, Controller::Child, Controller::Unknown] {
        for row in without_terminating_pods() {
            let case = format!("{} {controller:?}", row.name);
            let mut job = Started::new(row);
            job.run_pod(controller);
            job.server.deactivate();
            assert!(job.is_suspended(), "{case}");
            job.play_stopped();
            job.server.delete(Kind::Pod, "pod");
            let pod = job.server.get(Kind::Pod, "pod").expect("its containers run");
            assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{case}");
            assert!(job.server.holds_quota(), "{case}: its pod terminates");
            job.server.end_pod("pod");
            assert!(!job.server.holds_quota(), "{case}: its pod has ended");
        }
    }
}

/// Without its finalizer no object holds quota for the pods. The manager keeps it, and makes the next Workload when they have ended.
#[test]
fn terminating_pods_hold_the_quota_of_a_workload_that_was_removed_by_force() {
    for controller in [Controller::Job, Controller::Child, Controller::Unknown] {
        for row in without_terminating_pods() {
            let case = format!("{} {controller:?}", row.name);
            let mut job = Started::new(row);
            job.run_pod(controller);
            let workload = job.server.workload_name();
            job.server.delete(Kind::Workload, &workload);
            assert!(job.is_suspended() && job.server.holds_quota(), "{case}");
            job.play_stopped();
            job.server.edit(Kind::Workload, &workload, |workload| {
                workload["metadata"]["finalizers"] = json!([]);
            });
            assert_eq!(job.server.all(Kind::Workload), Vec::<Value>::new(), "{case}");
            assert_eq!(job.server.charged(), [workload.as_str()], "{case}: its pod runs");
            job.server.delete(Kind::Pod, "pod");
            assert_eq!(job.server.charged(), [workload.as_str()], "{case}: its pod terminates");
            job.server.end_pod("pod");
            assert_eq!(job.server.charged(), [job.server.workload_name()], "{case}: its pod has ended");
            assert!(!job.is_suspended(), "{case}: it runs again");
        }
    }
}

/// A pod that merely names a Workload that was removed by force does not keep its quota.
#[test]
fn pods_of_others_hold_no_quota_of_a_workload_that_was_removed_by_force() {
    for controller in [Controller::Nothing, Controller::OtherJob] {
        for row in without_terminating_pods() {
            let mut job = Started::new(row);
            let (kind, name) = (job.kind(), job.name.clone());
            job.run_pod(controller);
            let workload = job.server.workload_name();
            // The owner of the queue wants it no more.
            job.server.edit_queue("0");
            job.server.edit(Kind::Workload, &workload, |workload| {
                workload["metadata"]["finalizers"] = json!([]);
                workload["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
            });
            assert!(job.server.get(kind, &name).is_some() && job.is_suspended(), "{}", row.name);
            job.play_stopped();
            assert_eq!(job.server.charged(), Vec::<String>::new(), "{} {controller:?}", row.name);
        }
    }
}

/// An operator leaves the status of an object that is being deleted as it is, as KubeRay does: the end of the pods frees the quota, and
/// the Workload, for which the deletion in the foreground waits.
#[test]
fn deletion_in_the_foreground_ends_with_the_pods() {
    for row in without_terminating_pods() {
        let mut job = Started::new(row);
        job.run_pod(Controller::Job);
        let (now, kind, name) = (job.server.now(), job.kind(), job.name.clone());
        job.server.edit(kind, &name, |job| {
            row.play(job, &RelatedSamples, PlayedState::Ready, now).unwrap();
            job["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        });
        let workload = job.server.workload_name();
        job.server.delete(kind, &name);
        job.server.delete(Kind::Workload, &workload);
        job.server.delete(Kind::Pod, "pod");
        assert!(job.server.holds_quota(), "{}: its pod terminates", row.name);
        job.server.end_pod("pod");
        assert!(job.server.get(Kind::Workload, &workload).is_none(), "{}: its Workload is left", row.name);
    }
}

/// A pod that merely names the Workload does not keep its quota.
#[test]
fn pods_of_others_hold_no_quota_of_the_workload_that_they_name() {
    for controller in [Controller::Nothing, Controller::OtherJob] {
        for row in without_terminating_pods() {
            let mut job = Started::new(row);
            job.run_pod(controller);
            job.server.deactivate();
            job.play_stopped();
            assert!(!job.server.holds_quota(), "{} {controller:?}", row.name);
        }
    }
}

/// Pods of a Job below the evicted job may lack the name of the Workload. The status of the Job counts them.
#[test]
fn pods_of_a_child_hold_the_quota_of_an_evicted_job() {
    for row in without_terminating_pods() {
        let mut job = Started::new(row);
        job.run_child();
        job.server.deactivate();
        job.play_stopped();
        assert!(job.server.holds_quota(), "{}: a child has an active pod", row.name);
        let jobs = kind("batch", "Job");
        job.server.edit(jobs, "child", |child| {
            child["spec"]["suspend"] = json!(true);
            child["status"] = json!({"active": 0, "terminating": 1});
        });
        assert!(job.server.holds_quota(), "{}: a child has a pod that terminates", row.name);
        job.server.edit(jobs, "child", |child| child["status"] = json!({"active": 0, "terminating": 0}));
        assert!(!job.server.holds_quota(), "{}", row.name);
    }
}

/// A running job that its user suspends and that is still admitted starts again when its pods have ended.
#[test]
fn job_starts_again_when_the_pods_of_its_last_start_have_ended() {
    for row in without_terminating_pods() {
        let mut job = Started::new(row);
        job.run_pod(Controller::Job);
        job.server.delete(Kind::Pod, "pod");
        let (kind, name, suspend) = (job.kind(), job.name.clone(), row.fields.suspend.unwrap());
        let (parent, field) = suspend.rsplit_once('/').unwrap();
        job.server.edit(kind, &name, |job| job.pointer_mut(parent).unwrap()[field] = json!(true));
        assert!(job.is_suspended(), "{}: its pod terminates", row.name);
        job.server.end_pod("pod");
        assert!(!job.is_suspended() && job.server.holds_quota(), "{}", row.name);
    }
}

/// Where only pods say when they have ended they are watched, whatever gates are off.
#[test]
fn pods_are_watched_for_jobs_that_do_not_tell_their_end() {
    for row in suspended() {
        let mut settings =
            CoreSettings { frameworks: [row.name.to_owned()].into(), ..CoreSettings::default() };
        settings.engine.gates.topology = false;
        settings.gates.elastic_jobs = false;
        assert_eq!(settings.kinds().contains(&Kind::Pod), !row.tells_end_of_pods(), "{}", row.name);
    }
}

/// A job that is deleted in the foreground waits for its Workload, and its operator writes no status of it any more: it says for ever
/// that pods are active. Only the pods hold the quota then. The status of a batch/v1 Job is written until the end.
#[test]
fn job_that_is_deleted_in_the_foreground_ends_with_its_pods() {
    for row in suspended() {
        let mut job = Started::new(row);
        let (kind, name, now) = (job.kind(), job.name.clone(), job.server.now());
        job.server.edit(kind, &name, |job| {
            row.play(job, &RelatedSamples, PlayedState::Started, now).unwrap();
            job["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        });
        job.run_pod(Controller::Job);
        job.server.delete(kind, &name);
        let workload = job.server.workload_name();
        job.server.delete(Kind::Workload, &workload);
        assert!(job.server.holds_quota(), "{}: its pod runs", row.name);
        job.server.delete(Kind::Pod, "pod");
        assert!(job.server.holds_quota(), "{}: its pod terminates", row.name);
        job.server.end_pod("pod");
        if row.tells_end_of_pods() {
            assert!(job.server.holds_quota(), "{}: it says that pods are active", row.name);
            job.server
                .edit(kind, &name, |job| row.play(job, &RelatedSamples, PlayedState::Stopped, now).unwrap());
        }
        assert_eq!(job.server.all(Kind::Workload), Vec::<Value>::new(), "{}: its pods have ended", row.name);
    }
}

/// How a job with running pods goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// Deleted in the background.
    Deleted,
    /// Deleted, and its last finalizer was removed by force.
    Forced,
    /// Deleted while no manager ran.
    WhileNoManagerRan,
}

impl Started {
    fn go(&mut self, way: Gone) {
        let (kind, name) = (self.kind(), self.name.clone());
        match way {
            Gone::Deleted => self.server.delete(kind, &name),
            Gone::Forced => {
                self.server
                    .edit(kind, &name, |job| job["metadata"]["finalizers"] = json!(["operator/cleanup"]));
                self.server.delete(kind, &name);
                self.server.edit(kind, &name, |job| job["metadata"]["finalizers"] = json!([]));
            }
            Gone::WhileNoManagerRan => {
                let frameworks = frameworks().map(|row| row.name.to_owned()).collect();
                let settings = CoreSettings { frameworks, ..CoreSettings::default() };
                self.server.restart_after_deletion(settings, kind, &name);
            }
        }
        assert!(self.server.get(kind, &name).is_none(), "{way:?}");
    }
}

/// A job that is deleted in the background is gone before its pods have ended. They hold its quota; as in Kueue, those of a batch/v1
/// Job do not.
#[test]
fn terminating_pods_hold_the_quota_of_a_job_that_is_gone() {
    for way in [Gone::Deleted, Gone::Forced, Gone::WhileNoManagerRan] {
        for controller in [Controller::Job, Controller::Child, Controller::Unknown] {
            for row in suspended() {
                let case = format!("{} {controller:?} {way:?}", row.name);
                let mut job = Started::new(row);
                job.run_pod(controller);
                let workload = job.server.workload_name();
                job.go(way);
                if row.name == "batch/job" {
                    assert!(job.server.get(Kind::Workload, &workload).is_none(), "{case}");
                    continue;
                }
                let held = job.server.get(Kind::Workload, &workload).expect(&case);
                assert!(held["metadata"]["deletionTimestamp"].is_string(), "{case}: {held}");
                assert!(job.server.holds_quota(), "{case}: its pod runs");
                job.server.delete(Kind::Pod, "pod");
                assert!(job.server.holds_quota(), "{case}: its pod terminates");
                job.server.end_pod("pod");
                assert!(job.server.get(Kind::Workload, &workload).is_none(), "{case}: its pod has ended");
            }
        }
    }
}

/// Pods of a Job below a job that is gone may lack the name of the Workload. The status of the Job counts them.
#[test]
fn pods_of_a_child_hold_the_quota_of_a_job_that_is_gone() {
    for row in without_terminating_pods() {
        let mut job = Started::new(row);
        job.run_child();
        job.go(Gone::Deleted);
        assert!(job.server.holds_quota(), "{}: a child has an active pod", row.name);
        job.server.edit(kind("batch", "Job"), "child", |child| child["status"] = json!({"active": 0}));
        assert_eq!(job.server.all(Kind::Workload), Vec::<Value>::new(), "{}", row.name);
    }
}

/// A pod that merely names the Workload does not keep it.
#[test]
fn pods_of_others_hold_no_quota_of_a_job_that_is_gone() {
    for controller in [Controller::Nothing, Controller::OtherJob] {
        for row in without_terminating_pods() {
            let mut job = Started::new(row);
            job.run_pod(controller);
            job.go(Gone::Deleted);
            assert_eq!(job.server.all(Kind::Workload), Vec::<Value>::new(), "{} {controller:?}", row.name);
        }
    }
}
