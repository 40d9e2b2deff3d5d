//! Validation of the topology annotations of a pod template.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::api::names::POD_INDEX_OFFSET_ANNOTATION;
use crate::api::validation::syntax::{check_label_name, parse_bool, parse_int};
use crate::api::validation::{Errors, FieldError, Gate, Gates, incomplete_slices, key_path};
use crate::frameworks::{PodSetUnderReview, TopologyChecks, map_text};

/// Annotation: all pods must be in one domain of this level.
pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// Annotation: all pods should be in one domain of this level.
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_REQUIRED: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// Annotation: pod sets of the same group are placed together.
pub(super) const GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// Annotations that say how large slices are.
pub(super) const SLICES: [&str; 3] = [SLICE_REQUIRED, SLICE_SIZE, CONSTRAINTS];
const CONSTRAINTS_MAX: usize = 3;

/// Checks the annotations of a pod template, and its slices against the number of pods, if it is given.
pub(super) fn check(
    annotations: Option<&Map<String, Value>>,
    path: &str,
    pods: Option<i64>,
    (checks, gates): (TopologyChecks, &Gates),
) -> Vec<FieldError> {
    let request = TopologyAnnotations { annotations, path };
    let mut errors = Errors::new();
    request.check_levels(&mut errors);
    request.check_slices(&mut errors);
    request.check_constraints(gates, &mut errors);
    request.check_group(&mut errors);
    request.check_index_offset(&mut errors);
    match pods {
        Some(pods) if errors.is_empty() => request.check_slice_count(pods, &mut errors),
        Some(pods) if checks != TopologyChecks::TemplateThenSlices => {
            request.check_slice_bounds(pods, &mut errors);
        }
        _ => {}
    }
    errors.take()
}

/// Checks the groups that the pod sets of a job form: a group is placed as one, so it consists of a leader and its workers,
/// which ask for the same. A pod set without a required or preferred level is in no group.
pub(super) fn check_groups(pod_sets: &[PodSetUnderReview<'_>]) -> Vec<FieldError> {
    let levels = |set: &PodSetUnderReview<'_>| {
        [REQUIRED, PREFERRED].map(|key| map_text(set.annotations, key).map(str::to_owned))
    };
    let mut groups: BTreeMap<&str, Vec<&PodSetUnderReview<'_>>> = BTreeMap::new();
    for set in pod_sets.iter().filter(|set| levels(set).iter().any(Option::is_some)) {
        if let Some(name) = map_text(set.annotations, GROUP_NAME) {
            groups.entry(name).or_default().push(set);
        }
    }
    let mut errors = Vec::new();
    for (name, members) in groups {
        let detail = match members.as_slice() {
            [a, b] if a.pods != 1 && b.pods != 1 => {
                "one pod set of a group must have exactly one pod".to_owned()
            }
            [a, b] if levels(a) != levels(b) => {
                "pod sets of a group must ask for the same topology".to_owned()
            }
            [_, _] => continue,
            others => format!("a group must have exactly 2 pod sets, but has {}", others.len()),
        };
        let path = |set: &PodSetUnderReview<'_>| key_path(&set.annotations_path, GROUP_NAME);
        errors.extend(members.iter().map(|set| FieldError::invalid(path(set), name, detail.clone())));
    }
    errors
}

struct TopologyAnnotations<'a> {
    annotations: Option<&'a Map<String, Value>>,
    path: &'a str,
}

