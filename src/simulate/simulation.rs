//! A cluster in memory in virtual time: the core, leading; the API server's double; the jobs.
//!
//! Everything that follows from what happens at one moment happens at that moment: writes land at once, and the scheduler
//! decides when all that is new has been taken in. Then time moves on to whatever is due next.
//! Invariant: the same input gives the same history, byte by byte; no clock is read.

use super::apply::ManifestApplier;
use super::fake_api_server::FakeApiServer;
use super::job_runner::{JobRunner, JobStep, apply_step};
use super::livelock::LivelockDetector;
use super::manifest::{Manifest, Manifests, Problem};
use super::objects::key_of;
use super::timeline::{StatusSummary, Timeline};
use crate::admission::AdmissionSettings;
use crate::api::ObjectKey;
use crate::state::{CoreSettings, Delta, Effect, Kind, Reconciler, WriteOutcome, WriteResult};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Rounds of decisions at one moment after which something goes in circles.
const MAX_ROUNDS: usize = 10_000;
/// Timers that fire one after the other without any consequence, after which nothing is expected any more.
const MAX_IDLE_TIMERS: u32 = 64;
/// Least step of time.
const MIN_TIME_STEP: SignedDuration = SignedDuration::from_millis(1);
/// Nobody watches the status of queues here, nor metrics: the report asks the scheduler.
const SNAPSHOT_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// What the core decides by.
    pub core: CoreSettings,
    /// What reviews decide by.
    pub admission: AdmissionSettings,
    /// The time at the start.
    pub start: Timestamp,
    /// How long those run that do not say it themselves; for ever when absent.
    pub run_for: Option<SignedDuration>,
}

/// When a simulation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When nothing happens any more, or nothing but evictions that repeat themselves.
    Settled,
    /// After so long at the latest.
    After(SignedDuration),
}

/// The cluster.
pub struct Simulation {
    pub(super) state: Reconciler,
    pub(super) server: FakeApiServer,
    pub(super) job_runner: JobRunner,
    pub(super) timeline: Timeline,
    pub(super) applier: ManifestApplier,
    pub(super) start: Timestamp,
    pub(super) now: Timestamp,
    /// Objects that come later.
    pub(super) arrivals: BTreeMap<Timestamp, Vec<Manifest>>,
    /// Warnings about objects, each once.
    pub(super) warnings: BTreeMap<(Kind, ObjectKey), String>,
    /// Whether it ended because nothing was to be expected any more.
    pub(super) settled: bool,
    /// Whether it was given up because it would never end.
    pub(super) livelocked: bool,
    livelock_detector: LivelockDetector,
    inbox: VecDeque<Delta>,
    /// Writes on jobs and Workloads so far.
    writes_so_far: u64,
}

