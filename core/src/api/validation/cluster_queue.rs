//! Validation of `ClusterQueue`s and Cohorts. Referenced objects need not exist: a queue without them is inactive.

use std::collections::BTreeSet;

use serde_json::Value;

use super::equality::equal;
use super::quota::{QuotaKind, fair_sharing, resource_groups};
use super::syntax::check_selector;
use super::{Errors, FieldCursor, FieldError, Gate, Gates};

const FLAVORS_MAX: usize = 256;
const RESOURCES_MAX: usize = 256;
const COMBINATIONS_MAX: usize = 512;
const MIGRATION_FLAVORS_MAX: usize = 16;

/// Validates a new Cohort, or a changed one against its `old` version. Cycles are allowed: they make the tree inactive.
pub fn cohort(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let errors = &mut Errors::new();
    let spec = FieldCursor::root(object).get("spec", errors);
    fair_sharing(&spec, errors);
    let parent = spec.get("parentName", errors).text(errors).is_some_and(|name| !name.is_empty());
    let groups = spec.get("resourceGroups", errors).items(errors);
    resource_groups(&groups, QuotaKind::Cohort, ("parent", parent), errors);
    if let Some(old) = old {
        errors.retain_new(|| cohort(old, None));
    }
    errors.take()
}

/// Validates a new `ClusterQueue`, or a changed one against its `old` version.
pub fn cluster_queue(object: &Value, old: Option<&Value>, gates: &Gates) -> Vec<FieldError> {
    let errors = &mut Errors::new();
    let spec = FieldCursor::root(object).get("spec", errors);
    let cohort = spec.get("cohortName", errors).text(errors).is_some_and(|name| !name.is_empty());
    let groups = spec.get("resourceGroups", errors).items(errors);
    resource_groups(&groups, QuotaKind::ClusterQueue, ("cohort", cohort), errors);
    sizes(&spec, &groups, errors);
    let selector = spec.get("namespaceSelector", errors);
    check_selector(&selector, errors);
    preemption(&spec, errors);
    fungibility(&spec, errors);
    fair_sharing(&spec, errors);
    if gates.is_enabled(Gate::ConcurrentAdmission) {
        migration(&spec, &groups, errors);
    }
    if let Some(old) = old {
        errors.retain_new(|| cluster_queue(old, None, gates));
    }
    // These have a rule of their own for what was invalid before, which a gate turns off.
    checks(&spec, old, gates, errors);
    if let Some(old) = old {
        let mut unread = Errors::new();
        let was = FieldCursor::root(old).descend(&["spec", "concurrentAdmissionPolicy"], &mut unread);
        let policy = spec.get("concurrentAdmissionPolicy", errors);
        if !equal(policy.value, was.value) {
            errors.push(FieldError::immutable(policy.path, policy.value.clone()));
        }
    }
    errors.take()
}

fn sizes(spec: &FieldCursor<'_>, groups: &[FieldCursor<'_>], errors: &mut Errors) {
    let path = spec.field_path("resourceGroups");
    let (mut flavors, mut resources) = (0, 0);
    for group in groups {
        let own_flavors = group.get("flavors", errors).items(errors).len();
        let own_resources = group.get("coveredResources", errors).items(errors).len();
        let combinations = own_flavors.saturating_mul(own_resources);
        if combinations > COMBINATIONS_MAX {
            let detail = format!("must have at most {COMBINATIONS_MAX} combinations of flavor and resource");
            errors.push(FieldError::invalid(group.path.clone(), combinations, detail));
        }
        flavors += own_flavors;
        resources += own_resources;
    }
    if flavors > FLAVORS_MAX {
        let detail = format!("must have at most {FLAVORS_MAX} flavors in all");
        errors.push(FieldError::invalid(path.clone(), flavors, detail));
    }
    if resources > RESOURCES_MAX {
        let detail = format!("must have at most {RESOURCES_MAX} covered resources in all");
        errors.push(FieldError::invalid(path, resources, detail));
    }
}

fn preemption(spec: &FieldCursor<'_>, errors: &mut Errors) {
    let preemption = spec.get("preemption", errors);
    let reclaim = preemption.get("reclaimWithinCohort", errors).text(errors).unwrap_or("Never");
    let borrow =
        preemption.get("borrowWithinCohort", errors).get("policy", errors).text(errors).unwrap_or("Never");
    if matches!(reclaim, "Never" | "") && !matches!(borrow, "Never" | "") {
        let detail = "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never contradict each other";
        errors.push(FieldError::invalid(preemption.path.clone(), preemption.value.clone(), detail));
    }
}

