//! Questions to the core about its inner state. It answers between two rounds, so answers cost nothing unless a question is
//! asked.
//!
//! Invariant: at most `CAPACITY` questions wait, and the lists of an answer are bounded.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::api::ObjectKey;
use crate::history::{HistoryView, OpenWait};
use crate::reconciler::{Reconciler, why_no_workload};
use crate::scheduler::{CapacityQuestion, CapacityReport, Explanation, Supposition};
use crate::server::apis::capacity::AskCapacity;
use crate::server::apis::views::AskAudit;
use crate::snapshot::{AuditFacts, Inspection, JobName, NoWorkload, QueueListing};
use crate::visibility::offline::capacity;

/// Maximum number of questions that wait.
pub(super) const CAPACITY: usize = 16;
/// Time limit of the core for the explanation of one workload.
const MAX_EXPLAINING: Duration = Duration::from_millis(20);
/// Time after which the core starts no further flavor in a count of capacity.
const MAX_COUNTING: Duration = Duration::from_millis(50);
/// Maximum number of entries of a list in an inspection.
const INSPECTED: usize = 100;
/// Maximum number of names of a list of workloads.
const LISTED: usize = 1_000;

/// A question to the core.
pub(super) enum CoreQuery {
    /// Writes and timers.
    Inspect(oneshot::Sender<Inspection>),
    /// Queues and the names of their workloads.
    ListQueues(oneshot::Sender<QueueListing>),
    /// The history, from which answers are made elsewhere: shared with the core, which copies a part before it changes it.
    History(oneshot::Sender<HistoryView>),
    /// The open wait of a workload by its UID; `None` if it does not wait, or nothing is recorded.
    OpenWait(String, oneshot::Sender<Option<OpenWait>>),
    /// Why a workload or its pods wait, or would wait under a supposition; `None` if they do not wait.
    Explain(ObjectKey, Supposition, oneshot::Sender<Option<Explanation>>),
    /// Capacity of flavors on their nodes, and the pods that fit.
    Capacity(CapacityQuestion, oneshot::Sender<CapacityReport>),
    /// Why a job has no Workload; `None` if it has one, or will get one.
    NoWorkload(JobName, oneshot::Sender<Option<NoWorkload>>),
    /// Facts that an audit reads beside the snapshot.
    Audit(oneshot::Sender<AuditFacts>),
}

impl CoreQuery {
    /// Sends the answer. A dropped receiver no longer waits, which is no error.
    pub(super) fn answer(self, state: &mut Reconciler, now: Timestamp) {
        match self {
            Self::Inspect(reply) => drop(reply.send(state.inspect(INSPECTED, now))),
            Self::ListQueues(reply) => drop(reply.send(state.list_queues(LISTED))),
            Self::History(reply) => drop(reply.send(state.history().view())),
            Self::OpenWait(uid, reply) => drop(reply.send(state.history().open_wait(&uid))),
            // A client that no longer waits costs nothing.
            Self::Explain(_, _, reply) if reply.is_closed() => {}
            Self::Explain(key, supposed, reply) => {
                let until = Instant::now() + MAX_EXPLAINING;
                let explanation = state.engine_mut().explain(&key, &supposed, &mut || Instant::now() < until);
                let explanation = explanation.or_else(|| state.explain_pods(&key));
                drop(reply.send(explanation));
            }
            Self::Capacity(_, reply) if reply.is_closed() => {}
            Self::Capacity(question, reply) => {
                let until = Instant::now() + MAX_COUNTING;
                let report = capacity(state, &question, &mut || Instant::now() < until);
                drop(reply.send(report));
            }
            Self::NoWorkload(job, reply) => drop(reply.send(why_no_workload(state, &job))),
            Self::Audit(reply) if reply.is_closed() => {}
            Self::Audit(reply) => drop(reply.send(state.audit_facts())),
        }
    }
}

/// Asks the core. Returns `None` if too many questions wait, or if the core has ended; never resolves while the core hangs.
pub(super) async fn ask<T>(
    queries: &mpsc::Sender<CoreQuery>,
    question: impl FnOnce(oneshot::Sender<T>) -> CoreQuery,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    queries.try_send(question(reply)).ok()?;
    answer.await.ok()
}

/// The core of this process, as the source of capacity and audits.
pub(super) struct OwnCore(pub(super) mpsc::Sender<CoreQuery>);

impl AskCapacity for OwnCore {
    fn capacity(&self, question: CapacityQuestion) -> BoxFuture<'static, Option<CapacityReport>> {
        let queries = self.0.clone();
        Box::pin(async move { ask(&queries, |reply| CoreQuery::Capacity(question, reply)).await })
    }
}

impl AskAudit for OwnCore {
    fn audit_facts(&self) -> BoxFuture<'static, Option<AuditFacts>> {
        let queries = self.0.clone();
        Box::pin(async move { ask(&queries, CoreQuery::Audit).await })
    }

    fn why_no_workload(&self, job: JobName) -> BoxFuture<'static, Option<NoWorkload>> {
        let queries = self.0.clone();
        Box::pin(async move { ask(&queries, |reply| CoreQuery::NoWorkload(job, reply)).await.flatten() })
    }
}
