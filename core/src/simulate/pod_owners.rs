//! Controllers of objects whose pods wait for admission one by one, in simulations: the pods that they create and delete.
//!
//! Invariants: only the pods of marked templates are made, as others run without quota; a pod passes the webhook of pods before it
//! is stored. All pods of an object are made at once, and roll-outs are not simulated: pods keep the template that they were made of.
//! Objects that were loaded from a cluster have their pods there; those of a job go when it stops or ends, and those of an object that
//! is not simulated with its Workload, which runs without it.

use super::fake_api_server::FakeApiServer;
use super::objects::{controller_uid, field, field_text, key_of, set, text_at, value_at};
use super::simulation::Simulation;
use crate::admission::{self, ReviewContext};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobKind, PodGrouping, PodMember, Role, WebhookHandler};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the UIDs of objects that were made in the simulation.
const MADE: &str = "uid-";
const POD: (&str, &str) = ("", "Pod");

/// A pod that an object has.
struct OwnedPod {
    name: String,
    /// Pointer to its template.
    template: &'static str,
    labels: Vec<(&'static str, String)>,
    annotations: Vec<(&'static str, String)>,
}

/// The pods that were made.
#[derive(Debug, Default)]
pub(super) struct PodOwners {
    /// The object that each pod was made for, with its UID.
    pods: BTreeMap<ObjectKey, (Kind, ObjectKey, String)>,
    /// UIDs of pods that are gone, and whose Workloads may have to go.
    gone: Vec<String>,
    /// Number of pods that were made of each object whose pods have no fixed names.
    made: BTreeMap<String, usize>,
    /// Pods that were loaded, by the UIDs of the jobs above them; `None` before the first job stops.
    loaded: Option<BTreeMap<String, Vec<ObjectKey>>>,
    /// Workloads whose owner is not simulated, and its UID, until they have its pods.
    without_owner: BTreeMap<ObjectKey, String>,
    /// UIDs of the Workloads that have pods of their own.
    with_pods: BTreeSet<String>,
}

impl PodOwners {
    /// Notes that a pod is gone.
    pub(super) fn forget_pod(&mut self, uid: &str) {
        self.gone.push(uid.to_owned());
    }

    /// Notes that a Workload was loaded without the owner that it has in the cluster.
    pub(super) fn note_without_owner(&mut self, workload: ObjectKey, owner: String) {
        if !owner.is_empty() {
            self.without_owner.insert(workload, owner);
        }
    }

    /// Returns whether a Workload has pods of its own.
    pub(super) fn has_pods(&self, uid: &str) -> bool {
        self.with_pods.contains(uid)
    }
}

/// Most owners between a pod and its job.
const MAX_DEPTH: usize = 4;

/// Returns the pods that no kubelet of the simulation ends, by the UIDs of all that are above them.
fn loaded_pods(server: &FakeApiServer, kinds: &[Kind]) -> BTreeMap<String, Vec<ObjectKey>> {
    let jobs = kinds.iter().filter(|kind| matches!(kind, Kind::Job(_))).flat_map(|kind| server.all(*kind));
    let above: BTreeMap<&str, &str> =
        jobs.filter_map(|job| Some((text_at(job, "/metadata/uid"), controller_uid(job)?))).collect();
    let mut pods: BTreeMap<String, Vec<ObjectKey>> = BTreeMap::new();
    for pod in server.all(Kind::Pod).filter(|pod| !PodMember::is_managed(pod)) {
        let mut owner = controller_uid(pod);
        for _ in 0..MAX_DEPTH {
            let Some(uid) = owner else { break };
            pods.entry(uid.to_owned()).or_default().push(key_of(pod));
            owner = above.get(uid).copied();
        }
    }
    pods
}

impl Simulation {
    /// Gives Workloads that run without their owners the pods below those that name them.
    pub(super) fn adopt_pods(&mut self) {
        let without_owner = std::mem::take(&mut self.pod_owners.without_owner);
        if without_owner.is_empty() {
            return;
        }
        let harness = &mut self.harness;
        let loaded = loaded_pods(&harness.server, harness.core.kinds());
        for (workload, owner) in without_owner {
            let Some(stored) = harness.server.get(Kind::Workload, &workload) else { continue };
            let uid = text_at(stored, "/metadata/uid").to_owned();
            let (resource, name) = (Kind::Workload.resource(), &*workload.name);
            let reference = json!([{"apiVersion": resource.api_version(), "kind": resource.kind, "name": name,
                "uid": uid, "controller": true}]);
            let is_named = |pod: &Value| {
                let annotations = value_at(pod, "/metadata/annotations");
                annotations.is_some_and(|map| field_text(map, names::WORKLOAD_ANNOTATION) == name)
            };
            for pod in loaded.get(&owner).into_iter().flatten() {
                let adopt = |pod: &mut Value| {
                    if is_named(pod) {
                        set(pod, &["metadata", "ownerReferences"], reference.clone());
                    }
                };
                harness.server.edit(Kind::Pod, pod, adopt);
            }
            self.pod_owners.with_pods.insert(uid);
        }
        self.pod_owners.loaded = None;
    }

    /// Deletes the loaded pods of a job, which stops or has ended: whatever they waited for in the cluster, nothing in a simulation
    /// takes it away.
    pub(super) fn end_loaded_pods(&mut self, job_uid: &str) {
        let (harness, now) = (&mut self.harness, self.now);
        let loaded =
            self.pod_owners.loaded.get_or_insert_with(|| loaded_pods(&harness.server, harness.core.kinds()));
        for pod in loaded.remove(job_uid).unwrap_or_default() {
            harness.server.edit(Kind::Pod, &pod, |pod| set(pod, &["metadata", "finalizers"], json!([])));
            harness.server.delete(Kind::Pod, &pod, now);
        }
    }

    /// Creates and deletes pods as their controllers do. Returns whether any was.
    pub(super) fn follow_pod_owners(&mut self) -> bool {
        let mut changed = self.collect_workloads_of_pods() | self.delete_ownerless_pods();
        for kind in self.harness.core.kinds().to_vec() {
            let Kind::Job(row) = kind else { continue };
            if !matches!(row.role, Role::PassThrough | Role::PodsOfOwner) {
                continue;
            }
            for key in self.harness.server.keys_of(kind) {
                changed |= self.follow_pod_owner(kind, row, &key);
            }
        }
        changed
    }

    /// Deletes the Workloads of pods that are gone, as the garbage collector does.
    fn collect_workloads_of_pods(&mut self) -> bool {
        let gone: BTreeSet<String> = std::mem::take(&mut self.pod_owners.gone).into_iter().collect();
        if gone.is_empty() {
            return false;
        }
        let server = &self.harness.server;
        let exists = |uid: &str| server.any(Kind::Pod, |pod| text_at(pod, "/metadata/uid") == uid);
        let is_left = |workload: &&Value| {
            let owners = value_at(workload, "/metadata/ownerReferences").and_then(Value::as_array);
            let owners = owners.map_or(&[][..], Vec::as_slice);
            let uids = || owners.iter().map(|owner| field_text(owner, "uid"));
            owners.iter().all(|owner| field_text(owner, "kind") == "Pod")
                && uids().any(|uid| gone.contains(uid))
                && !uids().any(exists)
        };
        let left: Vec<ObjectKey> = server.all(Kind::Workload).filter(is_left).map(key_of).collect();
        for key in &left {
            self.harness.server.delete(Kind::Workload, key, self.now);
        }
        !left.is_empty()
    }

    fn delete_ownerless_pods(&mut self) -> bool {
        let owner_of = |(kind, key, uid): &(Kind, ObjectKey, String)| {
            self.harness.server.get(*kind, key).is_some_and(|owner| text_at(owner, "/metadata/uid") == uid)
        };
        let gone: Vec<ObjectKey> = self
            .pod_owners
            .pods
            .iter()
            .filter(|(_, owner)| !owner_of(owner))
            .map(|(pod, _)| pod.clone())
            .collect();
        for pod in &gone {
            self.harness.server.delete(Kind::Pod, pod, self.now);
            self.pod_owners.pods.remove(pod);
        }
        !gone.is_empty()
    }

    /// Creates the pods that an object lacks, and deletes those that are too many.
    fn follow_pod_owner(&mut self, kind: Kind, row: JobKind, key: &ObjectKey) -> bool {
        let Some(object) = self.harness.server.get(kind, key).cloned() else { return false };
        let uid = text_at(&object, "/metadata/uid").to_owned();
        if !uid.starts_with(MADE) || !is_marked(row, &object) {
            return false;
        }
        let owned = |owner: &(Kind, ObjectKey, String)| (owner.0, &owner.1) == (kind, key);
        let live = |pod: &ObjectKey| {
            let pod = self.harness.server.get(Kind::Pod, pod);
            pod.is_some_and(|pod| value_at(pod, "/metadata/deletionTimestamp").is_none())
        };
        let live: Vec<ObjectKey> = self
            .pod_owners
            .pods
            .iter()
            .filter(|(pod, owner)| owned(owner) && live(pod))
            .map(|(pod, _)| pod.clone())
            .collect();
        let wanted = self.wanted_pods(row, &object, &uid, &live);
        let surplus: Vec<&ObjectKey> =
            live.iter().filter(|pod| wanted.iter().all(|wanted| *wanted.name != *pod.name)).collect();
        let mut changed = !surplus.is_empty();
        for pod in surplus {
            self.harness.server.delete(Kind::Pod, pod, self.now);
        }
        for wanted in wanted {
            let pod = ObjectKey::new(&key.namespace, &wanted.name);
            if self.harness.server.get(Kind::Pod, &pod).is_none() && self.create_pod(row, &object, &wanted) {
                self.pod_owners.pods.insert(pod, (kind, key.clone(), uid.clone()));
                changed = true;
            }
        }
        changed
    }

    /// Returns the pods that an object asks for. Pods without fixed names are those that it has, and as many new ones as it lacks.
    fn wanted_pods(&mut self, row: JobKind, object: &Value, uid: &str, live: &[ObjectKey]) -> Vec<OwnedPod> {
        let count = |pointer: &str| {
            let count = value_at(object, pointer).and_then(Value::as_u64).unwrap_or(1);
            usize::try_from(count).unwrap_or(usize::MAX)
        };
        let (replicas, name) = (count("/spec/replicas"), text_at(object, "/metadata/name"));
        let [first, .., last] = templates(row) else {
            let Some(template) = templates(row).first().copied() else { return Vec::new() };
            if row.role == Role::PodsOfOwner {
                let pod = |index: usize| numbered_pod(template, name, index);
                return (0..replicas).map(pod).collect();
            }
            let made = self.pod_owners.made.entry(uid.to_owned()).or_default();
            let new = *made..made.saturating_add(replicas.saturating_sub(live.len()));
            *made = new.end;
            let names = live.iter().map(|pod| pod.name.to_string()).take(replicas);
            let names = names.chain(new.map(|number| format!("{name}-{number}")));
            let pod = |name| OwnedPod { name, template, labels: Vec::new(), annotations: Vec::new() };
            return names.map(pod).collect();
        };
        let led = value_at(object, first).is_some_and(Value::is_object);
        let size = count("/spec/leaderWorkerTemplate/size").max(1);
        let pods = |group: usize| {
            (0..size).map(move |index| {
                replica_pod(row, if index == 0 && led { first } else { last }, name, (group, index))
            })
        };
        (0..replicas).flat_map(pods).collect()
    }

    /// Creates a pod as its controller does. A pod that its webhook refuses is tried again later.
    fn create_pod(&mut self, row: JobKind, owner: &Value, wanted: &OwnedPod) -> bool {
        let template = value_at(owner, wanted.template);
        let part = |pointer: &str| template.and_then(|template| value_at(template, pointer)).cloned();
        let mut labels = part("/metadata/labels").unwrap_or_else(|| json!({}));
        let mut annotations = run_annotations(owner);
        for (name, value) in
            part("/metadata/annotations").as_ref().and_then(Value::as_object).into_iter().flatten()
        {
            annotations.insert(name.clone(), value.clone());
        }
        for (name, value) in &wanted.labels {
            set(&mut labels, &[name], json!(value));
        }
        annotations.extend(wanted.annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        let gvk = row.gvk;
        let (api_version, kind) = match row.role {
            // Its ReplicaSet is no job, and is not simulated.
            Role::PassThrough => ("apps/v1".to_owned(), "ReplicaSet"),
            _ => (gvk.api_version(), gvk.kind),
        };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": wanted.name, "namespace": text_at(owner, "/metadata/namespace"), "labels": labels,
                "annotations": annotations,
                "ownerReferences": [{"apiVersion": api_version, "kind": kind,
                    "name": text_at(owner, "/metadata/name"), "uid": text_at(owner, "/metadata/uid"),
                    "controller": true}],
            },
            "spec": part("/spec").unwrap_or_default(),
            "status": {"phase": "Pending"},
        });
        let snapshot = self.harness.core.snapshot();
        let ctx = ReviewContext { objects: &snapshot, settings: self.applier.settings() };
        let Ok((pod, _)) = admission::admit_object(POD, pod, None, |_| Ok(()), &ctx) else { return false };
        self.harness.server.insert(Kind::Pod, pod, self.now, true).is_some()
    }
}

