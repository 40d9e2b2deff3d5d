//! Questions that only the leader can answer. The core of this process answers them, or the leader is asked.
//!
//! Invariants: an answer of this process while another one leads is marked as `partial`; a question waits at most for the
//! leader's timeout and for the core.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc;

use super::core_queries::{self, CoreQuery};
use super::history_answers::HistoryAnswers;
use crate::kube::leader_call::LeaderCall;
use crate::kube::lease::LeaseHolder;
use crate::kube::watch_status::WatchStatuses;
use crate::metrics::build;
use crate::metrics::recent::RecentDecisions;
use crate::server::apis::questions::AnswerQuestions;
use crate::server::apis::views::{AuditCache, source_of};
use crate::snapshot::Snapshot;
use crate::visibility::managers::{self, ReplicaFacts};
use crate::visibility::page::ModelError;
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::views::{Answer, WatchView};

/// Longest silence of a watch during which this process is assumed to know all changes.
const MAX_SILENCE: Duration = Duration::from_mins(2);

/// Returns the current time; `None` while a watch is silent.
pub(super) fn heard_until(watches: &WatchStatuses) -> Option<Timestamp> {
    let served = watches.iter().filter(|(_, health)| !health.not_served());
    let silence = served.map(|(_, health)| health.time_since_activity()).max();
    silence.filter(|silence| *silence <= MAX_SILENCE).map(|_| Timestamp::now())
}

/// Answers from the state of this process.
#[derive(Clone)]
pub(super) struct LocalAnswers {
    pub(super) queries: mpsc::Sender<CoreQuery>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    /// Name of this replica.
    pub(super) replica: String,
    /// The holder of the Lease.
    pub(super) holder: Arc<LeaseHolder>,
    /// Whether there is an election.
    pub(super) elects: bool,
    /// Configured feature gates with unknown names.
    pub(super) unknown_gates: Vec<String>,
    pub(super) watches: WatchStatuses,
    pub(super) recent: Arc<RecentDecisions>,
    pub(super) audits: Arc<AuditCache>,
    pub(super) history: HistoryAnswers,
}

impl AnswerQuestions for LocalAnswers {
    fn answer(&self, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let own = self.clone();
        Box::pin(async move {
            let question = match question {
                Question::Verdict(question) => question,
                Question::Manager => return Some(own.manager().await),
                Question::History(question) => return Some(own.history.answer(&question).await),
                Question::Ring(report) => {
                    own.history.store_report(report);
                    return Some(LeaderAnswer::Noted);
                }
            };
            let key = question.workload.key();
            let supposed = match question.supposition(&own.published.load()) {
                Ok(supposed) => supposed,
                Err(error) => return Some(LeaderAnswer::Refused(error)),
            };
            let asked =
                core_queries::ask(&own.queries, |reply| CoreQuery::Explain(key, supposed, reply)).await;
            let Some(explanation) = asked else {
                return Some(LeaderAnswer::Refused(ModelError::TooMany));
            };
            let snapshot = own.published.load_full();
            let source = source_of(&snapshot, &own.replica, heard_until(&own.watches));
            let mut answer = question.answer(&snapshot, explanation.as_ref(), source);
            if let LeaderAnswer::Verdict(verdict) = &mut answer {
                own.history.add_events(&mut verdict.view, &question.access).await;
            }
            Some(answer)
        })
    }
}

impl LocalAnswers {
    async fn manager(self) -> LeaderAnswer {
        let inspection = core_queries::ask(&self.queries, CoreQuery::Inspect).await;
        let snapshot = self.published.load_full();
        let findings = self.audits.counts(&snapshot).await;
        let facts = ReplicaFacts {
            replica: self.replica.clone(),
            version: build::describe(),
            holder: self.holder.get(),
            elects: self.elects,
            unknown_gates: self.unknown_gates.clone(),
            watches: self.watches(),
            rates: self.recent.rates(std::time::Instant::now()),
            findings,
            other_replicas: self.history.other_replicas(),
        };
        let view = managers::manager(&snapshot, facts, inspection.as_ref());
        let source = source_of(&snapshot, &self.replica, heard_until(&self.watches));
        LeaderAnswer::Manager(Box::new(Answer { view, source, partial: inspection.is_none() }))
    }

    fn watches(&self) -> WatchView {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let served = || self.watches.iter().filter(|(_, health)| !health.not_served());
        let oldest = served().map(|(_, health)| health.time_since_activity().as_secs()).max();
        WatchView {
            total: count(served().count()),
            current: count(served().filter(|(_, health)| health.synced()).count()),
            oldest_seconds: oldest.and_then(|seconds| i64::try_from(seconds).ok()),
        }
    }
}

/// Asks the leader if this process does not lead.
pub(super) struct LeaderLink {
    pub(super) local: LocalAnswers,
    /// `None` without an election: this process leads.
    pub(super) remote: Option<Arc<LeaderCall>>,
}

impl AnswerQuestions for LeaderLink {
    fn answer(&self, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let asks = !matches!(question, Question::History(_)) && !self.local.published.load().leading;
        let remote = self.remote.clone().filter(|_| asks);
        let local = self.local.clone();
        Box::pin(async move {
            let Some(remote) = remote else { return local.answer(question).await };
            match remote.ask(&question).await.map(serde_json::from_value::<LeaderAnswer>) {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::warn!(%error, "the leader's answer cannot be read"),
                Err(error) => tracing::debug!(%error, "the leader was not asked"),
            }
            let answer = local.answer(question).await?;
            Some(match answer {
                LeaderAnswer::Verdict(mut answer) => {
                    answer.partial = true;
                    LeaderAnswer::Verdict(answer)
                }
                LeaderAnswer::Manager(mut answer) => {
                    answer.partial = true;
                    LeaderAnswer::Manager(answer)
                }
                other => other,
            })
        })
    }
}

/// Returns the account in the payload of a token. The API server is not asked, because the token belongs to this process.
pub(super) fn account_of(token: &str) -> Option<String> {
    let payload = token.trim().split('.').nth(1)?;
    let payload: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let account = payload.get("sub")?.as_str()?;
    account.starts_with("system:serviceaccount:").then(|| account.to_owned())
}

/// Returns the account of a name in a namespace; a name with its namespace is returned as it is.
pub(super) fn account_named(name: &str, namespace: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("system:serviceaccount:{namespace}:{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_in_full() {
        assert_eq!(account_named("a", "ns"), "system:serviceaccount:ns:a");
        assert_eq!(account_named("system:serviceaccount:b:a", "ns"), "system:serviceaccount:b:a");
    }

    #[test]
    fn the_account_is_read_from_a_token() {
        let token = |payload: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
        let account = "system:serviceaccount:kueue-system:kueue-controller-manager";
        let found = account_of(&format!("{}\n", token(&format!("{{\"sub\":\"{account}\"}}"))));
        assert_eq!(found.as_deref(), Some(account));
        for text in ["", "a.b.c", &*token("{}"), &*token("{\"sub\":\"admin\"}"), "no token"] {
            assert_eq!(account_of(text), None, "{text}");
        }
    }
}
