//! The comparison of a job with its Workload.
//!
//! Invariant: a job starts, runs and keeps its Workload only while these functions say that both ask for the same.

use super::units::starting_workload;
use crate::api::reason::ConditionType;
use crate::cache::kinds::to_amount;
use crate::cache::records::{PodSetRecord, WorkloadRecord};
use crate::frameworks::{JobKind, JobView, PodSetInfo, PodSetView};
use crate::lifecycle::{conditions, reservation};
use crate::resources::Amount;
use std::borrow::Cow;

/// Returns whether the admission grants the pods of a job, as it runs or as a start would make it run. A job that a user has
/// resized since, running or suspended, must be stopped and queued again.
pub(crate) fn grants_match_job(record: &WorkloadRecord, view: &JobView) -> bool {
    // The pods of a job that was found running are not known. It is known which Workload started it, unless another client
    // removed the mark.
    let started_by = |name: &str| *name == *record.meta.key.name;
    let found = view.related.changed_since_start && starting_workload(view).is_none_or(started_by);
    found || asks_for_what_is_granted(record, view) || is_charged_as_before(record, view)
}

/// Returns whether a job runs as it was found, and an earlier version of the manager made its Workload for that.
pub(crate) fn is_charged_as_before(record: &WorkloadRecord, view: &JobView) -> bool {
    view.related.since_start.found.as_ref().filter(|_| !view.suspended).is_some_and(|found| {
        let granted = |set: &PodSetRecord| granted_pods(record, &set.name).unwrap_or(set.count);
        let sets = record.pod_sets().iter();
        found.was_charged(sets.map(|set| (&set.name, granted(set), &set.template_fingerprint)))
    })
}

/// Returns whether a job requests what the admission grants, as far as its pod sets are known.
pub(super) fn asks_for_what_is_granted(record: &WorkloadRecord, view: &JobView) -> bool {
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
            // Without partial admission the whole job runs: pods that will not run again are not in the granted count. With it, a
            // start sets the granted count. The Workload alone shows which of both was granted: a user may have edited the
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
pub(super) fn is_in_other_queue(record: &WorkloadRecord, view: &JobView) -> bool {
    let (has, names) = (record.queue_name.as_deref(), view.queue_name.as_deref());
    view.options.prebuilt_workload.is_none() && has.unwrap_or_default() != names.unwrap_or_default()
}

/// Returns the pod sets that a stop restores: the pod sets from before the start, but with the count that a user has set since.
/// The Workload alone shows whether the start has reduced a count: a user may edit the annotation of the job meanwhile.
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

/// Returns whether a suspended job requests something else than the prebuilt Workload that it names. It must not start: its pods
/// could exceed the charge of the Workload.
pub(crate) fn is_out_of_sync(record: &WorkloadRecord, view: &JobView) -> bool {
    view.options.prebuilt_workload.is_some()
        && view.suspended
        && !(is_equivalent_to_job(record, view) && charge_covers_requests(record))
}

/// Returns whether the requests of new pods are within the charge of a Workload, if it holds quota: a LimitRange or a
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

/// Returns whether a Workload and its job request exactly the same, so that a decision on the Workload is valid for the job.
/// Kueue keeps some of the labels that the API server adds to templates, which no decision reads.
pub(crate) fn is_identical_to_job(record: &WorkloadRecord, kind: JobKind, view: &JobView) -> bool {
    zip_pod_sets(record, view).is_some_and(|mut sets| {
        sets.all(|(have, original, want)| {
            have.name == want.name
                && have.count == want.count
                && have.min_count == want.min_count
                && have.template_fingerprint == want.fingerprint
                && kind.is_same_template(&original.template, &want.template)
        })
    })
}

/// Returns whether the pods of a Workload request what the templates of an object request, as far as both have the same pod sets.
pub(super) fn asks_for_the_same(record: &WorkloadRecord, view: &JobView) -> bool {
    zip_pod_sets(record, view).is_none_or(|mut sets| {
        sets.all(|(have, _, want)| have.template_fingerprint.same_requests(&want.fingerprint))
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
pub(super) fn granted_pods(record: &WorkloadRecord, name: &str) -> Option<i32> {
    let assignments = &record.status.admission.as_ref()?.pod_set_assignments;
    let assignment = assignments.iter().find(|assignment| assignment.name == name)?;
    assignment.count.or_else(|| record.pod_sets().iter().find(|set| *set.name == *name).map(|set| set.count))
}
