//! The gates of elastic jobs: which pods of a job that grew or shrank may run.
//!
//! Invariants: the running pods of a pod set never exceed the charge of the slice in use, nor that of the slice that takes over
//! from it: nothing is ungated while a write may change which slices these are. A terminating pod counts until it has ended. If
//! the pods of two objects share a slice, such as the RayClusters of a RayService during an upgrade, the second object gets the
//! pods that the first leaves.
//! Pods are ungated by name, so that two decisions on the same pods are the same.

use super::pod_change::{PodChange, gate_removed_observation, gates_without};
use crate::api::names::ELASTIC_JOB_ANNOTATION as GATE;
use crate::api::{ObjectKey, v1beta2::PodSetAssignment};
use crate::cache::pods::{PodRecord, WorkloadPod};
use crate::cache::records::WorkloadRecord;
use crate::cache::{Cache, Kind};
use crate::frameworks::{JobView, UnitKey, groups_of, pods_in};
use crate::lifecycle::provisioning::POD_ANNOTATIONS;
use crate::reconciler::work_queue::ReconcileKey;
use crate::reconciler::writes::in_flight::Writes;
use crate::resources::without_reclaimable;
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Changes of the pods of a slice.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) changes: Vec<PodChange>,
    /// Names of pods that stay gated because an admission check has changed its additions since their creation, and fields of a
    /// pod cannot be changed.
    pub(super) stale: Vec<Arc<str>>,
}

/// Additions of admission checks to a pod when it is ungated: its template has the additions from the start of the job.
#[derive(Default)]
struct Additions<'a> {
    annotations: BTreeMap<&'a str, &'a str>,
    node_selector: BTreeMap<&'a str, &'a str>,
}

/// Returns the changes that ungate pods of a slice, as many as it has quota for.
pub(super) fn changes(cache: &Cache, record: &WorkloadRecord, now: Timestamp) -> Opened {
    let mut opened = Opened::default();
    let sets = record.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    for set in sets {
        let own = |(_, pod, member): &(_, &PodRecord, &WorkloadPod)| {
            *member.pod_set == *set.name && cache.belongs_to(pod, &record.meta.key)
        };
        let pods: Vec<_> = cache.pods_of(&record.meta.key).filter(own).collect();
        let (gated, running): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|(.., member)| member.has_gate(GATE));
        let additions = Additions::of(record, &set.name);
        let (fitting, stale): (Vec<_>, Vec<_>) = gated
            .into_iter()
            .filter(|(.., member)| !member.terminating && member.excess(record).is_none())
            .partition(|(.., member)| additions.fit(member));
        opened.stale.extend(stale.into_iter().map(|(key, ..)| Arc::clone(&key.name)));
        // The slice that takes over may be smaller, if the job has shrunk while it waited.
        let next = cache.slices_to_take_over(&record.meta.key).map(|next| asked_pods(next, &set.name));
        let charged = next.fold(charged_pods(record, set), i32::min);
        let room = usize::try_from(charged).unwrap_or(0).saturating_sub(running.len());
        let mut shares = Shares::of(cache, &set.name, charged, &fitting, &running);
        let change = |pod: (&ObjectKey, &PodRecord, &WorkloadPod)| additions.change(record, pod, now);
        // They are in the order of their names.
        let allowed = fitting.into_iter().filter(|(.., member)| shares.take(member));
        opened.changes.extend(allowed.take(room).map(change));
    }
    opened
}

/// Returns whether a write, of a slice or of a new one, may change before the next step how many pods of a job have quota.
pub(super) fn may_change_size(cache: &Cache, record: &WorkloadRecord, writes: &Writes) -> bool {
    let key = &record.meta.key;
    let beside = cache.slices_beside(key);
    let writing = beside.iter().chain([key]).any(|slice| writes.is_in_flight(Kind::Workload, slice));
    let job = record.owner.as_ref().and_then(|owner| cache.job_id(&owner.uid));
    let unit = job.map(|(kind, job)| ReconcileKey::Unit(UnitKey::of_object(*kind, job.clone())));
    writing || unit.is_some_and(|unit| writes.creates_for(&unit))
}

fn asked_pods(record: &WorkloadRecord, pod_set: &str) -> i32 {
    record.pod_sets().iter().find(|asked| *asked.name == *pod_set).map_or(0, |asked| asked.count)
}

