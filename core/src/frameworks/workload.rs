//! The Workload of a job: its name and the object to create.

use super::priority::Priority;
use super::read;
use super::template::TemplateInfo;
use super::view::{JobView, PodSetInfo};
use super::{Framework, JobError};
use crate::api::{self, ObjectKey, names};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Maximum number of pod sets of a Workload.
pub(super) const MAX_POD_SETS: usize = 18;
/// Maximum length of the name of a pod set.
pub(super) const MAX_POD_SET_NAME: usize = 63;
/// Maximum length of a Workload name.
const MAX_NAME: usize = 253;
/// Number of hex digits at the end of a Workload name.
const HASH_DIGITS: usize = 5;

/// Parameters of a Workload other than its job.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadRequest<'a> {
    /// Name of the Workload.
    pub name: &'a str,
    /// Its LocalQueue.
    pub queue_name: Option<&'a str>,
    /// Keys of labels that are copied from the job to the Workload.
    pub label_keys_to_copy: &'a [String],
    /// Its priority.
    pub priority: &'a Priority,
    /// Set for the Workload of an elastic job.
    pub slice: Option<SliceMarks<'a>>,
}

/// What marks a Workload as a slice of an elastic job.
#[derive(Clone, Copy, Debug)]
pub struct SliceMarks<'a> {
    /// Name of the first of the slices that take over from one another.
    pub chain: &'a str,
    /// The slice from which this one takes over.
    pub replaces: Option<&'a ObjectKey>,
}

/// Returns the name of the Workload of a job: `<lower kind>-<name>-<hash>`; the part before the hash is truncated if it
/// is too long. `extra` distinguishes several Workloads of one job.
pub fn workload_name(group: &str, kind: &str, name: &str, uid: &str, extra: Option<&str>) -> String {
    let mut identity = [kind, group, name, uid].join("\n");
    if let Some(extra) = extra {
        identity.push('\n');
        identity.push_str(extra);
    }
    let mut hash = String::new();
    for byte in Sha1::digest(identity.as_bytes()).iter().take(HASH_DIGITS.div_ceil(2)) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash.truncate(HASH_DIGITS);
    let mut prefix = format!("{}-{name}", kind.to_lowercase());
    let max_prefix = MAX_NAME - HASH_DIGITS - 1;
    while prefix.len() > max_prefix {
        prefix.pop();
    }
    format!("{prefix}-{hash}")
}

/// Returns the key of the Workload that is created for a job, as it is now.
pub fn own_workload_key(kind: &Framework, job: &JobView) -> ObjectKey {
    let name =
        workload_name(kind.gvk.group, kind.gvk.kind, &job.key.name, &job.uid, job.options.slice.as_deref());
    ObjectKey { namespace: job.key.namespace.clone(), name: Arc::from(name) }
}

/// Returns the key of the Workload that is created for a job while the one with its own key still exists; of the slices of an
/// elastic job, which have a new name at each size, the one that follows that with this UID.
pub fn next_workload_key(kind: &Framework, job: &JobView, former: &str) -> ObjectKey {
    let extra = job.options.slice.as_ref().map_or("next", |_| former);
    let name = workload_name(kind.gvk.group, kind.gvk.kind, &job.key.name, &job.uid, Some(extra));
    ObjectKey { namespace: job.key.namespace.clone(), name: Arc::from(name) }
}

/// Returns the keys that a Workload which was made for a job may have, those of its earlier slices excepted.
pub fn own_workload_keys(kind: &Framework, job: &JobView) -> [ObjectKey; 2] {
    [own_workload_key(kind, job), next_workload_key(kind, job, "")]
}

/// Returns the key of the Workload of a replica.
pub fn replica_workload_key(kind: &Framework, job: &JobView, index: u32) -> ObjectKey {
    let name = format!("{}-{index}", job.key.name);
    let name = workload_name(kind.gvk.group, kind.gvk.kind, &name, &job.uid, None);
    ObjectKey { namespace: job.key.namespace.clone(), name: Arc::from(name) }
}

/// Returns the name of the job of this kind whose Workload may have this name; `None` if no Workload of the kind has. Of a
/// name of the maximum length, which may be truncated, it is the beginning.
pub fn job_name_in_workload_name<'a>(kind: &Framework, workload: &'a str) -> Option<&'a str> {
    let (start, hash) = workload.rsplit_once('-')?;
    let (prefix, name) = start.split_at_checked(kind.gvk.kind.len())?;
    let named = prefix.eq_ignore_ascii_case(kind.gvk.kind) && hash.len() == HASH_DIGITS;
    name.strip_prefix('-').filter(|_| named)
}

/// Returns the name of a Workload without the hash at its end, which is that of all Workloads of jobs of this kind and name, or of
/// replicas with this number; `None` if the name of the job may be truncated.
pub fn workload_name_without_hash(workload: &str) -> Option<&str> {
    let (start, hash) = workload.rsplit_once('-')?;
    (hash.len() == HASH_DIGITS && !is_longest_workload_name(workload)).then_some(start)
}

/// Returns whether the name of a Workload has the maximum length, so that the name of its job in it may be truncated.
pub const fn is_longest_workload_name(workload: &str) -> bool {
    workload.len() == MAX_NAME
}