/// Returns pointers to the templates of a kind; the first is that of leaders, if there are several.
fn templates(row: JobKind) -> &'static [&'static str] {
    match row.webhooks.handler {
        WebhookHandler::MarkTemplates(marks) => marks.templates,
        _ => &[],
    }
}

/// Returns whether the pods of an object wait for admission.
fn is_marked(row: JobKind, object: &Value) -> bool {
    templates(row).iter().any(|template| {
        let annotations =
            value_at(object, template).and_then(|template| value_at(template, "/metadata/annotations"));
        let parent = annotations.and_then(|map| field(map, names::SUSPENDING_PARENT_ANNOTATION));
        parent.and_then(Value::as_str) == Some(row.name)
    })
}

/// Returns the annotations of an object that say how its pods run.
fn run_annotations(owner: &Value) -> Map<String, Value> {
    let all = value_at(owner, "/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    all.filter(|(name, _)| name.starts_with("sluice.dev/"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A pod of an object that numbers its pods.
fn numbered_pod(template: &'static str, owner: &str, index: usize) -> OwnedPod {
    let labels = vec![("apps.kubernetes.io/pod-index", index.to_string())];
    OwnedPod { name: format!("{owner}-{index}"), template, labels, annotations: Vec::new() }
}

/// A pod of a replica: its leader, or a worker.
fn replica_pod(
    row: JobKind,
    template: &'static str,
    owner: &str,
    (group, index): (usize, usize),
) -> OwnedPod {
    let leader_name = format!("{owner}-{group}");
    let PodGrouping::ByReplica { name, index: group_index, leader } = row.flags.pod_grouping else {
        return numbered_pod(template, owner, group);
    };
    let mut labels = vec![(name, owner.to_owned()), (group_index, group.to_string())];
    labels.extend(row.pods.rank.index_label.map(|label| (label, index.to_string())));
    let (name, annotations) = match index {
        0 => (leader_name, Vec::new()),
        _ => (format!("{leader_name}-{index}"), vec![(leader, leader_name)]),
    };
    OwnedPod { name, template, labels, annotations }
}
