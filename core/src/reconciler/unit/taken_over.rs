//! Units below a queued object that have a Workload of their own: the object was queued later, became the controller later, or
//! was seen later. They give their Workload up, and run on the object's.
//!
//! Invariants: pods are charged by one Workload at a time. Their own Workload keeps its quota until they have ended, or may run
//! on the other one; then it finishes, and is deleted if it was made for the unit. A prebuilt Workload only loses its owner: it
//! is not the manager's, and stays. A held pod starts on the flavor that is charged for it.

use super::run::StopCause;
use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{JobError, OwnerRef, PodMember, PodSetInfo, TemplateInfo};
use crate::lifecycle::conditions;
use crate::reconciler::ReconcileKey;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::request::WriteRequest;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<'a> Units<'a> {
    /// Returns the Workloads of a unit that were not made for another one, including ended ones.
    fn own_workloads(self, unit: &LoadedUnit<'_>) -> Vec<&'a Arc<WorkloadRecord>> {
        let owned = self.cache.workloads_owned_by(&unit.view.uid).iter().chain([&unit.workload]);
        let keys: BTreeSet<_> = owned.filter(|key| key.namespace == unit.workload.namespace).collect();
        let records = keys.into_iter().filter_map(|key| self.cache.workload(key));
        records.filter(|record| self.belongs(unit, record)).collect()
    }

    /// Returns the additions for held pods of a unit that start below an object, by their role: the additions of the object's
    /// admission to the pod set that their label names, or to the only one. If the pod set is not known there are none. Empty
    /// while a flavor is missing.
    fn infos_below(self, unit: &LoadedUnit<'_>, above: &OwnerRef) -> Result<Vec<PodSetInfo>, JobError> {
        let record = self.shared_workload(&unit.view.key.namespace, above);
        let granted = match record.filter(|record| record.status.admission.is_some()) {
            Some(record) => {
                let Some(granted) = self.granted_pod_set_infos(record)? else { return Ok(Vec::new()) };
                granted
            }
            None => Vec::new(),
        };
        let held = unit.members().filter(|member| member.state.gated);
        let mut roles: BTreeMap<&str, Vec<&PodMember>> = BTreeMap::new();
        for member in held {
            roles.entry(member.role.as_str()).or_default().push(member);
        }
        let info = |(role, members): (&str, Vec<&PodMember>)| {
            let label = members.iter().find_map(|member| pod_set_label(member));
            let granted = match (label, granted.as_slice()) {
                (Some(label), granted) => granted.iter().find(|info| *info.name == *label),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let mut template = granted.map(|info| TemplateInfo::clone(&info.template)).unwrap_or_default();
            // No gate can be added to a pod.
            template.scheduling_gates.retain(|gate| members.iter().all(|member| has_gate(member, gate)));
            PodSetInfo { name: Arc::from(role), template: Arc::new(template), ..PodSetInfo::default() }
        };
        Ok(roles.into_iter().map(info).collect())
    }
}

/// Returns the pod set that the label of a pod names.
fn pod_set_label(member: &PodMember) -> Option<&str> {
    member.pod.pointer("/metadata/labels")?.get(names::POD_SET_LABEL)?.as_str()
}

fn has_gate(member: &PodMember, name: &str) -> bool {
    let gates = member.pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|gate| gate.get("name").is_some_and(|own| own == name))
}

impl UnitStep<'_> {
    /// Ends the Workloads of a unit in whose place another object is queued. Returns whether one is still in use: its lifecycle
    /// finishes it when no pod runs on its quota.
    pub(super) fn give_up_workload(&mut self, unit: &LoadedUnit<'_>, above: &OwnerRef) -> bool {
        if unit.status(self.now).finished.is_some() {
            return false;
        }
        let runs = self.units.may_run_below(&unit.view, above);
        let mut is_used = false;
        for record in self.units.own_workloads(unit) {
            if !conditions::is_true(&record.status, ConditionType::Finished) {
                is_used = true;
                self.work_queue.add(ReconcileKey::workload(record.meta.key.clone()));
                if !runs {
                    self.stop(unit, record, &StopCause::taken_over(above));
                }
            } else if unit.view.options.prebuilt_workload.is_some() {
                self.let_go(unit, record);
            } else if !record.meta.is_deleting() {
                self.delete_given_up(unit, record, above);
            }
        }
        is_used
    }

    pub(super) fn delete_given_up(
        &mut self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
        above: &OwnerRef,
    ) {
        let (key, owner) = (&record.meta.key, format_args!("{} {}", above.kind, above.name));
        self.delete_workload(
            unit,
            record,
            &format!("Deleted Workload {key}: {owner} is queued in its place"),
        );
    }

    /// Removes the owner references of a prebuilt Workload to a unit, with which it would be deleted.
    fn let_go(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        let is_of_unit =
            |uid: &Arc<str>| *uid == unit.view.uid || unit.members().any(|member| member.uid == *uid);
        let mut owners = record.owner_uids().peekable();
        if record.meta.is_deleting() || owners.peek().is_none() || !owners.all(is_of_unit) {
            return;
        }
        let body = json!({"metadata": {
            "resourceVersion": record.meta.resource_version, "ownerReferences": [],
            "labels": {names::JOB_UID_LABEL: null},
        }});
        self.send(unit, WriteRequest::new(Kind::Workload, record.meta.key.clone(), Verb::Merge, body));
    }

    /// Starts held pods when the object that is queued in their place may run. Returns whether the unit consists of pods.
    pub(super) fn follow_with_pods(&mut self, unit: &LoadedUnit<'_>, above: &OwnerRef) -> bool {
        if unit.owner.is_some() {
            return false;
        }
        if self.units.may_run_below(&unit.view, above) {
            let infos = self.units.infos_below(unit, above);
            match infos.and_then(|infos| unit.rules.start(&unit.objects(), &infos)) {
                Ok(actions) => {
                    let note =
                        format!("{} {} is admitted, which is queued in its place", above.kind, above.name);
                    self.perform(unit, actions, "Started", &note);
                }
                Err(error) => {
                    let note =
                        format!("It cannot run where {} {} has its quota: {error}", above.kind, above.name);
                    self.report(unit, "WaitsForOwner", &note);
                }
            }
        } else if unit.members().any(|member| member.state.gated) {
            let note = format!("Waits for {} {}, which is queued in its place", above.kind, above.name);
            self.report(unit, "WaitsForOwner", &note);
        }
        // These pods are no longer counted.
        self.release_members(unit, |member| !member.state.gated);
        true
    }
}
