//! Writes under way, at most one for each object, and the waits after failed ones.

use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::lifecycle::backoff;
use crate::reconciler::ReconcileKey;
use crate::reconciler::messages::{Effect, Verb, Write};
use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and longest wait after a write that failed for another reason than a conflict.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_millis(500);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(60);
/// Conflicts in a row that are decided again at once, on the object as it is then. Of an object that others write without a
/// pause more of them are to be expected; one whose every write meets a conflict must not take up all calls.
const MAX_IMMEDIATE_CONFLICT_RETRIES: u32 = 2;
/// First and longest wait after further ones.
const MIN_CONFLICT_BACKOFF: SignedDuration = SignedDuration::from_millis(50);
const MAX_CONFLICT_BACKOFF: SignedDuration = SignedDuration::from_secs(5);

/// What a write is for: decides what its end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePurpose {
    /// A reservation.
    Admit,
    /// What a second pass has found.
    SecondPass,
    /// Why a Workload waits.
    Explain,
    /// Status of a queue.
    QueueStatus,
    /// Anything else: the next plan follows from the objects alone.
    Other,
}

/// A write under way.
#[derive(Clone, Debug)]
pub(crate) struct InFlightWrite {
    pub(crate) id: u64,
    pub(crate) purpose: WritePurpose,
    /// To be told when it has landed.
    pub(crate) effects: Vec<Effect>,
    /// The status of a Workload that stands when it has landed.
    pub(crate) expected_status: Option<Arc<WorkloadStatus>>,
    /// What else gets another step at its end.
    pub(crate) on_behalf_of: Option<ReconcileKey>,
}

/// A write to be sent.
pub(crate) struct WriteRequest {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) verb: Verb,
    pub(crate) subresource: Option<&'static str>,
    pub(crate) body: Value,
    /// What a Workload's status is to be.
    pub(crate) status: Option<Arc<WorkloadStatus>>,
    /// Whether it is that then, whoever else wrote to it.
    pub(crate) response_metadata_only: bool,
    pub(crate) purpose: WritePurpose,
    pub(crate) effects: Vec<Effect>,
    pub(crate) on_behalf_of: Option<ReconcileKey>,
}

impl WriteRequest {
    /// A write of the object itself that has no other effect.
    pub(crate) fn new(kind: Kind, key: ObjectKey, verb: Verb, body: Value) -> Self {
        Self {
            kind,
            key,
            verb,
            subresource: None,
            body,
            status: None,
            response_metadata_only: false,
            purpose: WritePurpose::Other,
            effects: Vec::new(),
            on_behalf_of: None,
        }
    }

    /// The same write of the status subresource.
    pub(crate) fn of_status(self) -> Self {
        Self { subresource: Some("status"), ..self }
    }

    /// The same write with effects that follow when it has landed.
    pub(crate) fn with_effects(self, effects: Vec<Effect>) -> Self {
        Self { effects, ..self }
    }

    /// The same write for another object, which gets a step when the write ends.
    pub(crate) fn on_behalf_of(self, item: ReconcileKey) -> Self {
        Self { on_behalf_of: Some(item), ..self }
    }
}

/// Failures of an object's writes since the last one that landed.
#[derive(Clone, Copy, Debug)]
struct Failures {
    conflicts: u32,
    errors: u32,
    /// The object waits until then.
    backoff_until: Timestamp,
}

/// Writes under way and waits after failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    last_id: u64,
    explanation_count: usize,
    /// Status writes of Workloads under way.
    status_write_count: usize,
    in_flight: IndexMap<(Kind, ObjectKey), InFlightWrite>,
    failures: BTreeMap<(Kind, ObjectKey), Failures>,
    /// Workloads whose next write does not wait for the one before.
    bypassing: BTreeSet<ObjectKey>,
    /// Effects of the deltas at hand.
    effects: Vec<Effect>,
}

impl Writes {
    /// Whether the object may be written now: no write is under way and no wait is on.
    pub(crate) fn may_write(&self, kind: Kind, key: &ObjectKey, now: Timestamp) -> bool {
        let id = (kind, key.clone());
        !self.in_flight.contains_key(&id)
            && self.failures.get(&id).is_none_or(|failures| failures.backoff_until <= now)
    }

    /// Whether a write of the object is under way.
    pub(crate) fn is_in_flight(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.in_flight.contains_key(&(kind, key.clone()))
    }

    /// Whether what a second pass has found for a Workload is being written.
    pub(crate) fn is_second_pass_in_flight(&self, key: &ObjectKey) -> bool {
        let pending = self.in_flight.get(&(Kind::Workload, key.clone()));
        pending.is_some_and(|pending| pending.purpose == WritePurpose::SecondPass)
    }

