//! Kueue's job frameworks: which kinds a configuration manages, and which kinds their controllers create.
//!
//! Invariant: owner references are written by users and not trusted. A reference counts only if the owner's controller
//! creates objects of the owned kind; otherwise a user could name any queued object to bypass the queue.

use super::{KINDS, OwnerRef};
use std::collections::BTreeSet;

/// A framework of Kueue.
struct Framework {
    group: &'static str,
    kind: &'static str,
    /// Name in `integrations.frameworks`.
    name: &'static str,
    /// Kinds that its controller creates and owns.
    creates: CreatedKinds,
}

/// Kinds that a controller creates, as (group, kind).
enum CreatedKinds {
    Only(&'static [(&'static str, &'static str)]),
    /// Any kind, because the object wraps arbitrary objects.
    Any,
}

const POD: (&str, &str) = ("", "Pod");
const JOB: (&str, &str) = ("batch", "Job");
const PODS: CreatedKinds = CreatedKinds::Only(&[POD]);

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
    // A Spark driver pod owns its executor pods.
    framework("", "Pod", "pod", PODS),
];

/// The managed kinds of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ManagedKinds<'a> {
    /// Names in `integrations.frameworks`, supported or not.
    pub frameworks: &'a BTreeSet<String>,
    /// Kinds, as (group, kind), that an external controller manages.
    pub external: &'a BTreeSet<(String, String)>,
}

/// Which controller manages the kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// This manager.
    Internal,
    /// None: the framework is configured but not supported by this version, so its objects are not read.
    Unsupported,
    /// An external controller. Its objects are known only by the Workloads that they own.
    External,
    /// None: the kind is not configured, or its controller does not create objects of the owned kind.
    None,
}

impl ManagedKinds<'_> {
    /// Returns which controller manages the owner of an object of kind `owned`, given as (group, kind).
    pub fn owner_management(&self, owner: &OwnerRef, owned: (&str, &str)) -> Management {
        let id = (owner.group(), owner.kind.as_str());
        let known = FRAMEWORKS.iter().find(|row| (row.group, row.kind) == id);
        match known.filter(|row| self.frameworks.contains(row.name)) {
            Some(row) if !row.creates.includes(owned) => Management::None,
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
        for (api_version, kind, child, expected) in table {
            let management = managed.owner_management(&named(api_version, kind), child);
            assert_eq!(management, expected, "{api_version} {kind} of {child:?}");
        }
        let some = BTreeSet::from(["batch/job".to_owned()]);
        let managed = ManagedKinds { frameworks: &some, external: &external };
        let set = named("jobset.x-k8s.io/v1alpha2", "JobSet");
        assert_eq!(managed.owner_management(&set, JOB), Management::None, "framework is not configured");
    }
}
