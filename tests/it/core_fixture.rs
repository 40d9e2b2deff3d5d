//! A leading core with one queue, and the objects that tests put into it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::frameworks::JobKind;
use sluice::reconciler::{
    CoreSettings, Delta, Effect, Reconciler, Verb, Write, WriteClass, WriteOutcome, WriteResult,
};
use std::collections::BTreeMap;

pub(crate) const JOB: Kind = Kind::Job(JobKind::BATCH_JOB);
pub(crate) const START: i64 = 1_800_000_000;

/// A leading core with one queue of 2 CPUs.
pub(crate) struct Core {
    pub(crate) state: Reconciler,
    pub(crate) version: u64,
    pub(crate) now: Timestamp,
    /// The Workloads, as reads find them.
    workloads: BTreeMap<ObjectKey, Value>,
}

impl Core {
    pub(crate) fn new(settings: CoreSettings) -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let mut core = Self { state: Reconciler::new(settings), version: 0, now, workloads: BTreeMap::new() };
        for kind in core.state.kinds().to_vec() {
            core.feed(Delta::Restarted { kind });
            core.feed(Delta::Synced { kind });
        }
        core.put(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
        core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
        core.put(
            Kind::ClusterQueue,
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "cohortName": "team",
                "resourceGroups": groups}}),
        );
        core.put(Kind::Cohort, json!({"metadata": {"name": "team"}, "spec": {"parentName": "org"}}));
        core.put(
            Kind::LocalQueue,
            json!({"metadata": {"name": "lq", "namespace": "ns", "labels": {"team": "a"}},
                "spec": {"clusterQueue": "cq"}}),
        );
        core.feed(Delta::Leading(true));
        core
    }

    pub(crate) fn feed(&mut self, delta: Delta) -> Vec<Effect> {
        self.feed_all([delta])
    }

    /// Feeds deltas of one instant, and the answers to reads of Workloads.
    pub(crate) fn feed_all(&mut self, deltas: impl IntoIterator<Item = Delta>) -> Vec<Effect> {
        let mut effects = self.state.apply_all(deltas, self.now);
        let read = |effect: &Effect| match effect {
            Effect::Refetch { kind: Kind::Workload, key } => {
                let object = self.workloads.get(key).cloned();
                Some(Delta::Read { kind: Kind::Workload, key: key.clone(), object })
            }
            _ => None,
        };
        let answers: Vec<Delta> = effects.iter().filter_map(read).collect();
        if !answers.is_empty() {
            effects.extend(self.state.apply_all(answers, self.now));
        }
        effects
    }

    pub(crate) fn put(&mut self, kind: Kind, object: Value) -> Vec<Effect> {
        let delta = self.applied_delta(kind, object);
        self.feed(delta)
    }

    /// Delta of the object as the server would deliver it.
    pub(crate) fn applied_delta(&mut self, kind: Kind, object: Value) -> Delta {
        Delta::Applied { kind, object: self.with_server_metadata(kind, object) }
    }

    /// The object with the fields that the server adds, as its newest version.
    pub(crate) fn with_server_metadata(&mut self, kind: Kind, mut object: Value) -> Value {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        object["metadata"]["uid"] = json!(format!("{}-{name}", kind.resource().plural));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["generation"].is_null() {
            object["metadata"]["generation"] = json!(1);
        }
        if object["metadata"]["creationTimestamp"].is_null() {
            object["metadata"]["creationTimestamp"] =
                json!(Timestamp::from_second(START - 3).unwrap().to_string());
        }
        if kind == Kind::Workload {
            self.workloads.insert(ObjectKey::new("ns", &name), object.clone());
        }
        object
    }

    /// Answers the only write of a Workload with the object as it is then.
    pub(crate) fn land(&mut self, effects: &[Effect], workload: &mut Value) -> Vec<Effect> {
        let [write] = &writes(effects, Kind::Workload)[..] else { panic!("{effects:?}") };
        if write.verb == Verb::Create {
            *workload = write.body.clone();
        } else {
            workload["status"] = write.body["status"].clone();
        }
        let object = self.with_server_metadata(Kind::Workload, workload.clone());
        let (id, kind, key) = (write.id, Kind::Workload, write.key.clone());
        self.feed(Delta::Written(WriteResult { id, kind, key, outcome: WriteOutcome::Done(object) }))
    }

    pub(crate) fn advance_seconds(&mut self, seconds: i64) -> Vec<Effect> {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        self.feed(Delta::Tick)
    }
}

/// Returns an object as a write leaves it that starts its job.
pub(crate) fn started(mut object: Value, start: &Write) -> Value {
    // The write names the version that it was decided on, which fixtures get from the server.
    object["metadata"]["resourceVersion"] = json!("");
    let operations = start.body.as_array().expect("a start is a JSON patch").iter();
    let operations: Vec<&Value> = operations.filter(|operation| operation["op"] != "test").collect();
    let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

pub(crate) fn writes(effects: &[Effect], kind: Kind) -> Vec<Write> {
    let write = |effect: &Effect| match effect {
        Effect::Write(write) if write.kind == kind && write.class != WriteClass::QueueStatus => {
            Some(Write { body: serde_json::to_value(write.payload()).unwrap(), ..write.clone() })
        }
        _ => None,
    };
    effects.iter().filter_map(write).collect()
}

fn template() -> Value {
    json!({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

pub(crate) fn job(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": true, "template": template()},
    })
}

pub(crate) fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let time = Timestamp::from_second(START - 2).unwrap().to_string();
    json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": time})
}

/// A Workload of 1 CPU that a Job owns.
pub(crate) fn workload(owner: &str, conditions: &[Value]) -> Value {
    let uid = format!("jobs-{owner}");
    json!({
        "metadata": {"name": format!("w-{owner}"), "namespace": "ns", "labels": {"kueue.x-k8s.io/job-uid": uid},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": uid, "controller": true}]},
        "spec": {"active": true, "queueName": "lq", "priority": 0,
            "podSets": [{"name": "main", "count": 1, "template": template()}]},
        "status": {"conditions": conditions},
    })
}

/// Puts a Job `j-NAME` of some pods, and its Workload `NAME`: with quota for its CPU where the conditions say that it has some.
pub(crate) fn put_job_and_workload(
    core: &mut Core,
    (namespace, name, queue): (&str, &str, &str),
    (pods, priority): (i32, i32),
    template: &Value,
    conditions: &[Value],
) {
    let owner = format!("j-{name}");
    core.put(
        JOB,
        json!({
            "metadata": {"name": owner, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template},
        }),
    );
    let mut status = json!({"conditions": conditions});
    let is_reserving =
        |condition: &Value| condition["type"] == "QuotaReserved" && condition["status"] == "True";
    if conditions.iter().any(is_reserving) {
        status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": [
            {"name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()}}]});
    }
    core.put(
        Kind::Workload,
        json!({
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": format!("jobs-{owner}"), "controller": true}]},
            "spec": {"queueName": queue, "priority": priority, "podSets": [
                {"name": "main", "count": pods, "template": template}]},
            "status": status,
        }),
    );
}

/// The same, with quota for its CPU.
pub(crate) fn reserving_workload(owner: &str, conditions: &[Value]) -> Value {
    let mut workload = workload(owner, conditions);
    workload["status"]["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}]});
    workload
}
