//! Workloads, pods, jobs, and the objects that jobs read. Pods and jobs get their steps as units.

use super::links::{follow_move, pod_entry, set_link};
use super::{KindRules, Received, Steps, Unread};
use crate::api::decoding::decode;
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::{JobChange, Kind, OwnerEntry, UnreadJob, WorkloadObject};
use crate::frameworks::{JobKind, JobView, RelatedKey, RelatedKind};
use crate::lifecycle::conditions;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) struct Workloads;

impl KindRules for Workloads {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        core.store_workload(key, &WorkloadObject::from_value(received.object)?, received.written)?;
        if let Some(record) = core.cache.workload(key).map(Arc::clone)
            && !conditions::is_true(&record.status, ConditionType::Finished)
        {
            for job in record.owner_uids() {
                core.cache.forget_counts(job);
            }
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.warnings.record_check_messages(key, None);
        core.warnings.record_gated_pods(key, None);
        core.queue_updates().mark_queues_of(key);
        let (record, change) = core.cache.remove_workload(key);
        if let Some(record) = &record {
            core.second_passes.forget(key, &record.meta.uid);
            core.history.delete(record);
            core.cache.keep_vanished(record);
            let counted = core.units().job_to_count_for(record);
            if let Some(job) = counted {
                core.cache.keep_counts(&job, record);
            }
        }
        core.writes.completing.remove(key);
        core.writes.restarts.remove(key);
        core.membership.assumed.remove(key);
        // If the Workload held quota, the next step finds out whether pods still run on it.
        if core.cache.vanished(key).is_none() {
            core.engine.release(key);
        }
        core.engine.remove_pending(key);
        core.follow_workload_change(key, change);
    }

    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey) {
        let owner = core.cache.workload(key).and_then(|record| record.owner.clone());
        core.mark_workload_and_job(key, owner.as_deref());
    }

    fn steps(&self) -> Option<&dyn Steps> {
        Some(self)
    }
}

impl Steps for Workloads {
    fn before_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        let membership = core.sync_queue_membership(key, now);
        core.queue_updates().update_counts(key, membership, now);
        core.history_feed().follow_changed_surroundings(key);
    }

    fn after_cycles(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        let superseded = core.second_passes().supersede_write(key, now);
        if !superseded && !core.may_step(&ReconcileKey::workload(key.clone()), now) {
            return;
        }
        if core.settings.writes.max_in_flight_status_writes.is_some() {
            let assumed = &core.membership.assumed;
            core.workload_write_queue.enqueue(key, &core.cache, &core.engine, assumed);
        } else {
            core.step_workload(key, now);
        }
    }
}

pub(super) struct Pods;

impl KindRules for Pods {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        let pod: Pod = decode(&received.object)?;
        set_link(core, Kind::Pod, key, pod_entry(core, &pod.metadata));
        core.mark_unit_of_pod(key);
        if let Some(note) = never_started(&pod).filter(|_| core.leading) {
            core.warn(Kind::Pod, key, "PodsStayGated", note);
        }
        if let Some(note) = never_queued(core, &pod).filter(|_| core.leading) {
            core.warn(Kind::Pod, key, "NotQueued", note);
        }
        let read = core.cache.ingest_unit_pod(key, &received.object);
        core.mark_unit_of_pod(key);
        let change = core.cache.ingest_pod(key, pod);
        core.follow_pod_change(key, change);
        core.report_unit_pod(key, read.err().map(|error| error.to_string()));
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        set_link(core, Kind::Pod, key, None);
        core.mark_unit_of_pod(key);
        core.cache.remove_unit_pod(key);
        let change = core.cache.remove_pod(key);
        core.follow_pod_change(key, change);
    }

    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.mark_unit_of_pod(key);
    }

    fn steps(&self) -> Option<&dyn Steps> {
        None
    }
}

/// Returns why nothing starts a held pod. The annotation of a marked template holds it, which a user may set as well, but only
/// the label of such a template, or its controller, gets it started.
fn never_started(pod: &Pod) -> Option<String> {
    let has =
        |map: &Option<BTreeMap<String, String>>, key| map.as_ref().is_some_and(|map| map.contains_key(key));
    let (meta, gates) = (&pod.metadata, pod.spec.as_ref()?.scheduling_gates.as_ref()?);
    let is_held = gates.iter().any(|gate| gate.name == names::ADMISSION_GATE);
    let is_marked = has(&meta.annotations, names::SUSPENDING_PARENT_ANNOTATION);
    // The pods of a set get the label when the set is known.
    let is_controlled = meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    (is_held && is_marked && !is_controlled && !has(&meta.labels, names::MANAGED_LABEL)).then(|| {
        format!(
            "It keeps the scheduling gate {}: it has the annotation {}, but not the label {}: \"true\", without which no Workload \
             is made for it",
            names::ADMISSION_GATE,
            names::SUSPENDING_PARENT_ANNOTATION,
            names::MANAGED_LABEL
        )
    })
}

