//! Search for the ancestor of a job that is queued in its place.
//!
//! Invariants: the search terminates for any owner references; an owner counts only if its controller creates objects
//! of the owned kind.

use super::OwnerRef;
use super::managed_kinds::{ManagedKinds, Management};
use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of objects on the path, including the job.
const DEPTH_LIMIT: usize = 10;

/// Result of looking up the object of an owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerLookup {
    /// The object is unknown because it is not managed; the search ends.
    Unmanaged,
    /// The object is of a managed kind, but was not found.
    Missing,
    /// The object was found.
    Found {
        /// UID of the object as stored.
        uid: String,
        /// Whether it is queued itself.
        queued: bool,
        /// Its controller owner.
        controller: Option<OwnerRef>,
    },
}

/// Why the search failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AncestryError {
    /// The owner references form a cycle.
    Cycle,
    /// The path is longer than `DEPTH_LIMIT`.
    TooDeep,
    /// An owner of a managed kind was not found.
    Missing(OwnerRef),
}

impl fmt::Display for AncestryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle => f.write_str("metadata.ownerReferences: the controller owners form a cycle"),
            Self::TooDeep => {
                write!(
                    f,
                    "metadata.ownerReferences: more than {DEPTH_LIMIT} controller owners above each other"
                )
            }
            Self::Missing(owner) => write!(
                f,
                "metadata.ownerReferences: the owner {} {} of {} was not found",
                owner.kind, owner.name, owner.api_version
            ),
        }
    }
}

/// Returns the highest ancestor that is queued itself, so that the job must not be queued. `job` is the kind of the job
/// as (group, kind). An object with the name but not the UID of the owner ends the search.
///
/// # Errors
/// The owner references form a cycle, are too deep, or name an object that was not found.
pub fn queued_ancestor(
    job: (&str, &str),
    uid: &str,
    controller: Option<OwnerRef>,
    managed: &ManagedKinds<'_>,
    lookup: impl Fn(&OwnerRef, Management) -> OwnerLookup,
) -> Result<Option<OwnerRef>, AncestryError> {
    let mut seen = BTreeSet::from([uid.to_owned()]);
    let mut owned = (job.0.to_owned(), job.1.to_owned());
    let mut next = controller;
    let mut highest = None;
    while let Some(owner) = next {
        let management = managed.owner_management(&owner, (&owned.0, &owned.1));
        let result = match management {
            Management::None => break,
            Management::Internal | Management::External => lookup(&owner, management),
        };
        let (uid, queued, controller) = match result {
            OwnerLookup::Unmanaged => break,
            OwnerLookup::Missing => return Err(AncestryError::Missing(owner)),
            OwnerLookup::Found { uid, queued, controller } => (uid, queued, controller),
        };
        if uid != owner.uid {
            break;
        }
        if !seen.insert(uid) {
            return Err(AncestryError::Cycle);
        }
        if seen.len() > DEPTH_LIMIT {
            return Err(AncestryError::TooDeep);
        }
        owned = (owner.group().to_owned(), owner.kind.clone());
        if queued {
            highest = Some(owner);
        }
        next = controller;
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: (&str, &str) = ("batch", "Job");

    /// Returns an owner of an external kind.
    fn owner(name: &str) -> OwnerRef {
        OwnerRef {
            api_version: "example.com/v1".to_owned(),
            kind: "Foo".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }
    }

    fn found(name: &str, queued: bool, controller: Option<&str>) -> OwnerLookup {
        OwnerLookup::Found { uid: format!("uid-{name}"), queued, controller: controller.map(owner) }
    }

    #[test]
    fn highest_queued_ancestor_wins_and_walk_ends() {
        let frameworks = BTreeSet::from(["batch/job".to_owned()]);
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let managed = ManagedKinds { frameworks: &frameworks, external: &external };
        let from = |first: OwnerRef, lookup: &dyn Fn(&str) -> OwnerLookup| {
            queued_ancestor(JOB, "me", Some(first), &managed, |owner, _| lookup(&owner.name))
        };
        let walk = |lookup: &dyn Fn(&str) -> OwnerLookup| from(owner("a"), lookup);
        let queued = |name: &str| Ok(Some(owner(name)));
        let chain =
            |name: &str| if name == "a" { found("a", true, Some("b")) } else { found("b", true, None) };
        assert_eq!(walk(&chain), queued("b"));
        let lower =
            |name: &str| if name == "a" { found("a", true, Some("b")) } else { OwnerLookup::Unmanaged };
        assert_eq!(walk(&lower), queued("a"));
        assert_eq!(walk(&|_| found("a", false, None)), Ok(None));
        assert_eq!(walk(&|_| OwnerLookup::Missing), Err(AncestryError::Missing(owner("a"))));
        let other =
            |_: &str| OwnerLookup::Found { uid: "another".to_owned(), queued: true, controller: None };
        assert_eq!(walk(&other), Ok(None), "an object with the same name and another UID is not the owner");
        let cycle = |name: &str| found(name, false, Some(if name == "a" { "b" } else { "a" }));
        assert_eq!(walk(&cycle), Err(AncestryError::Cycle));
        let long = |name: &str| found(name, false, Some(&format!("{name}a")));
        assert_eq!(walk(&long), Err(AncestryError::TooDeep));
        // A Job creates no Jobs, queued or not.
        let job = OwnerRef { api_version: "batch/v1".to_owned(), kind: "Job".to_owned(), ..owner("a") };
        assert_eq!(from(job, &|_| found("a", true, None)), Ok(None));
    }
}
