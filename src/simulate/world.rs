//! A cluster in memory in virtual time: the core, leading; the API server's double; the jobs.
//!
//! Everything that follows from what happens at one moment happens at that moment: writes land at once, and the scheduler
//! decides when all that is new has been taken in. Then time moves on to whatever is due next.
//! Invariant: the same input gives the same history, byte by byte; no clock is read.

use super::intake::Intake;
use super::manifest::{Manifest, Manifests, Problem};
use super::objects::key_of;
use super::patience::Patience;
use super::runs::{Runs, Turn, carry_out};
use super::server::Server;
use super::timeline::{Stand, Timeline};
use crate::admission::AdmissionSettings;
use crate::api::ObjectKey;
use crate::state::{Delta, Effect, Kind, Settings, State, WriteOutcome, WriteResult};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Rounds of decisions at one moment after which something goes in circles.
const ROUNDS: usize = 10_000;
/// Timers that fire one after the other without any consequence, after which nothing is expected any more.
const IDLE: u32 = 64;
/// Least step of time.
const STEP: SignedDuration = SignedDuration::from_millis(1);
/// Nobody watches the status of queues here, nor metrics: the report asks the scheduler.
const UNWATCHED: SignedDuration = SignedDuration::from_hours(24);

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the core decides by.
    pub core: Settings,
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
    pub(super) state: State,
    pub(super) server: Server,
    pub(super) runs: Runs,
    pub(super) timeline: Timeline,
    pub(super) intake: Intake,
    pub(super) start: Timestamp,
    pub(super) now: Timestamp,
    /// Objects that come later.
    pub(super) arrivals: BTreeMap<Timestamp, Vec<Manifest>>,
    /// Warnings about objects, each once.
    pub(super) warnings: BTreeMap<(Kind, ObjectKey), String>,
    /// Whether it ended because nothing was to be expected any more.
    pub(super) settled: bool,
    /// Whether it was given up because it would never end.
    pub(super) endless: bool,
    patience: Patience,
    inbox: VecDeque<Delta>,
    /// Writes on jobs and Workloads so far.
    consequences: u64,
}

