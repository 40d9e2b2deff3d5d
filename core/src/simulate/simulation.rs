//! A cluster in memory and in simulated time: the leading core, the fake API server and the jobs.
//!
//! All consequences of an event happen at the same instant: writes succeed immediately, and the scheduler runs after
//! all new deltas are processed. Then time advances to the next due event.
//! Invariant: equal input gives an equal history, byte for byte; no clock is read.

use super::apply::ManifestApplier;
use super::estimate::RecordedLengths;
use super::fake_api_server::FakeApiServer;
use super::harness::Harness;
use super::job_runner::{JobRunner, JobStep, Readiness, apply_step};
use super::livelock::LivelockDetector;
use super::manifest::{Manifest, Manifests, Problem};
use super::objects::{ConditionFlags, is_true, key_of, text_at};
use super::pod_owners::PodOwners;
use super::timeline::{StatusSummary, Timeline};
use crate::admission::AdmissionSettings;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::failpoints::Failpoints;
use crate::reconciler::{CoreSettings, Delta, Effect, SnapshotIntervals, Verb, WriteLimits};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum number of rounds at one instant; more means that there is no fixed point.
const MAX_ROUNDS: usize = 10_000;
/// Number of consecutive timers without a write after which the simulation is stable.
const MAX_IDLE_TIMERS: u32 = 64;
/// Minimum time step.
const MIN_TIME_STEP: SignedDuration = SignedDuration::from_millis(1);
/// Snapshot interval of the core. Long, because the report reads the scheduler and not the snapshot.
const SNAPSHOT_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// UID of an object's owner.
const OWNER_UID: &str = "/metadata/ownerReferences/0/uid";

/// A warning event.
#[derive(Clone, Debug)]
pub(super) struct Warning {
    pub(super) reason: String,
    pub(super) note: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason.is_empty() {
            f.write_str(&self.note)
        } else {
            write!(f, "{}: {}", self.reason, self.note)
        }
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// Settings of the core.
    pub core: CoreSettings,
    /// Settings of admission reviews.
    pub admission: AdmissionSettings,
    /// Start time.
    pub start: Timestamp,
    /// Run time of pods without the `sluice.dev/run-for` annotation; `None`: they never finish.
    pub run_for: Option<SignedDuration>,
    /// Run times of jobs without that annotation, which go before `run_for` where they are known.
    pub recorded: Option<RecordedLengths>,
}

/// When a simulation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the simulation is stable, or at a livelock.
    Settled,
    /// After this much simulated time, or when stable.
    After(SignedDuration),
}

/// Returns whether a simulation may go on. Once it returns false, it does so for good.
pub type KeepGoing = Arc<dyn Fn() -> bool + Send + Sync>;

/// A simulated cluster.
pub struct Simulation {
    pub(super) harness: Harness,
    pub(super) job_runner: JobRunner,
    pub(super) timeline: Timeline,
    pub(super) applier: ManifestApplier,
    pub(super) pod_owners: PodOwners,
    pub(super) start: Timestamp,
    pub(super) now: Timestamp,
    /// Objects that are created later, by time.
    pub(super) arrivals: BTreeMap<Timestamp, Vec<Manifest>>,
    /// Creation times of jobs, by UID, that the input of this instant says. A cluster made their Workloads with them.
    pub(super) creation_times: BTreeMap<String, Timestamp>,
    /// Latest warning of each object.
    pub(super) warnings: BTreeMap<(Kind, ObjectKey), Warning>,
    /// Whether the simulation ended because it was stable.
    pub(super) settled: bool,
    /// Whether the simulation ended because of a livelock.
    pub(super) livelocked: bool,
    livelock_detector: LivelockDetector,
    /// Number of writes to jobs and Workloads so far.
    writes_so_far: u64,
    /// Asked before each step; `None` for a simulation without a limit.
    keep_going: Option<KeepGoing>,
}

