//! The size of an object beside that of the job that is queued in its place.
//!
//! Invariant: a pod set of the job has all pods of the object that run on its quota, whichever groups of the object they are in. The
//! labels of templates say which pod set that is: a start writes them, and the controller of the job copies them.

use std::sync::Arc;

/// Name and number of pods of a pod set.
pub type PodSetSize = (Arc<str>, i32);

/// A group of pods of an object below a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildGroup {
    /// The pod set that the label of its template names.
    pub label: Option<String>,
    /// Its own name, in lower case.
    pub name: Option<String>,
    /// Number of pods.
    pub pods: i64,
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
    let place = |group: &ChildGroup| {
        let name = group.label.as_deref().or(group.name.as_deref());
        above.iter().position(|(set, _)| name == Some(&**set))
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(label: &str, name: &str, pods: i64) -> ChildGroup {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ChildGroup { label: text(label), name: text(name), pods }
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
}
