//! The plan of a pod's import: labels of the pod, its Workload, and the Workload's admission. Pure: takes objects, returns a
//! plan or a reason.
//!
//! Invariant: the Workload equals the one that the manager would make for the pod, so that the manager keeps it; each requested
//! resource is charged to the first flavor of its resource group.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::KUEUE;
use super::mapping::{Mapping, Target};
use crate::api::names;
use crate::frameworks::{
    Beside, Component, JobKind, MissingClass, PodMember, Priority, PriorityLookup, Sources, Unit,
    UnitSummary, WorkloadRequest,
};
use crate::lifecycle::conditions::to_api_time;
use crate::resources::{format_quantity, pod_requests};

/// Reason of both conditions.
const IMPORTED: &str = "Imported";

/// The objects on which the plans depend, each kind by name; LocalQueues by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) cluster_queues: BTreeMap<String, Value>,
    pub(super) local_queues: BTreeMap<(String, String), Value>,
    pub(super) flavors: BTreeMap<String, Value>,
    pub(super) priority_classes: BTreeMap<String, Value>,
    pub(super) workload_priority_classes: BTreeMap<String, Value>,
}

/// Settings of an import.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) mapping: Mapping,
    /// Labels that pods and Workloads get.
    pub(super) add_labels: BTreeMap<String, String>,
    /// Prefixes of resources that are not charged.
    pub(super) excluded_prefixes: Vec<String>,
}

/// The import of one pod.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) pod_uid: String,
    /// Labels that the pod lacks, or has with another value.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) workload: Value,
    /// Status of the Workload, without its kind and metadata.
    pub(super) status: Value,
}

impl Plan {
    /// Returns the name of the Workload.
    pub(super) fn workload_name(&self) -> &str {
        self.workload.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the path of the Workloads of the namespace.
    pub(super) fn workloads(&self) -> String {
        format!("{KUEUE}/namespaces/{}/workloads", self.namespace)
    }

    /// Returns the path of the pod and the merge patch that labels it; `None` if it has all labels.
    pub(super) fn labelling(&self) -> Option<(String, Value)> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.pod);
        // The UID makes the write fail if the pod was replaced since it was read.
        let patch = json!({"metadata": {"uid": self.pod_uid, "labels": self.labels}});
        (!self.labels.is_empty()).then_some((path, patch))
    }
}

impl PriorityLookup for Objects {
    fn workload_class(&self, name: &str) -> Option<i32> {
        value_of(self.workload_priority_classes.get(name)?)
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        value_of(self.priority_classes.get(name)?)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        let is_default = |class: &Value| class.get("globalDefault") == Some(&Value::Bool(true));
        let (name, class) = self.priority_classes.iter().find(|(_, class)| is_default(class))?;
        Some((name.clone(), value_of(class)?))
    }
}

fn value_of(class: &Value) -> Option<i32> {
    i32::try_from(class.get("value")?.as_i64()?).ok()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a pod has ended, so that it uses nothing.
pub(super) fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// Returns the plan of a pod, `None` if the mapping skips it, or why it cannot be imported.
pub(super) fn plan(
    pod: &Value,
    cluster: &Objects,
    settings: &Settings,
    now: Timestamp,
) -> Result<Option<Plan>, String> {
    let queue = match settings.mapping.target(pod) {
        None => return Err("no rule of the mapping matches".to_owned()),
        Some(Target::Skip) => return Ok(None),
        Some(Target::Queue(queue)) => queue,
    };
    let namespace = text(pod, "/metadata/namespace");
    let local_queue = cluster.local_queues.get(&(namespace.to_owned(), queue.clone()));
    let local_queue = local_queue.ok_or_else(|| format!("LocalQueue {namespace}/{queue} does not exist"))?;
    let name = text(local_queue, "/spec/clusterQueue");
    let cluster_queue = cluster.cluster_queues.get(name);
    let cluster_queue = cluster_queue
        .ok_or_else(|| format!("ClusterQueue {name} of LocalQueue {namespace}/{queue} does not exist"))?;
    let existing = pod
        .pointer("/metadata/labels")
        .and_then(|all| all.get(names::QUEUE_NAME_LABEL))
        .and_then(Value::as_str);
    if let Some(existing) = existing.filter(|existing| *existing != queue) {
        return Err(format!("it names LocalQueue {existing} already, not {queue}"));
    }
    let flavors = flavors_by_resource(cluster_queue, name, cluster)?;
    let wanted = wanted_labels(&queue, &settings.add_labels);
    let workload = workload(pod, &wanted, &queue, cluster, &settings.add_labels)?;
    let assignment = assignment(pod, &flavors, name, &settings.excluded_prefixes)?;
    let has = |label: &str, value: &str| {
        pod.pointer("/metadata/labels").and_then(|all| all.get(label)).is_some_and(|found| found == value)
    };
    let pod_set = text(&workload, "/spec/podSets/0/name").to_owned();
    Ok(Some(Plan {
        namespace: namespace.to_owned(),
        pod: text(pod, "/metadata/name").to_owned(),
        pod_uid: text(pod, "/metadata/uid").to_owned(),
        labels: wanted.into_iter().filter(|(label, value)| !has(label, value)).collect(),
        workload,
        status: status(name, &pod_set, &assignment, now),
    }))
}

fn wanted_labels(queue: &str, add: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut labels = add.clone();
    labels.insert(names::QUEUE_NAME_LABEL.to_owned(), queue.to_owned());
    labels.insert(names::MANAGED_LABEL.to_owned(), "true".to_owned());
    labels
}

/// Returns the flavor of each covered resource: the first of its group. All flavors of the queue must exist.
fn flavors_by_resource(
    queue: &Value,
    name: &str,
    cluster: &Objects,
) -> Result<BTreeMap<String, String>, String> {
    let groups = queue
        .pointer("/spec/resourceGroups")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if groups.is_empty() {
        return Err(format!("ClusterQueue {name} has no resource groups"));
    }
    let mut flavors = BTreeMap::new();
    let mut missing = Vec::new();
    for group in groups {
        let names = group.get("flavors").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = names.map(|flavor| text(flavor, "/name")).collect();
        missing.extend(
            names.iter().filter(|name| !cluster.flavors.contains_key(**name)).map(|name| (*name).to_owned()),
        );
        let Some(first) = names.first() else { continue };
        for resource in group.get("coveredResources").and_then(Value::as_array).into_iter().flatten() {
            let resource = resource.as_str().unwrap_or_default().to_owned();
            flavors.entry(resource).or_insert_with(|| (*first).to_owned());
        }
    }
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        Ok(flavors)
    } else {
        Err(format!("ClusterQueue {name} names ResourceFlavors that do not exist: {}", missing.join(", ")))
    }
}

