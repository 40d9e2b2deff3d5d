//! Starts of the histories of all replicas: each replica reports its start to the leader, and the leader asks the replica that
//! began first.
//!
//! Invariants: a replica without a report for three intervals is forgotten; a new leader starts without reports.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval at which each replica reports to the leader.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(30);
/// Validity of a report: three intervals.
const REPORT_TTL: Duration = Duration::from_secs(90);
/// Maximum number of known replicas, far above the replicas of a Deployment.
const MAX_REPLICAS: usize = 64;

/// Report of a replica about its history, sent to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingReport {
    /// Name of the replica.
    pub replica: String,
    /// Address at which the replica answers, as `HOST:PORT`.
    pub address: String,
    /// Start of its recording.
    pub from: Timestamp,
}

/// The last report of each replica. Times are durations on a clock that does not step, from an arbitrary start.
#[derive(Clone, Debug, Default)]
pub struct RingStarts {
    known: BTreeMap<String, (RingReport, Duration)>,
}

impl RingStarts {
    /// Stores a report that was received at `now`.
    pub fn hear(&mut self, report: RingReport, now: Duration) {
        self.forget(now);
        if self.known.len() < MAX_REPLICAS || self.known.contains_key(&report.replica) {
            self.known.insert(report.replica.clone(), (report, now));
        }
    }

    /// Returns the replica that began first, if that was before `own`, the start of the history of the leader.
    pub fn earlier_than(&mut self, own: Option<Timestamp>, now: Duration) -> Option<RingReport> {
        self.forget(now);
        let first = self.known.values().map(|(report, _)| report);
        let first = first.min_by(|a, b| (a.from, &a.replica).cmp(&(b.from, &b.replica)))?;
        own.is_none_or(|own| first.from < own).then(|| first.clone())
    }

    /// Returns the number of replicas with a valid report.
    pub fn count(&mut self, now: Duration) -> usize {
        self.forget(now);
        self.known.len()
    }

    fn forget(&mut self, now: Duration) {
        self.known.retain(|_, (_, heard)| now.saturating_sub(*heard) < REPORT_TTL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(replica: &str, from: i64) -> RingReport {
        RingReport {
            replica: replica.to_owned(),
            address: format!("{replica}:8082"),
            from: Timestamp::from_second(from).unwrap(),
        }
    }

    fn first(starts: &mut RingStarts, own: i64, now: u64) -> Option<String> {
        let own = Some(Timestamp::from_second(own).unwrap());
        starts.earlier_than(own, Duration::from_secs(now)).map(|report| report.replica)
    }

    #[test]
    fn the_replica_that_began_first_is_asked_while_its_report_is_valid() {
        let mut starts = RingStarts::default();
        let at = Duration::from_secs;
        assert_eq!(first(&mut starts, 100, 0), None);
        starts.hear(report("a", 50), at(0));
        starts.hear(report("b", 60), at(10));
        assert_eq!(first(&mut starts, 100, 10).as_deref(), Some("a"));
        assert_eq!(first(&mut starts, 50, 10), None, "the leader's own is as early");
        assert_eq!(first(&mut starts, 100, 89).as_deref(), Some("a"));
        assert_eq!(first(&mut starts, 100, 90).as_deref(), Some("b"), "the first one is gone");
        // A replica that restarted has another start.
        starts.hear(report("b", 95), at(91));
        assert_eq!(first(&mut starts, 100, 91).as_deref(), Some("b"));
        assert_eq!(first(&mut starts, 90, 91), None);
        assert_eq!(
            starts.earlier_than(None, at(91)).unwrap().replica,
            "b",
            "a leader without a history asks"
        );
        for number in 0..200 {
            starts.hear(report(&format!("r{number}"), 10), at(92));
        }
        assert!(starts.known.len() <= MAX_REPLICAS);
    }
}
