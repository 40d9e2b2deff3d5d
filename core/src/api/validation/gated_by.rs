//! The annotation that keeps an object out of the queue until the named gates are removed.

use std::collections::BTreeSet;

use super::{Errors, FieldCursor, FieldError, key_path, syntax};
use crate::api::names::ADMISSION_GATED_BY_ANNOTATION;

const GATE_MAX: usize = 63;

/// Returns the path of the annotation.
pub fn path() -> String {
    key_path("metadata.annotations", ADMISSION_GATED_BY_ANNOTATION)
}

/// Returns the annotation of an object, if present.
pub fn read<'a>(object: &FieldCursor<'a>, errors: &mut Errors) -> Option<&'a str> {
    object.descend(&["metadata", "annotations", ADMISSION_GATED_BY_ANNOTATION], errors).text(errors)
}

/// Checks the list of gates. An empty list has no effect.
pub fn check(gates: Option<&str>, errors: &mut Errors) {
    let Some(text) = gates.filter(|text| !text.is_empty()) else {
        return;
    };
    let mut seen = BTreeSet::new();
    for gate in text.split(',') {
        // Each error repeats the whole text, which may consist of commas only.
        if errors.is_full() {
            return;
        }
        if gate.is_empty() {
            errors.push(FieldError::invalid(path(), text, "cannot contain empty gate names"));
            continue;
        }
        if !seen.insert(gate) {
            errors.push(FieldError::invalid(path(), text, format!("duplicate gate name: {gate}")));
            continue;
        }
        if gate.len() > GATE_MAX {
            errors.push(FieldError::too_long(path(), GATE_MAX));
        }
        errors.extend(syntax::invalid_each(&path(), gate, syntax::domain_prefixed_path(gate)));
    }
}

/// Checks a change: gates may be removed, but not added.
pub fn check_update(gates: Option<&str>, old: Option<&str>, errors: &mut Errors) {
    let Some(gates) = gates.filter(|text| !text.is_empty()) else {
        return;
    };
    let Some(old) = old.filter(|text| !text.is_empty()) else {
        errors.push(FieldError::forbidden(path(), "cannot add admission gate after creation"));
        return;
    };
    let had: BTreeSet<&str> = old.split(',').collect();
    for gate in gates.split(',').filter(|gate| !had.contains(gate)) {
        errors.push(FieldError::forbidden(
            path(),
            format!("cannot add the admission gate {gate:?} after creation"),
        ));
    }
}
