//! The size of an object that runs on the quota of a job above it, such as the RayCluster of a RayJob: users and autoscalers could
//! make it larger than what the Workload of that job is charged for.
//!
//! Invariant: an object gets no pods without quota by a write that a webhook sees. That of the controller of the job above is no
//! exception: it writes what the job asks for. Several objects below one controller share its quota. Objects that get no size apart from
//! that of the job above, such as the Jobs of a JobSet, must not grow beyond one of its pod sets, alone or together: their controllers
//! never change them so. What their controllers make, replace and retry is not compared. Nor may one pod request more than one of its
//! pod set.

use super::ancestry::objects_above;
use super::review::ReviewRequest;
use super::{OwnerRef, OwnerView};
use crate::api::ObjectKey;
use crate::api::names::ELASTIC_JOB_ANNOTATION;
use crate::api::selector::matches;
use crate::api::validation::{Errors, FieldError};
use crate::frameworks::{
    ChildGroup, Claim, Elastic, ExcessGroup, JobUnderReview, PodSetRequests, PodSetSize, PodSetUnderReview,
    Searched, excess_of_pod, framework, has_room, left_by,
};
use crate::resources::{Requests, format_quantity};
use serde_json::Value;
use std::sync::Arc;

/// The job that is queued in place of an object.
struct JobAbove {
    owner: OwnerRef,
    /// Its size.
    pod_sets: Arc<[PodSetSize]>,
    /// What one pod of each pod set requests.
    requests: Arc<[PodSetRequests]>,
    /// The controller of the object.
    controller: OwnerRef,
}

/// Checks that a new or changed object that may run has no more pods than the job that is queued in its place asks for. One that was
/// larger before may be made smaller. The pods of an elastic one wait for their quota.
pub(super) fn check(
    request: &ReviewRequest<'_>,
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    errors: &mut Errors,
) {
    if job.suspended {
        return;
    }
    if !job.row.hooks.is_sized_apart_from_owner() {
        return check_growth(request, job, old, errors);
    }
    let Some(above) = job_above(request, job) else { return };
    let (groups, siblings) = (job.groups(), request.ctx.objects.children(&above.controller));
    // One that waits for room, or has quota of its own, is queued apart.
    let own = siblings.iter().position(|child| *child.uid == *job.uid);
    let is_apart = |at: usize| siblings.get(at).is_some_and(|child| child.claim == Claim::Waits);
    if own.is_some_and(is_apart) || (own.is_none() && !siblings.is_empty()) {
        return;
    }
    if let Some(old) = old.filter(|old| old.pod_sets.len() == job.pod_sets.len()) {
        check_requests(job, &raised_requests(job, old), &above, errors);
    }
    // The manager decides which of those that are to run again comes first.
    let before = siblings.iter().take(own.unwrap_or(0)).filter(|child| child.claim == Claim::Runs);
    let left = left_by(&before.cloned().collect::<Vec<_>>(), &above.pod_sets);
    let Some(excess) = job.row.excess_group(&groups, &left) else { return };
    let pods = |job: &JobUnderReview<'_>| job.pod_sets.get(excess.index).map_or(0, |set| set.pods);
    if old.is_some_and(|old| !old.suspended && old.groups().len() == groups.len() && pods(job) <= pods(old)) {
        return;
    }
    errors.push(excess_error(job, &above.owner, &excess, ""));
}

/// Checks that an object whose size its controller sets once does not grow beyond the pod set that a start has written into its
/// template, or beyond the whole job if that is not known, alone or with the others below its controller, and that its pods request no
/// more than those of the job.
fn check_growth(
    request: &ReviewRequest<'_>,
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    errors: &mut Errors,
) {
    let Some(old) = old.filter(|old| old.pod_sets.len() == job.pod_sets.len()) else { return };
    // One that was suspended starts with all of its pods.
    let before = |set: &PodSetUnderReview<'_>| if old.suspended { 0 } else { set.pods };
    let grown: Vec<bool> =
        job.pod_sets.iter().zip(&old.pod_sets).map(|(new, old)| new.pods > before(old)).collect();
    let raised = raised_requests(job, old);
    if !grown.contains(&true) && raised.iter().all(Option::is_none) {
        return;
    }
    let Some(above) = job_above(request, job) else { return };
    let groups = job.groups();
    let has_grown = |excess: &ExcessGroup| grown.get(excess.index) == Some(&true);
    if let Some(excess) = job.row.excess_group(&groups, &above.pod_sets).filter(has_grown) {
        errors.push(excess_error(job, &above.owner, &excess, ""));
    } else if grown.contains(&true) {
        let others = groups_beside(request, job, &above);
        let excess = job.row.excess_group_beside(&groups, &others, &above.pod_sets).filter(has_grown);
        let beside = " beside those of the others below its controller";
        errors.extend(excess.map(|excess| excess_error(job, &above.owner, &excess, beside)));
    }
    check_requests(job, &raised, &above, errors);
}

/// Returns the pods of the others below the controller of an object.
fn groups_beside(request: &ReviewRequest<'_>, job: &JobUnderReview<'_>, above: &JobAbove) -> Vec<ChildGroup> {
    let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let (kind, key) = ((job.row.gvk.group, job.row.gvk.kind), ObjectKey::new(request.namespace, name));
    request.ctx.objects.groups_beside(&above.controller, kind, key)
}

