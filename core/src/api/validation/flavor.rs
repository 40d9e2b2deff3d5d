//! Validation of `ResourceFlavor`s: labels, taints and tolerations must be valid for nodes and pods.

use serde_json::Value;

use super::syntax::{check_label_name, check_labels, invalid_each, label_value};
use super::{Errors, FieldCursor, FieldError};

/// Validates a new `ResourceFlavor`, or a changed one against its `old` version.
pub fn resource_flavor(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let errors = &mut Errors::new();
    let spec = FieldCursor::root(object).get("spec", errors);
    let labels = spec.get("nodeLabels", errors);
    check_labels(&labels, errors);
    taints(&spec.get("nodeTaints", errors), errors);
    tolerations(&spec.get("tolerations", errors), errors);
    if let Some(old) = old {
        errors.retain_new(|| resource_flavor(old, None));
    }
    errors.take()
}

fn taints(taints: &FieldCursor<'_>, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for taint in taints.items(errors) {
        let key = taint.get("key", errors);
        let name = key.text(errors).unwrap_or_default();
        errors.extend(check_label_name(&key.path, name));
        let value = taint.get("value", errors);
        let text = value.text(errors).unwrap_or_default();
        errors.extend(invalid_each(&value.path, text, label_value(text)));
        let effect = taint.get("effect", errors).text(errors).unwrap_or_default();
        if seen.contains(&(name, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate(taint.path.clone(), taint.value.clone(), detail));
        }
        seen.push((name, effect));
    }
}

/// Checks the keys of tolerations; a toleration without a key matches all taints.
pub(super) fn tolerations(tolerations: &FieldCursor<'_>, errors: &mut Errors) {
    for toleration in tolerations.items(errors) {
        let key = toleration.get("key", errors);
        if let Some(name) = key.text(errors).filter(|name| !name.is_empty()) {
            errors.extend(check_label_name(&key.path, name));
        }
    }
}
