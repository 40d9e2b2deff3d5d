//! Taking Workloads in, and the indexes by which they are found: of their owners and their queues.

use super::ingest::{Identity, take_from};
use super::interface::Kind;
use super::records::{OwnerRecord, WorkloadRecord};
use super::workload_object::WorkloadObject;
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::lifecycle::conditions;
use serde_json::json;
use std::sync::Arc;

impl State {
    /// Takes a Workload in from a watch. One that cannot be read counts as absent, with an event that says so.
    pub(super) fn ingest_workload(&mut self, object: &WorkloadObject) {
        let metadata = &object.metadata;
        let identity = Identity {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            version: metadata.resource_version.as_deref().unwrap_or_default(),
            deleted: metadata.deletion_timestamp.is_some(),
            finalized: metadata.finalizers.as_ref().is_none_or(Vec::is_empty),
        };
        if let Some(key) = self.key_of_news(Kind::Workload, &identity) {
            let taken = self.take_workload(&key, object, None);
            self.note_taken(Kind::Workload, key, identity.uid, taken);
        }
    }

    pub(super) fn take_workload(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<(), String> {
        let answers = written.is_some();
        let newer = self.workloads.get(key).cloned();
        let newer =
            newer.map(|record| record.newer(object, written, &mut self.templates)).transpose()?.flatten();
        let fresh = newer.is_none();
        if fresh && answers && object.spec().is_none() {
            // The watch tells of it as a whole.
            return Ok(());
        }
        let mut record = newer.map_or_else(|| WorkloadRecord::decode(object, &mut self.templates), Ok)?;
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        if finished {
            record.pods = Arc::default();
            record.effective = Arc::default();
        } else if fresh {
            record.effective = self.shared_effective(&record);
        }
        record.meta.key = self.workloads.get_key_value(key).map_or(key, |(known, _)| known).clone();
        if !self.settings.gates.admission_gated_by {
            record.gated = false;
            record.gated_by = None;
        }
        if !record.status.admission_checks.is_empty()
            && let Some(spec) = object.spec()
        {
            self.raw.insert((Kind::Workload, key.clone()), json!({"spec": spec.value()?}));
        }
        if self.workloads.get(key).is_none_or(|known| known.found_by() != record.found_by()) {
            self.unindex_workload(key);
            self.index_workload(key, &record);
        }
        let owner = record.owner.clone();
        self.workloads.insert(key.clone(), Arc::new(record));
        self.slim_ended(key);
        self.footing_changed(key);
        self.external_owner_changed(&key.namespace, owner.as_deref());
        self.workload_changed(key, owner.as_ref().map(|owner| &owner.uid));
        Ok(())
    }

    fn index_workload(&mut self, key: &ObjectKey, record: &WorkloadRecord) {
        let (uid, queue) = record.found_by();
        if let Some(uid) = uid {
            let owned = self.workloads_by_owner.entry(uid.clone()).or_insert_with(|| Vec::with_capacity(1));
            if let Err(place) = owned.binary_search(key) {
                owned.insert(place, key.clone());
            }
        }
        if let Some(queue) = queue {
            self.workloads_by_queue.entry(queue).or_default().insert(key.clone());
        }
    }

    /// An object that another controller queues for us is known by the Workload that it owns.
    pub(super) fn external_owner_changed(&mut self, namespace: &Arc<str>, owner: Option<&OwnerRecord>) {
        let Some(owner) = owner.filter(|o| self.settings.is_external(o.group(), &o.kind)) else {
            return;
        };
        let queued = self.workloads_by_owner.contains_key(&owner.uid);
        self.published.external_owner(namespace, owner, queued);
    }

    /// Takes a Workload that is known out of the indexes.
    pub(super) fn unindex_workload(&mut self, key: &ObjectKey) {
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let (uid, queue) = record.found_by();
        if let Some(uid) = uid
            && let Some(owned) = self.workloads_by_owner.get_mut(uid)
        {
            owned.retain(|known| known != key);
            if owned.is_empty() {
                self.workloads_by_owner.remove(uid);
            }
        }
        if let Some(queue) = queue {
            take_from(&mut self.workloads_by_queue, &queue, key);
        }
    }

    /// Marks a Workload, its job, and its queues.
    pub(super) fn workload_changed(&mut self, key: &ObjectKey, owner: Option<&Arc<str>>) {
        self.dirty.insert(Item::Workload(key.clone()));
        if let Some((kind, job)) = owner.and_then(|uid| self.job_by_uid.get(uid)) {
            self.dirty.insert(Item::Job(*kind, job.clone()));
        }
    }

    pub(super) fn owner_changed(&mut self, uid: &Arc<str>) {
        if let Some(keys) = self.workloads_by_owner.get(uid) {
            self.dirty.extend(keys.iter().cloned().map(Item::Workload));
        }
    }
}
