//! The JobSet that Kubeflow Trainer makes of a TrainJob and its runtime, as far as quota, placement and the comparison with a
//! Workload depend on it.
//!
//! Invariants: the same TrainJob and runtime give the same JobSet; the patches that a start writes are not part of it; where versions
//! of Trainer differ, containers request the larger amount.

use super::JobError;
use super::read::{self, malformed};
use super::row::Pointer;
use super::strategic_merge::merge;
use crate::resources::Quantity;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Name of the entry of patches that a start writes.
pub(super) const MANAGER: &str = "kueue.x-k8s.io/manager";
pub(super) const PATCHES: Pointer = "/spec/runtimePatches";

/// The label of the Job template that says which part of a TrainJob it runs.
const STEP: Pointer = "/template/metadata/labels/trainer.kubeflow.org~1trainjob-ancestor-step";
const TRAINER: &str = "trainer";
/// Name of the replicated job of MPI workers, and of the container that trains.
const NODE: &str = "node";
/// The parts that load data and model: the step, which is the name of the container as well, and where the TrainJob sets them.
const INITIALIZERS: [(&str, Pointer); 2] =
    [("dataset-initializer", "/spec/initializer/dataset"), ("model-initializer", "/spec/initializer/model")];
const POD_GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";

/// Returns the JobSet of a TrainJob. Paths of errors are those of the runtime, or of the TrainJob below `spec.runtimePatches`,
/// `spec.trainer` and `spec.initializer`.
pub(super) fn job_set(job: &Value, runtime: &Value) -> Result<Value, JobError> {
    let mut spec = runtime.pointer("/spec/template/spec").cloned().unwrap_or_else(|| json!({}));
    for entry in read::list(job, PATCHES)? {
        let patch = entry.pointer("/trainingRuntimeSpec/template/spec").filter(|patch| !patch.is_null());
        if let Some(patch) = patch.filter(|_| entry.get("manager").is_none_or(|manager| manager != MANAGER)) {
            merge(&mut spec, patch);
        }
    }
    let policy = Policy::read(job, runtime)?;
    let jobs = read::list(&spec, "/replicatedJobs").map_err(|_| not_a_list())?;
    let counts = counts(jobs, &policy)?;
    let group = runtime.pointer("/spec/podGroupPolicy/coscheduling").filter(|group| !group.is_null());
    let jobs = spec.get_mut("replicatedJobs").and_then(Value::as_array_mut).into_iter().flatten();
    for (replicated, count) in jobs.zip(counts) {
        render_job(replicated, count, job, &policy)?;
        if group.is_some() {
            let name = read::string(job, "/metadata/name")?.unwrap_or_default();
            let label = json!({"template": {"spec": {"template": {"metadata": {"labels": {POD_GROUP_LABEL: name}}}}}});
            merge(replicated, &label);
        }
    }
    Ok(json!({ "spec": spec }))
}

fn not_a_list() -> JobError {
    malformed("/spec/template/spec/replicatedJobs", "must be a list")
}

/// What the runtime and the TrainJob say of machine learning.
struct Policy {
    /// Number of nodes by the runtime; `None` without a policy.
    nodes: Option<i32>,
    /// Number of nodes by the TrainJob.
    wanted_nodes: Option<i32>,
    mpi: bool,
    launcher_is_node: bool,
}

impl Policy {
    fn read(job: &Value, runtime: &Value) -> Result<Self, JobError> {
        let policy = runtime.pointer("/spec/mlPolicy").filter(|policy| !policy.is_null());
        let mpi = policy.and_then(|policy| policy.get("mpi")).filter(|mpi| !mpi.is_null());
        let nodes = policy.map(|policy| read::count(policy, "/numNodes")).transpose()?;
        let launcher = mpi.map(|mpi| read::boolean(mpi, "/runLauncherAsNode")).transpose()?;
        Ok(Self {
            nodes: nodes.map(|nodes| nodes.unwrap_or(1)),
            wanted_nodes: read::count(job, "/spec/trainer/numNodes")?,
            mpi: mpi.is_some(),
            launcher_is_node: launcher.flatten().unwrap_or(false),
        })
    }

