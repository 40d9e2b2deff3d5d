//! The RayCluster that KubeRay creates for a RayJob or a RayService. The autoscaler resizes the child, not its parent: what an elastic
//! parent asks for is read from the child. KubeRay writes no status of a RayService whose cluster has no head, as one that is suspended:
//! whether it runs is read from the child as well.
//!
//! Invariants: the size of a parent and the part of its Workload's name that the child says are of one version of the child. The name
//! is made from an annotation of the parent, which is written before sizes are compared. While a RayService has two children, an
//! elastic one asks for both: the pods of the second wait for their quota one by one.

use super::JobError;
use super::ray::{CLUSTER_ACTIVE, HEAD, Ray, RayRole, WORKERS, gvk};
use super::read;
use super::related::{Beside, Found, Related, RelatedKey, RelatedKind};
use super::roles::read_count;
use super::row::Pointer;
use super::view::{JobHold, RelatedView};
use crate::api::ObjectKey;
use crate::api::names::{RAY_CLUSTER_GENERATION_ANNOTATION, RAY_CLUSTER_HASH_ANNOTATION};
use serde_json::{Value, json};

/// By which KubeRay compares a cluster with the RayService that it has made it of. Where the first two are missing it updates the
/// cluster in place, whatever differs, and prepares no second one; the cluster that serves also where the last one is missing. The
/// second one alone must not be: the cluster would keep that if it is a copy already, and no upgrade would prepare a second one.
pub(super) const COPY_ANNOTATIONS: [&str; 3] =
    [RAY_CLUSTER_HASH_ANNOTATION, "ray.io/num-worker-groups", "ray.io/kuberay-version"];

/// The children.
pub(super) const CLUSTERS: RelatedKind =
    RelatedKind { gvk: gvk("RayCluster", "rayclusters"), namespaced: true, in_reviews: false };

/// What KubeRay says of a RayJob that it refuses. It creates nothing for it.
const REFUSED: &str = "ValidationFailed";
const JOB_STATE: &str = "/status/jobDeploymentStatus";

/// Returns the children that a job reads: an elastic job for its size, and a job on hold because pods may be left. The second one is to
/// replace the first.
pub(super) fn read_by(ray: &Ray, job: &Value) -> Result<Vec<RelatedKey>, JobError> {
    let elastic = read::asks_for_elasticity(job)?;
    if ray.child.is_none() || (!elastic && hold(ray, job)? != JobHold::Held) {
        return Ok(Vec::new());
    }
    let mut children: Vec<RelatedKey> = Vec::new();
    for pointer in ray.child.into_iter().chain(ray.next_child.filter(|_| elastic)) {
        let Some(child) = child_at(job, pointer)? else { break };
        children.push(child);
    }
    children.dedup();
    Ok(children)
}

/// Returns the children that the status of a job names: the one that serves, and the one that is to replace it or to be the first.
pub(super) fn named_by(ray: &Ray, job: &Value) -> Result<Vec<RelatedKey>, JobError> {
    let mut children: Vec<RelatedKey> = Vec::new();
    for pointer in ray.child.into_iter().chain(ray.next_child) {
        children.extend(child_at(job, pointer)?);
    }
    children.dedup();
    Ok(children)
}

/// Returns the child that a field of the status of a job names.
fn child_at(job: &Value, pointer: Pointer) -> Result<Option<RelatedKey>, JobError> {
    let namespace = read::string(job, "/metadata/namespace")?.unwrap_or_default();
    let name = read::string(job, pointer)?.filter(|name| !name.is_empty());
    Ok(name.map(|name| RelatedKey { kind: CLUSTERS, key: ObjectKey::new(namespace, name) }))
}

impl RelatedView {
    /// Returns the child that is to replace the one that serves; `None` while none serves, or none replaces it.
    pub fn next_child(&self) -> Option<&RelatedKey> {
        self.reads.get(1).filter(|object| object.kind == CLUSTERS)
    }
}

/// Returns whether a job has children, of which each one is suspended and has no pods, or is gone. A status that is written when none
/// is left says so itself.
pub(super) fn are_stopped(ray: &Ray, job: &Value, related: &dyn Related) -> Result<bool, JobError> {
    let mut exists = false;
    for child in named_by(ray, job)? {
        match related.find(&child) {
            Found::Missing => {}
            Found::Object(cluster) if is_stopped(cluster) => exists = true,
            Found::Object(_) | Found::NotYet => return Ok(false),
        }
    }
    Ok(exists)
}

/// Returns whether a cluster is suspended and has no pods; one that cannot be read may have some.
fn is_stopped(cluster: &Value) -> bool {
    let suspended = read::boolean(cluster, "/spec/suspend").is_ok_and(|suspend| suspend == Some(true));
    suspended && !CLUSTER_ACTIVE.holds(cluster).unwrap_or(true)
}

