//! The core task, which owns the state.
//!
//! Invariants: the state's clock is read only here, and is the API server's: a wrong clock of the node neither deletes objects
//! before their retention period ends nor enters a written time; effects are sent in the order in which the state returned
//! them; nothing here waits for the network; the heartbeat is stamped at least once a second while the core processes or awaits
//! deltas.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::batch_pacing::BatchPacer;
use super::core_queries::CoreQuery;
use crate::history::Entry;
use crate::kube::heartbeat::Heartbeat;
use crate::kube::server_clock::ServerClock;
use crate::kube::task_queue::Task;
use crate::lifecycle::clock::SlewedClock;
use crate::metrics::counters::Counters;
use crate::metrics::model::Role;
use crate::metrics::recent::RecentDecisions;
use crate::reconciler::{Delta, Effect, Event, Observation, Reconciler};
use crate::snapshot::{Snapshot, WaitingHead};

/// Maximum number of deltas that are processed before effects are sent and a snapshot is published.
const MAX_BATCH: usize = 256;
/// Minimum interval between two snapshots while deltas keep arriving.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum interval between two ticks.
const MIN_TICK_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum time between two heartbeats while the core is idle.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Slewed clock of the state.
struct SteadyClock {
    server: Arc<ServerClock>,
    clock: SlewedClock,
    origin: Instant,
    /// Whether the clock was started from the API server's time.
    follows: bool,
}

impl SteadyClock {
    fn start(server: Arc<ServerClock>) -> Self {
        let clock = SlewedClock::new(server.now(), Duration::ZERO);
        Self { server, clock, origin: Instant::now(), follows: false }
    }

    fn now(&mut self) -> Timestamp {
        let (wall, at) = (self.server.now(), self.origin.elapsed());
        if !self.follows && self.server.is_known() {
            // No object has been read before this response, so no time of the local clock was used.
            (self.clock, self.follows) = (SlewedClock::new(wall, at), true);
        }
        self.clock.read(wall, at)
    }
}

/// The state and channels of the core task.
pub(super) struct Core {
    pub(super) state: Reconciler,
    pub(super) deltas: mpsc::Receiver<Delta>,
    pub(super) queries: mpsc::Receiver<CoreQuery>,
    pub(super) tasks: mpsc::UnboundedSender<Task>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    pub(super) leading: watch::Receiver<Option<i32>>,
    pub(super) synced: watch::Sender<bool>,
    pub(super) counters: Arc<Counters>,
    pub(super) recent: Arc<RecentDecisions>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) heartbeat: Heartbeat,
    /// Receives the entries of the history for the durable record; `None` in a process that does not keep it.
    pub(super) recorder: Option<std::sync::mpsc::Sender<Vec<Entry>>>,
    /// The API server's clock.
    pub(super) clock: Arc<ServerClock>,
    /// Metric label of this manager while it leads.
    pub(super) role: Role,
}

impl Core {
    /// Runs on its own thread, so that a long step delays no other task, and other tasks do not delay the core's
    /// timers. The returned receiver fires when the core ends.
    pub(super) fn start(self) -> std::io::Result<oneshot::Receiver<()>> {
        let (ended, end) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("core".to_owned()).spawn(move || {
            runtime.block_on(self.run());
            // The receiver is dropped only when the process ends.
            let _ = ended.send(());
        })?;
        Ok(end)
    }

    async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let mut published_at = Instant::now();
        let mut pacer = BatchPacer::new(Instant::now());
        let mut clock = SteadyClock::start(Arc::clone(&self.clock));
        let (mut stale, mut version) = (false, 0_u64);
        loop {
            self.heartbeat.beat();
            super::failpoints::hang_if_requested();
            self.state.drop_wakeups(super::failpoints::wakeups_are_dropped());
            let due = self.time_until_due(clock.now());
            let publish = published_at + MIN_SNAPSHOT_INTERVAL;
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
                // Polled before the deltas, which may always be ready. The number of waiting questions is bounded.
                Some(query) = self.queries.recv() => query.answer(&mut self.state, clock.now()),
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
            self.send_entries(clock.now());
            if stale && Instant::now() >= publish {
                version = version.wrapping_add(1);
                let published = Some(Timestamp::now());
                let snapshot = Snapshot { version, published_at: published, ..self.state.snapshot() };
                let snapshot = super::failpoints::with_requested_drift(snapshot);
                self.published.store(Arc::new(snapshot));
                published_at = Instant::now();
                stale = false;
                // Signalled only after the first complete snapshot is published.
                if self.state.is_synced() {
                    self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
                }
            }
            if busy {
                let skip_pause = !self.state.is_synced() || self.deltas.len() >= MAX_BATCH / 2;
                std::thread::sleep(pacer.pause_after_batch(Instant::now(), skip_pause));
            }
        }
    }

    /// Sends new entries of the history to the record, even while nothing changes, because an hour may have ended.
    fn send_entries(&mut self, now: Timestamp) {
        let Some(recorder) = &self.recorder else { return };
        let entries = self.state.history().take_entries(now);
        if !entries.is_empty() {
            // The receiver is dropped only when the process ends.
            let _ = recorder.send(entries);
        }
    }

    fn time_until_due(&self, now: Timestamp) -> Option<Duration> {
        let due = self.state.next_due()?;
        Some(Duration::try_from(due.duration_since(now)).unwrap_or_default().max(MIN_TICK_INTERVAL))
    }

    /// Records the duration of admission attempts. Cycles run back to back within one batch, so each gets an equal part
    /// of it.
    fn time_attempts(&self, effects: &[Effect], took: Duration) {
        let attempt = |effect: &Effect| match effect {
            Effect::Observe(Observation::AdmissionAttempt { admitted }) => Some(*admitted),
            _ => None,
        };
        let number = u32::try_from(effects.iter().filter_map(attempt).count()).unwrap_or(u32::MAX);
        for admitted in effects.iter().filter_map(attempt) {
            self.counters.observe_attempt_duration(admitted, took / number.max(1), self.role);
            self.recent.observe_cycle(took / number.max(1), std::time::Instant::now());
        }
    }

    /// Sends an effect. Send errors are ignored, because receivers are dropped only when the process ends.
    fn execute_effect(&self, effect: Effect) {
        match effect {
            Effect::Write(write) => drop(self.tasks.send(Task::Write(write))),
            Effect::Refetch { kind, key } => drop(self.tasks.send(Task::Refetch { kind, key })),
            Effect::Event(event) => drop(self.events.send(event)),
            Effect::Observe(observation) => {
                self.recent.observe(&observation, std::time::Instant::now());
                self.counters.observe(&observation, self.role);
            }
            Effect::LogWaitingHead { cluster_queue, head: WaitingHead { workload, since } } => {
                tracing::warn!(%cluster_queue, %workload, %since, "head fits and is not admitted");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn the_time_is_that_of_the_api_server() {
        for days in [-400, -110, 0, 110, 40_000] {
            let local = Timestamp::now().checked_add(SignedDuration::from_hours(24 * days)).unwrap();
            let server = Arc::new(ServerClock::starting_at(local));
            let mut clock = SteadyClock::start(Arc::clone(&server));
            assert!(clock.now().duration_since(local).abs() < SignedDuration::from_secs(5));
            server.observe(Timestamp::now());
            for _ in 0..3 {
                let off = clock.now().duration_since(Timestamp::now());
                assert!(off.abs() < SignedDuration::from_secs(5), "{off} with a clock {days} days ahead");
            }
        }
    }
}
