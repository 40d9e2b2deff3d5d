//! Laws of courses: each step has what a question for its time alone has, each group that of its row, and the steps add up to the usage
//! of the period.

use super::*;
use crate::history::{StepSum, Usage, UsageRow};
use std::collections::BTreeSet;

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
        let usage = |query: &UsageQuery<'_>| world.recorder().read_usage(query, &view, now).unwrap().usage;
        let alone = |(from, until): &(Timestamp, Timestamp)| {
            usage(&UsageQuery { from: *from, until: *until, ..query.clone() })
        };
        let alone: Vec<Usage> = periods.iter().map(alone).collect();
        let names: BTreeSet<&str> =
            alone.iter().flat_map(|usage| &usage.rows).map(|row| row.group.as_str()).collect();
        let asked: Vec<&str> = ["absent"].into_iter().chain(names.into_iter().rev()).collect();
        let course = world.recorder().read_course(&query, &periods, &asked, (&view, now)).unwrap();
        prop_assert_eq!(course.len(), periods.len());
        for ((period, usage), found) in periods.iter().zip(&alone).zip(&course) {
            let row_of = |name: &str| usage.rows.iter().find(|row| row.group == name);
            let used_by = |name: &&str| row_of(name).map_or(0, |row| row.used);
            let groups: Vec<i128> = asked.iter().map(used_by).collect();
            prop_assert_eq!(usage.sums.iter().map(|row| row.used).sum::<i128>(), groups.iter().sum::<i128>());
            let sum = |row: &UsageRow| StepSum { used: row.used, borrowed: row.borrowed, groups };
            prop_assert_eq!(found, &usage.sums.first().map(sum), "{:?}", period);
        }
        let used: i128 = course.iter().flatten().map(|sum| sum.used).sum();
        prop_assert_eq!(used, usage(&query).sums.iter().map(|row| row.used).sum::<i128>());
    }
}
