//! Starting and stopping the jobs of a row, and the pod sets of their Workloads.

use super::JobError;
use super::patch::{JobPatch, add_at, set_at, template_operations};
use super::related::{Beside, PodSets};
use super::role_shape::InjectedFields;
use super::roles::{PodRole, read_roles, without_server_labels};
use super::row::{Elastic, Framework, PodSetSource};
use super::template::{TemplateInfo, template_patch};
use super::view::{JobView, MissingTemplate, PodSetInfo, PodSetView};
use crate::api::names::{self, ELASTIC_JOB_ANNOTATION as ELASTIC_GATE};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl Framework {
    /// Returns whether two templates differ at most in labels that the API server adds to templates of the kind.
    pub fn is_same_template(&self, left: &TemplateInfo, right: &TemplateInfo) -> bool {
        left == right
            || without_server_labels(self, left.clone()) == without_server_labels(self, right.clone())
    }

    /// Returns the entries for `spec.podSets` of its Workload, as far as the job says them.
    pub fn pod_sets(&self, job: &Value) -> Result<Vec<Value>, JobError> {
        read_roles(self, job)?.iter().map(|role| role.pod_set(self)).collect()
    }

    /// Returns the entries for `spec.podSets` of its Workload.
    pub fn pod_sets_with(&self, job: &Value, beside: Beside<'_>) -> Result<PodSets, JobError> {
        if !self.flags.completed_pod_sets {
            return self.pod_sets(job).map(PodSets::Known);
        }
        self.complete_pod_sets(job, &read_roles(self, job)?, beside)
    }

    /// Returns the pod sets that a hook makes of those that the job says and of other objects.
    pub(super) fn complete_pod_sets(
        &self,
        job: &Value,
        roles: &[PodRole<'_>],
        beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        let own = roles.iter().map(|role| role.pod_set(self)).collect::<Result<_, _>>()?;
        self.hooks.complete_pod_sets(job, own, beside)
    }

    /// Returns the patches, in order, that start the job with the granted counts and template additions.
    pub fn run_patch(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Vec<JobPatch>, JobError> {
        let Some(suspend) = self.fields.suspend.filter(|_| view.suspended) else {
            return Ok(Vec::new());
        };
        if let Some(patches) = &view.options.patches {
            let mut additions = Vec::new();
            for (set, info) in pair_by_name(view, infos)? {
                additions.push((&*set.name, patches_of(set, info)?));
            }
            let not_suspended = (suspend, self.hooks.not_suspended());
            return Ok(vec![patches.start(&additions, &self.fields.roles.injected(), not_suspended)]);
        }
        let mut changes = Changes::default();
        changes.fields.push((suspend.to_owned(), self.hooks.not_suspended()));
        for (set, info) in pair_by_name(view, infos)? {
            // What is listed already is of another start.
            let listed = self.fields.roles.is_listed();
            let mut target = if listed { TemplateInfo::default() } else { set.start_from().clone() };
            if let Some(shared) = &view.options.shared_node_selector {
                target.node_selector.clone_from(shared);
            }
            remove_marks_of_other_start(&mut target);
            target.merge(&self.additions(set, info))?;
            self.set_elastic_gate(view.options.slice.is_some(), &mut target);
            changes.templates.push((set, target));
            self.add_counts(&mut changes, view, set, info.count);
        }
        self.clear_shared_node_selector(&mut changes, view);
        self.clear_stopping_mark(&mut changes, view);
        Ok(self.clear_start_time(view).into_iter().chain(changes.patch(self)).collect())
    }

    /// Sets the gate of elastic jobs in a template that is about to run. It is added to a job that came while no webhook answered,
    /// and removed from one that is not elastic: nothing would ever remove it from its pods.
    pub(super) fn set_elastic_gate(&self, elastic: bool, template: &mut TemplateInfo) {
        template.scheduling_gates.retain(|gate| gate != ELASTIC_GATE || elastic);
        let gate = ELASTIC_GATE.to_owned();
        let adds = elastic && self.flags.elastic == Elastic::GatedTemplates;
        if adds && !template.scheduling_gates.contains(&gate) {
            template.scheduling_gates.push(gate);
        }
    }

    /// Returns the next patch to stop the job and restore its templates; empty when both are done, and while the pods of a
    /// stopped job make its templates immutable. The caller calls it again with each newer object. Without `original` the
    /// templates are not restored.
    pub fn stop_patches(&self, view: &JobView, original: &[PodSetInfo]) -> Vec<JobPatch> {
        let mut changes = Changes::default();
        if let Some(suspend) = self.fields.suspend.filter(|_| !view.suspended) {
            changes.fields.push((suspend.to_owned(), Value::Bool(true)));
            changes.fields.extend(self.fields.start_time.map(|_| stopping_mark(json!("true"))));
            if self.fields.start_time.is_some() || view.options.patches.is_some() {
                return changes.patch(self).into_iter().collect();
            }
        }
        if let Some(patches) = &view.options.patches {
            // The controller refuses the change while there are pods.
            return patches.clear().filter(|_| view.status.active_pods == 0).into_iter().collect();
        }
        if self.fields.start_time.is_some() && view.status.active_pods > 0 {
            // The API server would refuse the templates.
            return Vec::new();
        }
        if let Some(patch) = self.clear_start_time(view) {
            return vec![patch];
        }
        self.restore(&mut changes, view, original);
        self.clear_stopping_mark(&mut changes, view);
        changes.patch(self).into_iter().collect()
    }

    /// Removes the mark of a stop that needs several writes, by which Kueue and this manager tell each other that it is incomplete.
    fn clear_stopping_mark(&self, changes: &mut Changes<'_>, view: &JobView) {
        if self.fields.start_time.is_some() && view.options.stopping {
            changes.fields.push(stopping_mark(Value::Null));
        }
    }

    /// Adds the changes that restore the templates. A template without the marks of a start was not changed by one, so it is
    /// the user's own and is kept. A copy of a running job has its own marks before its start. Roles that describe their pods
    /// themselves are set to what the Workload has whenever the job is suspended, as by Kueue. A user may have added and removed
    /// roles since the start: those that are left are restored.
    fn restore<'a>(&self, changes: &mut Changes<'a>, view: &'a JobView, original: &[PodSetInfo]) {
        for set in &view.pod_sets {
            let Some(info) = original.iter().find(|info| info.name == set.name) else { continue };
            let before = without_server_labels(self, (*info.template).clone());
            let now = set.start_from();
            let workload = now.annotations.get(names::WORKLOAD_ANNOTATION);
            let started = (now.labels.contains_key(names::POD_SET_LABEL)
                && !before.labels.contains_key(names::POD_SET_LABEL))
                || (workload.is_some() && workload != before.annotations.get(names::WORKLOAD_ANNOTATION));
            if started || (set.described.is_some() && !view.suspended) {
                let listed = self.fields.roles.is_listed();
                changes.templates.push((set, if listed { TemplateInfo::default() } else { before }));
                self.add_counts(changes, view, set, info.count);
            }
        }
        if !changes.templates.is_empty() {
            self.clear_shared_node_selector(changes, view);
        }
    }

    fn clear_shared_node_selector(&self, changes: &mut Changes<'_>, view: &JobView) {
        if let (Some(role), Some(_)) = (self.fields.roles.described(), &view.options.shared_node_selector) {
            changes.fields.push((role.shared_node_selector.to_owned(), Value::Null));
        }
    }

    fn add_counts(&self, changes: &mut Changes<'_>, view: &JobView, set: &PodSetView, count: i32) {
        let fields = self.hooks.count_fields(view, set, count);
        changes.counts.extend(fields.into_iter().map(|(pointer, count)| (pointer.to_owned(), json!(count))));
    }

    /// Returns a patch that removes the start time, as the templates are immutable while it is set. The Job controller
    /// removes it itself from Kubernetes 1.36 on.
    fn clear_start_time(&self, view: &JobView) -> Option<JobPatch> {
        let pointer = self.fields.start_time.filter(|_| view.status.started)?;
        let mut body = Map::new();
        set_at(&mut body, pointer, Value::Null);
        Some(JobPatch::merge_status(Value::Object(body)))
    }
}

/// The field that says that a stop has begun, with this value.
fn stopping_mark(value: Value) -> (String, Value) {
    let annotations = Map::from_iter([(names::STOPPING_ANNOTATION.to_owned(), value)]);
    ("/metadata/annotations".to_owned(), Value::Object(annotations))
}

/// Returns what a start adds to a template by a patch. A patch of a list without keys replaces it, so tolerations are those of the
/// template as well.
pub(super) fn patches_of(set: &PodSetView, info: &PodSetInfo) -> Result<TemplateInfo, JobError> {
    let mut added = TemplateInfo::default();
    if !info.template.tolerations.is_empty() {
        added.tolerations.clone_from(&set.template.tolerations);
    }
    added.merge(&info.template)?;
    let label = BTreeMap::from([(names::POD_SET_LABEL.to_owned(), set.name.to_string())]);
    added.merge(&TemplateInfo { labels: label, ..TemplateInfo::default() })?;
    Ok(added)
}

/// Removes what the start of another job has added to a template: in a copy of a running job it would contradict the start
/// of the copy. The annotation tells such a copy; labels of the user's own that contradict a start fail it, as in Kueue.
fn remove_marks_of_other_start(template: &mut TemplateInfo) {
    template.annotations.remove(names::SLICE_NAME_ANNOTATION);
    if template.annotations.remove(names::WORKLOAD_ANNOTATION).is_none() {
        return;
    }
    for label in [names::POD_SET_LABEL, names::CLUSTER_QUEUE_LABEL, names::LOCAL_QUEUE_LABEL] {
        template.labels.remove(label);
    }
    // A stop of an elastic job that has grown restores it, and without a topology nothing would take it from the pods.
    template.scheduling_gates.retain(|gate| gate != names::TOPOLOGY_GATE);
}

/// Changes of a job, to be written together.
#[derive(Default)]
pub(super) struct Changes<'a> {
    pub(super) fields: Vec<(String, Value)>,
    /// View and target of pod sets.
    pub(super) templates: Vec<(&'a PodSetView, TemplateInfo)>,
    counts: Vec<(String, Value)>,
}

impl Changes<'_> {
    /// Returns the patch, or `None` if nothing changes. Fields of an array are patched by RFC 6902; that fails where the object above
    /// a field is missing, as of a job without a spec that is suspended, and a merge patch does not.
    pub(super) fn patch(self, row: &Framework) -> Option<JobPatch> {
        let in_arrays = !self.templates.is_empty() || !self.counts.is_empty();
        let fields = self.fields.into_iter();
        let set = |(path, value): (String, Value)| match value {
            Value::Null => json!({ "op": "remove", "path": path }),
            value => json!({ "op": "add", "path": path, "value": value }),
        };
        if in_arrays && row.fields.roles.is_listed() {
            let mut operations: Vec<Value> = fields.map(set).collect();
            operations.extend(list_operations(&self.templates, &row.fields.roles.injected()));
            return (!operations.is_empty()).then(|| JobPatch::json(operations));
        }
        if in_arrays && row.pod_sets.iter().any(PodSetSource::is_array) {
            let mut operations: Vec<Value> = fields.chain(self.counts).map(set).collect();
            for (set, target) in &self.templates {
                if let Some(missing) = &set.missing {
                    let MissingTemplate { pointer, template } = &**missing;
                    operations.push(json!({ "op": "add", "path": pointer, "value": template }));
                }
                operations.extend(template_operations(&set.pointer, set.has_metadata, &set.template, target));
            }
            return (!operations.is_empty()).then(|| JobPatch::json(operations));
        }
        let mut body = Map::new();
        for (pointer, value) in fields {
            set_at(&mut body, &pointer, value);
        }
        for (set, target) in &self.templates {
            if let Some(patch) = template_patch(set.start_from(), target, &row.fields.roles.injected()) {
                set_at(&mut body, &set.pointer, patch);
            }
            if let Some(missing) = &set.missing {
                let MissingTemplate { pointer, template } = &**missing;
                add_at(&mut body, pointer, template);
            }
        }
        for (pointer, value) in self.counts {
            set_at(&mut body, &pointer, value);
        }
        (!body.is_empty()).then(|| JobPatch::merge(Value::Object(body)))
    }
}

