//! Removes from objects what no decision reads and what may be secret: a dump is meant for bug reports.
//!
//! Invariants: only texts are replaced, and equal texts get equal placeholders, so that a pod template equals its copy in a
//! Workload after the redaction exactly if it did before; fields that decisions read are not changed.

use crate::cache::Kind;
use indexmap::IndexSet;
use serde_json::{Map, Value};

/// Domains of annotations that decisions read, also with a prefix.
const KEPT_DOMAINS: [&str; 3] = ["kueue.x-k8s.io", "autoscaling.x-k8s.io", "sluice.dev"];
/// Fields of a pod spec that decisions read.
const KEPT_POD_FIELDS: [&str; 11] = [
    "affinity",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulingGates",
    "tolerations",
];
/// Fields of a pod spec that are lists of containers.
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Fields of a container that decisions read.
const KEPT_CONTAINER_FIELDS: [&str; 3] = ["name", "resources", "restartPolicy"];
/// Fields that are quantities or maps of them wherever they occur: a placeholder would not be readable as one.
const QUANTITIES: [&str; 4] = ["divisor", "limits", "requests", "sizeLimit"];
/// Fields of the status of nodes and pods, and of their conditions, that decisions read.
const KEPT_STATUS_FIELDS: [&str; 3] = ["allocatable", "conditions", "phase"];
const KEPT_CONDITION_FIELDS: [&str; 4] = ["lastTransitionTime", "reason", "status", "type"];
/// Fields of the spec of nodes that decisions read.
const KEPT_NODE_FIELDS: [&str; 2] = ["taints", "unschedulable"];

/// Texts in specs of custom kinds that decisions read, outside their pod specs. Others may be secret: runtime environments,
/// parameters, wrapped Secrets.
const KEPT_TEXTS: [&str; 22] = [
    "apiGroup",
    "apiVersion",
    "coreLimit",
    "coreRequest",
    "generateName",
    "groupName",
    "kind",
    "managedBy",
    "manager",
    "memory",
    "memoryOverhead",
    "memoryOverheadFactor",
    "mode",
    "name",
    "namespace",
    "path",
    "priorityClass",
    "priorityClassName",
    "restartPolicy",
    "submissionMode",
    "targetJobs",
    "type",
];
/// Fields in specs of custom kinds without a text that is kept, whatever their keys are.
const FREE_FIELDS: [&str; 10] = [
    "args",
    "arguments",
    "binaryData",
    "command",
    "data",
    "env",
    "envVars",
    "hadoopConf",
    "rayStartParams",
    "stringData",
];
/// Maps in specs of custom kinds whose texts are kept: labels, and what selects nodes.
const KEPT_MAPS: [&str; 8] = [
    "affinity",
    "annotations",
    "clusterSelector",
    "labels",
    "matchLabels",
    "nodeSelector",
    "resources",
    "tolerations",
];
/// Parts of the names of Spark's settings that pods are charged by.
const KEPT_SETTINGS: [&str; 8] =
    ["memory", "Memory", "cores", "instances", "dynamicAllocation", "offHeap", ".amount", ".vendor"];
const SETTINGS: &str = "sparkConf";
/// Groups whose kinds have no free texts outside pod specs.
const PLAIN_GROUPS: [&str; 3] = ["", "apps", "batch"];

/// Redacts the objects of one dump.
#[derive(Debug, Default)]
pub struct Redaction {
    /// Replaced texts; the position is the number of the placeholder.
    replaced: IndexSet<String>,
}