impl Simulation {
    /// Creates an empty cluster whose core does not lead yet.
    pub fn new(options: SimulationOptions) -> Result<Self, String> {
        let tracked = options.core.lifecycle.pods_ready.is_some();
        let readiness = if tracked { Readiness::Tracked } else { Readiness::Untracked };
        let core = CoreSettings {
            writes: WriteLimits {
                queue_status_interval: None,
                status_writes_per_second: None,
                ..options.core.writes
            },
            snapshot: SnapshotIntervals {
                queues: SNAPSHOT_INTERVAL,
                drift_check: SignedDuration::MAX,
                head_check: SignedDuration::MAX,
            },
            // A test halts the writes of a manager by them; an estimate of the same process would wait for ever.
            failpoints: Failpoints::default(),
            ..options.core
        };
        let mut simulation = Self {
            harness: Harness::new(core, FakeApiServer::new(false)),
            job_runner: JobRunner::new(options.run_for, readiness).with_recorded(options.recorded),
            timeline: Timeline::default(),
            applier: ManifestApplier::new(options.admission)?,
            pod_owners: PodOwners::default(),
            start: options.start,
            now: options.start,
            arrivals: BTreeMap::new(),
            creation_times: BTreeMap::new(),
            warnings: BTreeMap::new(),
            settled: false,
            livelocked: false,
            livelock_detector: LivelockDetector::default(),
            writes_so_far: 0,
            keep_going: None,
        };
        simulation.apply_deltas(simulation.harness.lists());
        Ok(simulation)
    }

    /// Limits the simulation. What it says after it was stopped is worth nothing.
    pub(super) fn limit(&mut self, keep_going: Option<&KeepGoing>) {
        self.keep_going = keep_going.cloned();
    }

    /// Returns whether it has not been stopped.
    pub(super) fn may_go_on(&self) -> bool {
        self.keep_going.as_ref().is_none_or(|may_go_on| may_go_on())
    }

    /// Returns the simulated time since the start.
    pub(super) fn elapsed(&self) -> SignedDuration {
        self.now.duration_since(self.start)
    }

    /// Runs until no stopping job is left, or until a livelock.
    pub fn run_until_stable(&mut self) {
        self.begin();
        while let Some(at) = self.job_runner.next_stop().filter(|_| self.may_go_on()) {
            self.advance_to(at);
            if !self.livelock_detector.within_limits(&self.timeline.entries, self.harness.server.count()) {
                return;
            }
        }
    }

    /// Makes the core lead if it does not yet, so that all existing objects are decided on together, and runs one
    /// instant.
    fn begin(&mut self) {
        self.adopt_pods();
        if !self.harness.core.is_leading() {
            self.deliver_deltas();
            self.expect_runs();
            self.apply_deltas(vec![Delta::Leading(true)]);
            self.observe_existing();
        }
        self.run_instant();
    }

    /// Notes how long existing Workloads run, before their jobs are observed.
    fn expect_runs(&mut self) {
        for workload in self.harness.server.all(Kind::Workload) {
            self.job_runner.expect_run(workload, self.now);
        }
    }

    /// Starts or stops all existing jobs and Workloads as their state requires.
    fn observe_existing(&mut self) {
        for kind in self.harness.core.kinds().to_vec().into_iter().filter(|kind| is_simulated(*kind)) {
            for key in self.harness.server.keys_of(kind) {
                self.observe_object(kind, &key);
            }
        }
    }

    /// Runs the simulation until the given end.
    pub fn run(&mut self, until: Until) {
        self.run_to(until, &|_| false);
    }

    /// Like `run`, but ends where the cluster is in this state; returns whether it has ended elsewhere, by itself.
    pub(super) fn run_to(&mut self, until: Until, is_reached: &dyn Fn(&Self) -> bool) -> bool {
        self.begin();
        (self.settled, self.livelocked) = (false, false);
        let end = match until {
            Until::Settled => None,
            Until::After(length) => self.start.checked_add(length).ok(),
        };
        let (mut idle, mut last_write) = (0, self.now);
        while !is_reached(self) && self.may_go_on() {
            let expected = [self.job_runner.next_due(), self.arrivals.keys().next().copied()];
            let expected = expected.into_iter().flatten().min();
            let next = [expected, self.harness.core.next_due()].into_iter().flatten().min();
            let Some(next) = next.filter(|_| expected.is_some() || idle < MAX_IDLE_TIMERS) else {
                self.now = end.unwrap_or(last_write).max(last_write);
                self.settled = true;
                return true;
            };
            if let Some(end) = end.filter(|end| next > *end) {
                self.now = end.max(self.now);
                return true;
            }
            let before = self.writes_so_far;
            self.advance_to(next);
            if self.writes_so_far == before {
                idle += 1;
            } else {
                (idle, last_write) = (0, self.now);
                let within_limits =
                    self.livelock_detector.within_limits(&self.timeline.entries, self.harness.server.count());
                if until == Until::Settled && !within_limits {
                    self.livelocked = true;
                    return true;
                }
            }
        }
        false
    }

