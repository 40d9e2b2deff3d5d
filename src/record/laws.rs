//! Laws of the record over random histories: it counts exactly the usage of the objects, hour by hour, also if processes are
//! killed between any two commits and events come late.

use super::periods::{DAY, HOUR, day_of, split};
use super::recorder::Recorder;
use super::store::Reading;
use super::store::faults;
use crate::cache::WorkloadObject;
use crate::cache::interned_templates::InternedTemplates;
use crate::cache::records::WorkloadRecord;
use crate::history::{
    Entry, HistoryView, RecordKind, Remembered, Ring, SeenWorkload, UsageGroup, UsageQuery,
};
use crate::quota::FlavorResource;
use crate::resources::Amount;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

mod bounds;
mod courses;
mod exports;
mod gaps;
mod ownership;
mod purge;

/// Start of a day.
const ORIGIN: i64 = 1_800_057_600;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(ORIGIN + seconds).unwrap()
}

fn ms(seconds: i64) -> i64 {
    time(seconds).as_millisecond()
}

/// A Workload as its object shows it, and all of its usage.
#[derive(Clone, Debug, Default)]
struct Object {
    exists: bool,
    created: u32,
    /// Amount, and second of its reservation.
    quota: Option<(i64, i64)>,
    evicted_at: Option<i64>,
    released_at: Option<i64>,
    evictions: u32,
    finished_at: Option<i64>,
    /// Whether the last version was observed.
    observed: bool,
    /// Whether observations are not committed yet.
    uncommitted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Admit(i64),
    Resize(i64),
    Evict,
    Release,
    Finish,
    Delete,
    Commit,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step, i64, bool)>> {
    let step = prop_oneof![
        3 => Just(Step::Create),
        6 => (1_i64..9).prop_map(Step::Admit),
        2 => (0_i64..9).prop_map(Step::Resize),
        3 => Just(Step::Evict),
        3 => Just(Step::Release),
        2 => Just(Step::Finish),
        1 => Just(Step::Delete),
        3 => Just(Step::Commit),
        2 => Just(Step::Kill),
    ];
    prop::collection::vec((0_usize..5, step, 1_i64..4_000, any::<bool>()), 1..80)
}

impl Object {
    fn uid(&self, number: usize) -> String {
        format!("uid-{number}-{}", self.created)
    }

    fn record(&self, number: usize) -> WorkloadRecord {
        let mut conditions: Vec<Value> = Vec::new();
        let mut add = |kind: &str, holds: bool, (reason, message): (&str, &str), at: i64| {
            conditions
                .push(json!({"type": kind, "status": if holds { "True" } else { "False" }, "reason": reason,
                "message": message, "lastTransitionTime": time(at)}));
        };
        if let Some(at) = self.evicted_at {
            let ended = self.quota.is_some_and(|(_, since)| since > at);
            let message = if ended { "Previously: Preempted" } else { "Preempted" };
            add("Evicted", !ended, ("Preempted", message), at);
            if let Some(released) = self.released_at {
                add("Requeued", true, ("Preempted", ""), released);
            }
        }
        match (self.quota, self.released_at) {
            (Some((_, since)), _) => add("QuotaReserved", true, ("QuotaReserved", ""), since),
            (None, Some(at)) => add("QuotaReserved", false, ("Pending", ""), at),
            (None, None) => {}
        }
        if let Some(at) = self.finished_at {
            add("Finished", true, ("Succeeded", ""), at);
        }
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": format!("w-{number}-{}", self.created), "namespace": "ns", "uid": self.uid(number),
                "resourceVersion": "1", "creationTimestamp": time(0)},
            "spec": {"queueName": format!("lq-{}", number % 2), "priority": 7, "podSets": []},
            "status": {"conditions": conditions, "schedulingStats": {"evictions":
                [{"reason": "Preempted", "underlyingCause": "", "count": self.evictions}]}},
        });
        let object = WorkloadObject::from_value(object).unwrap();
        WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap()
    }

    /// Applies a step. Returns whether the object changed.
    fn apply(&mut self, step: Step, now: i64) -> bool {
        let before = (self.quota, self.evicted_at, self.released_at, self.finished_at, self.exists);
        match step {
            Step::Create if !self.exists => {
                *self = Self { exists: true, created: self.created + 1, ..Self::default() };
            }
            _ if !self.exists || self.finished_at.is_some() && !matches!(step, Step::Delete) => {}
            Step::Admit(amount) if self.quota.is_none() => self.quota = Some((amount, now)),
            Step::Resize(amount) if self.is_running() => {
                self.quota = self.quota.map(|(_, since)| (amount, since));
            }
            Step::Evict if self.is_running() => {
                (self.evicted_at, self.released_at) = (Some(now), None);
                self.evictions += 1;
            }
            Step::Release if self.quota.is_some() && !self.is_running() => {
                (self.quota, self.released_at) = (None, Some(now));
            }
            Step::Finish => self.finished_at = Some(now),
            Step::Delete => self.exists = false,
            _ => {}
        }
        before != (self.quota, self.evicted_at, self.released_at, self.finished_at, self.exists)
    }

    /// Returns whether the Workload has quota and is not evicted.
    fn is_running(&self) -> bool {
        self.quota.is_some_and(|(_, since)| self.evicted_at.is_none_or(|at| at < since))
    }

    /// Shows the object to a history.
    fn show(&self, number: usize, now: i64, ring: &mut Ring) {
        let last = self.quota.filter(|_| self.finished_at.is_some()).and_then(|(amount, _)| charge(amount));
        let record = self.record(number);
        ring.set_time(time(now));
        let (cluster_queue, charge) = (Arc::from("cq"), charge(self.charge()));
        ring.observe(&SeenWorkload { record: &record, cluster_queue, charge, last_charge: last });
    }

    fn charge(&self) -> i64 {
        self.quota.filter(|_| self.exists && self.finished_at.is_none()).map_or(0, |(amount, _)| amount)
    }
}

