//! How long earlier runs took, by LocalQueue and by what their pods ask for.
//!
//! Invariants: of each key only the last runs count, in whatever order they are added; fewer than `ENOUGH` runs say nothing; runs of
//! another shape say nothing.

use crate::api::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Least number of runs of which a percentile says something.
pub const ENOUGH: usize = 20;
/// Most runs of a key that count.
const KEPT: usize = 200;

/// What a Workload uses in all, by resource: thousandths of cores, bytes or pieces. Resources of which it uses nothing are absent.
pub type Amounts = BTreeMap<String, i128>;

/// Which runs are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey {
    /// Their LocalQueue.
    pub local_queue: ObjectKey,
    /// The names, counts and requests of their pod sets.
    pub shape: String,
}

/// A run that has ended, with success or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// When it ended.
    pub ended: Timestamp,
    /// From its admission to its end.
    pub length: SignedDuration,
}

/// Runs that have ended.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    by_shape: BTreeMap<RunKey, Vec<(Run, usize)>>,
    /// Runs that a durable record knows, which has no pod sets: by LocalQueue and amounts.
    by_amounts: BTreeMap<(ObjectKey, Amounts), Vec<(Run, usize)>>,
    added: usize,
}

impl RunTimes {
    /// Adds a run of a Workload that is stored.
    pub fn add(&mut self, key: RunKey, run: Run) {
        let number = self.next_number();
        insert(self.by_shape.entry(key).or_default(), (run, number));
    }

    /// Adds a run of a durable record, of a Workload of a LocalQueue that used these amounts.
    pub fn add_recorded(&mut self, local_queue: ObjectKey, amounts: Amounts, run: Run) {
        let number = self.next_number();
        insert(self.by_amounts.entry((local_queue, amounts)).or_default(), (run, number));
    }

    fn next_number(&mut self) -> usize {
        let number = self.added;
        self.added = number.saturating_add(1);
        number
    }

    /// Returns the last runs that are alike: stored ones of the same shape, recorded ones with the same amounts; `None` if these are few.
    pub fn of(&self, key: &RunKey, amounts: &Amounts) -> Option<EarlierRuns> {
        let stored = self.by_shape.get(key).into_iter().flatten();
        let same_amounts = (key.local_queue.clone(), amounts.clone());
        let recorded = self.by_amounts.get(&same_amounts).filter(|_| !amounts.is_empty());
        let mut runs: Vec<(Run, usize)> = stored.chain(recorded.into_iter().flatten()).copied().collect();
        runs.sort_unstable();
        let runs = runs.get(runs.len().saturating_sub(KEPT)..).filter(|runs| runs.len() >= ENOUGH)?;
        let since = runs.first().map(|(run, _)| run.ended)?;
        let numbers = runs.iter().map(|(_, number)| *number).collect();
        let mut lengths: Vec<SignedDuration> = runs.iter().map(|(run, _)| run.length).collect();
        lengths.sort_unstable();
        Some(EarlierRuns { lengths, since, numbers })
    }
}

/// Inserts a run in the order of ends, and drops the oldest of too many.
fn insert(runs: &mut Vec<(Run, usize)>, run: (Run, usize)) {
    let place = runs.partition_point(|known| *known < run);
    runs.insert(place, run);
    if runs.len() > KEPT {
        runs.remove(0);
    }
}

/// The runs that a guess comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierRuns {
    /// Shortest first.
    lengths: Vec<SignedDuration>,
    /// When the oldest of them ended.
    pub since: Timestamp,
    /// Numbers of the runs, by which a run that several guesses come from is counted once.
    pub numbers: BTreeSet<usize>,
}

impl EarlierRuns {
    /// Returns the length that so many of a hundred runs did not exceed (nearest rank).
    pub fn percentile(&self, percent: usize) -> Option<SignedDuration> {
        nearest_rank(&self.lengths, percent)
    }

    /// Returns the length of the shortest.
    pub fn shortest(&self) -> Option<SignedDuration> {
        self.lengths.first().copied()
    }

    /// Whether a run of this length is longer than all of them.
    pub fn are_outlived_by(&self, length: SignedDuration) -> bool {
        self.lengths.last().is_none_or(|longest| *longest < length)
    }

