//! Records: events in the life of a Workload, with the times of the conditions that show them.
//!
//! Invariants: a record follows from the object alone, so that two replicas write the same record; each event has one key.

use super::series::Millis;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Key of an event. A second record with the same key changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordKey {
    /// UID of the Workload.
    pub uid: Arc<str>,
    /// Kind of the event.
    pub kind: RecordKind,
    /// Number of earlier evictions.
    pub attempt: u32,
    /// Number of earlier records of this kind in the same attempt.
    pub part: u32,
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RecordKind {
    /// A pending episode ended.
    Wait,
    /// The Workload was evicted.
    Eviction,
    /// The Workload finished or was deleted.
    Finish,
    /// A run ended that neither an eviction nor a finish explains.
    Segment,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Wait, Self::Eviction, Self::Finish, Self::Segment];

    /// Returns the name, as metrics and JSON have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Eviction => "eviction",
            Self::Finish => "finish",
            Self::Segment => "segment",
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Key of the event.
    pub key: RecordKey,
    /// Whether it was made from the first lists: the event was before the history began.
    pub seeded: bool,
    /// Whether it fills a time in which nothing was recorded: it was made of the memory of another process, or of the conditions of
    /// a Workload that had ended before.
    #[serde(default)]
    pub filled: bool,
    /// The Workload at the time of the event.
    pub workload: Subject,
    /// The event.
    pub event: RecordEvent,
}

/// A Workload as a record names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Kind and name of its job.
    pub job: Option<(Arc<str>, Arc<str>)>,
    /// Name of the LocalQueue; empty if the Workload names none.
    pub local_queue: Arc<str>,
    /// Name of the ClusterQueue; empty if it is not known.
    pub cluster_queue: Arc<str>,
    /// Name of the priority class; empty if the Workload names none.
    pub priority_class: Arc<str>,
    /// Effective priority, with the boost.
    pub priority: i64,
    /// Name of the user that submitted it, if submitters are read. A durable record does not have it.
    pub submitter: Option<Arc<str>>,
}

/// Amounts by the number of a flavor-resource.
pub type Amounts = Arc<[(u32, i64)]>;

/// A time in which a Workload had quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// When quota was reserved, in milliseconds since the epoch.
    pub start: i64,
    /// The last amounts.
    pub amounts: Amounts,
}

/// An event in the life of a Workload. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordEvent {
    /// A pending episode.
    Wait(WaitEvent),
    /// An eviction.
    Eviction(EvictionEvent),
    /// The end of a Workload.
    Finish(FinishEvent),
    /// A run that ended without an eviction.
    Segment {
        /// The run.
        run: Run,
        /// When the run ended.
        end: i64,
    },
}

/// A pending episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitEvent {
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// How it ended.
    pub result: WaitResult,
    /// Milliseconds by pending reason, as far as they were observed.
    pub by_reason: Box<[(PendingReason, i64)]>,
}

/// How a pending episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitResult {
    /// Quota was reserved.
    Reserved,
    /// The Workload was deleted, or finished without a run.
    Deleted,
    /// The Workload was deactivated or left its queue.
    Deactivated,
}

impl WaitResult {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Deleted => "deleted",
            Self::Deactivated => "deactivated",
        }
    }
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionEvent {
    /// When the Workload was evicted.
    pub at: i64,
    /// Reason of the condition.
    pub reason: Arc<str>,
    /// The preemption, if the eviction was one.
    pub preemption: Option<Box<Preemption>>,
    /// The run that the eviction ended, if it is known.
    pub run: Option<Run>,
    /// Whether the ClusterQueue borrowed a resource that the Workload used.
    pub borrowed: bool,
    /// When the quota was released, if it was.
    pub released: Option<i64>,
}

/// A preemption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Reason of the preemption; empty if the conditions no longer have it.
    pub reason: Arc<str>,
    /// UID of the preemptor; empty if the message does not name it.
    pub preemptor_uid: Arc<str>,
    /// The preemptor, if it was known.
    pub preemptor: Option<Preemptor>,
}

