//! Stored rows, as JSON. Unknown fields of a later version survive an earlier version, because only the version that wrote a row
//! rewrites it.
//!
//! Invariant: a row contains names and texts only; the numbers of one process mean nothing to the next.

use crate::api::ObjectKey;
use crate::history::{
    EvictionEvent, NamedAmounts, Preemption, Preemptor, Record, RecordEvent, RecordKey, RecordKind, Run,
    RunState, Subject, Sums,
};
use crate::quota::FlavorResource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A workload, as rows name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadRow {
    /// UID.
    pub(super) uid: Arc<str>,
    /// Namespace.
    pub(super) namespace: Arc<str>,
    /// Name.
    pub(super) name: Arc<str>,
    /// Kind of the job; empty if there is none.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) job_kind: Arc<str>,
    /// Name of the job; empty if there is none.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) job: Arc<str>,
    /// Name of the LocalQueue; empty if the workload names none.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) local_queue: Arc<str>,
    /// Name of the ClusterQueue; empty if it is not known.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) cluster_queue: Arc<str>,
    /// Name of the priority class; empty if the workload names none.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) priority_class: Arc<str>,
    /// Effective priority, with the boost.
    pub(super) priority: i64,
}

/// An amount of a flavor-resource, as text: not every reader of JSON keeps 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AmountRow {
    /// The flavor.
    pub(super) flavor: Arc<str>,
    /// The resource.
    pub(super) resource: Arc<str>,
    /// The amount.
    #[serde(with = "as_text")]
    pub(super) amount: i64,
}

/// A preemption, and its preemptor as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PreemptionRow {
    /// Reason of the preemption.
    pub(super) reason: Arc<str>,
    /// UID of the preemptor; empty if the condition does not name it.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) uid: Arc<str>,
    /// Namespace of the preemptor; empty if it was not known.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) namespace: Arc<str>,
    /// Name of the preemptor; empty if it was not known.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) name: Arc<str>,
    /// ClusterQueue of the preemptor; empty if it was not known.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) cluster_queue: Arc<str>,
    /// Effective priority of the preemptor; 0 if the preemptor was not known, absent if its priority at that time was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<i64>,
}

/// Where a record is from that no recorder saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RecordOrigin {
    /// Whether the event is known from conditions alone.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) seeded: bool,
    /// Whether it fills a time in which nothing was recorded.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) filled: bool,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RecordRow {
    /// `segment`, `wait`, `eviction` or `finish`.
    pub(super) record: Arc<str>,
    /// Time of the event, of an episode its end.
    pub(super) time: Timestamp,
    /// The start of a segment, a wait, or the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<Timestamp>,
    /// The workload.
    #[serde(flatten)]
    pub(super) workload: WorkloadRow,
    /// Number of earlier evictions.
    pub(super) attempt: u32,
    /// Number of earlier records of the kind in the same attempt.
    pub(super) part: u32,
    /// How it ended: the reason of a condition, or `Resized`, `Deleted`, `Released`, `reserved`.
    pub(super) result: Arc<str>,
    /// Reserved amounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) amounts: Vec<AmountRow>,
    /// Seconds of a wait by pending reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) seconds_by_reason: Vec<(Arc<str>, i64)>,
    /// The preemption, if the eviction was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preemption: Option<PreemptionRow>,
    /// When the quota was released after an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) released: Option<Timestamp>,
    /// Whether the ClusterQueue borrowed a resource that the workload used.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) borrowed: bool,
    /// Where it is from, if no recorder saw it.
    #[serde(flatten)]
    pub(super) origin: RecordOrigin,
    /// Sums over the life of a workload that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) life: Option<LifeRow>,
    /// Whether names were removed.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) purged: bool,
}

/// Sums over the life of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LifeRow {
    /// Number of runs.
    pub(super) runs: u32,
    /// Milliseconds pending.
    pub(super) waited: i64,
    /// Milliseconds with quota.
    pub(super) ran: i64,
    /// Milliseconds of runs that a preemption ended.
    pub(super) lost: i64,
}

