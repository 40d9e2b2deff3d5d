//! What single values change in the rendered objects, and which values are refused. The cases are in `e2e/chart`.

use super::helm::Helm;
use super::kustomization::DEFAULT_NAMESPACE;
use super::references::{self, find, items, of_kind};
use super::rendering::CONFIGURATION;
use crate::objects::text;
use crate::paths;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;

/// The container that runs the manager.
const ARGUMENTS: &str = "/spec/template/spec/containers/0/args";

/// A case of `e2e/chart`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Values of the chart.
    #[serde(default)]
    values: Value,
    /// Body of the manager's configuration.
    configuration: Option<String>,
    /// Kind and name of an object.
    #[serde(default)]
    object: String,
    /// A field of the object.
    #[serde(default)]
    field: String,
    /// Value of the field; null if it is absent.
    #[serde(default)]
    is: Value,
    /// An argument of the manager.
    #[serde(default)]
    flag: String,
    /// Words of the message with which the values are refused.
    #[serde(default)]
    words: Vec<String>,
}

impl Case {
    /// Returns all values.
    fn values(&self) -> Value {
        let mut values = if self.values.is_null() { json!({}) } else { self.values.clone() };
        if let Some(body) = &self.configuration {
            values["managerConfig"] = configuration(body)["managerConfig"].clone();
        }
        values
    }
}

/// Returns values with a manager's configuration.
fn configuration(body: &str) -> Value {
    let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{body}\n");
    json!({"managerConfig": {"controllerManagerConfigYaml": text}})
}

