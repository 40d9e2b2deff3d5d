//! The header of a dump: when the state of a cluster was read, and with which configuration its manager runs.
//!
//! Invariant: the objects of a file with a header are stored as they were in the cluster, so that a simulation of the
//! file and one of the cluster at that time have the same outcome.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Identity of the document. It is no kind of an API server, so that a dump cannot be applied to a cluster by mistake.
pub(super) const API_VERSION: &str = "sluice.dev/v1";
pub(super) const KIND: &str = "Dump";

/// The header of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dump {
    api_version: String,
    kind: String,
    /// When the objects were read: the start of a simulation.
    pub time: Timestamp,
    /// Version of the program that wrote the dump.
    pub version: String,
    /// The manager's configuration; absent if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Value>,
    /// What the dump lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedResource>,
}

/// A resource that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedResource {
    /// Its plural name.
    pub resource: String,
    /// The API server's message.
    pub reason: String,
}

impl Dump {
    /// Creates a header.
    pub fn new(
        time: Timestamp,
        version: &str,
        configuration: Option<Value>,
        skipped: Vec<SkippedResource>,
    ) -> Self {
        let (api_version, kind) = (API_VERSION.to_owned(), KIND.to_owned());
        Self { api_version, kind, time, version: version.to_owned(), configuration, skipped }
    }

    /// Returns the header or an object of a dump as a YAML document.
    ///
    /// # Errors
    /// The value cannot be written as YAML.
    pub fn document(value: &impl Serialize) -> Result<String, String> {
        let text = serde_saphyr::to_string(value).map_err(|error| error.to_string())?;
        Ok(format!("---\n{text}"))
    }

    /// Reads the header from its document.
    pub(super) fn from_document(document: Value) -> Result<Self, String> {
        serde_json::from_value(document).map_err(|error| error.to_string())
    }
}