/// Returns why a pod of a queue runs without quota: no webhook held it at its creation, because it had a controller, which has
/// released it since, or because no webhook answered. It keeps running, as does a pod that its controller leaves behind.
fn never_queued(core: &Reconciler, pod: &Pod) -> Option<String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref()?);
    let queue = meta.labels.as_ref()?.get(names::QUEUE_NAME_LABEL).filter(|name| !name.is_empty())?;
    let has =
        |map: &Option<BTreeMap<String, String>>, key| map.as_ref().is_some_and(|map| map.contains_key(key));
    let is_managed = has(&meta.labels, names::MANAGED_LABEL)
        || has(&meta.annotations, names::SUSPENDING_PARENT_ANNOTATION)
        || meta.finalizers.iter().flatten().any(|name| name == names::MANAGED_LABEL);
    let is_held = spec.scheduling_gates.iter().flatten().any(|gate| gate.name == names::ADMISSION_GATE);
    let is_controlled = meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ends = meta.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    if is_managed || is_held || is_controlled || ends || !core.settings.manages_kind(JobKind::POD) {
        return None;
    }
    // Pods that a started job leaves behind run on its quota as long as its Workload has some.
    let started_by = meta.annotations.as_ref().and_then(|map| map.get(names::WORKLOAD_ANNOTATION));
    let is_charged = started_by.is_some_and(|name| core.cache.holds_quota(&ObjectKey::new(namespace, name)));
    (!is_charged && core.units().manages_namespace(namespace)).then(|| {
        format!(
            "Not managed: it names queue {queue} and runs without quota, because it was created with a controller that has let go of it \
             since, or while the webhook was unavailable; delete it and create it again"
        )
    })
}

/// Handles that a job cannot be decoded: its place among owners follows from its metadata. This matters to a user only if the job
/// is in a queue, or below an object that is.
fn follow_unread(
    core: &mut Reconciler,
    kind: JobKind,
    key: &ObjectKey,
    unread: UnreadJob,
) -> Result<(), Unread> {
    kind.remove(core, key);
    let is_queued = core.units().is_queued_unread(kind, &key.namespace, &unread.place);
    set_link(core, Kind::of_job(kind), key, Some(unread.place));
    if is_queued { Err(Unread { problem: unread.problem, in_part: true }) } else { Ok(()) }
}

impl KindRules for JobKind {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        if !core.settings.manages_kind(*self) {
            set_link(core, Kind::of_job(*self), key, Some(OwnerEntry::of_metadata(&received.object)));
            return Ok(());
        }
        let before = core.cache.job(&(*self, key.clone())).map(Arc::clone);
        let had_pods = before.as_ref().is_some_and(|view| view.status.active_pods > 0);
        let at_start = !core.is_synced();
        let change = match core.cache.ingest_job(*self, key, (received.object, at_start)) {
            Ok(change) => change,
            Err(unread) => return follow_unread(core, *self, key, *unread),
        };
        set_link(core, Kind::of_job(*self), key, None);
        let JobChange { replaced, pods, moved } = change;
        core.follow_rechecked_pods(pods);
        if let Some(uid) = moved {
            follow_move(core, &uid);
        }
        if let Some(uid) = &replaced {
            core.cache.forget_counts(uid);
            core.mark_workloads_owned_by(uid);
        }
        let steps = core.units().steps_of_jobs([&(*self, key.clone())]);
        core.work_queue.add_all(steps);
        if let Some(view) = core.cache.job(&(*self, key.clone())).map(Arc::clone) {
            let submitter = core.cache.submitter_for_pods(*self, key);
            core.snapshot_builder.set_job(*self, &view, submitter);
            core.mark_workloads_of_job(*self, &view);
            let siblings = core.units().steps_of_siblings(*self, &view);
            core.work_queue.add_all(siblings);
            if had_pods && view.status.active_pods == 0 {
                let above = core.units().steps_above(&view);
                core.work_queue.add_all(above);
            }
            if self.hooks.keeps_suspended_children()
                && before.is_none_or(|before| is_in_other_state(&before, &view))
            {
                let below = core.units().steps_below(&view.uid);
                core.work_queue.add_all(below);
            }
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        set_link(core, Kind::of_job(*self), key, None);
        if let Some((view, pods)) = core.cache.remove_job(*self, key) {
            core.follow_rechecked_pods(pods);
            follow_move(core, &view.uid);
            core.cache.forget_counts(&view.uid);
            core.snapshot_builder.remove_job(*self, &view);
            core.mark_workloads_of_job(*self, &view);
            // These Workloads may have lost their owner earlier, while it still existed.
            let of_replicas = core.units().workloads_of_replicas(*self, &view);
            core.mark_workloads(of_replicas);
            let above = core.units().steps_above(&view);
            core.work_queue.add_all(above);
            let siblings = core.units().steps_of_siblings(*self, &view);
            core.work_queue.add_all(siblings);
            core.writes.running_children.remove(&view.uid);
        }
    }

    fn follow_write(&self, core: &mut Reconciler, key: &ObjectKey) {
        let steps = core.units().steps_of_jobs([&(*self, key.clone())]);
        core.work_queue.add_all(steps);
        // Its Workload waits while a write of the job is in flight, and the watch may have overtaken the response.
        if let Some(job) = core.cache.job(&(*self, key.clone())).map(Arc::clone) {
            core.mark_workloads_of_job(*self, &job);
        }
    }

    fn steps(&self) -> Option<&dyn Steps> {
        None
    }
}

/// Returns whether a job was suspended or resumed, requests other pods, or names other objects that it has made.
fn is_in_other_state(before: &JobView, now: &JobView) -> bool {
    before.suspended != now.suspended
        || before.pod_sets != now.pod_sets
        || before.related.reads != now.related.reads
}

impl KindRules for RelatedKind {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, received: Received) -> Result<(), Unread> {
        let object = RelatedKey { kind: *self, key: key.clone() };
        core.cache.related_mut().insert(object.clone(), received.object);
        core.read_jobs_reading(&object);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        let object = RelatedKey { kind: *self, key: key.clone() };
        core.cache.related_mut().remove(&object);
        core.read_jobs_reading(&object);
    }

    fn follow_write(&self, _: &mut Reconciler, _: &ObjectKey) {}

    fn steps(&self) -> Option<&dyn Steps> {
        None
    }
}