fn cases(name: &str) -> Result<Vec<Case>> {
    let path = paths::root().join("e2e/chart").join(name);
    let cases: Vec<Case> =
        serde_saphyr::from_str(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
    ensure!(!cases.is_empty(), "{name} has no cases");
    Ok(cases)
}

/// Runs all cases.
pub(super) fn check(helm: &Helm) -> Result<()> {
    run(helm, "fields.yaml", "set a field", check_field)?;
    run(helm, "flags.yaml", "become a flag", check_flag)?;
    run(helm, "absent.yaml", "remove objects", check_absence)?;
    run(helm, "refused.yaml", "are refused by name", check_refusal)?;
    run(helm, "accepted.yaml", "of Kueue are accepted", |helm, case| render(helm, &case.values()).map(drop))?;
    frameworks(helm)?;
    other_names(helm)?;
    issuer(helm)?;
    dashboards(helm)
}

/// Returns what the chart renders for each case that it accepts, with the values.
pub(super) fn accepted(helm: &Helm) -> Result<Vec<(Value, Vec<Value>)>> {
    let mut all = Vec::new();
    for file in ["fields.yaml", "flags.yaml", "absent.yaml", "accepted.yaml"] {
        for case in cases(file)? {
            let values = case.values();
            let objects = render(helm, &values)?;
            all.push((values, objects));
        }
    }
    Ok(all)
}

fn run(helm: &Helm, file: &str, outcome: &str, check: impl Fn(&Helm, &Case) -> Result<()>) -> Result<()> {
    let cases = cases(file)?;
    for (number, case) in cases.iter().enumerate() {
        check(helm, case).with_context(|| format!("{file}, case {}: {}", number + 1, case.values()))?;
    }
    println!("{} values {outcome}", cases.len());
    Ok(())
}

fn render(helm: &Helm, values: &Value) -> Result<Vec<Value>> {
    let objects = helm.render(DEFAULT_NAMESPACE, values)?;
    references::check(&objects, DEFAULT_NAMESPACE)?;
    Ok(objects)
}

fn check_field(helm: &Helm, case: &Case) -> Result<()> {
    let objects = render(helm, &case.values())?;
    let (kind, name) = case.object.split_once('/').context("object has no name")?;
    let object = find(&objects, kind, name).with_context(|| format!("no {kind} {name}"))?;
    let found = object.pointer(&case.field).unwrap_or(&Value::Null);
    ensure!(*found == case.is, "{kind} {name}: {} is {found}, not {}", case.field, case.is);
    Ok(())
}

fn check_flag(helm: &Helm, case: &Case) -> Result<()> {
    let objects = render(helm, &case.values())?;
    let is_manager = |object: &&Value| text(object, "/metadata/name").ends_with("-controller-manager");
    let deployment = of_kind(&objects, "Deployment").find(is_manager).context("no manager")?;
    let mut arguments = items(deployment, ARGUMENTS);
    ensure!(arguments.any(|argument| *argument == case.flag), "no argument {}", case.flag);
    Ok(())
}

fn check_absence(helm: &Helm, case: &Case) -> Result<()> {
    let (kind, name) = case.object.split_once('/').unwrap_or((&case.object, ""));
    let exists = |values: &Value| -> Result<bool> {
        let objects = render(helm, values)?;
        let mut all = of_kind(&objects, kind);
        Ok(all.any(|object| name.is_empty() || text(object, "/metadata/name") == name))
    };
    ensure!(exists(&everything())?, "{kind} {name} exists with no values");
    ensure!(!exists(&case.values())?, "{kind} {name} exists");
    Ok(())
}

/// Returns values with which there are as many objects as possible.
fn everything() -> Value {
    let retention = "objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 1h}}";
    let frameworks = "integrations: {frameworks: [batch/job, pod]}";
    json!({
        "enablePrometheus": true,
        "metrics": {"prometheusServiceAccount": "prometheus-k8s"},
        "webhooks": {"separate": true},
        "dashboards": {"enabled": true},
        "dashboard": {"enabled": true, "ingress": {"enabled": true, "host": "queues.example"}},
        "history": {"enabled": true},
        "v1beta1": {"enabled": true},
        "managerConfig": {"controllerManagerConfigYaml": format!("{CONFIGURATION}{retention}\n{frameworks}\n")},
    })
}

fn check_refusal(helm: &Helm, case: &Case) -> Result<()> {
    let Err(error) = helm.render(DEFAULT_NAMESPACE, &case.values()) else { bail!("accepted") };
    let message = format!("{error:#}");
    ensure!(!case.words.is_empty(), "the case has no words");
    for word in &case.words {
        ensure!(message.contains(word), "the message has no {word:?}: {message}");
    }
    Ok(())
}

/// Webhooks and permissions exist only for the frameworks that the configuration lists.
fn frameworks(helm: &Helm) -> Result<()> {
    let about_jobs = |body: &str| -> Result<(usize, usize)> {
        let objects = render(helm, &configuration(body))?;
        let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        let webhooks = kinds
            .iter()
            .flat_map(|kind| of_kind(&objects, kind))
            .flat_map(|object| items(object, "/webhooks"));
        let webhooks = webhooks.filter(|webhook| webhook.to_string().contains("\"jobs\"")).count();
        let role = find(&objects, "ClusterRole", "kueue-manager-role").context("no role")?;
        Ok((webhooks, items(role, "/rules").filter(|rule| text(rule, "/apiGroups/0") == "batch").count()))
    };
    let expected = [
        // The manager's default.
        ("", (4, 3)),
        ("integrations: {frameworks: [batch/job]}", (4, 3)),
        ("integrations: {frameworks: [pod, batch/job]}", (4, 3)),
        ("integrations: {frameworks: []}", (0, 0)),
        ("integrations: {frameworks: [pod]}", (0, 0)),
    ];
    for (body, expected) in expected {
        let found = about_jobs(body)?;
        ensure!(found == expected, "{body}: {found:?} webhooks and rules for Jobs, expected {expected:?}");
    }
    println!("webhooks and permissions exist for the listed frameworks only");
    Ok(())
}

/// With another prefix no object has a name of `config/`, and the configuration names the certificate's objects.
fn other_names(helm: &Helm) -> Result<()> {
    let mut values = everything();
    values["fullnameOverride"] = "own".into();
    let objects = render(helm, &values)?;
    // The names of these are those of API versions.
    let fixed = ["CustomResourceDefinition", "APIService"];
    // Messages of the command line and of the dashboard name these.
    let named = ["sluice-cluster-viewer", "sluice-namespace-viewer"];
    for object in objects.iter().filter(|object| !fixed.contains(&text(object, "/kind"))) {
        let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
        let is_as_it_should = name.starts_with("own-") != named.contains(&name);
        ensure!(is_as_it_should, "{kind} {name} has another prefix");
    }
    let config = find(&objects, "ConfigMap", "own-manager-config").context("no configuration")?;
    let file: Value = serde_saphyr::from_str(text(&config["data"], "/controller_manager_config.yaml"))?;
    let expected =
        json!({"webhookSecretName": "own-webhook-server-cert", "webhookServiceName": "own-webhook-service"});
    ensure!(file["internalCertManagement"] == expected, "internalCertManagement: {file}");
    ensure!(file["clientConnection"]["burst"].as_f64() == Some(500.0), "other settings are lost: {file}");
    println!("another prefix is in all names");
    Ok(())
}

/// An issuer of the cluster replaces the chart's own.
fn issuer(helm: &Helm) -> Result<()> {
    let issuer = json!({"name": "company", "kind": "ClusterIssuer", "group": "cert-manager.io"});
    let objects = render(helm, &json!({"enableCertManager": true, "certManager": {"issuerRef": issuer}}))?;
    ensure!(of_kind(&objects, "Issuer").next().is_none(), "the chart creates an Issuer of its own");
    let certificate = of_kind(&objects, "Certificate").next().context("no Certificate")?;
    ensure!(certificate["spec"]["issuerRef"] == issuer, "{}", certificate["spec"]);
    println!("an issuer of the cluster is used");
    Ok(())
}

/// Each dashboard is in a ConfigMap, byte for byte, with the labels and in the namespace that the sidecar expects.
fn dashboards(helm: &Helm) -> Result<()> {
    let values = json!({"dashboards": {
        "enabled": true,
        "namespace": "monitoring",
        "labels": {"grafana_dashboard": null, "dashboards": "batch"},
        "annotations": {"grafana_folder": "Batch"},
    }});
    let objects = helm.render(DEFAULT_NAMESPACE, &values)?;
    let mut count = 0;
    for entry in fs::read_dir(paths::root().join("dashboards"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a file without a name")?;
        let found = find(&objects, "ConfigMap", &format!("kueue-dashboard-{name}"));
        let found = found.with_context(|| format!("no ConfigMap for {name}"))?;
        let data = json!({format!("sluice-{name}.json"): fs::read_to_string(&path)?});
        ensure!(found["data"] == data, "{name}: the dashboard is changed");
        let metadata = &found["metadata"];
        ensure!(metadata["namespace"] == "monitoring", "{name}: {metadata}");
        ensure!(metadata["annotations"] == json!({"grafana_folder": "Batch"}), "{name}: {metadata}");
        let labels = &metadata["labels"];
        ensure!(labels["dashboards"] == "batch" && labels["grafana_dashboard"].is_null(), "{name}: {labels}");
        count += 1;
    }
    let is_dashboard = |map: &&Value| text(map, "/metadata/name").contains("dashboard");
    let maps = of_kind(&objects, "ConfigMap").filter(is_dashboard).count();
    ensure!(count > 1 && maps == count, "{count} dashboards, {maps} ConfigMaps");
    println!("{count} dashboards are ConfigMaps for Grafana");
    Ok(())
}
