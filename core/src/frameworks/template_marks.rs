//! Marks of pod templates: what a webhook adds to the templates of an object whose pods are held one by one.

use super::patch::FieldChange;
use super::row::{Framework, WebhookHandler};
use crate::api::names;
use crate::api::validation::Gates;
use serde_json::{Value, json};

impl Framework {
    /// Returns the fields to set so that the pods of an object wait for admission. Marks are never removed, as each change of
    /// a template replaces the pods. Whether they must wait is decided by the queue, the namespace and the owners.
    pub fn mark_templates(&self, object: &Value, gates: &Gates) -> Vec<FieldChange> {
        let WebhookHandler::MarkTemplates(marks) = self.webhooks.handler else { return Vec::new() };
        let label = |key: &'static str| {
            let value = object.get("metadata")?.get("labels")?.get(key)?.as_str()?;
            Some((key, value)).filter(|_| !value.is_empty())
        };
        let copied = marks.copied_labels.iter().filter_map(|key| label(key));
        let labels: Vec<(&str, &str)> = marks.labels.iter().copied().chain(copied).collect();
        let parent = [(names::SUSPENDING_PARENT_ANNOTATION, self.name)];
        let mut changes = Vec::new();
        for template in marks.templates {
            if !object.pointer(template).is_some_and(Value::is_object) {
                continue;
            }
            let mut set = |map: &str, key: &str, value: &str| {
                let mut path: Vec<&str> = template.split('/').skip(1).collect();
                path.extend(["metadata", map, key]);
                changes.push(FieldChange::new(&path, json!(value)));
            };
            for (key, value) in parent.iter().chain(marks.annotations) {
                set("annotations", key, value);
            }
            for (key, value) in &labels {
                set("labels", key, value);
            }
        }
        changes.extend(self.hooks.template_marks(object, gates));
        changes
    }
}
