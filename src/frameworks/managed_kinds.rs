//! Which kinds of owners a configuration manages.
//!
//! Invariant: owner references are written by users and not trusted. A reference counts only if the owner's controller
//! creates objects of the owned kind; otherwise a user could name any queued object to bypass the queue.

use super::OwnerRef;
use super::table::framework;
use std::collections::BTreeSet;

/// The managed kinds of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct ManagedKinds<'a> {
    /// Names in `integrations.frameworks`.
    pub frameworks: &'a BTreeSet<String>,
    /// Kinds, as (group, kind), that an external controller manages.
    pub external: &'a BTreeSet<(String, String)>,
}

/// Which controller manages the kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// This manager.
    Internal,
    /// An external controller. Its objects are known only by the Workloads that they own.
    External,
    /// None: the kind is not configured, or its controller does not create objects of the owned kind.
    None,
}

impl ManagedKinds<'_> {
    /// Returns which controller manages the owner of an object of kind `owned`, given as (group, kind).
    pub fn owner_management(&self, owner: &OwnerRef, owned: (&str, &str)) -> Management {
        let id = (owner.group(), owner.kind.as_str());
        match framework(id.0, id.1).filter(|row| self.frameworks.contains(row.name)) {
            Some(row) if !row.creates.includes(owned) => Management::None,
            Some(_) => Management::Internal,
            None if self.external.iter().any(|(group, kind)| (group.as_str(), kind.as_str()) == id) => {
                Management::External
            }
            None => Management::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{JOB, POD, frameworks};
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
            ("batch/v1", "Job", JOB, Management::None),
            ("batch/v1", "Job", POD, Management::Internal),
            ("batch/v1", "CronJob", JOB, Management::None),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB, Management::Internal),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", POD, Management::None),
            ("kubeflow.org/v2beta1", "MPIJob", JOB, Management::Internal),
            ("kubeflow.org/v1", "PyTorchJob", JOB, Management::None),
            ("ray.io/v1", "RayJob", JOB, Management::Internal),
            ("workload.codeflare.dev/v1beta2", "AppWrapper", JOB, Management::Internal),
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