/// Returns for each pod set what one pod requests of the resources of which it did not request as much before; `None` if there are none.
/// One that was suspended starts with all that its pods request, if its pod set is known. Otherwise its controller may have made it so: a
/// refused start would leave the job above it without these pods.
fn raised_requests(job: &JobUnderReview<'_>, old: &JobUnderReview<'_>) -> Vec<Option<Requests>> {
    let raised = |((set, before), group): ((&PodSetUnderReview<'_>, &PodSetUnderReview<'_>), ChildGroup)| {
        let starts = old.suspended && job.row.pod_set_above(&group).is_some();
        if !starts && set.spec.value == before.spec.value {
            return None;
        }
        let mut requests = set.requests()?;
        let before = before.requests().filter(|_| !starts).unwrap_or_default();
        requests.retain(|resource, amount| before.get(resource).is_none_or(|before| *amount > *before));
        (!requests.is_empty()).then_some(requests)
    };
    job.pod_sets.iter().zip(&old.pod_sets).zip(job.groups()).map(raised).collect()
}

/// Checks what one pod of each pod set requests against the pod set of the job above that its template names.
fn check_requests(
    job: &JobUnderReview<'_>,
    raised: &[Option<Requests>],
    above: &JobAbove,
    errors: &mut Errors,
) {
    for ((set, group), requests) in job.pod_sets.iter().zip(job.groups()).zip(raised) {
        let Some(requests) = requests.as_ref().filter(|_| set.pods > 0) else { continue };
        let excess = excess_of_pod(job.row.pod_set_above(&group), requests, &above.requests);
        let Some((resource, has, asked)) = excess else { continue };
        let text = |amount| format_quantity(resource, amount);
        let OwnerRef { kind, name, .. } = &above.owner;
        let detail = format!(
            "each pod requests {} of {resource}, and {kind} {name}, which is queued in place of this {}, asks for {}: change \
             the {kind}",
            text(has),
            job.row.gvk.kind,
            text(asked),
        );
        errors.push(FieldError::invalid_unshown(set.spec.path.clone(), detail));
    }
}

/// Returns the error of a group that has more pods than the job above has quota for, beside others that the text says.
fn excess_error(
    job: &JobUnderReview<'_>,
    above: &OwnerRef,
    excess: &ExcessGroup,
    beside: &str,
) -> FieldError {
    let pods = job.pod_sets.get(excess.index).map_or(0, |set| set.pods);
    let name = job.pod_sets.get(excess.index).and_then(|set| set.name.as_ref());
    let group = name.and_then(|name| name.path.rsplit_once('.'));
    let path = group.map_or_else(|| "spec".to_owned(), |(group, _)| format!("{group}.replicas"));
    let kind = job.row.gvk.kind;
    let resizable = framework(above.group(), &above.kind).is_some_and(|row| row.flags.elastic != Elastic::No);
    let elastic = format!(", or make that elastic by its annotation {ELASTIC_JOB_ANNOTATION}");
    let detail = format!(
        "{} {}, which is queued in place of this {kind}, has quota for {} of these pods{beside}: change the {}{}",
        above.kind,
        above.name,
        excess.allowed,
        above.kind,
        if resizable { elastic.as_str() } else { "" },
    );
    FieldError::invalid(path, pods, detail)
}

/// Returns whether a new object is suspended as its controller is: the operator of that copies it, and never resumes it.
pub(super) fn is_made_suspended(request: &ReviewRequest<'_>, job: &JobUnderReview<'_>) -> bool {
    let controller = OwnerRef::controller_of(request.object);
    let row = controller.and_then(|controller| framework(controller.group(), &controller.kind));
    let keeps = row.is_some_and(|row| row.hooks.keeps_suspended_children());
    keeps && job.suspended && request.old.is_none()
}

/// Returns the job above a new object that has no room beside others below the same controller. Those that are being stopped have their
/// place as well, and below a controller that is being deleted there is none.
pub(super) fn without_room(request: &ReviewRequest<'_>, job: &JobUnderReview<'_>) -> Option<OwnerView> {
    if request.old.is_some() || !job.row.hooks.is_sized_apart_from_owner() || job.suspended {
        return None;
    }
    let above = job_above(request, job)?;
    let siblings = request.ctx.objects.children(&above.controller);
    let controller = request.ctx.objects.owner(request.namespace, &above.controller);
    let goes = controller.is_some_and(|controller| controller.deleting);
    let has_room = !goes && has_room(&job.groups(), &siblings, &above.pod_sets);
    request.ctx.objects.owner(request.namespace, &above.owner).filter(|_| !has_room)
}

/// Returns the job that is queued in place of an object; `None` if the object is not below one, or waits for its quota pod by pod.
fn job_above(request: &ReviewRequest<'_>, job: &JobUnderReview<'_>) -> Option<JobAbove> {
    let (ctx, gvk) = (request.ctx, job.row.gvk);
    let labels = ctx.objects.namespace_labels(request.namespace)?;
    let gated = job.pod_sets.iter().all(|set| set.has_gate(ELASTIC_JOB_ANNOTATION));
    if !matches(&ctx.settings.managed_namespaces, labels) || (gated && job.elastic(&ctx.settings.gates)) {
        return None;
    }
    let controller = OwnerRef::controller_of(request.object)?;
    let object = Searched {
        kind: (gvk.group, gvk.kind),
        uid: job.uid,
        names_queue: job.queue.is_some_and(|name| !name.is_empty()),
        controller: Some(&controller),
    };
    let owner = objects_above(ctx, request.namespace, object).ok()?.queued()?;
    let stored = ctx.objects.owner(request.namespace, &owner)?;
    let (pod_sets, requests) = (stored.pod_sets?, stored.pod_requests.unwrap_or_default());
    Some(JobAbove { owner, pod_sets, requests, controller })
}
