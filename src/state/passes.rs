//! Second passes: who is due, when, and what was found for them and has not landed.
//!
//! Invariants: what is due is a UID and a time, never an object; whether a pass is needed is asked of the newest object when
//! its time has come, and again right before the write, which carries the version of that object (I12, I13); what was found
//! counts in the ledger as long as the object stays as it was decided on, and not longer.

use super::moments::{Guard, Moment};
use super::outlook::{nodes_failed, placed};
use super::records::WorkloadRecord;
use super::second_pass::{self, rewritten};
use super::telling::event;
use super::writes::Purpose;
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::Admission;
use crate::lifecycle::workload::{Notice, Step, plan};
use crate::lifecycle::{backoff, conditions, eviction, pods_ready};
use crate::scheduler::{Again, Assignment, Charge, Topology};
use crate::topology::decode;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and longest wait before a pass.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(30);

/// How often one that a test halts is looked at.
pub(super) const PAUSE: SignedDuration = SignedDuration::from_millis(20);

/// When one is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Passes so far that found nothing.
    failures: u32,
    /// The time of the next; none while it is under way.
    at: Option<Timestamp>,
}

/// What a pass has led to.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// Places for its pods.
    Places(Assignment),
    /// Nothing in place of nodes that have failed: it must go.
    NoNodes(Arc<str>),
}

/// A decision that has not landed.
#[derive(Clone, Debug)]
struct Standing {
    uid: Arc<str>,
    /// Version of the object that it was decided on.
    version: String,
    found: Found,
}

impl Standing {
    fn is_of(&self, record: &WorkloadRecord) -> bool {
        self.uid == record.meta.uid && self.version == record.meta.resource_version
    }
}

/// Passes that are due or under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes {
    due: BTreeMap<Arc<str>, Due>,
    /// Those whose time has come.
    ready: BTreeSet<ObjectKey>,
    /// Those that a test halts on their way to the scheduler.
    halted: BTreeMap<ObjectKey, Again>,
    standing: BTreeMap<ObjectKey, Standing>,
}

impl Passes {
    /// The object is gone, or holds nothing any more.
    pub(super) fn forget(&mut self, key: &ObjectKey, uid: &str) {
        self.due.remove(uid);
        self.halted.remove(key);
        self.standing.remove(key);
    }

    /// Forgets all; answers whose decisions were forgotten.
    pub(super) fn clear(&mut self) -> Vec<ObjectKey> {
        self.due.clear();
        self.ready.clear();
        self.halted.clear();
        std::mem::take(&mut self.standing).into_keys().collect()
    }

    /// When the next pass is due after so many that found nothing.
    fn wait(&mut self, uid: &Arc<str>, failures: u32, now: Timestamp) -> Timestamp {
        let wait = backoff::exponential(FIRST_WAIT, LONGEST_WAIT, failures.saturating_add(1));
        let at = backoff::after(now, wait);
        self.due.insert(Arc::clone(uid), Due { failures, at: Some(at) });
        at
    }
}

impl State {
    /// Arms a pass for a workload that holds quota, or takes note that its time has come.
    pub(super) fn look_for_pass(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(record) = self.workloads.get(key).filter(|_| self.leading) else { return };
        if self.settings.moments.is_unguarded(key) {
            return;
        }
        let uid = Arc::clone(&record.meta.uid);
        let (needed, known) = (second_pass::wants(record), self.passes.due.get(&uid).copied());
        if self.passes.standing.contains_key(key) {
            return;
        }
        let at = match known {
            None if needed => self.passes.wait(&uid, 0, now),
            None | Some(Due { at: None, .. }) => return,
            Some(Due { at: Some(at), .. }) if at <= now => {
                if !self.halts(key, Moment::Armed, now) {
                    self.passes.ready.insert(key.clone());
                }
                return;
            }
            // One that had to wait for longer begins anew when it is needed again; the first wait goes on.
            Some(Due { failures: 1.., .. }) if !needed => {
                self.passes.due.remove(&uid);
                return;
            }
            Some(Due { at: Some(at), .. }) => at,
        };
        self.timers.wake(Item::Workload(key.clone()), at);
    }