/// Sets the counts of an elastic job to what its children ask for. Returns the child that is awaited for it, if one is.
pub(super) fn count(
    ray: &Ray,
    job: &Value,
    beside: Beside<'_>,
    pod_sets: &mut [Value],
) -> Result<Option<RelatedKey>, JobError> {
    let elastic = read::asks_for_elasticity(job)?;
    let autoscaled = elastic && read::boolean(job, ray.fields.autoscaling)?.unwrap_or(false);
    for (position, child) in read_by(ray, job)?.into_iter().enumerate() {
        let counted = match beside.related.find(&child) {
            Found::NotYet => None,
            Found::Object(cluster) if position > 0 && beside.elastic_jobs => add_pods(cluster, pod_sets),
            Found::Object(cluster) if position == 0 && autoscaled => count_workers(cluster, pod_sets),
            Found::Object(_) | Found::Missing => Some(()),
        };
        if counted.is_none() {
            return Ok(Some(child));
        }
    }
    Ok(None)
}

/// Returns whether KubeRay keeps a job from running.
pub(super) fn hold(ray: &Ray, job: &Value) -> Result<JobHold, JobError> {
    if ray.role != RayRole::Job {
        return Ok(JobHold::Unknown);
    }
    let refused = read::string(job, JOB_STATE)? == Some(REFUSED);
    Ok(if refused { JobHold::Held } else { JobHold::Free })
}

/// Sets the counts of an elastic job's workers to those of its child. Returns `None` if the child has other groups, or cannot be
/// read: it is then awaited.
fn count_workers(child: &Value, pod_sets: &mut [Value]) -> Option<()> {
    for group in read::list(child, "/spec/workerGroupSpecs").ok()? {
        let set = set_of(group, pod_sets)?;
        if read::count(group, "/replicas").ok()?.is_some() {
            let workers = read_count(group, "", &WORKERS).ok()?;
            set.as_object_mut()?.insert("count".to_owned(), json!(workers));
        }
    }
    Some(())
}

/// Adds the pods of a second child to the counts; `None` as for the first one.
fn add_pods(child: &Value, pod_sets: &mut [Value]) -> Option<()> {
    if read::boolean(child, "/spec/suspend").ok()? == Some(true) {
        return Some(());
    }
    let add = |set: &mut Value, pods: i32| {
        let count = read::count(set, "/count").ok()?.unwrap_or(1).saturating_add(pods);
        set.as_object_mut()?.insert("count".to_owned(), json!(count));
        Some(())
    };
    add(set_named(HEAD, pod_sets)?, 1)?;
    for group in read::list(child, "/spec/workerGroupSpecs").ok()? {
        let workers = read_count(group, "", &WORKERS).ok()?;
        add(set_of(group, pod_sets)?, workers)?;
    }
    Some(())
}

/// Returns the pod set of a group of workers.
fn set_of<'a>(group: &Value, pod_sets: &'a mut [Value]) -> Option<&'a mut Value> {
    set_named(&read::string(group, "/groupName").ok()??.to_lowercase(), pod_sets)
}

fn set_named<'a>(name: &str, pod_sets: &'a mut [Value]) -> Option<&'a mut Value> {
    pod_sets.iter_mut().find(|set| set.get("name").and_then(Value::as_str) == Some(name))
}

/// Returns what tells the Workload of an elastic job from those made for its earlier sizes.
pub(super) fn slice(ray: &Ray, job: &Value, generation: i64) -> Result<String, JobError> {
    let annotations = read::string_map(job, "/metadata/annotations")?;
    let child = annotations.get(RAY_CLUSTER_GENERATION_ANNOTATION);
    let child = child.filter(|generation| ray.child.is_some() && !generation.is_empty());
    Ok(child.map_or_else(|| generation.to_string(), |child| format!("{generation}_{child}")))
}

/// Returns the annotation of an elastic job with the generations of its children, if the job has another one; it is empty while there
/// are none.
pub(super) fn outdated_annotation(
    ray: &Ray,
    job: &Value,
    related: &dyn Related,
) -> Result<Option<(&'static str, String)>, JobError> {
    if ray.child.is_none() || !read::asks_for_elasticity(job)? {
        return Ok(None);
    }
    let mut generations = Vec::new();
    for child in read_by(ray, job)? {
        match related.find(&child) {
            Found::NotYet => return Ok(None),
            Found::Object(child) => {
                generations.push(read::long(child, "/metadata/generation")?.unwrap_or(0).to_string());
            }
            Found::Missing => {}
        }
    }
    let generation = generations.join("-");
    let annotations = read::string_map(job, "/metadata/annotations")?;
    let known = annotations.get(RAY_CLUSTER_GENERATION_ANNOTATION);
    Ok((known != Some(&generation)).then_some((RAY_CLUSTER_GENERATION_ANNOTATION, generation)))
}

