//! The size of an object beside that of the job that is queued in its place.
//!
//! Invariant: a pod set of the job has all pods of the object that run on its quota, whichever groups of the object they are in. The
//! labels of templates say which pod set that is: a start writes them, and the controller of the job copies them. All objects below
//! one controller share the pod sets: one that has no room beside those before it waits, as the second cluster of a service that is
//! upgraded.

use super::row::{Framework, Role};
use super::table::frameworks;
use super::view::{JobView, PodSetView};
use crate::api::names::POD_SET_LABEL;
use crate::resources::{Amount, Requests, first_excess, pod_requests};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodResourceClaim, PodSpec};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Name and number of pods of a pod set.
pub type PodSetSize = (Arc<str>, i32);

/// Name of a pod set, and what one of its pods requests by its template; `None` if that is not known.
pub type PodSetRequests = (Arc<str>, Option<Arc<Requests>>);

/// A group of pods of an object below a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildGroup {
    /// The pod set that the label of its template names.
    pub label: Option<String>,
    /// Its own name, in lower case.
    pub name: Option<String>,
    /// Number of pods.
    pub pods: i64,
}

/// What an object asks for of the quota of the job above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It runs on that.
    Runs,
    /// It was suspended with the job, and is to run on that again.
    Resumes,
    /// It waits for room, or has quota of its own until there is.
    Waits,
}

/// An object below a controller, as others below that are compared with it. They are in order: those that run come first, then
/// those that are to run again, of others the one that was created first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizedChild {
    /// What it asks for.
    pub claim: Claim,
    /// When it was created.
    pub created: Timestamp,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its groups of pods.
    pub groups: Vec<ChildGroup>,
}

impl SizedChild {
    /// Reads a stored object that asks for something.
    pub fn of(view: &JobView, claim: Claim) -> Self {
        Self { claim, created: view.created, uid: Arc::clone(&view.uid), groups: groups_of(view) }
    }
}

/// Returns the groups of pods of a stored object.
pub fn groups_of(view: &JobView) -> Vec<ChildGroup> {
    let group = |set: &PodSetView| ChildGroup {
        label: set.template.labels.get(POD_SET_LABEL).cloned(),
        name: Some(set.name.to_string()),
        pods: i64::from(set.count),
    };
    view.pod_sets.iter().map(group).collect()
}

/// Returns what the objects before another one leave to it of the pod sets of the job above them. The first has its place whatever its
/// size: it is all that the job has made.
pub fn left_by(before: &[SizedChild], above: &[PodSetSize]) -> Vec<PodSetSize> {
    let mut left = above.to_vec();
    for (position, child) in before.iter().enumerate() {
        if position == 0 || first_excess_group(&child.groups, &left).is_none() {
            left = without_groups(&child.groups, &left);
        }
    }
    left
}

/// Returns whether an object with these groups has room beside those before it. One of which no group belongs to a pod set has none:
/// the job has not made it.
pub fn has_room(groups: &[ChildGroup], before: &[SizedChild], above: &[PodSetSize]) -> bool {
    let is_known = |group: &ChildGroup| above.iter().any(|(set, _)| group.pod_set() == Some(&**set));
    let fits = || first_excess_group(groups, &left_by(before, above)).is_none();
    before.is_empty() || (groups.iter().any(is_known) && fits())
}

/// Returns how many pods groups have in a pod set.
pub fn pods_in(groups: &[ChildGroup], pod_set: &str) -> i64 {
    let own = groups.iter().filter(|group| group.pod_set() == Some(pod_set));
    own.map(|group| group.pods).fold(0, i64::saturating_add)
}

fn without_groups(groups: &[ChildGroup], above: &[PodSetSize]) -> Vec<PodSetSize> {
    let left = |(set, count): &PodSetSize| {
        let left = i64::from(*count).saturating_sub(pods_in(groups, set)).max(0);
        (Arc::clone(set), i32::try_from(left).unwrap_or(0))
    };
    above.iter().map(left).collect()
}

