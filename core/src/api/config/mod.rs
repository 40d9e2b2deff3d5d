//! `Configuration` of group `config.kueue.x-k8s.io`: the configuration file of the manager.
//!
//! Files of v1beta1 are converted first. A file written for Kueue either has the same meaning or is refused. An unknown field is an error with its path. A
//! known field whose feature is not supported is an error if ignoring it would change scheduling, otherwise a warning.
//! All errors are reported at once.

mod absent;
mod duration;
mod gate_table;
mod gates;
mod in_force;
mod listen;
mod near_gates;
mod page;
mod quantity;
mod schema_check;
mod setting_table;
mod tls;
mod types;
mod unsupported;
mod v1beta1;
mod validate;

pub use duration::Duration;
pub use gate_table::page as feature_gates_page;
pub use gates::FeatureGates;
pub use in_force::{InForce, changed_settings, gates_in_force, settings_in_force};
pub use listen::{ListenAddress, taken_twice};
pub use page::page as configure_page;
pub use quantity::Quantity;
pub use types::*;

use crate::api::validation::FieldError;
use serde_json::Value;
use std::fmt;

/// The API version of configuration files. Those of v1beta1 are read with a warning.
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
    /// Names in `featureGates` that are no gates. Each has a warning.
    pub unknown_gates: Vec<String>,
}

/// All reasons why a configuration is refused, each with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    reasons: Vec<String>,
    warnings: Vec<String>,
}

impl ConfigError {
    /// Returns the reasons.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Returns the warnings that were found beside them.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns an error about a configuration for which unknown feature gates are none to live with.
    #[must_use]
    pub fn of_unknown_gates(loaded: LoadedConfiguration) -> Self {
        let is_unknown = |warning: &String| {
            loaded.unknown_gates.iter().any(|gate| warning.starts_with(&format!("featureGates.{gate}: ")))
        };
        let (reasons, warnings) = loaded.warnings.into_iter().partition(is_unknown);
        Self { reasons, warnings }
    }

    const fn new(reasons: Vec<String>) -> Self {
        Self { reasons, warnings: Vec::new() }
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
    unknown_gates: Vec<String>,
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
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(ConfigError { reasons: self.errors.clone(), warnings: self.warnings.clone() })
    }
}

/// Reads and checks a configuration file.
pub fn parse(yaml: &str, frameworks: &[KnownFramework]) -> Result<LoadedConfiguration, ConfigError> {
    load(read(yaml)?, frameworks)
}

/// Returns the document of a manager without a configuration file.
pub fn defaults() -> Value {
    serde_json::json!({ "apiVersion": API_VERSION, "kind": "Configuration" })
}

/// Reads a configuration file as a JSON document without checks. A file without content is refused: what was meant is lost, and the
/// defaults would run without frameworks, charges and fair sharing that the manager had before.
pub fn read(yaml: &str) -> Result<Value, ConfigError> {
    super::yaml::only_document(yaml).map_err(|reason| ConfigError::new(vec![reason]))
}

/// Checks a document and decodes it as a configuration.
pub fn load(mut document: Value, frameworks: &[KnownFramework]) -> Result<LoadedConfiguration, ConfigError> {
    let refuse = |text: String| ConfigError::new(vec![text]);
    let is_v1beta1 = check_version(&document)? == v1beta1::API_VERSION;
    let mut problems = Problems::default();
    let earlier = is_v1beta1.then(|| v1beta1::split(&mut document, &mut problems));
    absent::drop_empty_texts(&mut document);
    schema_check::check(&document, &mut problems);
    problems.fail_if_errors()?;
    let waits = earlier.is_none_or(|earlier| v1beta1::convert(&mut document, &earlier, &mut problems));
    absent::drop_absent(&mut document);
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
    configuration.without_pods_ready = !waits;
    configuration.gates = gates::check(&configuration.feature_gates, &mut problems);
    validate::check(&document, &configuration, frameworks, &mut problems);
    unsupported::check(&document, &configuration, frameworks, &mut problems);
    problems.fail_if_errors()?;
    Ok(LoadedConfiguration {
        configuration,
        warnings: problems.warnings,
        unknown_gates: problems.unknown_gates,
    })
}

/// Returns the API version of a document.
fn check_version(document: &Value) -> Result<&str, ConfigError> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let reason = if kind == "ConfigMap" {
        "kind: this is a ConfigMap; the configuration is the text of its key controller_manager_config.yaml"
            .to_owned()
    } else if ![API_VERSION, v1beta1::API_VERSION].contains(&version) {
        format!("apiVersion: {version:?} is not supported; write the file as {API_VERSION}")
    } else if kind != "Configuration" {
        format!("kind: {kind:?} is not supported; it must be \"Configuration\"")
    } else {
        return Ok(version);
    };
    Err(ConfigError::new(vec![reason]))
}

#[cfg(test)]
mod tests;
