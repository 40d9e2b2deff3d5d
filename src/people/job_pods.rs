//! The labels by which the pods of a job are found.

use super::workload_object::text_at;
use crate::api::names::POD_GROUP_NAME;
use serde_json::Value;

const JOB: &str = "batch.kubernetes.io/job-name";
const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
const RAY_CLUSTER: &str = "ray.io/cluster";
const SPARK: &str = "sparkoperator.k8s.io/app-name";
const TRAINING_JOB: &str = "training.kubeflow.org/job-name";
const TRAINING_OPERATOR: &str = "training.kubeflow.org/operator-name";

/// Returns the label selector of the pods of a job; of a pod, that of its group. `None` of a kind whose pods have no label of
/// their job, or if the object does not say yet.
pub fn pod_selector(job: &Value) -> Option<String> {
    let name = text_at(job, "/metadata/name")?;
    let api_version = text_at(job, "/apiVersion").unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let of = |label: &str, value: &str| Some(format!("{label}={value}"));
    let of_status = |pointer: &str| of(RAY_CLUSTER, text_at(job, pointer).filter(|name| !name.is_empty())?);
    match (group, text_at(job, "/kind")?) {
        ("batch", "Job") => of(JOB, name),
        ("jobset.x-k8s.io", "JobSet") | ("trainer.kubeflow.org", "TrainJob") => of(JOB_SET, name),
        ("ray.io", "RayCluster") => of(RAY_CLUSTER, name),
        ("ray.io", "RayJob") => of_status("/status/rayClusterName"),
        ("ray.io", "RayService") => of_status("/status/activeServiceStatus/rayClusterName"),
        ("sparkoperator.k8s.io", "SparkApplication") => of(SPARK, name),
        ("kubeflow.org", kind) => {
            let operator = match kind {
                "MPIJob" => "mpi-operator".to_owned(),
                "PyTorchJob" | "TFJob" | "XGBoostJob" | "PaddleJob" | "JAXJob" => {
                    format!("{}-controller", kind.to_lowercase())
                }
                _ => return None,
            };
            Some(format!("{TRAINING_JOB}={name},{TRAINING_OPERATOR}={operator}"))
        }
        ("", "Pod") => {
            let labels = job.pointer("/metadata/labels").and_then(Value::as_object);
            of(
                POD_GROUP_NAME,
                labels.and_then(|labels| labels.get(POD_GROUP_NAME)?.as_str()).unwrap_or_default(),
            )
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_found_by_the_labels_of_their_controllers() {
        for (version, kind, expected) in [
            ("batch/v1", "Job", Some("batch.kubernetes.io/job-name=x")),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", Some("jobset.sigs.k8s.io/jobset-name=x")),
            ("ray.io/v1", "RayJob", Some("ray.io/cluster=c")),
            ("ray.io/v1", "RayCluster", Some("ray.io/cluster=x")),
            ("ray.io/v1", "RayService", None),
            (
                "kubeflow.org/v1",
                "PyTorchJob",
                Some(
                    "training.kubeflow.org/job-name=x,training.kubeflow.org/operator-name=pytorchjob-controller",
                ),
            ),
            (
                "kubeflow.org/v2beta1",
                "MPIJob",
                Some("training.kubeflow.org/job-name=x,training.kubeflow.org/operator-name=mpi-operator"),
            ),
            ("v1", "Pod", Some("kueue.x-k8s.io/pod-group-name=g")),
            ("apps/v1", "Deployment", None),
            ("kubeflow.org/v1", "Other", None),
        ] {
            let job = json!({
                "apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {POD_GROUP_NAME: "g"}},
                "status": {"rayClusterName": "c"},
            });
            assert_eq!(pod_selector(&job).as_deref(), expected, "{version} {kind}");
        }
    }
}
