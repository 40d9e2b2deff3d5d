//! Jobs that can be suspended, as units: an owner without members.
//!
//! Invariant: everything follows from the owner and the row of its kind.

use super::JobError;
use super::patch::{Action, Change, JobPatch};
use super::read;
use super::unit::{
    ComposeError, Composed, Membership, PodSetCount, Readiness, Sources, Stop, Unit, UnitRules, UnitStatus,
};
use super::view::{JobView, PodSetInfo};
use super::workload::{MAX_POD_SET_NAME, MAX_POD_SETS, WorkloadRequest, own_workload_key, workload_body};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// Rules of jobs that can be suspended.
#[derive(Debug)]
pub(super) struct SuspendedJobs;

fn owner<'a>(unit: &Unit<'a>) -> Result<&'a JobView, JobError> {
    unit.owner.ok_or_else(|| read::malformed("/metadata", "the job of the unit is missing"))
}

fn stored(sources: Sources<'_>) -> Result<&Value, JobError> {
    sources.owner.ok_or_else(|| read::malformed("/spec", "the job of the unit is missing"))
}

/// Checks what the API server would refuse in the Workload: that is no reason to ask it over and over.
fn check_number_and_names(pod_sets: &[Value]) -> Result<(), ComposeError> {
    match pod_sets.len() {
        0 => return Err(ComposeError::NoPodSets),
        number if number > MAX_POD_SETS => return Err(ComposeError::TooManyPodSets(number)),
        _ => {}
    }
    let mut names = BTreeSet::new();
    for name in pod_sets.iter().filter_map(|set| set.get("name")?.as_str()) {
        if name.len() > MAX_POD_SET_NAME {
            return Err(ComposeError::LongPodSetName(name.to_owned()));
        }
        if !names.insert(name) {
            return Err(ComposeError::DuplicatePodSet(name.to_owned()));
        }
    }
    Ok(())
}

impl UnitRules for SuspendedJobs {
    fn view(&self, unit: &Unit<'_>) -> Result<JobView, JobError> {
        owner(unit).cloned()
    }

    fn workload_name(&self, unit: &Unit<'_>) -> Result<String, JobError> {
        let view = owner(unit)?;
        let key = view.prebuilt_workload_key().unwrap_or_else(|| own_workload_key(&unit.kind, view));
        Ok(key.name.to_string())
    }

    fn pod_sets(&self, unit: &Unit<'_>, sources: Sources<'_>) -> Result<Vec<Value>, ComposeError> {
        let mut pod_sets = unit.kind.pod_sets_with(stored(sources)?, sources.beside)?.known()?;
        check_number_and_names(&pod_sets)?;
        // Whether fewer pods may be admitted depends on a setting, which the view follows.
        let views = unit.owner.map(|view| view.pod_sets.as_slice()).unwrap_or_default();
        for set in pod_sets.iter_mut().filter_map(Value::as_object_mut) {
            let name = set.get("name").and_then(Value::as_str).unwrap_or_default();
            if views.iter().any(|view| *view.name == *name && view.min_count.is_none()) {
                set.shift_remove("minCount");
            }
        }
        Ok(pod_sets)
    }

    fn compose(
        &self,
        unit: &Unit<'_>,
        sources: Sources<'_>,
        request: &WorkloadRequest<'_>,
    ) -> Result<Composed, ComposeError> {
        let pod_sets = self.pod_sets(unit, sources)?;
        let workload = workload_body(&unit.kind, stored(sources)?, owner(unit)?, pod_sets, request)?;
        Ok(Composed { workload, removals: Vec::new() })
    }

    fn membership(&self, _unit: &Unit<'_>, _pod_sets: &[PodSetCount<'_>], _finished: bool) -> Membership {
        Membership { matches: true, ..Membership::default() }
    }

    fn status(&self, unit: &Unit<'_>, _now: Timestamp) -> UnitStatus {
        let Some(view) = unit.owner else { return UnitStatus::default() };
        let ready = view.status.pods_ready && !view.suspended;
        UnitStatus {
            suspended: view.suspended,
            active: view.status.active_pods > 0,
            readiness: if ready { Readiness::Ready } else { Readiness::NotReady },
            finished: view.status.finished.clone(),
            reclaimable_pods: view.status.reclaimable_pods.clone(),
        }
    }

    /// Beside the pods of an earlier start that still end, new ones would exceed the grant: nothing starts before they are
    /// gone. Nor does it while it is unknown what would start.
    fn start(&self, unit: &Unit<'_>, infos: &[PodSetInfo]) -> Result<Vec<Action>, JobError> {
        let view = owner(unit)?;
        if view.status.active_pods > 0 || view.related.waits_for.is_some() {
            return Ok(Vec::new());
        }
        let patches = unit.kind.run_patch(view, infos)?.into_iter();
        let action = |patch: JobPatch| {
            // The start time of an earlier run is cleared before.
            let change = if patch.status { Change::None } else { Change::Start };
            Action::patch_owner(patch, change)
        };
        Ok(patches.map(action).collect())
    }

    fn stop(&self, unit: &Unit<'_>, stop: &Stop<'_>) -> Vec<Action> {
        let Some(view) = unit.owner else { return Vec::new() };
        let change = if view.suspended { Change::None } else { Change::Stop };
        let patches = unit.kind.stop_patches(view, stop.originals).into_iter();
        patches.map(|patch| Action::patch_owner(patch, change)).collect()
    }
}
