//! The time without a recorder: what a manager remembers of it is in the record afterwards, once, and without that the record has no
//! more than the truth.

use super::*;
use crate::history::{FilledPart, Gap};
use crate::record::rows::RecordRow;

/// A recorder beside a manager that observes all, from a time on.
struct Beside {
    world: World,
    manager: Ring,
}

impl Beside {
    fn new() -> Self {
        let world = World::new();
        let mut beside = Self { manager: Ring::new(24 << 20), world };
        beside.restart_manager();
        beside
    }

    fn restart_manager(&mut self) {
        self.manager = Ring::new(24 << 20);
        self.manager.set_time(time(self.world.now));
        for (number, object) in self.world.objects.iter().enumerate().filter(|(_, object)| object.exists) {
            object.show(number, self.world.now, &mut self.manager);
        }
        self.manager.begin();
    }

    /// Plays a step, with the recorder or without it. No record has the amounts between two changes, so nothing is resized without it.
    fn step(&mut self, (number, step, seconds): (usize, Step, i64), records: bool) {
        let step = match step {
            Step::Kill | Step::Resize(_) if !records => Step::Commit,
            step => step,
        };
        let before = self.world.objects[number].clone();
        if records {
            self.world.step((number, step, seconds, false));
        } else {
            self.world.pass(seconds);
            if self.world.objects[number].apply(step, self.world.now)
                && let Step::Evict = step
            {
                *self.world.evictions.entry(before.uid(number)).or_default() += 1;
            }
        }
        let (after, now) = (&self.world.objects[number], self.world.now);
        self.manager.set_time(time(now));
        if before.exists && !after.exists {
            self.manager.delete(&before.record(number));
        } else if after.exists && !(before.exists && before.finished_at.is_some()) {
            after.show(number, now, &mut self.manager);
        }
    }

    /// Starts the recorder again, with what the manager remembers or without it.
    fn start(&mut self, remembers: bool) {
        if remembers {
            let (view, until) = (self.manager.view(), time(self.world.now));
            let (records, more) = view.records_since(time(-1), None, usize::MAX);
            assert!(!more);
            let (from, flavor_resources) = (view.from.unwrap(), view.flavor_resources);
            self.world.remembered = Some(Remembered { from, until, flavor_resources, records });
        }
        self.world.start();
    }

    /// Plays a history of which the recorder misses the middle.
    fn played(steps: &[Vec<(usize, Step, i64)>; 3], remembers: bool) -> World {
        let mut beside = Self::new();
        for (part, steps) in steps.iter().enumerate() {
            for step in steps {
                beside.step(*step, part != 1);
            }
            if part == 1 {
                beside.start(remembers);
            }
        }
        beside.world
    }
}

impl World {
    /// Amount × milliseconds by hour, in the file and of what runs until now.
    fn counted(&mut self) -> BTreeMap<i64, i128> {
        self.settle();
        let (reading, open) = self.recorder().reading().unwrap();
        let mut found = hours(&reading, false);
        for run in &open {
            for row in &run.amounts {
                split(run.counted_until, ms(self.now), |hour, length| {
                    *found.entry(hour).or_default() += i128::from(row.amount) * i128::from(length);
                });
            }
        }
        found
    }

    fn gaps(&self) -> Vec<Gap> {
        self.recorder().reading().unwrap().0.gaps(i64::MIN, i64::MAX).unwrap()
    }
}

