//! Objects with arbitrary times: usage is bounded by the creation of the object, the beginning of the record, and now.

use super::exports::check_sums;
use super::*;
use crate::record::periods::hour_of;

/// A Workload that was created before the record began, whose conditions have these times.
fn record(conditions: &[(&str, bool, &str)]) -> WorkloadRecord {
    let condition = |(kind, holds, at): &(&str, bool, &str)| {
        json!({"type": kind, "status": if *holds { "True" } else { "False" }, "reason": "R", "message": "m",
            "lastTransitionTime": at})
    };
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns", "uid": "uid", "resourceVersion": "1",
            "creationTimestamp": time(-86_400 * 900)},
        "spec": {"queueName": "lq", "podSets": []},
        "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
    });
    WorkloadRecord::decode(&WorkloadObject::from_value(object).unwrap(), &mut InternedTemplates::default())
        .unwrap()
}

impl World {
    fn show(&mut self, record: &WorkloadRecord, amount: i64) {
        self.ring.set_time(time(self.now));
        let cluster_queue = Arc::from("cq");
        self.ring.observe(&SeenWorkload { record, cluster_queue, charge: charge(amount), last_charge: None });
    }

    /// Starts a process at this time, which finds a run.
    fn begin_again(&mut self, now: i64, run: &WorkloadRecord) {
        self.recorder = None;
        let (recorder, left) = Recorder::open(&self.path, time(now)).unwrap();
        (self.now, self.recorder) = (now, Some(recorder));
        self.ring = Ring::new(24 << 20);
        self.ring.record(left.runs, left.until);
        self.show(run, 2);
        self.ring.begin();
        self.commit();
    }

    /// Used and lost of the hours in the file, and the number of hours.
    fn stored(&self) -> (i128, i128, usize) {
        let (reading, _) = self.recorder().reading().unwrap();
        let mut found = (0, 0, 0);
        reading
            .sums(false, i64::MIN, i64::MAX, |at, _, sums| {
                assert!(at >= hour_of(ms(0)) && at <= ms(self.now), "{at} is not in the record");
                found = (found.0 + sums.used.0, found.1 + sums.lost.0, found.2 + 1);
            })
            .unwrap();
        found
    }
}

const TIMES: [&str; 6] = [
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2024-12-01T00:00:00Z",
    "2027-01-15T00:00:01Z",
    "2300-01-01T00:00:00Z",
    "9999-12-30T00:00:00Z",
];

#[test]
fn a_run_counts_since_the_record_began_and_until_now_whatever_its_times_are() {
    for reserved in TIMES {
        for ended in TIMES {
            let mut world = World::new();
            world.now = 60;
            let quota = [("QuotaReserved", true, reserved)];
            world.show(&record(&quota), 2);
            world.commit();
            world.now = 7_300;
            world.commit();
            let most = 2 * i128::from(ms(world.now) - ms(0));
            assert!((0..=most).contains(&world.stored().0), "{reserved}: {:?}", world.stored());
            let usage = {
                let (cohorts, view) = (BTreeMap::new(), world.ring.view());
                let (from, until, by) = (Timestamp::MIN, time(world.now), UsageGroup::Namespace);
                let query =
                    UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
                world.recorder().read_usage(&query, &view, until).unwrap().usage
            };
            let used: i128 = usage.sums.iter().map(|row| row.used).sum();
            assert!((2 * 7_200_000..=most).contains(&used), "{reserved}: {used}");
            let evicted = [quota[0], ("Evicted", true, ended), ("Preempted", true, ended)];
            world.show(&record(&evicted), 2);
            let finished = [quota[0], ("Finished", true, ended)];
            world.show(&record(&finished), 0);
            world.commit();
            let (used, lost, hours) = world.stored();
            assert!((0..=most).contains(&used), "{reserved} to {ended}: {used}");
            assert!((0..=most).contains(&lost), "{reserved} to {ended}: {lost}");
            assert!(hours <= 6, "{hours}");
            let (reading, _) = world.recorder().reading().unwrap();
            for kind in RecordKind::ALL {
                reading
                    .newest_records(kind, i64::MIN, |row| {
                        assert!(row.time <= time(world.now) && row.time >= time(-86_400 * 900), "{row:?}");
                        true
                    })
                    .unwrap();
            }
        }
    }
}

