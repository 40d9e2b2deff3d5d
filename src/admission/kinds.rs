//! Job kinds that Kueue's frameworks stand for, to tell whether an owner is one that is served.

use super::{AdmissionSettings, Owner};

/// Group, kind, framework.
const FRAMEWORKS: &[(&str, &str, &str)] = &[
    ("batch", "Job", "batch/job"),
    ("jobset.x-k8s.io", "JobSet", "jobset.x-k8s.io/jobset"),
    ("kubeflow.org", "MPIJob", "kubeflow.org/mpijob"),
    ("kubeflow.org", "PyTorchJob", "kubeflow.org/pytorchjob"),
    ("kubeflow.org", "TFJob", "kubeflow.org/tfjob"),
    ("kubeflow.org", "XGBoostJob", "kubeflow.org/xgboostjob"),
    ("kubeflow.org", "PaddleJob", "kubeflow.org/paddlejob"),
    ("kubeflow.org", "JAXJob", "kubeflow.org/jaxjob"),
    (
        "trainer.kubeflow.org",
        "TrainJob",
        "trainer.kubeflow.org/trainjob",
    ),
    ("ray.io", "RayJob", "ray.io/rayjob"),
    ("ray.io", "RayCluster", "ray.io/raycluster"),
    ("ray.io", "RayService", "ray.io/rayservice"),
    (
        "workload.codeflare.dev",
        "AppWrapper",
        "workload.codeflare.dev/appwrapper",
    ),
    (
        "sparkoperator.k8s.io",
        "SparkApplication",
        "sparkoperator.k8s.io/sparkapplication",
    ),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/leaderworkerset",
    ),
    ("apps", "Deployment", "deployment"),
    ("apps", "StatefulSet", "statefulset"),
    ("", "Pod", "pod"),
];

/// Whether the owner's kind is served here, or queued for us by another controller.
pub(super) fn is_managed(owner: &Owner, settings: &AdmissionSettings) -> bool {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let served = FRAMEWORKS.iter().any(|(known, kind, framework)| {
        *known == group && *kind == owner.kind && settings.frameworks.contains(*framework)
    });
    served
        || settings
            .external_kinds
            .contains(&(group.to_owned(), owner.kind.clone()))
}
