//! Answers of the history for pages, kept for a short time, so that many viewers of a page cost one question.
//!
//! Invariant: an answer is kept for the access of its viewer, and for no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::dashboard::{PreemptionFilter, PreemptionPage, UsageFilter, UsagePage};
use crate::server::apis::questions::AnswerQuestions;
use crate::visibility::access::Access;
use crate::visibility::history::{
    HistoryAnswer, HistoryQuestion, HistoryTopic, LineTopic, OwnTopic, PERIOD, PreemptionTopic, UsageTopic,
    since,
};
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::views::{LineReport, OwnReport};

/// Points of a line: one for half an hour.
const POINTS: u16 = 48;
/// How long lines and usage are kept: the smallest width of their buckets.
const LINES_TTL: Duration = Duration::from_mins(1);
/// How long preemptions are kept. It delays the display of a new preemption.
const PREEMPTIONS_TTL: Duration = Duration::from_secs(5);
/// Most answers that are kept.
const MAX_KEPT: usize = 128;

type Kept = BTreeMap<HistoryQuestion, (Instant, Arc<HistoryAnswer>)>;

/// The history as the source of pages.
pub(super) struct PageHistory {
    leader: Arc<dyn AnswerQuestions>,
    kept: Mutex<Kept>,
}

/// Returns the time a day ago, rounded to the minute, so that all requests within a minute share an answer.
fn day_ago() -> Timestamp {
    let second = Timestamp::now().as_second().saturating_sub(PERIOD.as_secs());
    minute_of(Timestamp::from_second(second).unwrap_or_default())
}

/// Returns the start of the minute of a time.
fn minute_of(time: Timestamp) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second.saturating_sub(second.rem_euclid(60))).unwrap_or_default()
}

/// Returns the value of a filter; `None` if it is empty.
fn given(text: &str) -> Option<String> {
    Some(text).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl PageHistory {
    pub(super) fn new(leader: Arc<dyn AnswerQuestions>) -> Self {
        Self { leader, kept: Mutex::default() }
    }

    /// Returns the lines of a ClusterQueue, or of all; none if the history does not answer.
    pub(super) async fn lines(&self, cluster_queue: Option<&str>, access: &Access) -> Option<LineReport> {
        let topic = LineTopic { cluster_queue: cluster_queue.map(str::to_owned), points: POINTS };
        match &*self.ask(access, HistoryTopic::Lines(topic), LINES_TTL).await.ok()? {
            HistoryAnswer::Lines(answer) => Some(answer.view.clone()),
            _ => None,
        }
    }

    /// Returns a page of preemptions.
    pub(super) async fn preemptions(
        &self,
        query: &PreemptionFilter,
        access: &Access,
    ) -> Result<PreemptionPage, ModelError> {
        let limit = if query.limit == 0 { crate::dashboard::question::DEFAULT_ROWS } else { query.limit };
        let topic = PreemptionTopic {
            since: Some(day_ago()),
            namespace: given(&query.namespace),
            cluster_queue: given(&query.cluster_queue),
            preemptor_queue: given(&query.preemptor_queue),
            victim_queue: given(&query.victim_queue),
            page: PageQuery {
                limit: usize::try_from(limit).unwrap_or_default(),
                continue_token: query.after.clone(),
            },
            ..PreemptionTopic::default()
        };
        match &*self.ask(access, HistoryTopic::Preemptions(topic), PREEMPTIONS_TTL).await? {
            HistoryAnswer::Preemptions(answer) => {
                Ok(PreemptionPage { query: query.clone(), now: BTreeMap::new(), answer: answer.clone() })
            }
            _ => Err(ModelError::Unavailable),
        }
    }

    /// Returns usage and preemptions of the workloads of a user; none if the history does not answer.
    pub(super) async fn own(&self, user: &str, access: &Access) -> Option<OwnReport> {
        let topic = OwnTopic { submitter: user.to_owned(), since: day_ago() };
        match &*self.ask(access, HistoryTopic::Own(topic), PREEMPTIONS_TTL).await.ok()? {
            HistoryAnswer::Own(answer) => Some(answer.view.clone()),
            _ => None,
        }
    }

    /// Returns a page of usage.
    pub(super) async fn usage(&self, query: &UsageFilter, access: &Access) -> Result<UsagePage, ModelError> {
        let start = since(query.period(), Timestamp::now());
        let start = start.map_err(|text| ModelError::Invalid(format!("since: {text}")))?;
        let topic = UsageTopic {
            by: query.group().map_err(ModelError::Invalid)?,
            since: minute_of(start),
            until: None,
            resource: given(&query.resource),
            namespace: given(&query.namespace),
            steps: true,
            flavors: false,
        };
        match &*self.ask(access, HistoryTopic::Usage(topic), LINES_TTL).await? {
            HistoryAnswer::Usage(answer) => Ok(UsagePage { query: query.clone(), answer: answer.clone() }),
            _ => Err(ModelError::Unavailable),
        }
    }

    async fn ask(
        &self,
        access: &Access,
        topic: HistoryTopic,
        ttl: Duration,
    ) -> Result<Arc<HistoryAnswer>, ModelError> {
        let question = HistoryQuestion { access: access.clone(), topic, own: false };
        if let Some((_, answer)) = self.kept().get(&question).filter(|(made, _)| made.elapsed() < ttl) {
            return Ok(Arc::clone(answer));
        }
        let answer = match self.leader.answer(Question::History(question.clone())).await {
            Some(LeaderAnswer::History(answer)) => Arc::new(*answer),
            Some(LeaderAnswer::Refused(error)) => return Err(error),
            _ => return Err(ModelError::Unavailable),
        };
        let mut kept = self.kept();
        kept.retain(|_, (made, _)| made.elapsed() < LINES_TTL);
        // A partial answer is not kept, so that the next request asks the leader again.
        if !answer.is_partial() && kept.len() < MAX_KEPT {
            kept.insert(question, (Instant::now(), Arc::clone(&answer)));
        }
        Ok(answer)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{Answer, DayReport, Source};
    use futures::future::BoxFuture;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A leader that is known from the second question on.
    #[derive(Default)]
    struct LateLeader(AtomicUsize);

    impl AnswerQuestions for LateLeader {
        fn answer(&self, _: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
            let partial = self.0.fetch_add(1, Ordering::Relaxed) == 0;
            let view = LineReport { day: (!partial).then(DayReport::default), ..LineReport::default() };
            let answer = HistoryAnswer::Lines(Answer { view, source: Source::default(), partial });
            Box::pin(async move { Some(LeaderAnswer::History(Box::new(answer))) })
        }
    }

    #[tokio::test]
    async fn an_answer_without_the_leader_is_not_kept() {
        let leader = Arc::new(LateLeader::default());
        let history = PageHistory::new(Arc::<LateLeader>::clone(&leader));
        let access = Access::everything();
        for (has_day, asked) in [(false, 1), (true, 2), (true, 2)] {
            let lines = history.lines(None, &access).await.unwrap();
            assert_eq!((lines.day.is_some(), leader.0.load(Ordering::Relaxed)), (has_day, asked));
        }
    }
}