/// A run that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OpenRow {
    /// The workload.
    #[serde(flatten)]
    pub(super) workload: WorkloadRow,
    /// When the run began, in milliseconds since the epoch.
    pub(super) start: i64,
    /// When quota was reserved.
    pub(super) reserved_at: i64,
    /// Time since which the amounts are unchanged.
    pub(super) since: i64,
    /// Time since which the sums contain the run without a hole, not before the record began.
    pub(super) counted_from: i64,
    /// Time until which the sums contain the run.
    pub(super) counted_until: i64,
    /// Reserved amounts.
    pub(super) amounts: Vec<AmountRow>,
    /// Number of changes of the amounts.
    pub(super) resizes: u32,
    /// When the workload was evicted in this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted_at: Option<i64>,
    /// Reason of the eviction.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) eviction: Arc<str>,
    /// Whether it was preempted.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) preempted: bool,
    /// Number of evictions before this run.
    pub(super) evictions: u32,
    /// Number of waits since the last eviction.
    pub(super) waits: u32,
    /// Sums over earlier runs.
    pub(super) life: LifeRow,
}

/// Serialization of an integer as text.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::borrow::Cow;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(amount: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(amount)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

/// Returns milliseconds since the epoch as a time, bounded by the first and the last time that can be represented.
pub(super) fn timestamp(millis: i64) -> Timestamp {
    let nearest = if millis < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(millis).unwrap_or(nearest)
}

impl WorkloadRow {
    pub(super) fn of(uid: &Arc<str>, subject: &Subject) -> Self {
        let (job_kind, job) = subject.job.clone().unwrap_or_default();
        Self {
            uid: Arc::clone(uid),
            namespace: Arc::clone(&subject.key.namespace),
            name: Arc::clone(&subject.key.name),
            job_kind,
            job,
            local_queue: Arc::clone(&subject.local_queue),
            cluster_queue: Arc::clone(&subject.cluster_queue),
            priority_class: Arc::clone(&subject.priority_class),
            priority: subject.priority,
        }
    }

    fn subject(&self) -> Subject {
        Subject {
            key: ObjectKey::new(&self.namespace, &self.name),
            job: (!self.job.is_empty()).then(|| (Arc::clone(&self.job_kind), Arc::clone(&self.job))),
            local_queue: Arc::clone(&self.local_queue),
            cluster_queue: Arc::clone(&self.cluster_queue),
            priority_class: Arc::clone(&self.priority_class),
            priority: self.priority,
            submitter: None,
        }
    }
}

/// Returns amounts as rows.
pub(super) fn amount_rows(amounts: &NamedAmounts) -> Vec<AmountRow> {
    let row = |(fr, amount): &(FlavorResource, i64)| AmountRow {
        flavor: Arc::clone(&fr.flavor),
        resource: Arc::clone(&fr.resource),
        amount: *amount,
    };
    amounts.iter().map(row).collect()
}

fn named_amounts(rows: &[AmountRow]) -> NamedAmounts {
    rows.iter().map(|row| (FlavorResource::new(&row.flavor, &row.resource), row.amount)).collect()
}

impl OpenRow {
    /// Returns the row of a run that began.
    pub(super) fn of(run: &RunState) -> Self {
        let Sums { waited, ran, lost, runs } = run.sums;
        Self {
            workload: WorkloadRow::of(&run.uid, &run.workload),
            start: run.start,
            reserved_at: run.reserved_at,
            since: run.start,
            counted_from: run.start,
            counted_until: run.start,
            amounts: amount_rows(&run.amounts),
            resizes: 0,
            evicted_at: None,
            eviction: Arc::default(),
            preempted: false,
            evictions: run.evictions,
            waits: run.waits,
            life: LifeRow { runs, waited, ran, lost },
        }
    }

    /// Returns the state from which the next process follows the run.
    pub(super) fn state(&self) -> RunState {
        let LifeRow { runs, waited, ran, lost } = self.life;
        RunState {
            uid: Arc::clone(&self.workload.uid),
            workload: self.workload.subject(),
            start: self.start,
            reserved_at: self.reserved_at,
            amounts: named_amounts(&self.amounts),
            evicted_at: self.evicted_at,
            evictions: self.evictions.saturating_add(u32::from(self.evicted_at.is_some())),
            waits: if self.evicted_at.is_some() { 0 } else { self.waits },
            sums: Sums { waited, ran, lost, runs },
        }
    }
}

