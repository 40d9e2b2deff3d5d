//! Lives of Workloads as their objects show them, and the records that the history makes of them.

use super::*;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason::{self, PendingEvaluation, WaitingForQuota};
use crate::cache::WorkloadObject;
use crate::cache::interned_templates::InternedTemplates;
use crate::cache::records::WorkloadRecord;
use crate::quota::FlavorResource;
use crate::resources::{Amount, to_f64};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds after the start, as a time.
pub(super) fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn ms(seconds: i64) -> i64 {
    time(seconds).as_millisecond()
}

/// A condition: type, status, reason, message, seconds of its transition.
fn condition(kind: &str, holds: bool, reason: &str, message: &str, at: i64) -> Value {
    json!({"type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": time(at)})
}

pub(super) fn record(name: &str, evictions: u32, conditions: &[Value]) -> WorkloadRecord {
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": time(0), "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job",
            "name": format!("job-{name}"), "uid": format!("job-{name}"), "controller": true}]},
        "spec": {"queueName": "lq", "priority": 7, "podSets": []},
        "status": {"conditions": conditions,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": evictions}]}},
    });
    let object = WorkloadObject::from_value(object).unwrap();
    WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap()
}

pub(super) fn fr(resource: &str) -> FlavorResource {
    FlavorResource::new("f", resource)
}

pub(super) struct Life {
    pub(super) ring: Ring,
}

impl Life {
    pub(super) fn started() -> Self {
        let mut ring = Ring::new(24 << 20);
        ring.set_time(time(-60));
        ring.begin();
        ring.set_nominal(&Arc::from("cq"), [(fr("gpu"), 4)]);
        Self { ring }
    }

    pub(super) fn see(&mut self, now: i64, record: &WorkloadRecord, gpus: Option<i64>) {
        self.ring.set_time(time(now));
        let charge = gpus.map(|gpus| BTreeMap::from([(fr("gpu"), Amount::new(gpus))]));
        let cluster_queue = Arc::from("cq");
        self.ring.observe(&SeenWorkload { record, cluster_queue, charge, last_charge: None });
    }

    fn records(&self) -> Vec<Arc<Record>> {
        self.ring.view().records
    }

    pub(super) fn used(&self) -> i128 {
        let all = self.ring.open_usage();
        all.get("cq").and_then(|sums| sums.get(&fr("gpu"))).copied().unwrap_or_default()
    }

    fn total(&self, measure: impl Fn(u32) -> Measure, now: i64) -> i128 {
        let view = self.ring.view();
        let queue = view.queue("cq").unwrap();
        view.buckets(queue, measure(0), time(now)).iter().map(|bucket| bucket.value).sum()
    }
}

fn pending(reason: &str, at: i64) -> Value {
    condition("QuotaReserved", false, reason, "m", at)
}

pub(super) fn reserved(at: i64) -> Value {
    condition("QuotaReserved", true, "QuotaReserved", "m", at)
}

const PREEMPTED: &str = "Preempted to accommodate a workload (UID: uid-big, JobUID: j) due to reclamation";

#[test]
fn an_open_wait_has_its_earlier_reasons() {
    let mut life = Life::started();
    life.see(0, &record("a", 0, &[]), None);
    life.see(2, &record("a", 0, &[pending("WaitingForQuota", 1)]), None);
    let open = OpenWait {
        since: ms(0),
        reason: WaitingForQuota,
        reason_since: ms(2),
        earlier: [(PendingEvaluation, 2_000)].into(),
    };
    assert_eq!(life.ring.open_wait("uid-a"), Some(open));
    life.see(10, &record("a", 0, &[reserved(9)]), Some(6));
    assert_eq!((life.ring.open_wait("uid-a"), life.ring.open_wait("none")), (None, None));
}

