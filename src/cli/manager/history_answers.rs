//! Answers from the history of this replica, or of the replica that began to record first.
//!
//! Invariants: a history that covers the question answers it; otherwise a follower asks the leader, and the leader asks the
//! replica that began first; without their answer this replica answers, marked as `partial`. The core hands out its history at
//! most once in a second, however often it is asked.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::core_queries::{self, CoreQuery};
use super::recording::Recording;
use crate::history::HistoryView;
use crate::kube::leader_call::LeaderCall;
use crate::kube::lease::LeaseHolder;
use crate::kube::server_clock::ServerClock;
use crate::record::Recorder;
use crate::server::apis::views::source_of;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::history::{
    HistoryQuestion, HistorySource, HistoryState, REPORT_INTERVAL, ReadRecord, RingReport, RingStarts,
    add_evictions, add_waits,
};
use crate::visibility::page::ModelError;
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::views::Verdict;

/// How long a copy of the history is used.
const COPY_TTL: Duration = Duration::from_secs(1);
/// Longest time of an answer for which the record writes much. API servers give up after a minute.
const SLOW_TIMEOUT: Duration = Duration::from_secs(50);
/// Interval between two checks whether a report to the leader is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// State that all answers from the history of this process share.
pub(super) struct HistoryShared {
    /// Reports of other replicas to this one.
    starts: Mutex<RingStarts>,
    copy: tokio::sync::Mutex<Option<HistoryCopy>>,
    origin: Instant,
    /// The API server's clock, on which the history is recorded.
    clock: Arc<ServerClock>,
}

impl HistoryShared {
    pub(super) fn new(clock: Arc<ServerClock>) -> Self {
        Self { starts: Mutex::default(), copy: tokio::sync::Mutex::default(), origin: Instant::now(), clock }
    }
}

/// A copy of the history.
#[derive(Clone)]
struct HistoryCopy {
    made: Instant,
    at: Timestamp,
    history: Arc<HistoryView>,
}

/// A client of other replicas.
pub(super) trait AskReplicas: Send + Sync {
    /// Asks the leader, or the replica at an address; `None` without an answer.
    fn ask(&self, address: Option<String>, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>>;
}

impl AskReplicas for Arc<LeaderCall> {
    fn ask(&self, address: Option<String>, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let call = Self::clone(self);
        Box::pin(async move {
            let answer = match address {
                Some(address) if question.is_slow() => {
                    call.ask_within(&address, &question, SLOW_TIMEOUT).await
                }
                Some(address) => call.ask_at(&address, &question).await,
                None => LeaderCall::ask(&call, &question).await,
            };
            match answer.map(serde_json::from_value::<LeaderAnswer>) {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::warn!(%error, "the answer of another replica cannot be read"),
                Err(error) => tracing::debug!(%error, "another replica was not asked"),
            }
            None
        })
    }
}

/// Answers from the histories of all replicas and from the durable record.
#[derive(Clone)]
pub(super) struct HistoryAnswers {
    pub(super) shared: Arc<HistoryShared>,
    pub(super) queries: mpsc::Sender<CoreQuery>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    /// Name of this replica.
    pub(super) replica: String,
    pub(super) holder: Arc<LeaseHolder>,
    /// Client of other replicas; `None` without an election, because there are no others.
    pub(super) call: Option<Arc<dyn AskReplicas>>,
    pub(super) record: RecordSource,
}

/// Location of the durable record.
#[derive(Clone)]
pub(super) enum RecordSource {
    /// There is no record.
    None,
    /// In this process, once its file is open.
    Own(Arc<OnceLock<Arc<Recording>>>),
    /// In another process, at an address.
    At(String, Arc<dyn AskReplicas>),
}

impl HistoryAnswers {
    /// Stores the report of another replica.
    pub(super) fn store_report(&self, report: RingReport) {
        self.starts(|starts, now| starts.hear(report, now));
    }

    /// Returns the number of other replicas with a recent report.
    pub(super) fn other_replicas(&self) -> usize {
        self.starts(RingStarts::count)
    }

