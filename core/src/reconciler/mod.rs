//! The reconciler: applies deltas, decides, and returns the writes and events that follow.
//!
//! One owner calls `apply_all` with the received deltas and performs the effects. Data flows in one direction: delta →
//! `cache` → `membership` → scheduler → decisions → statuses → `writes`. Invariants:
//! - the ledger follows from reservations alone: the statuses of the objects, plus decisions whose write is in flight
//!   (I1);
//! - at most one write per object is in flight, and it carries the resourceVersion that it was decided on (I12); only the
//!   write that ends a Workload may overtake the write of its second pass, with the same version, so that one lands;
//! - an object that cannot be read, and a write that fails, affect that object alone (I23);
//! - before all lists are complete nothing is decided, and without leadership nothing is written (I16, I17).

mod audit;
mod cycles;
mod events;
mod expiring;
pub mod failpoints;
mod history_feed;
mod ingest;
mod inspect;
mod kinds;
mod list_sync;
mod marks;
mod membership;
mod messages;
mod nodes;
mod provisioning;
mod publish;
mod queue_facts;
mod queues;
mod schedule;
mod scheduler_input;
mod second_pass;
mod settings;
mod single_cycle;
mod steps;
mod timers;
mod unit;
mod usage_sums;
mod warnings;
mod work_queue;
mod workload;
mod write_results;
mod writes;

pub use inspect::why_no_workload;
pub use messages::{
    Delta, Effect, Event, EventType, Observation, ObservationLabels, Verb, Write, WriteClass, WriteOutcome,
    WriteResult,
};
pub use settings::{CopiedKeys, CoreGates, CoreSettings, HISTORY_BYTES, SnapshotIntervals, WriteLimits};
pub use writes::round_queue::{Place, RoundQueue};

use crate::cache::{Cache, DecodeGates, Kind};
use crate::history::Ring;
use crate::scheduler::Engine;
use crate::snapshot::SnapshotBuilder;
use events::unreadable_event;
use history_feed::HistoryFeed;
use jiff::Timestamp;
use kinds::rules;
use list_sync::ListSync;
use membership::Membership;
use provisioning::Provisioning;
use queues::admission_checks::AdmissionChecks;
use queues::{QueueState, QueueStatuses, QueueUpdates};
use scheduler_input::SchedulerInput;
use second_pass::passes::SecondPasses;
use second_pass::queue::SecondPassQueue;
use unit::units::Units;
use warnings::Warnings;
use work_queue::{ReconcileKey, WorkQueue};
use workload::WorkloadFacts;
use writes::in_flight::Writes;
use writes::status_rate_limit::StatusRateLimiter;
use writes::workload_queue::WorkloadWriteQueue;

/// The reconciler: leadership, progress of the first lists, and the parts that own all other state.
pub struct Reconciler {
    settings: CoreSettings,
    leading: bool,
    lists: ListSync,
    cache: Cache,
    engine: Engine,
    work_queue: WorkQueue,
    membership: Membership,
    queues: QueueState,
    second_passes: SecondPassQueue,
    writes: Writes,
    workload_write_queue: WorkloadWriteQueue,
    status_rate_limiter: StatusRateLimiter,
    warnings: Warnings,
    snapshot_builder: SnapshotBuilder,
    history: Ring,
}

impl Reconciler {
    /// Creates a reconciler without objects.
    pub fn new(settings: CoreSettings) -> Self {
        let kinds = settings.kinds().into_iter().chain(settings.passing_kinds()).collect();
        Self::watching(settings, kinds)
    }

