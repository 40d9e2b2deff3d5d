//! Rules of a pod group that has a Workload: which pods are missing, replaced or too many, and when it is done.

use super::super::pod_member::{GroupMarks, Phase, PodMember};
use super::super::unit::{Membership, PodSetCount, Readiness, Unit, UnitStatus};
use super::super::unit_summary::RoleCounts;
use super::super::view::Finished;
use super::compose::{by_precedence, group, waits_for_place};
use crate::api::ObjectKey;
use crate::resources::first_excess;
use jiff::Timestamp;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn membership(unit: &Unit<'_>, pod_sets: &[PodSetCount<'_>], finished: bool) -> Membership {
    let membership = compare_members(unit, pod_sets, finished);
    let matches = membership.matches && (finished || covers_requests(unit, pod_sets));
    Membership { matches, ..membership }
}

/// Returns whether the pod sets request what the members request that wait: a client may have written the Workload. The hash of a
/// role says that its pods request the same, so one of them is read, and none of a role that was started.
fn covers_requests(unit: &Unit<'_>, pod_sets: &[PodSetCount<'_>]) -> bool {
    if unit.summary.startable == 0 {
        return true;
    }
    pod_sets.iter().all(|set| {
        let of_role = || unit.iter().filter(|member| member.role == set.name && member.counts());
        let waiting = of_role().next().filter(|_| of_role().all(|member| member.state.gated));
        let waiting = waiting.filter(|member| member.pod.get("spec").is_some());
        let Some((asked, waiting)) = set.requests.zip(waiting) else { return true };
        // One that cannot be read makes no Workload either.
        waiting.requests().is_some_and(|requests| first_excess(&requests, asked).is_none())
    })
}

fn compare_members(unit: &Unit<'_>, pod_sets: &[PodSetCount<'_>], finished: bool) -> Membership {
    let Some(marks) = group(unit) else {
        // Nothing replaces a single pod: its finalizer goes with it.
        let deleted = unit.iter().filter(|member| member.state.deleting);
        let replaced = deleted.map(|member| member.key.clone()).collect();
        return Membership { replaced, matches: !unit.members.is_empty(), ..Membership::default() };
    };
    if let Some(whole) = membership_by_numbers(unit, marks, pod_sets, finished) {
        return whole;
    }
    let fast = marks.fast_admission;
    let mut result = Membership::default();
    let mut kept: Vec<&PodMember> = Vec::new();
    for set in pod_sets {
        let of_role = |counts: bool| -> Vec<&PodMember> {
            unit.iter().filter(|m| m.role == set.name && m.counts() == counts).collect()
        };
        let (active, inactive) = (by_precedence(of_role(true)), by_end(of_role(false)));
        let wanted = usize::try_from(set.count).unwrap_or(0);
        let missing = if fast {
            usize::from(wanted > 0 && active.is_empty())
        } else {
            wanted.saturating_sub(active.len())
        };
        result.absent = result.absent.saturating_add(i32::try_from(missing).unwrap_or(i32::MAX));
        // An inactive pod stays countable until a replacement exists.
        let waiting = wanted.saturating_sub(active.len()).min(inactive.len());
        let keys = |members: &[&PodMember], stay: usize| -> Vec<ObjectKey> {
            members.iter().skip(stay).map(|member| member.key.clone()).collect()
        };
        for member in active.iter().skip(wanted) {
            let which = if waits_for_place(member) {
                &mut result.waiting
            } else if member.serves() && member.terminated() {
                &mut result.replaced
            } else {
                &mut result.excess
            };
            which.push(member.key.clone());
        }
        result.replaced.extend(keys(&inactive, waiting));
        kept.extend(active.into_iter().take(wanted));
        kept.extend(inactive.into_iter().take(waiting));
    }
    result.matches = !kept.is_empty() && fits(unit, &kept, pod_sets, finished);
    if is_prebuilt(marks) { compare_with_prebuilt(unit, pod_sets, finished, result) } else { result }
}

/// Returns whether a Workload that the group has not made decides how large the group may be. Of a group that serves, a
/// StatefulSet has made it, for example: surplus pods wait.
const fn is_prebuilt(marks: &GroupMarks) -> bool {
    marks.prebuilt && !marks.serving
}

