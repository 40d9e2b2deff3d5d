//! PriorityClasses of pods and WorkloadPriorityClasses.

use crate::frameworks::PriorityLookup;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Priority classes by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorityClasses {
    pod_classes: BTreeMap<Arc<str>, PodClass>,
    workload_classes: BTreeMap<Arc<str>, i32>,
}

#[derive(Clone, Copy, Debug)]
struct PodClass {
    value: i32,
    /// Whether it is the default of pods without a class.
    global_default: bool,
}

impl PriorityClasses {
    pub(super) fn pod_class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pod_classes.keys()
    }

    pub(super) fn workload_class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.workload_classes.keys()
    }

    pub(super) fn set_pod_class(&mut self, name: &Arc<str>, value: i32, global_default: bool) {
        self.pod_classes.insert(name.clone(), PodClass { value, global_default });
    }

    pub(super) fn remove_pod_class(&mut self, name: &str) {
        self.pod_classes.remove(name);
    }

    /// Returns whether the value of the class changed.
    pub(super) fn set_workload_class(&mut self, name: &Arc<str>, value: i32) -> bool {
        self.workload_classes.insert(name.clone(), value) != Some(value)
    }

    pub(super) fn remove_workload_class(&mut self, name: &str) {
        self.workload_classes.remove(name);
    }
}

impl PriorityLookup for PriorityClasses {
    fn workload_class(&self, name: &str) -> Option<i32> {
        self.workload_classes.get(name).copied()
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        self.pod_classes.get(name).map(|class| class.value)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        let defaults = self.pod_classes.iter().filter(|(_, class)| class.global_default);
        defaults.map(|(name, class)| (name.to_string(), class.value)).min_by_key(|(_, value)| *value)
    }
}
