//! Questions for the history, as they travel between replicas, and their answers.
//!
//! Invariants: a question has the access of the user who asks; an answer is that of one replica, and says which one and since when it
//! recorded.

use super::export::{ExportPage, ExportQuery, ExportTopic};
use super::lines::day;
use super::{HistorySource, lines};
use crate::history::{Gap, HistoryView, PreemptionQuery, RecordedUsage, UsageGroup, UsageQuery};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::views::{
    Answer, LineReport, PreemptionReport, Recorded, Source, UsageRecordReport, UsageReport,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long ago a question for the last day may have been asked.
const GRACE: SignedDuration = SignedDuration::from_mins(1);
/// How long a history reaches back.
pub const PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// A question for the history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryQuestion {
    /// What the user may see.
    pub access: Access,
    /// What is asked for.
    pub topic: HistoryTopic,
    /// Whether the replica that is asked shall answer from its own history, also if another one leads.
    #[serde(default)]
    pub own: bool,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HistoryTopic {
    /// Preemptions.
    Preemptions(PreemptionTopic),
    /// Usage in a period.
    Usage(UsageTopic),
    /// Lines of charts over the last 24 hours.
    Lines(LineTopic),
    /// Rows of the durable record.
    Export(ExportTopic),
}

/// Which preemptions are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionTopic {
    /// Since when; all that are recorded if absent.
    pub since: Option<Timestamp>,
    /// Namespace of the victim; all if absent.
    pub namespace: Option<String>,
    /// Name of the victim, or of its job.
    pub victim: Option<String>,
    /// Name of the preemptor.
    pub preemptor: Option<String>,
    /// ClusterQueue of the victim or the preemptor.
    pub cluster_queue: Option<String>,
    /// ClusterQueue of the preemptor.
    pub preemptor_queue: Option<String>,
    /// ClusterQueue of the victim.
    pub victim_queue: Option<String>,
    /// Which page.
    pub page: PageQuery,
}

/// Which usage is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTopic {
    /// The groups.
    pub by: UsageGroup,
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period; the time of the answer if absent.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The resource; all if absent.
    #[serde(default)]
    pub resource: Option<String>,
    /// The namespace; all if absent.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// Which lines are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineTopic {
    /// Name of the ClusterQueue; the sums over all of them if absent.
    #[serde(default)]
    pub cluster_queue: Option<String>,
    /// Most points of a line.
    pub points: u16,
}

/// An answer from a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HistoryAnswer {
    /// Preemptions.
    Preemptions(Answer<PreemptionReport>),
    /// Usage in a period.
    Usage(Answer<UsageReport>),
    /// Lines of charts.
    Lines(Answer<LineReport>),
    /// Rows of the durable record.
    Export(Answer<UsageRecordReport>),
}

impl HistoryAnswer {
    /// Marks that another replica may know more.
    #[must_use]
    pub const fn into_partial(mut self) -> Self {
        match &mut self {
            Self::Preemptions(answer) => answer.partial = true,
            Self::Usage(answer) => answer.partial = true,
            Self::Lines(answer) => answer.partial = true,
            Self::Export(answer) => answer.partial = true,
        }
        self
    }

    /// Returns whether another replica may know more.
    pub const fn is_partial(&self) -> bool {
        match self {
            Self::Preemptions(answer) => answer.partial,
            Self::Usage(answer) => answer.partial,
            Self::Lines(answer) => answer.partial,
            Self::Export(answer) => answer.partial,
        }
    }

    /// Returns for which time the answer is complete.
    pub const fn recorded(&self) -> &Recorded {
        match self {
            Self::Preemptions(answer) => &answer.view.recorded,
            Self::Usage(answer) => &answer.view.recorded,
            Self::Lines(answer) => &answer.view.recorded,
            Self::Export(answer) => &answer.view.recorded,
        }
    }
}

/// A history with what an answer takes from elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct HistoryState<'a> {
    /// The history, its replica and its time.
    pub source: HistorySource<'a>,
    /// The published state, which knows the cohorts.
    pub snapshot: &'a Snapshot,
    /// Where the answer comes from.
    pub origin: &'a Source,
    /// The durable record, for what the history does not reach back to.
    pub record: Option<&'a dyn ReadRecord>,
}

