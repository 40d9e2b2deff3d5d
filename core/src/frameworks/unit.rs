//! Units: the objects that share a Workload, and the rules by which each way of holding back pods treats them.
//!
//! A job that can be suspended is a unit with an owner, a pod group is a unit with members, and a StatefulSet has both.
//! Invariants: decisions are functions of the objects as they are; nothing is remembered between two of them. What differs
//! between kinds of one way is in their rows: the rules get the row with the unit.

use super::JobError;
use super::job_kind::JobKind;
use super::patch::Action;
use super::pod_member::PodMember;
use super::related::{Awaited, Beside, PodSets};
use super::unit_summary::UnitSummary;
use super::view::{Finished, JobView, PodSetInfo};
use super::workload::{MAX_POD_SET_NAME, MAX_POD_SETS, WorkloadRequest};
use crate::api::ObjectKey;
use crate::resources::Requests;
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

/// What names a unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitKey {
    /// Kind of the owner, or of the members if there is none.
    pub kind: JobKind,
    /// Key of the owner, of the single pod, or the namespace and name of the group.
    pub key: ObjectKey,
    /// What the key names.
    pub component: Component,
}

/// What the key of a unit names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// An object of the kind.
    Object,
    /// A replica of the object, with a Workload of its own.
    Replica(u32),
    /// A group of pods that has no object of its own.
    PodGroup,
}

impl UnitKey {
    /// Returns the key of the unit of an object.
    pub const fn of_object(kind: JobKind, key: ObjectKey) -> Self {
        Self { kind, key, component: Component::Object }
    }

    /// Returns the key of a replica of an object.
    pub const fn of_replica(kind: JobKind, key: ObjectKey, index: u32) -> Self {
        Self { kind, key, component: Component::Replica(index) }
    }

    /// Returns the key of a pod group.
    pub const fn of_pod_group(key: ObjectKey) -> Self {
        Self { kind: JobKind::POD, key, component: Component::PodGroup }
    }

    /// Returns whether the unit is a pod group.
    pub fn is_pod_group(&self) -> bool {
        self.component == Component::PodGroup
    }
}

/// The objects of a unit. Members are in the order of their keys: what all of them must agree on is read from the first.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// Kind of the owner, or of the members if there is none.
    pub kind: JobKind,
    /// Which part of the owner it is.
    pub component: Component,
    /// The object that stands for all, such as a Job or a StatefulSet; a pod group has none.
    pub owner: Option<&'a JobView>,
    /// The pods that are held back one by one; a job that can be suspended has none.
    pub members: &'a [Arc<PodMember>],
    /// Numbers of the members.
    pub summary: &'a UnitSummary,
}

impl<'a> Unit<'a> {
    /// Returns the members in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a PodMember> + use<'a> {
        self.members.iter().map(|member| &**member)
    }

    /// Returns the first member, from which everything is read on which all must agree.
    pub fn first(&self) -> Option<&'a PodMember> {
        self.iter().next()
    }
}

/// Objects from which pod sets are made, as they are stored.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The owner of the unit; `None` only for a unit without one.
    pub owner: Option<&'a Value>,
    /// What is beside it.
    pub beside: Beside<'a>,
}

/// Why and how a unit stops.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// Reason of the condition of pods that are deleted, such as `WorkloadEvictedDueToPreempted`.
    pub reason: &'a str,
    /// Text of the condition.
    pub message: &'a str,
    /// Which members go.
    pub scope: StopScope,
    /// The pod sets that the owner had before its start.
    pub originals: &'a [PodSetInfo],
    /// Time of the condition, RFC 3339.
    pub now: &'a str,
}

/// Which members a stop deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopScope {
    /// Those that run. Members that wait or have ended stay.
    Running,
    /// All, because the Workload was deleted at this time. Members that were created later and wait are for the next
    /// Workload: a controller would answer their deletion with new ones until the old ones have ended.
    All(Timestamp),
}

/// Why there is no Workload for the members yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComposeError {
    /// Too few members can run; the group waits for more.
    TooFewMembers,
    /// Members name different queues.
    DifferentQueues,
    /// Members name different total counts.
    DifferentTotals,
    /// There are no pod sets.
    NoPodSets,
    /// There are more pod sets than a Workload may have: as many.
    TooManyPodSets(usize),
    /// Two pod sets have this name.
    DuplicatePodSet(String),
    /// This name of a pod set is too long for a Workload.
    LongPodSetName(String),
    /// Members have different values of a label that is copied to the Workload.
    DifferentLabels(String),
    /// The pod sets depend on an object from which they cannot be made yet.
    Awaits(Box<Awaited>),
    /// A member cannot be read.
    Malformed(JobError),
}

