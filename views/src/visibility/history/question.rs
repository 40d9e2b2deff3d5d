//! Questions for the history, in the form in which replicas send them to each other, and their answers.
//!
//! Invariants: a question has the access of the user that asks; an answer belongs to one replica, and has its name and the start
//! of its recording.

use super::export::{ExportPage, ExportQuery, ExportTopic};
use super::lines::day;
use super::own::OwnTopic;
use super::purge::{PurgeTopic, PurgedRows};
use super::records::{RecordReport, RecordTopic};
use super::steps::steps;
use super::{HistorySource, lines};
use crate::history::{Gap, HistoryView, PreemptionQuery, RecordedUsage, StepSum, UsageGroup, UsageQuery};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::views::{
    Answer, LineReport, OwnReport, PreemptionReport, PurgeReport, Recorded, Source, UsageRecordReport,
    UsageReport,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum delay of a question for the last day.
const GRACE: SignedDuration = SignedDuration::from_mins(1);
/// Length of a history.
pub const PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// A question for the history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryQuestion {
    /// Access of the user.
    pub access: Access,
    /// The subject of the question.
    pub topic: HistoryTopic,
    /// Whether the asked replica answers from its own history, even if another one leads.
    #[serde(default)]
    pub own: bool,
}

/// The subject of a question.
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
    /// Usage and preemptions of the workloads of one user.
    Own(OwnTopic),
    /// Removal of the names of a namespace from the durable record.
    Purge(PurgeTopic),
    /// Records in memory, for the process that keeps the durable record.
    Records(RecordTopic),
}

/// Filter for preemptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionTopic {
    /// Start of the time; `None` for all recorded preemptions.
    pub since: Option<Timestamp>,
    /// Namespace of the victim; `None` for all.
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
    /// The page that is asked for.
    pub page: PageQuery,
}

/// Filter and groups for usage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageTopic {
    /// Grouping.
    pub by: UsageGroup,
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period; `None` for the time of the answer.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Name of the resource; `None` for all.
    #[serde(default)]
    pub resource: Option<String>,
    /// Name of the namespace; `None` for all.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Whether the sums of the steps of the period are asked for, too.
    #[serde(default)]
    pub steps: bool,
    /// Whether the hours of each row are asked for by flavor, too.
    #[serde(default)]
    pub flavors: bool,
}

/// The lines that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineTopic {
    /// Name of the ClusterQueue; `None` for the sums over all of them.
    #[serde(default)]
    pub cluster_queue: Option<String>,
    /// Maximum number of points of a line.
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
    /// Usage and preemptions of the workloads of one user.
    Own(Answer<OwnReport>),
    /// Removed names.
    Purge(Answer<PurgeReport>),
    /// Records in memory.
    Records(Answer<RecordReport>),
}

impl HistoryAnswer {
    /// Marks the answer as partial: another replica may know more.
    #[must_use]
    pub const fn into_partial(mut self) -> Self {
        match &mut self {
            Self::Preemptions(answer) => answer.partial = true,
            Self::Usage(answer) => answer.partial = true,
            Self::Lines(answer) => answer.partial = true,
            Self::Export(answer) => answer.partial = true,
            Self::Own(answer) => answer.partial = true,
            Self::Purge(answer) => answer.partial = true,
            Self::Records(answer) => answer.partial = true,
        }
        self
    }

    /// Returns whether the answer is partial: another replica may know more.
    pub const fn is_partial(&self) -> bool {
        match self {
            Self::Preemptions(answer) => answer.partial,
            Self::Usage(answer) => answer.partial,
            Self::Lines(answer) => answer.partial,
            Self::Export(answer) => answer.partial,
            Self::Own(answer) => answer.partial,
            Self::Purge(answer) => answer.partial,
            Self::Records(answer) => answer.partial,
        }
    }

    /// Returns the time for which the answer is complete.
    pub const fn recorded(&self) -> &Recorded {
        match self {
            Self::Preemptions(answer) => &answer.view.recorded,
            Self::Usage(answer) => &answer.view.recorded,
            Self::Lines(answer) => &answer.view.recorded,
            Self::Export(answer) => &answer.view.recorded,
            Self::Own(answer) => &answer.view.recorded,
            Self::Purge(answer) => &answer.view.recorded,
            Self::Records(answer) => &answer.view.recorded,
        }
    }
}

/// A history, with the other inputs of an answer.
#[derive(Clone, Copy, Debug)]
pub struct HistoryState<'a> {
    /// The history, its replica and its time.
    pub source: HistorySource<'a>,
    /// The published state, which has the cohorts.
    pub snapshot: &'a Snapshot,
    /// Origin of the answer.
    pub origin: &'a Source,
    /// The durable record, for time before the history.
    pub record: Option<&'a dyn ReadRecord>,
}

impl HistoryState<'_> {
    /// Returns what a resource was used in each step, from the durable record if it answers the question; `None` if it cannot be read
    /// now.
    fn course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
    ) -> Option<Vec<Option<StepSum>>> {
        match self.record {
            Some(record) => record.course(query, steps, groups, (self.source.history, self.source.now)),
            None => Some(self.source.course(query, steps, groups)),
        }
    }
}

