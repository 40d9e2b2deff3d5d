//! Objects beside a job from which its pod sets are made, such as the runtime of a TrainJob.
//!
//! Invariants: a job says which objects it reads when it is decoded, so that a change of one concerns the jobs that read it and no
//! others; what is not known yet is an answer, and the job then waits as it is.

use super::view::Gvk;
use crate::api::ObjectKey;
use serde_json::Value;
use std::fmt::{self, Debug};

/// A kind of object that jobs of another kind read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelatedKind {
    /// How its objects are addressed.
    pub gvk: Gvk,
    /// Whether they live in namespaces.
    pub namespaced: bool,
    /// Whether webhooks read them as well.
    pub in_reviews: bool,
}

/// An object that a job reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelatedKey {
    /// Kind of the object, one that the row of the job names.
    pub kind: RelatedKind,
    /// Its key.
    pub key: ObjectKey,
}

impl fmt::Display for RelatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.kind.namespaced { self.key.to_string() } else { self.key.name.to_string() };
        write!(f, "{} {name}", self.kind.gvk.kind)
    }
}

/// An object that was looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// It exists.
    Object(&'a Value),
    /// It does not exist.
    Missing,
    /// Whether it exists is not known yet: the list of its kind is not complete.
    NotYet,
}

/// Read access to the objects that jobs read.
pub trait Related: Debug {
    /// Looks an object up.
    fn find(&self, object: &RelatedKey) -> Found<'_>;
}

/// What the pod sets of a job are made of beside the job itself.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The objects that it reads.
    pub related: &'a dyn Related,
    /// Whether jobs may be elastic, as a feature gate says.
    pub elastic_jobs: bool,
}

impl Beside<'static> {
    /// For jobs that are made of themselves alone.
    pub const NOTHING: Self = Self::of(&NothingRelated);
}

impl<'a> Beside<'a> {
    /// Returns these objects, with all features on.
    pub const fn of(related: &'a dyn Related) -> Self {
        Self { related, elastic_jobs: true }
    }
}

/// For jobs that are made of themselves alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingRelated;

impl Related for NothingRelated {
    fn find(&self, _: &RelatedKey) -> Found<'_> {
        Found::NotYet
    }
}

/// The entries for `spec.podSets` of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum PodSets {
    /// They are known.
    Known(Vec<Value>),
    /// They depend on an object from which they cannot be made yet.
    Await(Awaited),
}

/// An object from which the pod sets of a job cannot be made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The object.
    pub object: RelatedKey,
    /// Why; `None` while it is not known whether it exists.
    pub problem: Option<String>,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Some(problem) => write!(f, "{} {problem}", self.object),
            None => write!(f, "{} is not known yet", self.object),
        }
    }
}