    /// Like `percentile`, of the runs that were longer than this.
    pub fn percentile_of_longer(&self, percent: usize, than: SignedDuration) -> Option<SignedDuration> {
        let shorter = self.lengths.partition_point(|length| *length <= than);
        nearest_rank(self.lengths.get(shorter..)?, percent)
    }
}

fn nearest_rank(lengths: &[SignedDuration], percent: usize) -> Option<SignedDuration> {
    let rank = lengths.len().saturating_mul(percent).div_ceil(100).max(1);
    lengths.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(queue: &str, shape: &str) -> RunKey {
        RunKey { local_queue: ObjectKey::new("ns", queue), shape: shape.to_owned() }
    }

    fn run(ended: i64, minutes: i64) -> Run {
        Run { ended: Timestamp::from_second(ended).unwrap(), length: SignedDuration::from_mins(minutes) }
    }

    fn minutes(length: Option<SignedDuration>) -> Option<i64> {
        length.map(|length| length.as_mins())
    }

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        let mut times = RunTimes::default();
        for minute in (1..=20).rev() {
            times.add(key("q", "a"), run(minute, minute));
        }
        let runs = times.of(&key("q", "a"), &Amounts::new()).unwrap();
        for (percent, expected) in [(0, 1), (25, 5), (50, 10), (90, 18), (91, 19), (100, 20)] {
            assert_eq!(minutes(runs.percentile(percent)), Some(expected), "{percent}");
        }
        let longer =
            |percent, than| minutes(runs.percentile_of_longer(percent, SignedDuration::from_mins(than)));
        for (percent, than, expected) in
            [(25, 16, Some(17)), (90, 16, Some(20)), (25, 19, Some(20)), (25, 20, None)]
        {
            assert_eq!(longer(percent, than), expected, "{percent} of those longer than {than}");
        }
        assert_eq!(runs.since, Timestamp::from_second(1).unwrap());
        assert_eq!(
            [20, 21].map(|length| runs.are_outlived_by(SignedDuration::from_mins(length))),
            [false, true]
        );
    }

    #[test]
    fn only_runs_of_the_same_shape_count() {
        let mut times = RunTimes::default();
        let amounts = |cpu: i128| Amounts::from([("cpu".to_owned(), cpu)]);
        for number in 0..19 {
            times.add(key("q", "a"), run(number, 10));
            times.add(key("q", "b"), run(number, 30));
        }
        let found = |times: &RunTimes, queue: &str, shape: &str, used: &Amounts| {
            times.of(&key(queue, shape), used).map(|runs| (runs.numbers.len(), minutes(runs.shortest())))
        };
        assert_eq!(found(&times, "q", "a", &amounts(4)), None);
        // A recorded run has no shape, but amounts.
        times.add_recorded(ObjectKey::new("ns", "q"), amounts(4), run(100, 5));
        assert_eq!(found(&times, "q", "a", &amounts(4)), Some((20, Some(5))));
        for (queue, shape, used) in
            [("q", "a", amounts(8)), ("q", "c", amounts(4)), ("other", "a", amounts(4))]
        {
            assert_eq!(found(&times, queue, shape, &used), None, "{queue} {shape} {used:?}");
        }
        assert_eq!(found(&times, "q", "a", &Amounts::new()), None);
        times.add(key("q", "a"), run(101, 10));
        assert_eq!(found(&times, "q", "a", &Amounts::new()), Some((20, Some(10))));
    }

    proptest! {
        #[test]
        fn the_last_runs_count_in_any_order(ends in prop::collection::vec(0..10_000_i64, 20..400)) {
            let mut times = RunTimes::default();
            for end in &ends {
                times.add(key("q", "a"), run(*end, *end));
            }
            let mut last = ends;
            last.sort_unstable();
            let last = &last[last.len().saturating_sub(KEPT)..];
            let runs = times.of(&key("q", "a"), &Amounts::new()).unwrap();
            prop_assert_eq!(runs.numbers.len(), last.len());
            prop_assert_eq!(minutes(runs.percentile(0)), last.first().copied());
            prop_assert_eq!(minutes(runs.percentile(100)), last.last().copied());
            prop_assert!(runs.percentile(25) <= runs.percentile(90));
        }
    }
}
