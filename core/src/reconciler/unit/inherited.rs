//! Workloads that an object takes over from an earlier object of its name, with the pods that run on them: a user deletes a
//! StatefulSet without its pods and creates it again, to change fields that cannot be changed otherwise.
//!
//! Invariant: each pod is charged once. A pod stays in the group of its Workload for good, and has the name of a pod of the new
//! object, which adopts it or waits for its end; so the new object gets the Workload of its pods, and makes none of its own
//! beside it.

use super::units::Units;
use super::{LoadedUnit, UnitStep};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{JobView, Role, UnitKey, workload_name_without_hash};
use crate::lifecycle::conditions;
use std::sync::Arc;

impl<'a> Units<'a> {
    /// Returns the Workload of an earlier object on whose quota the pods of a unit run; `None` if no object with a Workload for
    /// its pods was there before, or the unit has pods on a Workload of its own.
    pub(super) fn inherited_workload(self, unit: &LoadedUnit<'_>) -> Option<&'a Arc<WorkloadRecord>> {
        let set = unit.owner.filter(|_| unit.key.kind.role == Role::PodsOfOwner)?;
        let own = &unit.workload;
        let own_group = UnitKey::of_pod_group(own.clone());
        if self.cache.unit_pod_keys(&own_group).next().is_some() {
            return None;
        }
        self.taken_over(set, own).or_else(|| {
            let groups = self.cache.groups_named_like(own);
            groups.filter_map(|group| self.cache.workload(group)).find(|record| self.is_left(set, record))
        })
    }

    /// Returns the Workload of an earlier object that an object owns by now.
    fn taken_over(self, set: &JobView, own: &ObjectKey) -> Option<&'a Arc<WorkloadRecord>> {
        let start = workload_name_without_hash(&own.name)?;
        let with_hyphen = own.name.get(..=start.len())?;
        // The Workloads are in order, and there may be many of replicas: all numbers that begin with this one come later.
        let owned = self.cache.workloads_owned_by(&set.uid);
        let first = (&*own.namespace, with_hyphen);
        let from = owned.partition_point(|key| (&*key.namespace, &*key.name) < first);
        let begins = |key: &&ObjectKey| key.namespace == own.namespace && key.name.starts_with(with_hyphen);
        let is_other =
            |key: &&ObjectKey| key.name != own.name && workload_name_without_hash(&key.name) == Some(start);
        let others = owned.iter().skip(from).take_while(begins).filter(is_other);
        others.filter_map(|key| self.cache.workload(key)).find(|record| record.annotations.is_pod_group)
    }

    /// Returns whether a Workload was made for a deleted object that has left pods behind. Pods that are deleted with the object,
    /// or still name it, leave their places to pods of the new object, which wait for that with a Workload of their own. A
    /// Workload that the new object has taken over before has its UID, although a client may have removed the owners.
    fn is_left(self, set: &JobView, record: &WorkloadRecord) -> bool {
        let Some(former) = &record.job_uid else { return false };
        let ends = record.meta.is_deleting() || conditions::is_true(&record.status, ConditionType::Finished);
        if *former == set.uid {
            return record.annotations.is_pod_group && !ends;
        }
        let is_gone = record.annotations.is_pod_group && !ends && self.cache.job_id(former).is_none();
        is_gone && self.has_live_pods(record, Some(&**former))
    }

    /// Returns whether some pod of the group of a Workload is neither deleted nor has ended, without the pods that the object
    /// with the UID `without` controls.
    pub(super) fn has_live_pods(self, record: &WorkloadRecord, without: Option<&str>) -> bool {
        let members = self.cache.unit_members(&UnitKey::of_pod_group(record.meta.key.clone()));
        members.iter().any(|member| {
            let is_left_out = without.is_some() && member.controller_uid() == without;
            !member.state.deleting && !member.terminated() && !is_left_out
        })
    }
}

impl UnitStep<'_> {
    /// Deletes the Workload that an object has taken over, if it does not match the object and has no pods left: the object then
    /// makes one of its own. Returns whether the Workload is deleted.
    pub(super) fn give_up_inherited_workload(
        &mut self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
    ) -> bool {
        if self.units.has_live_pods(record, None) {
            return false;
        }
        let key = &record.meta.key;
        let note =
            format!("Deleted Workload of an earlier object of this name, whose pods have ended: {key}");
        self.delete_workload(unit, record, &note);
        true
    }
}