    /// Adds the waits and evictions of a workload from the history of this replica to its verdict.
    pub(super) async fn add_events(&self, verdict: &mut Verdict, access: &Access) {
        if let Some(own) = self.copy().await {
            let uid = verdict.workload.metadata.uid.clone();
            let asked = uid.clone();
            let open = core_queries::ask(&self.queries, |reply| CoreQuery::OpenWait(asked, reply)).await;
            add_evictions(&mut verdict.history, &own.history, &uid, access);
            add_waits(&mut verdict.history, &own.history, &uid, open.flatten().as_ref());
            let created = verdict.workload.metadata.creation_timestamp;
            verdict.history_since =
                own.history.from.filter(|from| created.is_some_and(|created| created < *from));
        }
    }

    fn starts<T>(&self, read: impl FnOnce(&mut RingStarts, Duration) -> T) -> T {
        let mut starts = self.shared.starts.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut starts, self.shared.origin.elapsed())
    }

    /// Answers a question of a user, directly or through another process.
    pub(super) async fn answer(&self, question: &HistoryQuestion) -> LeaderAnswer {
        let Some(own) = self.copy().await else {
            return LeaderAnswer::Refused(ModelError::TooMany);
        };
        if question.is_of_record_alone() {
            if matches!(self.record, RecordSource::None) {
                // The own answer says that no history is recorded.
                return self.own(question, &own);
            }
            let answer = self.of_record(question, &own).await;
            return answer.unwrap_or(LeaderAnswer::Refused(ModelError::Unavailable));
        }
        let asks_record = match &self.record {
            RecordSource::None => false,
            RecordSource::Own(_) => true,
            // Another replica asks for this replica's own history only after it has asked the record.
            RecordSource::At(..) => !question.own,
        };
        if !asks_record || !question.needs_record(own.history.from, own.at) {
            return self.of_histories(question, &own).await;
        }
        if let Some(answer) = self.of_record(question, &own).await {
            return answer;
        }
        match self.of_histories(question, &own).await {
            // Histories in memory cover at most a day.
            LeaderAnswer::History(answer) if question.is_beyond_a_day(own.at) => {
                LeaderAnswer::History(Box::new(answer.into_partial()))
            }
            answer => answer,
        }
    }

    /// Returns the answer of the replica whose history began first.
    async fn of_histories(&self, question: &HistoryQuestion, own: &HistoryCopy) -> LeaderAnswer {
        let Some(call) = self.call.as_ref().filter(|_| !question.own) else {
            return self.own(question, own);
        };
        if question.is_covered(own.history.from, own.at) {
            return self.own(question, own);
        }
        if !self.published.load().leading {
            return match self.ask(call, None, question).await {
                Some(answer) => answer,
                None => self.partial(question, own),
            };
        }
        match self.starts(|starts, now| starts.earlier_than(own.history.from, now)) {
            Some(first) => match self.ask(call, Some(first.address), question).await {
                Some(answer) => answer,
                None => self.partial(question, own),
            },
            None if self.knows_others(own.at) => self.own(question, own),
            None => self.partial(question, own),
        }
    }

    /// Returns the answer of the durable record; `None` without a record, or if it does not answer.
    async fn of_record(&self, question: &HistoryQuestion, own: &HistoryCopy) -> Option<LeaderAnswer> {
        match &self.record {
            RecordSource::None => None,
            RecordSource::At(address, call) => {
                let call = call.ask(Some(address.clone()), asked_of(question)).await?;
                usable(call)
            }
            RecordSource::Own(recording) => {
                let recording = Arc::clone(recording.get().filter(|recording| recording.has_begun())?);
                let (answers, question, own) = (self.clone(), question.clone(), own.clone());
                // Reading a file would block a thread that serves other requests.
                let answer = move || answers.from(&question, &own, Some(&recording.recorder));
                tokio::task::spawn_blocking(answer).await.ok()
            }
        }
    }

    /// Returns whether the other replicas have reported the start of their histories by now. They report to a new leader as
    /// soon as they see it. A Lease that never had another holder is as young as this replica, and so are the histories of the
    /// others.
    fn knows_others(&self, now: Timestamp) -> bool {
        if self.holder.is_first() {
            return true;
        }
        let since = self.holder.get().map(|(_, since)| since);
        let known = CHECK_INTERVAL.saturating_mul(3);
        since.is_some_and(|since| Duration::try_from(now.duration_since(since)).is_ok_and(|led| led > known))
    }