#[test]
fn a_wait_begins_with_the_creation() {
    for requeued in TIMES {
        let mut world = World::new();
        world.now = 10;
        let pending = [("QuotaReserved", false, requeued), ("Requeued", true, requeued)];
        world.show(&record(&pending), 0);
        world.now = 20;
        let reserved = time(20).to_string();
        world.show(&record(&[("QuotaReserved", true, &reserved), ("Requeued", true, requeued)]), 2);
        world.commit();
        let (reading, _) = world.recorder().reading().unwrap();
        let mut waits = 0;
        reading
            .newest_records(RecordKind::Wait, i64::MIN, |row| {
                assert!(row.start.unwrap() >= time(-86_400 * 900) && row.time <= time(20), "{row:?}");
                waits += 1;
                true
            })
            .unwrap();
        assert_eq!(waits, 1);
    }
}

#[test]
fn after_years_without_a_recorder_the_last_month_of_a_run_counts() {
    let mut world = World::new();
    world.now = 60;
    let reserved = time(30).to_string();
    let run = record(&[("QuotaReserved", true, &reserved)]);
    world.show(&run, 2);
    world.commit();
    world.begin_again(86_400 * 900, &run);
    world.now += 7_200;
    world.commit();
    let (used, _, hours) = world.stored();
    assert!(hours <= 31 * 24 + 3, "{hours}");
    let month = 2 * 31 * i128::from(DAY);
    assert!((month - 2 * i128::from(HOUR)..=month).contains(&used), "{used}");
    // An earlier end takes back exactly the counted time.
    let ended = time(86_400 * 800).to_string();
    world.show(&record(&[("QuotaReserved", true, &reserved), ("Finished", true, &ended)]), 0);
    world.commit();
    assert_eq!(world.stored().0, 0);
}

/// A process whose clock was ahead wrote the file, also a new one; the next one has the right time.
#[test]
fn no_time_in_a_file_lies_ahead_of_it() {
    for (new, ahead) in [(true, 86_400 * 110), (false, 86_400 * 110), (true, 7_200), (false, 7_200)] {
        let mut world = World::new();
        world.now = 3_700;
        let reserved = time(30).to_string();
        let run = record(&[("QuotaReserved", true, &reserved)]);
        if new {
            world.recorder = None;
            std::fs::remove_file(&world.path).unwrap();
        } else {
            world.show(&run, 2);
            world.commit();
        }
        world.begin_again(3_710 + ahead, &run);
        world.begin_again(3_720, &run);
        let (reading, _) = world.recorder().reading().unwrap();
        let times = reading.times().unwrap();
        for at in
            [times.from, times.until, times.closed, times.records_from, times.hours_from, times.days_from]
        {
            assert!(at.is_none_or(|at| at <= ms(3_720)), "{times:?}");
        }
        for gap in reading.gaps(i64::MIN, i64::MAX).unwrap() {
            assert!(gap.start <= gap.end && gap.end <= time(3_720), "{gap:?}");
        }
        drop(reading);
        // A run that starts now counts from now on, also after another restart.
        world.begin_again(3_780, &run);
        let (cohorts, view) = (BTreeMap::new(), world.ring.view());
        let (from, until, by) = (time(3_720), time(3_780), UsageGroup::Namespace);
        let query = UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
        let found = world.recorder().read_usage(&query, &view, until).unwrap();
        assert!(found.recorded_from.unwrap() <= time(3_720), "{found:?}");
        assert!(found.gaps.iter().all(|gap| gap.end <= until), "{found:?}");
        world.now = 3_780 + 7_200;
        world.commit();
        let until = time(world.now);
        let query = UsageQuery { until, ..query };
        let found = world.recorder().read_usage(&query, &world.ring.view(), until).unwrap();
        let used: i128 = found.usage.sums.iter().map(|row| row.used).sum();
        assert!(used >= 2 * 7_200_000, "{found:?}");
    }
}

/// A run that began before the record counts from the beginning of the record, in an export as in `usage`.
#[test]
fn an_export_counts_from_the_beginning_of_the_record() {
    let mut world = World::new();
    let run = record(&[("QuotaReserved", true, &time(30).to_string())]);
    world.recorder = None;
    std::fs::remove_file(&world.path).unwrap();
    world.begin_again(3_710, &run);
    world.now = 3_790;
    world.commit();
    check_sums(&world, ms(0), None).unwrap();
}
