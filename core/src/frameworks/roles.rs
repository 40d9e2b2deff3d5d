//! Pod sets of a job: where the row says that its templates are, and how many pods each has.

use super::JobError;
use super::child_size::template_requests;
use super::count::CountFields;
use super::pod_set_sources::{RoleFields, RoleName, RoleReader};
use super::read::{self, malformed};
use super::row::{Count, Framework, Pointer, Rank};
use super::template::TemplateInfo;
use super::topology::topology_request;
use super::view::MissingTemplate;
use super::workload::clean_template;
use crate::resources::Requests;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod set as the job describes it.
pub(super) struct PodRole<'a> {
    /// Name of the pod set.
    pub(super) name: String,
    /// Number of pods.
    pub(super) count: i32,
    /// Minimum number of pods for partial admission.
    pub(super) min_count: Option<i32>,
    /// Pointer to the template in the object.
    pub(super) pointer: String,
    /// The template.
    template: Option<Cow<'a, Value>>,
    /// The role, if it describes its pods by other fields than those of a template.
    described: Option<&'a Value>,
    /// Whether its pods have an index each.
    indexed: bool,
    /// Number of sub-groups, if the kind has them.
    pub(super) sub_groups: Option<i32>,
}

/// Reads the pod sets of a job, in order.
pub(super) fn read_roles<'a>(row: &Framework, job: &'a Value) -> Result<Vec<PodRole<'a>>, JobError> {
    if !row.reads_pod_sets() {
        return Err(malformed("/kind", format!("{} is not supported", row.gvk.kind)));
    }
    let mut reader = StoredRoles { row, job, roles: Vec::new() };
    row.pod_sets.iter().try_for_each(|source| source.walk(&mut reader))?;
    Ok(reader.roles)
}

/// Reads the roles of a stored job. A place is a pointer to a role.
struct StoredRoles<'a, 'b> {
    row: &'b Framework,
    job: &'a Value,
    roles: Vec<PodRole<'a>>,
}

impl RoleReader for StoredRoles<'_, '_> {
    type Place = String;
    type Error = JobError;

    fn object(&mut self) -> String {
        String::new()
    }

    fn has(&mut self, field: Pointer) -> bool {
        self.job.pointer(field).is_some_and(|value| !value.is_null())
    }

    fn items(&mut self, list: Pointer) -> Result<Vec<String>, JobError> {
        let items = read::list(self.job, list)?.iter().enumerate();
        Ok(items.map(|(index, _)| format!("{list}/{index}")).collect())
    }

    fn entry(&mut self, map: Pointer, key: &'static str) -> Option<String> {
        let place = format!("{map}/{key}");
        self.job.pointer(&place).is_some_and(|role| !role.is_null()).then_some(place)
    }

    fn others(&mut self, map: Pointer, known: &[&str]) -> Vec<(String, String)> {
        let entries = self.job.pointer(map).and_then(Value::as_object).into_iter().flatten();
        let others = entries.filter(|(key, role)| !known.contains(&key.as_str()) && !role.is_null());
        let place = |key: &String| format!("{map}/{}", key.replace('~', "~0").replace('/', "~1"));
        let sorted: BTreeMap<String, String> = others.map(|(key, _)| (key.clone(), place(key))).collect();
        sorted.into_iter().collect()
    }

    fn role(&mut self, place: String, fields: RoleFields<'_>) -> Result<(), JobError> {
        let (row, job) = (self.row, self.job);
        let name = match fields.name {
            RoleName::Fixed(name) => name,
            RoleName::Field(field) => {
                let at = format!("{place}{field}");
                read::string(job, &at)?.ok_or_else(|| malformed(&at, "is required"))?
            }
        };
        let count = read_count(job, &place, fields.count)?;
        let sub_groups = row.pods.rank.sub_groups.map(|groups| {
            Ok::<_, JobError>(read::count(job, &format!("{place}{}", groups.count))?.unwrap_or(1))
        });
        let pointer = format!("{place}{}", fields.template);
        let stored = job.pointer(&pointer);
        let described = stored.filter(|_| row.fields.roles.described().is_some());
        let made = described.map(|role| row.hooks.pod_template(job, role, name)).transpose()?;
        self.roles.push(PodRole {
            name: name.to_lowercase(),
            count,
            min_count: row.hooks.min_count(job, count)?,
            template: made.map(Cow::Owned).or_else(|| stored.map(Cow::Borrowed)),
            described,
            pointer,
            indexed: fields.indexed,
            sub_groups: sub_groups.transpose()?,
        });
        Ok(())
    }
}