impl ChildGroup {
    /// Returns the name of the pod set that it is in.
    fn pod_set(&self) -> Option<&str> {
        self.label.as_deref().or(self.name.as_deref())
    }
}

impl Framework {
    /// Returns the pod set of the job above that a group of an object of the kind is in, if that is known: the own name of a group is
    /// that of one only in an object that has a size of its own.
    pub fn pod_set_above<'g>(&self, group: &'g ChildGroup) -> Option<&'g str> {
        if self.hooks.is_sized_apart_from_owner() { group.pod_set() } else { group.label.as_deref() }
    }

    /// Returns the first group of an object of the kind that has more pods than the job above is charged for.
    pub fn excess_group(&self, groups: &[ChildGroup], above: &[PodSetSize]) -> Option<ExcessGroup> {
        let apart = self.hooks.is_sized_apart_from_owner();
        if apart { first_excess_group(groups, above) } else { first_excess_group_in_job(groups, &[], above) }
    }

    /// Returns the first group of an object of the kind, which gets no size apart from that of the job above it, that has more pods than
    /// these groups of others leave of what that job is charged for.
    pub fn excess_group_beside(
        &self,
        groups: &[ChildGroup],
        others: &[ChildGroup],
        above: &[PodSetSize],
    ) -> Option<ExcessGroup> {
        if self.hooks.is_sized_apart_from_owner() || others.is_empty() {
            return None;
        }
        first_excess_group_in_job(groups, others, above)
    }

    /// Returns whether an object of the kind may have pods of the pod sets of the job above it, together with others below its controller.
    pub fn shares_pods_of_owner(&self, view: &JobView) -> bool {
        let is_over = view.suspended || view.deleting || view.status.finished.is_some();
        !is_over && view.options.slice.is_none() && !self.hooks.is_sized_apart_from_owner()
    }

    /// Returns whether its controller makes jobs, which could be made larger than its own pod sets.
    pub fn makes_jobs(&self) -> bool {
        frameworks()
            .any(|row| row.role == Role::Suspended && self.creates.includes((row.gvk.group, row.gvk.kind)))
    }
}

/// Returns what one pod requests by the spec of its template, to be compared with another template. Overhead and the defaults of
/// LimitRanges are left out: they are the same for a template and its copy. A RuntimeClass, from which another overhead may follow, and each
/// claim count as one of a resource of their own. `None` if it has no spec, or that cannot be read.
pub(super) fn template_requests(spec: &Value) -> Option<Requests> {
    let resources = |holder: &Value| holder.get("resources").map(as_texts).unwrap_or_default();
    let containers = |field: &str| -> Vec<Value> {
        let containers = spec.get(field).and_then(Value::as_array).into_iter().flatten();
        let container = |container: &Value| {
            let restarts = container.get("restartPolicy").cloned().unwrap_or_default();
            json!({"resources": resources(container), "restartPolicy": restarts})
        };
        containers.map(container).collect()
    };
    let own = json!({
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        "resources": resources(spec),
    });
    let amounts: PodSpec = spec.as_object().and_then(|_| serde_json::from_value(own).ok())?;
    let claims = spec.get("resourceClaims").and_then(Value::as_array).into_iter().flatten();
    let name = |claim: &Value| {
        let text = |field: &str| claim.get(field).and_then(Value::as_str).map(str::to_owned);
        text("resourceClaimName").or_else(|| text("resourceClaimTemplateName")).or_else(|| text("name"))
    };
    let class = spec.get("runtimeClassName").and_then(Value::as_str).map(str::to_owned);
    Some(with_names(pod_requests(&amounts), class, claims.filter_map(name)))
}

/// Adds what a pod has that is no amount.
fn with_names(
    mut requests: Requests,
    class: Option<String>,
    claims: impl Iterator<Item = String>,
) -> Requests {
    let class = class.filter(|name| !name.is_empty()).map(|name| format!("runtimeClassName {name}"));
    for name in class.into_iter().chain(claims.map(|name| format!("resourceClaim {name}"))) {
        let amount = requests.entry(Arc::from(name)).or_insert(Amount::ZERO);
        *amount = amount.plus(Amount::new(1));
    }
    requests
}