/// What a durable record tells; nothing if it cannot be read now.
pub trait ReadRecord: std::fmt::Debug + Send + Sync {
    /// Returns usage in a period. `history` is that of the same process.
    fn usage(&self, query: &UsageQuery<'_>, history: &HistoryView, now: Timestamp) -> Option<RecordedUsage>;

    /// Returns the preemptions since a time as a history, and the times in which nothing was recorded.
    fn preemptions(&self, history: &HistoryView, since: Option<Timestamp>)
    -> Option<(HistoryView, Vec<Gap>)>;

    /// Returns a page of rows.
    ///
    /// # Errors
    /// The record cannot be read now, or what the page begins after is not there any more.
    fn export(&self, query: &ExportQuery<'_>) -> Result<ExportPage, ModelError>;
}

impl HistoryQuestion {
    /// Returns since when a history must reach back to answer without another one. No history reaches beyond a day.
    fn needed_from(&self, now: Timestamp) -> Timestamp {
        let day_ago = day_before(now);
        match &self.topic {
            HistoryTopic::Preemptions(topic) => topic.since.map_or(day_ago, |since| since.max(day_ago)),
            HistoryTopic::Usage(topic) => topic.since.max(day_ago),
            HistoryTopic::Lines(_) => day_ago,
            HistoryTopic::Export(_) => Timestamp::MIN,
        }
    }

    /// Returns whether a history that began then has all that is asked for, as far as any can have it.
    pub fn is_covered(&self, from: Option<Timestamp>, now: Timestamp) -> bool {
        from.is_some_and(|from| from <= self.needed_from(now))
    }

    /// Returns whether a durable record, if there is one, is to answer: the question reaches beyond a day, or beyond a history that
    /// began then.
    pub fn needs_record(&self, from: Option<Timestamp>, now: Timestamp) -> bool {
        let has_lines = matches!(self.topic, HistoryTopic::Lines(_));
        !has_lines && (self.is_beyond_a_day(now) || !self.is_covered(from, now))
    }

    /// Returns whether nothing but a durable record answers.
    pub const fn is_of_record_alone(&self) -> bool {
        matches!(self.topic, HistoryTopic::Export(_))
    }

    /// Returns whether more is asked for than any history has.
    pub fn is_beyond_a_day(&self, now: Timestamp) -> bool {
        let since = match &self.topic {
            HistoryTopic::Preemptions(topic) => topic.since,
            HistoryTopic::Usage(topic) => Some(topic.since),
            HistoryTopic::Lines(_) => return false,
            HistoryTopic::Export(_) => return true,
        };
        // The question was asked a moment ago.
        let oldest = day_before(now).checked_sub(GRACE).unwrap_or(Timestamp::MIN);
        since.is_none_or(|since| since < oldest)
    }

    /// Answers from a history.
    ///
    /// # Errors
    /// The question cannot be read, or the user may not see what is asked for.
    pub fn answer(&self, state: &HistoryState<'_>) -> Result<HistoryAnswer, ModelError> {
        let HistoryState { source, origin, .. } = state;
        Ok(match &self.topic {
            HistoryTopic::Preemptions(topic) => {
                let report = match state.record {
                    Some(record) => {
                        let found = record.preemptions(source.history, topic.since);
                        let (history, gaps) = found.ok_or(ModelError::Unavailable)?;
                        let source = HistorySource { history: &history, ..*source };
                        source
                            .preemptions(&topic.query(), &topic.page, &self.access)?
                            .with_gaps(gaps, &self.access)
                    }
                    None => source.preemptions(&topic.query(), &topic.page, &self.access)?,
                };
                HistoryAnswer::Preemptions(answered(report, origin))
            }
            HistoryTopic::Usage(topic) => {
                let cohorts = cohorts(state.snapshot);
                let until = topic.until.unwrap_or(source.now).min(source.now);
                let query = UsageQuery {
                    by: topic.by,
                    from: topic.since.min(until),
                    until,
                    resource: topic.resource.as_deref(),
                    namespace: topic.namespace.as_deref(),
                    cohorts: &cohorts,
                };
                let report = match state.record {
                    Some(record) => source.recorded_usage(&query, &self.access, record)?,
                    None => source.usage(&query, &self.access).map_err(ModelError::Invalid)?,
                };
                HistoryAnswer::Usage(answered(report, origin))
            }
            HistoryTopic::Lines(topic) => {
                let found = lines(source, topic.cluster_queue.as_deref(), topic.points.into(), &self.access);
                let asked = (Some(day_before(source.now)), source.now);
                let recorded = source.recorded(asked, source.history.from);
                let day = topic.cluster_queue.is_none().then(|| day(source, &self.access)).flatten();
                HistoryAnswer::Lines(answered(LineReport { lines: found, day, recorded }, origin))
            }
            HistoryTopic::Export(topic) => {
                HistoryAnswer::Export(answered(source.export(topic, &self.access, state.record)?, origin))
            }
        })
    }
}

impl PreemptionTopic {
    fn query(&self) -> PreemptionQuery<'_> {
        PreemptionQuery {
            since: self.since,
            namespace: self.namespace.as_deref(),
            victim: self.victim.as_deref(),
            preemptor: self.preemptor.as_deref(),
            cluster_queue: self.cluster_queue.as_deref(),
            preemptor_queue: self.preemptor_queue.as_deref(),
            victim_queue: self.victim_queue.as_deref(),
        }
    }
}

pub(super) fn day_before(now: Timestamp) -> Timestamp {
    now.checked_sub(PERIOD).unwrap_or(Timestamp::MIN)
}

fn answered<T>(view: T, origin: &Source) -> Answer<T> {
    Answer { view, source: origin.clone(), partial: false }
}

/// Returns the cohort right above each ClusterQueue that has one.
fn cohorts(snapshot: &Snapshot) -> BTreeMap<Arc<str>, Arc<str>> {
    let queues = snapshot.queues.cluster_queues.iter();
    queues.filter_map(|(name, queue)| Some((Arc::clone(name), Arc::clone(queue.parent.as_ref()?)))).collect()
}
