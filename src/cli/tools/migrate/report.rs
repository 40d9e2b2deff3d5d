//! The report of `sluice migrate check`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::inventory::{Inventory, Placed};
use super::leftovers::{self, Installation};
use super::schema;
use crate::cli::manager::settings;

/// Text for a configuration that the manager refuses. The reason is among the obstacles.
const REFUSED: &str = "it is refused, as said below";
/// Path of pod templates in Workloads.
const TEMPLATE: &str = "spec.podSets.[].template";

/// Returns the report.
pub(super) fn text(inventory: &Inventory, obstacles: &[String]) -> String {
    let mut text = String::new();
    let mut section = |title: &str, lines: Vec<String>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{title}");
        let lines = if lines.is_empty() { vec!["none".to_owned()] } else { lines };
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    };
    section("Installation", installation(inventory));
    section("Stored versions", stored_versions(inventory));
    section("Configuration", configuration(inventory));
    section("Fields that Sluice does not know", unknown_fields(inventory));
    section("Defaults that differ", defaults(inventory));
    section("Webhook entries", webhook_entries(inventory));
    section("Visibility API", inventory.api_services.iter().map(api_service).collect());
    let left = leftovers::with_effect(inventory, Installation::Kueue);
    section(
        "Objects of Kueue that a change removes, unless Sluice's manifests replace them",
        left.iter().map(|placed| placed.path.clone()).collect(),
    );
    section("Workloads", workloads(inventory.objects("Workload")));
    section("In the way", obstacles.to_vec());
    text
}

fn installation(inventory: &Inventory) -> Vec<String> {
    let managers = &inventory.managers;
    let mut lines = vec![format!("owner: {}", inventory.owner().describe())];
    lines.push(managers.deployment().map_or_else(
        || format!("no Deployment of a manager in {}", managers.namespace),
        |deployment| {
            let image = deployment.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
            let of = managers.installation();
            let state =
                if of.is_some_and(|of| managers.is_available(of)) { "available" } else { "not available" };
            let of = of.map_or_else(String::new, |of| format!("{of:?}'s "));
            format!(
                "{of}Deployment {}-controller-manager in {}, {state}, image {}",
                managers.prefix(),
                managers.namespace,
                image.unwrap_or("unknown")
            )
        },
    ));
    let holder = managers.holder();
    lines.push(format!("lease: {}", if holder.is_empty() { "not held" } else { holder }));
    lines
}

fn stored_versions(inventory: &Inventory) -> Vec<String> {
    let line = |kind: &super::inventory::DefinedKind| {
        let count = kind.objects.as_ref().map_or_else(|_| "?".to_owned(), |all| all.len().to_string());
        format!("{}: {} ({count} objects)", kind.name(), kind.stored_versions().join(", "))
    };
    inventory.kinds.iter().map(line).collect()
}

fn configuration(inventory: &Inventory) -> Vec<String> {
    let Some(text) = &inventory.configuration else {
        return vec!["no ConfigMap kueue-manager-config: defaults".to_owned()];
    };
    let Ok(document) = settings::document_of(text, "configuration", None) else {
        return vec![REFUSED.to_owned()];
    };
    let names = document.pointer("/integrations/frameworks").and_then(Value::as_array);
    let names: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    let mut lines = vec![format!("frameworks: {}", names.join(", "))];
    let components = super::owner::components(inventory);
    if !components.is_empty() {
        lines.push(format!(
            "components that they need: config/frameworks/{}",
            components.join(", config/frameworks/")
        ));
    }
    match settings::checked("configuration", document) {
        Ok(loaded) => lines.extend(loaded.warnings),
        Err(_) => lines.push(REFUSED.to_owned()),
    }
    lines
}

fn schemas(inventory: &Inventory) -> impl Iterator<Item = (&str, &Value, &Value)> {
    inventory.kinds.iter().filter_map(|kind| {
        let own = schema::of_version(kind.own, "v1beta2")?;
        let theirs = schema::of_version(kind.definition.as_ref()?, "v1beta2")?;
        Some((kind.name(), own, theirs))
    })
}

fn unknown_fields(inventory: &Inventory) -> Vec<String> {
    let lines = |(name, own, theirs): (&str, &Value, &Value)| {
        schema::lacking(own, theirs)
            .into_iter()
            .map(|path| format!("{name}: {}", path.join(".")))
            .collect::<Vec<_>>()
    };
    let kinds = inventory.unknown_kinds.iter();
    let kinds = kinds.map(|plural| {
        format!("{plural}.kueue.x-k8s.io: the whole kind; it stays as it is, and nothing acts on it")
    });
    schemas(inventory).flat_map(lines).chain(kinds).collect()
}

fn defaults(inventory: &Inventory) -> Vec<String> {
    let lines = |(name, own, theirs): (&str, &Value, &Value)| {
        // Pod templates in Workloads are copies that the manager makes, so no user has to change them.
        let (copied, own): (Vec<String>, Vec<String>) =
            schema::changed_defaults(own, theirs).into_iter().partition(|line| line.starts_with(TEMPLATE));
        let copied = (!copied.is_empty())
            .then(|| format!("{name}: {} in {TEMPLATE}, which the manager copies from jobs", copied.len()));
        own.into_iter().map(|line| format!("{name}: {line}")).chain(copied).collect::<Vec<_>>()
    };
    schemas(inventory).flat_map(lines).collect()
}

fn webhook_entries(inventory: &Inventory) -> Vec<String> {
    let count = |placed: &Placed| {
        let entries = placed.object.get("webhooks").and_then(Value::as_array).map_or(0, Vec::len);
        format!("{}: {entries}", placed.path)
    };
    let mut lines: Vec<String> = inventory.webhooks.iter().map(count).collect();
    let unanswered = leftovers::stale_entries(inventory, Installation::Kueue);
    lines.extend(unanswered.into_iter().map(|change| format!("a change would {}", change.what)));
    lines
}

fn api_service(placed: &Placed) -> String {
    let of = leftovers::installation(&placed.object);
    let state = if leftovers::is_available(&placed.object) { "answers" } else { "does not answer" };
    let of = of.map_or_else(|| "of both".to_owned(), |of| format!("{of:?}'s"));
    format!("{}: {of}, {state}", placed.path)
}

fn workloads(all: &[Value]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for workload in all {
        *counts.entry(state(workload)).or_default() += 1;
    }
    counts.into_iter().map(|(state, count)| format!("{state}: {count}")).collect()
}

fn state(workload: &Value) -> &'static str {
    let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |kind: &str| {
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == *kind && c["status"] == "True"))
    };
    match () {
        () if holds("Finished") => "finished",
        () if holds("QuotaReserved") && holds("Evicted") => "evicted, with quota",
        () if holds("Admitted") => "admitted",
        () if holds("QuotaReserved") => "with quota, not admitted",
        () if workload.pointer("/spec/active") == Some(&Value::Bool(false)) => "deactivated",
        () => "pending",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_workload_is_in_one_state() {
        let with = |kinds: &[&str]| {
            let conditions: Vec<Value> =
                kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
            json!({"spec": {"active": true}, "status": {"conditions": conditions}})
        };
        let all = [
            with(&[]),
            with(&["QuotaReserved"]),
            with(&["QuotaReserved", "Admitted", "Finished"]),
            json!({"spec": {"active": false}}),
        ];
        assert_eq!(
            workloads(&all),
            ["deactivated: 1", "finished: 1", "pending: 1", "with quota, not admitted: 1"]
        );
    }
}