    /// Returns the number of pods that the TrainJob asks for of the replicated job that is its nodes. The launcher may be one of
    /// them.
    fn wanted_pods(&self) -> Option<i32> {
        let nodes = self.wanted_nodes?;
        Some(if self.launcher_is_node { nodes.saturating_sub(1).max(1) } else { nodes })
    }
}

fn step(replicated: &Value) -> Option<&str> {
    replicated.pointer(STEP)?.as_str()
}

fn is_named(object: &Value, name: &str) -> bool {
    object.get("name").is_some_and(|own| own == name)
}

/// Returns the number of pods of each replicated job.
fn counts(jobs: &[Value], policy: &Policy) -> Result<Vec<i32>, JobError> {
    let mut counts = Vec::new();
    for replicated in jobs {
        let own = read::count(replicated, "/template/spec/parallelism")?.unwrap_or(1);
        let nodes = policy.nodes.filter(|_| step(replicated) == Some(TRAINER));
        counts.push(nodes.unwrap_or(own).max(1));
    }
    let is_node = |replicated: &Value| {
        if policy.mpi { is_named(replicated, NODE) } else { step(replicated) == Some(TRAINER) }
    };
    let position = jobs.iter().position(is_node);
    if let Some((count, wanted)) =
        position.and_then(|position| counts.get_mut(position)).zip(policy.wanted_pods())
    {
        *count = wanted;
    }
    Ok(counts)
}

fn render_job(replicated: &mut Value, count: i32, job: &Value, policy: &Policy) -> Result<(), JobError> {
    let step = step(replicated).map(str::to_owned);
    let trains = step.as_deref() == Some(TRAINER);
    let launched = policy.launcher_is_node && is_named(replicated, NODE);
    let initializer = INITIALIZERS.into_iter().find(|(name, _)| step.as_deref() == Some(*name));
    let mut own = json!({"template": {"spec": {"parallelism": count, "completions": count}}});
    if trains || initializer.is_some() {
        super::played_status::set_at(&mut own, "/replicas", json!(1));
    }
    merge(replicated, &own);
    let containers = replicated.pointer_mut("/template/spec/template/spec/containers");
    for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
        if is_named(container, NODE) {
            set_resources(container, job, Applied { trains, policy: policy.nodes.is_some(), launched })?;
            if trains {
                for field in ["image", "command", "args"] {
                    copy(container, field, job.pointer(&format!("/spec/trainer/{field}")));
                }
            }
            if trains || launched {
                add_env(container, read::list(job, "/spec/trainer/env")?)?;
            }
        }
        if let Some((name, place)) = initializer.filter(|(name, _)| is_named(container, name)) {
            let part = job.pointer(place).filter(|part| !part.is_null());
            if let Some(part) = part {
                initialize(container, part).map_err(|error| of_initializer(error, name))?;
            }
        }
    }
    Ok(())
}

fn of_initializer(error: JobError, name: &str) -> JobError {
    match error {
        JobError::Malformed { path, problem } => {
            JobError::Malformed { path: format!("{name} {path}"), problem }
        }
        other => other,
    }
}

/// Sets what an initializer loads.
fn initialize(container: &mut Value, part: &Value) -> Result<(), JobError> {
    if let Some(uri) = read::string(part, "/storageUri")? {
        add_env(container, &[json!({"name": "STORAGE_URI", "value": uri})])?;
    }
    add_env(container, read::list(part, "/env")?)?;
    if let Some(secret) = read::string(part, "/secretRef/name")? {
        let mut sources = read::list(container, "/envFrom")?.to_vec();
        sources.push(json!({"secretRef": {"name": secret}}));
        copy(container, "envFrom", Some(&Value::Array(sources)));
    }
    Ok(())
}

fn copy(container: &mut Value, field: &str, value: Option<&Value>) {
    if let (Some(fields), Some(value)) = (container.as_object_mut(), value.filter(|value| !value.is_null())) {
        fields.insert(field.to_owned(), value.clone());
    }
}

/// Adds variables to those of a container; one of the same name takes the place of the earlier one.
fn add_env(container: &mut Value, added: &[Value]) -> Result<(), JobError> {
    if added.is_empty() {
        return Ok(());
    }
    let mut env = read::list(container, "/env")?.to_vec();
    for variable in added {
        match env.iter_mut().find(|known| known.get("name") == variable.get("name")) {
            Some(known) => *known = variable.clone(),
            None => env.push(variable.clone()),
        }
    }
    copy(container, "env", Some(&Value::Array(env)));
    Ok(())
}

