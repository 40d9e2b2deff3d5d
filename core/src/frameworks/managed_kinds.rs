//! Which kinds of owners a configuration manages, and what their controllers create.
//!
//! Invariant: owner references are written by users and not trusted. An owner exempts an object from its queue only if the owner's
//! controller creates objects of the owned kind; otherwise a user could name any queued object to bypass the queue.

use super::OwnerRef;
use super::row::{CreatedKinds, Framework};
use super::row_parts::PODS;
use super::table::framework;
use std::collections::BTreeSet;

/// A kind between Deployments and their pods, as (group, kind).
pub const REPLICA_SET: (&str, &str) = ("apps", "ReplicaSet");

/// The managed kinds of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ManagedKinds<'a> {
    /// Names in `integrations.frameworks`.
    pub frameworks: &'a BTreeSet<String>,
    /// Kinds, as (group, kind), that an external controller manages.
    pub external: &'a BTreeSet<(String, String)>,
}

impl ManagedKinds<'_> {
    /// Returns whether this manager reads and queues objects of the kind of an owner.
    pub fn is_enabled(&self, owner: &OwnerRef) -> bool {
        framework(owner.group(), &owner.kind).is_some_and(|row| self.frameworks.contains(row.name))
    }

    /// Returns whether an external controller manages the kind of an owner. Its objects are known only by the Workloads that they
    /// own.
    pub fn is_external(&self, owner: &OwnerRef) -> bool {
        let id = (owner.group(), owner.kind.as_str());
        self.external.iter().any(|(group, kind)| (group.as_str(), kind.as_str()) == id)
    }

    /// Returns what the controller of the kind of an owner creates; `None` if it is not known. Whether the kind is enabled does not
    /// matter.
    pub(super) fn created_by(&self, owner: &OwnerRef) -> Option<CreatedKinds> {
        let known = || created_by((owner.group(), &owner.kind));
        if self.is_external(owner) { Some(CreatedKinds::Any) } else { known() }
    }

    /// Returns whether the controller of an owner creates objects of a kind, given as (group, kind).
    pub fn creates(&self, owner: &OwnerRef, owned: (&str, &str)) -> bool {
        self.created_by(owner).is_some_and(|created| created.includes(owned))
    }

    /// Returns whether an owner is of a managed kind whose controller creates objects of another kind, given as (group, kind).
    pub fn may_own(&self, owner: &OwnerRef, owned: (&str, &str)) -> bool {
        (self.is_enabled(owner) || self.is_external(owner)) && self.creates(owner, owned)
    }
}

/// Returns what the controller of a kind, given as (group, kind), creates; `None` if it is not known.
fn created_by(kind: (&str, &str)) -> Option<CreatedKinds> {
    if kind == REPLICA_SET { Some(PODS) } else { framework(kind.0, kind.1).map(|row| row.creates) }
}

/// Returns whether the controller of a kind creates objects of another one, each given as (group, kind).
pub fn creates(kind: (&str, &str), created: (&str, &str)) -> bool {
    created_by(kind).is_some_and(|kinds| kinds.includes(created))
}

/// Returns whether an owner is a pod.
pub(super) fn is_pod(owner: &OwnerRef) -> bool {
    framework(owner.group(), &owner.kind).is_some_and(Framework::is_pod)
}

#[cfg(test)]
mod tests {
    use super::super::row_parts::{JOB, POD};
    use super::super::table::frameworks;
    use super::*;

    #[test]
    fn owner_cases() {
        let all: BTreeSet<String> = frameworks().map(|row| row.name.to_owned()).collect();
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let managed = ManagedKinds { frameworks: &all, external: &external };
        let named = |api_version: &str, kind: &str| OwnerRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "n".to_owned(),
            uid: "u".to_owned(),
        };
        let table = [
            ("batch/v1", "Job", JOB, false),
            ("batch/v1", "Job", POD, true),
            ("batch/v1", "CronJob", JOB, false),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB, true),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", POD, false),
            ("kubeflow.org/v2beta1", "MPIJob", JOB, true),
            ("kubeflow.org/v1", "PyTorchJob", JOB, false),
            ("ray.io/v1", "RayJob", JOB, true),
            ("workload.codeflare.dev/v1beta2", "AppWrapper", JOB, true),
            ("apps/v1", "Deployment", JOB, false),
            ("apps/v1", "Deployment", REPLICA_SET, true),
            ("v1", "Pod", JOB, false),
            ("example.com/v1", "Foo", JOB, true),
        ];
        for (api_version, kind, child, expected) in table {
            let owner = named(api_version, kind);
            assert_eq!(managed.may_own(&owner, child), expected, "{api_version} {kind} of {child:?}");
            assert_eq!(managed.creates(&owner, child), expected, "{api_version} {kind} of {child:?}");
        }
        let replica_set = named("apps/v1", "ReplicaSet");
        assert!(managed.creates(&replica_set, POD) && !managed.may_own(&replica_set, POD));
        let some = BTreeSet::from(["batch/job".to_owned()]);
        let managed = ManagedKinds { frameworks: &some, external: &external };
        let set = named("jobset.x-k8s.io/v1alpha2", "JobSet");
        assert!(!managed.may_own(&set, JOB) && managed.creates(&set, JOB), "framework is not configured");
    }
}
