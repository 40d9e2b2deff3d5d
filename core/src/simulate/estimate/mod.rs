//! When a pending Workload may be admitted: a range from two simulations of its cohort tree, or why there is none, and a time before
//! which it is not admitted.
//!
//! Invariants: a run time comes from a declared maximum, from an annotation or from earlier runs of the same shape, never from nowhere,
//! and lies within what these runs took; what runs for an unknown time ends the range as soon as it could matter; nothing that the
//! reader may not see is named, or used but for the quota and nodes that it may leave; no clock is read.

mod bound;
mod evictions;
mod facts;
mod finished;
mod recorded_lengths;
mod refusal;
pub mod run_times;
mod scope;

pub use bound::LowerBound;
pub use finished::reduce_finished;
pub use recorded_lengths::RecordedLengths;
pub use refusal::Refusal;
pub use scope::{drop_finished, is_finished};

use self::bound::lower_bound;
use self::evictions::may_be_preempted;
use self::facts::{Facts, Pace, RunTimeSources, finished_run};
use self::run_times::{Amounts, Run as EndedRun, RunTimes};
use self::scope::{CohortTree, serving, simulated};
use super::job_runner::PlannedRun;
use super::objects::{is_true, key_of, text_at, value_at};
use super::simulation::{KeepGoing, Simulation, SimulationOptions, Until};
use super::timeline::TimelineEventKind;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::scheduler::EngineSettings;
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

/// The Workload that an estimate is asked for, and what it may use.
pub struct EstimateRequest<'a> {
    /// The pending Workload.
    pub workload: &'a ObjectKey,
    /// All objects of the cluster.
    pub objects: &'a [(Kind, Value)],
    /// Runs of a durable record. Those of Workloads that are among the objects do not count again.
    pub recorded: &'a [RecordedRun],
    /// Whether the reader may see the workloads of a namespace.
    pub sees: &'a dyn Fn(&str) -> bool,
}

impl EstimateRequest<'_> {
    /// Whether the reader may see a workload.
    fn shows(&self, facts: &Facts) -> bool {
        (self.sees)(&facts.key.namespace)
    }
}

/// When a Workload may be admitted, and where that comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRange {
    /// If runs end early; `None` where that follows from a maximum execution time alone, before which a run may end at any time.
    pub earliest: Option<Timestamp>,
    /// Before when it is not admitted, where there is no `earliest`.
    pub not_before: Option<LowerBound>,
    /// If runs end late.
    pub latest: Timestamp,
    /// Number of running workloads of the tree that declare a maximum execution time.
    pub declared: usize,
    /// Number of those without earlier runs that lasted for as long as they have, and without an expected run time.
    pub open_ended: usize,
    /// Number of running workloads whose time is what an annotation expects, and that have no maximum.
    pub expected: usize,
    /// Number of running workloads whose times come from earlier runs alone.
    pub from_history: usize,
    /// Number of running workloads that do not end by themselves.
    pub serving: usize,
    /// Number of earlier runs.
    pub earlier_runs: usize,
    /// When the oldest of them ended.
    pub earlier_runs_since: Option<Timestamp>,
    /// Workloads whose annotation with the expected run time is ignored, and why.
    pub ignored: Vec<(ObjectKey, String)>,
}

/// Why there is no range, and what is known all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRange {
    /// Why.
    pub refusal: Refusal,
    /// Before when it is not admitted.
    pub not_before: Option<LowerBound>,
    /// Workloads, of which the reader sees the names, whose run times are unknown.
    pub unknown: Vec<ObjectKey>,
    /// Workloads whose annotation with the expected run time is ignored, and why.
    pub ignored: Vec<(ObjectKey, String)>,
}

impl From<Refusal> for Box<NoRange> {
    fn from(refusal: Refusal) -> Self {
        Self::new(NoRange { refusal, not_before: None, unknown: Vec::new(), ignored: Vec::new() })
    }
}

/// A run that a durable record knows: the Workload may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    /// UID of the Workload.
    pub uid: String,
    /// Its LocalQueue.
    pub local_queue: ObjectKey,
    /// What it used in all when it began.
    pub amounts: Amounts,
    /// Its time.
    pub run: EndedRun,
}

