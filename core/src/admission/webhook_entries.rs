//! What webhook configurations cover: the kinds of jobs that no entry is called for, and those whose objects without a queue
//! name start while no manager answers.
//!
//! Invariant: an entry counts by its path, so that its name and namespaces are an administrator's choice.

use crate::frameworks::Framework;
use serde_json::{Map, Value};

/// Name of the matchCondition with which an entry skips jobs without a queue name.
const QUEUE_NAMED: &str = "queue-named";

/// Returns the names of the kinds that no entry of a webhook configuration covers; all if there is no configuration.
pub fn kinds_without_entry(
    configuration: Option<&Value>,
    mutating: bool,
    kinds: &[&'static Framework],
) -> Vec<&'static str> {
    kinds_without(configuration, mutating, kinds, |_| true)
}

/// Returns the names of the kinds whose objects without a queue name are not refused while no manager answers; all if there is no
/// configuration.
pub fn kinds_open_without_queue(
    configuration: Option<&Value>,
    mutating: bool,
    kinds: &[&'static Framework],
) -> Vec<&'static str> {
    kinds_without(configuration, mutating, kinds, holds_unqueued)
}

/// Returns the names of the kinds that have no entry with a property.
fn kinds_without(
    configuration: Option<&Value>,
    mutating: bool,
    kinds: &[&'static Framework],
    counts: fn(&Value) -> bool,
) -> Vec<&'static str> {
    let entries = configuration.and_then(|object| object.get("webhooks")).and_then(Value::as_array);
    let paths: Vec<&str> =
        entries.into_iter().flatten().filter(|entry| counts(entry)).filter_map(called_path).collect();
    let is_called = |row: &Framework| {
        let wanted = row.webhook_path(mutating);
        paths.iter().any(|path| path.ends_with(&wanted))
    };
    kinds.iter().filter(|row| !is_called(row)).map(|row| row.name).collect()
}

/// Returns the path, or URL, that an entry calls.
fn called_path(entry: &Value) -> Option<&str> {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str);
    text("/clientConfig/service/path").or_else(|| text("/clientConfig/url"))
}

/// Returns whether an entry fails closed for objects without a queue name.
fn holds_unqueued(entry: &Value) -> bool {
    let closed = entry.get("failurePolicy").and_then(Value::as_str) != Some("Ignore");
    let conditions = entry.get("matchConditions").and_then(Value::as_array);
    let named = |condition: &Value| condition.get("name").and_then(Value::as_str) == Some(QUEUE_NAMED);
    let selects_labels = entry.get("objectSelector").is_some_and(|selector| {
        let terms = ["matchLabels", "matchExpressions"].iter().filter_map(|field| selector.get(field));
        terms.into_iter().any(|terms| !is_empty(terms))
    });
    closed && !selects_labels && !conditions.into_iter().flatten().any(named)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty) && value.as_object().is_none_or(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::frameworks;
    use serde_json::json;

    fn named(name: &str) -> &'static Framework {
        frameworks().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn kinds_are_covered_by_the_paths_of_their_entries() {
        let kinds = [named("batch/job"), named("jobset.x-k8s.io/jobset")];
        let (job, jobset) = (kinds[0].webhook_path(true), kinds[1].webhook_path(true));
        let by_service = json!({"clientConfig": {"service": {"path": job}}});
        let by_url = json!({"clientConfig": {"url": format!("https://127.0.0.1:9443{jobset}")}});
        let missing =
            |webhooks: Value| kinds_without_entry(Some(&json!({"webhooks": webhooks})), true, &kinds);
        assert_eq!(missing(json!([by_service])), [kinds[1].name]);
        assert_eq!(missing(json!([by_url])), [kinds[0].name]);
        assert!(missing(json!([by_url, by_service])).is_empty());
        assert_eq!(kinds_without_entry(None, true, &kinds), [kinds[0].name, kinds[1].name]);
    }

    #[test]
    fn entries_hold_unqueued_objects_if_they_fail_closed_for_all() {
        let kinds = [named("batch/job")];
        // Kueue's own configuration has one entry for all Jobs.
        let entry = json!({"clientConfig": {"service": {"path": kinds[0].webhook_path(true)}}});
        let open = |field: &str, value: Value| {
            let mut entry = entry.clone();
            entry[field] = value;
            let configuration = json!({"webhooks": [entry]});
            kinds_open_without_queue(Some(&configuration), true, &kinds) == ["batch/job"]
        };
        assert!(!open("failurePolicy", json!("Fail")));
        assert!(open("failurePolicy", json!("Ignore")));
        assert!(open("matchConditions", json!([{"name": "not-deleting"}, {"name": QUEUE_NAMED}])));
        assert!(!open("matchConditions", json!([{"name": "not-deleting"}])));
        assert!(open("objectSelector", json!({"matchLabels": {"a": "b"}})));
        assert!(!open("objectSelector", json!({"matchLabels": {}})));
        assert_eq!(kinds_open_without_queue(None, true, &kinds), ["batch/job"]);
    }

    /// A path that another kind's path ends with would be taken for it.
    #[test]
    fn no_path_ends_with_that_of_another_kind() {
        for (row, other) in frameworks().flat_map(|row| frameworks().map(move |other| (row, other))) {
            let ends = row.webhook_path(true).ends_with(&other.webhook_path(true));
            assert_eq!(ends, row.name == other.name, "{} and {}", row.name, other.name);
        }
    }
}
