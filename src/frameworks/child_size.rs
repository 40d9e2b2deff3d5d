//! The size of an object beside that of the job that is queued in its place.
//!
//! Invariant: a pod set of the job has all pods of the object that run on its quota, whichever groups of the object they are in. The
//! labels of templates say which pod set that is: a start writes them, and the controller of the job copies them. All objects below
//! one controller share the pod sets: one that has no room beside those before it waits, as the second cluster of a service that is
//! upgraded.

use super::view::{JobView, PodSetView};
use crate::api::names::POD_SET_LABEL;
use jiff::Timestamp;
use std::sync::Arc;

/// Name and number of pods of a pod set.
pub type PodSetSize = (Arc<str>, i32);

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
    /// It waits for room, or has quota of its own until there is.
    Waits,
}

/// An object below a controller, as others below that are compared with it. They are in order: those that run come first, of others
/// the one that was created first.
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
pub fn first_excess_group(groups: &[ChildGroup], above: &[PodSetSize]) -> Option<ExcessGroup> {
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
/// that the label of its template says, as its own name is not that of one, and in any case in all pod sets together.
pub fn first_excess_group_in_job(groups: Vec<ChildGroup>, above: &[PodSetSize]) -> Option<ExcessGroup> {
    let groups: Vec<_> = groups.into_iter().map(|group| ChildGroup { name: None, ..group }).collect();
    first_excess_group(&groups, above).or_else(|| {
        let mut left = above.iter().fold(0, |sum: i64, (_, count)| sum.saturating_add(i64::from(*count)));
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
            let excess = first_excess_group_in_job(groups.to_vec(), &above);
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
