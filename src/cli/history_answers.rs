//! Answers from the history: of this replica, or of the one that began first.
//!
//! Invariants: a history that has all that is asked for answers itself; otherwise a follower asks the leader, and the leader the
//! replica that began first; without them the answer is that of this replica, marked as `partial`. The core hands out its history at
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
    HistoryQuestion, HistorySource, HistoryState, ReadRecord, RingReport, RingStarts, TELL_INTERVAL,
    add_evictions,
};
use crate::visibility::page::ModelError;
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::views::Verdict;

/// How long a copy of the history is used.
const COPY_TTL: Duration = Duration::from_secs(1);
/// How often it is looked at whether the leader has to be told.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What all that answer from the history of this process share.
pub(super) struct HistoryShared {
    /// What other replicas told this one.
    starts: Mutex<RingStarts>,
    copy: tokio::sync::Mutex<Option<HistoryCopy>>,
    origin: Instant,
    /// The time of the history, which the core has from the API server.
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

/// Asks other replicas.
pub(super) trait AskReplicas: Send + Sync {
    /// Asks the leader, or the replica at an address; `None` without an answer.
    fn ask(&self, address: Option<String>, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>>;
}

impl AskReplicas for Arc<LeaderCall> {
    fn ask(&self, address: Option<String>, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let call = Self::clone(self);
        Box::pin(async move {
            let answer = match address {
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

/// Answers from histories.
#[derive(Clone)]
pub(super) struct HistoryAnswers {
    pub(super) shared: Arc<HistoryShared>,
    pub(super) queries: mpsc::Sender<CoreQuery>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    /// Name of this replica.
    pub(super) replica: String,
    pub(super) holder: Arc<LeaseHolder>,
    /// Asks other replicas; `None` without an election: there are no others.
    pub(super) call: Option<Arc<dyn AskReplicas>>,
    pub(super) record: RecordSource,
}

/// Where the durable record is.
#[derive(Clone)]
pub(super) enum RecordSource {
    /// There is none.
    None,
    /// In this process, once its file is open.
    Own(Arc<OnceLock<Arc<Recording>>>),
    /// In another process, at an address.
    At(String, Arc<dyn AskReplicas>),
}

impl HistoryAnswers {
    /// Keeps what another replica told.
    pub(super) fn hear(&self, report: RingReport) {
        self.starts(|starts, now| starts.hear(report, now));
    }

    /// Returns the number of other replicas that told lately.
    pub(super) fn other_replicas(&self) -> usize {
        self.starts(RingStarts::count)
    }

    /// Adds what the history of this replica has of a workload to its verdict.
    pub(super) async fn add_evictions(&self, verdict: &mut Verdict, access: &Access) {
        if let Some(own) = self.copy().await {
            let uid = verdict.workload.metadata.uid.clone();
            add_evictions(&mut verdict.history, &own.history, &uid, access);
            let created = verdict.workload.metadata.creation_timestamp;
            verdict.history_since =
                own.history.from.filter(|from| created.is_some_and(|created| created < *from));
        }
    }

    fn starts<T>(&self, read: impl FnOnce(&mut RingStarts, Duration) -> T) -> T {
        let mut starts = self.shared.starts.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut starts, self.shared.origin.elapsed())
    }

    /// Answers a user, or another process that asks for one.
    pub(super) async fn answer(&self, question: &HistoryQuestion) -> LeaderAnswer {
        let Some(own) = self.copy().await else {
            return LeaderAnswer::Refused(ModelError::TooMany);
        };
        if question.is_of_record_alone() {
            if matches!(self.record, RecordSource::None) {
                // Which says that there is none.
                return self.own(question, &own);
            }
            let answer = self.of_record(question, &own).await;
            return answer.unwrap_or(LeaderAnswer::Refused(ModelError::Unavailable));
        }
        let asks_record = match &self.record {
            RecordSource::None => false,
            RecordSource::Own(_) => true,
            // Another replica that asks for what this one has does so because it has asked the record already.
            RecordSource::At(..) => !question.own,
        };
        if !asks_record || !question.needs_record(own.history.from, own.at) {
            return self.of_histories(question, &own).await;
        }
        if let Some(answer) = self.of_record(question, &own).await {
            return answer;
        }
        match self.of_histories(question, &own).await {
            // A day is all that histories have.
            LeaderAnswer::History(answer) if question.is_beyond_a_day(own.at) => {
                LeaderAnswer::History(Box::new(answer.into_partial()))
            }
            answer => answer,
        }
    }

    /// Returns the answer of the history that began first.
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

    /// Returns the answer of the durable record; `None` if there is none, or if it does not answer now.
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
                // Reading a file is no work for a thread that serves others.
                let answer = move || answers.from(&question, &own, Some(&recording.recorder));
                tokio::task::spawn_blocking(answer).await.ok()
            }
        }
    }

    /// Returns whether the other replicas have told by now since when they record. They tell a new leader as soon as they see it; a
    /// Lease that never had another holder is as young as this replica, and so are the others.
    fn knows_others(&self, now: Timestamp) -> bool {
        if self.holder.is_first() {
            return true;
        }
        let since = self.holder.get().map(|(_, since)| since);
        let known = LOOK_INTERVAL.saturating_mul(3);
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
        // What changes meanwhile is twice in memory, so that a copy is not kept for longer than it is used.
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(COPY_TTL).await;
            shared.copy.lock().await.take_if(|copy| copy.made.elapsed() >= COPY_TTL);
        });
        Some(copy)
    }

    /// Tells the leader since when this replica records: at each interval, and at once when another one leads. Never ends.
    pub(super) async fn tell(self, address: String) {
        let Some(call) = self.call.clone() else { return std::future::pending().await };
        let mut told: Option<(Option<String>, Instant)> = None;
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let snapshot = self.published.load_full();
            let Some(from) = snapshot.history.from.filter(|_| !snapshot.leading) else { continue };
            let leader = self.holder.address();
            let is_due = told.as_ref().is_none_or(|(to, at)| *to != leader || at.elapsed() >= TELL_INTERVAL);
            if !is_due || leader.is_none() {
                continue;
            }
            let report = RingReport { replica: self.replica.clone(), address: address.clone(), from };
            if call.ask(None, Question::Ring(report)).await.is_some() {
                told = Some((leader, Instant::now()));
            }
        }
    }
}

/// Returns a question for the history of the process that is asked, and of no other.
fn asked_of(question: &HistoryQuestion) -> Question {
    Question::History(HistoryQuestion { own: true, ..question.clone() })
}

/// Returns an answer that says more than that there is none now.
fn usable(answer: LeaderAnswer) -> Option<LeaderAnswer> {
    let none = |error: &ModelError| {
        matches!(error, ModelError::TooMany | ModelError::Unavailable | ModelError::NotSynced)
    };
    Some(answer).filter(|answer| !matches!(answer, LeaderAnswer::Refused(error) if none(error)))
}

#[cfg(test)]
mod tests;
