//! What docs/install.md names as the configuration of a choice: the manager starts with it and becomes ready.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::paths;
use std::fs;

/// Each configuration of the table of choices is given to the manager, which becomes ready with it and answers webhooks.
pub(crate) async fn each_choice_starts(cluster: &mut Cluster, _: &Fixture) -> Result<()> {
    let choices = configurations()?;
    ensure!(choices.len() >= 4, "{} configurations", choices.len());
    for (text, configuration) in &choices {
        let before = cluster.reconfigure(configuration).await.with_context(|| text.clone())?;
        cluster.reconfigure(&before).await?;
    }
    note(format_args!("{} configurations", choices.len()));
    Ok(())
}

/// Returns the settings in the first column of the table, each as it is written and as fields of a configuration.
fn configurations() -> Result<Vec<(String, Value)>> {
    let page = fs::read_to_string(paths::root().join("docs/install.md"))?;
    let (_, section) = page.split_once("\n## Choices\n").context("the page has choices")?;
    let rows =
        section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let mut found = Vec::new();
    for row in rows {
        let choice = row.trim_matches('|').split(" | ").next().unwrap_or_default();
        for text in choice.split('`').skip(1).step_by(2) {
            let is_label = choice.contains(&format!("label `{text}`"));
            let Some((name, value)) = text.split_once(": ").filter(|_| !is_label) else { continue };
            let value: Value = serde_saphyr::from_str(value)?;
            // A gate alone is called one in the words before it.
            let path = if choice.contains("the feature gate `") {
                format!("featureGates.{name}")
            } else {
                name.to_owned()
            };
            let nested = |value, name: &str| Value::Object(Map::from_iter([(name.to_owned(), value)]));
            found.push((text.to_owned(), path.rsplit('.').fold(json!(value), nested)));
        }
    }
    Ok(found)
}