#[test]
fn a_life_with_a_preemption_is_in_its_records() {
    let mut life = Life::started();
    life.see(0, &record("a", 0, &[]), None);
    life.see(2, &record("a", 0, &[pending("WaitingForQuota", 1)]), None);
    life.see(10, &record("a", 0, &[reserved(9)]), Some(6));
    assert_eq!(life.used(), 6);
    life.see(20, &record("big", 0, &[pending("WaitingForPreemptedWorkloads", 20)]), None);
    let evicted = [
        reserved(9),
        condition("Evicted", true, "Preempted", PREEMPTED, 109),
        condition("Preempted", true, "InCohortReclamation", PREEMPTED, 109),
    ];
    life.see(110, &record("a", 1, &evicted), Some(6));
    assert_eq!(life.used(), 6, "quota is held until the pods have stopped");
    let requeued = [
        pending("PendingEvaluation", 139),
        evicted[1].clone(),
        evicted[2].clone(),
        condition("Requeued", true, "Preempted", PREEMPTED, 139),
    ];
    life.see(140, &record("a", 1, &requeued), None);
    assert_eq!(life.used(), 0);
    let again = [
        reserved(150),
        condition("Evicted", false, "QuotaReserved", "Previously: m", 150),
        requeued[3].clone(),
    ];
    life.see(151, &record("a", 1, &again), Some(2));
    life.see(153, &record("a", 1, &again), Some(1));
    let mut finished = again.to_vec();
    finished.push(condition("Finished", true, "Succeeded", "m", 200));
    life.see(201, &record("a", 1, &finished), None);
    assert_eq!(life.used(), 0);

    let records = life.records();
    let of_kind = |kind| records.iter().filter(|record| record.key.kind == kind).collect::<Vec<_>>();
    assert!(records.iter().all(|record| !record.seeded && record.workload.key == ObjectKey::new("ns", "a")));
    let waits: Vec<_> =
        of_kind(RecordKind::Wait).iter().map(|record| (record.key.attempt, &record.event)).collect();
    let wait = |start, end, reasons: &[(PendingReason, i64)]| {
        let (by_reason, result) = (reasons.into(), WaitResult::Reserved);
        RecordEvent::Wait(WaitEvent { start: ms(start), end: ms(end), result, by_reason })
    };
    let first = wait(0, 9, &[(PendingEvaluation, 2_000), (WaitingForQuota, 7_000)]);
    assert_eq!(waits, [(0, &first), (1, &wait(139, 150, &[(PendingEvaluation, 11_000)]))]);

    let evictions = of_kind(RecordKind::Eviction);
    let [eviction] = evictions[..] else { panic!("{evictions:?}") };
    let RecordEvent::Eviction(event) = &eviction.event else { panic!() };
    assert_eq!((event.at, event.released, &*event.reason), (ms(109), Some(ms(139)), "Preempted"));
    assert!(event.borrowed, "6 are used of 4");
    let run = event.run.as_ref().unwrap();
    assert_eq!((run.start, &*run.amounts), (ms(9), &[(0, 6)][..]));
    let preemption = event.preemption.as_ref().unwrap();
    assert_eq!((&*preemption.reason, &*preemption.preemptor_uid), ("InCohortReclamation", "uid-big"));
    let preemptor = preemption.preemptor.as_ref().unwrap();
    assert_eq!((&*preemptor.key.name, &*preemptor.cluster_queue, preemptor.priority), ("big", "cq", Some(7)));

    let RecordEvent::Finish(finish) = &of_kind(RecordKind::Finish)[0].event else { panic!() };
    assert_eq!((finish.at, &*finish.result, finish.attempts), (ms(200), "Succeeded", 2));
    assert_eq!((finish.waited, finish.ran, finish.lost), (20_000, 180_000, 100_000));
    assert_eq!(finish.run, Some(Run { start: ms(150), amounts: Arc::from([(0, 1)]) }), "as they were last");

    assert_eq!(life.total(Measure::Usage, 300), 6 * 130_000 + 2 * 2_000 + 48_000);
    assert_eq!(life.total(Measure::Borrowed, 300), 2 * 130_000);
    assert_eq!(life.total(|_| Measure::Admissions, 300), 2);
    assert_eq!(life.total(|_| Measure::Evictions, 300), 1);
    assert_eq!(life.total(|_| Measure::Pending(WaitingForQuota), 300), 8_000);
    let stats = life.ring.stats();
    assert_eq!((stats.conflicts, stats.cut, stats.records["eviction"]), (0, 0, 1));
}