    /// What a workload holds, with places that were found for it on this very version. Those that it leaves count on: it may
    /// have to stay.
    pub(super) fn with_places(&mut self, key: &ObjectKey, charge: Charge) -> Charge {
        let (Some(standing), Some(record)) = (self.passes.standing.get(key), self.workloads.get(key)) else {
            return charge;
        };
        if !standing.is_of(record) {
            let uid = Arc::clone(&record.meta.uid);
            self.passes.forget(key, &uid);
            return charge;
        }
        match (&standing.found, &record.status.admission) {
            (Found::Places(assignment), Some(admission)) => {
                let both = beside(admission, assignment);
                Charge { topology: self.occupancies(record, &rewritten(admission, &both)), ..charge }
            }
            _ => charge,
        }
    }

    /// Hands those whose time has come to the scheduler, as their objects are now.
    pub(super) fn hand_over_passes(&mut self, now: Timestamp) -> BTreeSet<ObjectKey> {
        let mut taken = BTreeSet::new();
        for key in std::mem::take(&mut self.passes.ready) {
            let Some(uid) = self.workloads.get(&key).map(|record| Arc::clone(&record.meta.uid)) else {
                continue;
            };
            if self.halts(&key, Moment::Due, now) {
                continue;
            }
            match self.passes.halted.remove(&key).or_else(|| self.taken(&key, now)) {
                Some(again) if self.halts(&key, Moment::Taken, now) => {
                    self.passes.halted.insert(key, again);
                }
                Some(again) => {
                    let failures = self.passes.due.get(&uid).map_or(0, |due| due.failures);
                    self.passes.due.insert(uid, Due { failures, at: None });
                    self.engine.second_pass(again);
                    taken.insert(key);
                }
                None => drop(self.passes.due.remove(&uid)),
            }
        }
        taken
    }

    /// The workload as the scheduler gets it, if it still wants a pass and may have one.
    fn taken(&self, key: &ObjectKey, now: Timestamp) -> Option<Again> {
        if self.settings.moments.lacks(key, Guard::Dequeue) {
            return self.as_again(key);
        }
        self.may_pass(key, now)
    }

    /// The workload as a pass takes it: its object wants one, and nothing that was decided or is known speaks against it.
    fn may_pass(&self, key: &ObjectKey, now: Timestamp) -> Option<Again> {
        let record = self.workloads.get(key)?;
        // Nodes that are well again are taken off the list instead.
        let recovers = || !self.node_news(key, record, now).sound.is_empty();
        if self.engine.preemption_of(key).is_some() || self.ends(key, record, now) || recovers() {
            return None;
        }
        self.second_pass_of(key)
    }

    /// Whether the next step of its life is its end, or that of its reservation.
    fn ends(&self, key: &ObjectKey, record: &WorkloadRecord, now: Timestamp) -> bool {
        let facts = self.facts(key, record, now);
        match plan(&self.subject(record), &facts, &self.settings.lifecycle, now).step {
            Step::Rest => false,
            Step::Status(status) => {
                use ConditionType::{DeactivationTarget, Evicted, Finished, QuotaReserved};
                let ends = [Finished, Evicted, DeactivationTarget];
                ends.iter().any(|kind| conditions::is_true(&status, *kind))
                    || !conditions::is_true(&status, QuotaReserved)
            }
            Step::Deactivate | Step::RemoveFinalizer | Step::Delete => true,
        }
    }

    /// A pass has found something: it stands until it has landed, or the object has moved.
    pub(super) fn take_found(&mut self, key: &ObjectKey, uid: &Arc<str>, found: Found) {
        let Some(record) = self.workloads.get(key) else { return };
        let (uid, version) = (Arc::clone(uid), record.meta.resource_version.clone());
        let charge = self.charge(record);
        self.passes.standing.insert(key.clone(), Standing { uid, version, found });
        if let Some(charge) = charge {
            let charge = self.with_places(key, charge);
            self.engine.charge(key, charge);
        }
    }

