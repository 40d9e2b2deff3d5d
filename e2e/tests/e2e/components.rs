//! The choices of docs/install.md, which are the components of `config/` and configurations: with each, the configuration passes
//! `config check`, and every Deployment's process becomes ready with the arguments, the account and the rights of the manifests.

use crate::cases::{CASES, note};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use sluice::frameworks::known_frameworks;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::installed_manifests::InstalledManifests;
use sluice_e2e::{install, paths};
use std::fs;
use std::path::Path;

/// Components that need what this case has not, and the case that starts them.
const STARTED_ELSEWHERE: [(&str, &str); 2] = [
    ("webhook-certs/cert-manager", "webhook_serving::externally_managed_certificates"),
    ("config/v1beta1/cert-manager", "v1beta1::store_is_taken_over"),
];
/// The component of the certificates that `config/default` lists.
const CERTIFICATES: &str = "webhook-certs/self-managed";
/// Kinds of jobs that are added to the shipped ones, among the fields of a choice.
const FRAMEWORKS: &str = "added frameworks";

/// A component with the ones that it patches, or none, and what the table of choices says to set in the configuration.
struct Choice {
    name: String,
    components: Vec<String>,
    configuration: Map<String, Value>,
}

/// Starts what each component, and each configuration that is named without one, makes of `config/default`.
pub(crate) async fn each_one_starts(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let mut choices = choices()?;
    ensure!(choices.len() >= 18, "{} components", choices.len());
    let configurations = configurations()?;
    ensure!(!configurations.is_empty(), "no configuration without a component");
    choices.extend(configurations);
    let folder = ControlPlane::temporary_folder().with_extension(&fixture.name);
    let mut site = InstalledManifests::start(&folder).await?;
    let mut started = 0_u32;
    for choice in &choices {
        let outcome = start(&mut site, choice).await.with_context(|| choice.name.clone());
        if outcome.is_err() {
            site.keep_folder();
        }
        started += u32::from(outcome?);
    }
    note(format_args!(
        "{} components and configurations, of which {started} change what a process reads",
        choices.len()
    ));
    Ok(())
}

async fn start(site: &mut InstalledManifests, choice: &Choice) -> Result<bool> {
    let components: Vec<&str> = choice.components.iter().map(String::as_str).collect();
    let manifests = install::manifests_with(site.kubectl(), &components)?;
    site.check(&manifests, |configuration| choice.set(configuration)).await
}

impl Choice {
    /// Sets the fields of the choice.
    fn set(&self, configuration: &mut Value) {
        for (field, value) in &self.configuration {
            if field != FRAMEWORKS {
                configuration[field] = value.clone();
            } else if let Some(listed) = configuration["integrations"]["frameworks"].as_array_mut() {
                let known = listed.clone();
                let added = value.as_array().into_iter().flatten().filter(|name| !known.contains(name));
                listed.extend(added.cloned());
            }
        }
    }
}

/// Returns all components of the repository, each with the ones that it patches.
fn choices() -> Result<Vec<Choice>> {
    let mut names = Vec::new();
    for folder in ["config", "webhook-certs"] {
        find_components(Path::new(folder), &mut names)?;
    }
    for (name, case) in STARTED_ELSEWHERE {
        ensure!(CASES.iter().any(|row| row.name == case), "no case {case}");
        let before = names.len();
        names.retain(|known| known != name);
        ensure!(names.len() < before, "no component {name}");
    }
    // One set without a component.
    let mut choices = vec![Choice { name: "none".into(), components: vec![], configuration: Map::new() }];
    names.retain(|name| name != CERTIFICATES);
    names.sort();
    for name in names {
        let below_config =
            name.strip_prefix("config/").with_context(|| format!("{name} is not in config"))?;
        let components = match below_config.strip_suffix("/manage-all-jobs") {
            Some("webhooks") => vec![below_config.to_owned()],
            Some(patched) => {
                vec![patched.to_owned(), "webhooks/manage-all-jobs".to_owned(), below_config.to_owned()]
            }
            None if below_config == "prometheus/kube-prometheus" => {
                vec!["prometheus".to_owned(), below_config.to_owned()]
            }
            None => vec![below_config.to_owned()],
        };
        let mut fields = Map::new();
        for component in &components {
            fields.append(&mut fields_of(component)?);
        }
        choices.push(Choice { name: name.clone(), components, configuration: fields });
    }
    // One that a larger set has is started with it.
    let sets: Vec<Vec<String>> = choices.iter().map(|choice| choice.components.clone()).collect();
    let in_larger = |choice: &Choice| {
        let own = &choice.components;
        sets.iter().any(|set| set.len() > own.len() && own.iter().all(|component| set.contains(component)))
    };
    choices.retain(|choice| choice.components.is_empty() || !in_larger(choice));
    Ok(choices)
}

/// Returns the configurations that the table of choices names without a component. One that is named beside a component is started
/// with that.
fn configurations() -> Result<Vec<Choice>> {
    let page = fs::read_to_string(paths::root().join("docs/install.md"))?;
    let (_, section) = page.split_once("\n## Choices\n").context("the page has choices")?;
    let rows =
        section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let mut found = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [choice, "–", ..] = cells[..] else { continue };
        for text in choice.split('`').skip(1).step_by(2) {
            let Some((name, value)) = text.split_once(": ") else { continue };
            let value: Value = serde_saphyr::from_str(value)?;
            // A gate alone is called one in the words before it.
            let path = if choice.contains("the feature gate `") {
                format!("featureGates.{name}")
            } else {
                name.to_owned()
            };
            let fields = path.rsplit('.').fold(value, |value, name| json!({name: value}));
            let configuration = fields.as_object().cloned().unwrap_or_default();
            found.push(Choice { name: text.to_owned(), components: vec![], configuration });
        }
    }
    Ok(found)
}

/// Returns what docs/install.md says to set with a component.
fn fields_of(component: &str) -> Result<Map<String, Value>> {
    let framework = component.strip_prefix("frameworks/").filter(|name| !name.ends_with("/manage-all-jobs"));
    let fields = match (component, framework) {
        ("webhooks/manage-all-jobs", _) => json!({"manageJobsWithoutQueueName": true}),
        ("rbac/retention", _) => {
            json!({"objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1h"}}})
        }
        ("rbac/without-topology", _) => {
            json!({"featureGates": {"TopologyAwareScheduling": false, "ElasticJobsViaWorkloadSlices": false}})
        }
        (_, Some(folder)) => {
            let known = known_frameworks().into_iter().filter(|known| {
                !known.by_file && (folder == "all" || known.name.rsplit('/').next() == Some(folder))
            });
            let (mut listed, mut gates) = (Vec::new(), Map::new());
            for known in known {
                listed.push(known.name);
                gates.extend(known.gate.map(|gate| (gate.to_owned(), json!(true))));
            }
            ensure!(!listed.is_empty(), "no kind of jobs has the component {component}");
            json!({FRAMEWORKS: listed, "featureGates": gates})
        }
        _ => json!({}),
    };
    Ok(fields.as_object().cloned().unwrap_or_default())
}

/// Adds the folders below this one, of the repository, that are components.
fn find_components(folder: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(paths::root().join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            find_components(&path, names)?;
        } else if entry.file_name() == "kustomization.yaml"
            && fs::read_to_string(entry.path())?.contains("\nkind: Component\n")
        {
            names.push(folder.display().to_string());
        }
    }
    Ok(())
}
