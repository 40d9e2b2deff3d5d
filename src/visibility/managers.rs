//! The state of the manager, from what a replica publishes and what its core says when it is asked.
//!
//! Invariant: decisions and writes are those of the leader; another replica leaves them out.

use super::views::{
    DecisionView, FindingCounts, LeaderView, ManagerView, ViewMetadata, WatchView, WriteView,
};
use crate::snapshot::{Inspection, Snapshot};
use jiff::Timestamp;

/// Seconds without activity after which a watch is stale: five times the interval of its bookmarks.
const MAX_WATCH_SILENCE: i64 = 300;

/// What a replica knows beside its published state.
#[derive(Clone, Debug, Default)]
pub struct ReplicaFacts {
    /// Its name.
    pub replica: String,
    /// The program's version.
    pub version: String,
    /// The holder of the Lease and since when it was seen; absent without an election.
    pub holder: Option<(String, Timestamp)>,
    /// Whether there is an election.
    pub elects: bool,
    /// Its watches.
    pub watches: WatchView,
    /// Findings of the last audit.
    pub findings: Option<FindingCounts>,
}

/// Returns the view of a replica. `inspection` is what its core says of its writes.
pub fn manager(snapshot: &Snapshot, facts: ReplicaFacts, inspection: Option<&Inspection>) -> ManagerView {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let leads = snapshot.leading;
    let conditions = conditions(snapshot, &facts);
    let leader = facts.holder.map(|(name, since)| LeaderView {
        name,
        since: Some(since),
        ready_replicas: None,
        replicas: None,
    });
    ManagerView {
        metadata: ViewMetadata { name: facts.replica, ..ViewMetadata::default() },
        version: facts.version,
        leads,
        leader,
        decisions: leads.then(|| DecisionView { last: snapshot.published_at, ..DecisionView::default() }),
        writes: inspection.filter(|_| leads).map(|inspection| WriteView {
            waiting: count(inspection.write_queue.total),
            in_flight: count(inspection.in_flight_writes.total),
            failed: count(inspection.failed_writes.total),
            assumed_admissions: count(inspection.assumed_admissions),
        }),
        watches: Some(facts.watches),
        ledger_drift: count(snapshot.ledger_drift),
        findings: facts.findings,
        history: None,
        conditions,
    }
}

/// Returns the names of the alerts of `docs/operate.md` whose conditions this replica sees.
fn conditions(snapshot: &Snapshot, facts: &ReplicaFacts) -> Vec<String> {
    let waits = snapshot.queues.cluster_queues.values().any(|queue| queue.waiting_head.is_some());
    let all = [
        ("SluiceNoLeader", facts.elects && !snapshot.leading && facts.holder.is_none()),
        ("SluiceHeadFitsButWaits", waits),
        ("SluiceLedgerDrift", snapshot.ledger_drift > 0),
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
        let facts = ReplicaFacts { replica: "m-0".to_owned(), elects: true, ..ReplicaFacts::default() };
        let follower = manager(&Snapshot::default(), facts.clone(), Some(&inspection()));
        assert_eq!((follower.writes, follower.decisions), (None, None));
        assert_eq!(follower.conditions, ["SluiceNoLeader"]);
        let snapshot = Snapshot { leading: true, ledger_drift: 2, ..Snapshot::default() };
        let leader = manager(&snapshot, facts, Some(&inspection()));
        assert_eq!(leader.writes.unwrap().assumed_admissions, 3);
        assert_eq!((leader.conditions, leader.ledger_drift), (vec!["SluiceLedgerDrift".to_owned()], 2));
    }

    #[test]
    fn a_silent_watch_is_a_condition() {
        let watches = WatchView { total: 22, current: 21, oldest_seconds: Some(301) };
        let facts = ReplicaFacts { watches, ..ReplicaFacts::default() };
        assert_eq!(manager(&Snapshot::default(), facts, None).conditions, ["SluiceWatchStale"]);
    }
}