/// A recorder, and the objects that it follows.
struct World {
    path: PathBuf,
    ring: Ring,
    /// What another process remembers, for the next start.
    remembered: Option<Remembered>,
    recorder: Option<Recorder>,
    waiting: Vec<Entry>,
    objects: Vec<Object>,
    /// Amount × milliseconds by hour.
    truth: BTreeMap<i64, i128>,
    evictions: BTreeMap<String, u32>,
    now: i64,
}

fn charge(amount: i64) -> Option<BTreeMap<FlavorResource, Amount>> {
    (amount > 0).then(|| BTreeMap::from([(FlavorResource::new("f", "gpu"), Amount::new(amount))]))
}

impl World {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sluice-record-{}-{number}.redb", std::process::id()));
        let mut world = Self {
            path,
            ring: Ring::new(1),
            remembered: None,
            recorder: None,
            waiting: Vec::new(),
            objects: vec![Object::default(); 5],
            truth: BTreeMap::new(),
            evictions: BTreeMap::new(),
            now: 0,
        };
        world.start();
        world
    }

    fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().unwrap()
    }

    /// Starts a process, after one that was killed if there was one.
    fn start(&mut self) {
        self.recorder = None;
        self.waiting.clear();
        let (recorder, left) = Recorder::open(&self.path, time(self.now)).unwrap();
        self.recorder = Some(recorder);
        self.ring = Ring::new(24 << 20);
        self.ring.record(left.runs, left.until);
        if let Some(remembered) = self.remembered.take() {
            self.ring.fill(remembered);
        }
        self.ring.set_time(time(self.now));
        self.ring.set_nominal(&Arc::from("cq"), [(FlavorResource::new("f", "gpu"), 4)]);
        for number in 0..self.objects.len() {
            if self.objects[number].exists {
                self.observe(number);
            }
        }
        self.ring.begin();
        self.commit();
    }

    fn observe(&mut self, number: usize) {
        let object = &mut self.objects[number];
        (object.observed, object.uncommitted) = (true, true);
        let object = object.clone();
        object.show(number, self.now, &mut self.ring);
    }

    fn commit(&mut self) {
        // While an event is on its way, not all changes are known.
        let known = self.objects.iter().all(|object| object.observed || !object.exists);
        let until = known.then(|| time(self.now));
        self.waiting.append(&mut self.ring.take_entries(time(self.now)));
        self.recorder().commit(&self.waiting, time(self.now), until).unwrap();
        self.waiting.clear();
        for object in &mut self.objects {
            object.uncommitted = false;
        }
    }

    /// Adds the time from one step to the next to the truth.
    fn pass(&mut self, seconds: i64) {
        let (from, to) = (ms(self.now), ms(self.now + seconds));
        let amount: i128 = self.objects.iter().map(|object| i128::from(object.charge())).sum();
        split(from, to, |hour, length| *self.truth.entry(hour).or_default() += amount * i128::from(length));
        self.now += seconds;
    }

    fn step(&mut self, (number, step, seconds, late): (usize, Step, i64, bool)) {
        self.pass(seconds);
        match step {
            Step::Commit => return self.commit(),
            Step::Kill => return self.start(),
            _ => {}
        }
        let before = self.objects[number].clone();
        let known_finished = before.finished_at.is_some() && before.exists;
        let mut after = before.clone();
        if !after.apply(step, self.now) {
            return;
        }
        // Conditions show the last transition only: a killed process loses its last second, in which nothing happens twice.
        if before.exists && !before.observed {
            self.observe(number);
        }
        if self.objects[number].uncommitted {
            self.commit();
        }
        (after.observed, after.uncommitted) = (false, false);
        self.objects[number] = after;
        if let Step::Evict = step {
            *self.evictions.entry(before.uid(number)).or_default() += 1;
        }
        match step {
            Step::Delete => {
                self.ring.set_time(time(self.now));
                self.ring.delete(&before.record(number));
                self.commit();
            }
            // No condition says when a run was resized.
            Step::Resize(_) => {
                self.observe(number);
                self.commit();
            }
            _ if late || known_finished => {}
            _ => self.observe(number),
        }
    }

    /// Observes and commits all.
    fn settle(&mut self) {
        for number in 0..self.objects.len() {
            if self.objects[number].exists && !self.objects[number].observed {
                self.observe(number);
            }
        }
        self.commit();
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        self.settle();
        let (reading, open) = self.recorder().reading().unwrap();
        let mut found = hours(&reading, false);
        let days = hours(&reading, true);
        let mut by_day: BTreeMap<i64, i128> = BTreeMap::new();
        for (hour, used) in &found {
            *by_day.entry(day_of(*hour)).or_default() += used;
        }
        prop_assert_eq!(&days, &by_day, "the days are the sums of their hours");
        let mut running = 0;
        for run in &open {
            for row in &run.amounts {
                running += i128::from(row.amount);
                split(run.counted_until, ms(self.now), |hour, length| {
                    *found.entry(hour).or_default() += i128::from(row.amount) * i128::from(length);
                });
            }
        }
        found.retain(|_, used| *used != 0);
        let mut truth = self.truth.clone();
        truth.retain(|_, used| *used != 0);
        prop_assert_eq!(&found, &truth);
        let expected: i128 = self.objects.iter().map(|object| i128::from(object.charge())).sum();
        prop_assert_eq!(running, expected, "the open runs are the usage of the ledger");
        let mut evictions: BTreeMap<String, u32> = BTreeMap::new();
        let count = |row: super::rows::RecordRow| {
            *evictions.entry(row.workload.uid.to_string()).or_default() += 1;
            true
        };
        reading.newest_records(RecordKind::Eviction, i64::MIN, count).unwrap();
        prop_assert_eq!(&evictions, &self.evictions, "each eviction is recorded once");
        drop(open);
        self.check_usage(truth.values().sum())?;
        prop_assert_eq!(self.recorder().stats().conflicts, 0);
        Ok(())
    }

    /// Usage of the whole time by any group is the truth.
    fn check_usage(&self, truth: i128) -> Result<(), TestCaseError> {
        let cohorts = BTreeMap::new();
        let view: HistoryView = self.ring.view();
        for by in UsageGroup::ALL {
            let (from, until) = (time(-1), time(self.now));
            let query = UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
            let usage = self.recorder().read_usage(&query, &view, time(self.now)).unwrap().usage;
            let (used, borrowed) = (
                usage.sums.iter().map(|row| row.used).sum(),
                usage.sums.iter().map(|row| row.borrowed).sum(),
            );
            prop_assert_eq!(truth, used, "by {}", by.as_str());
            prop_assert!((0..=truth).contains(&borrowed), "{} borrowed of {}", borrowed, truth);
            prop_assert_eq!(usage.rows.iter().map(|row| row.used).sum::<i128>(), used);
            for row in usage.rows.iter().chain(&usage.sums) {
                let by_flavor: i128 = row.flavors.iter().map(|flavor| flavor.used).sum();
                prop_assert_eq!(by_flavor, row.used, "{}", row.group);
            }
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.recorder = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

fn hours(reading: &Reading, by_day: bool) -> BTreeMap<i64, i128> {
    let mut all = BTreeMap::new();
    let (start, end) = (ms(0) - DAY, ms(0) + 1_000 * DAY);
    reading.sums(by_day, start, end, |at, _, sums| *all.entry(at).or_default() += sums.used.0).unwrap();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn counted_usage_is_the_usage_of_the_workloads(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(*step);
        }
        world.check()?;
    }
}

/// Plays steps one after the other: number of the Workload, step, seconds before it.
fn played(steps: &[(usize, Step, i64)]) -> World {
    let mut world = World::new();
    for (number, step, seconds) in steps {
        world.step((*number, *step, *seconds, false));
    }
    world
}

#[test]
fn a_run_over_a_restart_is_one_run() {
    let mut world = played(&[
        (0, Step::Create, 1),
        (0, Step::Admit(3), 10),
        (0, Step::Commit, 1),
        (0, Step::Kill, 7_000),
        (0, Step::Finish, 600),
    ]);
    world.check().unwrap();
    let mut segments = Vec::new();
    let (reading, _open) = world.recorder().reading().unwrap();
    reading
        .newest_records(RecordKind::Segment, i64::MIN, |row| {
            segments.push((row.start.unwrap(), row.time, row.result.to_string()));
            true
        })
        .unwrap();
    assert_eq!(segments, [(time(11), time(7_612), "Finished".to_owned())]);
}

#[test]
fn a_run_deleted_without_a_recorder_counts_until_the_gap_and_is_in_it() {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(2), 9), (0, Step::Commit, 100)]);
    world.pass(500);
    world.objects[0].exists = false;
    world.start();
    let (reading, open) = world.recorder().reading().unwrap();
    assert_eq!(open.len(), 0);
    let used: i128 = hours(&reading, false).values().sum();
    assert_eq!(used, 2 * 100_000, "100 s of 600 s are known");
    let gaps = reading.gaps(i64::MIN, i64::MAX).unwrap();
    assert_eq!((gaps.len(), gaps[0].start, gaps[0].end, gaps[0].unknown_ends), (1, time(110), time(610), 1));
    assert!(gaps[0].is_lossy());
}