    /// Asks the leader, or the replica at an address for its own history.
    async fn ask(
        &self,
        call: &Arc<dyn AskReplicas>,
        address: Option<String>,
        question: &HistoryQuestion,
    ) -> Option<LeaderAnswer> {
        let asked = match &address {
            Some(_) => asked_of(question),
            None => Question::History(question.clone()),
        };
        usable(call.ask(address, asked).await?)
    }

    fn own(&self, question: &HistoryQuestion, own: &HistoryCopy) -> LeaderAnswer {
        self.from(question, own, None)
    }

    fn from(&self, question: &HistoryQuestion, own: &HistoryCopy, record: Option<&Recorder>) -> LeaderAnswer {
        let snapshot = self.published.load_full();
        if !snapshot.synced {
            return LeaderAnswer::Refused(ModelError::NotSynced);
        }
        let origin = source_of(&snapshot, &self.replica, Some(own.at));
        let source = HistorySource { history: &own.history, replica: &self.replica, now: own.at };
        let record = record.map(|record| -> &dyn ReadRecord { record });
        let state = HistoryState { source, snapshot: &snapshot, origin: &origin, record };
        match question.answer(&state) {
            Ok(answer) => LeaderAnswer::History(Box::new(answer)),
            Err(error) => LeaderAnswer::Refused(error),
        }
    }

    fn partial(&self, question: &HistoryQuestion, own: &HistoryCopy) -> LeaderAnswer {
        match self.own(question, own) {
            LeaderAnswer::History(answer) => LeaderAnswer::History(Box::new(answer.into_partial())),
            other => other,
        }
    }

    /// Returns a copy of the history that is not older than a second; `None` if the core has too many questions.
    async fn copy(&self) -> Option<HistoryCopy> {
        let mut kept = self.shared.copy.lock().await;
        if let Some(copy) = kept.as_ref().filter(|copy| copy.made.elapsed() < COPY_TTL) {
            return Some(copy.clone());
        }
        let history = core_queries::ask(&self.queries, CoreQuery::History).await?;
        let copy =
            HistoryCopy { made: Instant::now(), at: self.shared.clock.now(), history: Arc::new(history) };
        *kept = Some(copy.clone());
        // Parts that change while the copy exists are in memory twice, so the copy is dropped when it is too old to be used.
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(COPY_TTL).await;
            shared.copy.lock().await.take_if(|copy| copy.made.elapsed() >= COPY_TTL);
        });
        Some(copy)
    }

    /// Reports to the leader since when this replica records: at each interval, and at once after a change of the leader. Never
    /// returns.
    pub(super) async fn report_start(self, address: String) {
        let Some(call) = self.call.clone() else { return std::future::pending().await };
        let mut reported: Option<(Option<String>, Instant)> = None;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let snapshot = self.published.load_full();
            let Some(from) = snapshot.history.from.filter(|_| !snapshot.leading) else { continue };
            let leader = self.holder.address();
            let is_due =
                reported.as_ref().is_none_or(|(to, at)| *to != leader || at.elapsed() >= REPORT_INTERVAL);
            if !is_due || leader.is_none() {
                continue;
            }
            let report = RingReport { replica: self.replica.clone(), address: address.clone(), from };
            if call.ask(None, Question::Ring(report)).await.is_some() {
                reported = Some((leader, Instant::now()));
            }
        }
    }
}

/// Returns the question for the own history of the process that is asked.
fn asked_of(question: &HistoryQuestion) -> Question {
    Question::History(HistoryQuestion { own: true, ..question.clone() })
}

/// Returns the answer, unless it only says that no answer is available at present.
fn usable(answer: LeaderAnswer) -> Option<LeaderAnswer> {
    let none = |error: &ModelError| {
        matches!(error, ModelError::TooMany | ModelError::Unavailable | ModelError::NotSynced)
    };
    Some(answer).filter(|answer| !matches!(answer, LeaderAnswer::Refused(error) if none(error)))
}

#[cfg(test)]
mod tests;
