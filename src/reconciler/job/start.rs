//! The patches that start a job, and the comparison of a job with its Workload.

use super::JobLookup;
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::kinds::to_amount;
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::frameworks::{JobError, JobPatch, JobView, PodSetInfo, PodSetView, TemplateInfo, template_patch};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::nodes::ungating::add_topology_gate;
use crate::resources::Amount;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum length of a DNS label, and of a label value.
const MAX_LABEL_LENGTH: usize = 63;

impl JobLookup<'_> {
    /// Returns the patches that start a job with the admission of its Workload. Empty while the job is not cached, the
    /// Workload has no admission, or a flavor of the admission does not exist.
    pub(crate) fn start_patches(
        self,
        record: &WorkloadRecord,
        view: &JobView,
    ) -> Result<Vec<JobPatch>, JobError> {
        let Some((kind, _)) = self.cache.job_id(&view.uid) else {
            return Ok(Vec::new());
        };
        let Some(mut infos) = self.granted_pod_set_infos(record)? else { return Ok(Vec::new()) };
        for set in record.pod_sets().iter().filter(|set| set.min_count.is_none()) {
            let own = view.pod_sets.iter().find(|own| own.name == set.name);
            if let (Some(own), Some(info)) = (own, infos.iter_mut().find(|info| info.name == set.name)) {
                // Without partial admission a start does not change the size.
                info.count = own.count;
            }
        }
        kind.run_patch(view, &infos)
    }

    /// Returns what the admission adds to each pod set; `None` without an admission, or while one of its flavors does
    /// not exist.
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

/// Returns whether the pods of a job, as it runs or as a start would make it run, are those that the admission grants: a
/// job that a user has resized since, running or suspended, must be stopped and queued again.
pub(crate) fn grants_match_job(record: &WorkloadRecord, view: &JobView) -> bool {
    if is_out_of_sync(record, view) {
        // Its life cycle finishes it as out of sync, and must not find a start under way.
        return false;
    }
    if view.suspended && (is_in_other_queue(record, view) || !charge_covers_requests(record)) {
        return false;
    }
    zip_pod_sets(record, view).is_some_and(|mut sets| {
        sets.all(|(have, _, want)| {
            let Some(granted) = granted_pods(record, &have.name) else { return false };
            // Without partial admission the whole job runs: pods that will not run again are not in the granted count. With
            // it, a start sets the granted count. Which of both was granted says the Workload: a user may have edited the
            // annotation of the job since, and a job that is not started yet must not start with fewer pods than it allows.
            let partial = have.min_count.is_some();
            let whole = want.count == have.count && (view.suspended || !partial);
            let allowed =
                !partial || !view.suspended || have.min_count == want.min_count || granted == have.count;
            allowed
                && (whole || want.count == granted)
                && have.template_fingerprint.same_requests(&want.fingerprint)
        })
    })
}

/// Returns whether a job names another queue than the Workload that was made for it: a user suspended it to move it, and its
/// reservation is in the queue that it left.
fn is_in_other_queue(record: &WorkloadRecord, view: &JobView) -> bool {
    let (has, names) = (record.queue_name.as_deref(), view.queue_name.as_deref());
    view.options.prebuilt_workload.is_none() && has.unwrap_or_default() != names.unwrap_or_default()
}

/// Returns the pod sets that a stop restores: those before the start, but with the count that a user has set since. Whether
/// the start has reduced a count follows from the Workload alone: a user may edit the annotation of the job meanwhile.
pub(crate) fn pod_sets_to_restore<'a>(record: &'a WorkloadRecord, view: &JobView) -> Cow<'a, [PodSetInfo]> {
    let reduced = |set: &PodSetView| {
        let asked = record.pod_sets().iter().find(|asked| asked.name == set.name);
        asked.is_some_and(|asked| asked.min_count.is_some())
            && granted_pods(record, &set.name).is_none_or(|granted| granted == set.count)
    };
    let mut infos = Cow::Borrowed(record.originals());
    for set in view.pod_sets.iter().filter(|set| !reduced(set)) {
        let differs = |info: &PodSetInfo| info.name == set.name && info.count != set.count;
        if let Some(position) = infos.iter().position(differs)
            && let Some(info) = infos.to_mut().get_mut(position)
        {
            info.count = set.count;
        }
    }
    infos
}

/// Returns whether a Workload has the counts, the containers, the other fields on which requests depend and, before
/// admission, the tolerations of its job. A Workload that Kueue created has these from its job, so it is kept. Names,
/// labels, annotations, node selectors, affinity and topology are not compared, since a start adds to most of them. A job
/// that runs with a part of its pods, or was stopped and not restored yet, has the granted count.
pub(crate) fn is_equivalent_to_job(record: &WorkloadRecord, view: &JobView) -> bool {
    let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
    zip_pod_sets(record, view).is_some_and(|mut sets| {
        sets.all(|(have, original, want)| {
            let reduced = have.min_count.is_some() && granted_pods(record, &have.name) == Some(want.count);
            (have.count == want.count || reduced)
                && have.min_count == want.min_count
                && have.template_fingerprint.same_containers(&want.fingerprint)
                && (admitted || original.template.tolerations == want.template.tolerations)
        })
    })
}

/// Returns whether a suspended job asks for something else than the prebuilt Workload that it names. It must not start: its
/// pods could request more than the Workload is charged.
pub(crate) fn is_out_of_sync(record: &WorkloadRecord, view: &JobView) -> bool {
    view.options.prebuilt_workload.is_some()
        && view.suspended
        && !(is_equivalent_to_job(record, view) && charge_covers_requests(record))
}

/// Returns whether pods that are made now request no more than a Workload is charged, if it holds quota: a LimitRange or a
/// RuntimeClass may have changed since its quota was reserved. A resource that the admission does not name was not limited.
pub(crate) fn charge_covers_requests(record: &WorkloadRecord) -> bool {
    let admission = record.status.admission.as_ref().filter(|_| reservation::holds_quota(&record.status));
    let Some(admission) = admission else { return true };
    let requests = record.effective_requests.pod_sets.as_deref().unwrap_or_default();
    admission.pod_set_assignments.iter().all(|assignment| {
        let Some(set) = requests.iter().find(|set| *set.name == *assignment.name) else { return true };
        let count = i64::from(assignment.count.unwrap_or(set.count));
        assignment.flavors.keys().all(|resource| {
            let charged =
                assignment.resource_usage.get(resource).map_or(Amount::ZERO, |q| to_amount(resource, q));
            set.requests.get(resource.as_str()).is_none_or(|request| request.times(count) <= charged)
        })
    })
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

/// Returns the number of pods of a pod set that the admission grants; `None` without an admission of the pod set.
fn granted_pods(record: &WorkloadRecord, name: &str) -> Option<i32> {
    let assignments = &record.status.admission.as_ref()?.pod_set_assignments;
    let assignment = assignments.iter().find(|assignment| assignment.name == name)?;
    assignment.count.or_else(|| record.pod_sets().iter().find(|set| *set.name == *name).map(|set| set.count))
}

fn is_dns_label(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_LABEL_LENGTH && !name.contains('.')
}
