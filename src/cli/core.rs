//! The core task: the only owner of the state.
//!
//! Invariants: the one place where the state's clock is read; effects leave in the order in which the state gave them;
//! nothing here waits for the network; the pulse is stamped at least once a second while deltas are taken in or waited for.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::batch_pacing::BatchPacer;
use crate::kube::heartbeat::Heartbeat;
use crate::kube::task_queue::Task;
use crate::lifecycle::clock::SlewedClock;
use crate::state::{Delta, Effect, Event, Observation, Reconciler, Snapshot};
use crate::view::counters::Counters;
use crate::view::metrics::Role;

/// Deltas taken in before effects go out and readers see the result.
const MAX_BATCH: usize = 256;
/// Least time between two snapshots while deltas keep coming.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_millis(20);
/// Least time between two ticks.
const MIN_TICK_INTERVAL: Duration = Duration::from_millis(5);
/// Longest time without a turn.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// The state's clock.
struct SteadyClock {
    clock: SlewedClock,
    origin: Instant,
}

impl SteadyClock {
    fn start() -> Self {
        Self { clock: SlewedClock::new(Timestamp::now(), Duration::ZERO), origin: Instant::now() }
    }

    fn now(&mut self) -> Timestamp {
        self.clock.read(Timestamp::now(), self.origin.elapsed())
    }
}

/// What the core task works with.
pub(super) struct Core {
    pub(super) state: Reconciler,
    pub(super) deltas: mpsc::Receiver<Delta>,
    pub(super) tasks: mpsc::UnboundedSender<Task>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    pub(super) leading: watch::Receiver<Option<i32>>,
    pub(super) synced: watch::Sender<bool>,
    pub(super) counters: Arc<Counters>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) heartbeat: Heartbeat,
    /// The role while leading.
    pub(super) role: Role,
}

impl Core {
    /// Runs on a thread of its own: a long step holds up nobody else, and its timers wait for nobody else's work. The
    /// receiver fires when it ends.
    pub(super) fn start(self) -> std::io::Result<oneshot::Receiver<()>> {
        let (ended, end) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("core".to_owned()).spawn(move || {
            runtime.block_on(self.run());
            // The receiver is gone only when the process ends.
            let _ = ended.send(());
        })?;
        Ok(end)
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let mut shown = Instant::now();
        let mut pace = BatchPacer::new(Instant::now());
        let mut clock = SteadyClock::start();
        let mut stale = false;
        loop {
            self.heartbeat.beat();
            #[cfg(feature = "moments")]
            super::failpoints::hang_if_requested();
            let due = self.time_until_due(clock.now());
            let publish = shown + MIN_SNAPSHOT_INTERVAL;
            tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => return,
                changed = self.leading.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let leading = self.leading.borrow_and_update().is_some();
                    batch.push(Delta::Leading(leading));
                }
                () = tokio::time::sleep_until(publish), if stale => {}
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => batch.push(Delta::Tick),
                count = self.deltas.recv_many(&mut batch, MAX_BATCH) => {
                    if count == 0 {
                        return;
                    }
                }
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
            }
            let busy = !batch.is_empty();
            stale |= busy;
            if busy {
                let began = Instant::now();
                let deltas = batch.drain(..).inspect(|_| self.heartbeat.beat());
                let effects = self.state.apply_all(deltas, clock.now());
                self.time_attempts(&effects, began.elapsed());
                for effect in effects {
                    self.execute_effect(effect);
                }
            }
            if stale && Instant::now() >= publish {
                self.published.store(Arc::new(self.state.snapshot()));
                shown = Instant::now();
                stale = false;
                // Told after the first snapshot that has everything.
                if self.state.is_synced() {
                    self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
                }
            }
            if busy {
                let pressed = !self.state.is_synced() || self.deltas.len() >= MAX_BATCH / 2;
                std::thread::sleep(pace.pause_after_batch(Instant::now(), pressed));
            }
        }
    }

    fn time_until_due(&self, now: Timestamp) -> Option<Duration> {
        let due = self.state.next_due()?;
        Some(Duration::try_from(due.duration_since(now)).unwrap_or_default().max(MIN_TICK_INTERVAL))
    }

    /// Cycles run back to back within one delta: its time is theirs, each an equal part.
    fn time_attempts(&self, effects: &[Effect], took: Duration) {
        let attempt = |effect: &Effect| match effect {
            Effect::Observe(Observation::AdmissionAttempt { admitted }) => Some(*admitted),
            _ => None,
        };
        let number = u32::try_from(effects.iter().filter_map(attempt).count()).unwrap_or(u32::MAX);
        for admitted in effects.iter().filter_map(attempt) {
            self.counters.observe_attempt_duration(admitted, took / number.max(1), self.role);
        }
    }

    /// Receivers end only with the process.
    fn execute_effect(&self, effect: Effect) {
        match effect {
            Effect::Write(write) => drop(self.tasks.send(Task::Write(write))),
            Effect::Refetch { kind, key } => drop(self.tasks.send(Task::Refetch { kind, key })),
            Effect::Event(event) => drop(self.events.send(event)),
            Effect::Observe(observation) => self.counters.observe(&observation, self.role),
        }
    }
}
