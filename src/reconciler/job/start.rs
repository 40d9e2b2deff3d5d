//! What a job is given when it starts, and whether that is still what it asks for.

use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::frameworks::{
    FRAMEWORKS, JobError, JobPatch, JobView, PodSetInfo, PodSetView, TemplateInfo, template_patch,
};
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use serde_json::Value;
use std::sync::Arc;

/// Longest name that fits a label value as a DNS label.
const MAX_LABEL_LENGTH: usize = 63;

impl Reconciler {
    /// Patches that start a job with what its Workload was granted.
    pub(in crate::reconciler) fn start_patches(
        &self,
        record: &WorkloadRecord,
        view: &JobView,
    ) -> Result<Vec<JobPatch>, JobError> {
        let Some((index, _)) = self.job_by_uid.get(&view.uid) else {
            return Ok(Vec::new());
        };
        let Some(kind) = FRAMEWORKS.get(*index) else {
            return Ok(Vec::new());
        };
        match self.granted_pod_set_infos(record)? {
            Some(infos) => kind.run_patch(view, &infos),
            None => Ok(Vec::new()),
        }
    }

    /// What admission adds to each pod set; none without one, or while a flavor of it is gone.
    pub(in crate::reconciler) fn granted_pod_set_infos(
        &self,
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
            self.add_topology_gate(&mut template, record, assignment);
            let mut flavors: Vec<&String> = assignment.flavors.values().collect();
            flavors.sort();
            flavors.dedup();
            for name in flavors {
                // A flavor that is gone is waited for: its finalizer makes that rare.
                let Some(flavor) = self.flavors.get(name.as_str()) else {
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
            let count = assignment.count.or_else(|| granted_count(record, &assignment.name)).unwrap_or(0);
            let name = Arc::from(assignment.name.as_str());
            infos.push(PodSetInfo { name, count, template: Arc::new(template) });
        }
        Ok(Some(infos))
    }
}

/// Adds to a raw pod template what admission adds to its pods.
pub(in crate::reconciler) fn apply_template_info(template: &mut Value, info: &TemplateInfo) {
    let Ok(own) = TemplateInfo::read(Some(&*template)) else { return };
    let mut wanted = own.clone();
    if wanted.merge(info).is_ok()
        && let Some(patch) = template_patch(&own, &wanted)
    {
        json_patch::merge(template, &patch);
    }
}

/// Whether what was granted is what the job asks for: a job whose size was changed while it runs starts over.
pub(in crate::reconciler) fn grants_match_job(record: &WorkloadRecord, view: &JobView) -> bool {
    if view.suspended {
        return true;
    }
    let Some(admission) = &record.status.admission else {
        return false;
    };
    view.pod_sets.iter().all(|set| {
        admission
            .pod_set_assignments
            .iter()
            .any(|a| *a.name == *set.name && a.count.is_none_or(|n| n == set.count))
    })
}

/// Whether the Workload asks for what the job asks for, by what Kueue compares: a Workload that it made is kept. Names, labels,
/// annotations, node selectors, affinity and topology do not count, since a start adds to most of them.
pub(in crate::reconciler) fn is_equivalent_to_job(record: &WorkloadRecord, view: &JobView) -> bool {
    let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
    zip_pod_sets(record, view).is_some_and(|mut pairs| {
        pairs.all(|(have, original, want)| {
            have.count == want.count
                && have.min_count == want.min_count
                && have.template_fingerprint.same_containers(&want.fingerprint)
                && (admitted || original.template.tolerations == want.template.tolerations)
        })
    })
}

/// Whether it asks for just the same, so that whatever is decided on it holds for the job.
pub(in crate::reconciler) fn is_identical_to_job(record: &WorkloadRecord, view: &JobView) -> bool {
    zip_pod_sets(record, view).is_some_and(|mut pairs| {
        pairs.all(|(have, original, want)| {
            have.name == want.name
                && have.count == want.count
                && have.min_count == want.min_count
                && have.template_fingerprint == want.fingerprint
                && original.template == want.template
        })
    })
}

/// The pod sets of a Workload, as they were before a start, beside its job's; none if one has more of them.
fn zip_pod_sets<'a>(
    record: &'a WorkloadRecord,
    view: &'a JobView,
) -> Option<impl Iterator<Item = (&'a PodSetRecord, &'a PodSetInfo, &'a PodSetView)>> {
    let (have, want) = (record.pod_sets(), &view.pod_sets);
    let three = have.iter().zip(record.originals()).zip(want);
    (have.len() == want.len()).then(|| three.map(|((have, original), want)| (have, original, want)))
}

fn granted_count(record: &WorkloadRecord, name: &str) -> Option<i32> {
    record.pod_sets().iter().find(|p| *p.name == *name).map(|p| p.count)
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_LABEL_LENGTH && !name.contains('.')
}
