//! Dispatch of reviews by path, and checks for malformed reviews.

use std::sync::LazyLock;

use serde_json::Value;

use super::response::ReviewResponse;
use super::{ReviewContext, defaults, job, kueue_kinds, pod, reading};
use crate::api::GROUP;
use crate::api::partial::Projection;
use crate::frameworks::{Framework, WebhookHandler, frameworks};

/// All rules: for the kinds of jobs, on the paths that the webhook configurations are generated with, and for Kueue's
/// kinds.
static RULES: LazyLock<Vec<WebhookRule>> = LazyLock::new(|| job_rules().chain(kueue_rules()).collect());

/// Returns all served paths, as in the webhook configurations.
pub fn paths() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.path.as_str())
}

/// The part of a request that rules read.
pub(super) struct ReviewRequest<'a> {
    pub(super) namespace: &'a str,
    pub(super) object: &'a Value,
    /// The stored object, for an update.
    pub(super) old: Option<&'a Value>,
    /// Name of the field manager that writes.
    pub(super) field_manager: &'a str,
    /// Name of the user that sends the request; empty if the request has none.
    pub(super) user: &'a str,
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
    match rule_for_path(path) {
        Some(rule) => answer(rule, request, ctx),
        None => unknown_path(path, request),
    }
}

/// Answers a request by a rule.
pub(super) fn answer(rule: &WebhookRule, request: &Value, ctx: &ReviewContext<'_>) -> ReviewResponse {
    let operation = request.get("operation").and_then(Value::as_str).unwrap_or_default();
    let update = match operation {
        "CREATE" => false,
        "UPDATE" => true,
        "DELETE" | "CONNECT" => return ReviewResponse::allowed(),
        _ => return malformed("request.operation: none of CREATE, UPDATE, DELETE, CONNECT"),
    };
    let scale = rule.scale.filter(|_| request.get("subResource").is_some_and(|name| name == "scale"));
    if let Some(kind) = request.get("kind").filter(|kind| !kind.is_null()) {
        let text = |field| kind.get(field).and_then(Value::as_str).unwrap_or_default();
        let expected = if scale.is_some() { ("autoscaling", "Scale") } else { (rule.group, rule.kind) };
        if (text("group"), text("kind")) != expected {
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
    let field_manager = request.pointer("/options/fieldManager").and_then(Value::as_str).unwrap_or_default();
    let user = request.pointer("/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    let request = ReviewRequest { namespace, object, old: old.filter(|_| update), field_manager, user, ctx };
    match &rule.handler {
        Handler::Job(row, _) if !ctx.settings.reviews(row) => ReviewResponse::allowed(),
        Handler::Job(row, handle) => scale.unwrap_or(*handle)(row, &request),
        Handler::Kueue(handle) => handle(&request),
    }
}

/// Returns the path for a kind, or `None` if there is none.
pub(super) fn path_for_kind(group: &str, kind: &str, mutating: bool) -> Option<&'static str> {
    let prefix = if mutating { "/mutate-" } else { "/validate-" };
    let answers =
        |rule: &&WebhookRule| (rule.group, rule.kind) == (group, kind) && rule.path.starts_with(prefix);
    RULES.iter().find(answers).map(|rule| rule.path.as_str())
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
            "no rule is served on {path:?}, and a {kind} of {GROUP} must be checked: remove the webhook entries of the other installation"
        ));
    }
    let kind: String = kind.chars().take(MAX_SHOWN_CHARS).collect();
    let warning = format!(
        "no rule is served on {path:?}: the {kind} is accepted without a check; the webhook entry can be removed"
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
    path: String,
    group: &'static str,
    kind: &'static str,
    create_only: bool,
    /// The part of a review that is decoded.
    pub(super) projection: Projection,
    handler: Handler,
    /// How a change by the subresource `scale` is answered, where the path is for that too.
    scale: Option<HandleJob>,
}

/// How a review is answered.
enum Handler {
    /// By the rules of a kind of Kueue.
    Kueue(fn(&ReviewRequest<'_>) -> ReviewResponse),
    /// By the rules of a kind of jobs, if its framework is enabled.
    Job(&'static Framework, HandleJob),
}

type HandleJob = fn(&'static Framework, &ReviewRequest<'_>) -> ReviewResponse;

/// Returns the rule of a path.
pub(super) fn rule_for_path(path: &str) -> Option<&'static WebhookRule> {
    RULES.iter().find(|rule| rule.path == path)
}

fn job_rules() -> impl Iterator<Item = WebhookRule> {
    frameworks().flat_map(rules_of)
}

/// Returns the rules that default and validate objects of a kind of jobs.
pub(super) fn rules_of(row: &'static Framework) -> [WebhookRule; 2] {
    let projection = reading::job_review(row);
    let default = match row.webhooks.handler {
        WebhookHandler::Suspend => job::default,
        WebhookHandler::HoldPod => pod::hold,
        WebhookHandler::MarkTemplates(_) => pod::mark_templates,
    };
    let scale: HandleJob = job::validate_scale;
    [true, false].map(|mutating| WebhookRule {
        path: row.webhook_path(mutating),
        group: row.gvk.group,
        kind: row.gvk.kind,
        create_only: mutating && !row.webhooks.mutate.contains(&"UPDATE"),
        projection,
        handler: Handler::Job(row, if mutating { default } else { job::validate }),
        scale: (row.webhooks.scale && !mutating).then_some(scale),
    })
}

fn kueue_rules() -> impl Iterator<Item = WebhookRule> {
    type Handle = fn(&ReviewRequest<'_>) -> ReviewResponse;
    let rules: [(&str, Option<Handle>, Handle); 4] = [
        ("Workload", Some(defaults::workload), kueue_kinds::workload),
        ("ClusterQueue", Some(defaults::protect_in_use), kueue_kinds::cluster_queue),
        ("Cohort", None, kueue_kinds::cohort),
        ("ResourceFlavor", Some(defaults::protect_in_use), kueue_kinds::resource_flavor),
    ];
    rules.into_iter().flat_map(|(kind, default, validate)| {
        let (name, projection) = (kind.to_lowercase(), reading::kueue_review(kind));
        let rule = move |verb: &str, handle| WebhookRule {
            path: format!("/{verb}-kueue-x-k8s-io-v1beta2-{name}"),
            group: GROUP,
            kind,
            create_only: verb == "mutate",
            projection,
            handler: Handler::Kueue(handle),
            scale: None,
        };
        default.map(|handle| rule("mutate", handle)).into_iter().chain([rule("validate", validate)])
    })
}
