//! How long jobs of a simulation run, by the runs of a durable record.
//!
//! Invariants: a length comes from at least `ENOUGH` runs of the same LocalQueue with the same amounts; a run that has lasted for longer
//! than all of them gets none.

use super::RecordedRun;
use super::facts::{amounts, run_key};
use super::run_times::RunTimes;
use jiff::SignedDuration;
use serde_json::Value;
use std::sync::Arc;

/// Run times of jobs without `sluice.dev/run-for`.
#[derive(Clone, Debug)]
pub struct RecordedLengths {
    times: Arc<RunTimes>,
    percent: usize,
    number: usize,
}

impl RecordedLengths {
    /// Takes the length that `percent` of a hundred of these runs did not exceed.
    pub fn new(runs: Vec<RecordedRun>, percent: usize) -> Self {
        let (mut times, number) = (RunTimes::default(), runs.len());
        for RecordedRun { local_queue, amounts, run, .. } in runs {
            times.add_recorded(local_queue, amounts, run);
        }
        Self { times: Arc::new(times), percent, number }
    }

    /// Returns the percentile.
    pub(in crate::simulate) const fn percent(&self) -> usize {
        self.percent
    }

    /// Returns the number of runs, of any queue and amounts.
    pub(in crate::simulate) const fn number(&self) -> usize {
        self.number
    }

    /// Returns the length of a run of an admitted Workload that has lasted for `age`. Once that is longer than the percentile, it is
    /// compared with the runs that were longer.
    pub(in crate::simulate) fn length(
        &self,
        workload: &Value,
        age: SignedDuration,
    ) -> Option<SignedDuration> {
        let runs = self.times.of(&run_key(workload), &amounts(workload))?;
        let length = runs.percentile(self.percent).filter(|_| !runs.are_outlived_by(age))?;
        if length >= age {
            return Some(length);
        }
        Some(runs.percentile_of_longer(self.percent, age).unwrap_or(age))
    }
}

#[cfg(test)]
mod tests {
    use super::super::run_times::{Amounts, Run};
    use super::*;
    use crate::api::ObjectKey;
    use jiff::Timestamp;
    use serde_json::json;

    fn recorded(queue: &str, cpus: i128, minutes: impl Iterator<Item = i64>) -> Vec<RecordedRun> {
        let run = |length: i64| RecordedRun {
            uid: format!("{queue}-{length}"),
            local_queue: ObjectKey::new("ns", queue),
            amounts: Amounts::from([("cpu".to_owned(), 1_000 * cpus)]),
            run: Run {
                ended: Timestamp::from_second(60 * length).unwrap(),
                length: SignedDuration::from_mins(length),
            },
        };
        minutes.map(run).collect()
    }

    fn workload(queue: &str, cpu: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "name": "w"}, "spec": {"queueName": queue},
            "status": {"admission": {"podSetAssignments": [{"name": "main", "count": 1, "resourceUsage": {"cpu": cpu}}]}}})
    }

    /// 20 runs of 1 to 20 minutes.
    #[test]
    fn lengths_are_percentiles_of_runs_that_are_alike() {
        let mut runs = recorded("q", 4, 1..=20);
        runs.extend(recorded("few", 4, 1..=19));
        for (percent, queue, cpu, age, expected) in [
            (25, "q", "4", 0, Some(5)),
            (50, "q", "4", 0, Some(10)),
            (90, "q", "4000m", 0, Some(18)),
            (50, "q", "4", 10, Some(10)),
            // Of the nine longer runs, half took up to 16 minutes.
            (50, "q", "4", 11, Some(16)),
            (50, "q", "4", 20, Some(20)),
            (50, "q", "4", 21, None),
            (50, "q", "8", 0, None),
            (50, "few", "4", 0, None),
            (50, "other", "4", 0, None),
        ] {
            let lengths = RecordedLengths::new(runs.clone(), percent);
            let found = lengths.length(&workload(queue, cpu), SignedDuration::from_mins(age));
            assert_eq!(found, expected.map(SignedDuration::from_mins), "{percent} {queue} {cpu} {age}");
        }
    }
}
