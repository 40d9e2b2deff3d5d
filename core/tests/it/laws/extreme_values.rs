//! Histories with preemption over numbers at the edges of their range: I2, I11, I18, I23.

use super::cluster::{Cluster, Event, settings};
use super::cycle_decisions::checked_cycle;
use super::strategies::{edges, event_of, start_of};
use crate::fixtures::builders::config;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::scheduler::{EngineSettings, FairStrategy};

/// Checks that nothing panics or wraps, no admission exceeds capacity, and cycles and evictions terminate.
fn check_history(
    settings: EngineSettings,
    start: &[Event],
    events: &[Event],
    ends: &[usize],
) -> TestCaseResult {
    let mut cluster = Cluster::new(settings);
    for event in start.iter().chain(events) {
        cluster.apply(event);
        if matches!(event, Event::Cycle) {
            checked_cycle(&mut cluster)?;
        }
    }
    for round in 0..400 {
        let mut cycles = 0;
        while cluster.engine.has_work() {
            checked_cycle(&mut cluster)?;
            cycles += 1;
            prop_assert!(cycles < 300, "I11: cycles do not terminate");
        }
        if cluster.evicted_names().next().is_none() {
            return Ok(());
        }
        cluster.apply(&Event::ReleaseVictim(ends[round % ends.len()]));
    }
    Err(TestCaseError::fail("I20: evictions do not terminate"))
}

fn fair() -> impl Strategy<Value = Option<Vec<FairStrategy>>> {
    let (last, first) = (FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare);
    prop::sample::select(vec![None, Some(vec![]), Some(vec![first]), Some(vec![last, first])])
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn i23_extreme_numbers_cause_no_panic_or_livelock(
        fair in fair(),
        start in start_of(&edges()),
        events in prop::collection::vec(event_of(2, edges()), 20..100),
        ends in prop::collection::vec(0..14_usize, 1..6),
    ) {
        check_history(settings(fair), &start, &events, &ends)?;
    }
}