impl Simulation {
    /// An empty cluster, in which nothing is decided yet.
    pub fn new(options: SimulationOptions) -> Result<Self, String> {
        let core = CoreSettings {
            queue_status_interval: None,
            snapshot_interval: SNAPSHOT_INTERVAL,
            status_writes_per_second: None,
            drift_check_interval: SignedDuration::MAX,
            ..options.core
        };
        let mut simulation = Self {
            state: Reconciler::new(core),
            server: FakeApiServer::new(false),
            job_runner: JobRunner::new(options.run_for),
            timeline: Timeline::default(),
            applier: ManifestApplier::new(options.admission)?,
            start: options.start,
            now: options.start,
            arrivals: BTreeMap::new(),
            warnings: BTreeMap::new(),
            settled: false,
            livelocked: false,
            livelock_detector: LivelockDetector::default(),
            inbox: VecDeque::new(),
            writes_so_far: 0,
        };
        simulation.apply_deltas(simulation.server.list());
        Ok(simulation)
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> SignedDuration {
        self.now.duration_since(self.start)
    }

    /// Lets everything follow, until those who have to stop have stopped.
    pub fn run_until_stable(&mut self) {
        self.begin();
        while let Some(at) = self.job_runner.next_stop() {
            self.advance_to(at);
            if !self.livelock_detector.within_limits(&self.timeline.entries, self.server.count()) {
                return;
            }
        }
    }

    /// Begins to decide, on everything that is there at once; later, on what is new.
    fn begin(&mut self) {
        if !self.state.is_leading() {
            self.deliver_deltas();
            self.apply_deltas(vec![Delta::Leading(true)]);
            self.observe_existing();
        }
        self.run_instant();
    }

    /// Everybody who is there already runs, or stops, from now on.
    fn observe_existing(&mut self) {
        for kind in Kind::all().into_iter().filter(|kind| is_simulated(*kind)) {
            for key in self.server.keys_of(kind) {
                self.observe_object(kind, &key);
            }
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, until: Until) {
        self.begin();
        (self.settled, self.livelocked) = (false, false);
        let end = match until {
            Until::Settled => None,
            Until::After(length) => self.start.checked_add(length).ok(),
        };
        let (mut idle, mut rest) = (0, self.now);
        loop {
            let expected = [self.job_runner.next_due(), self.arrivals.keys().next().copied()];
            let expected = expected.into_iter().flatten().min();
            let next = [expected, self.state.next_due()].into_iter().flatten().min();
            let Some(next) = next.filter(|_| expected.is_some() || idle < MAX_IDLE_TIMERS) else {
                self.now = end.unwrap_or(rest).max(rest);
                self.settled = true;
                return;
            };
            if let Some(end) = end.filter(|end| next > *end) {
                self.now = end.max(self.now);
                return;
            }
            let before = self.writes_so_far;
            self.advance_to(next);
            if self.writes_so_far == before {
                idle += 1;
            } else {
                (idle, rest) = (0, self.now);
                let lasts = self.livelock_detector.within_limits(&self.timeline.entries, self.server.count());
                if until == Until::Settled && !lasts {
                    self.livelocked = true;
                    return;
                }
            }
        }
    }

    /// Moves time on and does what is due then.
    fn advance_to(&mut self, to: Timestamp) {
        let least = self.now.checked_add(MIN_TIME_STEP).unwrap_or(Timestamp::MAX);
        self.now = if to > self.now { to } else { least };
        for ((kind, key), turn) in self.job_runner.take_due(self.now) {
            self.run_step(kind, &key, turn);
        }
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| *entry.key() <= self.now) {
            self.livelock_detector.reset();
            for manifest in entry.remove() {
                self.apply_manifest(manifest);
            }
        }
        self.run_instant();
    }

    /// Everything that follows at this moment.
    fn run_instant(&mut self) {
        for _ in 0..MAX_ROUNDS {
            self.deliver_deltas();
            if self.state.next_due().is_none_or(|due| due > self.now) {
                return;
            }
            self.apply_deltas(vec![Delta::Tick]);
        }
        self.warn_no_fixed_point();
    }

    /// Hands the core everything that it has not seen yet.
    pub(super) fn deliver_deltas(&mut self) {
        self.inbox.append(&mut self.server.watch_events);
        let objects = self.server.count();
        for _ in 0..objects.saturating_mul(64).saturating_add(MAX_ROUNDS) {
            if self.inbox.is_empty() {
                return;
            }
            let batch = self.next_batch();
            self.apply_deltas(batch);
        }
        self.warn_no_fixed_point();
    }

    /// Something goes in circles: it is told of, and time goes on.
    fn warn_no_fixed_point(&mut self) {
        let id = (Kind::Namespace, ObjectKey::cluster("simulation"));
        self.warnings.insert(id, format!("what follows at {:#} does not come to an end", self.elapsed()));
    }

    /// What is decided on together: everything up to the next job, of which the core wants to see the whole object.
    fn next_batch(&mut self) -> Vec<Delta> {
        let of_job = |delta: &Delta| matches!(delta, Delta::Applied { kind: Kind::Job(_), .. });
        let end = self.inbox.iter().position(of_job).map_or(self.inbox.len(), |at| at.saturating_add(1));
        self.inbox.drain(..end).collect()
    }

    fn apply_deltas(&mut self, deltas: Vec<Delta>) {
        for delta in &deltas {
            match delta {
                Delta::Applied { kind, object } if is_simulated(*kind) => {
                    self.observe_object(*kind, &key_of(object));
                }
                Delta::Deleted { kind, key, .. } => self.job_runner.forget(&(*kind, key.clone())),
                _ => {}
            }
        }
        for effect in self.state.apply_all(deltas, self.now) {
            self.execute_effect(effect);
        }
        self.inbox.append(&mut self.server.watch_events);
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Write(write) => {
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                let old = self
                    .server
                    .get(kind, &key)
                    .filter(|_| kind == Kind::Workload)
                    .map(StatusSummary::from_workload);
                let outcome = self.server.write(write, self.now);
                if let WriteOutcome::Done(_) = &outcome {
                    let elapsed = self.elapsed();
                    if is_simulated(kind) {
                        self.writes_so_far = self.writes_so_far.saturating_add(1);
                        self.observe_object(kind, &key);
                    }
                    if let Some((old, new)) = old.zip(self.server.get(kind, &key)) {
                        self.timeline.observe(&old, new, elapsed);
                    }
                }
                // The core learns of what it overlooked before it learns that it did.
                if let WriteOutcome::Conflict = &outcome {
                    let object = self.server.get(kind, &key).cloned();
                    self.inbox.extend(object.map(|object| Delta::Applied { kind, object }));
                }
                self.inbox.push_back(Delta::Written(WriteResult { id, kind, key, outcome }));
            }
            Effect::Refetch { kind, key } => {
                let object = self.server.get(kind, &key).cloned();
                self.inbox.extend(object.map(|object| Delta::Applied { kind, object }));
            }
            // What Workloads are warned of stands in their conditions.
            Effect::Event(event) if event.warning && event.kind != Kind::Workload => {
                let note = format!("{}: {}", event.reason, event.note);
                self.warnings.insert((event.kind, event.key), note);
            }
            Effect::Event(_) | Effect::Observe(_) => {}
        }
    }