impl RecordRow {
    /// Returns the row of a record; `None` for a segment, whose row is made when its run ends.
    pub(super) fn of(record: &Record, amounts: &NamedAmounts) -> Option<Self> {
        let at = |time: i64| Some(timestamp(time));
        let mut row = Self {
            record: Arc::from(record.key.kind.as_str()),
            time: timestamp(record.at()),
            workload: WorkloadRow::of(&record.key.uid, &record.workload),
            attempt: record.key.attempt,
            part: record.key.part,
            amounts: amount_rows(amounts),
            origin: RecordOrigin { seeded: record.seeded, filled: record.filled },
            ..Self::default()
        };
        match &record.event {
            RecordEvent::Wait(wait) => {
                row.start = at(wait.start);
                row.result = Arc::from(wait.result.as_str());
                let reasons = wait.by_reason.iter();
                row.seconds_by_reason = reasons
                    .map(|(reason, time)| (Arc::from(reason.as_str()), time.div_euclid(1_000)))
                    .collect();
            }
            RecordEvent::Eviction(eviction) => {
                row.start = eviction.run.as_ref().and_then(|run| at(run.start));
                row.result = Arc::clone(&eviction.reason);
                row.released = eviction.released.and_then(at);
                row.borrowed = eviction.borrowed;
                row.preemption = eviction.preemption.as_deref().map(preemption_row);
            }
            RecordEvent::Finish(finish) => {
                row.start = finish.run.as_ref().and_then(|run| at(run.start));
                row.result = Arc::clone(&finish.result);
                row.life = Some(LifeRow {
                    runs: finish.attempts,
                    waited: finish.waited,
                    ran: finish.ran,
                    lost: finish.lost,
                });
            }
            RecordEvent::Segment { .. } => return None,
        }
        Some(row)
    }

    /// Returns the record of an eviction; `None` for other rows. `number` numbers flavor-resources.
    pub(super) fn eviction(&self, number: &mut impl FnMut(FlavorResource) -> u32) -> Option<Record> {
        if *self.record != *RecordKind::Eviction.as_str() {
            return None;
        }
        let amounts = named_amounts(&self.amounts).into_iter().map(|(fr, amount)| (number(fr), amount));
        let amounts: Vec<(u32, i64)> = amounts.collect();
        let run = self.start.map(|start| Run { start: start.as_millisecond(), amounts: Arc::from(amounts) });
        let preemption = self.preemption.as_ref().map(|row| {
            let known = !row.name.is_empty();
            Box::new(Preemption {
                reason: Arc::clone(&row.reason),
                preemptor_uid: Arc::clone(&row.uid),
                preemptor: known.then(|| Preemptor {
                    key: ObjectKey::new(&row.namespace, &row.name),
                    cluster_queue: Arc::clone(&row.cluster_queue),
                    priority: row.priority,
                }),
            })
        });
        Some(Record {
            key: RecordKey {
                uid: Arc::clone(&self.workload.uid),
                kind: RecordKind::Eviction,
                attempt: self.attempt,
                part: self.part,
            },
            seeded: self.origin.seeded,
            filled: self.origin.filled,
            workload: self.workload.subject(),
            event: RecordEvent::Eviction(EvictionEvent {
                at: self.time.as_millisecond(),
                reason: Arc::clone(&self.result),
                preemption,
                run,
                borrowed: self.borrowed,
                released: self.released.map(Timestamp::as_millisecond),
            }),
        })
    }

    /// Returns the key of the record among the records of its workload.
    pub(super) fn key(&self) -> String {
        match &*self.record {
            // A run may be resized in the same second in which it began.
            "segment" => format!("segment/{}/{}", self.start.unwrap_or_default().as_millisecond(), self.part),
            // The next process does not know the number of waits of a pending workload.
            "wait" => format!("wait/{}", self.start.unwrap_or_default().as_millisecond()),
            kind => format!("{kind}/{}/{}", self.attempt, self.part),
        }
    }
}

fn preemption_row(preemption: &Preemption) -> PreemptionRow {
    let preemptor = preemption.preemptor.as_ref();
    PreemptionRow {
        reason: Arc::clone(&preemption.reason),
        uid: Arc::clone(&preemption.preemptor_uid),
        namespace: preemptor.map(|p| Arc::clone(&p.key.namespace)).unwrap_or_default(),
        name: preemptor.map(|p| Arc::clone(&p.key.name)).unwrap_or_default(),
        cluster_queue: preemptor.map(|p| Arc::clone(&p.cluster_queue)).unwrap_or_default(),
        priority: preemptor.map_or(Some(0), |p| p.priority),
    }
}
