//! Resolution of the priority of a job.

use super::view::JobView;
use crate::api::v1beta2::PriorityClassRef;
use serde_json::Value;

/// A priority and its class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Priority {
    /// Value; higher values are admitted first.
    pub value: i32,
    /// The class; `None` for the built-in priority 0.
    pub class: Option<PriorityClassRef>,
}

/// Access to the existing priority classes.
pub trait PriorityLookup {
    /// Returns the value of a WorkloadPriorityClass.
    fn workload_class(&self, name: &str) -> Option<i32>;
    /// Returns the value of a PriorityClass.
    fn pod_class(&self, name: &str) -> Option<i32>;
    /// Returns name and value of the PriorityClass that is the global default.
    fn default_pod_class(&self) -> Option<(String, i32)>;
}

/// A referenced class that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingClass {
    /// The WorkloadPriorityClass of the label.
    WorkloadClass(String),
    /// The PriorityClass of the pod template.
    PodClass(String),
}

impl Priority {
    /// Returns the priority of a job: from the class of its label, else of a field of its own, else of its pods, else the
    /// global default, else 0.
    pub fn resolve(
        view: &JobView,
        pod_sets: &[Value],
        classes: &dyn PriorityLookup,
    ) -> Result<Self, MissingClass> {
        if let Some(name) = view.options.priority_class.as_deref() {
            let value = classes.workload_class(name);
            let value = value.ok_or_else(|| MissingClass::WorkloadClass(name.to_owned()))?;
            return Ok(Self::from_class(value, "kueue.x-k8s.io", "WorkloadPriorityClass", name));
        }
        let of_pods = || {
            pod_sets.iter().find_map(|set| {
                set.pointer("/template/spec/priorityClassName")
                    .and_then(Value::as_str)
                    .filter(|name| !name.is_empty())
            })
        };
        if let Some(name) = view.pod_priority_class.as_deref().or_else(of_pods) {
            let value = classes.pod_class(name).ok_or_else(|| MissingClass::PodClass(name.to_owned()))?;
            return Ok(Self::from_class(value, "scheduling.k8s.io", "PriorityClass", name));
        }
        Ok(classes.default_pod_class().map_or_else(Self::default, |(name, value)| {
            Self::from_class(value, "scheduling.k8s.io", "PriorityClass", &name)
        }))
    }

    fn from_class(value: i32, group: &str, kind: &str, name: &str) -> Self {
        let class =
            PriorityClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() };
        Self { value, class: Some(class) }
    }
}
