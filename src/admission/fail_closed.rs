//! Whether the webhooks that are registered hold back what they must while no manager answers.

use super::review::{BATCH_JOB_MUTATE, BATCH_JOB_VALIDATE};
use serde_json::Value;

/// Name of the condition by which an entry of ours passes Jobs that name no queue.
const QUEUE_NAMED: &str = "queue-named";

/// Whether a webhook configuration has an entry of this manager for new Jobs that name no queue, and that fails closed.
pub fn fails_closed_for_unqueued_jobs(configuration: &Value) -> bool {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().any(|webhook| {
        let path = webhook.pointer("/clientConfig/service/path").and_then(Value::as_str);
        let url = webhook.pointer("/clientConfig/url").and_then(Value::as_str);
        let ends =
            |path: &str| [BATCH_JOB_MUTATE, BATCH_JOB_VALIDATE].iter().any(|ours| path.ends_with(ours));
        let closed = webhook.get("failurePolicy").and_then(Value::as_str) != Some("Ignore");
        let conditions = webhook.get("matchConditions").and_then(Value::as_array);
        let named = |condition: &Value| condition.get("name").and_then(Value::as_str) == Some(QUEUE_NAMED);
        let selected = webhook.get("objectSelector").is_some_and(|selector| {
            ["matchLabels", "matchExpressions"]
                .iter()
                .any(|by| selector.get(by).is_some_and(|by| !is_empty(by)))
        });
        path.or(url).is_some_and(ends) && closed && !selected && !conditions.into_iter().flatten().any(named)
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty) && value.as_object().is_none_or(serde_json::Map::is_empty)
}
