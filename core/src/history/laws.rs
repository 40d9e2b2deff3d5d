//! Conservation over random histories: the amounts of the open runs equal a separately kept ledger, and a lost event is noticed.

use super::tests::{Life, fr, record, reserved, time};
use super::*;
use crate::cache::records::WorkloadRecord;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A Workload of a history, as its object shows it.
#[derive(Clone, Debug, Default)]
struct Object {
    /// Amount, and second of the reservation.
    quota: Option<(i64, i64)>,
    evicted_at: Option<i64>,
    evictions: u32,
    finished_at: Option<i64>,
    exists: bool,
    /// Number of objects that were created with this name.
    created: u32,
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
    Quota(i64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        3 => Just(Step::Create),
        6 => (1_i64..9).prop_map(Step::Admit),
        3 => (0_i64..9).prop_map(Step::Resize),
        3 => Just(Step::Evict),
        3 => Just(Step::Release),
        2 => Just(Step::Finish),
        2 => Just(Step::Delete),
        1 => (0_i64..20).prop_map(Step::Quota),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec((0_usize..6, step), 1..120)
}

impl Object {
    fn record(&self, number: usize) -> WorkloadRecord {
        let mut conditions: Vec<Value> = Vec::new();
        let mut add = |kind: &str, status: bool, at: i64| {
            conditions.push(json!({"type": kind, "status": if status { "True" } else { "False" },
                "reason": "Preempted", "message": "m", "lastTransitionTime": time(at)}));
        };
        if let Some(at) = self.evicted_at {
            add("Evicted", true, at);
        }
        if let Some(at) = self.finished_at {
            add("Finished", true, at);
        }
        if let Some((_, at)) = self.quota {
            conditions.push(reserved(at));
        }
        let mut record = record(&format!("{number}-{}", self.created), self.evictions, &conditions);
        record.queue_name = Some(Arc::from(format!("lq-{}", number % 2)));
        record
    }

    fn charge(&self) -> Option<i64> {
        self.quota.filter(|_| self.finished_at.is_none()).map(|(amount, _)| amount)
    }

    /// Applies a step. Returns whether the object changed.
    fn apply(&mut self, step: Step, now: i64) -> bool {
        let before = (self.quota, self.evicted_at, self.finished_at, self.exists);
        match step {
            Step::Create if !self.exists => {
                *self = Self { exists: true, created: self.created + 1, ..Self::default() }
            }
            _ if !self.exists || self.finished_at.is_some() => {}
            Step::Admit(amount) if self.quota.is_none() => {
                self.quota = Some((amount, now));
                self.evicted_at = None;
            }
            Step::Resize(amount) => self.quota = self.quota.map(|(_, since)| (amount, since)),
            Step::Evict if self.quota.is_some() && self.evicted_at.is_none() => {
                self.evicted_at = Some(now);
                self.evictions += 1;
            }
            Step::Release if self.evicted_at.is_some() => self.quota = None,
            Step::Finish => self.finished_at = Some(now),
            _ => {}
        }
        before != (self.quota, self.evicted_at, self.finished_at, self.exists)
    }
}

fn restarted(objects: &[Object], now: i64, nominal: i64) -> Life {
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(now));
    let mut life = Life { ring };
    for (number, object) in objects.iter().enumerate().filter(|(_, object)| object.exists) {
        life.see(now, &object.record(number), object.charge());
    }
    life.ring.set_nominal(&Arc::from("cq"), [(fr("gpu"), i128::from(nominal))]);
    life.ring.begin();
    life
}

/// Plays a history; the step with the number `lost` is not delivered. Returns whether the sums agreed after each step.
fn play(steps: &[(usize, Step)], lost: Option<usize>) -> Result<bool, TestCaseError> {
    let mut objects = vec![Object::default(); 6];
    let (mut life, mut nominal, mut agreed, mut noticed) = (Life::started(), 4, true, true);
    for (index, (number, step)) in steps.iter().enumerate() {
        let now = i64::try_from(index).unwrap() + 1;
        let number = *number;
        let before = objects[number].clone();
        match step {
            Step::Restart => life = restarted(&objects, now, nominal),
            Step::Quota(quota) => {
                nominal = *quota;
                life.ring.set_nominal(&Arc::from("cq"), [(fr("gpu"), i128::from(nominal))]);
            }
            Step::Delete if before.exists => {
                objects[number].exists = false;
                if lost != Some(index) {
                    life.ring.set_time(time(now));
                    life.ring.delete(&before.record(number));
                }
            }
            step => {
                let changed = objects[number].apply(*step, now);
                let known_finished = before.finished_at.is_some() && before.exists;
                if changed && !known_finished && lost != Some(index) {
                    life.see(now, &objects[number].record(number), objects[number].charge());
                }
            }
        }
        let charged = |object: &Object| if object.exists { object.charge().unwrap_or(0) } else { 0 };
        let expected: i128 = objects.iter().map(|object| i128::from(charged(object))).sum();
        agreed &= life.used() == expected;
        if lost == Some(index) {
            // The sums notice an event only if it changes a charge.
            noticed = charged(&before) == charged(&objects[number]) || life.used() != expected;
        }
        if lost.is_none() {
            let stats = life.ring.stats();
            prop_assert_eq!((stats.conflicts, stats.cut), (0, 0), "step {}", index);
            check_open_runs(&life)?;
        }
    }
    Ok(if lost.is_some() { noticed } else { agreed })
}

