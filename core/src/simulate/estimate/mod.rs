//! When a pending Workload may be admitted: a range from two simulations of its cohort tree, or why there is none.
//!
//! Invariants: a run time comes from a declared maximum or from earlier runs, never from nowhere, and lies within what these runs took;
//! what runs for an unknown time ends the estimate as soon as it could matter; no clock is read.

mod facts;
mod refusal;
pub mod run_times;
mod scope;

pub use refusal::Refusal;
pub use scope::drop_finished;

use self::facts::{Facts, Pace, finished_run};
use self::run_times::{Run as EndedRun, RunTimes};
use self::scope::{CohortTree, is_finished, serving, simulated};
use super::job_runner::PlannedRun;
use super::objects::{is_true, key_of, text_at};
use super::simulation::{Simulation, SimulationOptions, Until};
use super::timeline::TimelineEventKind;
use crate::api::ObjectKey;
use crate::cache::Kind;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most workloads that may be ahead in the queue.
pub const MAX_AHEAD: u64 = 2_000;
/// Most workloads of a cohort tree that are simulated.
pub const MAX_WORKLOADS: usize = 10_000;
/// Longest time that a caller should let it take.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// When a Workload may be admitted, and where that comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRange {
    /// If runs end early; `None` where that follows from a maximum execution time alone, before which a run may end at any time.
    pub earliest: Option<Timestamp>,
    /// If runs end late.
    pub latest: Timestamp,
    /// Number of running workloads of the tree that declare a maximum execution time.
    pub declared: usize,
    /// Number of those without earlier runs that lasted for as long as they have.
    pub open_ended: usize,
    /// Number of running workloads whose times come from earlier runs alone.
    pub from_history: usize,
    /// Number of those whose earlier runs are of other shapes.
    pub of_other_shape: usize,
    /// Number of running workloads that do not end by themselves.
    pub serving: usize,
    /// Number of earlier runs.
    pub earlier_runs: usize,
    /// When the oldest of them ended.
    pub earlier_runs_since: Option<Timestamp>,
}

/// A run that a durable record knows: the Workload may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    /// UID of the Workload.
    pub uid: String,
    /// Its LocalQueue.
    pub local_queue: ObjectKey,
    /// Its time.
    pub run: EndedRun,
}

/// Returns when a pending Workload may be admitted. `options.start` is now, and the objects are as they are then. Of `recorded` runs,
/// those of Workloads that are among the objects do not count again. `keep_going` is asked all the while.
///
/// # Errors
/// There is no estimate, and why.
pub fn estimate(
    workload: &ObjectKey,
    (objects, recorded): (&[(Kind, Value)], &[RecordedRun]),
    options: &SimulationOptions,
    keep_going: &dyn Fn() -> bool,
) -> Result<AdmissionRange, Refusal> {
    let workloads = || objects.iter().filter(|(kind, _)| *kind == Kind::Workload).map(|(_, object)| object);
    let asked = workloads().find(|object| key_of(object) == *workload).ok_or(Refusal::NoQueue)?;
    let state = ["Finished", "Admitted", "QuotaReserved"].into_iter().find(|state| is_true(asked, state));
    if let Some(state) = state {
        return Err(Refusal::NotPending(state.to_owned()));
    }
    let tree = CohortTree::of(asked, objects).ok_or(Refusal::NoQueue)?;
    let mut times = RunTimes::default();
    for (key, run) in workloads().filter_map(finished_run) {
        times.add(key, run);
    }
    let stored: BTreeSet<&str> = workloads().map(|object| text_at(object, "/metadata/uid")).collect();
    for known in recorded.iter().filter(|known| !stored.contains(known.uid.as_str())) {
        times.add_of_queue(known.local_queue.clone(), known.run);
    }
    let facts: Vec<Facts> = workloads()
        .filter(|object| !is_finished(object) && tree.has(object))
        .map(|object| Facts::of(object, &times, options.start))
        .collect();
    if facts.len() > MAX_WORKLOADS {
        return Err(Refusal::TooManyWorkloads(facts.len()));
    }
    let serving = serving(objects);
    let range = counted(&facts, &serving)?;
    // What serves does not end, whatever others of its queue did.
    let facts: Vec<Facts> = facts.into_iter().filter(|facts| !facts.is_any_of(&serving)).collect();
    let run = Run { workload, objects: simulated(objects, &tree), facts: &facts, options, keep_going };
    let first = run.admission(Pace::Quick)?;
    let last = if run.is_certain() { first } else { run.admission(Pace::Slow)? };
    let is_known =
        !run.facts.iter().any(Facts::is_open_ended) || run.admission(Pace::QuickToMaximum)? == first;
    Ok(AdmissionRange { earliest: is_known.then_some(first.min(last)), latest: first.max(last), ..range })
}