/// Compares all members that count with a Workload that is not changed or replaced for them. None is removed. One that waits may
/// take the place of another one that is being deleted. A group that was stopped because it does not fit never fits again.
fn compare_with_prebuilt(
    unit: &Unit<'_>,
    pod_sets: &[PodSetCount<'_>],
    finished: bool,
    mut result: Membership,
) -> Membership {
    let surplus = std::mem::take(&mut result.excess);
    for set in pod_sets {
        let of_role = || unit.iter().filter(|member| member.role == set.name);
        let ends = of_role().filter(|member| member.counts() && member.state.deleting).count();
        let waits = of_role().filter(|member| member.state.gated && surplus.contains(&member.key));
        result.waiting.extend(waits.take(ends).map(|member| member.key.clone()));
    }
    let counting: Vec<&PodMember> =
        unit.iter().filter(|member| member.counts() && !result.waiting.contains(&member.key)).collect();
    let stopped = unit.iter().any(PodMember::is_out_of_sync);
    // A group that is admitted before its pods exist is compared by its total count, whatever pods it has.
    let all_wait = surplus.iter().all(|key| result.waiting.contains(key));
    result.matches = result.matches && !stopped && all_wait && fits(unit, &counting, pod_sets, finished);
    if !result.matches {
        result.replaced.clear();
    }
    result
}

/// Compares a group whose members all count, and are not too many, by their numbers alone. Otherwise returns `None`: the
/// members are compared.
fn membership_by_numbers(
    unit: &Unit<'_>,
    marks: &GroupMarks,
    pod_sets: &[PodSetCount<'_>],
    finished: bool,
) -> Option<Membership> {
    let mut absent = 0_i32;
    let mut kept = BTreeMap::new();
    for set in pod_sets {
        let role = unit.summary.role(set.name);
        let counting = i32::try_from(role.counting).ok()?;
        if marks.fast_admission || is_prebuilt(marks) || role.counting != role.members || counting > set.count
        {
            return None;
        }
        absent = absent.saturating_add(set.count.saturating_sub(counting));
        if counting > 0 {
            kept.insert(set.name, counting);
        }
    }
    let matches = !kept.is_empty() && is_among(&kept, pod_sets, finished);
    Some(Membership { absent, matches, ..Membership::default() })
}

/// Returns members that ended, with those first that keep their finalizer.
fn by_end(mut members: Vec<&PodMember>) -> Vec<&PodMember> {
    let last_active = |member: &PodMember| member.last_active.unwrap_or(Timestamp::MAX);
    members.sort_by_key(|member| (!member.state.has_finalizer, Reverse(last_active(member)), member.created));
    members
}

/// Returns whether the pod sets of the members are, in order, among those of the Workload and not larger.
fn fits(unit: &Unit<'_>, kept: &[&PodMember], pod_sets: &[PodSetCount<'_>], finished: bool) -> bool {
    // The total of a group that serves is that of its StatefulSet when the pods were made, which may be smaller by now.
    let total_decides = |group: &&GroupMarks| group.fast_admission && !group.serving;
    let roles = match (group(unit).filter(total_decides), kept.first()) {
        (Some(group), Some(first)) => BTreeMap::from([(first.role.as_str(), group.total)]),
        _ => counts_by_role(kept.iter().copied()),
    };
    is_among(&roles, pod_sets, finished)
}

/// Returns whether these roles are, in order, among the pod sets of the Workload and not larger.
fn is_among(roles: &BTreeMap<&str, i32>, pod_sets: &[PodSetCount<'_>], finished: bool) -> bool {
    let mut rest = pod_sets.iter();
    roles.iter().all(|(name, count)| {
        rest.find(|set| set.name == *name).is_some_and(|set| finished || *count <= set.count)
    })
}

pub(super) fn status(unit: &Unit<'_>, now: Timestamp) -> UnitStatus {
    let summary = unit.summary;
    let runs =
        |member: &PodMember| member.may_run() && member.counts_as_ended_at().is_none_or(|end| now < end);
    let running =
        summary.running > summary.running_deleting || (summary.running_deleting > 0 && unit.iter().any(runs));
    UnitStatus {
        suspended: summary.waiting_or_ended > 0,
        active: running,
        readiness: readiness(unit),
        finished: finished(unit),
        reclaimable_pods: reclaimable_pods(unit),
    }
}

/// Returns whether the members are ready. One that ended and was replaced has lost its finalizer, and those that are too many may
/// wait.
fn readiness(unit: &Unit<'_>) -> Readiness {
    let (summary, total) = (unit.summary, total(unit));
    let waiting = summary.startable.min(summary.listed.saturating_sub(total));
    let listed = summary.listed.saturating_sub(waiting);
    if listed < total {
        Readiness::NotReady
    } else if summary.listed_ready == listed {
        Readiness::Ready
    } else if summary.listed_ready_or_succeeded == listed {
        Readiness::Completing
    } else {
        Readiness::NotReady
    }
}

fn total(unit: &Unit<'_>) -> usize {
    group(unit).map_or(1, |group| usize::try_from(group.total).unwrap_or(usize::MAX))
}

fn succeeded(member: &PodMember) -> bool {
    member.state.phase == Phase::Succeeded
}

fn finished(unit: &Unit<'_>) -> Option<Finished> {
    let Some(group) = group(unit) else {
        let pod = unit.first().filter(|pod| pod.terminated())?;
        let message = pod.pod.pointer("/status/message").and_then(Value::as_str).unwrap_or_default();
        return Some(Finished { success: succeeded(pod), message: message.to_owned() });
    };
    if group.serving {
        return None;
    }
    let summary = unit.summary;
    let done = summary.succeeded();
    let all_ended = summary.ended == summary.members();
    let message = format!("Pods succeeded: {done}/{}.", group.total);
    // Kueue reports success even if no pod succeeded.
    (done == total(unit) || (summary.unretriable > 0 && all_ended))
        .then_some(Finished { success: true, message })
}

fn reclaimable_pods(unit: &Unit<'_>) -> Vec<(Arc<str>, i32)> {
    if group(unit).is_none_or(|group| group.serving) {
        return Vec::new();
    }
    let succeeded = unit.summary.roles().filter(|(_, counts)| counts.succeeded > 0);
    let pods = |(role, counts): (&str, RoleCounts)| {
        (Arc::from(role), i32::try_from(counts.succeeded).unwrap_or(i32::MAX))
    };
    succeeded.map(pods).collect()
}

fn counts_by_role<'a>(members: impl Iterator<Item = &'a PodMember>) -> BTreeMap<&'a str, i32> {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for member in members {
        let count = counts.entry(&member.role).or_default();
        *count = count.saturating_add(1);
    }
    counts
}
