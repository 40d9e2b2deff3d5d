//! The history of the workloads of one user.
//!
//! Invariants: only what the ring of the last 24 hours has is read, because a durable record has no submitters; workloads of namespaces
//! that the reader may not see do not count.

use super::{HistorySource, hours_view, number};
use crate::history::PreemptionQuery;
use crate::visibility::access::Access;
use crate::visibility::views::{HoursOf, OwnReport};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most preemptions of an answer.
const MAX_PREEMPTIONS: usize = 20;

/// The user whose workloads are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnTopic {
    /// Name of the user, as the API server has authenticated it.
    pub submitter: String,
    /// Start of the period; at most a day ago.
    pub since: Timestamp,
}

impl HistorySource<'_> {
    /// Returns what the workloads of a user used since a time, and which of them were preempted.
    pub fn own(&self, topic: &OwnTopic, access: &Access) -> OwnReport {
        let period = (topic.since, self.now);
        let sees = |namespace: &str| access.sees(namespace);
        let (jobs, used) = self.history.usage_of_submitter(&topic.submitter, period, sees);
        let query = PreemptionQuery {
            since: Some(topic.since),
            submitter: Some(&topic.submitter),
            ..PreemptionQuery::default()
        };
        let mut found = self.history.preemptions(&query);
        found.retain(|found| access.sees(&found.record.workload.key.namespace));
        let hours = |resource: &str, time: i128| HoursOf {
            resource: resource.to_owned(),
            hours: hours_view(resource, time),
        };
        OwnReport {
            jobs: number(jobs),
            used: used.iter().map(|(resource, time)| hours(resource, *time)).collect(),
            preemptions: found
                .iter()
                .take(MAX_PREEMPTIONS)
                .map(|found| self.preemption_view(found, access))
                .collect(),
            preemption_count: number(found.len()),
            recorded: self.recorded((Some(topic.since), self.now), self.history.records_from()),
        }
    }
}
