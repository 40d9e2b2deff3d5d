//! Kinds whose Workload is made from several objects, such as the pods of a group.
//!
//! Invariant: decisions are functions of the members as they are; nothing is remembered between two of them.

use super::JobError;
use super::patch::Action;
use super::pod_member::PodMember;
use super::row::Rank;
use super::unit_summary::UnitSummary;
use super::view::{Finished, JobView, PodSetInfo};
use super::workload::WorkloadRequest;
use crate::api::ObjectKey;
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

/// The objects of one Workload, in the order of the cache: what all members must agree on is read from the first.
#[derive(Clone, Copy, Debug)]
pub struct JobUnit<'a> {
    /// The object that stands for all, such as a StatefulSet; a pod group has none.
    pub owner: Option<&'a Value>,
    /// The other objects.
    pub members: &'a [Arc<PodMember>],
    /// Their numbers.
    pub summary: &'a UnitSummary,
}

impl<'a> JobUnit<'a> {
    /// Returns the members in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a PodMember> + use<'a> {
        self.members.iter().map(|member| &**member)
    }

    /// Returns the first member, from which everything is read on which all must agree.
    pub fn first(&self) -> Option<&'a PodMember> {
        self.iter().next()
    }
}

/// Why a unit stops.
#[derive(Clone, Copy, Debug)]
pub struct StopReason<'a> {
    /// Reason of the pods' condition, such as `WorkloadEvictedDueToPreempted`.
    pub reason: &'a str,
    /// Text of the condition.
    pub message: &'a str,
    /// Whether the Workload was deleted, so that members that wait or have ended go as well.
    pub workload_deleted: bool,
    /// Time of the condition, RFC 3339.
    pub now: &'a str,
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
    /// There are more pod sets than a Workload may have.
    TooManyPodSets,
    /// Members have different values of a label that is copied to the Workload.
    DifferentLabels(String),
    /// A member cannot be read.
    Malformed(JobError),
}

impl fmt::Display for ComposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewMembers => f.write_str("group has fewer runnable pods than expected"),
            Self::DifferentQueues => f.write_str("pods of the group are in different queues"),
            Self::DifferentTotals => f.write_str("pods of the group have different total counts"),
            Self::TooManyPodSets => f.write_str("the group has too many roles"),
            Self::DifferentLabels(key) => write!(f, "pods of the group have different values of label {key}"),
            Self::Malformed(error) => Display::fmt(error, f),
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
    /// Members that ended and are replaced, whose finalizer is to be removed.
    pub replaced: Vec<ObjectKey>,
    /// Whether the other members fit the pod sets.
    pub matches: bool,
}

/// Status of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStatus {
    /// Whether a member is held back by its gate.
    pub suspended: bool,
    /// Whether a member runs, so that its quota must not be released.
    pub active: bool,
    /// Whether all members exist and are ready.
    pub ready: bool,
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
}

/// Rules of a kind that is composed of several objects.
pub trait ComposableHooks: Debug + Sync {
    /// Returns the view of the unit, from which name, queue, priority class and execution time of its Workload follow.
    fn view(&self, unit: &JobUnit<'_>) -> Result<JobView, JobError>;

    /// Returns the name of the Workload.
    fn workload_name(&self, unit: &JobUnit<'_>) -> Result<String, JobError>;

    /// Returns the entries for `spec.podSets`, without checking whether the unit is complete.
    fn pod_sets(&self, unit: &JobUnit<'_>, rank: &Rank) -> Result<Vec<Value>, ComposeError>;

    /// Returns the Workload of a unit that is complete, made from as many members as the total count.
    fn compose(
        &self,
        unit: &JobUnit<'_>,
        rank: &Rank,
        request: &WorkloadRequest<'_>,
    ) -> Result<Composed, ComposeError>;

    /// Compares the members with the pod sets of their Workload.
    fn membership(&self, unit: &JobUnit<'_>, pod_sets: &[PodSetCount<'_>], finished: bool) -> Membership;

    /// Returns the status of the unit.
    fn status(&self, unit: &JobUnit<'_>, now: Timestamp) -> UnitStatus;

    /// Returns the writes that start all members that are held back.
    fn start(&self, unit: &JobUnit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError>;

    /// Returns the writes that stop the unit.
    fn stop(&self, unit: &JobUnit<'_>, reason: &StopReason<'_>) -> Vec<Action>;

    /// Returns the write that removes the finalizer of a member, if it has one.
    fn release(&self, member: &PodMember) -> Option<Action>;

    /// Returns the writes that remove a member that is not needed.
    fn remove(&self, member: &PodMember) -> Vec<Action>;

    /// Returns the owner reference of a Workload to a member, for one that came after the Workload was made.
    fn owner_reference(&self, unit: &JobUnit<'_>, member: &PodMember) -> Result<Value, JobError>;
}