/// Returns the same of an entry of `spec.podSets`.
pub(super) fn made_requests(pod_set: &Value) -> Option<Arc<Requests>> {
    pod_set.pointer("/template/spec").and_then(template_requests).map(Arc::new)
}

/// Returns the same of a spec that was read.
pub fn spec_requests(spec: &PodSpec) -> Requests {
    let requests = pod_requests(&PodSpec { overhead: None, ..spec.clone() });
    let name = |claim: &PodResourceClaim| {
        let named = claim.resource_claim_name.as_ref().or(claim.resource_claim_template_name.as_ref());
        named.unwrap_or(&claim.name).clone()
    };
    let claims = spec.resource_claims.iter().flatten().map(name);
    with_names(requests, spec.runtime_class_name.clone(), claims)
}

/// Returns the amounts of a container or a pod as texts: a definition may keep numbers.
fn as_texts(resources: &Value) -> Value {
    let texts = |field: &str| -> Map<String, Value> {
        let amounts = resources.get(field).and_then(Value::as_object).into_iter().flatten();
        let set = amounts.filter(|(_, amount)| !amount.is_null());
        let text = |(name, amount): (&String, &Value)| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            (name.clone(), Value::String(text))
        };
        set.map(text).collect()
    };
    json!({"requests": texts("requests"), "limits": texts("limits")})
}

/// Returns the first resource of which a pod requests more than the pods of its pod set do, with both amounts; than the pods of any pod
/// set, if its own is not known.
pub fn excess_of_pod<'a>(
    pod_set: Option<&str>,
    requests: &'a Requests,
    above: &[PodSetRequests],
) -> Option<(&'a str, Amount, Amount)> {
    let is_known = above.iter().any(|(name, _)| pod_set == Some(&**name));
    let sets = above.iter().filter(|(name, _)| !is_known || pod_set == Some(&**name));
    let mut most = Requests::new();
    for (_, asked) in sets {
        for (resource, amount) in &**asked.as_ref()? {
            let known = most.entry(Arc::clone(resource)).or_insert(*amount);
            *known = (*known).max(*amount);
        }
    }
    first_excess(requests, &most).filter(|_| !above.is_empty())
}

/// A group that has more pods than the job above is charged for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcessGroup {
    /// Its index among the groups.
    pub index: usize,
    /// Number of its pods that have quota.
    pub allowed: i64,
}

/// Returns the first group that has more pods than its pod set of the job above has left for it. Nothing is known of groups of
/// which none belongs to a pod set: the job has not made them.
fn first_excess_group(groups: &[ChildGroup], above: &[PodSetSize]) -> Option<ExcessGroup> {
    let place = |group: &ChildGroup| above.iter().position(|(set, _)| group.pod_set() == Some(&**set));
    let mut left: Vec<i64> = above.iter().map(|(_, count)| i64::from(*count)).collect();
    if groups.iter().all(|group| place(group).is_none()) {
        return None;
    }
    for (index, group) in groups.iter().enumerate() {
        let place = place(group).and_then(|at| left.get_mut(at));
        let allowed = place.as_ref().map_or(0, |left| **left);
        if group.pods > allowed {
            return Some(ExcessGroup { index, allowed });
        }
        if let Some(left) = place {
            *left = allowed.saturating_sub(group.pods);
        }
    }
    None
}