fn fungibility(spec: &FieldCursor<'_>, errors: &mut Errors) {
    const NEXT: &str = "TryNextFlavor";
    let fungibility = spec.get("flavorFungibility", errors);
    let preference = fungibility.get("preference", errors);
    let Some(text) = preference.text(errors).filter(|text| !text.is_empty()) else {
        return;
    };
    let borrow = fungibility.get("whenCanBorrow", errors).text(errors);
    let preempt = fungibility.get("whenCanPreempt", errors).text(errors).unwrap_or(NEXT);
    if borrow != Some(NEXT) || preempt != NEXT {
        let detail = "may be set only if whenCanBorrow and whenCanPreempt are both TryNextFlavor";
        errors.push(FieldError::invalid(preference.path, text, detail));
    }
}

fn migration(spec: &FieldCursor<'_>, groups: &[FieldCursor<'_>], errors: &mut Errors) {
    let policy = spec.get("concurrentAdmissionPolicy", errors);
    if !policy.exists() {
        return;
    }
    if groups.len() != 1 {
        let detail = "must be exactly one group with concurrentAdmissionPolicy";
        errors.push(FieldError::invalid(spec.field_path("resourceGroups"), groups.len(), detail));
    }
    let flavors = groups.first().map(|group| group.get("flavors", errors));
    if let Some(flavors) = flavors {
        let count = flavors.items(errors).len();
        if count > MIGRATION_FLAVORS_MAX {
            let detail =
                format!("must be at most {MIGRATION_FLAVORS_MAX} flavors with concurrentAdmissionPolicy");
            errors.push(FieldError::invalid(flavors.path, count, detail));
        }
    }
    let migration = policy.get("migration", errors);
    let constraints = migration.get("constraints", errors);
    let mode = migration.get("mode", errors).text(errors).unwrap_or_default();
    if constraints.exists() && !matches!(mode, "TryPreferredFlavors" | "") {
        let detail = "may be set only with mode TryPreferredFlavors";
        errors.push(FieldError::forbidden(constraints.path.clone(), detail));
    }
    let last = constraints.get("lastAcceptableFlavorName", errors);
    if let Some(name) =
        last.text(errors).filter(|name| !flavor_names(spec, &mut Errors::new()).contains(name))
    {
        errors.push(FieldError::invalid(last.path, name, "must be a flavor of this queue"));
    }
    let strategy = spec.get("queueingStrategy", errors);
    if strategy.text(errors) == Some("StrictFIFO") {
        let detail = "must be BestEffortFIFO with concurrentAdmissionPolicy";
        errors.push(FieldError::invalid(strategy.path, "StrictFIFO", detail));
    }
}

fn flavor_names<'a>(spec: &FieldCursor<'a>, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for group in spec.get("resourceGroups", errors).items(errors) {
        for flavor in group.get("flavors", errors).items(errors) {
            names.extend(flavor.get("name", errors).text(errors));
        }
    }
    names
}

/// Checks that `onFlavors` names only flavors of the queue. An entry that was invalid before is accepted while neither
/// it nor the queue's flavors change.
fn checks(spec: &FieldCursor<'_>, old: Option<&Value>, gates: &Gates, errors: &mut Errors) {
    let flavors = flavor_names(spec, errors);
    let mut unread = Errors::new();
    let old_spec = old
        .filter(|_| !gates.is_enabled(Gate::RejectUpdatesToCQWithInvalidOnFlavors))
        .map(|old| FieldCursor::root(old).get("spec", &mut unread))
        .filter(|old| flavor_names(old, &mut Errors::new()) == flavors);
    let old_checks = old_spec.map(|old| on_flavors(&old, &mut unread)).unwrap_or_default();
    for (name, listed) in on_flavors(spec, errors) {
        let names = |all: &[FieldCursor<'_>]| -> BTreeSet<String> {
            all.iter().filter_map(|flavor| flavor.value.as_str()).map(str::to_owned).collect()
        };
        if old_checks.iter().any(|(old_name, old)| *old_name == name && names(old) == names(&listed)) {
            continue;
        }
        for flavor in listed {
            if let Some(text) = flavor.text(errors).filter(|text| !flavors.contains(text)) {
                errors.push(FieldError::not_supported(flavor.path, text, flavors.iter().copied()));
            }
        }
    }
}

fn on_flavors<'a>(spec: &FieldCursor<'a>, errors: &mut Errors) -> Vec<(&'a str, Vec<FieldCursor<'a>>)> {
    let checks = spec.descend(&["admissionChecksStrategy", "admissionChecks"], errors).items(errors);
    let entry = |check: &FieldCursor<'a>, errors: &mut Errors| {
        let name = check.get("name", errors).text(errors).unwrap_or_default();
        (name, check.get("onFlavors", errors).items(errors))
    };
    checks.iter().map(|check| entry(check, errors)).collect()
}
