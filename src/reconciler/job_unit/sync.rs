//! Units with a Workload: membership, owner references, and what the admission demands.

use super::Unit;
use super::run::stop_reason;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Membership, POD_RULES, PodSetCount, StopReason};
use crate::lifecycle::conditions;
use crate::reconciler::events::workload_event;
use crate::reconciler::job::sync::spec_write;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::bodies::delete_options;
use crate::reconciler::writes::in_flight::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Returns names and counts of the pod sets of a Workload.
pub(super) fn pod_set_counts(record: &WorkloadRecord) -> Vec<PodSetCount<'_>> {
    record.pod_sets().iter().map(|set| PodSetCount { name: &set.name, count: set.count }).collect()
}

impl Reconciler {
    pub(super) fn step_unit_with_workload(
        &mut self,
        unit: Unit<'_>,
        record: &WorkloadRecord,
        now: Timestamp,
    ) {
        if record.meta.deleting {
            let time = now.to_string();
            let reason = stop_reason("WorkloadDeleted", "The workload is deleted", &time);
            self.stop_members(unit, &record.meta.key, &StopReason { workload_deleted: true, ..reason }, now);
            return self.release_members(unit, |member| member.state.deleting, now);
        }
        if conditions::is_true(&record.status, ConditionType::Finished) {
            return self.release_members(unit, |_| true, now);
        }
        if POD_RULES.status(&unit.pods, now).finished.is_some() {
            // The Workload is about to finish.
            return;
        }
        let membership = POD_RULES.membership(&unit.pods, &pod_set_counts(record), false);
        self.apply_membership(unit, record, &membership, now);
        if unit.pods.summary.is_deleting() {
            return;
        }
        if !membership.matches {
            return self.replace_unit_workload(unit, record, now);
        }
        if record.may_run() {
            self.start_members(unit, record, now);
            self.sync_priority_of_running_job(unit.view, record, now);
            return;
        }
        self.stop_unit(unit, record, now);
        if let Some(note) = self.new_check_messages(record) {
            self.writes.emit_all(unit.event(false, "UpdatedAdmissionCheck", &note));
        }
        if self.writes.may_write(Kind::Workload, &record.meta.key, now) {
            let reserved = conditions::is_true(&record.status, ConditionType::QuotaReserved);
            let mut spec = Map::new();
            self.sync_spec_fields(unit.view, record, reserved, &mut spec);
            if let Some(request) = spec_write(unit.view, record, &spec) {
                self.writes.start(request, now);
            }
        }
    }

    /// Removes pods that are too many, releases those that were replaced, and adds owner references to late ones.
    fn apply_membership(
        &mut self,
        unit: Unit<'_>,
        record: &WorkloadRecord,
        membership: &Membership,
        now: Timestamp,
    ) {
        if !membership.excess.is_empty() {
            let excess = unit.members().filter(|member| membership.excess.contains(&member.key));
            let removals = excess.flat_map(|member| POD_RULES.remove(member)).collect();
            self.remove_members(unit, removals, now);
        }
        if !membership.replaced.is_empty() {
            self.release_members(unit, |member| membership.replaced.contains(&member.key), now);
        }
        self.add_owner_references(unit, record, membership, now);
    }

    fn add_owner_references(
        &mut self,
        unit: Unit<'_>,
        record: &WorkloadRecord,
        membership: &Membership,
        now: Timestamp,
    ) {
        if !record.annotations.is_pod_group {
            return;
        }
        let leaves = |key: &ObjectKey| membership.excess.contains(key) || membership.replaced.contains(key);
        let late = unit.members().filter(|member| !leaves(&member.key));
        let owners: BTreeSet<&str> = record.owner_uids().map(|uid| &**uid).collect();
        let missing = late.filter(|member| !owners.contains(&*member.uid));
        let references: Vec<Value> =
            missing.filter_map(|member| POD_RULES.owner_reference(&unit.pods, member).ok()).collect();
        if references.is_empty() {
            return;
        }
        let note = format!("Added {} owner reference(s)", references.len());
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
        let key = record.meta.key.clone();
        let request = WriteRequest::new(Kind::Workload, key, Verb::JsonPatch, Value::Array(operations));
        let event = workload_event(record, false, "OwnerReferencesAdded", note);
        self.writes.write_for(
            unit.reconcile_key(),
            request.with_effects(vec![event]),
            &mut self.work_queue,
            now,
        );
    }

    /// Stops the pods of a Workload that does not match them, then deletes it. A new one is made after that.
    fn replace_unit_workload(&mut self, unit: Unit<'_>, record: &WorkloadRecord, now: Timestamp) {
        let key = &record.meta.key;
        let time = now.to_string();
        let reason = stop_reason("NoMatchingWorkload", "No matching Workload", &time);
        if self.stop_members(unit, key, &reason, now) || POD_RULES.status(&unit.pods, now).active {
            return;
        }
        let event = unit.event(false, "DeletedWorkload", &format!("Deleted not matching Workload: {key}"));
        let request =
            WriteRequest::new(Kind::Workload, key.clone(), Verb::Delete, delete_options(&record.meta));
        self.writes.write_for(
            unit.reconcile_key(),
            request.with_effects(event.into_iter().collect()),
            &mut self.work_queue,
            now,
        );
    }

    /// Adds unit and Workload to the work queue for the time when pods that are deleted count as stopped.
    pub(super) fn wake_after_grace(&mut self, unit: Unit<'_>, workload: &ObjectKey, now: Timestamp) {
        if unit.pods.summary.deleting == 0 {
            return;
        }
        let ends = unit.members().filter_map(|member| member.grace_ends).filter(|end| *end > now);
        for end in ends {
            self.work_queue.add_at(unit.reconcile_key(), end);
            self.work_queue.add_at(ReconcileKey::Workload(workload.clone()), end);
        }
    }
}
