//! Taking Workloads in, and the indexes by which they are found: of their owners and their queues.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::cache::records::{OwnerRecord, WorkloadRecord};
use crate::cache::workload_object::WorkloadObject;
use crate::lifecycle::conditions;
use crate::reconciler::ingest::{ObjectIdentity, remove_from_index};
use crate::reconciler::{ReconcileKey, Reconciler};
use serde_json::json;
use std::sync::Arc;

impl Reconciler {
    /// Takes a Workload in from a watch. One that cannot be read counts as absent, with an event that says so.
    pub(in crate::reconciler) fn ingest_workload(&mut self, object: &WorkloadObject) {
        let metadata = &object.metadata;
        let identity = ObjectIdentity {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
            version: metadata.resource_version.as_deref().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            has_no_finalizers: metadata.finalizers.as_ref().is_none_or(Vec::is_empty),
        };
        if let Some(key) = self.accept_version(Kind::Workload, &identity) {
            let taken = self.ingest_accepted_workload(&key, object, None);
            self.record_decode_result(Kind::Workload, key, identity.uid, taken);
        }
    }

    pub(in crate::reconciler) fn ingest_accepted_workload(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<(), String> {
        let answers = written.is_some();
        let newer = self.workloads.get(key).cloned();
        let newer = newer
            .map(|record| record.decode_newer(object, written, &mut self.interned))
            .transpose()?
            .flatten();
        let fresh = newer.is_none();
        if fresh && answers && object.spec().is_none() {
            // The watch tells of it as a whole.
            return Ok(());
        }
        let mut record = newer.map_or_else(|| WorkloadRecord::decode(object, &mut self.interned), Ok)?;
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        if finished {
            record.pods = Arc::default();
            record.effective_requests = Arc::default();
        } else if fresh {
            record.effective_requests = self.interned_requests(&record);
        }
        record.meta.key = self.workloads.get_key_value(key).map_or(key, |(known, _)| known).clone();
        if !self.settings.gates.admission_gated_by {
            record.has_admission_gates = false;
            record.admission_gated_by = None;
        }
        if !record.status.admission_checks.is_empty()
            && let Some(spec) = object.spec()
        {
            self.raw_objects.insert((Kind::Workload, key.clone()), json!({"spec": spec.to_value()?}));
        }
        if self.workloads.get(key).is_none_or(|known| known.index_keys() != record.index_keys()) {
            self.unindex_workload(key);
            self.index_workload(key, &record);
        }
        let owner = record.owner.clone();
        self.workloads.insert(key.clone(), Arc::new(record));
        self.compact_finished_status(key);
        self.sync_assigned_hosts(key);
        self.sync_external_owner(&key.namespace, owner.as_deref());
        self.mark_workload_and_dependents(key, owner.as_ref().map(|owner| &owner.uid));
        Ok(())
    }

    fn index_workload(&mut self, key: &ObjectKey, record: &WorkloadRecord) {
        let (uid, queue) = record.index_keys();
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
    pub(in crate::reconciler) fn sync_external_owner(
        &mut self,
        namespace: &Arc<str>,
        owner: Option<&OwnerRecord>,
    ) {
        let Some(owner) = owner.filter(|o| self.settings.is_external(o.group(), &o.kind)) else {
            return;
        };
        let queued = self.workloads_by_owner.contains_key(&owner.uid);
        self.snapshot_builder.set_external_owner(namespace, owner, queued);
    }

    /// Takes a Workload that is known out of the indexes.
    pub(in crate::reconciler) fn unindex_workload(&mut self, key: &ObjectKey) {
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let (uid, queue) = record.index_keys();
        if let Some(uid) = uid
            && let Some(owned) = self.workloads_by_owner.get_mut(uid)
        {
            owned.retain(|known| known != key);
            if owned.is_empty() {
                self.workloads_by_owner.remove(uid);
            }
        }
        if let Some(queue) = queue {
            remove_from_index(&mut self.workloads_by_queue, &queue, key);
        }
    }

    /// Marks a Workload, its job, and its queues.
    pub(in crate::reconciler) fn mark_workload_and_dependents(
        &mut self,
        key: &ObjectKey,
        owner: Option<&Arc<str>>,
    ) {
        self.dirty.insert(ReconcileKey::Workload(key.clone()));
        if let Some((kind, job)) = owner.and_then(|uid| self.job_by_uid.get(uid)) {
            self.dirty.insert(ReconcileKey::Job(*kind, job.clone()));
        }
    }

    pub(in crate::reconciler) fn mark_owner_and_workloads(&mut self, uid: &Arc<str>) {
        if let Some(keys) = self.workloads_by_owner.get(uid) {
            self.dirty.extend(keys.iter().cloned().map(ReconcileKey::Workload));
        }
    }
}