/// Returns the Workload that the manager makes for the pod once it has its labels.
fn workload(
    pod: &Value,
    labels: &BTreeMap<String, String>,
    queue: &str,
    cluster: &Objects,
    add: &BTreeMap<String, String>,
) -> Result<Value, String> {
    let mut labelled = pod.clone();
    if let Some(metadata) = labelled.get_mut("metadata").and_then(Value::as_object_mut) {
        let all = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.extend(labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        }
    }
    let member = PodMember::read(Arc::new(labelled)).map_err(|error| error.to_string())?;
    let member = member.ok_or("it is not a pod that a queue manages")?;
    if member.group.is_some() {
        return Err("it belongs to a pod group: pods are imported one by one".to_owned());
    }
    let members = [Arc::new(member)];
    let summary = UnitSummary::of(members.iter().map(|member| &**member));
    let kind = JobKind::POD;
    let unit = Unit { kind, component: Component::Object, owner: None, members: &members, summary: &summary };
    let sources = Sources { owner: None, beside: Beside::NOTHING };
    let rules = kind.unit_rules().ok_or("pods have no rules")?;
    let view = rules.view(&unit).map_err(|error| error.to_string())?;
    let pod_sets = rules.pod_sets(&unit, sources).map_err(|error| error.to_string())?;
    let priority = Priority::resolve(&view, &pod_sets, cluster).map_err(|missing| match missing {
        MissingClass::WorkloadClass(name) => format!("WorkloadPriorityClass {name} does not exist"),
        MissingClass::PodClass(name) => format!("PriorityClass {name} does not exist"),
    })?;
    let name = rules.workload_name(&unit).map_err(|error| error.to_string())?;
    let request = WorkloadRequest {
        name: &name,
        queue_name: Some(queue),
        label_keys_to_copy: &[],
        priority: &priority,
        slice: None,
    };
    let mut workload = rules.compose(&unit, sources, &request).map_err(|error| error.to_string())?.workload;
    if let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut)
        && !add.is_empty()
    {
        let all = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.extend(add.iter().map(|(name, value)| (name.clone(), json!(value))));
        }
    }
    Ok(workload)
}

/// Charged flavor and quantity of a pod, by resource.
struct Assignment {
    flavors: Map<String, Value>,
    usage: Map<String, Value>,
}

/// Returns flavor and quantity of each resource that the pod requests.
fn assignment(
    pod: &Value,
    flavors: &BTreeMap<String, String>,
    queue: &str,
    excluded: &[String],
) -> Result<Assignment, String> {
    let spec = pod.get("spec").cloned().unwrap_or_default();
    let spec = PodSpec::deserialize(spec).map_err(|error| format!("its spec cannot be read: {error}"))?;
    let (mut assigned, mut usage) = (Map::new(), Map::new());
    for (resource, amount) in pod_requests(&spec) {
        if excluded.iter().any(|prefix| resource.starts_with(prefix.as_str())) {
            continue;
        }
        usage.insert(resource.to_string(), json!(format_quantity(&resource, amount)));
        if amount.to_i128() == 0 {
            continue;
        }
        let flavor = flavors.get(&*resource);
        let flavor = flavor
            .ok_or_else(|| format!("it requests {resource}, which ClusterQueue {queue} does not cover"))?;
        assigned.insert(resource.to_string(), json!(flavor));
    }
    usage.retain(|resource, _| flavors.contains_key(resource));
    Ok(Assignment { flavors: assigned, usage })
}

