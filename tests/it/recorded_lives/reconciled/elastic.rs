//! Elastic jobs: they grow, wait for quota, shrink, are evicted and end. After each write the quota is right, and no pod runs
//! without it.

use super::plane::{Fault, Plane};
use super::queue;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::frameworks::JobKind;
use sluice::simulate::fake_api_server::FakeApiServer;

const JOB: Kind = Kind::Job(JobKind::BATCH_JOB);
const GATE: &str = "kueue.x-k8s.io/elastic-job";
const FAULTS: [Fault; 3] = [Fault::None, Fault::Conflicts, Fault::Kills];
/// Quota of the queue, in pods.
const QUOTA: i64 = 9;

#[test]
fn elastic_jobs_are_reconciled_as_recorded() {
    super::play_chosen("job", ("batch", "Job"), |name| name.contains("-elastic"));
}

fn holds(workload: &Value, condition: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["type"] == condition).any(|c| c["status"] == "True")
}

/// Workloads that hold quota, without those whose quota has gone over to a newer slice.
fn charged(server: &FakeApiServer) -> Vec<&Value> {
    let reserving: Vec<&Value> = server
        .all(Kind::Workload)
        .filter(|workload| holds(workload, "QuotaReserved") && !holds(workload, "Finished"))
        .collect();
    let replaced = |name: &str| {
        let key = format!("ns/{name}");
        reserving.iter().any(|other| {
            other["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] == *key
        })
    };
    let name = |workload: &Value| workload["metadata"]["name"].as_str().unwrap().to_owned();
    reserving.iter().filter(|workload| !replaced(&name(workload))).copied().collect()
}

fn pods_of(workload: &Value) -> i64 {
    workload["spec"]["podSets"][0]["count"].as_i64().unwrap()
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().into_iter().flatten().any(|gate| gate["name"] == GATE)
}

fn ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
}

/// The sum of what Workloads are charged is within the quota, and so is the number of pods that may run, job by job.
fn quota_is_right(server: &FakeApiServer) {
    let charged = charged(server);
    let sum: i64 = charged.iter().map(|workload| pods_of(workload)).sum();
    assert!(sum <= QUOTA, "{sum} pods are charged: {charged:?}");
    for job in server.all(JOB) {
        let uid = &job["metadata"]["uid"];
        let running = server.all(Kind::Pod).filter(|pod| {
            pod["metadata"]["ownerReferences"][0]["uid"] == *uid && !is_gated(pod) && !ended(pod)
        });
        let own = charged.iter().filter(|workload| workload["metadata"]["ownerReferences"][0]["uid"] == *uid);
        let most: i64 = own.map(|workload| pods_of(workload)).sum();
        assert!(i64::try_from(running.count()).unwrap() <= most, "more pods run than {most}");
    }
}

struct Story {
    plane: Plane,
    /// Number of pods made so far.
    made: usize,
}

impl Story {
    fn new(fault: Fault) -> Self {
        let mut plane = Plane::new(JobKind::BATCH_JOB, "ns", fault);
        plane.law = quota_is_right;
        queue(&mut plane);
        Self { plane, made: 0 }
    }

    fn key(&self, name: &str) -> ObjectKey {
        self.plane.key(name)
    }

    /// Creates a Job as its webhook stores it.
    fn create(&mut self, name: &str, parallelism: i64, elastic: bool) {
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        let mut metadata = json!({"name": name, "namespace": "ns", "labels": labels});
        let mut pod = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        if elastic {
            metadata["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
            pod["schedulingGates"] = json!([{"name": GATE}]);
        }
        let spec = json!({"suspend": true, "parallelism": parallelism, "template": {"spec": pod}});
        self.plane.create(JOB, &json!({"metadata": metadata, "spec": spec}));
        self.settle();
    }

    fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.plane.advance(SignedDuration::from_secs(1));
        let key = self.key(name);
        self.plane.harness.server.edit(kind, &key, change);
        self.settle();
    }

    fn scale(&mut self, parallelism: i64) {
        self.edit(JOB, "j", |job| job["spec"]["parallelism"] = json!(parallelism));
    }

    fn finish(&mut self, name: &str) {
        for key in self.plane.harness.server.keys_of(Kind::Pod) {
            let succeed = |pod: &mut Value| {
                if pod["metadata"]["ownerReferences"][0]["name"] == name {
                    pod["status"]["phase"] = json!("Succeeded");
                }
            };
            self.plane.harness.server.edit(Kind::Pod, &key, succeed);
        }
        let condition = json!({"type": "Complete", "status": "True", "reason": "Done", "message": "done"});
        self.edit(JOB, name, |job| job["status"]["conditions"] = json!([condition]));
    }

