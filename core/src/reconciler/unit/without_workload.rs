//! Units without a Workload: they are stopped if they run, then the Workload is made.

use super::run::StopCause;
use super::{LoadedUnit, UnitStep};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Component, ComposeError, Composed, JobHold, MissingClass, Priority, Role, SliceMarks, Sources,
    WorkloadRequest, submitter_of,
};
use crate::lifecycle::backoff;
use crate::reconciler::messages::{Effect, Observation, Verb};
use crate::reconciler::writes::request::WriteRequest;
use serde_json::{Value, json};
use std::sync::Arc;

/// Why no Workload can be created for a unit.
enum NotComposed {
    Unit(ComposeError),
    Class(MissingClass),
}

impl NotComposed {
    /// Returns reason and note of the warning.
    fn warning(&self, unit: &LoadedUnit<'_>) -> (&'static str, String) {
        match self {
            Self::Unit(ComposeError::TooFewMembers) => {
                let note = format!("'{}' group has fewer runnable pods than expected", unit.workload.name);
                ("ErrWorkloadCompose", note)
            }
            Self::Unit(error) => ("ErrWorkloadCompose", error.to_string()),
            Self::Class(missing) => missing_class(missing),
        }
    }
}

/// Returns reason and note of the warning about a class that does not exist.
pub(super) fn missing_class(missing: &MissingClass) -> (&'static str, String) {
    match missing {
        MissingClass::WorkloadClass(name) => {
            ("WorkloadPriorityClassNotFound", format!("WorkloadPriorityClass {name:?} not found"))
        }
        MissingClass::PodClass(name) => ("ErrWorkloadCompose", format!("PriorityClass {name} not found")),
    }
}

impl<'a> UnitStep<'a> {
    pub(super) fn step_without_workload(&mut self, unit: &LoadedUnit<'_>) {
        let single = unit.key.component == Component::Object;
        if unit.status(self.now).finished.is_some() || (unit.view.deleting && single) {
            // No Workload is created for it, so the finalizers are not needed.
            return self.release_members(unit, |_| true);
        }
        let Some(owner) = unit.owner else { return self.make_workload(unit) };
        if owner.status.hold == JobHold::Held {
            return;
        }
        match self.units.ancestor_of(unit.key.kind, owner) {
            Some(ancestor) => self.suspend_child_unless_admitted(unit, &ancestor),
            _ if self.units.manages_job(unit.key.kind, owner) => self.make_workload(unit),
            _ => {
                self.warn_of_missed_default_queue(unit);
                self.warn_of_held_job(unit);
            }
        }
    }

    /// Emits a warning on an object that names a queue and is not managed: its webhook holds it, and no Workload is made.
    pub(super) fn warn_of_held_job(&mut self, unit: &LoadedUnit<'_>) {
        let held = unit.view.suspended || unit.key.kind.role == Role::PodsOfOwner;
        let Some(queue) = unit.view.queue_name.as_deref().filter(|_| held) else { return };
        let Some((reason, cause)) = self.units.why_not_managed(unit.key.kind, &unit.view) else { return };
        self.report(unit, reason, &format!("Not managed: it names queue {queue}, but {cause}"));
    }

    /// Stops a unit that has no Workload, then creates one.
    pub(super) fn make_workload(&mut self, unit: &LoadedUnit<'_>) {
        if self.leave_former_workload(unit, None)
            || self.stop_with(unit, &unit.workload, &[], &StopCause::missing_workload(unit))
            || self.has_pods(unit, &unit.workload)
        {
            return;
        }
        if unit.owner.is_some_and(|owner| self.annotate(unit, owner)) {
            return;
        }
        self.release_members(unit, |member| !member.counts());
        self.create_when_possible(unit, None);
    }

    /// Creates the Workload of a unit, to replace a slice if it is an elastic job that has grown.
    pub(super) fn create_when_possible(&mut self, unit: &LoadedUnit<'_>, replaces: Option<&WorkloadRecord>) {
        let key = &unit.workload;
        // The server would refuse the Workload, and each refusal would be reported on the unit and retried.
        if unit.view.deleting || self.units.cache.is_namespace_deleting(&key.namespace) {
            return;
        }
        let former = replaces.is_none().then(|| self.units.last_slice(unit)).flatten();
        if let Some(former) = former.filter(|former| former.carried(self.now).is_some()) {
            return self.follow(unit, former);
        }
        let prebuilt = unit.view.options.prebuilt_workload.is_some();
        match self.units.cache.workload(key) {
            // It ended while the unit did not use it.
            Some(record) if self.units.belongs(unit, record) => return self.replace_workload(unit, record),
            Some(record) if !record.meta.is_deleting() => {
                let note = format!("Workload {key} belongs to another object");
                return self.report(unit, "WorkloadNameConflict", &note);
            }
            // Its deletion gives the unit a step.
            Some(_) if !prebuilt => return,
            Some(_) | None => {}
        }
        if prebuilt {
            return self.report(unit, "PrebuiltWorkloadNotFound", &format!("Workload {key} doesn't exist"));
        }
        if !self.writes.may_write(Kind::Workload, key, self.now) {
            // The Workload of that write is already deleted. Without the requeue, the unit would get no step when the
            // write ends.
            self.writes.requeue_at_end(Kind::Workload, key, unit.reconcile_key());
            let item = unit.reconcile_key();
            return self.writes.retry_after_backoff((Kind::Workload, key), item, self.work_queue, self.now);
        }
        if let Some(until) = self.writes.replacements.waits_until(key, unit.view.generation, self.now) {
            return self.work_queue.add_at(unit.reconcile_key(), until);
        }
        if let Some(mut composed) = self.try_compose(unit, replaces, key) {
            if replaces.is_none() {
                self.take_over_from_removed(unit, &mut composed.workload);
            }
            self.create_workload(unit, key.clone(), composed);
        }
    }

