//! Resolution of a Job's priority from its labels and classes.

use serde_json::{Value, json};
use sluice_core::frameworks::{MissingClass, Priority, PriorityLookup, framework};

struct Classes {
    default: bool,
}

impl PriorityLookup for Classes {
    fn workload_class(&self, name: &str) -> Option<i32> {
        (name == "urgent").then_some(100)
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        (name == "batch").then_some(-5)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        self.default.then(|| ("usual".to_owned(), 7))
    }
}

fn resolve(label: Option<&str>, class: Option<&str>, default: bool) -> Result<Priority, MissingClass> {
    let labels = label.map_or_else(|| json!({}), |name| json!({"kueue.x-k8s.io/priority-class": name}));
    let job: Value = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "1", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"template": {"spec": {"priorityClassName": class, "containers": [{"name": "c"}]}}},
    });
    let kind = framework("batch", "Job").unwrap();
    let view = kind.decode(&job).unwrap();
    Priority::resolve(&view, &kind.pod_sets(&job).unwrap(), &Classes { default })
}

#[test]
fn resolve_cases() {
    let table = [
        (Some("urgent"), Some("batch"), true, 100, "WorkloadPriorityClass urgent"),
        (None, Some("batch"), true, -5, "PriorityClass batch"),
        (None, Some(""), true, 7, "PriorityClass usual"),
        (None, None, true, 7, "PriorityClass usual"),
        (None, None, false, 0, ""),
    ];
    for (label, class, default, value, expected_source) in table {
        let priority = resolve(label, class, default).unwrap();
        let source = priority.class.map(|class| format!("{} {}", class.kind, class.name)).unwrap_or_default();
        assert_eq!(
            (priority.value, source.as_str()),
            (value, expected_source),
            "{label:?} {class:?} {default}"
        );
    }
}

#[test]
fn missing_class_is_named() {
    let table = [
        (Some("gone"), Some("batch"), MissingClass::WorkloadClass("gone".to_owned())),
        (None, Some("gone"), MissingClass::PodClass("gone".to_owned())),
    ];
    for (label, class, expected) in table {
        assert_eq!(resolve(label, class, true), Err(expected));
    }
}