#[test]
fn the_first_lists_give_the_last_eviction_of_each_workload() {
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(500));
    let evicted = [
        pending("WaitingForQuota", 139),
        condition("Evicted", true, "Preempted", PREEMPTED, 109),
        condition("Preempted", true, "InClusterQueue", PREEMPTED, 109),
        condition("Requeued", true, "Preempted", PREEMPTED, 139),
    ];
    let running = [
        reserved(150),
        condition("Evicted", false, "QuotaReserved", &format!("Previously: {PREEMPTED}"), 150),
        condition("Requeued", true, "Preempted", PREEMPTED, 90),
    ];
    let mut life = Life { ring };
    life.see(500, &record("running", 3, &running), Some(2));
    life.see(500, &record("evicted", 2, &evicted), None);
    life.see(500, &record("big", 0, &[]), None);
    life.see(500, &record("new", 0, &[reserved(100)]), Some(1));
    assert!(life.records().is_empty());
    life.ring.begin();
    let seen: Vec<(String, i64, u32, bool, bool)> = life
        .records()
        .iter()
        .map(|record| {
            let RecordEvent::Eviction(event) = &record.event else { panic!("{record:?}") };
            let preemptor = event.preemption.as_ref().and_then(|preemption| preemption.preemptor.as_ref());
            assert!(
                preemptor.is_none_or(|known| known.priority.is_none()),
                "it may have changed: {preemptor:?}"
            );
            let named = preemptor.is_some();
            (record.workload.key.name.to_string(), event.at, record.key.attempt, record.seeded, named)
        })
        .collect();
    let expected =
        [("running".to_owned(), ms(90), 2, true, true), ("evicted".to_owned(), ms(109), 1, true, true)];
    assert_eq!(seen, expected);
    assert_eq!(life.used(), 3);
    assert_eq!(life.total(|_| Measure::Evictions, 600), 0, "they were before the start");
    // The end of a run that began before counts from its start.
    let finished = [reserved(100), condition("Finished", true, "Succeeded", "m", 600)];
    life.see(601, &record("new", 0, &finished), None);
    let last = life.records().pop().unwrap();
    let RecordEvent::Finish(finish) = &last.event else { panic!("{last:?}") };
    assert_eq!((finish.ran, finish.waited), (500_000, 0));
}

#[test]
fn an_eviction_whose_versions_were_not_delivered_is_recorded() {
    let mut life = Life::started();
    life.see(10, &record("a", 0, &[reserved(9)]), Some(1));
    let again = [
        reserved(80),
        condition("Evicted", false, "QuotaReserved", &format!("Previously: {PREEMPTED}"), 80),
        condition("Requeued", true, "Preempted", PREEMPTED, 60),
    ];
    life.see(90, &record("a", 1, &again), Some(1));
    let kinds: Vec<RecordKind> = life.records().iter().map(|record| record.key.kind).collect();
    assert_eq!(kinds, [RecordKind::Wait, RecordKind::Eviction, RecordKind::Wait]);
    let RecordEvent::Eviction(event) = &life.records()[1].event else { panic!() };
    assert_eq!((event.at, event.released, life.used()), (ms(60), Some(ms(60)), 1));
}

#[test]
fn a_clock_that_steps_back_gives_no_negative_time() {
    let mut life = Life::started();
    let requeued = condition("Requeued", true, "R", "m", 20);
    life.see(21, &record("a", 0, &[requeued.clone(), pending("WaitingForQuota", 20)]), None);
    life.see(22, &record("a", 0, &[requeued, reserved(10)]), Some(1));
    let finished = [reserved(10), condition("Finished", true, "Succeeded", "m", 5)];
    life.see(23, &record("a", 0, &finished), None);
    let RecordEvent::Finish(finish) = &life.records()[1].event else { panic!() };
    assert_eq!((finish.waited, finish.ran, life.ring.stats().cut), (0, 0, 2));
}

#[test]
fn a_deleted_workload_ends() {
    let mut life = Life::started();
    let running = record("a", 0, &[reserved(5)]);
    life.see(5, &running, Some(3));
    life.see(5, &record("b", 0, &[]), None);
    life.ring.set_time(time(65));
    life.ring.delete(&running);
    life.ring.delete(&record("b", 0, &[]));
    life.ring.delete(&record("b", 0, &[]));
    let ends: Vec<_> = life
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            RecordEvent::Finish(finish) => Some((finish.result.to_string(), finish.ran, finish.waited)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [("Deleted".to_owned(), 60_000, 5_000), ("Deleted".to_owned(), 0, 65_000)]);
    assert_eq!(life.used(), 0);
}

