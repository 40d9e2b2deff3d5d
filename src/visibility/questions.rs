//! Questions that not every replica can answer, as they travel between replicas, and their answers.
//!
//! Invariant: a question has the access of the user who asks, and its answer holds nothing beyond that.

use super::access::Access;
use super::history::{HistoryAnswer, HistoryQuestion, RingReport};
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
    /// Why a Workload is where it is.
    Verdict(VerdictQuestion),
    /// What it decides and writes. Only for readers of the cluster.
    Manager,
    /// What a history tells.
    History(HistoryQuestion),
    /// No question: a replica tells since when it records.
    Ring(RingReport),
}

impl Question {
    /// Returns whether every replica answers it, also if another one leads.
    pub const fn is_for_any_replica(&self) -> bool {
        matches!(self, Self::History(HistoryQuestion { own: true, .. }))
    }
}

/// Why a Workload is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictQuestion {
    /// What the user may see.
    pub access: Access,
    /// The Workload.
    pub workload: WorkloadName,
    /// The Workload to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WorkloadName>,
    /// LocalQueue of its namespace in which it would be, instead of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Effective priority that it would have, instead of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
}

/// Name of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl WorkloadName {
    /// Reads `NAME` or `NAMESPACE/NAME`.
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
    /// Why a Workload is where it is.
    Verdict(Box<Answer<Verdict>>),
    /// The state of the manager.
    Manager(Box<Answer<ManagerView>>),
    /// What a history tells.
    History(Box<HistoryAnswer>),
    /// What was told is known now.
    Noted,
    /// There is no answer.
    Refused(ModelError),
}

impl VerdictQuestion {
    /// Returns the ClusterQueue of the queue in which the Workload would be; `None` if its own is meant.
    ///
    /// # Errors
    /// The LocalQueue does not exist.
    pub fn target(&self, snapshot: &Snapshot) -> Result<Option<Arc<str>>, ModelError> {
        let Some(queue) = &self.queue else { return Ok(None) };
        let namespace = &self.workload.namespace;
        let known = snapshot.references.local_queues.get(&ObjectKey::new(namespace, queue));
        let missing =
            || ModelError::Invalid(format!("queue: localqueue {queue:?} not found in namespace {namespace}"));
        known.map(|known| Some(Arc::clone(&known.cluster_queue))).ok_or_else(missing)
    }

    /// Returns what is supposed of the Workload.
    ///
    /// # Errors
    /// The LocalQueue does not exist.
    pub fn supposition(&self, snapshot: &Snapshot) -> Result<Supposition, ModelError> {
        Ok(Supposition { cluster_queue: self.target(snapshot)?, priority: self.priority })
    }

    /// Answers from the state of the process that knows most: the leader's, with what its engine says.
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
