//! Pods of the objects below a controller that share the size of the job above them, such as the Jobs of a JobSet.
//!
//! Invariant: sums cover exactly the objects that have pods. The cost of a change or a look-up does not depend on the number of
//! objects.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{ChildGroup, OwnerRef};
use rpds::RedBlackTreeMapSync;
use std::collections::BTreeMap;
use std::sync::Arc;

type ObjectId = (Kind, ObjectKey);

/// Number of pods by the pod set that the label of their template names.
type Sums = BTreeMap<Option<String>, i64>;

/// Pods by object, and their sums.
#[derive(Clone, Debug, Default)]
pub struct SharedPods {
    children: RedBlackTreeMapSync<ObjectId, Arc<Child>>,
    /// By UID of the controller and namespace.
    sums: RedBlackTreeMapSync<(String, Arc<str>), Arc<Sums>>,
}

/// An object that has pods.
#[derive(Debug, PartialEq, Eq)]
struct Child {
    /// UID of its controller.
    controller: String,
    groups: Vec<ChildGroup>,
}

impl SharedPods {
    /// Sets the controller of an object and its groups of pods; `None` if it has no pods.
    pub(super) fn set(&mut self, id: &ObjectId, child: Option<(&OwnerRef, Vec<ChildGroup>)>) {
        let child = child.map(|(controller, groups)| Child { controller: controller.uid.clone(), groups });
        let former = self.children.get(id).map(Arc::clone);
        if former.as_deref() == child.as_ref() {
            return;
        }
        if let Some(former) = former {
            self.add(&id.1.namespace, &former, -1);
            self.children.remove_mut(id);
        }
        if let Some(child) = child {
            self.add(&id.1.namespace, &child, 1);
            self.children.insert_mut(id.clone(), Arc::new(child));
        }
    }

    /// Returns the pods of the objects below a controller beside one of them, as a group for each pod set that labels name.
    pub(super) fn beside(&self, controller: &str, id: &ObjectId) -> Vec<ChildGroup> {
        let of_controller = (controller.to_owned(), Arc::clone(&id.1.namespace));
        let mut sums = self.sums.get(&of_controller).map(|sums| Sums::clone(sums)).unwrap_or_default();
        if let Some(own) = self.children.get(id).filter(|own| own.controller == controller) {
            add_groups(&mut sums, &own.groups, -1);
        }
        let group = |(label, pods)| ChildGroup { label, name: None, pods };
        sums.into_iter().map(group).collect()
    }

    fn add(&mut self, namespace: &Arc<str>, child: &Child, sign: i64) {
        let of_controller = (child.controller.clone(), Arc::clone(namespace));
        let mut sums = self.sums.get(&of_controller).map(|sums| Sums::clone(sums)).unwrap_or_default();
        add_groups(&mut sums, &child.groups, sign);
        if sums.is_empty() {
            self.sums.remove_mut(&of_controller);
        } else {
            self.sums.insert_mut(of_controller, Arc::new(sums));
        }
    }
}

/// Adds the pods of groups, or removes them if the sign is negative.
fn add_groups(sums: &mut Sums, groups: &[ChildGroup], sign: i64) {
    for group in groups {
        let sum = sums.entry(group.label.clone()).or_default();
        *sum = sum.saturating_add(group.pods.saturating_mul(sign));
    }
    sums.retain(|_, pods| *pods != 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::JobKind;

    #[test]
    fn sums_cover_the_objects_that_have_pods() {
        let controller = |uid: &str| OwnerRef {
            api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
            kind: "JobSet".to_owned(),
            name: "js".to_owned(),
            uid: uid.to_owned(),
        };
        let id =
            |namespace: &str, name: &str| (Kind::of_job(JobKind::BATCH_JOB), ObjectKey::new(namespace, name));
        let groups = |pods: i64| vec![ChildGroup { label: Some("a".to_owned()), name: None, pods }];
        let mut shared = SharedPods::default();
        let (u, v) = (controller("u"), controller("v"));
        shared.set(&id("ns", "0"), Some((&u, groups(2))));
        shared.set(&id("ns", "1"), Some((&u, groups(3))));
        shared.set(&id("other", "2"), Some((&u, groups(9))));
        assert_eq!(shared.beside("u", &id("ns", "0")), groups(3));
        assert_eq!(shared.beside("u", &id("ns", "new")), groups(5));
        assert!(shared.beside("v", &id("ns", "0")).is_empty());
        shared.set(&id("ns", "1"), Some((&v, groups(4))));
        assert!(shared.beside("u", &id("ns", "0")).is_empty());
        assert_eq!(shared.beside("v", &id("ns", "0")), groups(4));
        for name in ["0", "1"] {
            shared.set(&id("ns", name), None);
        }
        shared.set(&id("other", "2"), None);
        assert!(shared.sums.is_empty() && shared.children.is_empty());
    }
}