/// Returns the Workload to create for a job with these pod sets.
pub fn workload_body(
    kind: &Framework,
    job: &Value,
    view: &JobView,
    pod_sets: Vec<Value>,
    request: &WorkloadRequest<'_>,
) -> Result<Value, JobError> {
    let gvk = kind.gvk;
    let owner = json!({
        "apiVersion": gvk.api_version(), "kind": gvk.kind, "name": &*view.key.name, "uid": &*view.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let parts = WorkloadParts {
        labels: labels(job, view, request.label_keys_to_copy)?,
        annotations: annotations(view).into_iter().chain(slice_annotations(request.slice)).collect(),
        owners: vec![owner],
        pod_sets,
    };
    Ok(workload_object(parts, view, request))
}

/// Parts of a Workload that depend on how many objects it is made from.
pub(super) struct WorkloadParts {
    pub(super) labels: Map<String, Value>,
    pub(super) annotations: Map<String, Value>,
    pub(super) owners: Vec<Value>,
    pub(super) pod_sets: Vec<Value>,
}

/// Returns the Workload with these parts. Namespace and execution time are those of the view.
pub(super) fn workload_object(parts: WorkloadParts, view: &JobView, request: &WorkloadRequest<'_>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(request.name));
    metadata.insert("namespace".to_owned(), json!(&*view.key.namespace));
    metadata.insert("labels".to_owned(), Value::Object(parts.labels));
    if !parts.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(parts.annotations));
    }
    metadata.insert("ownerReferences".to_owned(), Value::Array(parts.owners));
    metadata.insert("finalizers".to_owned(), json!([names::RESOURCE_IN_USE_FINALIZER]));

    let mut spec = Map::new();
    if let Some(queue) = request.queue_name {
        spec.insert("queueName".to_owned(), json!(queue));
    }
    spec.insert("podSets".to_owned(), Value::Array(parts.pod_sets));
    spec.insert("priority".to_owned(), json!(request.priority.value));
    if let Some(class) = &request.priority.class {
        let class = json!({ "group": class.group, "kind": class.kind, "name": class.name });
        spec.insert("priorityClassRef".to_owned(), class);
    }
    if let Some(seconds) = view.options.max_exec_seconds {
        spec.insert("maximumExecutionTimeSeconds".to_owned(), json!(seconds));
    }
    spec.insert("active".to_owned(), Value::Bool(true));
    json!({
        "apiVersion": format!("{}/v1beta2", api::GROUP), "kind": "Workload",
        "metadata": metadata, "spec": spec,
    })
}

pub(super) fn labels(job: &Value, view: &JobView, keys: &[String]) -> Result<Map<String, Value>, JobError> {
    let job_labels = read::string_map(job, "/metadata/labels")?;
    let copied = keys.iter().filter_map(|key| Some((key.clone(), json!(job_labels.get(key)?))));
    let mut labels: Map<String, Value> = copied.collect();
    labels.insert(names::JOB_UID_LABEL.to_owned(), json!(&*view.uid));
    Ok(labels)
}

/// Returns the annotations that a Workload takes from its job.
pub(super) fn annotations(view: &JobView) -> Map<String, Value> {
    let copied = view.options.annotations_to_copy.iter().map(|(key, value)| (key.clone(), json!(value)));
    let gated = view
        .options
        .gated_by
        .iter()
        .map(|gates| (names::ADMISSION_GATED_BY_ANNOTATION.to_owned(), json!(gates)));
    copied.chain(gated).collect()
}

fn slice_annotations(slice: Option<SliceMarks<'_>>) -> impl Iterator<Item = (String, Value)> {
    let annotation = |key: &str, value: String| (key.to_owned(), Value::String(value));
    slice.into_iter().flat_map(move |slice| {
        let replaces = slice.replaces.map(|key| (names::SLICE_REPLACEMENT_FOR_ANNOTATION, key.to_string()));
        let marks = [
            Some((names::ELASTIC_JOB_ANNOTATION, "true".to_owned())),
            Some((names::SLICE_NAME_ANNOTATION, slice.chain.to_owned())),
            replaces,
        ];
        marks.into_iter().flatten().map(move |(key, value)| annotation(key, value))
    })
}

/// Returns names, counts and templates of the pod sets of a Workload, which are those of its job before the start.
pub fn pod_set_infos(pod_sets: &[Value]) -> Result<Vec<PodSetInfo>, JobError> {
    let place = |index: usize| format!("/spec/podSets/{index}/template");
    pod_sets.iter().enumerate().map(|(index, set)| pod_set_info(set, &place(index))).collect()
}

/// Returns name, count and template of a pod set. Errors say that the template is at this pointer.
pub(super) fn pod_set_info(set: &Value, template: &str) -> Result<PodSetInfo, JobError> {
    let name = read::string(set, "/name")?.unwrap_or("main");
    let count = read::int(set, "/count")?.unwrap_or(1);
    let info = TemplateInfo::read(set.get("template")).map_err(|error| read::below(template, error))?;
    Ok(PodSetInfo { name: Arc::from(name), count, template: Arc::new(info) })
}

/// Returns a template as the Workload schema accepts it: without nulls and duplicate environment variables.
pub(super) fn clean_template(template: &Value) -> Value {
    let mut template = without_nulls(template);
    dedup_env(&mut template);
    template
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Removes duplicate environment variables, which the Workload schema refuses. The last value wins, at the position of
/// the first, as with Kueue, since later variables may refer to it.
pub(super) fn dedup_env(template: &mut Value) {
    for list in ["/spec/initContainers", "/spec/containers"] {
        let Some(containers) = template.pointer_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
                dedup_variables(env);
            }
        }
    }
}

fn dedup_variables(env: &mut Vec<Value>) {
    let mut positions = BTreeMap::new();
    let mut unique: Vec<Value> = Vec::with_capacity(env.len());
    for variable in env.drain(..) {
        let name = variable.get("name").and_then(Value::as_str).map(str::to_owned);
        let position = name.map(|name| *positions.entry(name).or_insert(unique.len()));
        match position.and_then(|position| unique.get_mut(position)) {
            Some(earlier) => *earlier = variable,
            None => unique.push(variable),
        }
    }
    *env = unique;
}