#[test]
fn a_slice_that_is_charged_to_another_one_gets_a_record_of_its_run() {
    let mut life = Life::started();
    let slice = record("a", 0, &[reserved(5)]);
    life.see(5, &slice, Some(3));
    life.see(45, &slice, None);
    let last = life.records().pop().unwrap();
    assert_eq!(
        last.event,
        RecordEvent::Segment { run: Run { start: ms(5), amounts: Arc::from([(0, 3)]) }, end: ms(45) }
    );
    // Charged again: no admission, no wait.
    life.see(50, &slice, Some(3));
    assert_eq!((life.used(), life.total(|_| Measure::Admissions, 60)), (3, 1));
}

#[test]
fn hours_by_queue_are_whole_when_the_history_begins_within_a_bucket() {
    // 50 seconds after a full minute.
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(50));
    ring.begin();
    let mut life = Life { ring };
    life.see(51, &record("a", 0, &[reserved(51)]), Some(3));
    life.see(57, &record("a", 0, &[reserved(51), condition("Finished", true, "Succeeded", "m", 57)]), None);
    let view = life.ring.view();
    for by in [UsageGroup::Queue, UsageGroup::Namespace] {
        let cohorts = BTreeMap::new();
        let query = UsageQuery {
            by,
            from: time(-90_000),
            until: time(90),
            resource: None,
            namespace: None,
            cohorts: &cohorts,
        };
        assert_eq!(view.usage(&query).sums[0].used, 3 * 6_000, "{by:?}");
    }
}

#[test]
fn nothing_is_recorded_without_memory() {
    let mut ring = Ring::new(0);
    ring.set_time(time(0));
    ring.begin();
    let mut life = Life { ring };
    life.see(5, &record("a", 0, &[reserved(5)]), Some(3));
    assert_eq!((life.used(), life.records().len(), life.ring.stats().from), (0, 0, None));
}

/// A day with an admission and a preemption of each Workload.
fn day(queues: usize, workloads: usize, limit: usize) -> Ring {
    let mut ring = Ring::new(limit);
    ring.set_time(time(0));
    ring.begin();
    let mut step = |second: usize, queue: &str, record: &WorkloadRecord, gpus: Option<i64>| {
        ring.set_time(time(i64::try_from(second).unwrap()));
        let charge = gpus.map(|gpus| BTreeMap::from([(fr("gpu"), Amount::new(gpus))]));
        let cluster_queue = Arc::from(queue);
        ring.observe(&SeenWorkload { record, cluster_queue, charge, last_charge: None });
        ring.sweep();
    };
    let mut ends: BTreeMap<usize, usize> = BTreeMap::new();
    for index in 0..workloads {
        let second = index * 86_400 / workloads;
        let (name, queue) =
            (format!("workload-with-a-long-name-{index}"), format!("queue-{}", index % queues));
        let at = i64::try_from(second).unwrap();
        step(second, &queue, &record(&name, 0, &[]), None);
        step(second + 1, &queue, &record(&name, 0, &[reserved(at + 1)]), Some(8));
        ends.insert(second + 1 + 600 * (1 + index % 7), index);
        let due = ends.range(..second).map(|(end, index)| (*end, *index)).collect::<Vec<_>>();
        for (end, index) in due {
            ends.remove(&end);
            let (name, queue) =
                (format!("workload-with-a-long-name-{index}"), format!("queue-{}", index % queues));
            let at = i64::try_from(end).unwrap();
            let finished = [reserved(at - 600), condition("Finished", true, "Succeeded", "m", at)];
            step(second + 1, &queue, &record(&name, 0, &finished), None);
        }
    }
    ring
}

fn mib(ring: &Ring) -> f64 {
    to_f64(i128::try_from(ring.stats().bytes).unwrap()) / f64::from(1 << 20)
}

#[test]
fn thirty_queues_and_5000_records_take_less_than_4_mib() {
    let ring = day(30, 2_700, 24 << 20);
    let records: u64 = ring.stats().records.values().sum();
    let mib = mib(&ring);
    println!("{records} records and a day of 30 queues take {mib:.2} MiB");
    assert!(records >= 5_000, "{records} records");
    assert!(mib < 4.0, "{mib:.2} MiB");
}

#[test]
fn memory_stays_below_the_limit_and_the_oldest_records_go_first() {
    let limit = 2 << 20;
    let ring = day(30, 2_700, limit);
    assert!(ring.stats().bytes <= limit, "{}", ring.stats().bytes);
    let view = ring.view();
    assert!(view.dropped && view.records.len() > 500, "{}", view.records.len());
    assert!(view.records_from() > view.from);
    let last = view.records.last().unwrap().at();
    assert!(last > ms(86_000), "the newest are kept");
}

