//! `Configuration` of group `config.kueue.x-k8s.io`: the configuration file of the manager.
//!
//! A file written for Kueue either has the same meaning or is refused. An unknown field is an error with its path. A
//! known field whose feature is not supported is an error if ignoring it would change scheduling, otherwise a warning.
//! All errors are reported at once.

mod duration;
mod gate_table;
mod gates;
mod quantity;
mod schema_check;
mod tls;
mod types;
mod unsupported;
mod validate;

pub use duration::Duration;
pub use gate_table::page as feature_gates_page;
pub use gates::FeatureGates;
pub use quantity::Quantity;
pub use types::*;

use crate::api::validation::FieldError;
use serde_json::Value;
use std::fmt;

/// The supported API version.
pub const API_VERSION: &str = "config.kueue.x-k8s.io/v1beta2";
/// Label that every namespace carries with its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A framework that a configuration may name. The table of them is in a layer above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFramework {
    /// Its name in `integrations.frameworks`.
    pub name: &'static str,
    /// Its kind, as `integrations.externalFrameworks` would name it.
    pub kind: String,
    /// Whether it is enabled where a configuration lists no frameworks.
    pub by_default: bool,
    /// Whether it is enabled in any configuration, because a file describes it.
    pub by_file: bool,
    /// The feature gate without which a configuration may not name it.
    pub gate: Option<&'static str>,
}

/// A valid configuration and its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedConfiguration {
    /// The configuration with defaults applied.
    pub configuration: Configuration,
    /// Settings that have no effect in this version.
    pub warnings: Vec<String>,
}

/// All reasons why a configuration is refused, each with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    reasons: Vec<String>,
}

impl ConfigError {
    /// Returns the reasons.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))
    }
}

impl std::error::Error for ConfigError {}

/// Errors and warnings collected while a configuration is checked.
#[derive(Debug, Default)]
struct Problems {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Problems {
    fn error(&mut self, path: &str, text: &str) {
        self.errors.push(if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") });
    }

    fn field_errors(&mut self, errors: &[FieldError]) {
        self.errors.extend(errors.iter().map(ToString::to_string));
    }

    fn warn(&mut self, path: &str, text: &str) {
        self.warnings.push(format!("{path}: {text}"));
    }

    fn fail_if_errors(&self) -> Result<(), ConfigError> {
        if self.errors.is_empty() { Ok(()) } else { Err(ConfigError { reasons: self.errors.clone() }) }
    }
}

/// Reads and checks a configuration file. An empty file yields the defaults.
pub fn parse(yaml: &str, frameworks: &[KnownFramework]) -> Result<LoadedConfiguration, ConfigError> {
    load(read(yaml)?, frameworks)
}

/// Reads a configuration file as a JSON document without checks. An empty file yields the defaults.
pub fn read(yaml: &str) -> Result<Value, ConfigError> {
    let document = match yaml.trim() {
        "" => Value::Null,
        text => serde_saphyr::from_str(text).map_err(|e| {
            let words = e.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            ConfigError { reasons: vec![format!("not YAML: {words}")] }
        })?,
    };
    let defaults = || serde_json::json!({ "apiVersion": API_VERSION, "kind": "Configuration" });
    Ok(if document.is_null() { defaults() } else { document })
}

/// Checks a document and decodes it as a configuration.
pub fn load(mut document: Value, frameworks: &[KnownFramework]) -> Result<LoadedConfiguration, ConfigError> {
    let refuse = |text: String| ConfigError { reasons: vec![text] };
    check_version(&document)?;
    let mut problems = Problems::default();
    schema_check::check(&document, &mut problems);
    problems.fail_if_errors()?;
    drop_nulls(&mut document);
    let mut configuration: Configuration =
        serde_json::from_value(document.clone()).map_err(|e| refuse(e.to_string()))?;
    if document.pointer("/integrations/frameworks").is_none() {
        let by_default = frameworks.iter().filter(|framework| framework.by_default);
        configuration.integrations.frameworks =
            by_default.map(|framework| framework.name.to_owned()).collect();
    }
    let enabled = &mut configuration.integrations.frameworks;
    for framework in frameworks.iter().filter(|framework| framework.by_file) {
        if !enabled.iter().any(|name| name == framework.name) {
            enabled.push(framework.name.to_owned());
        }
    }
    configuration.gates = gates::check(&configuration.feature_gates, &mut problems);
    validate::check(&document, &configuration, frameworks, &mut problems);
    unsupported::check(&document, &configuration, frameworks, &mut problems);
    problems.fail_if_errors()?;
    Ok(LoadedConfiguration { configuration, warnings: problems.warnings })
}

fn check_version(document: &Value) -> Result<(), ConfigError> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let reason = if version != API_VERSION {
        format!("apiVersion: {version:?} is not supported; write the file as {API_VERSION}")
    } else if kind != "Configuration" {
        format!("kind: {kind:?} is not supported; it must be \"Configuration\"")
    } else {
        return Ok(());
    };
    Err(ConfigError { reasons: vec![reason] })
}

/// Removes null fields: as in Go, null equals absent. Lists and maps contain none.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
