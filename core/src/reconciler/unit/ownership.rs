//! Owner references of Workloads to the objects of their units, and the deletion of owners.

use super::{LoadedUnit, UnitStep};
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{JobView, Membership};
use crate::lifecycle::{backoff, conditions, eviction};
use crate::reconciler::events::workload_event;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::request::WriteRequest;
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl UnitStep<'_> {
    /// Makes the owner of a unit the only owner of its Workload, which has no owner yet, or has lost it by an edit.
    pub(super) fn own(&mut self, unit: &LoadedUnit<'_>, owner: &JobView, record: &WorkloadRecord) {
        let resource = Kind::of_job(unit.key.kind).resource();
        let reference = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": owner.key.name,
            "uid": owner.uid, "controller": true, "blockOwnerDeletion": true,
        });
        let mut finalizers = record.meta.finalizers.to_vec();
        let own = owner.options.prebuilt_workload.is_none();
        if own
            && !record.meta.has_finalizer()
            && !conditions::is_true(&record.status, ConditionType::Finished)
        {
            finalizers.push(names::RESOURCE_IN_USE_FINALIZER.to_owned());
        }
        let body = json!({"metadata": {
            "resourceVersion": record.meta.resource_version, "ownerReferences": [reference],
            "finalizers": finalizers, "labels": {names::JOB_UID_LABEL: owner.uid},
        }});
        self.send(unit, owners_write(record, Verb::Merge, body, 1));
    }

    /// Adds owner references to members that came after the Workload of their group was made. Returns whether the stored Workload
    /// has them all.
    pub(super) fn own_for_members(
        &mut self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
        membership: &Membership,
    ) -> bool {
        if !record.annotations.is_pod_group {
            return true;
        }
        let leaves = |key: &ObjectKey| membership.excess.contains(key) || membership.replaced.contains(key);
        let late = unit.members().filter(|member| !leaves(&member.key));
        let owners: BTreeSet<&str> = record.owner_uids().map(|uid| &**uid).collect();
        let missing = late.filter(|member| !owners.contains(&*member.uid));
        let objects = unit.objects();
        let references: Vec<Value> =
            missing.filter_map(|member| unit.rules.owner_reference(&objects, member)).collect();
        if references.is_empty() {
            return true;
        }
        let count = references.len();
        let version = json!({
            "op": "replace", "path": "/metadata/resourceVersion", "value": record.meta.resource_version,
        });
        let mut operations = vec![version];
        if record.owner.is_none() {
            operations.push(json!({"op": "add", "path": "/metadata/ownerReferences", "value": references}));
        } else {
            let path = "/metadata/ownerReferences/-";
            let add = |reference| json!({"op": "add", "path": path, "value": reference});
            operations.extend(references.into_iter().map(add));
        }
        let disagreement = unit.members_disagree(|member| !owners.contains(&*member.uid));
        let request = owners_write(record, Verb::JsonPatch, Value::Array(operations), count);
        self.send(unit, request.with_more_effects(disagreement));
        false
    }

    /// Deletes the owner of a Workload that Sluice deactivated, if the retention period has expired. Returns whether the
    /// owner is deleted.
    pub(super) fn delete_expired_owner(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        let since = (!record.active).then(|| eviction::deactivated_by_manager(&record.status)).flatten();
        let keep = self.units.settings.lifecycle.retain_deactivated;
        let (Some(owner), Some(since), Some(keep)) = (unit.owner, since, keep) else { return false };
        let end = backoff::after(since, keep);
        if self.now < end {
            self.work_queue.add_at(unit.reconcile_key(), end);
            return false;
        }
        let workload = &record.meta.key;
        if !self.is_confirmed(unit, workload) {
            return true;
        }
        let body = json!({
            "preconditions": {"uid": owner.uid, "resourceVersion": owner.resource_version},
            "propagationPolicy": "Background",
        });
        let note = format!("Deleted: retention period of deactivated Workload {workload} expired");
        let kind = Kind::of_job(unit.key.kind);
        let request = WriteRequest::new(kind, owner.key.clone(), Verb::Delete, body);
        self.writes.start(request.with_effects(vec![unit.event("Deleted", &note)]), self.now);
        true
    }
}

/// Returns the write of the owner references of a Workload.
fn owners_write(record: &WorkloadRecord, verb: Verb, body: Value, added: usize) -> WriteRequest {
    let note = format!("Added {added} owner reference(s)");
    let event = workload_event(record, "OwnerReferencesAdded", note);
    WriteRequest::new(Kind::Workload, record.meta.key.clone(), verb, body).with_effects(vec![event])
}
