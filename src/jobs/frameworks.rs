//! Kinds that Kueue's frameworks stand for: which of them a configuration manages, and what each of them creates.
//!
//! Invariant: an owner reference is a claim of the user that wrote it. It counts only where the owner's controller really
//! creates objects of that kind; otherwise any queued object could be named to escape the queue.

use super::{KINDS, OwnerRef};
use std::collections::BTreeSet;

/// A framework of Kueue.
struct Framework {
    /// API group of its kind.
    group: &'static str,
    /// Its kind.
    kind: &'static str,
    /// Its name in `integrations.frameworks`.
    name: &'static str,
    /// What its controller creates and controls.
    creates: CreatedKinds,
}

/// Kinds that a controller creates, as (group, kind).
enum CreatedKinds {
    Only(&'static [(&'static str, &'static str)]),
    /// Whatever its object wraps.
    Any,
}

const POD: (&str, &str) = ("", "Pod");
const JOB: (&str, &str) = ("batch", "Job");
const PODS: CreatedKinds = CreatedKinds::Only(&[POD]);

/// The row of a framework.
const fn framework(
    group: &'static str,
    kind: &'static str,
    name: &'static str,
    creates: CreatedKinds,
) -> Framework {
    Framework { group, kind, name, creates }
}

const FRAMEWORKS: &[Framework] = &[
    framework("batch", "Job", "batch/job", PODS),
    framework("jobset.x-k8s.io", "JobSet", "jobset.x-k8s.io/jobset", CreatedKinds::Only(&[JOB])),
    // The launcher is a Job, the workers are pods.
    framework("kubeflow.org", "MPIJob", "kubeflow.org/mpijob", CreatedKinds::Only(&[JOB, POD])),
    framework("kubeflow.org", "PyTorchJob", "kubeflow.org/pytorchjob", PODS),
    framework("kubeflow.org", "TFJob", "kubeflow.org/tfjob", PODS),
    framework("kubeflow.org", "XGBoostJob", "kubeflow.org/xgboostjob", PODS),
    framework("kubeflow.org", "PaddleJob", "kubeflow.org/paddlejob", PODS),
    framework("kubeflow.org", "JAXJob", "kubeflow.org/jaxjob", PODS),
    framework(
        "trainer.kubeflow.org",
        "TrainJob",
        "trainer.kubeflow.org/trainjob",
        CreatedKinds::Only(&[("jobset.x-k8s.io", "JobSet")]),
    ),
    // The submitter is a Job.
    framework("ray.io", "RayJob", "ray.io/rayjob", CreatedKinds::Only(&[("ray.io", "RayCluster"), JOB])),
    // A Job cleans up the storage of its head node.
    framework("ray.io", "RayCluster", "ray.io/raycluster", CreatedKinds::Only(&[POD, JOB])),
    framework("ray.io", "RayService", "ray.io/rayservice", CreatedKinds::Only(&[("ray.io", "RayCluster")])),
    framework("workload.codeflare.dev", "AppWrapper", "workload.codeflare.dev/appwrapper", CreatedKinds::Any),
    framework("sparkoperator.k8s.io", "SparkApplication", "sparkoperator.k8s.io/sparkapplication", PODS),
    framework(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        CreatedKinds::Only(&[("apps", "StatefulSet"), POD]),
    ),
    framework("apps", "Deployment", "deployment", CreatedKinds::Only(&[("apps", "ReplicaSet")])),
    framework("apps", "StatefulSet", "statefulset", PODS),
    // The executors of a Spark driver.
    framework("", "Pod", "pod", PODS),
];

/// Which kinds are queued, by the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ManagedKinds<'a> {
    /// Names in `integrations.frameworks`, built or not.
    pub frameworks: &'a BTreeSet<String>,
    /// Kinds, as (group, kind), that another controller queues.
    pub external: &'a BTreeSet<(String, String)>,
}

/// How the kind of an owner is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// By this manager.
    Internal,
    /// By this manager, were the framework part of this version. Its objects are not read.
    Unsupported,
    /// By another controller: such an object is known by the Workload that it owns.
    External,
    /// Not at all, or its controller creates no objects of the owned kind.
    None,
}

impl ManagedKinds<'_> {
    /// How the owner of an object of a kind, given as (group, kind), is queued.
    pub fn owner_management(&self, owner: &OwnerRef, of: (&str, &str)) -> Management {
        let id = (owner.group(), owner.kind.as_str());
        let known = FRAMEWORKS.iter().find(|row| (row.group, row.kind) == id);
        match known.filter(|row| self.frameworks.contains(row.name)) {
            Some(row) if !row.creates.includes(of) => Management::None,
            Some(row) if KINDS.iter().any(|kind| kind.framework() == row.name) => Management::Internal,
            Some(_) => Management::Unsupported,
            None if self.external.iter().any(|(group, kind)| (group.as_str(), kind.as_str()) == id) => {
                Management::External
            }
            None => Management::None,
        }
    }
}

impl CreatedKinds {
    fn includes(&self, kind: (&str, &str)) -> bool {
        match self {
            Self::Only(kinds) => kinds.contains(&kind),
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_cases() {
        let all: BTreeSet<String> = FRAMEWORKS.iter().map(|row| row.name.to_owned()).collect();
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let managed = ManagedKinds { frameworks: &all, external: &external };
        let named = |api_version: &str, kind: &str| OwnerRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "n".to_owned(),
            uid: "u".to_owned(),
        };
        let table = [
            ("batch/v1", "Job", JOB, Management::None),
            ("batch/v1", "Job", POD, Management::Internal),
            ("batch/v1", "CronJob", JOB, Management::None),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB, Management::Unsupported),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", POD, Management::None),
            ("kubeflow.org/v2beta1", "MPIJob", JOB, Management::Unsupported),
            ("kubeflow.org/v1", "PyTorchJob", JOB, Management::None),
            ("ray.io/v1", "RayJob", JOB, Management::Unsupported),
            ("workload.codeflare.dev/v1beta2", "AppWrapper", JOB, Management::Unsupported),
            ("apps/v1", "Deployment", JOB, Management::None),
            ("v1", "Pod", JOB, Management::None),
            ("example.com/v1", "Foo", JOB, Management::External),
        ];
        for (api_version, kind, child, want) in table {
            let found = managed.owner_management(&named(api_version, kind), child);
            assert_eq!(found, want, "{api_version} {kind} of {child:?}");
        }
        let some = BTreeSet::from(["batch/job".to_owned()]);
        let managed = ManagedKinds { frameworks: &some, external: &external };
        let set = named("jobset.x-k8s.io/v1alpha2", "JobSet");
        assert_eq!(managed.owner_management(&set, JOB), Management::None, "not configured");
    }
}
