//! The patches that start a job, and the comparison of a job with its Workload.

use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::frameworks::{JobError, JobPatch, JobView, PodSetInfo, PodSetView, TemplateInfo, template_patch};
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use serde_json::Value;
use std::sync::Arc;

/// Maximum length of a DNS label, and of a label value.
const MAX_LABEL_LENGTH: usize = 63;

impl Reconciler {
    /// Returns the patches that start a job with the admission of its Workload. Empty while the job is not cached, the
    /// Workload has no admission, or a flavor of the admission does not exist.
    pub(crate) fn start_patches(
        &self,
        record: &WorkloadRecord,
        view: &JobView,
    ) -> Result<Vec<JobPatch>, JobError> {
        let Some((kind, _)) = self.cache.job_id(&view.uid) else {
            return Ok(Vec::new());
        };
        match self.granted_pod_set_infos(record)? {
            Some(infos) => kind.run_patch(view, &infos),
            None => Ok(Vec::new()),
        }
    }

    /// Returns what the admission adds to each pod set; `None` without an admission, or while one of its flavors does
    /// not exist.
    pub(crate) fn granted_pod_set_infos(
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
            let count = assignment.count.or_else(|| granted_count(record, &assignment.name)).unwrap_or(0);
            let name = Arc::from(assignment.name.as_str());
            infos.push(PodSetInfo { name, count, template: Arc::new(template) });
        }
        Ok(Some(infos))
    }
}

/// Adds the template additions of an admission to a raw pod template. A template that cannot be decoded, or that
/// contradicts the additions, is left unchanged.
pub(crate) fn apply_template_info(template: &mut Value, info: &TemplateInfo) {
    let Ok(own) = TemplateInfo::read(Some(&*template)) else { return };
    let mut merged = own.clone();
    if merged.merge(info).is_ok()
        && let Some(patch) = template_patch(&own, &merged)
    {
        json_patch::merge(template, &patch);
    }
}

/// Returns whether the admission has the pod sets and counts of a running job. A job whose size was changed while it
/// runs is stopped and queued again. A suspended job always matches.
pub(crate) fn grants_match_job(record: &WorkloadRecord, view: &JobView) -> bool {
    if view.suspended {
        return true;
    }
    let Some(admission) = &record.status.admission else {
        return false;
    };
    view.pod_sets.iter().all(|set| {
        // Without partial admission the whole job runs; pods that will not run again are not in the granted count.
        let whole = set.min_count.is_none() && granted_count(record, &set.name) == Some(set.count);
        let granted = |count: Option<i32>| whole || count.is_none_or(|count| count == set.count);
        admission.pod_set_assignments.iter().any(|a| *a.name == *set.name && granted(a.count))
    })
}

/// Returns whether a Workload has the counts, the containers, the other fields on which requests depend and, before
/// admission, the tolerations of its job. A Workload that Kueue created has these from its job, so it is kept. Names, labels, annotations, node selectors,
/// affinity and topology are not compared, since a start adds to most of them.
pub(crate) fn is_equivalent_to_job(record: &WorkloadRecord, view: &JobView) -> bool {
    let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
    zip_pod_sets(record, view).is_some_and(|mut sets| {
        sets.all(|(have, original, want)| {
            have.count == want.count
                && have.min_count == want.min_count
                && have.template_fingerprint.same_containers(&want.fingerprint)
                && (admitted || original.template.tolerations == want.template.tolerations)
        })
    })
}

/// Returns whether a suspended job asks for something else than the prebuilt Workload that it names. It must not start: its
/// pods could request more than the Workload is charged.
pub(crate) fn is_out_of_sync(record: &WorkloadRecord, view: &JobView) -> bool {
    view.options.prebuilt_workload.is_some() && view.suspended && !is_equivalent_to_job(record, view)
}

/// Returns whether a Workload asks for exactly what its job asks for, so that a decision on the Workload is valid for
/// the job.
pub(crate) fn is_identical_to_job(record: &WorkloadRecord, view: &JobView) -> bool {
    zip_pod_sets(record, view).is_some_and(|mut sets| {
        sets.all(|(have, original, want)| {
            have.name == want.name
                && have.count == want.count
                && have.min_count == want.min_count
                && have.template_fingerprint == want.fingerprint
                && original.template == want.template
        })
    })
}

/// Returns the pod sets of a Workload, each with its original (before a start) and the pod set of the job at the same
/// index; `None` if Workload and job have different numbers of pod sets.
fn zip_pod_sets<'a>(
    record: &'a WorkloadRecord,
    view: &'a JobView,
) -> Option<impl Iterator<Item = (&'a PodSetRecord, &'a PodSetInfo, &'a PodSetView)>> {
    let (have, want) = (record.pod_sets(), &view.pod_sets);
    let zipped = have.iter().zip(record.originals()).zip(want);
    (have.len() == want.len()).then(|| zipped.map(|((have, original), want)| (have, original, want)))
}

fn granted_count(record: &WorkloadRecord, name: &str) -> Option<i32> {
    record.pod_sets().iter().find(|p| *p.name == *name).map(|p| p.count)
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_LABEL_LENGTH && !name.contains('.')
}
