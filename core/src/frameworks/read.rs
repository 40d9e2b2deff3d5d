//! Typed access to fields of raw objects: null equals absent; a wrong type is an error that names the field.

use super::JobError;
use super::pod_identity::PodIdentity;
use super::role_shape::{IN_TEMPLATE, InjectedFields};
use super::spark_texts::integer;
use super::template::TemplateInfo;
use super::view::{ChildMarks, JobOptions, JobStatus, JobView, OwnerRef, RelatedView};
use crate::api::decoding::decode;
use crate::api::time::parse_time;
use crate::api::{ObjectKey, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Creates an error for a JSON pointer, which is converted to a field path.
pub(super) fn malformed(pointer: &str, problem: impl Into<String>) -> JobError {
    JobError::Malformed { path: path_of(pointer), problem: problem.into() }
}

/// Returns a pointer as users write a path.
pub fn path_of(pointer: &str) -> String {
    let mut path = String::new();
    for name in pointer.trim_start_matches('/').split('/') {
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            path.extend(["[", name, "]"]);
        } else {
            path.extend([if path.is_empty() { "" } else { "." }, name]);
        }
    }
    path
}

/// Returns an error about the part of an object that this pointer leads to as one about the object.
pub(super) fn below(pointer: &str, error: JobError) -> JobError {
    match error {
        JobError::Malformed { path, problem } => {
            let dot = if path.starts_with('[') { "" } else { "." };
            JobError::Malformed { path: format!("{}{dot}{path}", path_of(pointer)), problem }
        }
        other => other,
    }
}

fn present<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    value.pointer(pointer).filter(|value| !value.is_null())
}

fn read_as<'a, T>(
    value: &'a Value,
    pointer: &str,
    what: &str,
    as_type: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, JobError> {
    let Some(field) = present(value, pointer) else {
        return Ok(None);
    };
    as_type(field).map(Some).ok_or_else(|| malformed(pointer, format!("must be {what}")))
}

/// Reads a string.
pub(super) fn string<'a>(value: &'a Value, pointer: &str) -> Result<Option<&'a str>, JobError> {
    read_as(value, pointer, "a string", Value::as_str)
}

/// Reads a 32-bit integer.
pub(super) fn int(value: &Value, pointer: &str) -> Result<Option<i32>, JobError> {
    read_as(value, pointer, "an int32", |value| i32::try_from(value.as_i64()?).ok())
}

/// Reads a 64-bit integer.
pub(super) fn long(value: &Value, pointer: &str) -> Result<Option<i64>, JobError> {
    read_as(value, pointer, "an int64", Value::as_i64)
}

/// Reads a 32-bit integer that is not negative.
pub(super) fn count(value: &Value, pointer: &str) -> Result<Option<i32>, JobError> {
    read_as(value, pointer, "an int32 of at least 0", |value| {
        i32::try_from(value.as_i64()?).ok().filter(|number| *number >= 0)
    })
}

/// Reads a text with a 32-bit integer that is not negative, as the JVM reads it: without space around it.
pub(super) fn count_text(value: &Value, pointer: &str) -> Result<Option<i32>, JobError> {
    read_as(value, pointer, "an int32 of at least 0, as a text", |value| value.as_str().and_then(integer))
}

/// Reads a boolean.
pub(super) fn boolean(value: &Value, pointer: &str) -> Result<Option<bool>, JobError> {
    read_as(value, pointer, "a boolean", Value::as_bool)
}

/// Reads a list; empty when absent.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> Result<&'a [Value], JobError> {
    Ok(read_as(value, pointer, "a list", |value| value.as_array().map(Vec::as_slice))?.unwrap_or_default())
}