/// Returns how many pods of a pod set a slice is charged for.
fn charged_pods(record: &WorkloadRecord, set: &PodSetAssignment) -> i32 {
    let asked = asked_pods(record, &set.name);
    let reclaimable = record.status.reclaimable_pods.iter().find(|pods| pods.name == set.name);
    let left = without_reclaimable(asked, reclaimable.map_or(0, |pods| pods.count));
    set.count.map_or(left, |granted| granted.min(left))
}

/// Remaining number of pods of a pod set for each of several objects that share a slice, by UID; empty if there is only one
/// object.
struct Shares(BTreeMap<Arc<str>, usize>);

impl Shares {
    /// Divides the pods: the object that was created first gets as many pods as it requests or runs, then the next one.
    fn of(
        cache: &Cache,
        pod_set: &str,
        charged: i32,
        gated: &[(&ObjectKey, &PodRecord, &WorkloadPod)],
        running: &[(&ObjectKey, &PodRecord, &WorkloadPod)],
    ) -> Self {
        let uids = gated.iter().chain(running).filter_map(|(.., member)| member.controller.as_ref());
        let uids: BTreeSet<&Arc<str>> = uids.collect();
        let job = |uid: &&Arc<str>| cache.job(cache.job_id(uid)?);
        let mut jobs: Vec<&JobView> = uids.iter().filter_map(job).map(|view| &**view).collect();
        if jobs.len() < 2 {
            return Self(BTreeMap::new());
        }
        jobs.sort_by_key(|view| (view.created, &view.uid));
        let mut left = usize::try_from(charged).unwrap_or(0);
        let mut share = |view: &JobView| {
            let is_own = |member: &WorkloadPod| member.controller.as_ref() == Some(&view.uid);
            let runs = running.iter().filter(|(.., member)| is_own(member)).count();
            let asked = if view.deleting { 0 } else { pods_in(&groups_of(view), pod_set) };
            let share = left.saturating_sub(runs);
            left = left.saturating_sub(usize::try_from(asked).unwrap_or(0).max(runs));
            (Arc::clone(&view.uid), share)
        };
        Self(jobs.into_iter().map(&mut share).collect())
    }

    /// Takes a pod from the share of its object. Returns whether there was one.
    fn take(&mut self, member: &WorkloadPod) -> bool {
        let share = member.controller.as_ref().and_then(|uid| self.0.get_mut(uid));
        share.is_none_or(|share| {
            let any = *share > 0;
            *share = share.saturating_sub(1);
            any
        })
    }
}

impl<'a> Additions<'a> {
    fn of(record: &'a WorkloadRecord, pod_set: &str) -> Self {
        let mut additions = Self::default();
        let updates = record.status.admission_checks.iter().flat_map(|check| &check.pod_set_updates);
        for update in updates.filter(|update| update.name == pod_set) {
            let named = update.annotations.iter().filter(|(key, _)| POD_ANNOTATIONS.contains(&key.as_str()));
            additions.annotations.extend(named.map(|(key, value)| (key.as_str(), value.as_str())));
            let selected = update.node_selector.iter();
            additions.node_selector.extend(selected.map(|(key, value)| (key.as_str(), value.as_str())));
        }
        additions
    }

    /// Returns whether a pod can get the additions: a different value that it already has cannot be changed.
    fn fit(&self, pod: &WorkloadPod) -> bool {
        let annotated =
            |key: &str| pod.annotations.iter().find(|(own, _)| own == key).map(|(_, v)| v.as_str());
        self.annotations.iter().all(|(key, value)| annotated(key).is_none_or(|own| own == *value))
            && self
                .node_selector
                .iter()
                .all(|(key, value)| pod.selected_value(key).is_none_or(|own| own == *value))
    }

    fn change(
        &self,
        record: &WorkloadRecord,
        (key, pod, member): (&ObjectKey, &PodRecord, &WorkloadPod),
        now: Timestamp,
    ) -> PodChange {
        let body = json!({
            "metadata": {
                "uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": self.annotations,
            },
            "spec": {"schedulingGates": gates_without(member, GATE), "nodeSelector": self.node_selector},
        });
        let effect = gate_removed_observation(record, GATE, now);
        PodChange { key: key.clone(), body, terminates_pod: false, effect }
    }
}