#[cfg(test)]
mod tests {
    use super::super::ray::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};
    use super::super::row::Framework;
    use super::super::view::JobView;
    use super::*;
    use crate::api::names::ELASTIC_JOB_ANNOTATION;

    /// What is known of the child.
    #[derive(Debug)]
    enum Child {
        NotListed,
        Missing,
        Of(Value),
    }

    impl Related for Child {
        fn find(&self, object: &RelatedKey) -> Found<'_> {
            assert_eq!(object.to_string(), "RayCluster ns/child");
            match self {
                Self::NotListed => Found::NotYet,
                Self::Missing => Found::Missing,
                Self::Of(child) => Found::Object(child),
            }
        }
    }

    fn groups(replicas: &[Value]) -> Value {
        let group = |(index, replicas): (usize, &Value)| {
            json!({"groupName": format!("G{index}"), "replicas": replicas, "numOfHosts": index + 1,
                "template": {"spec": {"containers": [{"name": "c"}]}}})
        };
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let groups: Vec<Value> = replicas.iter().enumerate().map(group).collect();
        json!({"headGroupSpec": {"template": template}, "workerGroupSpecs": groups, "enableInTreeAutoscaling": true})
    }

    fn child(replicas: &[Value]) -> Child {
        Child::Of(json!({"metadata": {"generation": 7}, "spec": groups(replicas)}))
    }

    fn parent(row: &Framework, annotations: &Value, name: &str) -> Value {
        let cluster = groups(&[json!(1), json!(1)]);
        let (spec, status) = if row.gvk.kind == "RayJob" {
            (
                json!({"rayClusterSpec": cluster, "submissionMode": "HTTPMode"}),
                json!({"rayClusterName": name}),
            )
        } else {
            (json!({"rayClusterConfig": cluster}), json!({"activeServiceStatus": {"rayClusterName": name}}))
        };
        json!({"metadata": {"name": "r", "namespace": "ns", "uid": "u", "generation": 3, "annotations": annotations},
            "spec": spec, "status": status})
    }

    fn counts(view: &JobView) -> Vec<i32> {
        view.pod_sets.iter().map(|set| set.count).collect()
    }

    #[test]
    fn elastic_parent_has_the_size_of_its_child() {
        for row in [&RAY_JOB, &RAY_SERVICE] {
            let read = |annotations: Value, name: &str, child: &Child| {
                row.decode_after(&parent(row, &annotations, name), None, Beside::of(child)).unwrap()
            };
            let elastic = || json!({ELASTIC_JOB_ANNOTATION: "true"});
            // An absent number of replicas leaves that of the parent.
            let grown = child(&[json!(4), json!(3)]);
            assert_eq!(counts(&read(elastic(), "child", &grown)), [1, 4, 6]);
            assert_eq!(counts(&read(elastic(), "child", &child(&[json!(0), Value::Null]))), [1, 0, 2]);
            assert_eq!(counts(&read(elastic(), "child", &Child::Missing)), [1, 1, 2]);
            assert_eq!(counts(&read(elastic(), "", &grown)), [1, 1, 2]);
            assert_eq!(counts(&read(json!({}), "child", &grown)), [1, 1, 2]);
            let waits = |child: &Child| read(elastic(), "child", child).related.waits_for.is_some();
            assert!(
                waits(&Child::NotListed) && waits(&child(&[json!(1), json!(1), json!(1)])),
                "other groups"
            );
            assert!(waits(&child(&[json!(-1)])) && !waits(&grown));
        }
    }

    #[test]
    fn name_of_a_slice_has_the_generation_of_the_child() {
        let grown = child(&[json!(4)]);
        let read = |row: &Framework, known: Option<&str>, name: &str, child: &Child| {
            let mut annotations = json!({ELASTIC_JOB_ANNOTATION: "true"});
            if let Some(known) = known {
                annotations[RAY_CLUSTER_GENERATION_ANNOTATION] = json!(known);
            }
            let mut object = parent(row, &annotations, name);
            object["spec"]["rayClusterConfig"]["suspend"] = json!(true);
            let view = row.decode_after(&object, None, Beside::of(child)).unwrap();
            let outdated = view.related.outdated_annotation.map(|(_, generation)| generation);
            (view.options.slice.unwrap().to_string(), outdated)
        };
        for row in [&RAY_JOB, &RAY_SERVICE] {
            let outdated = |generation: &str| Some(generation.to_owned());
            assert_eq!(read(row, None, "", &grown), ("3".to_owned(), outdated("")));
            assert_eq!(read(row, Some(""), "", &grown), ("3".to_owned(), None));
            assert_eq!(read(row, Some(""), "child", &grown), ("3".to_owned(), outdated("7")));
            assert_eq!(read(row, Some("7"), "child", &grown), ("3_7".to_owned(), None));
            assert_eq!(read(row, Some("7"), "child", &Child::Missing), ("3_7".to_owned(), outdated("")));
        }
        let cluster = json!({"metadata": {"name": "r", "namespace": "ns", "uid": "u", "generation": 3,
            "annotations": {ELASTIC_JOB_ANNOTATION: "true", RAY_CLUSTER_GENERATION_ANNOTATION: "7"}},
            "spec": {"suspend": true, "headGroupSpec": {"template": {"spec": {"containers": []}}}}});
        let view = RAY_CLUSTER.decode_after(&cluster, None, Beside::of(&grown)).unwrap();
        assert_eq!((view.options.slice.as_deref(), view.related), (Some("3"), RelatedView::default()));
    }

    /// A refused job has pods only as long as a cluster of an earlier run exists.
    #[test]
    fn refused_job_is_on_hold() {
        let read = |state: &str, child: &Child| {
            let mut object = parent(&RAY_JOB, &json!({}), "child");
            object["status"]["jobDeploymentStatus"] = json!(state);
            let view = RAY_JOB.decode_after(&object, None, Beside::of(child)).unwrap();
            (view.status.hold, view.status.active_pods, view.related.waits_for.is_some())
        };
        let grown = child(&[]);
        assert_eq!(read(REFUSED, &Child::Missing), (JobHold::Held, 0, false));
        assert_eq!(read(REFUSED, &grown), (JobHold::Held, 1, false));
        assert_eq!(read(REFUSED, &Child::NotListed), (JobHold::Held, 1, true));
        assert_eq!(read("Running", &grown), (JobHold::Free, 1, false));
        assert_eq!(read("Suspended", &grown), (JobHold::Free, 0, false));
    }

    /// KubeRay leaves the status of a RayService as it was when the head of its cluster goes.
    #[test]
    fn service_without_running_clusters_does_not_run() {
        let runs = |cluster: &Child| {
            let mut object = parent(&RAY_SERVICE, &json!({}), "child");
            object["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            let view = RAY_SERVICE.decode_after(&object, None, Beside::of(cluster)).unwrap();
            assert_eq!(
                (view.related.reads.len(), view.related.waits_for.is_some()),
                (1, false),
                "{cluster:?}"
            );
            view.status.active_pods > 0
        };
        let cluster =
            |suspend: bool, status: Value| Child::Of(json!({"spec": {"suspend": suspend}, "status": status}));
        let condition = |state: &str, status: &str| json!({"state": state, "conditions": [{"type": "RayClusterSuspended", "status": status}]});
        for stopped in [condition("suspended", "True"), json!({"state": "suspended"}), json!({})] {
            assert!(!runs(&cluster(true, stopped.clone())), "{stopped}");
            assert!(runs(&cluster(false, stopped.clone())), "it starts: {stopped}");
        }
        for ends in [condition("ready", "False"), condition("suspended", "False"), json!({"state": "ready"})]
        {
            assert!(runs(&cluster(true, ends.clone())), "{ends}");
        }
        assert!(runs(&Child::Missing) && runs(&Child::NotListed), "as the status says it");
    }

    #[test]
    fn next_child_is_to_replace_the_one_that_serves() {
        for (serving, pending, expected) in
            [("a", "b", Some("b")), ("a", "a", None), ("a", "", None), ("", "b", None)]
        {
            let mut object = parent(&RAY_SERVICE, &json!({}), serving);
            object["status"]["pendingServiceStatus"] = json!({"rayClusterName": pending});
            let related = RAY_SERVICE.decode(&object).unwrap().related;
            assert_eq!(related.next_child().map(|child| &*child.key.name), expected, "{serving} {pending}");
        }
    }

    /// The finalizer of KubeRay stays until Redis is clean; that of a deletion in the foreground waits for the Workload itself.
    #[test]
    fn deleted_service_runs_until_redis_is_clean() {
        let runs = |fields: &Value, fault_tolerant: bool| {
            let mut object =
                parent(&RAY_SERVICE, &json!({"ray.io/ft-enabled": fault_tolerant.to_string()}), "");
            for (name, value) in fields.as_object().unwrap() {
                object["metadata"][name] = value.clone();
            }
            RAY_SERVICE.decode(&object).unwrap().status.active_pods > 0
        };
        let (own, foreground) = ("ray.io/gcs-ft-redis-cleanup-finalizer", "foregroundDeletion");
        let deleted = |finalizers: &[&str]| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        assert!(runs(&deleted(&[foreground, own]), true));
        assert!(!runs(&deleted(&[foreground]), true) && !runs(&deleted(&[own]), false));
        assert!(!runs(&json!({"finalizers": [own]}), true));
    }
}
