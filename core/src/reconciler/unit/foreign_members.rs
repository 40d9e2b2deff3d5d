//! Separates the own pods of a group from foreign ones: any pod may name the Workload of a StatefulSet or a LeaderWorkerSet as
//! its group.
//!
//! Invariant: the rules of a group see its own pods alone, so that no count of them, and nothing that is read from the first one,
//! depends on foreign pods. A foreign pod neither starts nor runs, because the Workload is not charged for it, and nothing keeps
//! it.

use super::run::StopCause;
use super::units::{Units, assemble, is_made_by_parent};
use super::{LoadedUnit, UnitStep, event};
use crate::cache::Kind;
use crate::frameworks::{JobView, PodMember, Role, UnitKey, UnitSummary};
use crate::reconciler::messages::EventType;
use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The object whose Workload has the name of a group; its pods form the group.
struct SetOfGroup<'a> {
    /// The object, or the replica.
    unit: UnitKey,
    view: &'a JobView,
}

impl<'a> Units<'a> {
    /// Returns the object whose pods alone form a group; `None` for a group of plain pods.
    fn set_of_group(self, key: &UnitKey) -> Option<SetOfGroup<'a>> {
        let (unit, view) = self.cache.unit_of_own_workload(&key.key).filter(|_| key.is_pod_group())?;
        (unit.kind.role == Role::PodsOfOwner).then_some(SetOfGroup { unit, view })
    }

    /// Retains the own or the foreign pods among pods that name a group. Own pods are the ones that the set has made, and the
    /// owners of the Workload: these were members before the set was deleted without them, and have no controller until another
    /// set of its name adopts them.
    fn retain(self, members: &mut Vec<Arc<PodMember>>, key: &UnitKey, set: &SetOfGroup<'_>, own: bool) {
        let record = self.cache.workload(&key.key);
        let uids = || record.into_iter().flat_map(|record| record.owner_uids()).map(|uid| &**uid);
        let owners = LazyCell::new(|| uids().collect::<BTreeSet<&str>>());
        let is_made = |member: &PodMember| {
            self.cache.owner_of_pod(&member.key) == Some(&set.unit)
                || member.controller_uid() == Some(&*set.view.uid)
        };
        let is_left = |member: &PodMember| {
            member.controller_uid().is_none() && is_made_by_parent(member) && owners.contains(&*member.uid)
        };
        members.retain(|member| own == (is_made(member) || is_left(member)));
    }

    /// Returns the pods of a unit, with their numbers.
    pub(super) fn own_members(self, key: &UnitKey) -> (Vec<Arc<PodMember>>, Cow<'a, UnitSummary>) {
        let mut members = self.cache.unit_members(key);
        let named = members.len();
        if let Some(set) = self.set_of_group(key) {
            self.retain(&mut members, key, &set, true);
        }
        let summary = if members.len() == named {
            Cow::Borrowed(self.cache.unit_summary(key))
        } else {
            Cow::Owned(UnitSummary::of(members.iter().map(|member| &**member)))
        };
        (members, summary)
    }

    /// Returns the pods that name the Workload of a set as their group although the set has not made them, as a unit that may not
    /// run; `None` if there are none.
    pub(super) fn foreign_members(self, key: &UnitKey) -> Option<LoadedUnit<'a>> {
        let set = self.set_of_group(key)?;
        let mut members = self.cache.unit_members(key);
        self.retain(&mut members, key, &set, false);
        let summary = UnitSummary::of(members.iter().map(|member| &**member));
        assemble(key, None, members, Cow::Owned(summary))
    }
}

impl UnitStep<'_> {
    /// Holds back pods that name the Workload of a set as their group, or ends them if they run, and reports it on each of them.
    pub(super) fn stop_foreign_members(&mut self, foreign: &LoadedUnit<'_>) {
        let set = self.units.set_of_group(&foreign.key).filter(|_| self.units.manages_pods(foreign));
        let Some(SetOfGroup { unit, view }) = set else { return };
        let (group, kind, name) = (&foreign.key.key, unit.kind.gvk.kind, &view.key.name);
        let note =
            format!("Workload {group} is that of {kind} {name}: pods of a group need a name of their own");
        for member in foreign.members() {
            if self.warnings.record(Kind::Pod, &member.key, &note) {
                let subject = (Kind::Pod, &member.key, &member.uid);
                self.writes.emit(event(subject, EventType::Warning, "WorkloadNameConflict", &note));
            }
        }
        self.stop_with(foreign, group, &[], &StopCause::foreign_members(&note));
        self.release_members(foreign, |member| {
            member.terminated() || (member.state.deleting && !member.may_run())
        });
    }
}