impl Redaction {
    /// Redacts an object.
    pub fn redact(&mut self, kind: Kind, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.retain(|key, _| is_kept_annotation(key));
            }
        }
        if matches!(kind, Kind::Node | Kind::Pod) {
            reduce_status(object);
        }
        if let (Kind::Node, Some(spec)) = (kind, object.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.retain(|name, _| KEPT_NODE_FIELDS.contains(&name.as_str()));
        }
        let custom = match kind {
            Kind::Job(row) => !PLAIN_GROUPS.contains(&row.gvk.group),
            Kind::Related(_) => true,
            _ => false,
        };
        if let Some(spec) = object.get_mut("spec").filter(|_| custom) {
            self.redact_custom_spec("spec", spec);
        }
        self.visit(object);
    }

    /// Replaces the texts of a spec that no decision reads, outside pod specs. `name` is that of the field.
    fn redact_custom_spec(&mut self, name: &str, value: &mut Value) {
        if FREE_FIELDS.contains(&name) {
            return self.replace_texts(value);
        }
        match value {
            Value::String(_) if !KEPT_TEXTS.contains(&name) => self.replace_texts(value),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_custom_spec(name, item)),
            Value::Object(fields) if !fields.get("containers").is_some_and(Value::is_array) => {
                for (field, value) in fields.iter_mut() {
                    let charged = name == SETTINGS && KEPT_SETTINGS.iter().any(|part| field.contains(part));
                    let kept = KEPT_MAPS.contains(&field.as_str()) || QUANTITIES.contains(&field.as_str());
                    if !charged && !kept {
                        self.redact_custom_spec(field, value);
                    }
                }
            }
            _ => {}
        }
    }

    /// Redacts all annotations and pod specs in a value. A pod spec is recognized by its containers, wherever the kind has it.
    fn visit(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) {
                    for (_, text) in annotations.iter_mut().filter(|(key, _)| !is_kept_annotation(key)) {
                        self.replace_texts(text);
                    }
                }
                if fields.get("containers").is_some_and(Value::is_array) {
                    self.redact_pod_spec(fields);
                } else {
                    fields.values_mut().for_each(|field| self.visit(field));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.visit(item)),
            _ => {}
        }
    }

    fn redact_pod_spec(&mut self, spec: &mut Map<String, Value>) {
        for (name, value) in spec.iter_mut().filter(|(name, _)| !KEPT_POD_FIELDS.contains(&name.as_str())) {
            if !CONTAINER_LISTS.contains(&name.as_str()) {
                self.replace_texts(value);
                continue;
            }
            let containers = value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
            for (name, field) in containers.flat_map(Map::iter_mut) {
                if !KEPT_CONTAINER_FIELDS.contains(&name.as_str()) {
                    self.replace_texts(field);
                }
            }
        }
    }

    /// Replaces all texts in a value.
    fn replace_texts(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let (number, _) = self.replaced.insert_full(std::mem::take(text));
                *text = format!("redacted-{number}");
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_texts(item)),
            Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| !QUANTITIES.contains(&name.as_str()))
                .for_each(|(_, field)| self.replace_texts(field)),
            _ => {}
        }
    }
}

fn is_kept_annotation(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    KEPT_DOMAINS.iter().any(|kept| {
        domain.strip_suffix(kept).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    })
}