/// Returns when a pending Workload may be admitted. `options.start` is now, and the objects are as they are then. `keep_going` limits
/// all simulations together.
///
/// # Errors
/// There is no range: why, and before when it is not admitted.
pub fn estimate(
    request: &EstimateRequest<'_>,
    options: &SimulationOptions,
    keep_going: Option<&KeepGoing>,
) -> Result<AdmissionRange, Box<NoRange>> {
    let tree = Tree::of(request, options.start)?;
    let found = tree.range(request, options, keep_going);
    if let Ok(range) = &found
        && range.earliest.is_some()
    {
        return found.map_err(Into::into);
    }
    let bound = lower_bound(request, &tree, options, keep_going);
    let ignored = tree.ignored(request);
    match (found, bound) {
        (Ok(range), bound) => Ok(AdmissionRange { not_before: bound.ok().flatten(), ..range }),
        // If it is not even admitted alone, nothing else matters.
        (Err(_), Err(refusal)) => {
            Err(Box::new(NoRange { refusal, not_before: None, unknown: Vec::new(), ignored }))
        }
        (Err(refusal), Ok(not_before)) => {
            let unknown = match &refusal {
                Refusal::UnknownAhead(unknown, _) => unknown.clone(),
                _ => tree.unknown(request),
            };
            Err(Box::new(NoRange { refusal, not_before, unknown, ignored }))
        }
    }
}

/// Returns why a Workload is not asked about.
fn check_pending(workload: &Value) -> Result<(), Refusal> {
    let state = ["Finished", "Admitted", "QuotaReserved"].into_iter().find(|state| is_true(workload, state));
    if let Some(state) = state {
        return Err(Refusal::NotPending(state.to_owned()));
    }
    if value_at(workload, "/metadata/deletionTimestamp").is_some() {
        return Err(Refusal::Deleted);
    }
    if value_at(workload, "/spec/active") == Some(&Value::Bool(false)) {
        return Err(Refusal::Deactivated);
    }
    Ok(())
}

/// The cohort tree of a Workload, with its workloads.
struct Tree<'a> {
    cohorts: CohortTree<'a>,
    /// Workloads of the tree that have not finished, and what is known of each.
    workloads: Vec<&'a Value>,
    facts: Vec<Facts>,
    /// UIDs of what does not end by itself.
    serving: BTreeSet<&'a str>,
}

impl<'a> Tree<'a> {
    fn of(request: &EstimateRequest<'a>, now: Timestamp) -> Result<Self, Refusal> {
        let objects = request.objects;
        let workloads =
            || objects.iter().filter(|(kind, _)| *kind == Kind::Workload).map(|(_, object)| object);
        let asked = workloads().find(|object| key_of(object) == *request.workload).ok_or(Refusal::Deleted)?;
        check_pending(asked)?;
        let cohorts = CohortTree::of(asked, objects).ok_or(Refusal::NoQueue)?;
        let of_tree: Vec<&Value> =
            workloads().filter(|object| !is_finished(object) && cohorts.has(object)).collect();
        let sees_all = of_tree.iter().all(|object| (request.sees)(text_at(object, "/metadata/namespace")));
        if of_tree.len() > MAX_WORKLOADS {
            let count = Refusal::TooManyWorkloads(of_tree.len());
            return Err(if sees_all { count } else { Refusal::Hidden });
        }
        let mut times = RunTimes::default();
        for (key, run) in workloads().filter_map(finished_run) {
            times.add(key, run);
        }
        let stored: BTreeSet<&str> = workloads().map(|object| text_at(object, "/metadata/uid")).collect();
        for known in request.recorded.iter().filter(|known| !stored.contains(known.uid.as_str())) {
            times.add_recorded(known.local_queue.clone(), known.amounts.clone(), known.run);
        }
        let sources = RunTimeSources::of(times, objects);
        let facts = of_tree.iter().map(|object| Facts::of(object, &sources, now)).collect();
        Ok(Self { cohorts, workloads: of_tree, facts, serving: serving(objects) })
    }

    fn serves(&self, facts: &Facts) -> bool {
        facts.is_any_of(&self.serving)
    }

    fn may_be_preempted(&self, objects: &[(Kind, Value)], settings: &EngineSettings) -> BTreeSet<ObjectKey> {
        may_be_preempted(&self.workloads, (&self.cohorts, objects), settings)
    }

    /// Returns the running workloads of which nothing says when they end.
    fn unknown(&self, request: &EstimateRequest<'_>) -> Vec<ObjectKey> {
        let is_unknown = |facts: &&Facts| {
            facts.is_reserved && facts.is_unknown() && !self.serves(facts) && request.shows(facts)
        };
        self.facts.iter().filter(is_unknown).map(|facts| facts.key.clone()).collect()
    }

    fn ignored(&self, request: &EstimateRequest<'_>) -> Vec<(ObjectKey, String)> {
        let seen = self.facts.iter().filter(|facts| request.shows(facts));
        seen.filter_map(|facts| Some((facts.key.clone(), facts.ignored.clone()?))).collect()
    }