/// Reads the entries of a list or the values of a map; empty when absent.
pub(super) fn entries<'a>(value: &'a Value, pointer: &str) -> Result<Vec<&'a Value>, JobError> {
    let entries = |value: &'a Value| match value {
        Value::Array(items) => Some(items.iter().collect()),
        Value::Object(fields) => Some(fields.values().filter(|value| !value.is_null()).collect()),
        _ => None,
    };
    Ok(read_as(value, pointer, "a list or a map", entries)?.unwrap_or_default())
}

/// Reads a map of strings; empty when absent.
pub(super) fn string_map(value: &Value, pointer: &str) -> Result<BTreeMap<String, String>, JobError> {
    let Some(fields) = read_as(value, pointer, "a map of strings", Value::as_object)? else {
        return Ok(BTreeMap::new());
    };
    let pair = |(key, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((key.clone(), text.to_owned())),
        None => Err(JobError::Malformed {
            path: format!("{}[{key}]", path_of(pointer)),
            problem: "must be a string".to_owned(),
        }),
    };
    fields.iter().map(pair).collect()
}

impl TemplateInfo {
    /// Reads a raw pod template.
    pub fn read(template: Option<&Value>) -> Result<Self, JobError> {
        Self::read_fields(template, &IN_TEMPLATE)
    }

    /// Reads what describes a pod.
    pub(super) fn read_fields(role: Option<&Value>, fields: &InjectedFields) -> Result<Self, JobError> {
        let Some(role) = role else {
            return Ok(Self::default());
        };
        let tolerations = list(role, fields.tolerations)?.iter().enumerate().map(|(index, raw)| {
            decode::<Toleration>(raw)
                .map_err(|error| malformed(&format!("{}/{index}", fields.tolerations), error.to_string()))
        });
        let gates = list(role, fields.scheduling_gates)?.iter().enumerate().map(|(index, gate)| {
            let place = format!("{}/{index}", fields.scheduling_gates);
            let name = string(gate, "/name").map_err(|error| below(&place, error))?;
            name.map(str::to_owned).ok_or_else(|| malformed(&place, "needs a name"))
        });
        Ok(Self {
            labels: string_map(role, fields.labels)?,
            annotations: string_map(role, fields.annotations)?,
            node_selector: string_map(role, fields.node_selector)?,
            tolerations: tolerations.collect::<Result<_, _>>()?,
            scheduling_gates: gates.collect::<Result<_, _>>()?,
        })
    }
}

/// Reads the part of a view that all kinds have in common; other fields are left empty.
pub(super) fn common_view(job: &Value) -> Result<JobView, JobError> {
    let required = |pointer: &str| string(job, pointer)?.ok_or_else(|| malformed(pointer, "is required"));
    let labels = string_map(job, "/metadata/labels")?;
    let annotations = string_map(job, "/metadata/annotations")?;
    let label = |key: &str| labels.get(key).filter(|value| !value.is_empty());
    let annotation = |key: &str| annotations.get(key).filter(|value| !value.is_empty());
    let arc = |value: &String| Arc::<str>::from(value.as_str());
    let seconds = label(names::MAX_EXEC_TIME_LABEL).and_then(|text| text.parse::<i32>().ok());
    let passed = annotations.iter().filter(|(key, _)| key.starts_with(names::PROVISIONING_REQUEST_PREFIX));
    Ok(JobView {
        key: ObjectKey::new(
            string(job, "/metadata/namespace")?.unwrap_or_default(),
            required("/metadata/name")?,
        ),
        uid: Arc::from(required("/metadata/uid")?),
        resource_version: string(job, "/metadata/resourceVersion")?.unwrap_or_default().to_owned(),
        generation: long(job, "/metadata/generation")?.unwrap_or(0),
        created: time(job, "/metadata/creationTimestamp")?.unwrap_or(Timestamp::UNIX_EPOCH),
        deleting: present(job, "/metadata/deletionTimestamp").is_some(),
        queue_name: label(names::QUEUE_NAME_LABEL).map(arc),
        options: JobOptions {
            priority_class: label(names::PRIORITY_CLASS_LABEL).map(arc),
            prebuilt_workload: annotation(names::PREBUILT_WORKLOAD)
                .or_else(|| label(names::PREBUILT_WORKLOAD))
                .map(arc),
            max_exec_seconds: seconds.filter(|seconds| *seconds > 0),
            gated_by: annotation(names::ADMISSION_GATED_BY_ANNOTATION).cloned(),
            stopping: annotation(names::STOPPING_ANNOTATION).is_some_and(|value| value == "true"),
            child: ChildMarks {
                waits_for_room: annotation(names::WAITS_FOR_ROOM_ANNOTATION).is_some(),
                stopped_below: annotation(names::STOPPED_BELOW_ANNOTATION).is_some(),
                is_copy: annotation(names::RAY_CLUSTER_HASH_ANNOTATION).is_some(),
            },
            annotations_to_copy: passed.map(|(key, value)| (key.clone(), value.clone())).collect(),
            completions: None,
            completions_follow_parallelism: false,
            slice: None,
            lacks_elastic_gate: false,
            patches: None,
            shared_node_selector: None,
            pod_identity: PodIdentity::Unknown,
            skipped: false,
        },
        controller: controller(job)?,
        pod_priority_class: None,
        managed_by: None,
        suspended: false,
        pod_sets: Vec::new(),
        related: RelatedView::default(),
        status: JobStatus::default(),
    })
}

