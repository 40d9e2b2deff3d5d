//! What KubeRay adds to the pods of a cluster and no template has: pod sets have it, so that it is charged.
//!
//! Invariant: the objects themselves are not changed; a start writes the template of the submitter alone, which KubeRay would make.

use super::JobError;
use super::ray::{BY_JOB, Ray, RayRole, SUBMISSION_MODE, SUBMITTER, SUBMITTER_TEMPLATE};
use super::read::{self, malformed};
use super::row::Rank;
use super::topology::topology_request;
use super::workload::clean_template;
use crate::resources::Quantity;
use serde_json::{Map, Value, json};

const FAULT_TOLERANT: &str = "ray.io/ft-enabled";
/// The finalizer of an object that is deleted after its dependents.
const IN_FOREGROUND: &str = "foregroundDeletion";
/// Name of the container that submits a job.
const SUBMITTER_CONTAINER: &str = "ray-job-submitter";
/// Requests of the Job that cleans up Redis after the cluster: the head makes room for it.
const CLEANUP: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "256Mi")];

/// Completes the pod sets of a job, of which the head is the first.
pub(super) fn complete(ray: &Ray, job: &Value, pod_sets: &mut Vec<Value>) -> Result<(), JobError> {
    let cluster = job.pointer(ray.cluster).unwrap_or(&Value::Null);
    let mode = if ray.role == RayRole::Job { submission_mode(job)? } else { None };
    if let Some(head) = pod_sets.first_mut() {
        if is_fault_tolerant(job, cluster)? {
            make_room_for_cleanup(head)?;
        }
        if read::boolean(cluster, "/enableInTreeAutoscaling")?.unwrap_or(false) {
            add_container(head, "autoscaler", &autoscaler_resources(cluster));
        }
        if mode == Some("SidecarMode") {
            add_container(head, SUBMITTER_CONTAINER, &submitter_resources());
        }
    }
    if mode == Some(BY_JOB) {
        pod_sets.push(submitter(job, cluster)?);
    }
    Ok(())
}

/// Returns how a RayJob is submitted. Without a server, nothing has set the default of its definition.
fn submission_mode(job: &Value) -> Result<Option<&str>, JobError> {
    Ok(read::string(job, SUBMISSION_MODE)?.or(Some(BY_JOB)))
}

fn is_fault_tolerant(job: &Value, cluster: &Value) -> Result<bool, JobError> {
    let annotations = read::string_map(job, "/metadata/annotations")?;
    let asked = annotations.get(FAULT_TOLERANT).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    Ok(asked || cluster.get("gcsFaultToleranceOptions").is_some_and(|options| !options.is_null()))
}

/// Returns whether a job that is being deleted waits for the Job that cleans up Redis: KubeRay holds the object until that Job has
/// ended. Deletion in the foreground holds it only as long as its Workload exists.
pub(super) fn cleans_up(ray: &Ray, job: &Value) -> Result<bool, JobError> {
    let metadata = job.get("metadata").unwrap_or(&Value::Null);
    if read::string(metadata, "/deletionTimestamp")?.is_none() {
        return Ok(false);
    }
    let cluster = job.pointer(ray.cluster).unwrap_or(&Value::Null);
    let held = read::list(metadata, "/finalizers")?.iter().any(|finalizer| finalizer != IN_FOREGROUND);
    Ok(held && is_fault_tolerant(job, cluster)?)
}

fn make_room_for_cleanup(head: &mut Value) -> Result<(), JobError> {
    let container = head.pointer_mut("/template/spec/containers/0").and_then(Value::as_object_mut);
    let container = container.ok_or_else(|| {
        malformed("/spec/headGroupSpec/template/spec/containers", "needs the Ray container")
    })?;
    let requests = object_in(container, "resources").and_then(|resources| object_in(resources, "requests"));
    let Some(requests) = requests else { return Ok(()) };
    for (resource, least) in CLEANUP {
        let known = requests
            .get(resource)
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let known = known.and_then(|text| Quantity::parse(&text).ok());
        let enough = Quantity::parse(least)
            .ok()
            .zip(known)
            .is_some_and(|(least, known)| known.minus(&least).sign() >= 0);
        if !enough {
            requests.insert(resource.to_owned(), json!(least));
        }
    }
    Ok(())
}

