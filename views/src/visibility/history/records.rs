//! Records in the memory of a replica, for the process that keeps the durable record: with them it fills the time in which it did not
//! run.
//!
//! Invariant: the records name the workloads of all namespaces, so that only a reader of the cluster is answered; no path for users
//! asks for them.

use super::HistorySource;
use crate::history::{Record, RecordKey};
use crate::quota::FlavorResource;
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::views::Recorded;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum number of records of a page, about half a megabyte.
const PAGE: usize = 1_000;

/// The records that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordTopic {
    /// Time after which the events were, or the quota of their workloads was released.
    pub since: Timestamp,
    /// Key of the last record of the page before; `None` for the first page.
    #[serde(default)]
    pub after: Option<RecordKey>,
}

/// A page of records, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordReport {
    /// Names of the flavor-resources; the index is the number in the amounts of the records.
    pub flavor_resources: Vec<FlavorResource>,
    /// The records.
    pub records: Vec<Arc<Record>>,
    /// Whether another page follows.
    pub more: bool,
    /// For which time the records are complete.
    pub recorded: Recorded,
}

impl HistorySource<'_> {
    /// Returns a page of records.
    ///
    /// # Errors
    /// If the reader does not see the cluster.
    pub fn records(&self, topic: &RecordTopic, access: &Access) -> Result<RecordReport, ModelError> {
        if !access.cluster {
            let message = "records in memory are for readers of the cluster";
            return Err(ModelError::Invalid(message.to_owned()));
        }
        let (records, more) = self.history.records_since(topic.since, topic.after.as_ref(), PAGE);
        Ok(RecordReport {
            flavor_resources: self.history.flavor_resources.clone(),
            records,
            more,
            recorded: self.recorded((Some(topic.since), self.now), self.history.records_from()),
        })
    }
}
