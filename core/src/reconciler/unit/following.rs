//! The Workload that follows another Workload of the same job, and takes over its counts: time, requeues, evictions.
//!
//! Invariant: the former Workload exists until the next one does, which is created with the final counts of the former one. So
//! the job has stopped, and the quota is released, before the next one is created.

use super::facts::UnitFacts;
use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::api::ObjectKey;
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{JobKind, JobView, Role, next_workload_key, own_workload_key};
use crate::lifecycle::carried::{Carried, takes_over};
use crate::lifecycle::conditions;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Number of refused creates after which the former Workload is released. Otherwise none would ever be removed where none can be
/// created, such as while the definition of Workloads is deleted.
const MAX_REFUSALS: u32 = 5;

impl UnitFacts<'_> {
    /// Returns whether a Workload that is being deleted or has finished stays until the next one has taken over its counts.
    pub(super) fn waits_for_successor(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        now: Timestamp,
    ) -> bool {
        if conditions::is_true(&record.status, ConditionType::Finished) {
            return self.units.is_slice_to_take_over_from(record, unit, now);
        }
        let Some(owner) = unit.owner.filter(|_| record.meta.is_deleting()) else { return false };
        let next = next_key(unit, owner, record);
        record.meta.has_finalizer()
            && self.units.may_be_followed(unit, owner, record, now)
            && self.writes.failures(Kind::Workload, &next).errors < MAX_REFUSALS
    }
}

impl<'a> Units<'a> {
    /// Returns whether the next Workload of a job takes over the counts of this one, and does not exist yet.
    fn may_be_followed(
        self,
        unit: &LoadedUnit<'_>,
        owner: &JobView,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> bool {
        let other_slice = || self.slices_of(unit).is_some_and(|slices| slices.is_other_in_use(record));
        self.gets_another(unit.key.kind, owner, record) && record.carried(now).is_some() && !other_slice()
    }

    /// Returns whether a job without its Workload is to get another one, which does not exist yet.
    fn gets_another(self, kind: JobKind, owner: &JobView, record: &WorkloadRecord) -> bool {
        let none = kind.role != Role::Suspended
            || owner.deleting
            || owner.status.finished.is_some()
            || owner.options.prebuilt_workload.is_some()
            || record.annotations.variant.is_some()
            || self.cache.is_namespace_deleting(&owner.key.namespace)
            || !self.manages_job(kind, owner)
            || self.ancestor_of(kind, owner).is_some();
        !none && self.next_of(owner, record).is_none()
    }

    /// Returns the UID of the job of a Workload that a client removed while it was in use, by taking its finalizer from it. The
    /// next Workload takes over its counts.
    pub(crate) fn job_to_count_for(self, record: &WorkloadRecord) -> Option<Arc<str>> {
        if conditions::is_true(&record.status, ConditionType::Finished) {
            return None;
        }
        let (kind, key) = record.owner_uids().find_map(|uid| self.cache.job_id(uid))?;
        let owner = self.cache.job(&(*kind, key.clone()))?;
        let unfinished =
            |other: &Arc<WorkloadRecord>| !conditions::is_true(&other.status, ConditionType::Finished);
        let mut others =
            self.cache.workloads_owned_by(&owner.uid).iter().filter_map(|key| self.cache.workload(key));
        let is_last = !others.any(unfinished);
        (is_last && self.gets_another(*kind, owner, record)).then(|| Arc::clone(&owner.uid))
    }

    /// Returns the Workload that was made to follow this one.
    fn next_of(self, owner: &JobView, record: &WorkloadRecord) -> Option<&'a Arc<WorkloadRecord>> {
        let owned = self.cache.workloads_owned_by(&owner.uid).iter();
        owned.filter_map(|key| self.cache.workload(key)).find(|next| next.carries_from(&record.meta.uid))
    }

    /// Returns whether a slice waits to replace this one, which has finished: it takes over the counts of this one when it gets
    /// quota.
    fn is_slice_to_take_over_from(
        self,
        record: &WorkloadRecord,
        unit: &LoadedUnit<'_>,
        now: Timestamp,
    ) -> bool {
        let Some(owner) = unit.owner.filter(|owner| owner.options.slice.is_some() && !owner.deleting) else {
            return false;
        };
        let owned =
            self.cache.workloads_owned_by(&owner.uid).iter().filter_map(|key| self.cache.workload(key));
        let waits = |next: &WorkloadRecord| {
            let replaces = next.annotations.replaces.as_deref() == Some(&record.meta.key);
            replaces && takes_over(&next.status) && !next.meta.is_deleting()
        };
        owner.status.finished.is_none()
            && record.carried(now).is_some()
            && owned.into_iter().any(|next| waits(next))
    }