fn parts() -> impl Strategy<Value = [Vec<(usize, Step, i64)>; 3]> {
    let without_late = |(number, step, seconds, _)| (number, step, seconds);
    let part = move || steps().prop_map(move |steps| steps.into_iter().map(without_late).collect::<Vec<_>>());
    [part(), part(), part()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Hours, evictions and open runs are the same as of a recorder that was never away.
    #[test]
    fn a_remembered_gap_is_in_the_record_once(steps in parts()) {
        let mut world = Beside::played(&steps, true);
        world.check()?;
        for gap in world.gaps() {
            prop_assert_eq!(gap.unknown_ends, 0, "{:?}", gap);
        }
    }

    #[test]
    fn sums_over_a_gap_are_not_above_the_truth(steps in parts()) {
        let mut world = Beside::played(&steps, false);
        let found = world.counted();
        for (hour, used) in found {
            let truth = world.truth.get(&hour).copied().unwrap_or_default();
            prop_assert!((0..=truth).contains(&used), "{} of {} in the hour {}", used, truth, hour);
        }
        prop_assert_eq!(world.recorder().stats().conflicts, 0);
    }
}

/// One workload runs until it is deleted in the gap, another one begins and ends in it.
fn with_a_gap() -> Beside {
    let mut beside = Beside::new();
    for step in [(0, Step::Create, 1), (0, Step::Admit(2), 9), (0, Step::Commit, 100)] {
        beside.step(step, true);
    }
    beside
}

const MISSED: [(usize, Step, i64); 5] = [
    (1, Step::Create, 40),
    (1, Step::Admit(3), 10),
    (0, Step::Delete, 50),
    (1, Step::Finish, 100),
    (1, Step::Delete, 300),
];

#[test]
fn a_gap_names_the_part_that_is_filled() {
    let mut beside = with_a_gap();
    for step in MISSED {
        beside.step(step, false);
    }
    beside.start(true);
    let world = &mut beside.world;
    let filled = Some(FilledPart { from: time(110), until: time(610) });
    assert_eq!(world.gaps(), [Gap { start: time(110), end: time(610), unknown_ends: 0, filled }]);
    assert!(!world.gaps()[0].is_lossy());
    assert_eq!(world.recorder().stats().gap_milliseconds, 0);
    world.check().unwrap();
    let mut segments = Vec::new();
    let add = |row: RecordRow| {
        let seconds = |at: Timestamp| at.as_second() - ORIGIN;
        let result = row.result.to_string();
        segments.push((seconds(row.start.unwrap()), seconds(row.time), result, row.origin.filled));
        true
    };
    world.recorder().reading().unwrap().0.newest_records(RecordKind::Segment, i64::MIN, add).unwrap();
    let expected = [(160, 310, "Finished", true), (10, 210, "Deleted", true)];
    let named =
        |(start, end, result, filled): (i64, i64, &str, bool)| (start, end, result.to_owned(), filled);
    assert_eq!(segments, expected.map(named));
}

#[test]
fn what_was_before_the_memory_stays_unknown() {
    let mut beside = with_a_gap();
    for (number, step) in MISSED.into_iter().enumerate() {
        if number == 3 {
            // At 210: the manager has not seen the deletion.
            beside.restart_manager();
        }
        beside.step(step, false);
    }
    beside.start(true);
    let world = &mut beside.world;
    let [gap] = world.gaps()[..] else { panic!("{:?}", world.gaps()) };
    assert_eq!((gap.unknown_ends, gap.filled.map(|part| part.from)), (1, Some(time(210))));
    assert_eq!((gap.unfilled(), gap.is_lossy()), (100_000, true));
    // 2 until the gap, and 3 from its reservation, which was before the memory, to its end.
    assert_eq!(world.counted().values().sum::<i128>(), 1_000 * (2 * 100 + 3 * 150));
}

/// Without a memory, conditions show a workload that ended in the gap and still exists.
#[test]
fn a_finished_workload_is_filled_from_its_conditions() {
    let mut beside = with_a_gap();
    for step in MISSED.into_iter().take(4) {
        beside.step(step, false);
    }
    beside.start(false);
    let world = &mut beside.world;
    let [gap] = world.gaps()[..] else { panic!("{:?}", world.gaps()) };
    assert_eq!((gap.unknown_ends, gap.filled), (1, None));
    assert_eq!(world.counted().values().sum::<i128>(), 1_000 * (2 * 100 + 3 * 150));
    let mut waits = Vec::new();
    let add = |row: RecordRow| {
        waits.push((row.start.unwrap(), row.time, row.origin.filled));
        true
    };
    world.recorder().reading().unwrap().0.newest_records(RecordKind::Wait, ms(110), add).unwrap();
    // Objects of these laws are created at the beginning.
    assert_eq!(waits, [(time(0), time(160), true)]);
    // The next start finds the same object, and what is recorded.
    world.now += 600;
    let before = world.counted();
    world.start();
    assert_eq!((world.counted(), world.recorder().stats().conflicts), (before, 0));
}

/// More than one run in the gap: conditions show the last one alone, and the open run counts until the gap.
#[test]
fn an_open_run_does_not_count_until_a_later_end() {
    let mut beside = with_a_gap();
    let missed = [Step::Evict, Step::Release, Step::Admit(2), Step::Evict, Step::Release];
    for step in missed {
        beside.step((0, step, 10), false);
    }
    beside.start(false);
    assert_eq!(beside.world.gaps()[0].unknown_ends, 1);
    assert_eq!(beside.world.counted().values().sum::<i128>(), 2 * 100 * 1_000);
}