/// Returns whether a job asks to be resized while it runs.
pub(super) fn asks_for_elasticity(job: &Value) -> Result<bool, JobError> {
    let annotations = string_map(job, "/metadata/annotations")?;
    Ok(annotations.get(names::ELASTIC_JOB_ANNOTATION).is_some_and(|text| text == "true"))
}

/// Reads a time.
pub(super) fn time(value: &Value, pointer: &str) -> Result<Option<Timestamp>, JobError> {
    let Some(text) = string(value, pointer)? else {
        return Ok(None);
    };
    parse_time(text).map(Some).ok_or_else(|| malformed(pointer, "must be an RFC 3339 time"))
}

/// Returns the reference of an object to its controller. Malformed owners count as none.
pub(super) fn controller_reference(object: &Value) -> Option<&Value> {
    let owners = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

impl OwnerRef {
    /// Reads an owner reference. Malformed fields equal absent ones.
    pub fn read(owner: &Value) -> Self {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind"), name: text("name"), uid: text("uid") }
    }

    /// Reads the controller of an object, as `read` does.
    pub fn controller_of(object: &Value) -> Option<Self> {
        controller_reference(object).map(Self::read)
    }
}

fn controller(job: &Value) -> Result<Option<OwnerRef>, JobError> {
    for owner in list(job, "/metadata/ownerReferences")? {
        if boolean(owner, "/controller")? != Some(true) {
            continue;
        }
        let field = |pointer: &str| Ok::<_, JobError>(string(owner, pointer)?.unwrap_or_default().to_owned());
        return Ok(Some(OwnerRef {
            api_version: field("/apiVersion")?,
            kind: field("/kind")?,
            name: field("/name")?,
            uid: field("/uid")?,
        }));
    }
    Ok(None)
}

/// Returns the status of a condition.
pub(super) fn condition_status<'a>(job: &'a Value, type_: &str) -> Result<Option<&'a str>, JobError> {
    for condition in list(job, "/status/conditions")? {
        if string(condition, "/type")? == Some(type_) {
            return string(condition, "/status");
        }
    }
    Ok(None)
}

/// Returns the message of a condition if its status is True.
pub(super) fn true_condition<'a>(job: &'a Value, type_: &str) -> Result<Option<&'a str>, JobError> {
    for condition in list(job, "/status/conditions")? {
        if string(condition, "/type")? == Some(type_) && string(condition, "/status")? == Some("True") {
            return Ok(Some(string(condition, "/message")?.unwrap_or_default()));
        }
    }
    Ok(None)
}
