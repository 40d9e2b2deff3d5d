//! Questions to the core about its inner state. It answers between two rounds, so an answer costs only when it is asked for.
//!
//! Invariant: few questions wait at once, and the lists of an answer are bounded.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::api::ObjectKey;
use crate::history::HistoryView;
use crate::reconciler::{Reconciler, why_no_workload};
use crate::scheduler::{CapacityQuestion, CapacityReport, Explanation, Supposition};
use crate::server::apis::capacity::AskCapacity;
use crate::server::apis::views::AskAudit;
use crate::snapshot::{AuditFacts, Inspection, JobName, NoWorkload, QueueListing};
use crate::visibility::offline::capacity;

/// Maximum number of questions that wait.
pub(super) const CAPACITY: usize = 16;
/// Longest time for which the core works on why a workload waits.
const MAX_EXPLAINING: Duration = Duration::from_millis(20);
/// Time after which the core begins to count no other flavor.
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
    /// The history, from which answers are made elsewhere: shared with the core, which copies what it changes later.
    History(oneshot::Sender<HistoryView>),
    /// Why a workload or its pods wait, or would wait with what is supposed; `None` if they do not.
    Explain(ObjectKey, Supposition, oneshot::Sender<Option<Explanation>>),
    /// What flavors have on their nodes, and what fits.
    Capacity(CapacityQuestion, oneshot::Sender<CapacityReport>),
    /// Why a job has no Workload; `None` if it has one, or nothing keeps it from having one.
    NoWorkload(JobName, oneshot::Sender<Option<NoWorkload>>),
    /// What an audit reads beside the snapshot.
    Audit(oneshot::Sender<AuditFacts>),
}

impl CoreQuery {
    /// Sends the answer. A dropped receiver has given up, which is no error.
    pub(super) fn answer(self, state: &mut Reconciler, now: Timestamp) {
        match self {
            Self::Inspect(reply) => drop(reply.send(state.inspect(INSPECTED, now))),
            Self::ListQueues(reply) => drop(reply.send(state.list_queues(LISTED))),
            Self::History(reply) => drop(reply.send(state.history().view())),
            // A client that has given up costs nothing.
            Self::Explain(_, _, reply) if reply.is_closed() => {}
            Self::Explain(key, supposed, reply) => {
                let until = Instant::now() + MAX_EXPLAINING;
                let explanation = state.engine_mut().explain(&key, &supposed, &mut || Instant::now() < until);
                let explanation = explanation.or_else(|| state.units().explain_pods(&key));
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

/// Asks the core. `None` if too many questions wait, or if the core has ended; never resolves while the core hangs.
pub(super) async fn ask<T>(
    queries: &mpsc::Sender<CoreQuery>,
    question: impl FnOnce(oneshot::Sender<T>) -> CoreQuery,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    queries.try_send(question(reply)).ok()?;
    answer.await.ok()
}

/// The core of this process, for those who ask it about flavors and audits.
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
