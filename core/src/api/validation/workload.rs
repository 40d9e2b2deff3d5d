//! Validation of Workload specs. See `workload_status` for the status and `workload_update` for changes.

use serde_json::Value;

use super::quota::{negative, quantity};
use super::syntax::{check_annotations, check_conditions, check_labels, parse_int};
use super::{
    Errors, FieldCursor, FieldError, Gate, Gates, gated_by, key_path, slices, workload_status,
    workload_update,
};
use crate::api::names::{ELASTIC_JOB_ANNOTATION, PODS_RESOURCE, PRIORITY_BOOST_ANNOTATION};
use crate::resources::Quantity;

/// The fields of a pod set that rules read.
pub(super) struct PodSetFields<'a> {
    pub(super) name: &'a str,
    pub(super) count: i64,
    pub(super) cursor: FieldCursor<'a>,
}

/// The fields of a Workload that rules read.
pub(super) struct WorkloadFields<'a> {
    pub(super) root: FieldCursor<'a>,
    pub(super) status: FieldCursor<'a>,
    pub(super) pod_sets: Vec<PodSetFields<'a>>,
    /// Whether quota is reserved.
    pub(super) reserved: bool,
    /// Whether it has finished.
    pub(super) finished: bool,
    /// Whether the Workload may be resized while it runs.
    pub(super) elastic: bool,
}

impl<'a> WorkloadFields<'a> {
    pub(super) fn read(object: &'a Value, gates: &Gates, errors: &mut Errors) -> Self {
        let root = FieldCursor::root(object);
        let status = root.get("status", errors);
        let mut pod_sets = Vec::new();
        for cursor in root.descend(&["spec", "podSets"], errors).items(errors) {
            let name = cursor.get("name", errors).text(errors).unwrap_or("main");
            let count = cursor.get("count", errors).int(errors).unwrap_or(1);
            pod_sets.push(PodSetFields { name, count, cursor });
        }
        let (mut reserved, mut finished) = (false, false);
        for condition in status.get("conditions", errors).items(errors) {
            let field = |name: &str| condition.value.get(name).and_then(Value::as_str);
            let is_true = |kind: &str| field("type") == Some(kind) && field("status") == Some("True");
            reserved |= is_true("QuotaReserved");
            finished |= is_true("Finished");
        }
        let annotations = root.descend(&["metadata", "annotations"], errors);
        let elastic = gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices)
            && annotations.get(ELASTIC_JOB_ANNOTATION, errors).text(errors) == Some("true");
        Self { root, status, pod_sets, reserved, finished, elastic }
    }

    pub(super) fn pod_set(&self, name: &str) -> Option<&PodSetFields<'a>> {
        self.pod_sets.iter().find(|pod_set| pod_set.name == name)
    }

    pub(super) fn pod_set_names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.pod_sets.iter().map(|pod_set| pod_set.name)
    }
}

/// Validates a new Workload, or a changed one (spec or status) against its `old` version. New Workloads that no rule
/// can refuse are not sent to the webhook: a new rule must be added to the matchCondition `skip-simple-creates`
/// too.
pub fn workload(object: &Value, old: Option<&Value>, gates: &Gates) -> Vec<FieldError> {
    workload_written(object, old, gates, false)
}

/// Like [`workload`], with whether the manager writes it, which may take back reclaimed pods.
pub fn workload_written(
    object: &Value,
    old: Option<&Value>,
    gates: &Gates,
    by_manager: bool,
) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let view = WorkloadFields::read(object, gates, &mut errors);
    let mut unread = Errors::new();
    let stored = old;
    let old = old.map(|old| WorkloadFields::read(old, gates, &mut unread));
    for pod_set in &view.pod_sets {
        template(&pod_set.cursor, gates, &mut errors);
        topology(&pod_set.cursor, gates, &mut errors);
    }
    if gates.is_enabled(Gate::TASValidateWorkloadSliceSize) {
        slices::check(&view, old.as_ref(), &mut errors);
    }
    min_counts(&view, &mut errors);
    workload_status::check(&view, old.as_ref(), &mut errors);
    check_conditions(&view.status.get("conditions", &mut errors), &mut errors);
    annotations(&view, gates, &mut errors);
    if let Some(stored) = stored {
        errors.retain_new(|| workload(stored, None, gates));
    }
    if let Some(old) = &old {
        workload_update::check(&view, old, (gates, by_manager), &mut errors);
    }
    errors.take()
}

