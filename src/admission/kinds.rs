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
    ("trainer.kubeflow.org", "TrainJob", "trainer.kubeflow.org/trainjob"),
    ("ray.io", "RayJob", "ray.io/rayjob"),
    ("ray.io", "RayCluster", "ray.io/raycluster"),
    ("ray.io", "RayService", "ray.io/rayservice"),
    ("workload.codeflare.dev", "AppWrapper", "workload.codeflare.dev/appwrapper"),
    ("sparkoperator.k8s.io", "SparkApplication", "sparkoperator.k8s.io/sparkapplication"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkerset.x-k8s.io/leaderworkerset"),
    ("apps", "Deployment", "deployment"),
    ("apps", "StatefulSet", "statefulset"),
    ("", "Pod", "pod"),
];

/// Who queues objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Management {
    /// We do.
    Ours,
    /// Another controller does it for us: such an object is known by the Workload that it owns.
    External,
    /// Nobody.
    Nobody,
}

/// Who queues the owner's kind.
pub(super) fn management(owner: &Owner, settings: &AdmissionSettings) -> Management {
    let group = owner.group();
    let served = FRAMEWORKS.iter().any(|(known, kind, framework)| {
        *known == group && *kind == owner.kind && settings.frameworks.contains(*framework)
    });
    if served {
        Management::Ours
    } else if settings.external_kinds.contains(&(group.to_owned(), owner.kind.clone())) {
        Management::External
    } else {
        Management::Nobody
    }
}

/// Whether the owner's kind is queued at all.
pub(super) fn is_managed(owner: &Owner, settings: &AdmissionSettings) -> bool {
    management(owner, settings) != Management::Nobody
}