    /// Composes the Workload of a unit with this key; `None` if it cannot be made, or not yet.
    pub(super) fn try_compose(
        &mut self,
        unit: &LoadedUnit<'_>,
        replaces: Option<&WorkloadRecord>,
        key: &ObjectKey,
    ) -> Option<Composed> {
        let sources = self.sources(unit)?;
        let composed = self.compose(unit, sources, replaces, key);
        composed
            .map_err(|error| {
                let (reason, note) = error.warning(unit);
                self.report(unit, reason, &note);
            })
            .ok()
    }

    fn compose(
        &self,
        unit: &LoadedUnit<'_>,
        sources: Sources<'_>,
        replaces: Option<&WorkloadRecord>,
        key: &ObjectKey,
    ) -> Result<Composed, NotComposed> {
        let objects = unit.objects();
        let pod_sets = unit.rules.pod_sets(&objects, sources).map_err(NotComposed::Unit)?;
        let priority = Priority::resolve(&unit.view, &pod_sets, self.units.cache.priority_classes())
            .map_err(NotComposed::Class)?;
        let chain = replaces.map_or_else(|| key.clone(), WorkloadRecord::chain_key);
        let marks = SliceMarks { chain: &chain.name, replaces: replaces.map(|record| &record.meta.key) };
        let request = WorkloadRequest {
            name: &key.name,
            queue_name: unit.view.queue_name.as_deref(),
            label_keys_to_copy: &self.units.settings.copied.labels,
            priority: &priority,
            slice: unit.view.options.slice.as_ref().map(|_| marks),
        };
        let mut composed = unit.rules.compose(&objects, sources, &request).map_err(NotComposed::Unit)?;
        self.name_submitter(unit, sources, &mut composed.workload);
        Ok(composed)
    }

    /// Adds the submitter to a new Workload: that of the owner of the unit, or of its first member.
    fn name_submitter(&self, unit: &LoadedUnit<'_>, sources: Sources<'_>, workload: &mut Value) {
        let Some(key) = self.units.settings.copied.submitter.as_deref() else { return };
        let first = unit.members().next().map(|member| &*member.pod);
        let Some(name) = sources.owner.or(first).and_then(|object| submitter_of(object, key)) else { return };
        let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(names::SUBMITTER_ANNOTATION.to_owned(), json!(name));
        }
    }

    pub(super) fn create_workload(&mut self, unit: &LoadedUnit<'_>, key: ObjectKey, composed: Composed) {
        let mut effects = vec![unit.event("CreatedWorkload", &format!("Created Workload: {key}"))];
        // The age of a job that was changed since, such as for a larger slice, says nothing about the latency of creation.
        if unit.view.generation <= 1 {
            effects.push(Effect::Observe(Observation::WorkloadCreated {
                job_kind: unit.key.kind.gvk.kind,
                latency: backoff::elapsed_duration(unit.view.created, self.now),
            }));
        }
        effects.extend(unit.members_disagree(|_| true));
        let nested = unit.owner.and_then(|owner| self.units.ancestry_fault(unit.key.kind, owner));
        effects.extend(nested.map(|fault| unit.warning("JobNestingTooDeep", &fault.to_string())));
        let request = WriteRequest::new(Kind::Workload, key, Verb::Create, composed.workload);
        let request = request.with_effects(effects).on_behalf_of(unit.reconcile_key());
        self.writes.start(request, self.now);
        self.perform(unit, composed.removals, "", "");
    }

    /// Returns the stored objects from which pod sets are made, if they came with the current deltas. Otherwise requests a
    /// read, after which the unit gets another step.
    pub(super) fn sources(&mut self, unit: &LoadedUnit<'_>) -> Option<Sources<'a>> {
        let beside = self.units.cache.beside_jobs();
        let Some(owner) = unit.owner else { return Some(Sources { owner: None, beside }) };
        let kind = Kind::of_job(unit.key.kind);
        let stored = self.units.cache.raw_object(kind, &owner.key);
        if stored.is_none() {
            self.writes.emit(Effect::Refetch { kind, key: owner.key.clone() });
        }
        stored.map(|stored| Sources { owner: Some(stored), beside })
    }

    /// Emits a warning for a Job that should be in the default queue but was created while no webhook answered. The Job
    /// keeps running.
    fn warn_of_missed_default_queue(&mut self, unit: &LoadedUnit<'_>) {
        let view = &unit.view;
        let key = ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(names::DEFAULT_NAME) };
        let Some(queue) = self.units.cache.local_queue(&key) else { return };
        let eligible = view.queue_name.is_none() && view.controller.is_none() && view.managed_by.is_none();
        if eligible
            && !view.suspended
            && view.created > queue.meta.created
            && self.units.manages_namespace(&key.namespace)
        {
            let note = "Not managed: the Job was created while the webhook was unavailable and has no queue-name label";
            self.report(unit, "NotQueued", note);
        }
    }
}
