//! Units without a Workload: their pods are stopped if they run, then the Workload is made.

use super::Unit;
use super::run::stop_reason;
use crate::api::ObjectKey;
use crate::cache::{Kind, UnitKey};
use crate::frameworks::{
    ComposeError, Composed, JobKind, MissingClass, POD_RULES, Priority, WorkloadRequest,
};
use crate::lifecycle::backoff;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::{Effect, Observation, Verb};
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;
use std::time::Duration;

impl Reconciler {
    pub(super) fn step_unit_without_workload(&mut self, unit: Unit<'_>, key: &ObjectKey, now: Timestamp) {
        let status = POD_RULES.status(&unit.pods, now);
        let deleting = unit.pods.summary.is_deleting();
        if status.finished.is_some() || (deleting && matches!(unit.key, UnitKey::Pod(_))) {
            // The Workload is not created again, so the finalizers are not needed.
            return self.release_members(unit, |_| true, now);
        }
        let time = now.to_string();
        let reason = stop_reason("NoMatchingWorkload", "Missing Workload", &time);
        if self.stop_members(unit, key, &reason, now) || status.active {
            return;
        }
        self.release_members(unit, |member| !member.counts(), now);
        // The server would refuse the Workload in a namespace that is being deleted.
        if deleting || self.cache.is_namespace_deleting(&key.namespace) {
            return;
        }
        if !self.writes.may_write(Kind::Workload, key, now) {
            // The Workload of that write is already deleted.
            self.writes.requeue_at_end(Kind::Workload, key, unit.reconcile_key());
            self.writes.retry_after_backoff(
                (Kind::Workload, key),
                unit.reconcile_key(),
                &mut self.work_queue,
                now,
            );
            return;
        }
        match self.compose_unit(unit, key) {
            Ok(Ok(composed)) => self.create_unit_workload(unit, key, composed, now),
            Ok(Err(ComposeError::TooFewMembers)) => {
                let note = format!("'{}' group has fewer runnable pods than expected", key.name);
                self.warn_of_unit(unit, "ErrWorkloadCompose", &note);
            }
            Ok(Err(error)) => self.warn_of_unit(unit, "ErrWorkloadCompose", &error.to_string()),
            Err(MissingClass::WorkloadClass(name)) => {
                let note = format!("WorkloadPriorityClass {name:?} not found");
                self.warn_of_unit(unit, "WorkloadPriorityClassNotFound", &note);
            }
            Err(MissingClass::PodClass(name)) => {
                self.warn_of_unit(unit, "ErrWorkloadCompose", &format!("PriorityClass {name} not found"));
            }
        }
    }

    /// Returns the Workload of a unit that is complete.
    fn compose_unit(
        &self,
        unit: Unit<'_>,
        key: &ObjectKey,
    ) -> Result<Result<Composed, ComposeError>, MissingClass> {
        let rank = &JobKind::POD.rank;
        let pod_sets = match POD_RULES.pod_sets(&unit.pods, rank) {
            Ok(pod_sets) => pod_sets,
            Err(error) => return Ok(Err(error)),
        };
        let priority = Priority::resolve(unit.view, &pod_sets, self.cache.priority_classes())?;
        let request = WorkloadRequest {
            name: &key.name,
            queue_name: unit.view.queue_name.as_deref(),
            label_keys_to_copy: &self.settings.label_keys_to_copy,
            priority: &priority,
        };
        Ok(POD_RULES.compose(&unit.pods, rank, &request))
    }

    fn create_unit_workload(&mut self, unit: Unit<'_>, key: &ObjectKey, composed: Composed, now: Timestamp) {
        let latency = Duration::try_from(backoff::elapsed(unit.view.created, now)).unwrap_or_default();
        let created =
            Effect::Observe(Observation::WorkloadCreated { job_kind: JobKind::POD.gvk.kind, latency });
        let event = unit.event(false, "CreatedWorkload", &format!("Created Workload: {key}"));
        let request = WriteRequest::new(Kind::Workload, key.clone(), Verb::Create, composed.workload);
        let request = request.with_effects(event.into_iter().chain([created]).collect());
        self.writes.start(request.on_behalf_of(unit.reconcile_key()), now);
        self.remove_members(unit, composed.removals, now);
    }
}
