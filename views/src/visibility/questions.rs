//! Questions that only some replicas can answer, in the form in which replicas send them to each other, and their answers.
//!
//! Invariant: a question has the access of the user that asks, and the answer contains nothing beyond that access.

use super::access::Access;
use super::history::{HistoryAnswer, HistoryQuestion, HistoryTopic, RingReport};
use super::page::ModelError;
use super::verdict::verdict;
use super::views::{Answer, ManagerView, Source, Verdict};
use crate::api::ObjectKey;
use crate::scheduler::{Explanation, Supposition};
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A question to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// The verdict on a Workload.
    Verdict(VerdictQuestion),
    /// The decisions and writes of the leader. Only for readers of the cluster.
    Manager,
    /// A question for a history.
    History(HistoryQuestion),
    /// A report of a replica about the start of its history; it asks nothing.
    Ring(RingReport),
}

impl Question {
    /// Returns whether the answer may take long, because much is written first.
    pub const fn is_slow(&self) -> bool {
        matches!(self, Self::History(HistoryQuestion { topic: HistoryTopic::Purge(_), .. }))
    }

    /// Returns whether every replica answers the question, even if another one leads: from its own history, or because its caller
    /// does not know which one leads.
    pub const fn is_for_any_replica(&self) -> bool {
        matches!(
            self,
            Self::History(
                HistoryQuestion { own: true, .. } | HistoryQuestion { topic: HistoryTopic::Records(_), .. }
            )
        )
    }
}

/// A question for the verdict on a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictQuestion {
    /// Access of the user.
    pub access: Access,
    /// The Workload.
    pub workload: WorkloadName,
    /// The Workload to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WorkloadName>,
    /// LocalQueue of the same namespace in which the Workload is supposed to be; `None` for its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Effective priority that the Workload is supposed to have; `None` for its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// Name of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadName {
    /// Namespace of the Workload.
    pub namespace: String,
    /// Name of the Workload.
    pub name: String,
}

impl WorkloadName {
    /// Parses `NAME` or `NAMESPACE/NAME`.
    pub fn parse(text: &str, namespace: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }
}

/// An answer of the leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaderAnswer {
    /// The verdict on a Workload.
    Verdict(Box<Answer<Verdict>>),
    /// The state of the manager.
    Manager(Box<Answer<ManagerView>>),
    /// An answer of a history.
    History(Box<HistoryAnswer>),
    /// The report was stored.
    Noted,
    /// There is no answer.
    Refused(ModelError),
}

impl VerdictQuestion {
    /// Returns the ClusterQueue of the supposed queue; `None` if none is supposed.
    ///
    /// # Errors
    /// If the LocalQueue does not exist.
    pub fn target(&self, snapshot: &Snapshot) -> Result<Option<Arc<str>>, ModelError> {
        let Some(queue) = &self.queue else { return Ok(None) };
        let namespace = &self.workload.namespace;
        let known = snapshot.references.local_queues.get(&ObjectKey::new(namespace, queue));
        let missing =
            || ModelError::Invalid(format!("queue: localqueue {queue:?} not found in namespace {namespace}"));
        known.map(|known| Some(Arc::clone(&known.cluster_queue))).ok_or_else(missing)
    }

    /// Returns the supposed queue and priority.
    ///
    /// # Errors
    /// If the LocalQueue does not exist.
    pub fn supposition(&self, snapshot: &Snapshot) -> Result<Supposition, ModelError> {
        Ok(Supposition { cluster_queue: self.target(snapshot)?, priority: self.priority })
    }

    /// Answers from the state of the process with the most knowledge: the leader's, with the explanation of its engine.
    pub fn answer(
        &self,
        snapshot: &Snapshot,
        explanation: Option<&Explanation>,
        source: Source,
    ) -> LeaderAnswer {
        let found = verdict(snapshot, self, explanation);
        match found {
            Ok(view) => {
                let partial = explanation.is_some_and(|explanation| explanation.is_cut);
                LeaderAnswer::Verdict(Box::new(Answer { view, source, partial }))
            }
            Err(error) => LeaderAnswer::Refused(error),
        }
    }
}
