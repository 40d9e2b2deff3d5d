//! Storing Workloads: only parts that are not known yet are decoded, and parts that are equal in many Workloads are
//! interned.

use super::pods::PodUsage;
use super::records::{EffectiveRequests, WorkloadRecord};
use super::workload_object::WorkloadObject;
use super::{Cache, Kind};
use crate::api::decoding::DecodeError;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::api::{ObjectKey, OwnerRecord, names};
use crate::frameworks::named_submitter;
use crate::lifecycle::{conditions, reservation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

/// Effects of storing or removing a Workload.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadChange {
    pub(crate) owner: Option<Arc<OwnerRecord>>,
    /// The owner that it had before, if that is another one.
    pub(crate) previous_owner: Option<Arc<OwnerRecord>>,
    /// Non-TAS usage of the pods, if the assigned hosts, the owners, or whether it holds quota changed.
    pub(crate) pod_usage: Vec<(ObjectKey, Option<PodUsage>)>,
    /// Slices that end or are charged again by what happened to the Workload.
    pub(crate) slices: Vec<ObjectKey>,
    /// Whether the Workload may ungate pods: it is assigned to hosts, or a slice.
    pub(crate) ungates_pods: bool,
}

impl Cache {
    /// Stores a Workload. `written` is the status that a write of ours set, if the response may leave it out. Returns
    /// `None` if the object is a response without spec, and the whole Workload would have to be decoded.
    ///
    /// # Errors
    /// If the Workload cannot be decoded.
    pub(crate) fn ingest_workload(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<Option<WorkloadChange>, DecodeError> {
        let is_response = written.is_some();
        let known = self.workloads.get(key).cloned();
        let newer = known
            .as_ref()
            .map(|record| record.decode_newer(object, written, &mut self.shared.interned))
            .transpose()?
            .flatten();
        let decoded_whole = newer.is_none();
        if decoded_whole && is_response && object.spec().is_none() {
            // The watch will send the whole object.
            return Ok(None);
        }
        let mut record =
            newer.map_or_else(|| WorkloadRecord::decode(object, &mut self.shared.interned), Ok)?;
        if conditions::is_true(&record.status, ConditionType::Finished) {
            record.pods = Arc::default();
            record.effective_requests = Arc::default();
        } else if decoded_whole {
            record.effective_requests = self.effective_requests(&record);
        }
        record.meta.key = self.workloads.interned_key(key).unwrap_or(key).clone();
        if !self.gates.admission_gated_by {
            record.annotations.admission_gated_by = None;
        }
        if !self.gates.priority_boost {
            record.annotations.priority_boost = 0;
        }
        record.annotations.submitter = self.submitter_of(&object.metadata);
        if !record.status.admission_checks.is_empty()
            && let Some(spec) = object.spec()
        {
            let raw = json!({"spec": spec.to_value()?});
            self.shared.raw_objects.insert((Kind::Workload, key.clone()), raw);
        }
        let same_owners = known.as_ref().is_some_and(|known| known.owner_uids().eq(record.owner_uids()));
        let owner = record.owner.clone();
        let held = known.as_ref().is_some_and(|known| reservation::holds_quota(&known.status));
        let same_hold = held == reservation::holds_quota(&record.status);
        self.workloads.insert(key, Arc::new(record));
        let is_current =
            |known: &Arc<OwnerRecord>| owner.as_ref().is_some_and(|owner| owner.uid == known.uid);
        let previous_owner = known.and_then(|known| known.owner.clone()).filter(|known| !is_current(known));
        let mut change = WorkloadChange { previous_owner, ..self.workload_change(key, owner.clone()) };
        if !same_owners {
            change.pod_usage = self.recheck_pods_of(key);
        } else if !same_hold {
            change.pod_usage = self.non_tas_usage_of(key);
        }
        Ok(Some(change))
    }

    /// Returns the submitter of a Workload: by the key of the settings, or as it was taken over from the job.
    fn submitter_of(&mut self, metadata: &ObjectMeta) -> Option<Arc<str>> {
        let shared = &mut self.shared;
        let key = shared.submitter_key.as_deref()?;
        let (labels, annotations) = (metadata.labels.as_ref(), metadata.annotations.as_ref());
        let copied = value_of(annotations, names::SUBMITTER_ANNOTATION);
        let name = named_submitter(key, value_of(labels, key), value_of(annotations, key))
            .or_else(|| named_submitter(names::SUBMITTER_ANNOTATION, None, copied))?;
        Some(shared.interned.intern_name(name))
    }

    /// Stores what can be decoded of a Workload, so that it is charged for what it holds. Its generation counts as unknown:
    /// its next version is decoded whole. Returns `None` if nothing can be stored.
    pub(crate) fn ingest_readable_part(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
    ) -> Option<WorkloadChange> {
        let change = self.ingest_workload(key, &object.readable_part(), None).ok()??;
        self.workloads.change(key, |record| record.meta.generation = 0);
        Some(change)
    }

    /// Removes a Workload.
    pub(crate) fn remove_workload(
        &mut self,
        key: &ObjectKey,
    ) -> (Option<Arc<WorkloadRecord>>, WorkloadChange) {
        let slices = self.slices_beside(key);
        let record = self.workloads.remove(key);
        let owner = record.as_ref().and_then(|record| record.owner.clone());
        let mut change = WorkloadChange { slices, ..self.workload_change(key, owner) };
        if let Some(first) = record.as_ref().map(|record| record.chain_key()).filter(|first| first != key) {
            // Pods name the first of the slices.
            change.pod_usage = self.recheck_pods_of(&first);
        } else if record.as_ref().is_some_and(|record| reservation::holds_quota(&record.status)) {
            change.pod_usage = self.non_tas_usage_of(key);
        }
        (record, change)
    }

    /// Returns the slices that end or are charged again by what happens to a Workload: the one that it replaces, those that
    /// replace it, and the others of its job.
    pub(crate) fn slices_beside(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(record) = self.workloads.get(key) else { return Vec::new() };
        let replacing = self.workloads.replacing(key).map(|newer| &newer.meta.key);
        let owner = record.owner.as_ref().filter(|_| record.annotations.is_slice);
        let of_job = owner.map_or(&[][..], |owner| self.workloads.owned_by(&owner.uid));
        record.annotations.replaces.as_deref().into_iter().chain(replacing).chain(of_job).cloned().collect()
    }

    /// Returns the unfinished slices whose first one has this key, or the Workload with this key if there are none.
    pub(crate) fn slices_from(&self, first: &ObjectKey) -> Vec<ObjectKey> {
        self.workloads.in_chain(first).map(|record| record.meta.key.clone()).collect()
    }

    /// Returns the slices that wait to take over from a slice.
    pub(crate) fn slices_to_take_over(&self, key: &ObjectKey) -> impl Iterator<Item = &WorkloadRecord> {
        let finished = |record: &WorkloadRecord| conditions::is_true(&record.status, ConditionType::Finished);
        let waits = move |record: &&Arc<WorkloadRecord>| !record.meta.is_deleting() && !finished(record);
        self.workloads.replacing(key).filter(waits).map(|record| &**record)
    }

    fn workload_change(&mut self, key: &ObjectKey, owner: Option<Arc<OwnerRecord>>) -> WorkloadChange {
        let pod_usage = self.sync_assigned_hosts(key);
        WorkloadChange {
            owner,
            previous_owner: None,
            pod_usage,
            slices: Vec::new(),
            ungates_pods: self.nodes.assigned_hosts(key).is_some()
                || self.workloads.get(key).is_some_and(|record| record.annotations.is_slice),
        }
    }

    /// Reduces the status of a finished Workload. The caller ensures that no write of it is in flight: if the response
    /// to such a write is lost, the full status shows whether the write has landed.
    pub(crate) fn compact_finished_status(&mut self, key: &ObjectKey) {
        let Some(record) = self.workloads.get(key) else { return };
        let status = &record.status;
        let bulky = status.admission.is_some() || status.conditions.len() > 1;
        if bulky && conditions::is_true(status, ConditionType::Finished) {
            let interned = &mut self.shared.interned;
            self.workloads.change(key, |record| {
                let limit = record.max_execution_seconds;
                record.status = interned.intern_finished_status(mem::take(&mut record.status), limit);
            });
        }
    }

    /// Computes the requests of all Workloads again, or of those in one namespace. Returns these Workloads.
    pub(super) fn recompute_requests(&mut self, namespace: Option<&Arc<str>>) -> Vec<ObjectKey> {
        self.shared.interned.clear_requests();
        let keys: Vec<ObjectKey> = self
            .workloads
            .iter()
            .map(|(key, _)| key)
            .filter(|key| namespace.is_none_or(|namespace| key.namespace == *namespace))
            .cloned()
            .collect();
        for key in &keys {
            let Some(record) = self.workloads.get(key).map(Arc::clone) else { continue };
            let effective = self.effective_requests(&record);
            drop(record);
            self.workloads.change(key, |record| record.effective_requests = effective);
        }
        keys
    }

    /// Returns the effective requests, interned for equal pod sets of one namespace.
    fn effective_requests(&mut self, record: &WorkloadRecord) -> Arc<EffectiveRequests> {
        let namespace = &record.meta.key.namespace;
        self.shared.interned.find_requests(namespace, &record.pods).unwrap_or_else(|| {
            let effective = self.pod_defaults.effective_requests(namespace, &record.pods);
            self.shared.interned.insert_requests(namespace, &record.pods, effective)
        })
    }
}

/// Returns the value of a label or an annotation.
fn value_of<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    Some(map?.get(key)?.as_str())
}
