//! The walk from a job to the ancestor that is queued in its place.
//!
//! Invariant: the walk ends, whatever the owners say of each other.

use super::Owner;
use std::collections::BTreeSet;
use std::fmt;

/// How many objects the walk may visit.
const DEPTH_LIMIT: usize = 10;

/// What is known of the object that an owner reference names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Nothing above it concerns us: it is of a kind that is not managed.
    End,
    /// It should be there, and is not.
    Missing,
    /// It is there.
    Found {
        /// UID of the object as stored.
        uid: String,
        /// It is queued itself.
        queued: bool,
        /// Its own controller.
        controller: Option<Owner>,
    },
}

/// Why the walk found no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AncestryError {
    /// An object owns itself over others.
    Cycle,
    /// Too many objects above each other.
    TooDeep,
    /// An owner that should be there could not be read.
    Missing(Owner),
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

/// The highest ancestor that is queued itself, so that the job must not be. An object that only has the name of the
/// owner ends the walk.
pub fn queued_ancestor(
    uid: &str,
    controller: Option<Owner>,
    look: impl Fn(&Owner) -> Link,
) -> Result<Option<Owner>, AncestryError> {
    let mut seen = BTreeSet::from([uid.to_owned()]);
    let mut next = controller;
    let mut highest = None;
    while let Some(owner) = next {
        let (uid, queued, controller) = match look(&owner) {
            Link::End => break,
            Link::Missing => return Err(AncestryError::Missing(owner)),
            Link::Found { uid, queued, controller } => (uid, queued, controller),
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

    fn owner(name: &str) -> Owner {
        Owner {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        }
    }

    fn found(name: &str, queued: bool, above: Option<&str>) -> Link {
        Link::Found { uid: format!("uid-{name}"), queued, controller: above.map(owner) }
    }

    #[test]
    fn the_highest_queued_ancestor_wins_and_the_walk_ends() {
        let walk = |look: &dyn Fn(&str) -> Link| {
            queued_ancestor("me", Some(owner("a")), |owner| look(&owner.name))
                .map(|found| found.map(|owner| owner.name))
        };
        let chain =
            |name: &str| if name == "a" { found("a", true, Some("b")) } else { found("b", true, None) };
        assert_eq!(walk(&chain), Ok(Some("b".to_owned())));
        let lower = |name: &str| if name == "a" { found("a", true, Some("b")) } else { Link::End };
        assert_eq!(walk(&lower), Ok(Some("a".to_owned())));
        assert_eq!(walk(&|_| found("a", false, None)), Ok(None));
        assert_eq!(walk(&|_| Link::Missing), Err(AncestryError::Missing(owner("a"))));
        let other = |_: &str| Link::Found { uid: "another".to_owned(), queued: true, controller: None };
        assert_eq!(walk(&other), Ok(None), "of the same name");
        let cycle = |name: &str| found(name, false, Some(if name == "a" { "b" } else { "a" }));
        assert_eq!(walk(&cycle), Err(AncestryError::Cycle));
        let long = |name: &str| found(name, false, Some(&format!("{name}a")));
        assert_eq!(walk(&long), Err(AncestryError::TooDeep));
    }
}
