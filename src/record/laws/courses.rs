//! Laws of courses: each step has what a question for its time alone has, and the steps add up to the usage of the period.

use super::*;
use crate::history::{StepSum, UsageRow};

/// The steps of a period, which begin at multiples of a width but for the first one.
fn periods(from: i64, until: i64, width: i64) -> Vec<(Timestamp, Timestamp)> {
    let inner = (1..).map(|number| number * width).skip_while(|at| *at <= from).take_while(|at| *at < until);
    let bounds: Vec<i64> = std::iter::once(from).chain(inner).chain([until]).collect();
    bounds.windows(2).map(|pair| (time(pair[0]), time(pair[1]))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_course_is_the_usage_of_its_steps(
        steps in steps(),
        from in 0_i64..100_000,
        hours in prop::sample::select(vec![2_i64, 24]),
        by in prop::sample::select(UsageGroup::ALL.to_vec()),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(*step);
        }
        world.settle();
        let (cohorts, view, now) = (BTreeMap::new(), world.ring.view(), time(world.now));
        let from = from.min(world.now - 1);
        let query = UsageQuery {
            by,
            from: time(from),
            until: now,
            resource: Some("gpu"),
            namespace: None,
            cohorts: &cohorts,
        };
        let periods = periods(from, world.now, hours * 3_600);
        let course = world.recorder().read_course(&query, &periods, (&view, now)).unwrap();
        prop_assert_eq!(course.len(), periods.len());
        let usage = |query: &UsageQuery<'_>| world.recorder().read_usage(query, &view, now).unwrap().usage;
        for ((from, until), found) in periods.iter().zip(&course) {
            let alone = usage(&UsageQuery { from: *from, until: *until, ..query.clone() });
            let sum = |row: &UsageRow| StepSum { used: row.used, borrowed: row.borrowed };
            prop_assert_eq!(*found, alone.sums.first().map(sum), "{} to {}", from, until);
        }
        let used: i128 = course.iter().flatten().map(|sum| sum.used).sum();
        prop_assert_eq!(used, usage(&query).sums.iter().map(|row| row.used).sum::<i128>());
    }
}