impl Simulation {
    /// An empty cluster, in which nothing is decided yet.
    pub fn new(options: Options) -> Result<Self, String> {
        let core = Settings {
            queue_status_interval: None,
            picture_interval: UNWATCHED,
            told_per_second: None,
            audit_interval: SignedDuration::MAX,
            ..options.core
        };
        let mut simulation = Self {
            state: State::new(core),
            server: Server::new(false),
            runs: Runs::new(options.run_for),
            timeline: Timeline::default(),
            intake: Intake::new(options.admission)?,
            start: options.start,
            now: options.start,
            arrivals: BTreeMap::new(),
            warnings: BTreeMap::new(),
            settled: false,
            endless: false,
            patience: Patience::default(),
            inbox: VecDeque::new(),
            consequences: 0,
        };
        simulation.feed(simulation.server.list());
        Ok(simulation)
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> SignedDuration {
        self.now.duration_since(self.start)
    }

    /// Lets everything follow, until those who have to stop have stopped.
    pub fn settle(&mut self) {
        self.begin();
        while let Some(at) = self.runs.next_stop() {
            self.advance(at);
            if !self.patience.lasts(&self.timeline.entries, self.server.count()) {
                return;
            }
        }
    }

    /// Begins to decide, on everything that is there at once; later, on what is new.
    fn begin(&mut self) {
        if !self.state.leading() {
            self.deliver();
            self.feed(vec![Delta::Leading(true)]);
            self.begin_runs();
        }
        self.moment();
    }

    /// Everybody who is there already runs, or stops, from now on.
    fn begin_runs(&mut self) {
        for kind in Kind::all().into_iter().filter(|kind| is_played(*kind)) {
            for key in self.server.keys_of(kind) {
                self.watch_run(kind, &key);
            }
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, until: Until) {
        self.begin();
        (self.settled, self.endless) = (false, false);
        let end = match until {
            Until::Settled => None,
            Until::After(length) => self.start.checked_add(length).ok(),
        };
        let (mut idle, mut rest) = (0, self.now);
        loop {
            let expected = [self.runs.next(), self.arrivals.keys().next().copied()];
            let expected = expected.into_iter().flatten().min();
            let next = [expected, self.state.next_due()].into_iter().flatten().min();
            let Some(next) = next.filter(|_| expected.is_some() || idle < IDLE) else {
                self.now = end.unwrap_or(rest).max(rest);
                self.settled = true;
                return;
            };
            if let Some(end) = end.filter(|end| next > *end) {
                self.now = end.max(self.now);
                return;
            }
            let before = self.consequences;
            self.advance(next);
            if self.consequences == before {
                idle += 1;
            } else {
                (idle, rest) = (0, self.now);
                let lasts = self.patience.lasts(&self.timeline.entries, self.server.count());
                if until == Until::Settled && !lasts {
                    self.endless = true;
                    return;
                }
            }
        }
    }

    /// Moves time on and does what is due then.
    fn advance(&mut self, to: Timestamp) {
        let least = self.now.checked_add(STEP).unwrap_or(Timestamp::MAX);
        self.now = if to > self.now { to } else { least };
        for ((kind, key), turn) in self.runs.take(self.now) {
            self.turn(kind, &key, turn);
        }
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| *entry.key() <= self.now) {
            self.patience.renew();
            for manifest in entry.remove() {
                self.admit(manifest);
            }
        }
        self.moment();
    }

    /// Everything that follows at this moment.
    fn moment(&mut self) {
        for _ in 0..ROUNDS {
            self.deliver();
            if self.state.next_due().is_none_or(|due| due > self.now) {
                return;
            }
            self.feed(vec![Delta::Tick]);
        }
        self.give_up();
    }

    /// Hands the core everything that it has not seen yet.
    pub(super) fn deliver(&mut self) {
        self.inbox.append(&mut self.server.watch);
        let objects = self.server.count();
        for _ in 0..objects.saturating_mul(64).saturating_add(ROUNDS) {
            if self.inbox.is_empty() {
                return;
            }
            let batch = self.batch();
            self.feed(batch);
        }
        self.give_up();
    }

    /// Something goes in circles: it is told of, and time goes on.
    fn give_up(&mut self) {
        let id = (Kind::Namespace, ObjectKey::cluster("simulation"));
        self.warnings.insert(id, format!("what follows at {:#} does not come to an end", self.elapsed()));
    }

    /// What is decided on together: everything up to the next job, of which the core wants to see the whole object.
    fn batch(&mut self) -> Vec<Delta> {
        let of_job = |delta: &Delta| matches!(delta, Delta::Applied { kind: Kind::Job(_), .. });
        let end = self.inbox.iter().position(of_job).map_or(self.inbox.len(), |at| at.saturating_add(1));
        self.inbox.drain(..end).collect()
    }

    fn feed(&mut self, deltas: Vec<Delta>) {
        for delta in &deltas {
            match delta {
                Delta::Applied { kind, object } if is_played(*kind) => self.watch_run(*kind, &key_of(object)),
                Delta::Deleted { kind, key, .. } => self.runs.forget(&(*kind, key.clone())),
                _ => {}
            }
        }
        for effect in self.state.apply_all(deltas, self.now) {
            self.carry_out(effect);
        }
        self.inbox.append(&mut self.server.watch);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Write(write) => {
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                let old = self.server.get(kind, &key).filter(|_| kind == Kind::Workload).map(Stand::of);
                let outcome = self.server.write(write, self.now);
                if let WriteOutcome::Done(_) = &outcome {
                    let elapsed = self.elapsed();
                    if is_played(kind) {
                        self.consequences = self.consequences.saturating_add(1);
                        self.watch_run(kind, &key);
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
    fn watch_run(&mut self, kind: Kind, key: &ObjectKey) {
        let Some(object) = self.server.get(kind, key) else {
            return;
        };
        if kind == Kind::Workload {
            self.timeline.meet(object);
        }
        // Nothing starts or stops by itself before anything is decided.
        if !self.state.leading() {
            return;
        }
        if let Some(turn) = self.runs.observe((kind, key.clone()), object, self.now) {
            self.turn(kind, key, turn);
        }
    }

    fn turn(&mut self, kind: Kind, key: &ObjectKey, turn: Turn) {
        let (now, elapsed) = (self.now, self.elapsed());
        let before = self.server.get(kind, key).filter(|_| kind == Kind::Workload).map(Stand::of);
        // The core knows the rest of a Workload that holds quota.
        let known = kind == Kind::Workload && self.state.engine().charge_of(key).is_some();
        self.server.edit_status(kind, key, known, |object| carry_out(turn, kind, object, now));
        self.consequences = self.consequences.saturating_add(1);
        if let (Some(old), Some(new)) = (before, self.server.get(kind, key)) {
            self.timeline.observe(&old, new, elapsed);
        }
    }

    /// Takes note of something that should have been there and is not.
    pub fn miss(&mut self, problem: Problem) {
        self.intake.problems.push(problem);
    }

    /// Applies a change on top of what is there.
    pub fn change(&mut self, what: &str, manifests: Manifests) {
        self.timeline.note_change(what, self.elapsed());
        self.patience.renew();
        self.add(manifests);
    }
}

/// Whether the job side plays objects of the kind.
const fn is_played(kind: Kind) -> bool {
    matches!(kind, Kind::Workload | Kind::Job(_))
}