    /// Gives up the write of a Workload that is under way: its result does not count, and the next does not wait for it.
    pub(crate) fn supersede(&mut self, key: &ObjectKey) {
        self.remove_in_flight(&(Kind::Workload, key.clone()));
        self.bypassing.insert(key.clone());
    }

    /// Explanations under way.
    pub(crate) fn explanation_count(&self) -> usize {
        self.explanation_count
    }

    /// How many more status writes of Workloads may be under way.
    pub(crate) fn available_slots(&self, limit: Option<usize>) -> usize {
        limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.status_write_count))
    }

    /// Until when the object waits after a failure.
    pub(crate) fn backoff_until(&self, kind: Kind, key: &ObjectKey) -> Option<Timestamp> {
        self.failures.get(&(kind, key.clone())).map(|failures| failures.backoff_until)
    }

    /// Adds an effect.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds effects.
    pub(crate) fn emit_all(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    /// Takes the effects.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Starts a write: it is in flight until its result arrives.
    pub(crate) fn start(&mut self, request: WriteRequest) {
        self.last_id = self.last_id.saturating_add(1);
        let WriteRequest {
            kind,
            key,
            verb,
            subresource,
            body,
            status,
            response_metadata_only,
            purpose,
            effects,
            on_behalf_of,
        } = request;
        if purpose == WritePurpose::Explain {
            self.explanation_count = self.explanation_count.saturating_add(1);
        }
        let bypasses_in_flight = kind == Kind::Workload && self.bypassing.remove(&key);
        self.status_write_count = self.status_write_count.saturating_add(usize::from(status.is_some()));
        let pending = InFlightWrite {
            id: self.last_id,
            purpose,
            effects,
            expected_status: status.clone(),
            on_behalf_of,
        };
        self.in_flight.insert((kind, key.clone()), pending);
        self.effects.push(Effect::Write(Write {
            id: self.last_id,
            kind,
            key,
            verb,
            subresource,
            body,
            status,
            response_metadata_only,
            background: purpose == WritePurpose::QueueStatus,
            bypasses_in_flight,
        }));
    }

    /// Gives something else another step when the object's write ends, if one is under way.
    pub(crate) fn requeue_at_end(&mut self, kind: Kind, key: &ObjectKey, item: ReconcileKey) {
        if let Some(pending) = self.in_flight.get_mut(&(kind, key.clone())) {
            pending.on_behalf_of = Some(item);
        }
    }

    /// Takes the write with this number; none if it is not the one under way.
    pub(crate) fn finish(&mut self, kind: Kind, key: &ObjectKey, id: u64) -> Option<InFlightWrite> {
        let slot = (kind, key.clone());
        if self.in_flight.get(&slot)?.id != id {
            return None;
        }
        self.remove_in_flight(&slot)
    }

    fn remove_in_flight(&mut self, slot: &(Kind, ObjectKey)) -> Option<InFlightWrite> {
        let pending = self.in_flight.swap_remove(slot)?;
        let explains = usize::from(pending.purpose == WritePurpose::Explain);
        self.explanation_count = self.explanation_count.saturating_sub(explains);
        self.status_write_count =
            self.status_write_count.saturating_sub(usize::from(pending.expected_status.is_some()));
        Some(pending)
    }

    /// Counts a failure; the object waits.
    pub(crate) fn record_failure(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.errors = failures.errors.saturating_add(1);
        let wait = backoff::exponential(MIN_BACKOFF, MAX_BACKOFF, failures.errors);
        failures.backoff_until = backoff::after(now, wait);
    }

    /// Counts a conflict; the object waits if there were many in a row.
    pub(crate) fn record_conflict(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.conflicts = failures.conflicts.saturating_add(1);
        let many = failures.conflicts.saturating_sub(MAX_IMMEDIATE_CONFLICT_RETRIES);
        let wait = backoff::exponential(MIN_CONFLICT_BACKOFF, MAX_CONFLICT_BACKOFF, many);
        failures.backoff_until = failures.backoff_until.max(backoff::after(now, wait));
    }

    fn failures_of(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) -> &mut Failures {
        let none = Failures { conflicts: 0, errors: 0, backoff_until: now };
        self.failures.entry((kind, key.clone())).or_insert(none)
    }

    /// Forgets the failures of an object.
    pub(crate) fn clear_failures(&mut self, kind: Kind, key: &ObjectKey) {
        self.failures.remove(&(kind, key.clone()));
    }

    /// Forgets all: results of earlier writes are not known any more.
    pub(crate) fn clear(&mut self) {
        self.in_flight.clear();
        self.explanation_count = 0;
        self.status_write_count = 0;
        self.failures.clear();
        self.bypassing.clear();
    }
}
