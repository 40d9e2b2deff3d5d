//! Jobs whose start writes a list of patches of their pod templates in another place of the job, one for each pod set, by name. The
//! controller of the kind merges them into the templates that it makes.
//!
//! Invariants: a start is one write, of the list and of the field that suspends the job; a stop is two, because the list may not change
//! while there are pods. A stop needs the list alone, so that a job is stopped whether its pod sets are known or not.

use super::JobError;
use super::patch::JobPatch;
use super::read;
use super::role_shape::InjectedFields;
use super::template::{TemplateInfo, template_patch};
use crate::api::names;
use serde_json::{Value, json};
use std::sync::Arc;

/// Where a start writes its patches in a job, and what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct StartPatches {
    /// The list.
    list: String,
    /// What must be added before the list, and where.
    missing: Option<(String, Value)>,
    /// The patches, by the name of the pod set.
    items: Vec<(String, Arc<TemplateInfo>)>,
}

impl StartPatches {
    /// Reads the list at a pointer.
    pub(super) fn read(
        job: &Value,
        list: String,
        missing: Option<(String, Value)>,
        fields: &InjectedFields,
    ) -> Result<Self, JobError> {
        let stored = if missing.is_some() { &[] } else { read::list(job, &list)? };
        let read = |item: &Value| {
            let name = read::string(item, "/name")?.unwrap_or_default().to_lowercase();
            Ok((name, Arc::new(TemplateInfo::read_fields(Some(item), fields)?)))
        };
        let item = |(index, item)| read(item).map_err(|error| read::below(&format!("{list}/{index}"), error));
        let items = stored.iter().enumerate().map(item).collect::<Result<_, JobError>>()?;
        Ok(Self { list, missing, items })
    }

    /// Returns whether a start was not undone yet.
    pub const fn are_written(&self) -> bool {
        !self.items.is_empty()
    }

    /// Returns what was added to the template of a pod set.
    pub fn of(&self, pod_set: &str) -> Option<&Arc<TemplateInfo>> {
        self.items.iter().find(|(name, _)| name == pod_set).map(|(_, added)| added)
    }

    /// Returns the Workload whose admission started the job.
    pub fn started_by(&self) -> Option<&str> {
        let mut annotations = self.items.iter().map(|(_, added)| &added.annotations);
        annotations.find_map(|map| map.get(names::WORKLOAD_ANNOTATION)).map(String::as_str)
    }

    /// Returns the patch that starts a job: for each pod set, by name, what is added to its template.
    pub(super) fn start(
        &self,
        additions: &[(&str, TemplateInfo)],
        fields: &InjectedFields,
        suspend: (&str, Value),
    ) -> JobPatch {
        let item = |(name, added): &(&str, TemplateInfo)| {
            let mut item =
                template_patch(&TemplateInfo::default(), added, fields).unwrap_or_else(|| json!({}));
            if let Some(item) = item.as_object_mut() {
                item.insert("name".to_owned(), json!(name));
            }
            item
        };
        let items: Vec<Value> = additions.iter().map(item).collect();
        let above = self.missing.iter().map(|(pointer, value)| (pointer.as_str(), value.clone()));
        let set = above.chain([(self.list.as_str(), Value::Array(items)), suspend]);
        JobPatch::json(
            set.map(|(path, value)| json!({ "op": "add", "path": path, "value": value })).collect(),
        )
    }

    /// Returns the patch that removes what a start has written.
    pub(super) fn clear(&self) -> Option<JobPatch> {
        let remove = json!({ "op": "remove", "path": self.list });
        self.are_written().then(|| JobPatch::json(vec![remove]))
    }
}
