//! What has changed, against what the recording permits.

use super::store::Store;
use super::{fields, rules};
use crate::objects::{Kind, ObjectClient, text};
use anyhow::Result;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds that are compared.
const KINDS: [Kind; 14] = [
    Kind::WORKLOAD,
    Kind::JOB,
    Kind::POD,
    Kind::CLUSTER_QUEUE,
    Kind::LOCAL_QUEUE,
    Kind::COHORT,
    Kind::FLAVOR,
    Kind::TOPOLOGY,
    Kind::ADMISSION_CHECK,
    Kind::PRIORITY_CLASS,
    Kind::DEPLOYMENT,
    Kind::STATEFUL_SET,
    Kind::LIMIT_RANGE,
    Kind::new("batch", "v1", "CronJob", "cronjobs"),
];
/// Kinds whose specs only users change.
const USERS_KINDS: [&str; 9] = [
    "ClusterQueue",
    "LocalQueue",
    "Cohort",
    "ResourceFlavor",
    "Topology",
    "AdmissionCheck",
    "WorkloadPriorityClass",
    "LimitRange",
    "CronJob",
];

/// Objects by kind, namespace and name.
pub(super) struct Cluster {
    objects: BTreeMap<(String, String, String), Value>,
}

fn key(object: &Value) -> (String, String, String) {
    let part = |pointer| text(object, pointer).to_owned();
    (part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
}

impl Cluster {
    /// Reads all compared kinds.
    pub(super) async fn read(client: &ObjectClient) -> Result<Self> {
        let mut objects = BTreeMap::new();
        for kind in KINDS {
            for mut object in client.list(kind, "", "").await? {
                // Items of a list have no kind.
                object["kind"] = kind.singular.into();
                objects.insert(key(&object), object);
            }
        }
        Ok(Self { objects })
    }

    /// Takes the recorded objects.
    pub(super) fn recorded(store: &Store) -> Self {
        Self { objects: store.objects.iter().map(|object| (key(object), object.clone())).collect() }
    }

    /// Returns an object.
    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// Returns the objects of a kind.
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |(key, _)| key.0 == kind).map(|(_, object)| object)
    }

    /// Returns the Workload of a Job.
    pub(super) fn workload_of(&self, namespace: &str, job: &str) -> Option<&Value> {
        self.of_kind("Workload").find(|workload| {
            let owner = &workload["metadata"]["ownerReferences"][0];
            text(workload, "/metadata/namespace") == namespace
                && owner["name"] == *job
                && owner["kind"] == "Job"
        })
    }
}

/// Collects deviations.
pub(super) struct Judgement<'a> {
    pub(super) store: &'a Store,
    pub(super) before: Cluster,
    pub(super) after: &'a Cluster,
    deviations: Vec<String>,
    /// Whether what is compared is what the first manager left.
    handover: bool,
}

impl<'a> Judgement<'a> {
    pub(super) fn new(store: &'a Store, after: &'a Cluster) -> Self {
        Self { store, before: Cluster::recorded(store), after, deviations: Vec::new(), handover: false }
    }

    /// Judges what the second manager did to what the first left. Nothing was left that is due, begun or new: what holds quota keeps it.
    pub(super) fn of_handover(store: &'a Store, before: Cluster, after: &'a Cluster) -> Self {
        Self { store, before, after, deviations: Vec::new(), handover: true }
    }

    pub(super) fn into_deviations(self) -> Vec<String> {
        self.deviations
    }

    /// Adds a deviation of an object, with what was before and after.
    pub(super) fn add(&mut self, what: &str, object: &Value, rule: &str, (before, after): (&str, &str)) {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let slash = if namespace.is_empty() { "" } else { "/" };
        self.deviations.push(format!("{what} {namespace}{slash}{name}: {rule}, {before}, {after}"));
    }

    /// Judges each Workload by its rule, and that no owner has two.
    pub(super) fn workloads(&mut self) {
        let entries = self.store.expected["workloads"].as_array();
        for entry in entries.into_iter().flatten() {
            let (namespace, name) = (text(entry, "/namespace"), text(entry, "/name"));
            let Some(before) = self.before.get("Workload", namespace, name).cloned() else { continue };
            let after = self.after.get("Workload", namespace, name);
            let rule = if self.handover { rules::of_left(&before) } else { text(entry, "/after") };
            for (what, was, is) in rules::broken(rule, &before, after) {
                self.add("workload", &before, &format!("{rule}: {what}"), (&was, &is));
            }
        }
        let mut by_owner: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for workload in self.after.of_kind("Workload") {
            for owner in workload["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                let names = by_owner.entry(text(owner, "/uid")).or_default();
                names.insert(text(workload, "/metadata/name"));
            }
        }
        for (owner, names) in by_owner.into_iter().filter(|(_, names)| names.len() > 1) {
            self.deviations.push(format!("owner {owner}: one Workload, {names:?}"));
        }
        self.jobs();
    }

