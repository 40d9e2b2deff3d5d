//! The state of the manager, from the published state of a replica and the inspection of its core.
//!
//! Invariant: only the leader shows decisions and writes; another replica leaves them out.

use super::views::{
    DecisionView, FindingCounts, HistoryView, LeaderView, ManagerView, ViewMetadata, WatchView, WriteView,
};
use crate::metrics::recent::RecentRates;
use crate::snapshot::{Inspection, Snapshot};
use jiff::Timestamp;

/// Time without activity, in seconds, after which a watch is stale: five times the interval of its bookmarks.
const MAX_WATCH_SILENCE: i64 = 300;

/// Facts about a replica beside its published state.
#[derive(Clone, Debug, Default)]
pub struct ReplicaFacts {
    /// Name of the replica.
    pub replica: String,
    /// Version of the program.
    pub version: String,
    /// The holder of the Lease and since when it was seen; absent without an election.
    pub holder: Option<(String, Timestamp)>,
    /// Whether there is a leader election.
    pub elects: bool,
    /// Unknown names in the feature gates.
    pub unknown_gates: Vec<String>,
    /// State of the watches.
    pub watches: WatchView,
    /// Rates of decisions in the last ten minutes.
    pub rates: RecentRates,
    /// Findings of the last audit.
    pub findings: Option<FindingCounts>,
    /// Number of other replicas with a valid report to the leader.
    pub other_replicas: usize,
}

/// Returns the view of a replica. `inspection` has the writes of its core.
pub fn manager(snapshot: &Snapshot, facts: ReplicaFacts, inspection: Option<&Inspection>) -> ManagerView {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let leads = snapshot.leading;
    let conditions = conditions(snapshot, &facts);
    let leader = facts.holder.map(|(name, since)| LeaderView {
        name,
        since: Some(since),
        ready_replicas: leads.then(|| count(facts.other_replicas.saturating_add(1))),
        replicas: None,
    });
    ManagerView {
        metadata: ViewMetadata { name: facts.replica, ..ViewMetadata::default() },
        version: facts.version,
        leads,
        leader,
        decisions: leads.then(|| DecisionView {
            last: snapshot.published_at,
            admissions_per_minute: Some(facts.rates.admissions_per_minute),
            evictions_per_minute: Some(facts.rates.evictions_per_minute),
            cycle_p99_seconds: facts.rates.cycle_p99.map(|time| time.as_secs_f64()),
        }),
        writes: inspection.filter(|_| leads).map(|inspection| WriteView {
            waiting: count(inspection.write_queue.total),
            in_flight: count(inspection.in_flight_writes.total),
            failed: count(inspection.failed_writes.total),
            assumed_admissions: count(inspection.assumed_admissions),
            conflicts_per_minute: Some(facts.rates.conflicts_per_minute),
        }),
        watches: Some(facts.watches),
        ledger_drift: count(snapshot.ledger_drift),
        unknown_feature_gates: facts.unknown_gates,
        findings: facts.findings,
        history: history(snapshot),
        conditions,
    }
}

/// Returns the start and the size of this replica's history.
fn history(snapshot: &Snapshot) -> Option<HistoryView> {
    let stats = &snapshot.history;
    let bytes = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    (stats.limit_bytes > 0).then(|| HistoryView {
        since: stats.from,
        until: None,
        used_bytes: bytes(stats.bytes),
        limit_bytes: bytes(stats.limit_bytes),
        durable: false,
    })
}

/// Returns the names of the alerts in `docs/operate.md` whose conditions hold for this replica.
fn conditions(snapshot: &Snapshot, facts: &ReplicaFacts) -> Vec<String> {
    let waits = snapshot.queues.cluster_queues.values().any(|queue| queue.waiting_head.is_some());
    let all = [
        ("SluiceNoLeader", facts.elects && !snapshot.leading && facts.holder.is_none()),
        ("SluiceHeadFitsButWaits", waits),
        ("SluiceLedgerDrift", snapshot.ledger_drift > 0),
        ("SluiceHistoryDrift", snapshot.history.drift > 0),
        ("SluiceWatchStale", facts.watches.oldest_seconds.is_some_and(|seconds| seconds > MAX_WATCH_SILENCE)),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Excerpt, TimerView};
    use std::collections::BTreeMap;

    fn inspection() -> Inspection {
        let timers = TimerView {
            by_kind: BTreeMap::new(),
            next: Excerpt::of([], 0),
            alarms: BTreeMap::new(),
            reservation_expiry: None,
        };
        Inspection {
            time: Timestamp::UNIX_EPOCH,
            leading: true,
            synced: true,
            write_queue: Excerpt::of([], 0),
            in_flight_writes: Excerpt::of([], 0),
            failed_writes: Excerpt::of([], 0),
            assumed_admissions: 3,
            due_now: 0,
            timers,
        }
    }

    #[test]
    fn only_the_leader_has_writes_and_decisions() {
        let rates = RecentRates { admissions_per_minute: 12.5, ..RecentRates::default() };
        let facts =
            ReplicaFacts { replica: "m-0".to_owned(), elects: true, rates, ..ReplicaFacts::default() };
        let follower = manager(&Snapshot::default(), facts.clone(), Some(&inspection()));
        assert_eq!((follower.writes, follower.decisions), (None, None));
        assert_eq!(follower.conditions, ["SluiceNoLeader"]);
        let snapshot = Snapshot { leading: true, ledger_drift: 2, ..Snapshot::default() };
        let leader = manager(&snapshot, facts, Some(&inspection()));
        assert_eq!(leader.writes.unwrap().assumed_admissions, 3);
        assert_eq!(leader.decisions.unwrap().admissions_per_minute, Some(12.5));
        assert_eq!((leader.conditions, leader.ledger_drift), (vec!["SluiceLedgerDrift".to_owned()], 2));
    }

    #[test]
    fn a_silent_watch_is_a_condition() {
        let watches = WatchView { total: 22, current: 21, oldest_seconds: Some(301) };
        let facts = ReplicaFacts { watches, ..ReplicaFacts::default() };
        assert_eq!(manager(&Snapshot::default(), facts, None).conditions, ["SluiceWatchStale"]);
    }
}
