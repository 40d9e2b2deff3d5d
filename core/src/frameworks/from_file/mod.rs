//! A kind of jobs that a file describes: group, version and kind, where its fields are and what its status means.
//!
//! Invariants: a file becomes a row like those of the built-in kinds, so that no other code knows where a row came from; a file
//! that is wrong anywhere is refused as a whole, with each fault and its field.

mod reader;
mod schema;

use super::hooks::NoHooks;
use super::role_shape::RoleShape;
use super::row::{
    CreatedKinds, Enabled, FieldPointers, Framework, PodLabels, Rank, Ready, Reclaimable, Role, StatusFields,
    SubGroups,
};
use super::row_parts::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NO_RANK};
use crate::api::yaml;
use reader::{Reader, Root, forever};
use schema::{API_VERSION, FrameworkFile, KIND};
use serde_json::Value;
use std::fmt;

/// All reasons why a framework file is refused, each with its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkFileError {
    reasons: Vec<String>,
}

impl fmt::Display for FrameworkFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))
    }
}

impl std::error::Error for FrameworkFileError {}

/// Reads a framework file in YAML or JSON. What the row refers to lives as long as the process, as with the built-in ones.
///
/// # Errors
/// The text is not YAML, has an unknown field, or a field has a wrong value.
pub fn framework_from_file(text: &str) -> Result<Framework, FrameworkFileError> {
    let file = decode(text).map_err(|reason| FrameworkFileError { reasons: vec![reason] })?;
    let mut reader = Reader::default();
    let row = row(file, &mut reader);
    let reasons = reader.into_faults();
    if reasons.is_empty() { Ok(row) } else { Err(FrameworkFileError { reasons }) }
}

fn decode(text: &str) -> Result<FrameworkFile, String> {
    let mut document = yaml::only_document(text)?;
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = document.get(field).and_then(Value::as_str).unwrap_or_default();
        if found != wanted {
            return Err(format!("{field}: {found:?} is not supported; it must be {wanted:?}"));
        }
    }
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    }
    serde_path_to_error::deserialize(document).map_err(|error| match error.path().to_string() {
        path if path == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

fn row(file: FrameworkFile, reader: &mut Reader) -> Framework {
    let gvk = reader.resource(file.resource);
    let suspend = reader.pointer("suspend", file.suspend, Root::Spec);
    let managed_by = file.managed_by.map(|managed_by| reader.managed_by(managed_by));
    let priority_class =
        file.priority_class_name.map(|field| reader.pointer("priorityClassName", field, Root::Spec));
    let selector = file.pod_labels.map(|labels| reader.pod_labels(labels));
    let rank = file.rank.map_or(NO_RANK, |rank| Rank {
        index_label: Some(reader.label("rank.indexLabel", rank.index_label)),
        sub_groups: rank.groups.map(|groups| SubGroups {
            label: reader.label("rank.groups.label", groups.label),
            count: reader.pointer("rank.groups.count", groups.count, Root::Role),
        }),
    });
    Framework {
        gvk,
        name: forever(format!("{}/{}", gvk.group, gvk.kind.to_lowercase())),
        short_names: &[],
        enabled: Enabled::ByFile,
        role: Role::Suspended,
        fields: FieldPointers {
            suspend: Some(suspend),
            managed_by,
            start_time: None,
            server_labels: &[],
            priority_class,
            roles: RoleShape::Template,
        },
        pod_sets: reader.pod_sets(file.pod_sets),
        related: &[],
        pods: PodLabels { selector, rank },
        status: StatusFields {
            finished: reader.finished(file.finished),
            active: reader.active(file.active),
            ready: Ready::When(reader.test("ready", file.ready)),
            reclaimable: Reclaimable::None,
        },
        creates: CreatedKinds::Only(reader.created(file.creates)),
        webhooks: JOB_WEBHOOKS,
        rbac: JOB_RBAC,
        flags: JOB_FLAGS,
        hooks: &NoHooks,
    }
}

#[cfg(test)]
mod tests;