fn status(queue: &str, pod_set: &str, assigned: &Assignment, now: Timestamp) -> Value {
    let message = format!("Imported into ClusterQueue {queue}");
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": IMPORTED, "message": message,
            "lastTransitionTime": to_api_time(now), "observedGeneration": 1,
        })
    };
    let assignment =
        json!({"name": pod_set, "flavors": assigned.flavors, "resourceUsage": assigned.usage, "count": 1});
    json!({
        "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            mapping: Mapping::by_label("team", &BTreeMap::new()),
            add_labels: BTreeMap::from([("imported".to_owned(), "yes".to_owned())]),
            excluded_prefixes: vec!["example.com/".to_owned()],
        }
    }

    fn cluster() -> Objects {
        let queue = json!({"spec": {"resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "any"}, {"name": "other"}]},
        ]}});
        let named = |names: &[&str], object: &Value| {
            names.iter().map(|name| ((*name).to_owned(), object.clone())).collect()
        };
        Objects {
            cluster_queues: named(&["cq"], &queue),
            local_queues: BTreeMap::from([(
                ("ns".to_owned(), "lq".to_owned()),
                json!({"spec": {"clusterQueue": "cq"}}),
            )]),
            flavors: named(&["any", "other"], &json!({})),
            priority_classes: named(&["high"], &json!({"value": 7})),
            workload_priority_classes: BTreeMap::new(),
        }
    }

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": "lq"}},
            "spec": {"priorityClassName": "high", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m", "example.com/x": "2"}}},
            ]},
            "status": {"phase": "Running"},
        })
    }

    fn planned(pod: &Value, cluster: &Objects) -> Result<Option<Plan>, String> {
        plan(pod, cluster, &settings(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn pod_gets_labels_and_an_admitted_workload() {
        let plan = planned(&pod(), &cluster()).unwrap().unwrap();
        assert_eq!(plan.labels[names::QUEUE_NAME_LABEL], "lq");
        assert_eq!(plan.labels[names::MANAGED_LABEL], "true");
        assert_eq!(plan.workload["metadata"]["labels"]["imported"], "yes");
        assert_eq!(plan.workload["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(plan.workload["spec"]["queueName"], "lq");
        assert_eq!(plan.workload["spec"]["priority"], 7);
        assert!(plan.workload_name().starts_with("pod-p-"));
        let assignment = &plan.status["admission"]["podSetAssignments"][0];
        assert_eq!(assignment["name"], plan.workload["spec"]["podSets"][0]["name"]);
        assert_eq!(assignment["flavors"], json!({"cpu": "any"}));
        assert_eq!(assignment["resourceUsage"], json!({"cpu": "1500m"}));
        let conditions: Vec<&str> = plan.status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["type"].as_str().unwrap())
            .collect();
        assert_eq!(conditions, ["QuotaReserved", "Admitted"]);
        // Imported before: no label is left to be written.
        let mut labelled = pod();
        labelled["metadata"]["labels"] = json!({"team": "lq", names::QUEUE_NAME_LABEL: "lq", names::MANAGED_LABEL: "true", "imported": "yes"});
        assert!(planned(&labelled, &cluster()).unwrap().unwrap().labels.is_empty());
    }

    #[test]
    fn each_reason_names_what_is_wrong() {
        let expect = |pod: &Value, cluster: &Objects, part: &str| {
            let error = planned(pod, cluster).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        };
        let with = |pointer: &str, value: Value| {
            let mut pod = pod();
            *pod.pointer_mut(pointer).unwrap() = value;
            pod
        };
        expect(&with("/metadata/labels", json!({})), &cluster(), "no rule of the mapping matches");
        expect(
            &with("/metadata/labels/team", json!("nowhere")),
            &cluster(),
            "LocalQueue ns/nowhere does not exist",
        );
        expect(
            &with("/metadata/labels", json!({"team": "lq", names::QUEUE_NAME_LABEL: "b"})),
            &cluster(),
            "names LocalQueue b already",
        );
        expect(
            &with("/spec/priorityClassName", json!("low")),
            &cluster(),
            "PriorityClass low does not exist",
        );
        let requests = "/spec/containers/0/resources/requests";
        expect(
            &with(requests, json!({"memory": "1Gi"})),
            &cluster(),
            "requests memory, which ClusterQueue cq does not cover",
        );
        expect(&with("/spec/containers", json!("x")), &cluster(), "");
        expect(&pod(), &Objects { flavors: BTreeMap::new(), ..cluster() }, "do not exist: any, other");
        expect(
            &pod(),
            &Objects { cluster_queues: BTreeMap::new(), ..cluster() },
            "ClusterQueue cq of LocalQueue ns/lq",
        );
        let empty = BTreeMap::from([("cq".to_owned(), json!({"spec": {}}))]);
        expect(&pod(), &Objects { cluster_queues: empty, ..cluster() }, "has no resource groups");
        let mut group = pod();
        group["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "g".into();
        group["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": "1"});
        expect(&group, &cluster(), "pod group");
        assert!(has_ended(&with("/status/phase", json!("Failed"))) && !has_ended(&pod()));
    }
}
