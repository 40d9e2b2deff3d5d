//! The life of a Workload as its object shows it, in milliseconds and names.
//!
//! Invariant: no time is before the creation of the object. The API server alone sets the creation, while any client that may
//! write the status sets times of conditions, and many programs write the year 1 for a missing time.

use super::series::Millis;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::lifecycle::eviction::PREEMPTED;
use crate::quota::FlavorResource;
use crate::resources::Amount;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Start of the message of an ended eviction.
const EARLIER: &str = "Previously: ";

/// A stored Workload.
#[derive(Clone, Debug)]
pub struct SeenWorkload<'a> {
    /// The Workload's record in the cache.
    pub record: &'a WorkloadRecord,
    /// Name of the ClusterQueue; empty if it is not known.
    pub cluster_queue: Arc<str>,
    /// Amounts that the ledger charges for the Workload; `None` if it charges none.
    pub charge: Option<BTreeMap<FlavorResource, Amount>>,
    /// Amounts of which the ledger charged it before it finished, as its admission still shows them; `None` if nothing needs them,
    /// or if they are not known.
    pub last_charge: Option<BTreeMap<FlavorResource, Amount>>,
}

/// An eviction as the conditions show it.
#[derive(Clone, Debug)]
pub(super) struct SeenEviction<'a> {
    pub(super) at: Millis,
    pub(super) reason: &'a str,
    /// Reason of the preemption; empty if the conditions no longer have it, `None` for another eviction.
    pub(super) preemption: Option<&'a str>,
    /// UID of the preemptor; empty if it is not known.
    pub(super) preemptor: &'a str,
}

impl SeenWorkload<'_> {
    fn status(&self) -> &WorkloadStatus {
        &self.record.status
    }

    /// Returns a time of a condition, not before the creation of the object.
    fn at(&self, time: Timestamp) -> Millis {
        millis(time.max(self.record.meta.created))
    }

    /// Returns when the Workload finished, and the reason.
    pub(super) fn finished(&self) -> Option<(Millis, &str)> {
        let at = conditions::true_since(self.status(), ConditionType::Finished)?;
        Some((self.at(at), conditions::reason(self.status(), ConditionType::Finished)))
    }

    /// Returns when quota was reserved and the charged amounts, if the Workload is charged.
    pub(super) fn reserved(&self) -> Option<(Millis, &BTreeMap<FlavorResource, Amount>)> {
        let since = conditions::true_since(self.status(), ConditionType::QuotaReserved);
        let since = self.at(since.unwrap_or(self.record.meta.created));
        self.charge.as_ref().map(|charge| (since, charge))
    }

    /// Returns since when quota is reserved, whether or not the Workload is charged.
    pub(super) fn reservation(&self) -> Option<Millis> {
        conditions::true_since(self.status(), ConditionType::QuotaReserved).map(|since| self.at(since))
    }

    /// Returns when quota was released, if the conditions show it.
    pub(super) fn released(&self) -> Option<Millis> {
        let reserved = conditions::find(self.status(), ConditionType::QuotaReserved)?;
        (reserved.status == "False").then(|| self.at(reserved.last_transition_time.0))
    }

    /// Returns the eviction of a Workload that is evicted.
    pub(super) fn eviction(&self) -> Option<SeenEviction<'_>> {
        let evicted =
            conditions::find(self.status(), ConditionType::Evicted).filter(|c| c.status == "True")?;
        let preempted = conditions::find(self.status(), ConditionType::Preempted);
        let reason = preempted.filter(|c| c.status == "True").map_or("", |c| c.reason.as_str());
        Some(SeenEviction {
            at: self.at(evicted.last_transition_time.0),
            reason: &evicted.reason,
            preemption: (evicted.reason == PREEMPTED).then_some(reason),
            preemptor: preemptor_uid(&evicted.message),
        })
    }

    /// Returns the eviction before the current reservation, as far as the conditions still show it.
    pub(super) fn earlier_eviction(&self) -> Option<SeenEviction<'_>> {
        let evicted =
            conditions::find(self.status(), ConditionType::Evicted).filter(|c| c.status != "True")?;
        let message = evicted.message.strip_prefix(EARLIER)?;
        let requeued = conditions::find(self.status(), ConditionType::Requeued);
        let reason = requeued.map_or("", |c| c.reason.as_str());
        // The eviction's own time is overwritten: the release is the nearest one.
        let at = requeued.map_or(evicted.last_transition_time.0, |c| c.last_transition_time.0);
        Some(SeenEviction {
            at: self.at(at),
            reason,
            preemption: (reason == PREEMPTED).then_some(""),
            preemptor: preemptor_uid(message),
        })
    }

    /// Returns why the Workload is pending, if it is: it has a queue, is active, and has no quota.
    pub(super) fn pending_reason(&self) -> Option<PendingReason> {
        let record = self.record;
        let has_quota = conditions::is_true(&record.status, ConditionType::QuotaReserved);
        if has_quota || !record.active || record.meta.is_deleting() || record.queue_name.is_none() {
            return None;
        }
        let current = conditions::reason(&record.status, ConditionType::QuotaReserved);
        let reason = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == current);
        Some(reason.unwrap_or(PendingReason::PendingEvaluation))
    }

    /// Returns since when the Workload waits: its last return to the queue, or its creation.
    pub(super) fn waiting_since(&self) -> Millis {
        let requeued = conditions::find(self.status(), ConditionType::Requeued);
        self.at(requeued.map_or(self.record.meta.created, |c| c.last_transition_time.0))
    }

    /// Returns the number of evictions that the Workload counts.
    pub(super) fn evictions(&self) -> u32 {
        let stats = self.status().scheduling_stats.as_ref();
        let counts = stats.into_iter().flat_map(|stats| &stats.evictions).map(|entry| entry.count);
        counts.fold(0, |sum: u32, count| sum.saturating_add(u32::try_from(count).unwrap_or_default()))
    }
}

/// Returns a time in milliseconds since the epoch.
pub(super) fn millis(time: Timestamp) -> Millis {
    time.as_millisecond()
}

/// Returns the UID of the preemptor in the message of a preemption, or an empty text.
fn preemptor_uid(message: &str) -> &str {
    let uid = message.split_once("(UID: ").and_then(|(_, rest)| rest.split_once([',', ')']));
    uid.map(|(uid, _)| uid).filter(|uid| !uid.eq_ignore_ascii_case("unknown")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::preemptor_uid;

    #[test]
    fn the_preemptor_is_read_from_the_message() {
        let of_kueue = "Preempted to accommodate a workload (UID: 0c51-9, JobUID: 77) due to prioritization in the ClusterQueue";
        assert_eq!(preemptor_uid(of_kueue), "0c51-9");
        for unknown in ["", "Preempted", "a (UID: UNKNOWN, JobUID: UNKNOWN)", "(UID: "] {
            assert_eq!(preemptor_uid(unknown), "", "{unknown}");
        }
    }
}
