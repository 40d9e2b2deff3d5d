//! Histories with preemption over numbers at the edges of their range: I2, I11, I18, I23.

use super::cluster::{Cluster, Event, settings};
use super::draws::{edges, event_of, start_of};
use super::turns::cycle;
use super::world::config;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::scheduler::{EngineSettings, FairStrategy};

/// Nothing panics, nothing wraps, nobody is given what is not there, and what is decided comes to an end.
fn lives_through(
    settings: EngineSettings,
    start: &[Event],
    events: &[Event],
    ends: &[usize],
) -> TestCaseResult {
    let mut cluster = Cluster::new(settings);
    for event in start.iter().chain(events) {
        cluster.happen(event);
        if matches!(event, Event::Cycle) {
            cycle(&mut cluster)?;
        }
    }
    for round in 0..400 {
        let mut turns = 0;
        while cluster.engine.has_work() {
            cycle(&mut cluster)?;
            turns += 1;
            prop_assert!(turns < 300, "I11: cycles without end");
        }
        if cluster.evicted().next().is_none() {
            return Ok(());
        }
        cluster.happen(&Event::End(ends[round % ends.len()]));
    }
    Err(TestCaseError::fail("I20: evictions without end"))
}

fn fair() -> impl Strategy<Value = Option<Vec<FairStrategy>>> {
    let (last, first) = (FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare);
    prop::sample::select(vec![None, Some(vec![]), Some(vec![first]), Some(vec![last, first])])
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn i23_numbers_at_the_edges_of_their_range_do_no_harm(
        fair in fair(),
        start in start_of(&edges()),
        events in prop::collection::vec(event_of(2, edges()), 20..100),
        ends in prop::collection::vec(0..14_usize, 1..6),
    ) {
        lives_through(settings(fair), &start, &events, &ends)?;
    }
}