/// Returns the first group of an object without a size of its own that has more pods than the job above is charged for: in the pod set
/// that the label of its template says, as its own name is not that of one, and in any case in all pod sets together. The groups of others
/// have their pods first.
fn first_excess_group_in_job(
    groups: &[ChildGroup],
    others: &[ChildGroup],
    above: &[PodSetSize],
) -> Option<ExcessGroup> {
    let without_names = |groups: &[ChildGroup]| -> Vec<ChildGroup> {
        groups.iter().map(|group| ChildGroup { name: None, ..group.clone() }).collect()
    };
    let (groups, others) = (without_names(groups), without_names(others));
    first_excess_group(&groups, &without_groups(&others, above)).or_else(|| {
        let all = above.iter().fold(0, |sum: i64, (_, count)| sum.saturating_add(i64::from(*count)));
        let mut left = others.iter().fold(all, |left, group| left.saturating_sub(group.pods)).max(0);
        let exceeds = |(index, group): (usize, &ChildGroup)| {
            let allowed = left;
            left = left.saturating_sub(group.pods);
            (group.pods > allowed).then_some(ExcessGroup { index, allowed })
        };
        groups.iter().enumerate().find_map(exceeds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(label: &str, name: &str, pods: i64) -> ChildGroup {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ChildGroup { label: text(label), name: text(name), pods }
    }

    #[test]
    fn groups_of_an_unknown_pod_set_share_all_pods() {
        let above = [(Arc::from("a"), 1), (Arc::from("b"), 3)];
        let excess = |groups: &[ChildGroup]| {
            let excess = first_excess_group_in_job(groups, &[], &above);
            excess.map(|excess| (excess.index, excess.allowed))
        };
        assert_eq!(excess(&[group("a", "", 2)]), Some((0, 1)));
        assert_eq!(excess(&[group("", "a", 4)]), None, "it is named by its own job");
        assert_eq!(excess(&[group("", "a", 5)]), Some((0, 4)));
        assert_eq!(excess(&[group("other", "", 5)]), Some((0, 4)));
        assert_eq!(excess(&[group("", "x", 3), group("", "y", 2)]), Some((1, 1)));
        assert_eq!(excess(&[]), None);
    }

    #[test]
    fn groups_have_what_others_leave() {
        let above = [(Arc::from("a"), 2), (Arc::from("b"), 3)];
        let excess = |own: ChildGroup, others: &[ChildGroup]| {
            first_excess_group_in_job(&[own], others, &above).map(|excess| excess.allowed)
        };
        let (a, unknown) = ([group("a", "", 1)], [group("", "b", 1)]);
        assert_eq!((excess(group("a", "", 1), &a), excess(group("a", "", 2), &a)), (None, Some(1)));
        assert_eq!(excess(group("b", "", 3), &a), None, "they are in another pod set");
        assert_eq!((excess(group("", "x", 4), &a), excess(group("", "x", 5), &a)), (None, Some(4)));
        assert_eq!(excess(group("a", "", 2), &unknown), None, "they may be in another pod set");
        assert_eq!(excess(group("", "x", 5), &unknown), Some(4));
        assert_eq!(excess(group("a", "", 1), &[group("a", "", 9)]), Some(0));
        assert_eq!(excess(group("a", "", 0), &[group("a", "", 9)]), None);
    }

    fn requests(cpu: &Value) -> Requests {
        template_requests(&json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]})).unwrap()
    }

    #[test]
    fn pods_are_compared_with_their_pod_set_or_with_any() {
        let of = |cpu: &str| Some(Arc::new(requests(&json!(cpu))));
        let above = [(Arc::from("a"), of("1")), (Arc::from("b"), of("4"))];
        let exceeds =
            |set: Option<&str>, cpu: &str| excess_of_pod(set, &requests(&json!(cpu)), &above).is_some();
        assert!(!exceeds(Some("a"), "1000m") && exceeds(Some("a"), "1001m"));
        assert!(!exceeds(Some("b"), "4") && exceeds(Some("b"), "5"));
        for unknown in [None, Some("c")] {
            assert!(!exceeds(unknown, "4") && exceeds(unknown, "5"), "{unknown:?}");
        }
        assert_eq!(excess_of_pod(None, &requests(&json!("9")), &[]), None, "nothing is known");
        assert_eq!(excess_of_pod(Some("a"), &requests(&json!("9")), &[(Arc::from("a"), None)]), None);
    }

    #[test]
    fn requests_follow_from_the_template_alone() {
        assert_eq!(requests(&json!(2)), requests(&json!("2")), "a number");
        assert_eq!(template_requests(&Value::Null), None);
        let limits = json!({"limits": {"cpu": "3"}});
        let init = json!([{"resources": limits, "restartPolicy": "Always"}]);
        let spec =
            json!({"initContainers": init, "containers": [{"resources": limits}], "overhead": {"cpu": "9"}});
        assert_eq!(template_requests(&spec), Some(requests(&json!("6"))));
        let named = json!({"runtimeClassName": "kata", "resourceClaims": [{"name": "g", "resourceClaimName": "gpu"}]});
        let read = serde_json::from_value(named.clone()).unwrap();
        assert_eq!(template_requests(&named), Some(spec_requests(&read)));
        assert_eq!(
            spec_requests(&read).keys().map(|name| &**name).collect::<Vec<_>>(),
            ["resourceClaim gpu", "runtimeClassName kata"]
        );
        let of_pod = json!({"containers": [], "resources": {"requests": {"cpu": "7", "memory": null}}});
        assert_eq!(template_requests(&of_pod), Some(requests(&json!("7"))));
    }

    #[test]
    fn groups_share_the_pods_of_their_pod_set() {
        let above = [(Arc::from("head"), 1), (Arc::from("w"), 3)];
        let excess = |groups: &[ChildGroup]| {
            first_excess_group(groups, &above).map(|excess| (excess.index, excess.allowed))
        };
        assert_eq!(excess(&[group("head", "", 1), group("w", "a", 3)]), None);
        assert_eq!(excess(&[group("head", "", 1), group("w", "a", 4)]), Some((1, 3)));
        assert_eq!(excess(&[group("w", "a", 2), group("w", "b", 2)]), Some((1, 1)));
        // The name of a group is that of its pod set where no label says another one.
        assert_eq!(excess(&[group("head", "", 1), group("", "w", 3)]), None);
        assert_eq!(excess(&[group("head", "w", 2)]), Some((0, 1)));
        // One that was added has no pod set, unless it has no pods.
        assert_eq!(excess(&[group("head", "", 1), group("", "new", 1)]), Some((1, 0)));
        assert_eq!(excess(&[group("head", "", 1), group("other", "w", 1)]), Some((1, 0)));
        assert_eq!(excess(&[group("head", "", 1), group("", "new", 0)]), None);
        assert_eq!(excess(&[group("", "x", 9)]), None, "the job has not made it");
        assert_eq!(excess(&[group("w", "a", i64::MAX), group("w", "b", i64::MAX)]), Some((0, 3)));
    }

    #[test]
    fn objects_share_the_pods_of_the_job_above() {
        let above = [(Arc::from("head"), 2), (Arc::from("w"), 5)];
        let child = |name: &str, workers: i64| SizedChild {
            claim: Claim::Runs,
            created: Timestamp::UNIX_EPOCH,
            uid: Arc::from(name),
            groups: vec![group("head", "", 1), group("w", "", workers)],
        };
        let room =
            |before: &[SizedChild], workers: i64| has_room(&child("x", workers).groups, before, &above);
        assert!(room(&[], 9), "the first one");
        assert!(room(&[child("a", 3)], 2) && !room(&[child("a", 3)], 3));
        assert!(!room(&[child("a", 1), child("b", 1)], 1), "a head is missing");
        assert!(room(&[child("a", 1), child("b", 9)], 4), "the second one waits itself");
        assert!(!room(&[child("a", 9)], 1) && room(&[child("a", 9)], 0));
        assert!(!has_room(&[group("", "other", 1)], &[child("a", 0)], &above), "it was made by another");
        let waits = SizedChild { claim: Claim::Waits, ..child("a", 1) };
        assert!(child("b", 1) < waits, "what runs comes first");
    }
}