/// A role of a stored job: its place in the object.
struct StoredRole<'a> {
    job: &'a Value,
    place: &'a str,
}

impl CountFields for StoredRole<'_> {
    type Error = JobError;

    fn count(&mut self, field: Pointer) -> Result<Option<i64>, JobError> {
        Ok(read::count(self.job, &format!("{}{field}", self.place))?.map(i64::from))
    }

    fn number(&mut self, field: Pointer) -> Result<Option<i64>, JobError> {
        Ok(read::int(self.job, &format!("{}{field}", self.place))?.map(i64::from))
    }

    fn text(&mut self, field: Pointer) -> Result<Option<i64>, JobError> {
        Ok(read::count_text(self.job, &format!("{}{field}", self.place))?.map(i64::from))
    }

    fn boolean(&mut self, field: Pointer) -> Result<Option<bool>, JobError> {
        read::boolean(self.job, &format!("{}{field}", self.place))
    }
}

/// Returns the number of pods of the role at a place.
pub(super) fn read_count(job: &Value, place: &str, rule: &Count) -> Result<i32, JobError> {
    let count = rule.read(&mut StoredRole { job, place })?;
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

impl PodRole<'_> {
    /// Returns the entry for `spec.podSets` of the Workload.
    pub(super) fn pod_set(&self, row: &Framework) -> Result<Value, JobError> {
        let raw = self.template.as_deref().filter(|template| template.is_object());
        let raw = raw.ok_or_else(|| malformed(&self.pointer, "is required"))?;
        let annotations = read::string_map(raw, "/metadata/annotations");
        let annotations = annotations.map_err(|error| read::below(&self.pointer, error))?;
        let mut template = clean_template(raw);
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.retain(|key, _| !row.fields.server_labels.contains(&key.as_str()));
        }
        let mut set = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            ("template".to_owned(), template),
            ("count".to_owned(), json!(self.count)),
        ]);
        if let Some(min) = self.min_count {
            set.insert("minCount".to_owned(), json!(min));
        }
        let rank = if self.indexed { row.pods.rank } else { Rank { index_label: None, sub_groups: None } };
        if let Some(request) = topology_request(&annotations, &rank, self.sub_groups, &self.annotations(row))?
        {
            set.insert("topologyRequest".to_owned(), request);
        }
        Ok(Value::Object(set))
    }

    /// Returns what one pod requests; `None` if the template cannot be read.
    pub(super) fn requests(&self) -> Option<Arc<Requests>> {
        self.template.as_deref()?.get("spec").and_then(template_requests).map(Arc::new)
    }

    /// Returns where the job has the annotations of the pods, as a pointer.
    fn annotations(&self, row: &Framework) -> String {
        let own = row.fields.roles.described().map(|role| role.injected.annotations);
        format!("{}{}", self.pointer, own.unwrap_or("/metadata/annotations"))
    }

    /// Reads the part of the template to which admission adds.
    pub(super) fn template_info(&self, row: &Framework) -> Result<TemplateInfo, JobError> {
        let read = TemplateInfo::read(self.template.as_deref());
        Ok(without_server_labels(row, read.map_err(|error| read::below(&self.pointer, error))?))
    }

    /// Returns whether the template has metadata, to which a JSON patch can add.
    pub(super) fn has_metadata(&self) -> bool {
        self.template.as_ref().and_then(|template| template.get("metadata")).is_some_and(Value::is_object)
    }

    /// Reads what a start adds to, if that is no template.
    pub(super) fn described(&self, row: &Framework) -> Result<Option<TemplateInfo>, JobError> {
        let injected = row.fields.roles.injected();
        let read = self.described.map(|role| TemplateInfo::read_fields(Some(role), &injected)).transpose();
        read.map_err(|error| read::below(&self.pointer, error))
    }

    /// Returns the template below a role that describes its pods itself, if it is missing. It names the container that is
    /// completed by what the role says.
    pub(super) fn missing(&self, row: &Framework) -> Option<MissingTemplate> {
        let place = row.fields.roles.described()?.template;
        if self.described?.pointer(place).is_some_and(|template| !template.is_null()) {
            return None;
        }
        let name = self.template.as_ref()?.pointer("/spec/containers/0/name")?;
        let template = json!({"spec": {"containers": [{"name": name}]}});
        Some(MissingTemplate { pointer: format!("{}{place}", self.pointer), template })
    }
}

/// Removes the labels that the API server adds to templates of the kind.
pub(super) fn without_server_labels(row: &Framework, mut template: TemplateInfo) -> TemplateInfo {
    template.labels.retain(|key, _| !row.fields.server_labels.contains(&key.as_str()));
    template
}