    /// Returns the last slice of an elastic job whose slices have all finished: the next one takes over its counts.
    pub(super) fn last_slice(self, unit: &LoadedUnit<'_>) -> Option<&'a Arc<WorkloadRecord>> {
        let owner = unit.owner.filter(|owner| owner.options.slice.is_some())?;
        let owned = self.cache.workloads_owned_by(&owner.uid).iter();
        let own =
            owned.filter_map(|key| self.cache.workload(key)).filter(|record| self.belongs(unit, record));
        let ended = own.filter_map(|record| {
            conditions::true_since(&record.status, ConditionType::Finished).map(|end| (end, record))
        });
        ended.max_by_key(|(end, record)| (*end, record.meta.created)).map(|(_, record)| record)
    }

    /// Returns the slice of an elastic job that is being deleted, has released its quota, and waits for the next one.
    pub(super) fn slice_to_follow(
        self,
        unit: &LoadedUnit<'_>,
        now: Timestamp,
    ) -> Option<&'a Arc<WorkloadRecord>> {
        let owner = unit.owner?;
        let slices = self.slices_of(unit)?;
        slices.released().find(|record| self.may_be_followed(unit, owner, record, now))
    }
}

impl UnitStep<'_> {
    /// Returns whether the Workload of a unit has finished and is followed by one that takes over its counts. Slices have
    /// different names without this.
    pub(super) fn is_followed_after_end(&self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        let owner = unit.owner.filter(|owner| finished && owner.options.slice.is_none());
        owner.is_some_and(|owner| self.units.may_be_followed(unit, owner, record, self.now))
    }

    /// Creates the Workload that follows one that ends, with its counts. It has another name, because both exist at the same
    /// time.
    pub(super) fn follow(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let follows = |owner: &&JobView| self.units.may_be_followed(unit, owner, record, self.now);
        let Some(owner) = unit.owner.filter(follows) else { return };
        let key = next_key(unit, owner, record);
        let item = unit.reconcile_key();
        if self.writes.creates_for(&item) {
            return;
        }
        if !self.writes.may_write(Kind::Workload, &key, self.now) {
            self.writes.requeue_at_end(Kind::Workload, &key, item.clone());
            return self.writes.retry_after_backoff((Kind::Workload, &key), item, self.work_queue, self.now);
        }
        if let Some(until) = self.writes.replacements.waits_until(&unit.workload, owner.generation, self.now)
        {
            return self.work_queue.add_at(item, until);
        }
        if let Some(other) = self.units.cache.workload(&key) {
            if other.meta.is_deleting() {
                return;
            }
            // It belongs to a run before the one that ends.
            return self.delete_workload(
                unit,
                other,
                &format!("Deleted Workload of a run that has ended: {key}"),
            );
        }
        let Some((mut composed, carried)) = self.try_compose(unit, None, &key).zip(record.carried(self.now))
        else {
            return;
        };
        annotate(&mut composed.workload, &carried);
        if conditions::is_true(&record.status, ConditionType::Finished) {
            self.record_replacement(unit, record);
        }
        self.create_workload(unit, key, composed);
    }

    /// Adds to a new Workload the counts of the last one of the job, if that was removed before this one could follow it. The
    /// time until now counts, because the pods kept running.
    pub(super) fn take_over_from_removed(&self, unit: &LoadedUnit<'_>, workload: &mut Value) {
        let removed = unit.owner.and_then(|owner| self.units.cache.counts_of(&owner.uid));
        if let Some(carried) = removed.and_then(|record| record.carried(self.now)) {
            annotate(workload, &carried);
        }
    }

    /// Deletes the Workload of an ended run, which the present one follows.
    pub(super) fn delete_followed_workload(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let Some(owner) = unit.owner.filter(|owner| owner.options.slice.is_none()) else { return };
        let before = self.units.cache.workloads_before(&record.meta.key);
        let former = before.iter().filter_map(|key| self.units.cache.workload(key)).find(|former| {
            let finished = conditions::is_true(&former.status, ConditionType::Finished);
            finished && !former.meta.is_deleting() && former.owner_uids().any(|uid| *uid == owner.uid)
        });
        if let Some(former) =
            former.filter(|former| self.writes.may_write(Kind::Workload, &former.meta.key, self.now))
        {
            let note = format!("Deleted Workload of a run that has ended: {}", former.meta.key);
            self.delete_workload(unit, former, &note);
        }
    }
}

/// Adds the counts that a Workload takes over to its annotations.
fn annotate(workload: &mut Value, carried: &Carried) {
    let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let (Some(annotations), Ok(text)) = (annotations.as_object_mut(), serde_json::to_string(carried)) {
        annotations.insert(names::CARRIED_ANNOTATION.to_owned(), text.into());
    }
}

/// Returns the key of the Workload that follows another one.
fn next_key(unit: &LoadedUnit<'_>, owner: &JobView, record: &WorkloadRecord) -> ObjectKey {
    let own = own_workload_key(&unit.key.kind, owner);
    if own == record.meta.key { next_workload_key(&unit.key.kind, owner, &record.meta.uid) } else { own }
}
