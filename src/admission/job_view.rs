//! The fields of a Job that rules read.

use serde_json::{Map, Value};

use super::AdmissionSettings;
use crate::api::names::{ELASTIC_JOB_ANNOTATION, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL};
use crate::api::validation::{Errors, FieldCursor, Gate};

/// The fields of a Job that rules read. Labels and annotations are returned even if empty.
#[derive(Debug)]
pub(super) struct JobFields<'a> {
    pub(super) uid: &'a str,
    pub(super) queue: Option<&'a str>,
    pub(super) priority_class: Option<&'a str>,
    pub(super) suspended: bool,
    pub(super) managed_by: Option<&'a str>,
    /// 1 when absent.
    pub(super) parallelism: i64,
    pub(super) completions: Option<i64>,
    pub(super) indexed: bool,
    labels: Option<&'a Map<String, Value>>,
    annotations: Option<&'a Map<String, Value>>,
    /// Annotations of the pod template.
    pub(super) template_annotations: Option<&'a Map<String, Value>>,
}

impl<'a> JobFields<'a> {
    pub(super) fn read(root: &FieldCursor<'a>, errors: &mut Errors) -> Self {
        let metadata = root.get("metadata", errors);
        let labels = string_map(&metadata.get("labels", errors), errors);
        let annotations = string_map(&metadata.get("annotations", errors), errors);
        let spec = root.get("spec", errors);
        let template = spec.descend(&["template", "metadata"], errors).get("annotations", errors);
        spec.descend(&["template", "spec"], errors).get("schedulingGates", errors).items(errors);
        Self {
            uid: metadata.get("uid", errors).text(errors).unwrap_or_default(),
            queue: map_text(labels, QUEUE_NAME_LABEL),
            priority_class: map_text(labels, PRIORITY_CLASS_LABEL),
            suspended: spec.get("suspend", errors).boolean(errors).unwrap_or(false),
            managed_by: spec.get("managedBy", errors).text(errors).filter(|name| !name.is_empty()),
            parallelism: spec.get("parallelism", errors).int(errors).unwrap_or(1),
            completions: spec.get("completions", errors).int(errors),
            indexed: spec.get("completionMode", errors).text(errors) == Some("Indexed"),
            labels,
            annotations,
            template_annotations: string_map(&template, errors),
        }
    }

    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        map_text(self.labels, key)
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        map_text(self.annotations, key)
    }

    /// Returns the number of pods that can run at the same time: at most the completions.
    pub(super) fn pods(&self) -> i64 {
        self.completions.map_or(self.parallelism, |completions| completions.min(self.parallelism))
    }

    /// Returns whether the Job may be resized while it runs.
    pub(super) fn elastic(&self, settings: &AdmissionSettings) -> bool {
        settings.gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices)
            && self.annotation(ELASTIC_JOB_ANNOTATION) == Some("true")
    }
}

pub(super) fn map_text<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> Option<&'a str> {
    map?.get(key)?.as_str()
}

fn string_map<'a>(map: &FieldCursor<'a>, errors: &mut Errors) -> Option<&'a Map<String, Value>> {
    for (_, value) in map.entries(errors) {
        value.text(errors);
    }
    map.map(errors)
}
