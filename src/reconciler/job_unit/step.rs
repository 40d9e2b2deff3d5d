//! The step of a unit: what its pods and its Workload need next.

use super::Unit;
use crate::api::{ObjectKey, names};
use crate::cache::records::WorkloadRecord;
use crate::cache::{Kind, UnitKey};
use crate::frameworks::{JobKind, JobUnit, POD_RULES, PodMember};
use crate::reconciler::Reconciler;
use jiff::Timestamp;

impl Reconciler {
    /// Sends the next writes of a unit's pods, and of its Workload's spec.
    pub(crate) fn step_unit(&mut self, key: &UnitKey, now: Timestamp) {
        let members = self.cache.unit_members(key);
        let summary = self.cache.unit_summary(key);
        let pods = JobUnit { owner: None, members: &members, summary: &summary };
        if !self.manages_unit(&pods) {
            return;
        }
        let (Ok(view), Ok(name)) = (POD_RULES.view(&pods), POD_RULES.workload_name(&pods)) else { return };
        let unit = Unit { key, pods, view: &view };
        let workload = ObjectKey::new(&view.key.namespace, &name);
        self.wake_after_grace(unit, &workload, now);
        match self.cache.workload(&workload).cloned() {
            // A Workload that users make is waited for.
            None if view.options.prebuilt_workload.is_some() => {
                let note = format!("Workload {workload} doesn't exist");
                self.warn_of_unit(unit, "PrebuiltWorkloadNotFound", &note);
            }
            None => self.step_unit_without_workload(unit, &workload, now),
            Some(record) if owns(unit, &record) => self.step_unit_with_workload(unit, &record, now),
            Some(_) => {
                let note = format!("Workload {workload} exists and belongs to another object");
                self.warn_of_unit(unit, "WorkloadNameConflict", &note);
                self.release_members(unit, |member| !member.counts(), now);
            }
        }
    }

    /// Returns whether the pods are managed. If only kinds that create pods are configured, theirs alone are.
    fn manages_unit(&self, pods: &JobUnit<'_>) -> bool {
        let created = |member: &PodMember| {
            let annotations = member.pod.pointer("/metadata/annotations");
            annotations.is_some_and(|map| map.get(names::SUSPENDING_PARENT_ANNOTATION).is_some())
        };
        self.settings.manages_kind(JobKind::POD) || pods.iter().all(created)
    }

    /// Emits a warning about a unit on its first pod, once for each text.
    pub(super) fn warn_of_unit(&mut self, unit: Unit<'_>, reason: &str, note: &str) {
        let Some(first) = unit.pods.first() else { return };
        if self.warnings.record(Kind::Pod, &first.key, note) {
            self.writes.emit_all(unit.event(true, reason, note));
        }
    }
}

/// Returns whether a Workload with the name of a unit's Workload is that Workload.
fn owns(unit: Unit<'_>, record: &WorkloadRecord) -> bool {
    match unit.key {
        UnitKey::Group(_) => record.annotations.is_pod_group,
        UnitKey::Pod(_) => record.owner.as_ref().is_some_and(|owner| owner.uid == unit.view.uid),
    }
}
