//! Since when the head of a ClusterQueue fits and is not admitted, as the core publishes it.

use crate::fixtures::leading_core;
use crate::fixtures::leading_core::{Core, reserving_workload, workload, writes};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{
    CoreSettings, Delta, Effect, SnapshotIntervals, Write, WriteOutcome, WriteResult,
};
use sluice_core::snapshot::WaitingHead;
use std::collections::VecDeque;

/// A core whose snapshots are always up to date.
fn core() -> Core {
    let snapshot = SnapshotIntervals { queues: SignedDuration::ZERO, ..SnapshotIntervals::default() };
    Core::new(CoreSettings { snapshot, ..CoreSettings::default() })
}

fn pending(name: &str) -> Value {
    let mut workload = workload(name, &[]);
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

fn waiting_head(core: &Core) -> Option<WaitingHead> {
    core.state.snapshot().queues.cluster_queues["cq"].waiting_head.clone()
}

fn head(name: &str, since: Timestamp) -> WaitingHead {
    WaitingHead { workload: ObjectKey::new("ns", &format!("w-{name}")), since }
}

fn reserves(write: &Write) -> bool {
    let conditions = write.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "QuotaReserved" && c["status"] == "True")
}

fn respond(core: &mut Core, write: &Write, outcome: WriteOutcome) -> Vec<Effect> {
    let (id, kind, key) = (write.id, write.kind, write.key.clone());
    core.feed(Delta::Written(WriteResult { id, kind, key, outcome }))
}

fn land(core: &mut Core, write: &Write) -> Vec<Effect> {
    let mut object = pending(write.key.name.trim_start_matches("w-"));
    object["status"] = write.body["status"].clone();
    let outcome = WriteOutcome::Done(core.with_server_metadata(Kind::Workload, object));
    respond(core, write, outcome)
}

/// Advances the time. Meanwhile each reservation conflicts, and pending reasons land. Returns the reports.
fn conflict_for(
    core: &mut Core,
    effects: Vec<Effect>,
    seconds: i64,
) -> (Vec<Effect>, Vec<(String, WaitingHead)>) {
    let (mut inbox, mut reports) = (VecDeque::from(effects), Vec::new());
    let end = core.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    while core.now < end {
        while let Some(effect) = inbox.pop_front() {
            if let Effect::LogWaitingHead { cluster_queue, head } = &effect {
                reports.push((cluster_queue.clone(), head.clone()));
            }
            for write in writes(&[effect], Kind::Workload) {
                let next = if reserves(&write) {
                    respond(core, &write, WriteOutcome::Conflict)
                } else {
                    land(core, &write)
                };
                inbox.extend(next);
            }
        }
        inbox.extend(core.advance_seconds(1));
    }
    (inbox.into(), reports)
}

/// All writes conflict, and each time another workload gets the quota: the queue waits since the first decision, however deep it
/// is. The first reservation that lands ends it.
#[test]
fn decisions_that_do_not_land_count_from_the_first() {
    let mut core = core();
    let began = core.now;
    let mut effects = Vec::new();
    for number in 0..30 {
        effects.extend(core.put(Kind::Workload, pending(&format!("j{number}"))));
    }
    let (effects, reports) = conflict_for(&mut core, effects, 700);
    let waiting = waiting_head(&core).expect("it waits");
    assert_eq!(waiting.since, began);
    assert!(reports.len() >= 5 && reports.len() <= 8, "once a minute from the fifth on: {reports:?}");
    assert!(reports.iter().all(|(queue, head)| queue == "cq" && head.since == began), "{reports:?}");

    let mut written: VecDeque<Write> = writes(&effects, Kind::Workload).into();
    let landed = loop {
        while let Some(write) = written.pop_front() {
            if reserves(&write) {
                written.extend(writes(&land(&mut core, &write), Kind::Workload));
            }
        }
        if waiting_head(&core).is_none_or(|head| head.since > began) {
            break core.now;
        }
        written.extend(writes(&core.advance_seconds(1), Kind::Workload));
    };
    for _ in 0..10 {
        let written = writes(&core.advance_seconds(1), Kind::Workload);
        for write in written.iter().filter(|write| reserves(write)) {
            land(&mut core, write);
        }
    }
    core.advance_seconds(61);
    assert_eq!(waiting_head(&core), None, "after a reservation at {landed}, the quota is used up");
}

/// A decision ends when its Workload is deleted, and when the quota is gone.
#[test]
fn decision_ends_without_write() {
    for deleted in [true, false] {
        let mut core = core();
        let written = writes(&core.put(Kind::Workload, pending("j")), Kind::Workload);
        let decided = core.now;
        core.advance_seconds(1);
        assert_eq!(waiting_head(&core), Some(head("j", decided)));
        respond(&mut core, &written[0], WriteOutcome::Rejected { code: 422, message: String::new() });
        assert_eq!(waiting_head(&core), Some(head("j", decided)), "in backoff");
        if deleted {
            let key = written[0].key.clone();
            core.feed(Delta::Deleted { kind: Kind::Workload, key, uid: "workloads-w-j".into() });
        } else {
            for other in ["a", "b"] {
                let conditions = [leading_core::condition("QuotaReserved", "True", "QuotaReserved")];
                core.put(Kind::Workload, reserving_workload(other, &conditions));
            }
        }
        core.advance_seconds(2);
        assert_eq!(waiting_head(&core), None, "deleted: {deleted}");
    }
}

/// Leadership ends all decisions.
#[test]
fn new_leader_starts_without_waiting_heads() {
    let mut core = core();
    core.put(Kind::Workload, pending("j"));
    core.advance_seconds(1);
    assert!(waiting_head(&core).is_some());
    core.feed(Delta::Leading(false));
    core.advance_seconds(1);
    assert_eq!(waiting_head(&core), None);
}

/// Without workloads that wait there is no check and no timer; with them a timer once a minute.
#[test]
fn check_needs_a_timer_only_while_workloads_wait() {
    let mut core = core();
    core.advance_seconds(120);
    assert_eq!(core.state.next_due(), None);
    for name in ["a", "b", "c"] {
        for write in writes(&core.put(Kind::Workload, pending(name)), Kind::Workload) {
            land(&mut core, &write);
        }
    }
    let due = core.state.next_due().expect("c waits");
    assert!(due > core.now && due.duration_since(core.now) <= SignedDuration::from_secs(60), "{due}");
    core.now = due;
    core.feed(Delta::Tick);
    assert_eq!(waiting_head(&core), None, "c does not fit");
}
