//! The additions of an admission to the pods of its Workload.

use super::LoadedUnit;
use super::comparison::granted_pods;
use super::units::Units;
use crate::api::names;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{
    Action, JobError, JobPatch, JobView, PodSetInfo, RoleShape, TemplateInfo, Unit, template_patch,
};
use crate::reconciler::nodes::ungating::add_topology_gate;
use serde_json::Value;
use std::sync::Arc;

/// Maximum length of a DNS label, and of a label value.
const MAX_LABEL_LENGTH: usize = 63;

impl Units<'_> {
    /// Returns the writes that start a unit with the admission of its Workload. Empty while the Workload has no admission, or
    /// a flavor of the admission does not exist.
    pub(super) fn start_actions(
        self,
        unit: &LoadedUnit<'_>,
        objects: &Unit<'_>,
        record: &WorkloadRecord,
    ) -> Result<Vec<Action>, JobError> {
        match self.start_infos(unit, record)? {
            Some(infos) => unit.rules.start(objects, &infos),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the patch that restores the additions of the start to the pod templates of a running job; `None` if nothing is
    /// missing.
    pub(super) fn marks_patch(self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> Option<JobPatch> {
        let (owner, kind) = (unit.owner?, unit.key.kind);
        let ungated = is_ungated_slice(owner, record);
        let lost = ungated || owner.lacks_marks(&kind);
        // Additions that were removed while no manager ran are known only if the flavors are unchanged since the start.
        let found = owner.related.since_start.found_at_start && self.has_flavors_as_created(record);
        if !lost && !found {
            return None;
        }
        let infos = self.start_infos(unit, record).ok()??;
        if !lost && !kind.lacks_additions(owner, &infos) {
            return None;
        }
        kind.marks_patch(owner, &infos, ungated || owner.options.slice.is_some())
    }

    /// Returns whether no flavor of an admission was changed since its creation.
    fn has_flavors_as_created(self, record: &WorkloadRecord) -> bool {
        let assignments = record.status.admission.iter().flat_map(|a| &a.pod_set_assignments);
        let mut flavors = assignments.flat_map(|assignment| assignment.flavors.values());
        flavors.all(|name| self.cache.flavor(name).is_some_and(|flavor| flavor.meta.generation == 1))
    }

    /// Returns the additions of a start to each pod set of a unit, with its number of pods.
    fn start_infos(
        self,
        unit: &LoadedUnit<'_>,
        record: &WorkloadRecord,
    ) -> Result<Option<Vec<PodSetInfo>>, JobError> {
        let Some(mut infos) = self.granted_pod_set_infos(record)? else { return Ok(None) };
        for set in record.pod_sets().iter().filter(|set| set.min_count.is_none()) {
            let own = unit.view.pod_sets.iter().find(|own| own.name == set.name);
            if let (Some(own), Some(info)) = (own, infos.iter_mut().find(|info| info.name == set.name)) {
                // Without partial admission a start does not change the size.
                info.count = own.count;
            }
        }
        if unit.view.options.slice.is_some() || is_ungated_slice(&unit.view, record) {
            // Pods name the first slice: the pods that a larger slice lets run have the same template.
            for info in &mut infos {
                let first = record.chain_key().name.to_string();
                let annotations = &mut Arc::make_mut(&mut info.template).annotations;
                annotations.insert(names::SLICE_NAME_ANNOTATION.to_owned(), first);
            }
        }
        Ok(Some(infos))
    }

    /// Returns the additions of the admission to each pod set; `None` without an admission, or while one of its flavors does not
    /// exist.
    pub(crate) fn granted_pod_set_infos(
        self,
        record: &WorkloadRecord,
    ) -> Result<Option<Vec<PodSetInfo>>, JobError> {
        let Some(admission) = &record.status.admission else {
            return Ok(None);
        };
        let mut infos = Vec::new();
        for assignment in &admission.pod_set_assignments {
            let mut template = TemplateInfo::default();
            template.labels.insert(names::POD_SET_LABEL.to_owned(), assignment.name.clone());
            let queue_labels = self.settings.gates.queue_labels_on_pods;
            if queue_labels && is_dns_label(&admission.cluster_queue) {
                template
                    .labels
                    .insert(names::CLUSTER_QUEUE_LABEL.to_owned(), admission.cluster_queue.clone());
            }
            if let Some(queue) = record.queue_name.as_deref().filter(|q| queue_labels && is_dns_label(q)) {
                template.labels.insert(names::LOCAL_QUEUE_LABEL.to_owned(), queue.to_owned());
            }
            template
                .annotations
                .insert(names::WORKLOAD_ANNOTATION.to_owned(), record.meta.key.name.to_string());
            if self.settings.engine.gates.topology {
                add_topology_gate(&mut template, record, assignment);
            }
            let mut flavors: Vec<&String> = assignment.flavors.values().collect();
            flavors.sort();
            flavors.dedup();
            for name in flavors {
                // The start waits for a missing flavor. This is rare, because a finalizer protects flavors in use.
                let Some(flavor) = self.cache.flavor(name.as_str()) else {
                    return Ok(None);
                };
                template.merge(&TemplateInfo {
                    node_selector: flavor.object.spec.node_labels.clone(),
                    tolerations: flavor.object.spec.tolerations.clone(),
                    ..TemplateInfo::default()
                })?;
            }
            for update in record.status.admission_checks.iter().flat_map(|c| &c.pod_set_updates) {
                if update.name == assignment.name {
                    template.merge(&TemplateInfo {
                        labels: update.labels.clone(),
                        annotations: update.annotations.clone(),
                        node_selector: update.node_selector.clone(),
                        tolerations: update.tolerations.clone(),
                        scheduling_gates: Vec::new(),
                    })?;
                }
            }
            let count = granted_pods(record, &assignment.name).unwrap_or(0);
            let name = Arc::from(assignment.name.as_str());
            infos.push(PodSetInfo { name, count, template: Arc::new(template) });
        }
        Ok(Some(infos))
    }
}

/// Returns whether a job runs on a slice, and its templates have lost the gate that makes it elastic.
const fn is_ungated_slice(view: &JobView, record: &WorkloadRecord) -> bool {
    view.options.lacks_elastic_gate && record.annotations.is_slice
}

/// Adds the template additions of an admission to a raw pod template. A template that cannot be decoded, or that
/// contradicts the additions, is left unchanged.
pub(crate) fn apply_template_info(template: &mut Value, info: &TemplateInfo) {
    let Ok(own) = TemplateInfo::read(Some(&*template)) else { return };
    let mut merged = own.clone();
    if merged.merge(info).is_ok()
        && let Some(patch) = template_patch(&own, &merged, &RoleShape::Template.injected())
    {
        json_patch::merge(template, &patch);
    }
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_LABEL_LENGTH && !name.contains('.')
}