    /// Creates a reconciler without objects that gets these kinds only. It may lead only if they are all that the
    /// settings need.
    pub fn watching(settings: CoreSettings, kinds: Vec<Kind>) -> Self {
        let gates = DecodeGates {
            admission_gated_by: settings.gates.admission_gated_by,
            priority_boost: settings.gates.priority_boost,
            elastic_jobs: settings.gates.elastic_jobs,
            partial_admission: settings.engine.gates.partial_admission,
            identifier_annotations: settings.gates.identifier_annotations,
            pod_units: settings.manages_pods(),
        };
        let mut cache = Cache::new(gates, settings.transform.clone());
        cache.set_open_kinds(settings.open_kinds());
        cache.set_submitter_key(settings.copied.submitter.as_deref());
        let mut engine = Engine::new(settings.engine.clone());
        engine.follow_past_usage(true);
        Self {
            leading: false,
            lists: ListSync::new(kinds),
            cache,
            engine,
            work_queue: WorkQueue::default(),
            membership: Membership::default(),
            queues: QueueState::default(),
            second_passes: SecondPassQueue::default(),
            writes: Writes::default(),
            workload_write_queue: WorkloadWriteQueue::default(),
            status_rate_limiter: StatusRateLimiter::new(settings.writes.status_writes_per_second),
            warnings: Warnings::default(),
            snapshot_builder: SnapshotBuilder::default(),
            history: Ring::new(settings.gates.history_bytes),
            settings,
        }
    }

    /// Applies one delta and returns the effects. Never fails: invalid input leads to an event on its object.
    pub fn apply(&mut self, delta: Delta, now: Timestamp) -> Vec<Effect> {
        self.apply_all([delta], now)
    }

    /// Applies several deltas, decides on them together, and returns the effects.
    pub fn apply_all(&mut self, deltas: impl IntoIterator<Item = Delta>, now: Timestamp) -> Vec<Effect> {
        self.history.set_time(now);
        for delta in deltas {
            self.handle_delta(delta, now);
        }
        self.reconcile(now);
        self.cache.clear_raw_objects();
        self.writes.take_effects()
    }

    fn handle_delta(&mut self, delta: Delta, now: Timestamp) {
        match delta {
            Delta::Applied { kind, object } => self.ingest(kind, object, None),
            Delta::Workload(object) => self.ingest_workload(&object),
            Delta::Deleted { kind, key, uid } => self.record_deletion(kind, &key, Some(&uid)),
            Delta::Read { kind, key, object } => self.handle_read(kind, &key, object),
            Delta::Restarted { kind } => self.cache.start_list(kind),
            Delta::Synced { kind } => self.finish_list(kind),
            Delta::Unread { kind } => kinds::mark_unread(self, kind),
            Delta::Written(result) => self.handle_write_result(result, now),
            Delta::Leading(leading) => self.set_leading(leading),
            Delta::PodsReadyLimits(limits) => {
                if let Some(current) = &mut self.settings.lifecycle.pods_ready {
                    *current = limits;
                    // A time may have passed already.
                    self.mark_workloads(self.cache.keys(Kind::Workload));
                }
            }
            Delta::Tick => {}
        }
    }