    /// Jobs of Workloads that nothing may happen to are as they were.
    fn jobs(&mut self) {
        let rules: BTreeMap<(&str, &str), &str> = self.store.expected["workloads"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|entry| {
                let owners = entry["owners"].as_array().into_iter().flatten();
                let jobs = owners.filter(|owner| owner["kind"] == "Job");
                jobs.map(move |owner| {
                    ((text(entry, "/namespace"), text(owner, "/name")), text(entry, "/after"))
                })
            })
            .collect();
        let before: Vec<Value> = self.before.of_kind("Job").cloned().collect();
        for job in before {
            let (namespace, name) = (text(&job, "/metadata/namespace"), text(&job, "/metadata/name"));
            let rule = rules.get(&(namespace, name)).copied().unwrap_or_else(|| {
                // Without a queue it is not managed; with one, the manager died before it made the Workload.
                let queue = text(&job, "/metadata/labels/kueue.x-k8s.io~1queue-name");
                if queue.is_empty() { "no workload" } else { "new" }
            });
            let Some(after) = self.after.get("Job", namespace, name) else {
                if rule != "gone" {
                    self.add("job", &job, rule, ("exists", "gone"));
                }
                continue;
            };
            if !["same", "still", "check", "no workload"].contains(&rule) {
                continue;
            }
            self.compare("job", &job, rule, after);
            let pods: Vec<&str> = self
                .after
                .of_kind("Pod")
                .filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"])
                .filter(|pod| self.before.get("Pod", namespace, text(pod, "/metadata/name")).is_none())
                .map(|pod| text(pod, "/metadata/name"))
                .collect();
            if !pods.is_empty() {
                self.add("job", &job, &format!("{rule}: no new pods"), ("", &pods.join(" ")));
            }
        }
    }

    /// Adds what differs of the parts that users write.
    fn compare(&mut self, what: &str, before: &Value, rule: &str, after: &Value) {
        for part in ["/spec", "/metadata/labels", "/metadata/annotations", "/metadata/finalizers"] {
            let [was, is] = [before, after].map(|object| object.pointer(part).unwrap_or(&Value::Null));
            for (pointer, was, is) in rules::differences(part, was, is) {
                self.add(what, before, &format!("{rule}: {pointer}"), (&was, &is));
            }
        }
    }

    /// Pods that stay run on with their UIDs.
    pub(super) fn pods(&mut self) {
        for entry in self.store.expected["running_pods"].as_array().into_iter().flatten() {
            if entry["stays"] != true {
                continue;
            }
            let (namespace, name) = (text(entry, "/namespace"), text(entry, "/name"));
            let after = self.after.get("Pod", namespace, name);
            let runs = after.is_some_and(|pod| {
                pod["metadata"]["uid"] == entry["uid"]
                    && pod["status"]["phase"] == "Running"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            });
            if !runs {
                let is = after.map_or(Value::Null, |pod| pod["status"]["phase"].clone());
                self.deviations
                    .push(format!("pod {namespace}/{name}: stays, Running {}, {is}", entry["uid"]));
            }
        }
    }

    /// Objects of users are as they were, and the fields of users are theirs.
    pub(super) fn others(&mut self) {
        let before: Vec<Value> = self.before.objects.values().cloned().collect();
        for object in before {
            let (kind, namespace, name) = key(&object);
            let Some(after) = self.after.get(&kind, &namespace, &name) else {
                if USERS_KINDS.contains(&kind.as_str()) {
                    self.add(&kind, &object, "kept", ("exists", "gone"));
                }
                continue;
            };
            if after["metadata"]["uid"] != object["metadata"]["uid"] {
                continue;
            }
            if USERS_KINDS.contains(&kind.as_str()) {
                self.compare(&kind, &object, "kept", after);
            }
            let mut lost: Vec<String> =
                fields::of_users(&object).difference(&fields::of_users(after)).cloned().collect();
            if object["spec"]["priority"] != after["spec"]["priority"] {
                // The value of its class replaces another priority of a Workload.
                lost.retain(|field| !field.ends_with("f:spec f:priority"));
            }
            // A start or stop of a Job, and the reset of a check after an eviction, make the manager the owner of the field.
            lost.retain(|field| !field.ends_with("f:spec f:suspend") && !field.contains("f:admissionChecks"));
            if !lost.is_empty() {
                self.add(&kind, &object, "managed fields of users", (&lost.join(", "), ""));
            }
        }
    }
}

/// Returns a value as text of bounded length.
pub(super) fn brief(value: Option<&Value>) -> String {
    let text = value.map(Value::to_string).unwrap_or_default();
    text.chars().take(1500).collect()
}
