//! The driver of the tests of elastic jobs: a manager on a fake API server, with the controller of Jobs.

use super::super::plane::{Fault, Plane};
use super::super::queue;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::JobKind;
use sluice_core::simulate::fake_api_server::FakeApiServer;

pub(super) const JOB: Kind = Kind::Job(JobKind::BATCH_JOB);
const GATE: &str = "kueue.x-k8s.io/elastic-job";
pub(super) const FAULTS: [Fault; 3] = [Fault::None, Fault::Conflicts, Fault::Kills];
/// Quota of the queue, in pods.
const QUOTA: i64 = 9;

pub(super) fn holds(workload: &Value, condition: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["type"] == condition).any(|c| c["status"] == "True")
}

/// Workloads that hold quota, without those whose quota has gone over to a newer slice.
pub(super) fn charged(server: &FakeApiServer) -> Vec<&Value> {
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

pub(super) fn ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
}

/// The sum of what Workloads are charged is within the quota, and so is the number of pods that may run, job by job.
pub(super) fn quota_is_right(server: &FakeApiServer) {
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

pub(super) struct Story {
    pub(super) plane: Plane,
    /// Number of pods made so far.
    made: usize,
}

impl Story {
    pub(super) fn new(fault: Fault) -> Self {
        Self::on(Plane::new(JobKind::BATCH_JOB, "ns", fault))
    }

    pub(super) fn on(mut plane: Plane) -> Self {
        plane.law = quota_is_right;
        queue(&mut plane);
        Self { plane, made: 0 }
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        self.plane.key(name)
    }

    /// Creates a Job as its webhook stores it.
    pub(super) fn create(&mut self, name: &str, parallelism: i64, elastic: bool) {
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

    pub(super) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.plane.advance(SignedDuration::from_secs(1));
        let key = self.key(name);
        self.plane.harness.server.edit(kind, &key, change);
        self.settle();
    }

    pub(super) fn scale(&mut self, parallelism: i64) {
        self.edit(JOB, "j", |job| job["spec"]["parallelism"] = json!(parallelism));
    }

    pub(super) fn finish(&mut self, name: &str) {
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
    pub(super) fn settle(&mut self) {
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
    pub(super) fn slices(&self) -> Vec<(i64, bool)> {
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
    pub(super) fn ends(&self) -> Vec<String> {
        let workloads = self.plane.harness.server.all(Kind::Workload);
        let conditions = workloads.filter_map(|workload| workload["status"]["conditions"].as_array());
        let finished = conditions.flatten().filter(|condition| condition["type"] == "Finished");
        let mut reasons: Vec<String> =
            finished.map(|condition| condition["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        reasons
    }

    /// Number of pods of the Job that run, and that are gated.
    pub(super) fn pods(&self) -> (usize, usize) {
        let pods = self.plane.harness.server.all(Kind::Pod);
        let own: Vec<&Value> =
            pods.filter(|pod| pod["metadata"]["ownerReferences"][0]["name"] == "j" && !ended(pod)).collect();
        let gated = own.iter().filter(|pod| is_gated(pod)).count();
        (own.len() - gated, gated)
    }

    pub(super) fn suspended(&self) -> bool {
        self.plane.harness.server.get(JOB, &self.key("j")).unwrap()["spec"]["suspend"] == true
    }

    /// Name of the slice that was made first, or last.
    pub(super) fn slice(&self, last: bool) -> String {
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