    /// Lets the manager and the controller of Jobs act until nothing is left to do.
    fn settle(&mut self) {
        loop {
            self.plane.settle();
            let jobs: Vec<Value> = self.plane.harness.server.all(JOB).cloned().collect();
            let changed = jobs.iter().map(|job| self.control(job)).collect::<Vec<_>>();
            if !changed.contains(&true) {
                return;
            }
        }
    }

    /// Does what the controller of Jobs does next. Returns whether there was anything.
    fn control(&mut self, job: &Value) -> bool {
        let (name, uid) = (job["metadata"]["name"].as_str().unwrap(), &job["metadata"]["uid"]);
        let complete = job["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
        let stopped = job["spec"]["suspend"] == true || complete;
        let wanted = if stopped { 0 } else { job["spec"]["parallelism"].as_u64().unwrap() };
        let own = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == *uid && !ended(pod);
        let mut pods: Vec<Value> = self.plane.harness.server.all(Kind::Pod).filter(own).cloned().collect();
        // Gated pods go first.
        pods.sort_by_key(|pod| (is_gated(pod), pod["metadata"]["name"].to_string()));
        let wanted = usize::try_from(wanted).unwrap();
        let now = self.plane.now();
        for pod in pods.iter().skip(wanted) {
            let key = self.key(pod["metadata"]["name"].as_str().unwrap());
            self.plane.harness.server.delete(Kind::Pod, &key, now);
        }
        for _ in pods.len()..wanted {
            self.made += 1;
            let mut pod = job["spec"]["template"].clone();
            pod["metadata"]["name"] = json!(format!("{name}-{}", self.made));
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true,
            }]);
            self.plane.create_pod(pod, false);
        }
        let active = if stopped { json!(0) } else { json!(wanted) };
        let key = self.key(name);
        let ready = pods.iter().take(wanted).filter(|pod| !is_gated(pod)).count();
        let same = job["status"]["active"] == active && job["status"]["ready"] == json!(ready);
        self.plane.harness.server.edit(JOB, &key, |job| {
            job["status"]["active"] = active;
            job["status"]["ready"] = json!(ready);
        });
        pods.len() != wanted || !same
    }

    /// Sizes of the slices that have not finished, the oldest first, each with whether it holds quota.
    fn slices(&self) -> Vec<(i64, bool)> {
        let mut all: Vec<&Value> = self
            .plane
            .harness
            .server
            .all(Kind::Workload)
            .filter(|workload| !holds(workload, "Finished"))
            .filter(|workload| workload["metadata"]["ownerReferences"][0]["name"] == "j")
            .collect();
        all.sort_by_key(|workload| workload["metadata"]["creationTimestamp"].to_string());
        all.iter().map(|workload| (pods_of(workload), holds(workload, "QuotaReserved"))).collect()
    }

    /// Reasons of the slices that have finished.
    fn ends(&self) -> Vec<String> {
        let workloads = self.plane.harness.server.all(Kind::Workload);
        let conditions = workloads.filter_map(|workload| workload["status"]["conditions"].as_array());
        let finished = conditions.flatten().filter(|condition| condition["type"] == "Finished");
        let mut reasons: Vec<String> =
            finished.map(|condition| condition["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        reasons
    }

    /// Number of pods of the Job that run, and that are gated.
    fn pods(&self) -> (usize, usize) {
        let pods = self.plane.harness.server.all(Kind::Pod);
        let own: Vec<&Value> =
            pods.filter(|pod| pod["metadata"]["ownerReferences"][0]["name"] == "j" && !ended(pod)).collect();
        let gated = own.iter().filter(|pod| is_gated(pod)).count();
        (own.len() - gated, gated)
    }

    fn suspended(&self) -> bool {
        self.plane.harness.server.get(JOB, &self.key("j")).unwrap()["spec"]["suspend"] == true
    }

    /// Name of the slice that was made first, or last.
    fn slice(&self, last: bool) -> String {
        let workloads = self.plane.harness.server.all(Kind::Workload);
        let own = workloads.filter(|workload| workload["metadata"]["ownerReferences"][0]["name"] == "j");
        let mut names: Vec<(String, String)> = own
            .map(|workload| {
                let metadata = &workload["metadata"];
                (metadata["creationTimestamp"].to_string(), metadata["name"].as_str().unwrap().to_owned())
            })
            .collect();
        names.sort();
        if last { names.pop().unwrap().1 } else { names.remove(0).1 }
    }
}

#[test]
fn job_grows_waits_shrinks_and_ends() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true)], (3, 0)), "{fault:?}");
        story.scale(6);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (6, false)], (3, 3)), "{fault:?}");
        story.scale(7);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (7, false)], (3, 4)), "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(7, true)], (7, 0)), "{fault:?}");
        story.scale(2);
        assert_eq!((story.slices(), story.pods()), (vec![(2, true)], (2, 0)), "{fault:?}");
        story.create("third", 7, false);
        assert_eq!(charged(&story.plane.harness.server).len(), 2, "what was given up is free: {fault:?}");
        assert!(!story.suspended(), "{fault:?}");
        story.finish("j");
        assert_eq!(story.slices(), [], "{fault:?}");
        assert_eq!(story.ends(), ["Succeeded", "Succeeded", "WorkloadSliceReplaced"], "{fault:?}");
    }
}

