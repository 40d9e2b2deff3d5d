//! Decoding the jobs of a row.
//!
//! Invariant: a step reads from the view only what earlier steps have set.

use super::related::{Beside, PodSets};
use super::roles::{PodRole, read_roles};
use super::row::{Elastic, Framework, Role};
use super::view::{JobView, PodSetView, SinceStart};
use super::{JobError, PodIdentity, marks, read, status};
use crate::api::names::ELASTIC_JOB_ANNOTATION as ELASTIC_GATE;
use serde_json::Value;
use std::sync::Arc;

impl Framework {
    /// Decodes the raw object.
    pub fn decode(&self, job: &Value) -> Result<JobView, JobError> {
        self.decode_after(job, None, Beside::NOTHING)
    }

    /// Decodes the raw object, given the view of an earlier version, and what is beside it. If the spec has not changed
    /// since, data derived from the pod templates is reused.
    ///
    /// Suspension and the patches of a start come before the pod sets, which depend on both. Changes since the start and slices are
    /// found by the pod sets. What hooks say of the pods comes last, because they may read every other field of the view.
    pub fn decode_after(
        &self,
        job: &Value,
        before: Option<&JobView>,
        beside: Beside<'_>,
    ) -> Result<JobView, JobError> {
        let decoding = Decoding { row: self, job, before, beside };
        let skipped = self.hooks.skips(job);
        // What pods that are held back one by one ask for is read from the pods.
        let says_pod_sets = matches!(self.role, Role::Suspended | Role::PodsOfOwner);
        let roles = (says_pod_sets && !skipped).then(|| read_roles(self, job)).transpose()?;
        let mut view = read::common_view(job)?;
        view.options.skipped = skipped;
        if let Some(suspend) = self.fields.suspend {
            view.suspended = read::boolean(job, suspend)?.unwrap_or(false);
        }
        view.options.patches = self.hooks.start_patches(job)?.map(Arc::new);
        decoding.read_pod_sets(&mut view, roles.as_deref())?;
        decoding.read_since_start(&mut view);
        decoding.read_status(&mut view)?;
        decoding.read_options(&mut view)?;
        decoding.read_slice(&mut view)?;
        decoding.read_pods(&mut view)?;
        Ok(view)
    }

    /// Returns whether pods of a larger size of a job wait for its quota. Those of a running job whose templates lack the gate do not.
    fn holds_slices(&self, view: &JobView) -> bool {
        let gated = |set: &PodSetView| set.template.scheduling_gates.iter().any(|gate| gate == ELASTIC_GATE);
        match self.flags.elastic {
            Elastic::No => false,
            Elastic::GatedTemplates => view.suspended || view.pod_sets.iter().all(gated),
            Elastic::GatedByChild => true,
        }
    }
}

/// A job that is being decoded, and what is known beside it.
struct Decoding<'a> {
    row: &'a Framework,
    job: &'a Value,
    /// View of an earlier version.
    before: Option<&'a JobView>,
    beside: Beside<'a>,
}