    /// A pass has found nothing: the reservation stays, and the next one comes later.
    pub(super) fn pass_again(&mut self, key: &ObjectKey, why: Option<&str>, now: Timestamp) {
        let Some(record) = self.workloads.get(key) else { return };
        let uid = Arc::clone(&record.meta.uid);
        if let Some(why) = why {
            self.effects.push(event(record, true, "SecondPassFailed", why.to_owned()));
        }
        let failures = self.passes.due.get(&uid).map_or(0, |due| due.failures).saturating_add(1);
        let at = self.passes.wait(&uid, failures, now);
        self.timers.wake(Item::Workload(key.clone()), at);
    }

    /// Writes what a pass has found, if it still may; whether that is what comes next for the workload.
    pub(super) fn send_pass(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let (Some(standing), Some(record)) = (self.passes.standing.get(key), self.workloads.get(key)) else {
            return false;
        };
        let may = || self.settings.moments.lacks(key, Guard::Recheck) || self.may_pass(key, now).is_some();
        if !standing.is_of(record) || !may() {
            self.drop_pass(key);
            return false;
        }
        if self.halts(key, Moment::Decided, now) {
            return true;
        }
        let Some((standing, record)) = self.passes.standing.get(key).zip(self.workloads.get(key)) else {
            return false;
        };
        let (status, notice) = match &standing.found {
            Found::Places(assignment) => {
                let mut status = placed(record, assignment, now);
                let admitted = !conditions::is_true(&record.status, ConditionType::Admitted)
                    && conditions::is_true(&status, ConditionType::Admitted);
                if admitted && self.settings.lifecycle.pods_ready.is_some() {
                    pods_ready::observe(&mut status, false, record.meta.generation, now);
                }
                (status, admitted.then_some(Notice::Admitted))
            }
            Found::NoNodes(why) => {
                let cause = eviction::Cause::plain(eviction::NODE_FAILURES, &**why);
                let first = eviction::counted(&record.status, &cause) == 0;
                (nodes_failed(record, why, now), Some(Notice::Evicted(cause, first)))
            }
        };
        let tell = notice.iter().flat_map(|notice| self.tell(record, notice, now)).collect();
        self.send_status(key, Box::new(status), Purpose::Pass, tell);
        true
    }

    /// Whether a test halts a pass here; it is looked at again soon.
    fn halts(&mut self, key: &ObjectKey, moment: Moment, now: Timestamp) -> bool {
        let halts = self.settings.moments.halts(key, moment);
        if halts {
            self.timers.wake(Item::Workload(key.clone()), backoff::after(now, PAUSE));
        }
        halts
    }

    /// What was found does not stand any more: the ledger says again what the object says.
    pub(super) fn drop_pass(&mut self, key: &ObjectKey) {
        if self.passes.standing.remove(key).is_none() {
            return;
        }
        let Some(record) = self.workloads.get(key) else { return };
        self.passes.due.remove(&record.meta.uid);
        if let Some(charge) = self.charge(record) {
            self.engine.charge(key, charge);
        }
    }

    /// Lets the end of a workload overtake the write of a pass that is under way: both carry the same version, so that one
    /// of them lands.
    pub(super) fn overtake_pass(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.workloads.get(key) else { return false };
        let waits = !self.writes.is_pass(key) || self.settings.moments.lacks(key, Guard::Overtaking);
        if waits || !self.ends(key, record, now) {
            return false;
        }
        self.writes.overtake(key);
        self.drop_pass(key);
        true
    }
}

/// The places that were found, and those of the admission that are left for them.
fn beside(admission: &Admission, assignment: &Assignment) -> Assignment {
    let mut assignment = assignment.clone();
    for (set, granted) in admission.pod_set_assignments.iter().zip(&mut assignment.pod_sets) {
        let old = set.topology_assignment.as_ref().and_then(decode);
        if let (Topology::Placed(new), Some(old)) = (&mut granted.topology, old) {
            let mut domains: BTreeMap<_, i32> = std::mem::take(&mut new.domains).into_iter().collect();
            for (path, pods) in old.domains {
                let count = domains.entry(path).or_default();
                *count = pods.max(*count);
            }
            new.domains = domains.into_iter().collect();
        }
    }
    assignment
}