#[test]
fn job_that_shrinks_while_it_waits_gets_what_it_asks_for_then() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(8);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (8, false)], (3, 5)), "{fault:?}");
        story.scale(2);
        assert_eq!((story.slices(), story.pods()), (vec![(2, true)], (2, 0)), "{fault:?}");
    }
}

/// Deactivates or activates a slice.
fn activate(story: &mut Story, slice: &str, active: bool) {
    story.edit(Kind::Workload, slice, |workload| workload["spec"]["active"] = json!(active));
}

/// Kueue 6221, 13923: an eviction of the slice in use stops the job before the slice that waits gets its quota.
#[test]
fn slice_that_is_evicted_while_another_waits_stops_the_job_first() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(6);
        let first = story.slice(false);
        activate(&mut story, &first, false);
        assert_eq!((story.slices(), story.pods()), (vec![(6, false)], (0, 0)), "{fault:?}");
        assert!(story.suspended(), "{fault:?}");
        assert_eq!(story.ends(), ["WorkloadSliceReplaced"], "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
    }
}

/// Preemption by a job of higher priority, of a Job that has grown.
#[test]
fn grown_job_is_evicted_and_runs_again() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, true);
        story.scale(6);
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
        let last = story.slice(true);
        activate(&mut story, &last, false);
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(6, false)], (0, 0), true),
            "{fault:?}"
        );
        story.scale(8);
        assert_eq!((story.slices(), story.pods()), (vec![(8, false)], (0, 0)), "{fault:?}");
        activate(&mut story, &last, true);
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(8, true)], (8, 0), false),
            "{fault:?}"
        );
    }
}

/// Kueue 14139: pods name the first slice, which may be gone.
#[test]
fn pods_are_ungated_after_the_first_slice_was_deleted() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 2, true);
        story.scale(3);
        let key = story.key(&story.slice(false));
        let now = story.plane.now();
        story.plane.harness.server.delete(Kind::Workload, &key, now);
        story.settle();
        assert_eq!(story.plane.harness.server.all(Kind::Workload).count(), 1, "{fault:?}");
        story.scale(5);
        assert_eq!((story.slices(), story.pods()), (vec![(5, true)], (5, 0)), "{fault:?}");
    }
}

/// Kueue 12994: the marks of an earlier admission do not contradict a new one.
#[test]
fn job_whose_slice_was_deleted_gets_another_and_runs() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 2, true);
        story.scale(4);
        let key = story.key(&story.slice(true));
        let now = story.plane.now();
        story.plane.harness.server.delete(Kind::Workload, &key, now);
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(4, true)], (4, 0)), "{fault:?}");
        assert!(!story.ends().contains(&"FailedToStart".to_owned()), "{fault:?}");
    }
}

/// Kueue 13126: a pod that has ended leaves its place to its replacement.
#[test]
fn failed_pod_is_replaced() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, true);
        story.scale(4);
        let pod = story.plane.harness.server.keys_of(Kind::Pod)[0].name.to_string();
        story.edit(Kind::Pod, &pod, |pod| pod["status"]["phase"] = json!("Failed"));
        assert_eq!((story.slices(), story.pods()), (vec![(4, true)], (4, 0)), "{fault:?}");
    }
}