/// Plays a history in which each step is this many seconds after the one before. Returns the seconds until its end.
fn lived(steps: &[(usize, Step)], seconds: i64) -> (Life, i64) {
    let (mut life, mut objects, mut now) = (Life::started(), vec![Object::default(); 6], 0);
    for (number, step) in steps {
        now += seconds;
        life.ring.set_time(time(now));
        let before = objects[*number].clone();
        match step {
            Step::Restart => {}
            Step::Quota(quota) => {
                life.ring.set_nominal(&Arc::from("cq"), [(fr("gpu"), i128::from(*quota))]);
            }
            Step::Delete if before.exists => {
                objects[*number].exists = false;
                life.ring.delete(&before.record(*number));
            }
            step => {
                let is_known_end = before.finished_at.is_some() && before.exists;
                if objects[*number].apply(*step, now) && !is_known_end {
                    life.see(now, &objects[*number].record(*number), objects[*number].charge());
                }
            }
        }
    }
    (life, now)
}

/// The steps of a time, which begin at full hours but for the first one.
fn hours_between(from: i64, until: i64) -> Vec<(Timestamp, Timestamp)> {
    let inner = (1..).map(|hour| hour * 3_600).skip_while(|at| *at <= from).take_while(|at| *at < until);
    let bounds: Vec<i64> = std::iter::once(from).chain(inner).chain([until]).collect();
    bounds.windows(2).map(|pair| (time(pair[0]), time(pair[1]))).collect()
}

/// The open runs add up to the sums, and no Workload has two.
fn check_open_runs(life: &Life) -> Result<(), TestCaseError> {
    let runs = life.ring.view().runs;
    let total: i128 =
        runs.iter().flat_map(|run| run.amounts.iter()).map(|(_, amount)| i128::from(*amount)).sum();
    prop_assert_eq!(total, life.used());
    let by_key: BTreeMap<_, _> = runs.iter().map(|run| (run.workload.key.clone(), run.start)).collect();
    prop_assert_eq!(by_key.len(), runs.len());
    Ok(())
}

proptest! {
    #[test]
    fn open_runs_are_the_usage_of_the_ledger(steps in steps()) {
        prop_assert!(play(&steps, None)?);
    }

    /// Each step of a course has what a query for that time alone has, and each group that of its row.
    #[test]
    fn a_course_is_the_usage_of_its_steps(
        steps in steps(),
        seconds in 1_i64..700,
        from in 0_i64..9_000,
        by in prop::sample::select(UsageGroup::ALL.to_vec()),
    ) {
        let (life, now) = lived(&steps, seconds);
        let (view, cohorts) = (life.ring.view(), BTreeMap::new());
        let from = from.min(now - 1);
        let query = UsageQuery {
            by,
            from: time(from),
            until: time(now),
            resource: Some("gpu"),
            namespace: None,
            cohorts: &cohorts,
        };
        let periods = hours_between(from, now);
        let alone = |(from, until): &(Timestamp, Timestamp)| {
            view.usage(&UsageQuery { from: *from, until: *until, ..query.clone() })
        };
        let alone: Vec<Usage> = periods.iter().map(alone).collect();
        let names: BTreeSet<&str> =
            alone.iter().flat_map(|usage| &usage.rows).map(|row| row.group.as_str()).collect();
        let asked: Vec<&str> = ["absent"].into_iter().chain(names.into_iter().rev()).collect();
        let course = view.course(&query, &periods, &asked);
        prop_assert_eq!(course.len(), periods.len());
        for ((period, usage), found) in periods.iter().zip(&alone).zip(&course) {
            let row_of = |name: &str| usage.rows.iter().find(|row| row.group == name);
            let used_by = |name: &&str| row_of(name).map_or(0, |row| row.used);
            let groups: Vec<i128> = asked.iter().map(used_by).collect();
            prop_assert_eq!(usage.sums.iter().map(|row| row.used).sum::<i128>(), groups.iter().sum::<i128>());
            let sum = |row: &UsageRow| StepSum { used: row.used, borrowed: row.borrowed, groups };
            prop_assert_eq!(found, &usage.sums.first().map(sum), "{:?}", period);
        }
        // A group that is not asked for counts in the sum alone.
        let absent = course.iter().cloned().map(|sum| Some(StepSum { groups: vec![0], ..sum? }));
        prop_assert_eq!(view.course(&query, &periods, &asked[..1]), absent.collect::<Vec<_>>());
        let used: i128 = course.iter().flatten().map(|sum| sum.used).sum();
        prop_assert_eq!(used, view.usage(&query).sums.iter().map(|row| row.used).sum::<i128>());
    }

    #[test]
    fn a_lost_event_is_noticed(steps in steps(), lost in 0_usize..120) {
        prop_assert!(play(&steps, Some(lost % steps.len()))?);
    }
}

#[test]
fn a_lost_admission_and_a_lost_end_are_noticed() {
    let steps = [Step::Create, Step::Admit(3), Step::Finish];
    for lost in [1, 2] {
        let (mut life, mut object) = (Life::started(), Object::default());
        for (index, step) in (0..).zip(steps) {
            object.apply(step, index);
            if index == lost {
                assert_ne!(life.used(), i128::from(object.charge().unwrap_or(0)), "{lost}");
                break;
            }
            life.see(index, &object.record(0), object.charge());
            assert_eq!(life.used(), i128::from(object.charge().unwrap_or(0)));
        }
    }
}
