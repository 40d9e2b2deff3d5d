//! Check whether the registered webhooks refuse unqueued jobs while no manager answers.

use super::webhook_entries::{called_path, entries};
use crate::frameworks::served;
use serde_json::Value;

/// Name of the matchCondition with which a webhook entry skips jobs without a queue name.
const QUEUE_NAMED: &str = "queue-named";

/// Returns whether a webhook configuration has an entry of this manager that covers new jobs without a queue name and
/// fails closed.
pub fn fails_closed_for_unqueued_jobs(configuration: &Value) -> bool {
    let paths: Vec<String> =
        served().flat_map(|row| [true, false].map(|mutating| row.webhook_path(mutating))).collect();
    entries(configuration).any(|webhook| {
        let is_job_path = |path: &str| paths.iter().any(|served| path.ends_with(served));
        let closed = webhook.get("failurePolicy").and_then(Value::as_str) != Some("Ignore");
        let conditions = webhook.get("matchConditions").and_then(Value::as_array);
        let named = |condition: &Value| condition.get("name").and_then(Value::as_str) == Some(QUEUE_NAMED);
        let selected = webhook.get("objectSelector").is_some_and(|selector| {
            ["matchLabels", "matchExpressions"]
                .iter()
                .any(|field| selector.get(field).is_some_and(|terms| !is_empty(terms)))
        });
        called_path(webhook).is_some_and(is_job_path)
            && closed
            && !selected
            && !conditions.into_iter().flatten().any(named)
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty) && value.as_object().is_none_or(serde_json::Map::is_empty)
}