/// Counts where the times of running workloads come from.
fn counted(facts: &[Facts], serving: &BTreeSet<&str>) -> Result<AdmissionRange, Refusal> {
    let running = || facts.iter().filter(|facts| facts.is_reserved);
    let serves = |facts: &Facts| facts.is_any_of(serving);
    let count = |matches: &dyn Fn(&Facts) -> bool| running().filter(|facts| matches(facts)).count();
    let unknown = count(&|facts| facts.is_unknown() && facts.outlived.is_none() && !serves(facts));
    if unknown > 0 {
        return Err(Refusal::UnknownRunning(unknown, running().count()));
    }
    let is_outlived = |facts: &&Facts| facts.maximum.is_none() && !serves(facts);
    let outlived: Vec<_> =
        running().filter(is_outlived).filter_map(|facts| facts.outlived.as_ref()).collect();
    if !outlived.is_empty() {
        let runs: BTreeSet<usize> = outlived.iter().flat_map(|runs| &runs.numbers).copied().collect();
        return Err(Refusal::Outlived { count: outlived.len(), of: running().count(), runs: runs.len() });
    }
    let is_guess = |facts: &Facts| facts.maximum.is_none() && !serves(facts);
    let guessed: Vec<_> = running().filter(|facts| is_guess(facts)).filter_map(|f| f.runs.as_ref()).collect();
    let runs: BTreeSet<usize> = guessed.iter().flat_map(|runs| &runs.numbers).copied().collect();
    Ok(AdmissionRange {
        earliest: None,
        latest: Timestamp::UNIX_EPOCH,
        declared: count(&|facts| facts.maximum.is_some()),
        open_ended: count(&Facts::is_open_ended),
        from_history: guessed.len(),
        of_other_shape: guessed.iter().filter(|runs| !runs.is_alike).count(),
        serving: count(&|facts| facts.maximum.is_none() && serves(facts)),
        earlier_runs: runs.len(),
        earlier_runs_since: guessed.iter().map(|runs| runs.since).min(),
    })
}

/// What two simulations share.
struct Run<'a> {
    workload: &'a ObjectKey,
    /// Workloads last.
    objects: Vec<(Kind, Value)>,
    facts: &'a [Facts],
    options: &'a SimulationOptions,
    keep_going: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    /// Whether both paces have the same run times.
    fn is_certain(&self) -> bool {
        let now = self.options.start;
        self.facts.iter().all(|facts| {
            facts.whole_length(Pace::Quick) == facts.whole_length(Pace::Slow)
                && facts.end(Pace::Quick, now) == facts.end(Pace::Slow, now)
        })
    }

    /// Returns the runs by the UIDs of Workloads and their owners. Of several Workloads of an owner, the one that runs counts.
    fn planned(&self, pace: Pace) -> BTreeMap<String, PlannedRun> {
        let mut planned = BTreeMap::new();
        let (running, pending): (Vec<&Facts>, Vec<&Facts>) = self.facts.iter().partition(|f| f.is_reserved);
        for facts in pending.into_iter().chain(running) {
            let Some(length) = facts.whole_length(pace) else { continue };
            let run = PlannedRun { end: facts.end(pace, self.options.start), length };
            planned.extend(facts.uids.iter().map(|uid| (uid.clone(), run)));
        }
        planned
    }

    /// Returns when the Workload is admitted.
    fn admission(&self, pace: Pace) -> Result<Timestamp, Refusal> {
        let mut simulation = Simulation::new(self.options.clone()).map_err(Refusal::Failed)?;
        simulation.job_runner.plan(self.planned(pace));
        for (kind, object) in &self.objects {
            if !(self.keep_going)() {
                return Err(Refusal::TooLong);
            }
            simulation.load_stored(*kind, object.clone());
        }
        let is_admitted = |simulation: &Simulation| simulation.has(self.workload, "Admitted");
        let ended = simulation
            .run_while(Until::Settled, &|simulation| (self.keep_going)() && !is_admitted(simulation));
        self.check_known(&simulation)?;
        if is_admitted(&simulation) {
            Ok(simulation.now)
        } else if !ended {
            Err(Refusal::TooLong)
        } else if simulation.has(self.workload, "QuotaReserved") {
            Err(Refusal::ChecksUnanswered)
        } else {
            Err(Refusal::NotAdmitted)
        }
    }

    /// Checks that what was admitted before the Workload has a known run time.
    fn check_known(&self, simulation: &Simulation) -> Result<(), Refusal> {
        let own = self.workload.to_string();
        let entries = simulation.timeline.entries.iter();
        let admissions = || entries.clone().filter(|entry| entry.event == TimelineEventKind::Admitted);
        // What is admitted at the same time does not run before it.
        let admitted = admissions().find(|entry| entry.workload.workload == own).map(|entry| entry.seconds);
        let before: BTreeSet<&str> = admissions()
            .filter(|entry| admitted.is_none_or(|admitted| entry.seconds < admitted))
            .map(|entry| entry.workload.workload.as_str())
            .collect();
        let is_unknown = |facts: &&Facts| {
            facts.is_unknown() && !facts.is_reserved && before.contains(&*facts.key.to_string())
        };
        match self.facts.iter().filter(is_unknown).count() {
            0 => Ok(()),
            unknown => Err(Refusal::UnknownAhead(unknown, before.len())),
        }
    }
}