impl<'a> TopologyAnnotations<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        map_text(self.annotations, key)
    }

    fn path_of(&self, key: &str) -> String {
        key_path(self.path, key)
    }

    fn check_levels(&self, errors: &mut Errors) {
        let requested =
            [REQUIRED, PREFERRED, UNCONSTRAINED].iter().filter(|key| self.get(key).is_some()).count();
        if requested > 1 {
            errors.push(FieldError::invalid_unshown(
                self.path,
                "must not ask for more than one kind of topology",
            ));
        }
        for key in [REQUIRED, PREFERRED, SLICE_REQUIRED] {
            if let Some(level) = self.get(key) {
                errors.extend(check_label_name(&self.path_of(key), level));
            }
        }
        if let Some(flag) = self.get(UNCONSTRAINED).filter(|flag| parse_bool(flag).is_none()) {
            errors.push(FieldError::invalid(self.path_of(UNCONSTRAINED), flag, "must be a boolean value"));
        }
    }

    fn check_slices(&self, errors: &mut Errors) {
        let (level, size) = (self.get(SLICE_REQUIRED), self.get(SLICE_SIZE));
        match size.map(parse_int) {
            Some(Err(fault)) => {
                errors.push(FieldError::invalid(self.path_of(SLICE_SIZE), size.unwrap_or_default(), fault));
            }
            Some(Ok(number)) if number < 1 => errors.push(FieldError::invalid(
                self.path_of(SLICE_SIZE),
                size.unwrap_or_default(),
                "must be greater than or equal to 1",
            )),
            _ => {}
        }
        if level.is_some() && size.is_none() {
            let detail = format!("must be set when '{SLICE_REQUIRED}' is specified");
            errors.push(FieldError::required(self.path_of(SLICE_SIZE), detail));
        }
        if level.is_none() && size.is_some() {
            let detail = format!("may not be set when '{SLICE_REQUIRED}' is not specified");
            errors.push(FieldError::forbidden(self.path_of(SLICE_SIZE), detail));
        }
    }

    fn check_constraints(&self, gates: &Gates, errors: &mut Errors) {
        let Some(text) = self.get(CONSTRAINTS) else { return };
        let path = self.path_of(CONSTRAINTS);
        if !gates.is_enabled(Gate::TASMultiLayerTopology) {
            errors.push(FieldError::forbidden(path, "slices in more than one layer are not enabled"));
            return;
        }
        for key in [SLICE_REQUIRED, SLICE_SIZE] {
            if self.get(key).is_some() {
                errors.push(FieldError::forbidden(
                    path.clone(),
                    format!("may not be set when '{key}' is specified"),
                ));
            }
        }
        let layers = match parse_layers(text) {
            Ok(layers) => layers,
            Err(fault) => {
                errors.push(FieldError::invalid(path, text, format!("must be a valid JSON array: {fault}")));
                return;
            }
        };
        if layers.is_empty() || layers.len() > CONSTRAINTS_MAX {
            let detail = format!("topology constraints must contain between 1 and {CONSTRAINTS_MAX} entries");
            errors.push(FieldError::invalid(path, text, detail));
            return;
        }
        for (i, (level, size)) in layers.iter().enumerate() {
            let (above, _) = layers.split_at(i);
            errors.extend(check_label_name(&path, level));
            if *size < 1 {
                errors.push(FieldError::invalid(
                    path.clone(),
                    *size,
                    "size must be greater than or equal to 1",
                ));
            }
            if above.iter().any(|(other, _)| other == level) {
                errors.push(FieldError::duplicate(path.clone(), level.as_str(), ""));
            }
            if let Some((_, parent)) = above.last().filter(|(_, parent)| *size > 0 && parent % size != 0) {
                let detail = format!("size must divide {parent}, the size of the layer above");
                errors.push(FieldError::invalid(path.clone(), *size, detail));
            }
        }
    }

    fn check_group(&self, errors: &mut Errors) {
        let Some(name) = self.get(GROUP_NAME) else { return };
        let path = self.path_of(GROUP_NAME);
        if name.parse::<u64>().is_ok() {
            errors.push(FieldError::invalid(path.clone(), name, "must not be a number"));
        }
        for key in [SLICE_SIZE, SLICE_REQUIRED, CONSTRAINTS] {
            if self.get(key).is_some() {
                errors.push(FieldError::forbidden(
                    path.clone(),
                    format!("may not be set when '{key}' is specified"),
                ));
            }
        }
        if self.get(REQUIRED).is_none() && self.get(PREFERRED).is_none() {
            let detail = format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
            errors.push(FieldError::forbidden(path, detail));
        }
    }

    /// Checks the number that ranks of pods begin with: a pod whose index is below it has no rank.
    fn check_index_offset(&self, errors: &mut Errors) {
        let Some(offset) = self.get(POD_INDEX_OFFSET_ANNOTATION) else { return };
        let fault = match parse_int(offset) {
            Ok(0..) => return,
            Ok(_) => "must not be negative",
            Err(fault) => fault,
        };
        errors.push(FieldError::invalid(self.path_of(POD_INDEX_OFFSET_ANNOTATION), offset, fault));
    }

    /// Returns the size of the widest slices, by the annotations that say it.
    fn slice_sizes(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let outermost = self
            .get(CONSTRAINTS)
            .and_then(|text| parse_layers(text).ok())
            .and_then(|layers| layers.first().map(|(_, size)| (CONSTRAINTS, *size)));
        let plain = self.get(SLICE_SIZE).and_then(|size| parse_int(size).ok()).map(|size| (SLICE_SIZE, size));
        outermost.into_iter().chain(plain)
    }

    /// Checks that the pod set consists of whole slices.
    fn check_slice_count(&self, pods: i64, errors: &mut Errors) {
        let Some((key, size)) = self.slice_sizes().next() else { return };
        if let Some(detail) = incomplete_slices(size, pods) {
            errors.push(FieldError::invalid(self.path_of(key), size, detail));
        }
    }

    /// Checks that no slice is larger than the pod set, of annotations that have other faults.
    fn check_slice_bounds(&self, pods: i64, errors: &mut Errors) {
        for (key, size) in self.slice_sizes().filter(|(_, size)| *size > pods) {
            let detail = format!("must not be greater than pod set count {pods}");
            errors.push(FieldError::invalid(self.path_of(key), size, detail));
        }
    }
}

/// Returns level and size of each layer, widest first; absent fields are empty and zero.
fn parse_layers(text: &str) -> Result<Vec<(String, i64)>, String> {
    let layers: Vec<Option<SliceLayer>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(layers
        .into_iter()
        .map(Option::unwrap_or_default)
        .map(|layer| (layer.topology, layer.size.into()))
        .collect())
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct SliceLayer {
    topology: String,
    size: i32,
}