/// Returns the operations that set the lists of what a start adds, each for the pod sets of one object, and remove those that are
/// empty.
fn list_operations(templates: &[(&PodSetView, TemplateInfo)], fields: &InjectedFields) -> Vec<Value> {
    let mut lists: Vec<(&str, Vec<Value>)> = Vec::new();
    for (set, target) in templates {
        let Some((list, _)) = set.pointer.rsplit_once('/') else { continue };
        let item = template_patch(&TemplateInfo::default(), target, fields).unwrap_or_else(|| json!({}));
        match lists.last_mut().filter(|(last, _)| *last == list) {
            Some((_, items)) => items.push(item),
            None => lists.push((list, vec![item])),
        }
    }
    let operation = |(list, items): (&str, Vec<Value>)| {
        if items.iter().all(|item| *item == json!({})) {
            json!({ "op": "remove", "path": list })
        } else {
            json!({ "op": "add", "path": list, "value": items })
        }
    };
    lists.into_iter().map(operation).collect()
}

/// Returns each pod set of a job with the info of the same name.
///
/// # Errors
/// The names on both sides differ.
pub(super) fn pair_by_name<'a, 'b>(
    view: &'a JobView,
    infos: &'b [PodSetInfo],
) -> Result<Vec<(&'a PodSetView, &'b PodSetInfo)>, JobError> {
    let missing = |name: &str| JobError::PodSetMismatch { name: name.to_owned() };
    if let Some(other) = infos.iter().find(|info| view.pod_sets.iter().all(|set| set.name != info.name)) {
        return Err(missing(&other.name));
    }
    let pair = |set: &'a PodSetView| {
        let info = infos.iter().find(|info| info.name == set.name);
        Ok((set, info.ok_or_else(|| missing(&set.name))?))
    };
    view.pod_sets.iter().map(pair).collect()
}
