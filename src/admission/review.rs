//! Dispatch of reviews by path, and checks for malformed reviews.

use serde_json::Value;

use super::response::ReviewResponse;
use super::{ReviewContext, defaults, job, kueue_kinds};
use crate::api::GROUP;
use crate::frameworks::served_framework;

/// Path of the webhook that defaults Jobs.
pub const BATCH_JOB_MUTATE: &str = "/mutate-batch-v1-job";
/// Path of the webhook that validates Jobs.
pub const BATCH_JOB_VALIDATE: &str = "/validate-batch-v1-job";

/// All served paths, as in the webhook configurations.
pub const PATHS: &[&str] = &[
    BATCH_JOB_MUTATE,
    BATCH_JOB_VALIDATE,
    "/mutate-kueue-x-k8s-io-v1beta2-workload",
    "/validate-kueue-x-k8s-io-v1beta2-workload",
    "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
    "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
    "/validate-kueue-x-k8s-io-v1beta2-cohort",
    "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
    "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
];

/// The part of a request that rules read.
pub(super) struct ReviewRequest<'a> {
    pub(super) namespace: &'a str,
    pub(super) object: &'a Value,
    /// The stored object, for an update.
    pub(super) old: Option<&'a Value>,
    pub(super) ctx: &'a ReviewContext<'a>,
}

/// Answers one `AdmissionReview`. For any input, returns an `AdmissionReview` with the uid of the request.
pub fn review(path: &str, request: &Value, ctx: &ReviewContext<'_>) -> Value {
    let inner = request.get("request").unwrap_or(&Value::Null);
    let uid = inner.get("uid").and_then(Value::as_str).unwrap_or_default();
    evaluate(path, inner, ctx).render(uid)
}

pub(super) fn evaluate(path: &str, request: &Value, ctx: &ReviewContext<'_>) -> ReviewResponse {
    if !request.is_object() {
        return malformed("request: missing or not an object");
    }
    if request.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
        return malformed("request.uid: missing");
    }
    let Some(rule) = rule_for_path(path) else {
        return unknown_path(path, request);
    };
    let operation = request.get("operation").and_then(Value::as_str).unwrap_or_default();
    let update = match operation {
        "CREATE" => false,
        "UPDATE" => true,
        "DELETE" | "CONNECT" => return ReviewResponse::allowed(),
        _ => return malformed("request.operation: none of CREATE, UPDATE, DELETE, CONNECT"),
    };
    if let Some(kind) = request.get("kind").filter(|kind| !kind.is_null()) {
        let text = |field| kind.get(field).and_then(Value::as_str).unwrap_or_default();
        if (text("group"), text("kind")) != (rule.group, rule.kind) {
            return malformed("request.kind: not the kind that this path answers for");
        }
    }
    let Some(object) = request.get("object").filter(|object| object.is_object()) else {
        return malformed("request.object: missing or not an object");
    };
    if is_deleting(object) {
        return ReviewResponse::allowed();
    }
    let old = request.get("oldObject").filter(|old| old.is_object());
    if update && old.is_none() {
        return malformed("request.oldObject: missing or not an object");
    }
    if rule.create_only && update {
        return ReviewResponse::allowed();
    }
    let namespace = request
        .get("namespace")
        .and_then(Value::as_str)
        .filter(|namespace| !namespace.is_empty())
        .or_else(|| object.get("metadata")?.get("namespace")?.as_str())
        .unwrap_or_default();
    if rule.framework.is_some_and(|name| !ctx.settings.frameworks.contains(name)) {
        return ReviewResponse::allowed();
    }
    (rule.handler)(&ReviewRequest { namespace, object, old: old.filter(|_| update), ctx })
}

/// Returns the path for a kind, or `None` if there is none.
pub(super) fn path_for_kind(group: &str, kind: &str, mutating: bool) -> Option<&'static str> {
    let prefix = if mutating { "/mutate-" } else { "/validate-" };
    let serves_kind =
        |path: &str| rule_for_path(path).is_some_and(|rule| (rule.group, rule.kind) == (group, kind));
    PATHS.iter().copied().find(|path| path.starts_with(prefix) && serves_kind(path))
}

/// Answers a review on an unknown path, sent by a webhook entry of another installation. Other kinds are allowed:
/// refusing them would forbid, for example, every Pod that the entry selects. Kinds with a rule are refused, as they
/// must be validated.
fn unknown_path(path: &str, request: &Value) -> ReviewResponse {
    let text = |field| request.get("kind").and_then(|kind| kind.get(field)).and_then(Value::as_str);
    let Some((group, kind)) = text("group").zip(text("kind")) else {
        return malformed("request.kind: missing");
    };
    let path: String = path.chars().take(MAX_SHOWN_CHARS).collect();
    if group == GROUP && [true, false].iter().any(|mutating| path_for_kind(group, kind, *mutating).is_some())
    {
        return ReviewResponse::Denied(format!(
            "no rule is served on {path:?} and a {kind} of {GROUP} must be judged: webhook entries of another installation have to go"
        ));
    }
    let kind: String = kind.chars().take(MAX_SHOWN_CHARS).collect();
    let warning = format!(
        "no rule is served on {path:?}: the {kind} passes unjudged; the webhook entry can be removed"
    );
    ReviewResponse::Allowed { patch: Vec::new(), warnings: vec![warning] }
}

/// Maximum number of characters of a path or kind in a message.
const MAX_SHOWN_CHARS: usize = 64;

fn malformed(message: &str) -> ReviewResponse {
    ReviewResponse::Malformed(message.to_owned())
}

fn is_deleting(object: &Value) -> bool {
    object.get("metadata").and_then(|meta| meta.get("deletionTimestamp")).is_some_and(|at| !at.is_null())
}

/// Rule of a path.
pub(super) struct WebhookRule {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    create_only: bool,
    /// Framework that must be enabled for the rule to apply.
    framework: Option<&'static str>,
    handler: fn(&ReviewRequest<'_>) -> ReviewResponse,
}

pub(super) fn rule_for_path(path: &str) -> Option<WebhookRule> {
    let rule = |group, kind, create_only, handler| {
        let framework = served_framework(group, kind).map(|row| row.name);
        Some(WebhookRule { group, kind, create_only, framework, handler })
    };
    match path {
        BATCH_JOB_MUTATE => rule("batch", "Job", true, job::default),
        BATCH_JOB_VALIDATE => rule("batch", "Job", false, job::validate),
        "/mutate-kueue-x-k8s-io-v1beta2-workload" => rule(GROUP, "Workload", true, defaults::workload),
        "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue" => {
            rule(GROUP, "ClusterQueue", true, defaults::protect_in_use)
        }
        "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor" => {
            rule(GROUP, "ResourceFlavor", true, defaults::protect_in_use)
        }
        "/validate-kueue-x-k8s-io-v1beta2-workload" => rule(GROUP, "Workload", false, kueue_kinds::workload),
        "/validate-kueue-x-k8s-io-v1beta2-clusterqueue" => {
            rule(GROUP, "ClusterQueue", false, kueue_kinds::cluster_queue)
        }
        "/validate-kueue-x-k8s-io-v1beta2-cohort" => rule(GROUP, "Cohort", false, kueue_kinds::cohort),
        "/validate-kueue-x-k8s-io-v1beta2-resourceflavor" => {
            rule(GROUP, "ResourceFlavor", false, kueue_kinds::resource_flavor)
        }
        _ => None,
    }
}
