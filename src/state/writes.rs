//! Writes under way, at most one for each object, and the waits after failed ones.

use super::Item;
use super::interface::{Effect, Kind, Verb, Write};
use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::lifecycle::backoff;
use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and longest wait after a write that failed for another reason than a conflict.
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(500);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Conflicts in a row that are decided again at once, on the object as it is then. Of an object that others write without a
/// pause more of them are to be expected; one whose every write meets a conflict must not take up all calls.
const CONFLICTS_AT_ONCE: u32 = 2;
/// First and longest wait after further ones.
const FIRST_CONFLICT_WAIT: SignedDuration = SignedDuration::from_millis(50);
const LONGEST_CONFLICT_WAIT: SignedDuration = SignedDuration::from_secs(5);

/// What a write is for: decides what its end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A reservation.
    Admit,
    /// What a second pass has found.
    Pass,
    /// Why a Workload waits.
    Explain,
    /// Status of a queue.
    QueueStatus,
    /// Anything else: the next plan follows from the objects alone.
    Plain,
}

/// A write under way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) purpose: Purpose,
    /// To be told when it has landed.
    pub(super) tell: Vec<Effect>,
    /// The status of a Workload that stands when it has landed.
    pub(super) promised: Option<Arc<WorkloadStatus>>,
    /// What else gets another step at its end.
    pub(super) on_behalf_of: Option<Item>,
}

/// A write to be sent.
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) key: ObjectKey,
    pub(super) verb: Verb,
    pub(super) subresource: Option<&'static str>,
    pub(super) body: Value,
    /// What a Workload's status is to be.
    pub(super) status: Option<Arc<WorkloadStatus>>,
    /// Whether it is that then, whoever else wrote to it.
    pub(super) foretold: bool,
    pub(super) purpose: Purpose,
    pub(super) tell: Vec<Effect>,
    pub(super) on_behalf_of: Option<Item>,
}

impl Request {
    /// A write of the object itself that means nothing beyond itself.
    pub(super) fn new(kind: Kind, key: ObjectKey, verb: Verb, body: Value) -> Self {
        Self {
            kind,
            key,
            verb,
            subresource: None,
            body,
            status: None,
            foretold: false,
            purpose: Purpose::Plain,
            tell: Vec::new(),
            on_behalf_of: None,
        }
    }
}

/// Failures of an object's writes since the last one that landed.
#[derive(Clone, Copy, Debug)]
struct Failures {
    conflicts: u32,
    others: u32,
    /// The object waits until then.
    until: Timestamp,
}

/// Writes under way and waits after failures.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    last_id: u64,
    explanations: usize,
    /// Status writes of Workloads under way.
    statuses: usize,
    pending: IndexMap<(Kind, ObjectKey), Pending>,
    failures: BTreeMap<(Kind, ObjectKey), Failures>,
    /// Workloads whose next write does not wait for the one before.
    overtaking: BTreeSet<ObjectKey>,
}

impl Writes {
    /// Whether the object may be written now: no write is under way and no wait is on.
    pub(super) fn may_write(&self, kind: Kind, key: &ObjectKey, now: Timestamp) -> bool {
        let id = (kind, key.clone());
        !self.pending.contains_key(&id) && self.failures.get(&id).is_none_or(|failures| failures.until <= now)
    }

    /// Whether a write of the object is under way.
    pub(super) fn is_pending(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.pending.contains_key(&(kind, key.clone()))
    }

    /// Whether what a second pass has found for a Workload is being written.
    pub(super) fn is_pass(&self, key: &ObjectKey) -> bool {
        let pending = self.pending.get(&(Kind::Workload, key.clone()));
        pending.is_some_and(|pending| pending.purpose == Purpose::Pass)
    }

    /// Gives up the write of a Workload that is under way: its result does not count, and the next does not wait for it.
    pub(super) fn overtake(&mut self, key: &ObjectKey) {
        self.drop_pending(&(Kind::Workload, key.clone()));
        self.overtaking.insert(key.clone());
    }

    /// Explanations under way.
    pub(super) fn explanations(&self) -> usize {
        self.explanations
    }

    /// How many more status writes of Workloads may be under way.
    pub(super) fn room(&self, limit: Option<usize>) -> usize {
        limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.statuses))
    }

    /// Until when the object waits after a failure.
    pub(super) fn waits_until(&self, kind: Kind, key: &ObjectKey) -> Option<Timestamp> {
        self.failures.get(&(kind, key.clone())).map(|failures| failures.until)
    }

    /// Registers a write and gives it its number.
    pub(super) fn start(&mut self, request: Request) -> Write {
        self.last_id = self.last_id.saturating_add(1);
        let Request { kind, key, verb, subresource, body, status, foretold, purpose, tell, on_behalf_of } =
            request;
        if purpose == Purpose::Explain {
            self.explanations = self.explanations.saturating_add(1);
        }
        let overtakes = kind == Kind::Workload && self.overtaking.remove(&key);
        self.statuses = self.statuses.saturating_add(usize::from(status.is_some()));
        let pending = Pending { id: self.last_id, purpose, tell, promised: status.clone(), on_behalf_of };
        self.pending.insert((kind, key.clone()), pending);
        Write {
            id: self.last_id,
            kind,
            key,
            verb,
            subresource,
            body,
            status,
            foretold,
            background: purpose == Purpose::QueueStatus,
            overtakes,
        }
    }

    /// Gives something else another step when the object's write ends, if one is under way.
    pub(super) fn at_end(&mut self, kind: Kind, key: &ObjectKey, item: Item) {
        if let Some(pending) = self.pending.get_mut(&(kind, key.clone())) {
            pending.on_behalf_of = Some(item);
        }
    }

    /// Takes the write with this number; none if it is not the one under way.
    pub(super) fn end(&mut self, kind: Kind, key: &ObjectKey, id: u64) -> Option<Pending> {
        let slot = (kind, key.clone());
        if self.pending.get(&slot)?.id != id {
            return None;
        }
        self.drop_pending(&slot)
    }

    fn drop_pending(&mut self, slot: &(Kind, ObjectKey)) -> Option<Pending> {
        let pending = self.pending.swap_remove(slot)?;
        let explains = usize::from(pending.purpose == Purpose::Explain);
        self.explanations = self.explanations.saturating_sub(explains);
        self.statuses = self.statuses.saturating_sub(usize::from(pending.promised.is_some()));
        Some(pending)
    }

    /// Counts a failure; the object waits.
    pub(super) fn fail(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.others = failures.others.saturating_add(1);
        let wait = backoff::exponential(FIRST_WAIT, LONGEST_WAIT, failures.others);
        failures.until = backoff::after(now, wait);
    }

    /// Counts a conflict; the object waits if there were many in a row.
    pub(super) fn conflict(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.conflicts = failures.conflicts.saturating_add(1);
        let many = failures.conflicts.saturating_sub(CONFLICTS_AT_ONCE);
        let wait = backoff::exponential(FIRST_CONFLICT_WAIT, LONGEST_CONFLICT_WAIT, many);
        failures.until = failures.until.max(backoff::after(now, wait));
    }

    fn failures_of(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) -> &mut Failures {
        let none = Failures { conflicts: 0, others: 0, until: now };
        self.failures.entry((kind, key.clone())).or_insert(none)
    }

    /// Forgets the failures of an object.
    pub(super) fn succeed(&mut self, kind: Kind, key: &ObjectKey) {
        self.failures.remove(&(kind, key.clone()));
    }

    /// Forgets all: results of earlier writes are not known any more.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.explanations = 0;
        self.statuses = 0;
        self.failures.clear();
        self.overtaking.clear();
    }
}