    /// The job side sees an object that is new or has changed.
    fn observe_object(&mut self, kind: Kind, key: &ObjectKey) {
        let Some(object) = self.server.get(kind, key) else {
            return;
        };
        if kind == Kind::Workload {
            self.timeline.register(object);
        }
        // Nothing starts or stops by itself before anything is decided.
        if !self.state.is_leading() {
            return;
        }
        if let Some(turn) = self.job_runner.observe((kind, key.clone()), object, self.now) {
            self.run_step(kind, key, turn);
        }
    }

    fn run_step(&mut self, kind: Kind, key: &ObjectKey, turn: JobStep) {
        let (now, elapsed) = (self.now, self.elapsed());
        let before =
            self.server.get(kind, key).filter(|_| kind == Kind::Workload).map(StatusSummary::from_workload);
        // The core knows the rest of a Workload that holds quota.
        let known = kind == Kind::Workload && self.state.engine().charge_of(key).is_some();
        self.server.edit_status(kind, key, known, |object| apply_step(turn, kind, object, now));
        self.writes_so_far = self.writes_so_far.saturating_add(1);
        if let (Some(old), Some(new)) = (before, self.server.get(kind, key)) {
            self.timeline.observe(&old, new, elapsed);
        }
    }

    /// Takes note of something that should have been there and is not.
    pub fn add_problem(&mut self, problem: Problem) {
        self.applier.problems.push(problem);
    }

    /// Applies a change on top of what is there.
    pub fn apply_change(&mut self, what: &str, manifests: Manifests) {
        self.timeline.record_change(what, self.elapsed());
        self.livelock_detector.reset();
        self.apply_all(manifests);
    }
}

/// Whether the job side plays objects of the kind.
const fn is_simulated(kind: Kind) -> bool {
    matches!(kind, Kind::Workload | Kind::Job(_))
}