/// A preemptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemptor {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Name of the ClusterQueue; empty if it is not known.
    pub cluster_queue: Arc<str>,
    /// Effective priority, with the boost; `None` if the preemption is known from a condition alone, because the priority may have changed
    /// since.
    pub priority: Option<i64>,
}

/// The end of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishEvent {
    /// When it ended.
    pub at: i64,
    /// Reason of the condition, or `Deleted`.
    pub result: Arc<str>,
    /// Number of runs.
    pub attempts: u32,
    /// Milliseconds pending, as far as they were observed.
    pub waited: i64,
    /// Milliseconds with quota, as far as they were observed.
    pub ran: i64,
    /// Milliseconds of runs that a preemption ended.
    pub lost: i64,
    /// The last run, if it lasted until the end.
    pub run: Option<Run>,
}

impl RecordEvent {
    /// Returns the run that ended; `None` if there was none, or if it is not known.
    pub const fn run(&self) -> Option<&Run> {
        match self {
            Self::Wait(_) => None,
            Self::Eviction(eviction) => eviction.run.as_ref(),
            Self::Finish(finish) => finish.run.as_ref(),
            Self::Segment { run, .. } => Some(run),
        }
    }

    pub(super) const fn run_mut(&mut self) -> Option<&mut Run> {
        match self {
            Self::Wait(_) => None,
            Self::Eviction(eviction) => eviction.run.as_mut(),
            Self::Finish(finish) => finish.run.as_mut(),
            Self::Segment { run, .. } => Some(run),
        }
    }
}

impl Record {
    /// Returns when the quota of the run was released, or the episode ended; `None` while an evicted Workload holds its quota.
    pub const fn ended(&self) -> Option<i64> {
        match &self.event {
            RecordEvent::Eviction(eviction) => eviction.released,
            _ => Some(self.at()),
        }
    }

    /// Returns when the event happened, of an episode its end.
    pub const fn at(&self) -> Millis {
        match &self.event {
            RecordEvent::Wait(wait) => wait.end,
            RecordEvent::Eviction(eviction) => eviction.at,
            RecordEvent::Finish(finish) => finish.at,
            RecordEvent::Segment { end, .. } => *end,
        }
    }

    /// Removes what the first lists say of the present alone, if the record was made from them: the priority of the preemptor.
    pub(super) fn forget_present(&mut self) {
        if let RecordEvent::Eviction(EvictionEvent { preemption: Some(preemption), .. }) = &mut self.event
            && self.seeded
            && let Some(preemptor) = &mut preemption.preemptor
        {
            preemptor.priority = None;
        }
    }

    /// Returns the bytes of the record: its own size and its texts, which it may share with others.
    pub(super) fn bytes(&self) -> usize {
        let run = |run: &Run| run.amounts.len().saturating_mul(size_of::<(u32, i64)>());
        let event = match &self.event {
            RecordEvent::Wait(wait) => size_of_val(&*wait.by_reason),
            RecordEvent::Eviction(eviction) => {
                let preemption = eviction.preemption.as_deref().map_or(0, |preemption| {
                    size_of::<Preemption>()
                        .saturating_add(preemption.preemptor_uid.len())
                        .saturating_add(preemption.preemptor.as_ref().map_or(0, |p| p.key.name.len()))
                });
                eviction.run.as_ref().map_or(0, run).saturating_add(preemption)
            }
            RecordEvent::Finish(finish) => finish.run.as_ref().map_or(0, run),
            RecordEvent::Segment { run: segment, .. } => run(segment),
        };
        // Twice the key: it is also in the index.
        size_of::<Self>()
            .saturating_add(size_of::<RecordKey>())
            .saturating_add(self.key.uid.len())
            .saturating_add(self.workload.bytes())
            .saturating_add(event)
    }
}

impl Subject {
    /// Returns the bytes of the names that only this Workload has: queues and namespaces are shared by many.
    fn bytes(&self) -> usize {
        let job = self.job.as_ref().map_or(0, |(_, name)| name.len());
        self.key.name.len().saturating_add(job)
    }
}