/// Returns an object in a map, which is created if it is missing.
fn object_in<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    let value = map.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

fn add_container(pod_set: &mut Value, name: &str, resources: &Value) {
    if let Some(containers) = pod_set.pointer_mut("/template/spec/containers").and_then(Value::as_array_mut) {
        containers.push(json!({"name": name, "resources": resources}));
    }
}

fn autoscaler_resources(cluster: &Value) -> Value {
    let own = cluster.pointer("/autoscalerOptions/resources").filter(|own| own.is_object());
    let amounts = json!({"cpu": "500m", "memory": "512Mi"});
    own.cloned().unwrap_or_else(|| json!({"requests": amounts, "limits": amounts}))
}

fn submitter_resources() -> Value {
    json!({"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}})
}

/// Returns the pod set of the Job that submits a job.
fn submitter(job: &Value, cluster: &Value) -> Result<Value, JobError> {
    let own = job.pointer(SUBMITTER_TEMPLATE).filter(|template| template.is_object());
    let template = match own {
        Some(template) => clean_template(template),
        None => default_submitter(cluster)?,
    };
    let annotations = read::string_map(&template, "/metadata/annotations")?;
    let mut set = json!({"name": SUBMITTER, "template": template, "count": 1});
    let none = Rank { index_label: None, sub_groups: None };
    if let Some(request) =
        topology_request(&annotations, &none, None, &format!("{SUBMITTER_TEMPLATE}/metadata/annotations"))?
        && let Some(fields) = set.as_object_mut()
    {
        fields.insert("topologyRequest".to_owned(), request);
    }
    Ok(set)
}

/// Returns the template that KubeRay makes for a submitter without one.
fn default_submitter(cluster: &Value) -> Result<Value, JobError> {
    let head = cluster.pointer("/headGroupSpec/template/spec/containers/0");
    let head = head.ok_or_else(|| {
        malformed("/spec/rayClusterSpec/headGroupSpec/template/spec/containers", "is required")
    })?;
    let mut container = json!({"name": SUBMITTER_CONTAINER, "resources": submitter_resources()});
    if let Some((image, fields)) = head.get("image").zip(container.as_object_mut()) {
        fields.insert("image".to_owned(), image.clone());
    }
    Ok(json!({"spec": {"containers": [container], "restartPolicy": "Never"}}))
}

#[cfg(test)]
mod tests {
    use super::super::ray::{RAY_CLUSTER, RAY_JOB};
    use super::super::related::Beside;
    use super::super::row::Framework;
    use super::super::{JobPatch, PodSets, pod_set_infos};
    use super::*;

    fn cluster() -> Value {
        let pod = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "ray", "resources": {"requests": {"cpu": "100m"}}}]}});
        json!({"headGroupSpec": {"template": pod("head")}, "workerGroupSpecs": [
            {"groupName": "g1", "replicas": 1, "numOfHosts": 4, "template": pod("worker")},
            {"groupName": "g2", "replicas": 0, "numOfHosts": 2, "template": pod("worker")},
            {"groupName": "G3", "replicas": 3, "numOfHosts": 0, "template": pod("worker")},
        ]})
    }

    fn job(kind: &Framework, spec: &Value) -> Value {
        json!({"kind": kind.gvk.kind, "metadata": {"name": "r", "uid": "u", "resourceVersion": "7"}, "spec": spec})
    }

    fn sets(kind: &Framework, job: &Value) -> Vec<Value> {
        let PodSets::Known(sets) = kind.pod_sets_with(job, Beside::NOTHING).unwrap() else { panic!("{job}") };
        sets
    }

    fn ray_job(mode: &str) -> Value {
        let spec = json!({"suspend": true, "submissionMode": mode, "rayClusterSpec": cluster()});
        job(&RAY_JOB, &spec)
    }

    #[test]
    fn head_is_charged_for_what_the_operator_adds() {
        let mut object = job(&RAY_CLUSTER, &cluster());
        let shape = |sets: &[Value]| -> Vec<(String, i64)> {
            sets.iter()
                .map(|set| (set["name"].as_str().unwrap().to_owned(), set["count"].as_i64().unwrap()))
                .collect()
        };
        let expected =
            [("head", 1), ("g1", 4), ("g2", 0), ("g3", 3)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(shape(&sets(&RAY_CLUSTER, &object)), expected);
        object["spec"]["enableInTreeAutoscaling"] = json!(true);
        object["metadata"]["annotations"][FAULT_TOLERANT] = json!("True");
        let head = sets(&RAY_CLUSTER, &object).remove(0);
        let containers = head["template"]["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers[0]["resources"]["requests"], json!({"cpu": "200m", "memory": "256Mi"}));
        assert_eq!(
            (&containers[1]["name"], &containers[1]["resources"]["limits"]["cpu"]),
            (&json!("autoscaler"), &json!("500m"))
        );
        let own = json!({"requests": {"cpu": "3"}});
        object["spec"]["autoscalerOptions"] = json!({"resources": own});
        let head = sets(&RAY_CLUSTER, &object).remove(0);
        assert_eq!(head["template"]["spec"]["containers"][1]["resources"], own);
        object["spec"]["headGroupSpec"]["template"]["spec"]["containers"] = json!([]);
        assert!(RAY_CLUSTER.pod_sets_with(&object, Beside::NOTHING).is_err());
    }

    #[test]
    fn submitter_is_a_pod_set_or_a_container_of_the_head() {
        let last = |object: &Value| sets(&RAY_JOB, object).pop().unwrap();
        let submitter = last(&ray_job("K8sJobMode"));
        assert_eq!((&submitter["name"], &submitter["count"]), (&json!("submitter"), &json!(1)));
        assert_eq!(submitter["template"]["spec"]["containers"][0]["image"], "ray");
        let mut own = ray_job("K8sJobMode");
        own["spec"]["submitterPodTemplate"] = json!({"spec": {"containers": [{"name": "mine"}]}});
        assert_eq!(last(&own)["template"], own["spec"]["submitterPodTemplate"]);
        own["spec"].as_object_mut().unwrap().remove("submissionMode");
        assert_eq!(last(&own)["name"], "submitter", "the default of the definition");
        let sidecar = ray_job("SidecarMode");
        assert_eq!(last(&sidecar)["name"], "g3");
        assert_eq!(
            sets(&RAY_JOB, &sidecar)[0]["template"]["spec"]["containers"][1]["name"],
            SUBMITTER_CONTAINER
        );
        assert_eq!(last(&ray_job("HTTPMode"))["name"], "g3");
    }

    /// A start writes the template that the operator would make, with its additions; a stop leaves it as it was made.
    #[test]
    fn start_writes_the_missing_template_of_the_submitter() {
        let mut object = ray_job("K8sJobMode");
        let apply = |object: &mut Value, patches: &[JobPatch]| {
            for patch in patches {
                let operations: json_patch::Patch = serde_json::from_value(patch.at_version("7")).unwrap();
                json_patch::patch(object, &operations).unwrap();
            }
        };
        let originals = pod_set_infos(&sets(&RAY_JOB, &object)).unwrap();
        let view = RAY_JOB.decode(&object).unwrap();
        apply(&mut object, &RAY_JOB.run_patch(&view, &originals).unwrap());
        let label = &object["spec"]["submitterPodTemplate"]["metadata"]["labels"]["kueue.x-k8s.io/podset"];
        assert_eq!(label, "submitter");
        let running = RAY_JOB.decode(&object).unwrap();
        assert!(!running.suspended && running.pod_sets.len() == 5);
        apply(&mut object, &RAY_JOB.stop_patches(&running, &originals));
        let stopped = RAY_JOB.decode(&object).unwrap();
        assert!(stopped.suspended && stopped.pod_sets.iter().all(|set| set.template.labels.is_empty()));
    }

    #[test]
    fn job_on_a_cluster_of_its_own_choice_is_not_managed() {
        let spec = json!({"suspend": true, "clusterSelector": {"ray.io/cluster": "c"}});
        let view = RAY_JOB.decode(&job(&RAY_JOB, &spec)).unwrap();
        assert!(view.options.skipped && view.pod_sets.is_empty());
    }
}