impl fmt::Display for ComposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewMembers => f.write_str("group has fewer runnable pods than expected"),
            Self::DifferentQueues => f.write_str("pods of the group are in different queues"),
            Self::DifferentTotals => f.write_str("pods of the group have different total counts"),
            Self::NoPodSets => f.write_str("spec: has no role with pods, and a Workload needs a pod set"),
            Self::TooManyPodSets(number) => {
                write!(f, "too many roles: {number}, and a Workload has at most {MAX_POD_SETS} pod sets")
            }
            Self::DuplicatePodSet(name) => {
                write!(
                    f,
                    "two roles have the name {name:?}, and the pod sets of a Workload have different names"
                )
            }
            Self::LongPodSetName(name) => {
                write!(
                    f,
                    "the role name {name:?} makes a pod set with more than {MAX_POD_SET_NAME} characters in its name"
                )
            }
            Self::DifferentLabels(key) => write!(f, "pods of the group have different values of label {key}"),
            Self::Awaits(awaited) => Display::fmt(awaited, f),
            Self::Malformed(error) => Display::fmt(error, f),
        }
    }
}

impl PodSets {
    /// Returns the entries, or the object that they wait for as the reason why there is no Workload.
    pub(super) fn known(self) -> Result<Vec<Value>, ComposeError> {
        match self {
            Self::Known(pod_sets) => Ok(pod_sets),
            Self::Await(awaited) => Err(ComposeError::Awaits(Box::new(awaited))),
        }
    }
}

impl From<JobError> for ComposeError {
    fn from(error: JobError) -> Self {
        Self::Malformed(error)
    }
}

/// The Workload of a unit that is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// The Workload, to be created.
    pub workload: Value,
    /// The writes that remove the members beyond the total count.
    pub removals: Vec<Action>,
}

/// Members compared with the pod sets of their Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Number of pods that are missing.
    pub absent: i32,
    /// Members beyond the count of their pod set, to remove.
    pub excess: Vec<ObjectKey>,
    /// Members beyond the count of their pod set that wait until another one has ended.
    pub waiting: Vec<ObjectKey>,
    /// Members that ended and are replaced, whose finalizer is to be removed.
    pub replaced: Vec<ObjectKey>,
    /// Whether the other members fit the pod sets.
    pub matches: bool,
}

/// Whether the pods of a unit are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// A pod is missing or not ready.
    #[default]
    NotReady,
    /// All pods exist, and those that are not ready have succeeded.
    Completing,
    /// All pods are ready.
    Ready,
}

/// Status of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitStatus {
    /// Whether a member is held back by its gate.
    pub suspended: bool,
    /// Whether a member runs, so that its quota must not be released.
    pub active: bool,
    /// Whether all members exist and are ready.
    pub readiness: Readiness,
    /// Result, if the unit has finished.
    pub finished: Option<Finished>,
    /// Number of reclaimable pods by pod set.
    pub reclaimable_pods: Vec<(Arc<str>, i32)>,
}

/// Name and count of a pod set of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSetCount<'a> {
    /// Name.
    pub name: &'a str,
    /// Number of pods.
    pub count: i32,
    /// Requests of one pod; `None` if members may request more.
    pub requests: Option<&'a Requests>,
}

/// Rules of a way of holding back pods, driven by the row of the unit's kind.
pub trait UnitRules: Debug + Sync {
    /// Returns the view of the unit, from which queue, priority class and execution time of its Workload follow: that of its
    /// owner, or what its members say.
    fn view(&self, unit: &Unit<'_>) -> Result<JobView, JobError>;

    /// Returns the name of the Workload that is made for the unit, or that it names.
    fn workload_name(&self, unit: &Unit<'_>) -> Result<String, JobError>;

    /// Returns the entries for `spec.podSets`, without checking whether the unit is complete.
    fn pod_sets(&self, unit: &Unit<'_>, sources: Sources<'_>) -> Result<Vec<Value>, ComposeError>;

    /// Returns the Workload of a unit that is complete, made from as many members as the total count.
    fn compose(
        &self,
        unit: &Unit<'_>,
        sources: Sources<'_>,
        request: &WorkloadRequest<'_>,
    ) -> Result<Composed, ComposeError>;

    /// Compares the members with the pod sets of their Workload.
    fn membership(&self, unit: &Unit<'_>, pod_sets: &[PodSetCount<'_>], finished: bool) -> Membership;

    /// Returns the status of the unit.
    fn status(&self, unit: &Unit<'_>, now: Timestamp) -> UnitStatus;

    /// Returns the writes that start all that is held back and may start now. Of several writes on one object the first is
    /// sent; the caller asks again with the newer object.
    fn start(&self, unit: &Unit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError>;

    /// Returns the writes that stop the unit and restore its owner; empty when both are done, and while pods that still run
    /// make the next write impossible.
    fn stop(&self, unit: &Unit<'_>, stop: &Stop<'_>) -> Vec<Action>;

    /// Returns the write that removes the finalizer of a member, if it has one.
    fn release(&self, _member: &PodMember) -> Option<Action> {
        None
    }

    /// Returns the writes that remove a member that is not needed.
    fn remove(&self, _member: &PodMember) -> Vec<Action> {
        Vec::new()
    }

    /// Returns in which fields a member disagrees with the member that decides for the unit, with both values; `None` if it agrees.
    fn disagreement(&self, _unit: &Unit<'_>, _member: &PodMember) -> Option<String> {
        None
    }

    /// Returns the owner reference of a Workload to a member, for one that came after the Workload was made.
    fn owner_reference(&self, _unit: &Unit<'_>, _member: &PodMember) -> Option<Value> {
        None
    }
}