    /// Returns the latest time at which `Tick` must be applied.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.leading {
            // Counts that are behind: nothing else may come to a follower for long.
            return self.snapshot_builder.queues_due();
        }
        let expiry = self.engine.next_reservation_expiry();
        self.work_queue.next_due().into_iter().chain(expiry).min()
    }

    /// Returns whether the first lists of all kinds are complete.
    pub fn is_synced(&self) -> bool {
        self.lists.is_complete()
    }

    /// Returns how many pods were read as members of units: one for each version of a pod that is managed.
    pub const fn unit_pod_reads(&self) -> u64 {
        self.cache.unit_pod_reads()
    }

    /// Returns the kinds that the reconciler watches.
    pub fn kinds(&self) -> &[Kind] {
        self.lists.kinds()
    }

    /// Returns whether this replica may write.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Returns the input of conversions for the scheduler.
    const fn scheduler_input(&self) -> SchedulerInput<'_> {
        SchedulerInput { cache: &self.cache, settings: &self.settings }
    }

    /// Returns the units with the caches and settings that relate them to Workloads.
    pub const fn units(&self) -> Units<'_> {
        Units { cache: &self.cache, settings: &self.settings }
    }

    const fn provisioning(&self) -> Provisioning<'_> {
        Provisioning { cache: &self.cache, settings: &self.settings }
    }

    const fn workload_facts(&self) -> WorkloadFacts<'_> {
        WorkloadFacts {
            cache: &self.cache,
            settings: &self.settings,
            engine: &self.engine,
            writes: &self.writes,
        }
    }

    const fn second_passes(&mut self) -> SecondPasses<'_> {
        SecondPasses {
            cache: &self.cache,
            settings: &self.settings,
            engine: &mut self.engine,
            queue: &mut self.second_passes,
            writes: &mut self.writes,
            work_queue: &mut self.work_queue,
        }
    }

    const fn admission_checks(&self) -> AdmissionChecks<'_> {
        AdmissionChecks { cache: &self.cache, gates: &self.settings.gates }
    }

    /// Returns the input of the history.
    const fn history_feed(&mut self) -> HistoryFeed<'_> {
        HistoryFeed {
            cache: &self.cache,
            settings: &self.settings,
            engine: &self.engine,
            assumed: &self.membership.assumed,
            ring: &mut self.history,
        }
    }

    /// Returns the history of the last 24 hours, for a recorder, which takes its entries, and for readers.
    pub const fn history(&mut self) -> &mut Ring {
        &mut self.history
    }

    const fn queue_updates(&mut self) -> QueueUpdates<'_> {
        QueueUpdates {
            cache: &self.cache,
            settings: &self.settings,
            engine: &mut self.engine,
            queues: &mut self.queues,
            work_queue: &mut self.work_queue,
        }
    }

    const fn queue_statuses(&self) -> QueueStatuses<'_> {
        QueueStatuses {
            cache: &self.cache,
            settings: &self.settings,
            engine: &self.engine,
            queues: &self.queues,
        }
    }

    /// Starts or stops dropping the changes that wake parked workloads.
    pub fn drop_wakeups(&mut self, drops: bool) {
        self.engine.drop_wakeups(drops);
    }

    /// Starts or stops leading. A new leader adds every object to the work queue; assumed admissions are dropped both
    /// times.
    fn set_leading(&mut self, leading: bool) {
        self.leading = leading;
        self.engine.follow_past_usage(!leading);
        self.writes.clear();
        self.workload_write_queue.clear();
        self.queues.waiting_heads.clear();
        for key in self.membership.assumed.clear() {
            self.engine.release(&key);
            self.work_queue.add(ReconcileKey::workload(key));
        }
        let second_passes = self.second_passes.clear();
        self.mark_workloads(second_passes);
        if leading {
            // The former leader may have ended before it sent its events.
            let unreadable = self.cache.unreadable().iter();
            self.writes.emit_all(unreadable.map(|(kind, key, object)| unreadable_event(kind, key, object)));
            self.work_queue.add_all(self.all_keys());
        }
    }

    /// Returns everything that has steps.
    fn all_keys(&self) -> Vec<ReconcileKey> {
        let with_steps = self.kinds().iter().filter(|kind| rules(kind).steps().is_some());
        let objects = with_steps
            .flat_map(|kind| self.cache.keys(*kind).into_iter().map(|key| ReconcileKey::Object(*kind, key)));
        let units = self.units();
        let jobs = self.cache.jobs().flat_map(|((kind, key), _)| units.units_of_job_with_pods(*kind, key));
        let units = jobs.chain(self.cache.units().cloned()).map(ReconcileKey::Unit);
        let pods = self.cache.workloads_of_pods().cloned().map(ReconcileKey::Pods);
        objects.chain(units).chain(pods).collect()
    }

    /// Completes a list: known objects that were not in it were deleted.
    fn finish_list(&mut self, kind: Kind) {
        for key in self.cache.finish_list(kind) {
            self.record_deletion(kind, &key, None);
        }
        kinds::set_read(self, kind, true);
        self.lists.mark_listed(kind);
        if let Kind::Related(kind) = kind {
            self.read_jobs_awaiting(kind);
        }
    }
}