/// Kueue 12766: scaling below what has succeeded.
#[test]
fn job_shrinks_below_its_succeeded_pods() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 5, true);
        story.edit(JOB, "j", |job| {
            job["spec"]["completions"] = json!(8);
            job["status"]["succeeded"] = json!(7);
        });
        for key in story.plane.harness.server.keys_of(Kind::Pod).into_iter().skip(1) {
            story
                .plane
                .harness
                .server
                .edit(Kind::Pod, &key, |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
        for parallelism in [3, 2, 4] {
            story.scale(parallelism);
            assert_eq!(story.slices(), [(parallelism, true)], "{fault:?}");
        }
    }
}

/// Kueue 13071: a Workload that says that it replaces another job's slice replaces nothing.
#[test]
fn slice_of_another_job_is_not_replaced() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 7, true);
        let slice = story.slice(false);
        let template =
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        let metadata = json!({"name": "thief", "namespace": "ns", "annotations": {
            "kueue.x-k8s.io/workload-slice-replacement-for": format!("ns/{slice}"),
            "kueue.x-k8s.io/workload-slice-name": slice, "kueue.x-k8s.io/elastic-job": "true",
        }});
        let pod_sets = json!([{"name": "main", "count": 5, "template": template}]);
        let spec = json!({"queueName": "lq", "podSets": pod_sets, "active": true, "priority": 0});
        story.plane.create(Kind::Workload, &json!({"metadata": metadata, "spec": spec}));
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(7, true)], (7, 0)), "{fault:?}");
        let thief = story.plane.harness.server.get(Kind::Workload, &story.key("thief")).unwrap();
        assert!(!holds(thief, "QuotaReserved"), "{fault:?}");
    }
}

/// Of slices that another client made, those without a part in the job end.
#[test]
fn superfluous_slices_end() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(6);
        let waiting =
            story.plane.harness.server.get(Kind::Workload, &story.key(&story.slice(true))).unwrap().clone();
        for name in ["fork-1", "fork-2"] {
            let mut fork = json!({"metadata": waiting["metadata"], "spec": waiting["spec"]});
            let metadata = fork["metadata"].as_object_mut().unwrap();
            metadata.retain(|field, _| {
                ["namespace", "annotations", "ownerReferences", "labels"].contains(&field.as_str())
            });
            metadata.insert("name".to_owned(), json!(name));
            if name == "fork-2" {
                metadata["annotations"]
                    .as_object_mut()
                    .unwrap()
                    .shift_remove("kueue.x-k8s.io/workload-slice-replacement-for");
            }
            story.plane.advance(SignedDuration::from_secs(1));
            story.plane.create(Kind::Workload, &fork);
        }
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (6, false)], (3, 3)), "{fault:?}");
        assert_eq!(story.ends(), ["OutOfSync", "OutOfSync"], "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
    }
}

/// A Job that a user unsuspends before it has quota is suspended again: its pods would carry no marks of an admission.
#[test]
fn job_that_was_not_started_does_not_run() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 8, false);
        story.create("j", 3, true);
        story.edit(JOB, "j", |job| job["spec"]["suspend"] = json!(false));
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(3, false)], (0, 0), true),
            "{fault:?}"
        );
        story.finish("other");
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(3, true)], (3, 0), false),
            "{fault:?}"
        );
    }
}

/// A running Job without the gate is not elastic: it was started by a manager that did not know the gate.
#[test]
fn running_job_without_gate_is_stopped_when_it_grows() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, false);
        story.edit(JOB, "j", |job| {
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        });
        assert_eq!((story.slices(), story.pods()), (vec![(3, true)], (3, 0)), "{fault:?}");
        story.scale(5);
        assert_eq!((story.slices(), story.pods()), (vec![(5, true)], (5, 0)), "{fault:?}");
        story.scale(6);
        assert_eq!(
            (story.slices(), story.pods()),
            (vec![(6, true)], (6, 0)),
            "now it has the gate: {fault:?}"
        );
    }
}

/// Kueue 11200, 8341: resizes within a second; the newest size counts.
#[test]
fn job_is_resized_several_times_within_a_second() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 1, true);
        for parallelism in [2, 5, 3, 4, 9, 6] {
            let key = story.key("j");
            story.plane.harness.server.edit(JOB, &key, |job| job["spec"]["parallelism"] = json!(parallelism));
            story.settle();
            let pods = usize::try_from(parallelism).unwrap();
            assert_eq!((story.slices(), story.pods()), (vec![(parallelism, true)], (pods, 0)), "{fault:?}");
        }
    }
}