#[test]
fn workloads_that_wait_in_a_thousand_queues_stay_below_24_mib() {
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(0));
    ring.begin();
    let queues: Vec<Arc<str>> = (0..1_000).map(|queue| Arc::from(format!("queue-{queue}"))).collect();
    let (waits, runs) = (record("w", 0, &[]), record("w", 0, &[reserved(1)]));
    for index in 0..100_000_usize {
        let running = index % 10 == 0;
        let mut record = if running { runs.clone() } else { waits.clone() };
        let name = format!("workload-{index}");
        record.meta.key = ObjectKey::new("ns", &name);
        record.meta.uid = Arc::from(format!("0c51f7a2-9d33-4b1d-90fa-{index:012}"));
        let charge = running.then(|| BTreeMap::from([(fr("gpu"), Amount::new(8))]));
        ring.set_time(time(i64::try_from(index / 10).unwrap()));
        let cluster_queue = Arc::clone(&queues[index % 1_000]);
        ring.observe(&SeenWorkload { record: &record, cluster_queue, charge, last_charge: None });
    }
    ring.set_time(time(20_000));
    ring.sweep();
    let (mib, records) = (mib(&ring), ring.view().records.len());
    println!("100,000 Workloads in 1,000 queues take {mib:.2} MiB with {records} records");
    assert!(mib < 24.0 && records > 5_000, "{mib:.2} MiB, {records} records");
}

fn nominal(life: &mut Life, quotas: &[i128]) {
    life.ring.set_nominal(&Arc::from("cq"), quotas.iter().map(|quota| (fr("gpu"), *quota)));
}

fn borrowed(life: &Life) -> i128 {
    life.ring.open_borrowed().get("cq").and_then(|sums| sums.get(&fr("gpu"))).copied().unwrap_or_default()
}

#[test]
fn a_quota_of_zero_is_known_and_a_deleted_one_is_not() {
    let mut life = Life::started();
    nominal(&mut life, &[0]);
    for (n, name) in (0..).zip(["a", "b"]) {
        life.see(n * 10, &record(name, 0, &[reserved(n * 10)]), Some(3));
        assert_eq!(borrowed(&life), 3, "{name}: all of it, also after the queue was empty");
        life.see(
            n * 10 + 5,
            &record(name, 0, &[reserved(n * 10), condition("Finished", true, "R", "m", n * 10 + 5)]),
            None,
        );
        assert_eq!(borrowed(&life), 0);
    }
    life.see(30, &record("c", 0, &[reserved(30)]), Some(3));
    for (quotas, expected) in
        [(&[1_i128][..], 2), (&[][..], 0), (&[0][..], 3), (&[4][..], 0), (&[][..], 0), (&[2][..], 1)]
    {
        nominal(&mut life, quotas);
        assert_eq!(borrowed(&life), expected, "{quotas:?}");
    }
    nominal(&mut life, &[]);
    let preempted = condition("Evicted", true, "Preempted", PREEMPTED, 40);
    life.see(40, &record("c", 1, &[reserved(30), preempted.clone()]), Some(3));
    nominal(&mut life, &[0]);
    life.see(41, &record("d", 0, &[reserved(41)]), Some(3));
    life.see(42, &record("d", 1, &[reserved(41), preempted]), Some(3));
    let flags: Vec<(String, bool)> = life
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            RecordEvent::Eviction(eviction) => {
                Some((record.workload.key.name.to_string(), eviction.borrowed))
            }
            _ => None,
        })
        .collect();
    assert_eq!(flags, [("c".to_owned(), false), ("d".to_owned(), true)]);
}

#[test]
fn no_time_is_before_the_creation_or_after_its_observation() {
    for (at, start) in [(-70_000_000_000, 0), (-5, 0), (7, 7), (9_000_000_000, 10)] {
        let mut life = Life::started();
        life.see(10, &record("a", 0, &[reserved(at)]), Some(3));
        let runs = life.ring.view().runs;
        assert_eq!(runs[0].start, ms(start), "reserved at {at}");
        life.see(20, &record("a", 0, &[reserved(at)]), Some(3));
        assert_eq!(life.ring.view().runs[0].start, ms(start), "it is the same run");
    }
}