impl Decoding<'_> {
    /// Returns whether no earlier version was decoded with the objects that its pod sets are made of.
    fn is_first(&self, view: &JobView) -> bool {
        self.before.is_none_or(|before| {
            // What it reads may have been listed after it.
            let unread = before.related.waits_for.is_some() && before.generation == view.generation;
            before.uid != view.uid || unread
        })
    }

    /// Reads the pod sets: from the earlier version if they were decided at the start of this run, with a hook if the row cannot say
    /// them alone, and otherwise from the roles.
    fn read_pod_sets(&self, view: &mut JobView, roles: Option<&[PodRole<'_>]>) -> Result<(), JobError> {
        let runs = self.row.fields.roles.is_decided_at_start() && !view.suspended;
        if let Some(before) = self.before.filter(|before| runs && is_same_run(before, view)) {
            (view.pod_sets, view.related) = (before.pod_sets.clone(), before.related.clone());
        } else if let Some(roles) = roles.filter(|_| self.row.flags.completed_pod_sets) {
            self.complete_pod_sets(view, roles)?;
            view.related.changed_since_start = runs && self.is_first(view);
        } else {
            view.pod_sets = self.row.own_pod_set_views(roles.unwrap_or_default(), view, self.before)?;
        }
        Ok(())
    }

    fn complete_pod_sets(&self, view: &mut JobView, roles: &[PodRole<'_>]) -> Result<(), JobError> {
        let Self { row, job, beside, .. } = *self;
        view.related.reads = row.hooks.related(job)?;
        view.related.outdated_annotation = row.hooks.outdated_annotation(job, beside.related)?;
        match row.complete_pod_sets(job, roles, beside)? {
            PodSets::Known(sets) => view.pod_sets = row.made_pod_set_views(job, roles, &sets)?,
            PodSets::Await(awaited) => view.related.waits_for = Some(awaited),
        }
        for set in &mut view.pod_sets {
            let added = view.options.patches.as_ref().and_then(|patches| patches.of(&set.name));
            set.described = added.cloned().or_else(|| set.described.take());
        }
        Ok(())
    }

    /// Compares the pod sets with those of earlier versions of a running job.
    fn read_since_start(&self, view: &mut JobView) {
        let before = self.before;
        let decoded = before.filter(|_| !self.is_first(view));
        view.related.since_start = SinceStart {
            found_at_start: before.is_some_and(|before| before.was_running_at_start(view)),
            marks_lost: before.is_some_and(|before| marks::are_lost(before, view)),
            found: self.row.found_running(self.job, view, decoded, self.beside),
        };
    }

    fn read_status(&self, view: &mut JobView) -> Result<(), JobError> {
        let Self { row, job, beside, .. } = *self;
        view.status = status::read_status(row, job)?;
        if view.deleting && !row.tells_end_of_pods() {
            // Most operators no longer update the status of a deleted job, so its last count would stay. Its pods are counted.
            view.status.active_pods = 0;
        }
        view.status.hold = row.hooks.hold(job)?;
        if let Some(has_pods) = row.hooks.may_have_pods(job, beside.related)? {
            view.status.active_pods = i32::from(has_pods);
        }
        Ok(())
    }

    /// Reads what a start, a review and the Workload need beside pod sets and status.
    fn read_options(&self, view: &mut JobView) -> Result<(), JobError> {
        let Self { row, job, .. } = *self;
        if let Some(managed_by) = row.fields.managed_by {
            view.managed_by = read::string(job, managed_by.field)?.map(str::to_owned);
        }
        if let Some(role) = row.fields.roles.described() {
            let shared = read::string_map(job, role.shared_node_selector)?;
            view.options.shared_node_selector = (!shared.is_empty()).then(|| Arc::new(shared));
        }
        if let Some(class) = row.fields.priority_class {
            view.pod_priority_class =
                read::string(job, class)?.filter(|name| !name.is_empty()).map(Arc::from);
        }
        view.options.pod_identity = PodIdentity::of_selector((row.gvk.group, row.gvk.kind), job, &view.uid);
        view.options.completions = row.hooks.completions(job)?;
        view.options.completions_follow_parallelism = row.hooks.completions_follow_parallelism(job)?;
        Ok(())
    }

    /// Reads which slice an elastic job asks for. A job with a prebuilt Workload has none: that Workload does not grow with it.
    fn read_slice(&self, view: &mut JobView) -> Result<(), JobError> {
        let Self { row, job, .. } = *self;
        if !row.flags.prebuilt {
            view.options.prebuilt_workload = None;
        }
        let elastic = view.options.prebuilt_workload.is_none() && read::asks_for_elasticity(job)?;
        if elastic && row.holds_slices(view) {
            view.options.slice = Some(Arc::from(row.hooks.slice(job, view.generation)?));
        }
        view.options.lacks_elastic_gate =
            elastic && row.flags.elastic == Elastic::GatedTemplates && view.options.slice.is_none();
        Ok(())
    }

    /// Reads what hooks say of the pods.
    fn read_pods(&self, view: &mut JobView) -> Result<(), JobError> {
        let Self { row, job, .. } = *self;
        view.status.replicas = row.hooks.replicas(job)?;
        view.status.rolls = row.hooks.rolls(job)?;
        if !view.options.skipped {
            view.status.pods_ready = row.hooks.pods_ready(row, job, view)?;
            view.status.reclaimable_pods = row.hooks.reclaimable_pods(row, job, view)?;
        }
        Ok(())
    }
}

/// Returns whether a job has run since an earlier version with the same spec: what it runs was decided by then.
fn is_same_run(before: &JobView, view: &JobView) -> bool {
    before.uid == view.uid
        && before.generation == view.generation
        && view.generation > 0
        && !before.suspended
        && before.related.waits_for.is_none()
}