#[test]
fn a_run_resized_without_a_recorder_counts_with_the_lesser_amount() {
    for (amount, expected) in [(1, 2 * 100 + 500), (5, 2 * 600)] {
        let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(2), 9), (0, Step::Commit, 100)]);
        world.pass(500);
        assert!(world.objects[0].apply(Step::Resize(amount), world.now));
        world.start();
        let (reading, open) = world.recorder().reading().unwrap();
        let counted: i128 = hours(&reading, false).values().sum();
        let [run] = &open.iter().collect::<Vec<_>>()[..] else { panic!("one run is open") };
        let since = i128::from(ms(world.now) - run.counted_until);
        assert_eq!(run.amounts[0].amount, amount);
        assert_eq!(counted + since * i128::from(amount), expected * 1_000, "to {amount}");
    }
}

#[test]
fn a_late_event_takes_back_counted_usage() {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(2), 9), (0, Step::Commit, 1)]);
    // It ends in the first hour, which is closed before that is observed.
    world.step((0, Step::Finish, 100, true));
    world.step((0, Step::Commit, HOUR / 1_000 * 2, false));
    world.check().unwrap();
}

#[test]
fn borrowed_hours_are_attributed_when_the_hour_is_closed() {
    // 6 of nominal 4 are used: a third is borrowed.
    let mut world = played(&[
        (0, Step::Create, 1),
        (1, Step::Create, 1),
        (0, Step::Admit(3), 1),
        (1, Step::Admit(3), 1),
        (0, Step::Commit, 3_600 * 2),
    ]);
    world.check().unwrap();
    let (reading, open) = world.recorder().reading().unwrap();
    let mut sums = (0, 0);
    reading
        .sums(false, ms(0), ms(3_600), |_, _, found| {
            sums = (sums.0 + found.used.0, sums.1 + found.borrowed.0);
        })
        .unwrap();
    let part = sums.1 * 1_000 / sums.0;
    assert!((330..=334).contains(&part), "{sums:?}");
    drop((reading, open));
    assert!(world.recorder().stats().bytes > 0);
}
