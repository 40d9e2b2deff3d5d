//! Which replica's history began first: the leader is told by each replica, and asks that one.
//!
//! Invariants: a replica that has not told for three intervals is forgotten; a leader that is new does not know yet what it does not
//! know.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval at which each replica tells the leader.
pub const TELL_INTERVAL: Duration = Duration::from_secs(30);
/// How long a report counts.
const REPORT_TTL: Duration = Duration::from_secs(90);
/// Most replicas that are known; the number of a Deployment's replicas is far below.
const MAX_REPLICAS: usize = 64;

/// What a replica tells the leader of its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RingReport {
    /// Name of the replica.
    pub replica: String,
    /// Where it answers, as `HOST:PORT`.
    pub address: String,
    /// Since when it records.
    pub from: Timestamp,
}

/// What the replicas told. Times are those of a clock that does not step, since any start.
#[derive(Clone, Debug, Default)]
pub struct RingStarts {
    known: BTreeMap<String, (RingReport, Duration)>,
}

impl RingStarts {
    /// Keeps what a replica told at `now`.
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

    /// Returns the number of replicas that told lately.
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
    fn the_first_one_is_asked_as_long_as_it_tells() {
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
