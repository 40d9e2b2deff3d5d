//! The walk from a job to the ancestor that is queued in its place.
//!
//! Invariants: the walk ends, whatever the owners say of each other; an owner counts only if its kind creates objects of
//! the owned kind.

use super::OwnerRef;
use super::frameworks::{ManagedKinds, Management};
use std::collections::BTreeSet;
use std::fmt;

/// How many objects the walk may visit.
const DEPTH_LIMIT: usize = 10;

/// What is known of the object that an owner reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerLookup {
    /// It is not there, and that is no error: the walk ends.
    Unmanaged,
    /// It should be there, and is not.
    Missing,
    /// It is there.
    Found {
        /// UID of the object as stored.
        uid: String,
        /// It is queued itself.
        queued: bool,
        /// Its own controller.
        controller: Option<OwnerRef>,
    },
}

/// What the walk found above a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ancestor {
    /// The highest ancestor that is queued itself: the job must not be.
    Queued(OwnerRef),
    /// An owner of a kind that is configured and not part of this version: whether it is queued cannot be read.
    Unsupported(OwnerRef),
}

/// Why the walk found no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AncestryError {
    /// An object owns itself over others.
    Cycle,
    /// Too many objects above each other.
    TooDeep,
    /// An owner that should be there could not be read.
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

/// The highest ancestor that is queued itself, so that the job must not be. `job` is the job's kind as (group, kind). An
/// object that only has the name of the owner ends the walk.
///
/// # Errors
/// Names why the walk found no end.
pub fn queued_ancestor(
    job: (&str, &str),
    uid: &str,
    controller: Option<OwnerRef>,
    managed: &ManagedKinds<'_>,
    look: impl Fn(&OwnerRef, Management) -> OwnerLookup,
) -> Result<Option<Ancestor>, AncestryError> {
    let mut seen = BTreeSet::from([uid.to_owned()]);
    let mut owned = (job.0.to_owned(), job.1.to_owned());
    let mut next = controller;
    let mut highest = None;
    while let Some(owner) = next {
        let management = managed.owner_management(&owner, (&owned.0, &owned.1));
        let link = match management {
            Management::None => break,
            Management::Unsupported => return Ok(highest.or(Some(Ancestor::Unsupported(owner)))),
            Management::Internal | Management::External => look(&owner, management),
        };
        let (uid, queued, controller) = match link {
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
            highest = Some(Ancestor::Queued(owner));
        }
        next = controller;
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: (&str, &str) = ("batch", "Job");

    /// An owner whose kind may own anything.
    fn owner(name: &str) -> OwnerRef {
        OwnerRef {
            api_version: "example.com/v1".to_owned(),
            kind: "Foo".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }
    }

    fn found(name: &str, queued: bool, above: Option<&str>) -> OwnerLookup {
        OwnerLookup::Found { uid: format!("uid-{name}"), queued, controller: above.map(owner) }
    }

    #[test]
    fn highest_queued_ancestor_wins_and_walk_ends() {
        let frameworks = BTreeSet::from(["batch/job".to_owned(), "jobset.x-k8s.io/jobset".to_owned()]);
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let managed = ManagedKinds { frameworks: &frameworks, external: &external };
        let from = |first: OwnerRef, look: &dyn Fn(&str) -> OwnerLookup| {
            queued_ancestor(JOB, "me", Some(first), &managed, |owner, _| look(&owner.name))
        };
        let walk = |look: &dyn Fn(&str) -> OwnerLookup| from(owner("a"), look);
        let queued = |name: &str| Ok(Some(Ancestor::Queued(owner(name))));
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
        assert_eq!(walk(&other), Ok(None), "of the same name");
        let cycle = |name: &str| found(name, false, Some(if name == "a" { "b" } else { "a" }));
        assert_eq!(walk(&cycle), Err(AncestryError::Cycle));
        let long = |name: &str| found(name, false, Some(&format!("{name}a")));
        assert_eq!(walk(&long), Err(AncestryError::TooDeep));
        // A Job creates no Jobs, queued or not; a JobSet does, but cannot be read.
        let job = OwnerRef { api_version: "batch/v1".to_owned(), kind: "Job".to_owned(), ..owner("a") };
        assert_eq!(from(job, &|_| found("a", true, None)), Ok(None));
        let set = OwnerRef {
            api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
            kind: "JobSet".to_owned(),
            ..owner("a")
        };
        assert_eq!(from(set.clone(), &|_| OwnerLookup::Unmanaged), Ok(Some(Ancestor::Unsupported(set))));
    }
}
