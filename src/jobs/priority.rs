//! Where the priority of a job comes from.

use super::view::JobView;
use crate::api::v1beta2::PriorityClassRef;
use serde_json::Value;

/// A priority and the class that it came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Priority {
    /// Higher goes first.
    pub value: i32,
    /// The class, unless the value is the built-in 0.
    pub class: Option<PriorityClassRef>,
}

/// The classes that exist.
pub trait PriorityLookup {
    /// Value of a WorkloadPriorityClass.
    fn workload_class(&self, name: &str) -> Option<i32>;
    /// Value of a PriorityClass.
    fn pod_class(&self, name: &str) -> Option<i32>;
    /// Name and value of the PriorityClass that is the global default.
    fn default_pod_class(&self) -> Option<(String, i32)>;
}

/// A class that is named and does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingClass {
    /// The label names a WorkloadPriorityClass.
    WorkloadClass(String),
    /// The pod template names a PriorityClass.
    PodClass(String),
}

impl Priority {
    /// The priority of a job: its label's class, else its pods' class, else the global default, else 0.
    pub fn resolve(
        view: &JobView,
        pod_sets: &[Value],
        classes: &dyn PriorityLookup,
    ) -> Result<Self, MissingClass> {
        if let Some(name) = view.priority_class.as_deref() {
            let value = classes.workload_class(name);
            let value = value.ok_or_else(|| MissingClass::WorkloadClass(name.to_owned()))?;
            return Ok(Self::from_class(value, "kueue.x-k8s.io", "WorkloadPriorityClass", name));
        }
        let named = pod_sets.iter().find_map(|set| {
            set.pointer("/template/spec/priorityClassName")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
        });
        if let Some(name) = named {
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