    /// Whether a condition of a Workload that has quota, and is not being evicted, is True.
    pub(super) fn has(&self, workload: &ObjectKey, condition: &str) -> bool {
        self.harness.server.get(Kind::Workload, workload).is_some_and(|object| {
            is_true(object, "QuotaReserved") && !is_true(object, "Evicted") && is_true(object, condition)
        })
    }

    /// Advances time and runs all due job steps and arrivals.
    fn advance_to(&mut self, to: Timestamp) {
        let min_next = self.now.checked_add(MIN_TIME_STEP).unwrap_or(Timestamp::MAX);
        self.now = if to > self.now { to } else { min_next };
        for ((kind, key), step) in self.job_runner.take_due(self.now) {
            self.run_step(kind, &key, step);
        }
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| *entry.key() <= self.now) {
            self.livelock_detector.reset();
            for manifest in entry.remove() {
                self.apply_manifest(manifest);
            }
        }
        self.run_instant();
    }

    /// Processes deltas and due timers of the core until a fixed point is reached at this instant.
    fn run_instant(&mut self) {
        for _ in 0..MAX_ROUNDS {
            if !self.may_go_on() {
                return;
            }
            self.deliver_deltas();
            if self.follow_pod_owners() {
                continue;
            }
            if self.harness.core.next_due().is_none_or(|due| due > self.now) {
                self.creation_times.clear();
                return;
            }
            self.apply_deltas(vec![Delta::Tick]);
        }
        self.warn_no_fixed_point();
    }

    /// Delivers all pending deltas to the core.
    pub(super) fn deliver_deltas(&mut self) {
        self.harness.receive();
        let objects = self.harness.server.count();
        for _ in 0..objects.saturating_mul(64).saturating_add(MAX_ROUNDS) {
            if self.harness.inbox.is_empty() || !self.may_go_on() {
                return;
            }
            let batch = self.next_batch();
            self.apply_deltas(batch);
        }
        self.warn_no_fixed_point();
    }

    /// No fixed point at this instant: records a warning; the caller advances the clock.
    fn warn_no_fixed_point(&mut self) {
        let id = (Kind::Namespace, ObjectKey::cluster("simulation"));
        let note =
            format!("no fixed point reached at {:#}; results from here on may be incomplete", self.elapsed());
        self.warnings.insert(id, Warning { reason: String::new(), note });
    }

    /// Removes and returns the next batch: all deltas up to and including the next job, as the core needs each job
    /// version.
    fn next_batch(&mut self) -> Vec<Delta> {
        let is_job = |delta: &Delta| {
            matches!(
                delta,
                Delta::Applied { kind: Kind::Job(_) | Kind::Pod, .. }
                    | Delta::Read { kind: Kind::Job(_) | Kind::Pod, .. }
            )
        };
        let end = self
            .harness
            .inbox
            .iter()
            .position(is_job)
            .map_or(self.harness.inbox.len(), |index| index.saturating_add(1));
        self.harness.inbox.drain(..end).collect()
    }

    fn apply_deltas(&mut self, deltas: Vec<Delta>) {
        for delta in &deltas {
            match delta {
                Delta::Applied { kind, object } if is_simulated(*kind) => {
                    self.observe_object(*kind, &key_of(object));
                }
                Delta::Deleted { kind, key, uid } => {
                    self.job_runner.forget(&(*kind, key.clone()));
                    match kind {
                        Kind::Pod => self.pod_owners.forget_pod(uid),
                        Kind::Job(_) => self.end_loaded_pods(uid),
                        Kind::Workload if self.pod_owners.has_pods(uid) => self.end_loaded_pods(uid),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        for effect in self.harness.core.apply_all(deltas, self.now) {
            self.execute_effect(effect);
        }
        self.harness.receive();
    }

    fn execute_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Write(write) => {
                let (kind, key) = (write.kind, write.key.clone());
                let old = self.harness.server.get(kind, &key).filter(|_| kind == Kind::Workload);
                let old = old.map(StatusSummary::from_workload);
                let created = self.creation_times.get(text_at(&write.body, OWNER_UID)).copied();
                let at = created.filter(|_| write.verb == Verb::Create).unwrap_or(self.now);
                if self.harness.execute(write, at) {
                    let elapsed = self.elapsed();
                    if is_simulated(kind) {
                        self.writes_so_far = self.writes_so_far.saturating_add(1);
                        self.observe_object(kind, &key);
                    }
                    if let Some((old, new)) = old.zip(self.harness.server.get(kind, &key)) {
                        self.timeline.observe(&old, new, elapsed);
                    }
                }
            }
            Effect::Refetch { kind, key } => self.harness.read(kind, key),
            // Warnings of Workloads are already in their conditions.
            Effect::Event(event) if event.is_warning() && event.kind != Kind::Workload => {
                let warning = Warning { reason: event.reason, note: event.note };
                self.warnings.insert((event.kind, event.key), warning);
            }
            Effect::Event(_) | Effect::Observe(_) | Effect::LogWaitingHead { .. } => {}
        }
    }

    /// Passes a new or changed object to the timeline and the job runner.
    fn observe_object(&mut self, kind: Kind, key: &ObjectKey) {
        let Some(object) = self.harness.server.get(kind, key) else {
            return;
        };
        if kind == Kind::Workload {
            self.timeline.register(object);
        }
        // Jobs do not start or stop before the core leads.
        if !self.harness.core.is_leading() {
            return;
        }
        if kind == Kind::Workload {
            self.job_runner.expect_run(object, self.now);
        }
        let related = self.harness.core.units().cache.related();
        let uid = text_at(object, "/metadata/uid");
        let has_stopped = kind == Kind::Workload
            && self.pod_owners.has_pods(uid)
            && !ConditionFlags::from_workload(object).runs();
        let stopped = has_stopped.then(|| uid.to_owned());
        if let Some(step) = self.job_runner.observe((kind, key.clone()), object, related, self.now) {
            self.run_step(kind, key, step);
        }
        if let Some(uid) = stopped {
            self.end_loaded_pods(&uid);
        }
    }

    fn run_step(&mut self, kind: Kind, key: &ObjectKey, step: JobStep) {
        let (now, elapsed) = (self.now, self.elapsed());
        let before = self
            .harness
            .server
            .get(kind, key)
            .filter(|_| kind == Kind::Workload)
            .map(StatusSummary::from_workload);
        // The core already has the spec of a Workload with reserved quota.
        let known = kind == Kind::Workload && self.harness.core.engine().charge_of(key).is_some();
        let related = self.harness.core.units().cache.related();
        let apply = |object: &mut Value| apply_step(step, kind, object, related, now);
        if !self.harness.server.edit_status(kind, key, known, apply) {
            return;
        }
        self.writes_so_far = self.writes_so_far.saturating_add(1);
        if matches!((kind, step), (Kind::Job(_), JobStep::Stop | JobStep::End)) {
            let uid = self.harness.server.get(kind, key).map(|job| text_at(job, "/metadata/uid").to_owned());
            self.end_loaded_pods(&uid.unwrap_or_default());
        }
        if let (Some(old), Some(new)) = (before, self.harness.server.get(kind, key)) {
            self.timeline.observe(&old, new, elapsed);
        }
    }

    /// Returns all objects of the kinds that the core watches, as a server lists them.
    pub fn stored(&self) -> Vec<Value> {
        let kinds = self.harness.core.kinds().iter();
        let objects = kinds.flat_map(|kind| self.harness.server.all(*kind).map(move |object| (kind, object)));
        let typed = |(kind, object): (&Kind, &Value)| {
            let (resource, mut object) = (kind.resource(), object.clone());
            if let Some(fields) = object.as_object_mut() {
                fields.insert("apiVersion".to_owned(), resource.api_version().into());
                fields.insert("kind".to_owned(), resource.kind.into());
            }
            object
        };
        objects.map(typed).collect()
    }

    /// Records a problem with an input object.
    pub fn add_problem(&mut self, problem: Problem) {
        self.applier.problems.push(problem);
    }

    /// Applies manifests as a change to the current state.
    pub fn apply_change(&mut self, what: &str, manifests: Manifests) {
        self.begin_change(what);
        self.apply_all(manifests);
    }

    /// Notes that a change comes now.
    pub(super) fn begin_change(&mut self, what: &str) {
        self.timeline.record_change(what, self.elapsed());
        self.livelock_detector.reset();
    }
}

/// Returns whether the job runner simulates objects of this kind.
const fn is_simulated(kind: Kind) -> bool {
    matches!(kind, Kind::Workload | Kind::Job(_) | Kind::Pod)
}