/// A durable record. `None` means that it cannot be read now.
pub trait ReadRecord: std::fmt::Debug + Send + Sync {
    /// Returns usage in a period. `history` belongs to the same process.
    fn usage(&self, query: &UsageQuery<'_>, history: &HistoryView, now: Timestamp) -> Option<RecordedUsage>;

    /// Returns what the resource of a query was used in the steps of its period, which follow one another, also by the groups asked for;
    /// `None` for a step in which it was not. `history` belongs to the same process, and has the time of the question beside it.
    fn course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
        history: (&HistoryView, Timestamp),
    ) -> Option<Vec<Option<StepSum>>>;

    /// Returns the preemptions since a time as a history, and the times in which nothing was recorded.
    fn preemptions(&self, history: &HistoryView, since: Option<Timestamp>)
    -> Option<(HistoryView, Vec<Gap>)>;

    /// Returns a page of rows.
    ///
    /// # Errors
    /// If the record cannot be read now, or the row after which the page begins no longer exists.
    fn export(&self, query: &ExportQuery<'_>) -> Result<ExportPage, ModelError>;

    /// Removes the names of a namespace, all of them or none; in a dry run only counts the rows that have them.
    ///
    /// # Errors
    /// If the record cannot be read or written now.
    fn purge(&self, topic: &PurgeTopic, now: Timestamp) -> Result<PurgedRows, ModelError>;
}

impl HistoryQuestion {
    /// Returns the time to which a history must reach back to answer alone. No history reaches back beyond a day.
    fn needed_from(&self, now: Timestamp) -> Timestamp {
        let day_ago = day_before(now);
        match &self.topic {
            HistoryTopic::Preemptions(topic) => topic.since.map_or(day_ago, |since| since.max(day_ago)),
            HistoryTopic::Usage(topic) => topic.since.max(day_ago),
            HistoryTopic::Lines(_) => day_ago,
            HistoryTopic::Export(_) | HistoryTopic::Purge(_) => Timestamp::MIN,
            HistoryTopic::Own(topic) => topic.since.max(day_ago),
            HistoryTopic::Records(topic) => topic.since.max(day_ago),
        }
    }

    /// Returns whether a history that began at `from` covers the question as far as any history can.
    pub fn is_covered(&self, from: Option<Timestamp>, now: Timestamp) -> bool {
        from.is_some_and(|from| from <= self.needed_from(now))
    }

    /// Returns whether the durable record, if there is one, must answer: the question reaches back beyond a day, or beyond a
    /// history that began at `from`.
    pub fn needs_record(&self, from: Option<Timestamp>, now: Timestamp) -> bool {
        // A record has neither lines nor submitters, and does not fill itself.
        let is_of_ring =
            matches!(self.topic, HistoryTopic::Lines(_) | HistoryTopic::Own(_) | HistoryTopic::Records(_));
        !is_of_ring && (self.is_beyond_a_day(now) || !self.is_covered(from, now))
    }

    /// Returns whether only a durable record can answer.
    pub const fn is_of_record_alone(&self) -> bool {
        matches!(self.topic, HistoryTopic::Export(_) | HistoryTopic::Purge(_))
    }

    /// Returns whether the question reaches back beyond any history.
    pub fn is_beyond_a_day(&self, now: Timestamp) -> bool {
        let since = match &self.topic {
            HistoryTopic::Preemptions(topic) => topic.since,
            HistoryTopic::Usage(topic) => Some(topic.since),
            HistoryTopic::Lines(_) | HistoryTopic::Own(_) | HistoryTopic::Records(_) => return false,
            HistoryTopic::Export(_) | HistoryTopic::Purge(_) => return true,
        };
        // The question may have been asked a moment ago.
        let oldest = day_before(now).checked_sub(GRACE).unwrap_or(Timestamp::MIN);
        since.is_none_or(|since| since < oldest)
    }

    /// Answers from a history.
    ///
    /// # Errors
    /// If the question cannot be parsed, or the user may not see the answer.
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
                let mut report = match state.record {
                    Some(record) => source.recorded_usage(&query, &self.access, record)?,
                    None => source.usage(&query, &self.access).map_err(ModelError::Invalid)?,
                };
                if !topic.flavors {
                    for row in report.items.iter_mut().chain(&mut report.sums) {
                        row.flavors.clear();
                    }
                }
                if topic.steps {
                    report.steps = steps(&query, &report, &self.access, |query, steps, groups| {
                        state.course(query, steps, groups)
                    })?;
                }
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
            HistoryTopic::Own(topic) => HistoryAnswer::Own(answered(source.own(topic, &self.access), origin)),
            HistoryTopic::Purge(topic) => {
                HistoryAnswer::Purge(answered(source.purge(topic, &self.access, state.record)?, origin))
            }
            HistoryTopic::Records(topic) => {
                HistoryAnswer::Records(answered(source.records(topic, &self.access)?, origin))
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
            submitter: None,
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