fn template(pod_set: &FieldCursor<'_>, gates: &Gates, errors: &mut Errors) {
    let template = pod_set.get("template", errors);
    if gates.is_enabled(Gate::WorkloadValidationForPodSetMetadata) {
        let metadata = template.get("metadata", errors);
        let labels = metadata.get("labels", errors);
        check_labels(&labels, errors);
        let annotations = metadata.get("annotations", errors);
        check_annotations(&annotations, errors);
    }
    let spec = template.get("spec", errors);
    resources(&spec, gates, errors);
    for list in ["initContainers", "containers"] {
        for container in spec.get(list, errors).items(errors) {
            resources(&container, gates, errors);
        }
    }
}

fn resources(parent: &FieldCursor<'_>, gates: &Gates, errors: &mut Errors) {
    let resources = parent.get("resources", errors);
    for list in ["requests", "limits"] {
        for (name, cursor) in resources.get(list, errors).entries(errors) {
            if name == PODS_RESOURCE {
                let detail = "the key is reserved for internal kueue use";
                errors.push(FieldError::invalid(cursor.path.clone(), name, detail));
            }
            let amount = quantity(&cursor, errors)
                .filter(|_| gates.is_enabled(Gate::WorkloadValidateResourcesAreNonNegative));
            if let Some(amount) = amount.filter(Quantity::is_negative) {
                errors.push(negative(&cursor.path, &amount));
            }
        }
    }
}

fn topology(pod_set: &FieldCursor<'_>, gates: &Gates, errors: &mut Errors) {
    let request = pod_set.get("topologyRequest", errors);
    let level = request.get("podSetSliceRequiredTopology", errors).text(errors);
    let size = request.get("podSetSliceSize", errors);
    let slice = size.int(errors);
    if gates.is_enabled(Gate::TASValidateWorkloadSliceSize) {
        match (level, slice) {
            (Some(_), None) => {
                let detail = "must be set when podSetSliceRequiredTopology is specified";
                errors.push(FieldError::required(size.path.clone(), detail));
            }
            (None, Some(_)) => {
                let detail = "may not be set when podSetSliceRequiredTopology is not specified";
                errors.push(FieldError::forbidden(size.path.clone(), detail));
            }
            _ => {}
        }
        if let Some(number) = slice.filter(|number| *number <= 0) {
            errors.push(FieldError::invalid(size.path, number, "must be greater than or equal to 1"));
        }
    }
    for constraint in request.get("podsetSliceRequiredTopologyConstraints", errors).items(errors) {
        let size = constraint.get("size", errors);
        if let Some(number) = size.int(errors).filter(|number| *number <= 0) {
            errors.push(FieldError::invalid(size.path, number, "must be greater than or equal to 1"));
        }
    }
}

fn min_counts(view: &WorkloadFields<'_>, errors: &mut Errors) {
    let varying = view
        .pod_sets
        .iter()
        .filter(|pod_set| pod_set.cursor.get("minCount", errors).int(errors).is_some())
        .count();
    if varying > 1 {
        errors.push(FieldError::invalid("spec.podSets", varying, "at most one podSet can use minCount"));
    }
    if varying > 0 && view.elastic {
        let detail = "minCount cannot be used by a workload that is resized while it runs";
        errors.push(FieldError::invalid("spec.podSets", varying, detail));
    }
}

fn annotations(view: &WorkloadFields<'_>, gates: &Gates, errors: &mut Errors) {
    if gates.is_enabled(Gate::AdmissionGatedBy) {
        let gated_by = gated_by::read(&view.root, errors);
        gated_by::check(gated_by, errors);
    }
    if gates.is_enabled(Gate::PriorityBoost) {
        let boost =
            view.root.descend(&["metadata", "annotations", PRIORITY_BOOST_ANNOTATION], errors).text(errors);
        let path = key_path("metadata.annotations", PRIORITY_BOOST_ANNOTATION);
        if let Some(text) =
            boost.filter(|text| !parse_int(text).is_ok_and(|number| i32::try_from(number).is_ok()))
        {
            errors.push(FieldError::invalid(path, text, "must be a signed integer"));
        }
    }
}