/// Keeps what decisions read of the status of a node or pod.
fn reduce_status(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    status.retain(|name, _| KEPT_STATUS_FIELDS.contains(&name.as_str()));
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.retain(|name, _| KEPT_CONDITION_FIELDS.contains(&name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::{JobKind, framework, pod_set_fingerprint};
    use serde_json::json;

    /// A pod template with a text in each place where users put secrets.
    fn template(secret: &str) -> Value {
        json!({
            "metadata": {"labels": {"app": "a"},
                "annotations": {"team": secret, "kueue.x-k8s.io/podset-preferred-topology": "rack"}},
            "spec": {
                "nodeSelector": {"zone": "z"}, "restartPolicy": "Never", "hostname": secret,
                "volumes": [{"name": "v", "csi": {"driver": secret, "volumeAttributes": {"key": secret}}},
                    {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}}],
                "containers": [{
                    "name": "c", "image": "registry/image", "command": ["run", secret], "args": [secret],
                    "env": [{"name": "TOKEN", "value": secret}, {"name": "CPU", "valueFrom":
                        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}],
                    "livenessProbe": {"periodSeconds": 5, "httpGet": {"port": 80, "httpHeaders":
                        [{"name": "Authorization", "value": secret}]}},
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                }],
            },
        })
    }

    #[test]
    fn secrets_are_replaced_and_decision_fields_are_kept() {
        let mut job = json!({
            "metadata": {"name": "j", "managedFields": [{"manager": "m"}], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "note": "hunter2",
                "kueue.x-k8s.io/job-min-parallelism": "1", "provreq.kueue.x-k8s.io/a": "b",
                "notkueue.x-k8s.io/a": "hunter2"}},
            "spec": {"parallelism": 2, "template": template("hunter2")},
        });
        Redaction::default().redact(Kind::LocalQueue, &mut job);
        assert!(!job.to_string().contains("hunter2"), "{job}");
        assert_eq!(
            job["metadata"],
            json!({"name": "j", "annotations": {"kueue.x-k8s.io/job-min-parallelism": "1",
                "provreq.kueue.x-k8s.io/a": "b"}})
        );
        let spec = &job["spec"]["template"]["spec"];
        assert_eq!(spec["nodeSelector"], json!({"zone": "z"}));
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec["volumes"][1]["emptyDir"]["sizeLimit"], "1Gi");
        let container = &spec["containers"][0];
        assert_eq!(container["name"], "c");
        assert_eq!(container["resources"], json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}));
        assert_eq!(container["livenessProbe"]["periodSeconds"], 5);
        let annotations = &job["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations["kueue.x-k8s.io/podset-preferred-topology"], "rack");
        assert_eq!(annotations["team"], container["args"][0], "equal texts have equal placeholders");
    }

    /// Free texts of custom kinds, and the objects that they wrap.
    #[test]
    fn custom_kinds_keep_only_what_decisions_read() {
        let row = |group, kind| Kind::of_job(JobKind::new(framework(group, kind).unwrap()));
        let mut job = json!({"spec": {
            "submissionMode": "HTTPMode", "entrypoint": "hunter2", "runtimeEnvYAML": "TOKEN: hunter2",
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {"redis-password": "hunter2"}, "template": template("hunter2")},
                "workerGroupSpecs": [{"groupName": "g", "template": template("hunter2")}]}}});
        Redaction::default().redact(row("ray.io", "RayJob"), &mut job);
        assert!(!job.to_string().contains("hunter2"), "{job}");
        assert_eq!(job["spec"]["submissionMode"], "HTTPMode");
        assert_eq!(job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"], "g");
        let mut wrapper = json!({"spec": {"components": [{"podSets": [{"path": "template.spec.template"}], "template":
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"a": "b"}},
                "stringData": {"name": "hunter2"}}}]}});
        Redaction::default().redact(row("workload.codeflare.dev", "AppWrapper"), &mut wrapper);
        assert!(!wrapper.to_string().contains("hunter2"), "{wrapper}");
        let component = &wrapper["spec"]["components"][0];
        assert_eq!(component["podSets"][0]["path"], "template.spec.template");
        assert_eq!(component["template"]["metadata"], json!({"name": "s", "labels": {"a": "b"}}));
        let mut spark = json!({"spec": {"mode": "cluster", "arguments": ["hunter2"], "driver": {"memory": "512m",
            "javaOptions": "-Dkey=hunter2"}, "sparkConf": {"spark.executor.memory": "1g",
            "spark.executor.resource.fpga.amount": "2", "spark.executor.resource.fpga.vendor": "example.com",
            "spark.hadoop.fs.s3a.secret.key": "hunter2"}}});
        Redaction::default().redact(row("sparkoperator.k8s.io", "SparkApplication"), &mut spark);
        assert!(!spark.to_string().contains("hunter2"), "{spark}");
        let kept = ["/spec/mode", "/spec/driver/memory", "/spec/sparkConf/spark.executor.memory"];
        assert_eq!(kept.map(|field| spark.pointer(field).unwrap()), ["cluster", "512m", "1g"]);
        let devices =
            ["amount", "vendor"].map(|what| format!("/spec/sparkConf/spark.executor.resource.fpga.{what}"));
        assert_eq!(devices.map(|field| spark.pointer(&field).cloned().unwrap()), ["2", "example.com"]);
    }

    /// Which entry of patches a start has written.
    #[test]
    fn train_jobs_keep_whose_patches_they_have() {
        let kind = Kind::of_job(JobKind::new(framework("trainer.kubeflow.org", "TrainJob").unwrap()));
        let spec = json!({
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "r"},
            "runtimePatches": [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}],
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
        });
        let mut job = json!({"spec": spec});
        Redaction::default().redact(kind, &mut job);
        assert_eq!(job["spec"], spec);
    }

    /// A job is compared with its Workload by the fingerprint of the template.
    #[test]
    fn templates_are_equal_after_redaction_exactly_if_before() {
        let mut redaction = Redaction::default();
        let mut fingerprint = |secret: &str| {
            let mut pod_set = json!({"name": "main", "template": template(secret)});
            let before = pod_set_fingerprint(&pod_set);
            redaction.redact(Kind::Workload, &mut pod_set);
            (before, pod_set_fingerprint(&pod_set))
        };
        let (first, again, other) = (fingerprint("a"), fingerprint("a"), fingerprint("b"));
        assert_eq!(first, again);
        assert_ne!(first.0, other.0);
        assert_ne!(first.1, other.1);
    }

    #[test]
    fn nodes_and_pods_keep_what_capacity_depends_on() {
        let mut node = json!({
            "metadata": {"name": "n", "labels": {"rack": "r"}, "annotations": {"a": "b"}},
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"images": [{}], "addresses": [{"address": "10.0.0.1"}], "allocatable": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting"}]},
        });
        Redaction::default().redact(Kind::Node, &mut node);
        let expected = json!({
            "metadata": {"name": "n", "labels": {"rack": "r"}, "annotations": {}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(node, expected);
        let mut pod = json!({
            "metadata": {"name": "p", "finalizers": ["batch.kubernetes.io/job-tracking"]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "env": [{"name": "A", "value": "hunter2"}],
                "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "containerStatuses": [{"lastState": {"terminated": {"message": "hunter2"}}}]},
        });
        Redaction::default().redact(Kind::Pod, &mut pod);
        assert!(!pod.to_string().contains("hunter2"), "{pod}");
        assert_eq!(pod["status"], json!({"phase": "Running"}));
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    }
}