    /// Returns the range from two simulations.
    fn range(
        &self,
        request: &EstimateRequest<'_>,
        options: &SimulationOptions,
        keep_going: Option<&KeepGoing>,
    ) -> Result<AdmissionRange, Refusal> {
        if !self.facts.iter().all(|facts| request.shows(facts)) {
            return Err(Refusal::Hidden);
        }
        let range = counted(&self.facts, &self.serving)?;
        // What serves does not end, whatever others of its queue did.
        let facts: Vec<&Facts> = self.facts.iter().filter(|facts| !self.serves(facts)).collect();
        let objects = simulated(request.objects, &self.cohorts);
        let run = Run { workload: request.workload, objects, facts: &facts, options, keep_going };
        let first = run.admission(Pace::Quick)?;
        let last = if run.is_certain() { first } else { run.admission(Pace::Slow)? };
        let is_known = !run.facts.iter().any(|facts| facts.is_open_ended())
            || run.admission(Pace::QuickToMaximum)? == first;
        let earliest = is_known.then_some(first.min(last));
        Ok(AdmissionRange { earliest, latest: first.max(last), ignored: self.ignored(request), ..range })
    }
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
    let is_outlived = |facts: &&Facts| facts.is_unknown() && !serves(facts);
    let outlived: Vec<_> =
        running().filter(is_outlived).filter_map(|facts| facts.outlived.as_ref()).collect();
    if !outlived.is_empty() {
        let runs: BTreeSet<usize> = outlived.iter().flat_map(|runs| &runs.numbers).copied().collect();
        return Err(Refusal::Outlived { count: outlived.len(), of: running().count(), runs: runs.len() });
    }
    let is_guess = |facts: &&Facts| facts.is_guess() && !serves(facts);
    let guessed: Vec<_> = running().filter(is_guess).filter_map(|facts| facts.runs.as_ref()).collect();
    let runs: BTreeSet<usize> = guessed.iter().flat_map(|runs| &runs.numbers).copied().collect();
    Ok(AdmissionRange {
        earliest: None,
        not_before: None,
        latest: Timestamp::UNIX_EPOCH,
        declared: count(&|facts| facts.maximum.is_some()),
        open_ended: count(&Facts::is_open_ended),
        expected: count(&|facts| facts.maximum.is_none() && facts.expected.is_some() && !serves(facts)),
        from_history: guessed.len(),
        serving: count(&|facts| facts.maximum.is_none() && serves(facts)),
        earlier_runs: runs.len(),
        earlier_runs_since: guessed.iter().map(|runs| runs.since).min(),
        ignored: Vec::new(),
    })
}

/// Returns a simulation of these objects, in which runs end as planned; `None` if the time is up before all are loaded.
fn loaded(
    objects: &[&(Kind, Value)],
    planned: BTreeMap<String, PlannedRun>,
    options: &SimulationOptions,
    keep_going: Option<&KeepGoing>,
) -> Result<Option<Simulation>, Refusal> {
    let mut simulation = Simulation::new(options.clone()).map_err(Refusal::Failed)?;
    simulation.limit(keep_going);
    simulation.job_runner.plan(planned);
    for (kind, object) in objects {
        if !simulation.may_go_on() {
            return Ok(None);
        }
        simulation.load_stored(*kind, object.clone());
    }
    Ok(Some(simulation))
}

/// What two simulations share.
struct Run<'a> {
    workload: &'a ObjectKey,
    /// Workloads last.
    objects: Vec<&'a (Kind, Value)>,
    facts: &'a [&'a Facts],
    options: &'a SimulationOptions,
    keep_going: Option<&'a KeepGoing>,
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
        let (running, pending): (Vec<&Facts>, Vec<&Facts>) =
            self.facts.iter().copied().partition(|facts| facts.is_reserved);
        for facts in pending.into_iter().chain(running) {
            let Some(length) = facts.whole_length(pace) else { continue };
            let run = PlannedRun { end: facts.end(pace, self.options.start), length };
            planned.extend(facts.uids.iter().map(|uid| (uid.clone(), run)));
        }
        planned
    }

    /// Returns when the Workload is admitted.
    fn admission(&self, pace: Pace) -> Result<Timestamp, Refusal> {
        let simulation = loaded(&self.objects, self.planned(pace), self.options, self.keep_going)?;
        let mut simulation = simulation.ok_or(Refusal::TooLong)?;
        let is_admitted = |simulation: &Simulation| simulation.has(self.workload, "Admitted");
        let ended = simulation.run_to(Until::Settled, &is_admitted);
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
        let is_unknown = |facts: &&&Facts| {
            facts.is_unknown() && !facts.is_reserved && before.contains(&*facts.key.to_string())
        };
        let unknown: Vec<ObjectKey> =
            self.facts.iter().filter(is_unknown).map(|facts| facts.key.clone()).collect();
        if unknown.is_empty() { Ok(()) } else { Err(Refusal::UnknownAhead(unknown, before.len())) }
    }
}
