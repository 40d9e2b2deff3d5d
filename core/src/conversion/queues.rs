//! ClusterQueues, Cohorts, LocalQueues and MultiKueueClusters.
//!
//! Names of fields differ; quantities become texts; v1beta1 has a second form of a queue's admission checks, two more names of one policy, and figures
//! in the status that are no longer filled.

use super::{Fields, Version, items, object, quantities_as_text, rename_to, set, status, take};
use serde_json::{Value, json};

pub(super) fn cluster_queue(fields: &mut Fields, to: Version) {
    quantities(fields);
    if let Some(spec) = object(fields, "spec") {
        rename_to(to, spec, "cohort", "cohortName");
        if to == Version::V1beta2 {
            listed_checks(spec);
            current_policies(spec);
        }
    }
    counts(fields);
    if to == Version::V1beta2 {
        let Some(status) = object(fields, "status") else { return };
        take(status, "pendingWorkloadsStatus");
        forget_consumed_resources(status);
    }
}

pub(super) fn cohort(fields: &mut Fields, to: Version) {
    quantities(fields);
    if let Some(status) = object(fields, "status").filter(|_| to == Version::V1beta2) {
        forget_consumed_resources(status);
    }
}

pub(super) fn local_queue(fields: &mut Fields, to: Version) {
    quantities(fields);
    counts(fields);
    let Some(status) = object(fields, "status") else { return };
    rename_to(to, status, "flavorUsage", "flavorsUsage");
    if to == Version::V1beta2 {
        take(status, "flavors");
    }
}

fn quantities(fields: &mut Fields) {
    if let Some(spec) = object(fields, "spec") {
        let limits = ["nominalQuota", "borrowingLimit", "lendingLimit"];
        for group in items(spec, "resourceGroups") {
            for resource in items(group, "flavors").flat_map(|flavor| items(flavor, "resources")) {
                quantities_as_text(resource, |name| limits.contains(&name));
            }
        }
        if let Some(fair_sharing) = object(spec, "fairSharing") {
            quantities_as_text(fair_sharing, |name| name == "weight");
        }
    }
    let Some(status) = object(fields, "status") else { return };
    for usage in ["flavorsReservation", "flavorsUsage", "flavorUsage"] {
        for resource in items(status, usage).flat_map(|flavor| items(flavor, "resources")) {
            quantities_as_text(resource, |name| name == "total" || name == "borrowed");
        }
    }
}

/// The flat list of checks, of a queue that uses it, takes the place of the strategy.
fn listed_checks(spec: &mut Fields) {
    let Some(Value::Array(names)) = take(spec, "admissionChecks") else { return };
    if !names.is_empty() {
        let rules: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
        set(spec, "admissionChecksStrategy", json!({ "admissionChecks": rules }));
    }
}

/// `Borrow` and `Preempt` are earlier names of a policy.
fn current_policies(spec: &mut Fields) {
    let Some(fungibility) = object(spec, "flavorFungibility") else { return };
    for (field, earlier) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if fungibility.get(field).and_then(Value::as_str) == Some(earlier) {
            set(fungibility, field, "MayStopSearch");
        }
    }
}

/// Clients of either version find all counts, also of a queue without a status.
fn counts(fields: &mut Fields) {
    let Some(status) = status(fields) else { return };
    for count in ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"] {
        if status.get(count).is_none_or(Value::is_null) {
            set(status, count, 0);
        }
    }
}

/// In v1beta2 only LocalQueues have them.
fn forget_consumed_resources(status: &mut Fields) {
    if let Some(fair_sharing) = object(status, "fairSharing") {
        take(fair_sharing, "admissionFairSharingStatus");
    }
}

pub(super) fn multikueue_cluster(fields: &mut Fields, to: Version) {
    let Some(spec) = object(fields, "spec") else { return };
    match to {
        Version::V1beta1 => cluster_access(spec),
        Version::V1beta2 => cluster_source(spec),
    }
}

/// v1beta1 has both sources beside one another, and requires `kubeConfig` with both fields.
fn cluster_access(spec: &mut Fields) {
    let Some(Value::Object(mut source)) = take(spec, "clusterSource") else { return };
    let mut kube_config = match take(&mut source, "kubeConfig") {
        Some(Value::Object(kube_config)) => kube_config,
        _ => Fields::new(),
    };
    for field in ["location", "locationType"] {
        kube_config.entry(field).or_insert_with(|| "".into());
    }
    set(spec, "kubeConfig", kube_config);
    if let Some(profile) = take(&mut source, "clusterProfileRef") {
        set(spec, "clusterProfileRef", profile);
    }
    if !source.is_empty() {
        // Fields that neither version has.
        set(spec, "clusterSource", source);
    }
}

fn cluster_source(spec: &mut Fields) {
    let mut source = match take(spec, "clusterSource") {
        Some(Value::Object(source)) => source,
        _ => Fields::new(),
    };
    let kube_config = take(spec, "kubeConfig");
    if let Some(Value::Object(mut kube_config)) = kube_config.filter(|config| has_text(config, "location")) {
        if kube_config.get("locationType").and_then(Value::as_str) == Some("") {
            take(&mut kube_config, "locationType");
        }
        set(&mut source, "kubeConfig", kube_config);
    }
    if let Some(profile) = take(spec, "clusterProfileRef") {
        set(&mut source, "clusterProfileRef", profile);
    }
    set(spec, "clusterSource", source);
}

fn has_text(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}