/// Whether the resources that a TrainJob asks for per node are those of a container.
#[derive(Clone, Copy)]
struct Applied {
    /// It trains.
    trains: bool,
    /// The runtime has a policy of machine learning.
    policy: bool,
    /// It is a node beside a launcher that is one as well.
    launched: bool,
}

/// Sets the resources of a container that trains. Trainer 2.3 merges those of the TrainJob into those of the runtime, and only if the
/// runtime has a policy; 2.2 replaces them whether it has one or not. Which version runs is unknown, so each resource is the larger
/// one.
fn set_resources(container: &mut Value, job: &Value, applied: Applied) -> Result<(), JobError> {
    let wanted = job.pointer("/spec/trainer/resourcesPerNode").filter(|wanted| !wanted.is_null());
    let Some(wanted) = wanted else { return Ok(()) };
    let own = container.get("resources").cloned().unwrap_or_else(|| json!({}));
    let lists: Map<String, Value> = ["requests", "limits"]
        .into_iter()
        .filter_map(|field| {
            Some((field.to_owned(), wanted.get(field).filter(|list| list.is_object())?.clone()))
        })
        .collect();
    let replaces = applied.trains && !lists.is_empty();
    let replaced = Value::Object(lists);
    let mut resources = own.clone();
    if (applied.trains && applied.policy) || applied.launched {
        merge(&mut resources, &replaced);
    }
    let older = if replaces { &replaced } else { &own };
    raise(&mut resources, older)?;
    if resources.as_object().is_some_and(|fields| !fields.is_empty()) {
        copy(container, "resources", Some(&resources));
    }
    Ok(())
}

/// Raises requests to those of `other` where these are larger.
fn raise(resources: &mut Value, other: &Value) -> Result<(), JobError> {
    let named = ["requests", "limits"].into_iter().filter_map(|list| other.get(list)?.as_object());
    let names: BTreeSet<String> = named.flat_map(Map::keys).cloned().collect();
    for name in names {
        let Some((wanted, text)) = requested(other, &name)? else { continue };
        if requested(resources, &name)?.is_some_and(|(has, _)| has >= wanted) {
            continue;
        }
        let limit = resources.get("limits").and_then(|limits| limits.get(&name)).map(quantity).transpose()?;
        if limit.is_some_and(|limit| limit < wanted) {
            merge(resources, &json!({"limits": {name.as_str(): text}}));
        }
        merge(resources, &json!({"requests": {name: text}}));
    }
    Ok(())
}

/// Returns how much of a resource a container requests, and the text that says it: a limit stands in for a missing request.
fn requested(resources: &Value, name: &str) -> Result<Option<(Quantity, Value)>, JobError> {
    let of = |list: &str| resources.get(list)?.get(name).filter(|amount| !amount.is_null());
    let Some(amount) = of("requests").or_else(|| of("limits")) else { return Ok(None) };
    Ok(Some((quantity(amount)?, amount.clone())))
}

