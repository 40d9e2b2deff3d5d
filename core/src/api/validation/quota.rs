//! Validation of resource groups and fair sharing weights, shared by `ClusterQueue`s and Cohorts.

use super::syntax::{qualified_name, read_quantity};
use super::{Errors, FieldCursor, FieldError};
use crate::resources::Quantity;

const NEGATIVE: &str = "must be greater than or equal to 0";

/// Kind of the object with the resource groups; the rule for lending limits depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaKind {
    /// The lending limit may not exceed the nominal quota.
    ClusterQueue,
    /// The lending limit may exceed the nominal quota, because the children's quota adds to it.
    Cohort,
}

/// Reads a quantity. Returns `None` if it is absent or invalid; adds an error if it is invalid.
pub(super) fn quantity(cursor: &FieldCursor<'_>, errors: &mut Errors) -> Option<Quantity> {
    if !cursor.exists() {
        return None;
    }
    match read_quantity(cursor.value) {
        Ok(quantity) => Some(quantity),
        Err(detail) => {
            errors.push(FieldError::invalid(cursor.path.clone(), cursor.value.clone(), detail));
            None
        }
    }
}

/// Checks that the weight is not negative, and not so small that it counts as 0.
pub(super) fn fair_sharing(spec: &FieldCursor<'_>, errors: &mut Errors) {
    let sharing = spec.get("fairSharing", errors);
    let written = sharing.get("weight", errors);
    let Some(weight) = quantity(&written, errors) else {
        return;
    };
    // Kueue's path is that of the struct: clients may read the path.
    let invalid = |detail: &str| FieldError::invalid(sharing.path.clone(), written.value.clone(), detail);
    let min = Quantity::parse("1n").ok();
    if weight.is_negative() {
        errors.push(invalid(&format!("weight {NEGATIVE}")));
    } else if !weight.is_zero() && min.is_some_and(|min| weight <= min) {
        errors.push(invalid("a weight other than 0 must be greater than 1n"));
    }
}

/// Checks all groups. `parent` contains the name of the field that borrowing and lending limits require, and whether it
/// is set.
pub(super) fn resource_groups(
    groups: &[FieldCursor<'_>],
    kind: QuotaKind,
    parent: (&str, bool),
    errors: &mut Errors,
) {
    let mut resources: Vec<&str> = Vec::new();
    let mut flavors: Vec<&str> = Vec::new();
    for group in groups {
        let mut covered: Vec<&str> = Vec::new();
        for resource in group.get("coveredResources", errors).items(errors) {
            let Some(name) = resource.text(errors) else {
                continue;
            };
            for fault in qualified_name(name) {
                errors.push(FieldError::invalid(resource.path.clone(), name, fault));
            }
            if resources.contains(&name) {
                errors.push(FieldError::duplicate(resource.path.clone(), name, ""));
            }
            resources.push(name);
            covered.push(name);
        }
        for flavor in group.get("flavors", errors).items(errors) {
            let name = flavor.get("name", errors);
            if let Some(text) = name.text(errors) {
                if flavors.contains(&text) {
                    errors.push(FieldError::duplicate(name.path.clone(), text, ""));
                }
                flavors.push(text);
            }
            for (k, resource) in flavor.get("resources", errors).items(errors).iter().enumerate() {
                let name = resource.get("name", errors);
                let text = name.text(errors).unwrap_or_default();
                if covered.get(k) != Some(&text) {
                    let detail = "must match the name in coveredResources";
                    errors.push(FieldError::invalid(name.path.clone(), text, detail));
                }
                limits(resource, kind, parent, errors);
            }
        }
    }
}

fn limits(resource: &FieldCursor<'_>, kind: QuotaKind, parent: (&str, bool), errors: &mut Errors) {
    let nominal = resource.get("nominalQuota", errors);
    let quota = quantity(&nominal, errors);
    if let Some(quota) = quota.as_ref().filter(|quota| quota.is_negative()) {
        errors.push(negative(&nominal.path, quota));
    }
    for field in ["borrowingLimit", "lendingLimit"] {
        let cursor = resource.get(field, errors);
        let Some(limit) = quantity(&cursor, errors) else {
            continue;
        };
        if limit.is_negative() {
            errors.push(negative(&cursor.path, &limit));
        }
        let (name, present) = parent;
        if !present {
            let detail = format!("must be nil when {name} is empty");
            errors.push(FieldError::invalid(cursor.path.clone(), limit.to_string(), detail));
        }
        let lent_out = field == "lendingLimit" && kind == QuotaKind::ClusterQueue;
        if lent_out && quota.as_ref().is_some_and(|quota| limit > *quota) {
            let detail = "must be less than or equal to the nominalQuota";
            errors.push(FieldError::invalid(cursor.path, limit.to_string(), detail));
        }
    }
}

pub(super) fn negative(path: &str, quantity: &Quantity) -> FieldError {
    FieldError::invalid(path, quantity.to_string(), NEGATIVE)
}
