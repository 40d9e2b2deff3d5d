//! Kinds that Kueue's frameworks stand for: which of them a configuration manages, and what each of them creates.
//!
//! Invariant: an owner reference is a claim of the user that wrote it. It counts only where the owner's controller really
//! creates objects of that kind; otherwise any queued object could be named to escape the queue.

use super::{KINDS, Owner};
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
    creates: Creates,
}

/// Kinds that a controller creates, as (group, kind).
enum Creates {
    These(&'static [(&'static str, &'static str)]),
    /// Whatever its object wraps.
    Anything,
}

const POD: (&str, &str) = ("", "Pod");
const JOB: (&str, &str) = ("batch", "Job");
const PODS: Creates = Creates::These(&[POD]);

/// The row of a framework.
const fn row(group: &'static str, kind: &'static str, name: &'static str, creates: Creates) -> Framework {
    Framework { group, kind, name, creates }
}

const FRAMEWORKS: &[Framework] = &[
    row("batch", "Job", "batch/job", PODS),
    row("jobset.x-k8s.io", "JobSet", "jobset.x-k8s.io/jobset", Creates::These(&[JOB])),
    // The launcher is a Job, the workers are pods.
    row("kubeflow.org", "MPIJob", "kubeflow.org/mpijob", Creates::These(&[JOB, POD])),
    row("kubeflow.org", "PyTorchJob", "kubeflow.org/pytorchjob", PODS),
    row("kubeflow.org", "TFJob", "kubeflow.org/tfjob", PODS),
    row("kubeflow.org", "XGBoostJob", "kubeflow.org/xgboostjob", PODS),
    row("kubeflow.org", "PaddleJob", "kubeflow.org/paddlejob", PODS),
    row("kubeflow.org", "JAXJob", "kubeflow.org/jaxjob", PODS),
    row(
        "trainer.kubeflow.org",
        "TrainJob",
        "trainer.kubeflow.org/trainjob",
        Creates::These(&[("jobset.x-k8s.io", "JobSet")]),
    ),
    // The submitter is a Job.
    row("ray.io", "RayJob", "ray.io/rayjob", Creates::These(&[("ray.io", "RayCluster"), JOB])),
    // A Job cleans up the storage of its head node.
    row("ray.io", "RayCluster", "ray.io/raycluster", Creates::These(&[POD, JOB])),
    row("ray.io", "RayService", "ray.io/rayservice", Creates::These(&[("ray.io", "RayCluster")])),
    row("workload.codeflare.dev", "AppWrapper", "workload.codeflare.dev/appwrapper", Creates::Anything),
    row("sparkoperator.k8s.io", "SparkApplication", "sparkoperator.k8s.io/sparkapplication", PODS),
    row(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/leaderworkerset",
        Creates::These(&[("apps", "StatefulSet"), POD]),
    ),
    row("apps", "Deployment", "deployment", Creates::These(&[("apps", "ReplicaSet")])),
    row("apps", "StatefulSet", "statefulset", PODS),
    // The executors of a Spark driver.
    row("", "Pod", "pod", PODS),
];

/// Which kinds are queued, by the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Managed<'a> {
    /// Names in `integrations.frameworks`, built or not.
    pub frameworks: &'a BTreeSet<String>,
    /// Kinds, as (group, kind), that another controller queues.
    pub external: &'a BTreeSet<(String, String)>,
}

/// How the kind of an owner is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// By this manager.
    Own,
    /// By this manager, were the framework part of this version. Its objects are not read.
    NotBuilt,
    /// By another controller: such an object is known by the Workload that it owns.
    External,
    /// Not at all, or its controller creates no objects of the owned kind.
    None,
}

impl Managed<'_> {
    /// How the owner of an object of a kind, given as (group, kind), is queued.
    pub fn owner(&self, owner: &Owner, of: (&str, &str)) -> Management {
        let id = (owner.group(), owner.kind.as_str());
        let known = FRAMEWORKS.iter().find(|row| (row.group, row.kind) == id);
        match known.filter(|row| self.frameworks.contains(row.name)) {
            Some(row) if !row.creates.includes(of) => Management::None,
            Some(row) if KINDS.iter().any(|kind| kind.framework() == row.name) => Management::Own,
            Some(_) => Management::NotBuilt,
            None if self.external.iter().any(|(group, kind)| (group.as_str(), kind.as_str()) == id) => {
                Management::External
            }
            None => Management::None,
        }
    }
}

impl Creates {
    fn includes(&self, kind: (&str, &str)) -> bool {
        match self {
            Self::These(kinds) => kinds.contains(&kind),
            Self::Anything => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_counts_only_for_what_its_controller_creates() {
        let all: BTreeSet<String> = FRAMEWORKS.iter().map(|row| row.name.to_owned()).collect();
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let managed = Managed { frameworks: &all, external: &external };
        let named = |api_version: &str, kind: &str| Owner {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "n".to_owned(),
            uid: "u".to_owned(),
        };
        let table = [
            ("batch/v1", "Job", JOB, Management::None),
            ("batch/v1", "Job", POD, Management::Own),
            ("batch/v1", "CronJob", JOB, Management::None),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB, Management::NotBuilt),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", POD, Management::None),
            ("kubeflow.org/v2beta1", "MPIJob", JOB, Management::NotBuilt),
            ("kubeflow.org/v1", "PyTorchJob", JOB, Management::None),
            ("ray.io/v1", "RayJob", JOB, Management::NotBuilt),
            ("workload.codeflare.dev/v1beta2", "AppWrapper", JOB, Management::NotBuilt),
            ("apps/v1", "Deployment", JOB, Management::None),
            ("v1", "Pod", JOB, Management::None),
            ("example.com/v1", "Foo", JOB, Management::External),
        ];
        for (api_version, kind, child, want) in table {
            let found = managed.owner(&named(api_version, kind), child);
            assert_eq!(found, want, "{api_version} {kind} of {child:?}");
        }
        let some = BTreeSet::from(["batch/job".to_owned()]);
        let managed = Managed { frameworks: &some, external: &external };
        let set = named("jobset.x-k8s.io/v1alpha2", "JobSet");
        assert_eq!(managed.owner(&set, JOB), Management::None, "not configured");
    }
}