fn quantity(amount: &Value) -> Result<Quantity, JobError> {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    Quantity::parse(&text).map_err(|error| malformed("/spec/trainer/resourcesPerNode", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::framework;
    use super::*;

    /// A replicated job of a runtime with one container, which requests 1 CPU.
    fn replicated(name: &str, step: &str, container: &str) -> Value {
        json!({"name": name, "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"template": {"spec": {"containers": [
                {"name": container, "image": "own", "env": [{"name": "A", "value": "own"}],
                 "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]}}}}})
    }

    fn runtime(policy: &Value, jobs: &[Value]) -> Value {
        json!({"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}})
    }

    fn trainer() -> [Value; 1] {
        [replicated("node", TRAINER, NODE)]
    }

    fn job(spec: &Value) -> Value {
        json!({"metadata": {"name": "j"}, "spec": spec})
    }

    /// Returns name and number of pods of each pod set.
    fn sizes(job: &Value, runtime: &Value) -> Vec<(String, i64)> {
        let row = framework("jobset.x-k8s.io", "JobSet").unwrap();
        let sets = row.pod_sets(&job_set(job, runtime).unwrap()).unwrap();
        let size = |set: &Value| (set["name"].as_str().unwrap().to_owned(), set["count"].as_i64().unwrap());
        sets.iter().map(size).collect()
    }

    fn container(job: &Value, runtime: &Value) -> Value {
        let rendered = job_set(job, runtime).unwrap();
        rendered.pointer("/spec/replicatedJobs/0/template/spec/template/spec/containers/0").unwrap().clone()
    }

    #[test]
    fn number_of_nodes_follows_the_policy() {
        let nodes = |number: i32| json!({"trainer": {"numNodes": number}});
        let mpi = |launcher: bool| json!({"numNodes": 3, "mpi": {"runLauncherAsNode": launcher}});
        let launched = [replicated("launcher", TRAINER, NODE), replicated("node", "", NODE)];
        let mut several = trainer();
        several[0]["template"]["spec"]["parallelism"] = json!(4);
        several[0]["replicas"] = json!(7);
        let table = [
            (json!(null), trainer().to_vec(), json!({}), vec![("node", 1)]),
            (json!(null), several.to_vec(), json!({}), vec![("node", 4)]),
            (json!(null), several.to_vec(), nodes(2), vec![("node", 2)]),
            (json!({}), several.to_vec(), json!({}), vec![("node", 1)]),
            (json!({"numNodes": 3}), trainer().to_vec(), json!({}), vec![("node", 3)]),
            (json!({"numNodes": 0}), trainer().to_vec(), json!({}), vec![("node", 1)]),
            (json!({"numNodes": 3, "torch": {}}), trainer().to_vec(), nodes(5), vec![("node", 5)]),
            (json!({"numNodes": 3, "jax": {}}), trainer().to_vec(), nodes(5), vec![("node", 5)]),
            (mpi(false), launched.to_vec(), json!({}), vec![("launcher", 3), ("node", 1)]),
            (mpi(false), launched.to_vec(), nodes(5), vec![("launcher", 3), ("node", 5)]),
            (mpi(true), launched.to_vec(), nodes(5), vec![("launcher", 3), ("node", 4)]),
            (mpi(true), launched.to_vec(), nodes(1), vec![("launcher", 3), ("node", 1)]),
        ];
        for (policy, jobs, spec, wanted) in table {
            let wanted: Vec<(String, i64)> =
                wanted.into_iter().map(|(name, pods)| (name.to_owned(), pods)).collect();
            assert_eq!(sizes(&job(&spec), &runtime(&policy, &jobs)), wanted, "{policy} {spec}");
        }
    }

    #[test]
    fn container_that_trains_is_what_the_job_says() {
        let trainer_spec = json!({"trainer": {"image": "mine", "command": ["run"], "args": ["x"],
            "env": [{"name": "A", "value": "mine"}, {"name": "B", "value": "b"}]}});
        let rendered = container(&job(&trainer_spec), &runtime(&json!({}), &trainer()));
        let env = json!([{"name": "A", "value": "mine"}, {"name": "B", "value": "b"}]);
        assert_eq!(
            [&rendered["image"], &rendered["command"], &rendered["args"], &rendered["env"]],
            [&json!("mine"), &json!(["run"]), &json!(["x"]), &env]
        );
        // A container of another name, and the job of another step, are left as they are.
        let others = [replicated("node", TRAINER, "other"), replicated("other", "", NODE)];
        for (index, other) in others.iter().enumerate() {
            let runtime = runtime(&json!({}), std::slice::from_ref(other));
            assert_eq!(container(&job(&trainer_spec), &runtime)["image"], "own", "{index}");
        }
    }

    #[test]
    fn initializers_get_what_they_load() {
        let spec = json!({"initializer": {
            "dataset": {"storageUri": "hf://d", "env": [{"name": "A", "value": "d"}], "secretRef": {"name": "s"}},
            "model": {"env": [{"name": "STORAGE_URI", "value": "hf://m"}]}}});
        let loads = |name: &str| {
            let jobs = [replicated(name, name, name)];
            let rendered = container(&job(&spec), &runtime(&json!({}), &jobs));
            (rendered["env"].clone(), rendered["envFrom"].clone())
        };
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let dataset = json!([variable("A", "d"), variable("STORAGE_URI", "hf://d")]);
        assert_eq!(loads("dataset-initializer"), (dataset, json!([{"secretRef": {"name": "s"}}])));
        let model = json!([variable("A", "own"), variable("STORAGE_URI", "hf://m")]);
        assert_eq!(loads("model-initializer"), (model, json!(null)));
    }

    /// Trainer 2.2 replaces resources, with and without a policy; 2.3 merges them, with a policy alone.
    #[test]
    fn resources_are_the_larger_ones_of_all_versions() {
        let own = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": "2", "memory": "1Gi"}});
        let table = [
            // What the job asks for, and what is charged with a policy and without one.
            (json!({"requests": {"cpu": "1500m"}}), own("1500m"), own("1500m")),
            (json!({"requests": {"cpu": "500m"}}), own("500m"), own("1")),
            (
                json!({"requests": {"cpu": "3", "gpu": 2}}),
                json!({"requests": {"cpu": "3", "gpu": 2}, "limits": {"cpu": "2", "memory": "1Gi"}}),
                json!({"requests": {"cpu": "3", "gpu": 2}, "limits": {"cpu": "3", "memory": "1Gi"}}),
            ),
            (
                json!({"limits": {"memory": "2Gi", "cpu": "4"}}),
                json!({"requests": {"cpu": "4"}, "limits": {"cpu": "4", "memory": "2Gi"}}),
                json!({"requests": {"cpu": "4", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}),
            ),
            (json!({}), own("1"), own("1")),
        ];
        for (wanted, with_policy, without) in table {
            let job = job(&json!({"trainer": {"resourcesPerNode": wanted}}));
            let charged = |policy: Value| container(&job, &runtime(&policy, &trainer()))["resources"].clone();
            assert_eq!((charged(json!({})), charged(json!(null))), (with_policy, without), "{job}");
        }
    }

    #[test]
    fn patches_of_others_apply_and_those_of_a_start_do_not() {
        let patch = |manager: &str, zone: &str| {
            let template = json!({"spec": {"nodeSelector": {"zone": zone}}});
            json!({"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": template}}}]}}}})
        };
        let patches =
            [patch("example.com/a", "a"), patch(MANAGER, "own"), json!({"manager": "example.com/b"})];
        let spec = json!({"runtimePatches": patches});
        let rendered = job_set(&job(&spec), &runtime(&json!({}), &trainer())).unwrap();
        let template = rendered.pointer("/spec/replicatedJobs/0/template/spec/template").unwrap();
        assert_eq!(template["spec"]["nodeSelector"], json!({"zone": "a"}));
    }

    #[test]
    fn pods_of_a_gang_name_it() {
        let mut runtime = runtime(&json!({}), &trainer());
        runtime["spec"]["podGroupPolicy"] = json!({"coscheduling": {}});
        let rendered = job_set(&job(&json!({})), &runtime).unwrap();
        let labels =
            rendered.pointer("/spec/replicatedJobs/0/template/spec/template/metadata/labels").unwrap();
        assert_eq!(*labels, json!({POD_GROUP_LABEL: "j"}));
    }

    #[test]
    fn malformed_objects_are_errors_that_name_the_field() {
        let error = |spec: Value, runtime: &Value| job_set(&job(&spec), runtime).unwrap_err().to_string();
        let plain = runtime(&json!({}), &trainer());
        assert_eq!(
            error(json!({"trainer": {"numNodes": "x"}}), &plain),
            "spec.trainer.numNodes: must be an int32 of at least 0"
        );
        let amount = json!({"trainer": {"resourcesPerNode": {"requests": {"cpu": "x"}}}});
        assert!(error(amount, &plain).starts_with("spec.trainer.resourcesPerNode: "));
        let listless = json!({"spec": {"template": {"spec": {"replicatedJobs": {}}}}});
        assert_eq!(error(json!({}), &listless), "spec.template.spec.replicatedJobs: must be a list");
        assert_eq!(job_set(&job(&json!({})), &json!({})).unwrap(), json!({"spec": {}}));
    }
}
