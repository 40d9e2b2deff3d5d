//! The labels by which the pods of a job are found.

use super::row::{Framework, LabelValue, PodLabel};
use super::table::framework;
use serde_json::Value;

/// Returns the label selector of the pods of an object of any kind; of a pod, that of its group. `None` if the kind has no row or
/// gives its pods no label of their object, or if the object does not name them yet.
pub fn pod_selector(job: &Value) -> Option<String> {
    let text = |field: &str| job.get(field).and_then(Value::as_str);
    let group = text("apiVersion").and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
    framework(group, text("kind")?)?.pod_selector(job)
}

impl Framework {
    /// Returns the label selector of the pods of an object of the kind, as [`pod_selector`].
    pub fn pod_selector(&self, job: &Value) -> Option<String> {
        let requirement = |label: &PodLabel| {
            let value = match label.value {
                LabelValue::Field(pointer) => {
                    job.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())?
                }
                LabelValue::SameLabel => {
                    let labels = job.pointer("/metadata/labels");
                    labels.and_then(|labels| labels.get(label.key)?.as_str()).unwrap_or_default()
                }
                LabelValue::Text(text) => text,
            };
            Some(format!("{}={value}", label.key))
        };
        let requirements: Vec<String> = self.pods.selector?.iter().map(requirement).collect::<Option<_>>()?;
        Some(requirements.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::POD_GROUP_NAME;
    use serde_json::json;

    #[test]
    fn pods_are_found_by_the_labels_of_their_controllers() {
        for (version, kind, expected) in [
            ("batch/v1", "Job", Some("batch.kubernetes.io/job-name=x")),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", Some("jobset.sigs.k8s.io/jobset-name=x")),
            ("ray.io/v1", "RayJob", Some("ray.io/cluster=c")),
            ("ray.io/v1", "RayCluster", Some("ray.io/cluster=x")),
            ("ray.io/v1", "RayService", None),
            ("trainer.kubeflow.org/v1alpha1", "TrainJob", Some("jobset.sigs.k8s.io/jobset-name=x")),
            ("sparkoperator.k8s.io/v1beta2", "SparkApplication", Some("sparkoperator.k8s.io/app-name=x")),
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
