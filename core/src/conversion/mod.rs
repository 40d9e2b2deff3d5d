//! Conversion of objects between v1beta1 and v1beta2, JSON to JSON, and the ConversionReviews that ask for it.
//!
//! Invariants: a conversion depends on the object alone, on no list, lease or setting, because no object of a kind can be read
//! while one of its kind cannot be converted; a field that is in neither version stays where it is; what v1beta2 has and
//! v1beta1 lacks is carried along in the object ([`carried`]) as far as Kueue's own conversion, which is recorded, lets it;
//! parts of an unexpected type are left alone, and no input causes a panic. The converted object differs from the given one in
//! labels, annotations, spec and status only, as the API server demands.

mod carried;
mod queues;
mod review;
mod topology;
mod workload;

pub use review::{MAX_LIGHT_VALUES, MAX_VALUES, answer};

use crate::api::{GROUP, v1beta1, v1beta2};
use serde_json::{Map, Value, json};
use std::fmt;

/// Fields of an object by name.
type Fields = Map<String, Value>;

/// A version of the API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version that ends.
    V1beta1,
    /// The version that is stored.
    V1beta2,
}

impl Version {
    /// Returns the version of an `apiVersion`, or `None` if it is neither.
    pub fn of(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            Some((GROUP, v1beta1::VERSION)) => Some(Self::V1beta1),
            Some((GROUP, v1beta2::VERSION)) => Some(Self::V1beta2),
            _ => None,
        }
    }

    fn api_version(self) -> String {
        let version = match self {
            Self::V1beta1 => v1beta1::VERSION,
            Self::V1beta2 => v1beta2::VERSION,
        };
        format!("{GROUP}/{version}")
    }
}

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionError {
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl ConversionError {
    fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into() }
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)
    }
}

/// Converts an object of any kind of the API group.
///
/// # Errors
/// The object is of another group or version, or a part of it has no form in the other version.
pub fn convert(mut object: Value, to: Version) -> Result<Value, ConversionError> {
    let Some(fields) = object.as_object_mut() else {
        return Err(ConversionError::new("", "not an object"));
    };
    let api_version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let Some(from) = Version::of(api_version) else {
        return Err(ConversionError::new("apiVersion", format!("{api_version:?} is not converted")));
    };
    if from == to {
        return Ok(object);
    }
    match fields.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "ClusterQueue" => queues::cluster_queue(fields, to),
        "Cohort" => queues::cohort(fields, to),
        "LocalQueue" => queues::local_queue(fields, to),
        "MultiKueueCluster" => queues::multikueue_cluster(fields, to),
        "Workload" => workload::workload(fields, to)?,
        // The API server removes the fields that the other version does not have.
        "AdmissionCheck"
        | "MultiKueueConfig"
        | "ProvisioningRequestConfig"
        | "ResourceFlavor"
        | "Topology"
        | "WorkloadPriorityClass" => {}
        kind => return Err(ConversionError::new("kind", format!("{kind:?} is not converted"))),
    }
    set(fields, "apiVersion", to.api_version());
    Ok(object)
}

/// Returns an object below a field, if there is one.
fn object<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

/// Returns the objects of a list below a field.
fn items<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> + use<'a> {
    let items = fields.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Removes a field, and keeps the order of the others.
fn take(fields: &mut Fields, name: &str) -> Option<Value> {
    fields.shift_remove(name).filter(|value| !value.is_null())
}

fn set(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    fields.insert(name.to_owned(), value.into());
}

/// Moves a value from one field to another. An empty text counts as absent, as in Kueue.
fn rename(fields: &mut Fields, from: &str, to: &str) {
    if let Some(value) = take(fields, from).filter(|value| value.as_str() != Some("")) {
        set(fields, to, value);
    }
}

/// Moves a value from the name that it has in v1beta1 to that in v1beta2, or back.
fn rename_to(version: Version, fields: &mut Fields, v1beta1: &str, v1beta2: &str) {
    match version {
        Version::V1beta1 => rename(fields, v1beta2, v1beta1),
        Version::V1beta2 => rename(fields, v1beta1, v1beta2),
    }
}

/// Writes quantities as text, in whichever form they are given, as Kueue does. Other fields stay.
fn quantities_as_text(fields: &mut Fields, is_quantity: impl Fn(&str) -> bool) {
    for (_, value) in fields.iter_mut().filter(|(name, value)| value.is_number() && is_quantity(name)) {
        *value = value.to_string().into();
    }
}

/// Returns the status; creates it if there is none.
fn status(fields: &mut Fields) -> Option<&mut Fields> {
    if fields.get("status").is_none_or(Value::is_null) {
        set(fields, "status", json!({}));
    }
    object(fields, "status")
}

#[cfg(test)]
mod tests;
