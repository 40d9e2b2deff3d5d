//! The members of a unit compared with the pod sets of its Workload: surplus, replaced and new members.

use super::units::Units;
use super::{LoadedUnit, UnitStep, event};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Membership, PodMember, PodSetCount, StopScope};
use crate::reconciler::ReconcileKey;
use crate::reconciler::messages::{Effect, EventType};
use crate::reconciler::nodes::blocked_pods;

/// Reason of the event about a pod that waits because its group already has its maximum number of pods.
pub(super) const EXCESS_POD_WAITS: &str = "ExcessPodWaits";

/// Maximum number of pods that a warning names.
const MAX_NAMED: usize = 3;

impl Units<'_> {
    /// Compares the members of a unit with the pod sets of a Workload. For a Workload of a set of pods, the set determines the
    /// requests.
    pub(super) fn membership(self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> Membership {
        let of_set = self.set_of_workload(record).is_some();
        let asked = record.effective_requests.pod_sets.as_deref().filter(|_| !of_set).unwrap_or_default();
        let requests = |name: &str| {
            let set = asked.iter().find(|set| *set.name == *name);
            set.map(|set| &set.pod_requirements.requests)
        };
        let sets = record.pod_sets().iter();
        let sets: Vec<PodSetCount<'_>> = sets
            .map(|set| PodSetCount { name: &set.name, count: set.count, requests: requests(&set.name) })
            .collect();
        unit.rules.membership(&unit.objects(), &sets, false)
    }

    /// Returns which members stop with a Workload. Members that do not fit it wait for the next one: the Workload is replaced
    /// because they request something else.
    pub(super) fn scope_of_stop(self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> StopScope {
        let deletion =
            record.meta.deletion.filter(|_| unit.owner.is_some() || self.membership(unit, record).matches);
        deletion.map_or(StopScope::Running, StopScope::All)
    }
}

impl LoadedUnit<'_> {
    /// Returns the warning about members that disagree with the one that decides for the unit. Without it, their values would be
    /// ignored in silence.
    pub(super) fn members_disagree(&self, asked: impl Fn(&PodMember) -> bool) -> Option<Effect> {
        let objects = self.objects();
        let members = self.members().filter(|member| member.counts() && asked(member));
        let mut faults = members.filter_map(|member| self.rules.disagreement(&objects, member));
        let named: Vec<String> = faults.by_ref().take(MAX_NAMED).collect();
        let more = faults.count();
        let rest = if more > 0 { format!("; and {more} more pods") } else { String::new() };
        (!named.is_empty()).then(|| self.warning("MembersDisagree", &format!("{}{rest}", named.join("; "))))
    }
}

impl UnitStep<'_> {
    /// Removes surplus pods, releases replaced ones, and adds owner references to late ones.
    pub(super) fn apply_membership(
        &mut self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
        membership: &Membership,
    ) {
        if !membership.excess.is_empty() {
            let excess = unit.members().filter(|member| membership.excess.contains(&member.key));
            let removals = excess.flat_map(|member| unit.rules.remove(member)).collect();
            self.perform(unit, removals, "", "");
        }
        self.report_waiting_members(unit, membership);
        self.report_members_of_other_roles(unit, record);
        // If they were released before their replacements are owners, the last one could be deleted, and the Workload with it.
        let owned = self.own_for_members(unit, record, membership);
        if owned && !membership.replaced.is_empty() {
            self.release_members(unit, |member| membership.replaced.contains(&member.key));
        }
    }

    /// Releases the members that have ended in a namespace that is being deleted: no replacement can come.
    pub(super) fn release_in_deleted_namespace(&mut self, unit: &LoadedUnit<'_>) {
        if self.units.cache.is_namespace_deleting(&unit.workload.namespace) {
            self.release_members(unit, |member| {
                member.terminated() || (member.state.deleting && !member.may_run())
            });
        }
    }

    /// Reports on surplus members why they wait, unless another member is about to leave its place to them.
    fn report_waiting_members(&mut self, unit: &LoadedUnit<'_>, membership: &Membership) {
        if membership.waiting.is_empty() || unit.summary.deleting > 0 || !membership.replaced.is_empty() {
            return;
        }
        let note = format!(
            "Pod group {} has all pods that its Workload asks for: the pod waits until one of them has ended. \
             A Deployment whose pods are in a group rolls out with maxSurge 0",
            unit.workload.name
        );
        for member in membership.waiting.iter().filter_map(|key| unit.member(key)) {
            if self.warnings.record_as(Kind::Pod, &member.key, EXCESS_POD_WAITS, &note) {
                let subject = (Kind::Pod, &member.key, &member.uid);
                self.writes.emit(event(subject, EventType::Warning, EXCESS_POD_WAITS, &note));
            }
        }
    }

    /// Reports on waiting members that their Workload has no pods of their role: they replace no member, and without the event a
    /// user could not see why they wait.
    fn report_members_of_other_roles(&mut self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) {
        if !unit.key.is_pod_group()
            || record.meta.is_deleting()
            || self.units.set_of_workload(record).is_some()
        {
            return;
        }
        let sets = record.pod_sets();
        let is_other = |role: &str| sets.iter().all(|set| *set.name != *role);
        if !unit.summary.roles().any(|(role, _)| is_other(role)) {
            return;
        }
        let others = unit.members().filter(|member| {
            member.state.gated && member.counts() && !member.state.deleting && is_other(&member.role)
        });
        let note = format!(
            "Workload {} has no pods of its role: a pod that replaces another one must request the same, and name the same nodes and \
             tolerations",
            record.meta.key
        );
        for member in others {
            if self.warnings.record_as(Kind::Pod, &member.key, EXCESS_POD_WAITS, &note) {
                let subject = (Kind::Pod, &member.key, &member.uid);
                self.writes.emit(event(subject, EventType::Warning, EXCESS_POD_WAITS, &note));
            }
        }
    }

    /// Returns the members that wait because they were changed and exceed the charge of their Workload. Reports it on each of
    /// them.
    pub(super) fn oversized_members<'u>(
        &mut self,
        unit: &'u LoadedUnit<'_>,
        record: &WorkloadRecord,
    ) -> Vec<ObjectKey> {
        let excess = |member: &'u PodMember| {
            let note = record.excess_of_pod(&member.role, &member.changed_requests()?)?;
            Some((&member.key, &member.uid, note))
        };
        let oversized: Vec<_> = unit.members.iter().filter_map(|member| excess(member)).collect();
        let keys = oversized.iter().map(|(key, ..)| (*key).clone()).collect();
        blocked_pods::report_oversized(oversized, self.warnings, self.writes);
        keys
    }

    /// Adds unit and Workload to the work queue for the time when deleted pods count as stopped.
    pub(super) fn wake_after_grace(&mut self, unit: &LoadedUnit<'_>) {
        if unit.summary.deleting == 0 {
            return;
        }
        let now = self.now;
        let ends = unit.members().filter_map(PodMember::counts_as_ended_at).filter(|end| *end > now);
        for end in ends {
            self.work_queue.add_at(unit.reconcile_key(), end);
            self.work_queue.add_at(ReconcileKey::workload(unit.workload.clone()), end);
        }
    }
}
