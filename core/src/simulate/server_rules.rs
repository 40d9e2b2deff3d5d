//! Rules of an API server for built-in kinds that are code and not part of a schema, with its paths and texts.
//!
//! The end-to-end case `simulate_refusals::same_refusals_as_server` compares them with a server. Not checked: volumes,
//! ports, environment, probes, affinity and security contexts of pods; taints of nodes; changes of existing pods.

use super::objects::{text_at, value_at};
use super::pod_rules;
use crate::api::validation::syntax::{
    check_annotations, check_labels, domain_prefixed_path, invalid_each, label_value, subdomain,
};
use crate::api::validation::{Errors, FieldCursor, FieldError, semantically_equal};
use crate::cache::Kind;
use crate::frameworks::JobKind;
use crate::resources::Quantity;
use serde_json::{Value, json};

/// Largest priority of a class of users.
const MAX_PRIORITY: i64 = 1_000_000_000;
/// Longest name of a namespace, a RuntimeClass handler or a managed-by value.
const LABEL_MAX: usize = 63;
const LABEL_SYNTAX: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const INDEXED: &str = "Indexed";

/// Sets the defaults that decisions depend on, as a server does before it calls webhooks.
pub(super) fn set_defaults(kind: Kind, object: &mut Value) {
    if kind != Kind::Job(JobKind::BATCH_JOB) {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let absent = |field: &str| spec.get(field).is_none_or(Value::is_null);
    match (absent("completions"), absent("parallelism")) {
        (true, true) => {
            spec.insert("completions".to_owned(), json!(1));
            spec.insert("parallelism".to_owned(), json!(1));
        }
        (false, true) => {
            spec.insert("parallelism".to_owned(), json!(1));
        }
        _ => {}
    }
}

/// Returns the errors of an object that is created, or that replaces `old`.
pub(super) fn validate(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    metadata(kind, object, &mut errors);
    match kind {
        Kind::Job(kind) if kind == JobKind::BATCH_JOB => job(object, old, &mut errors),
        Kind::Pod => pod_rules::check(&spec_of(object), &mut errors),
        Kind::PriorityClass => priority_class(object, old, &mut errors),
        Kind::RuntimeClass => runtime_class(object, old, &mut errors),
        Kind::LimitRange => limit_range(object, &mut errors),
        _ => {}
    }
    errors.take()
}

fn spec_of(object: &Value) -> FieldCursor<'_> {
    FieldCursor::at("spec", value_at(object, "/spec").unwrap_or(&Value::Null))
}

fn metadata(kind: Kind, object: &Value, errors: &mut Errors) {
    let name = text_at(object, "/metadata/name");
    let faults = if kind == Kind::Namespace { dns_label(name) } else { subdomain(name) };
    errors.extend(invalid_each("metadata.name", name, faults));
    let namespace = text_at(object, "/metadata/namespace");
    if kind.resource().namespaced {
        errors.extend(invalid_each("metadata.namespace", namespace, dns_label(namespace)));
    }
    labels_and_annotations(object, "metadata", "/metadata", errors);
}

/// Checks labels and annotations of the metadata at `pointer`; the server reports them below `path`.
fn labels_and_annotations(object: &Value, path: &str, pointer: &str, errors: &mut Errors) {
    let field = |name: &str| {
        let value = value_at(object, pointer).and_then(|metadata| metadata.get(name)).unwrap_or(&Value::Null);
        FieldCursor::at(format!("{path}.{name}"), value)
    };
    check_labels(&field("labels"), errors);
    check_annotations(&field("annotations"), errors);
}

/// Returns the reasons why a text is not a DNS label.
pub(super) fn dns_label(text: &str) -> Vec<String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let shaped =
        text.bytes().all(inner) && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
    let mut faults = Vec::new();
    if text.len() > LABEL_MAX {
        faults.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !shaped && subdomain(text).is_empty() {
        faults.push("must not contain dots".to_owned());
    } else if !shaped {
        faults.push(LABEL_SYNTAX.to_owned());
    }
    faults
}

/// Fields of a Job's spec that may not be negative.
const NON_NEGATIVE: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];
/// Fields of a Job's spec that may not change.
const IMMUTABLE: [&str; 6] =
    ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
/// Fields of a Job's spec that need indexed completion.
const ONLY_INDEXED: [&str; 3] = ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"];

fn job(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = value_at(object, "/spec").unwrap_or(&Value::Null);
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    for field in NON_NEGATIVE {
        if let Some(value) = number(field).filter(|value| *value < 0) {
            errors.push(FieldError::invalid(format!("spec.{field}"), value, pod_rules::NEGATIVE));
        }
    }
    if number("maxFailedIndexes").is_some() && number("backoffLimitPerIndex").is_none() {
        errors.push(FieldError::required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"));
    }
    if let Some(by) = spec.get("managedBy").and_then(Value::as_str) {
        errors.extend(invalid_each("spec.managedBy", by, domain_prefixed_path(by)));
        if by.len() > LABEL_MAX {
            errors.push(FieldError::too_long("spec.managedBy", LABEL_MAX));
        }
    }
    completion_mode(object, spec, errors);
    replacement_policy(spec, errors);
    // The server adds the Job's name to the labels of its pods.
    let name = text_at(object, "/metadata/name");
    errors.extend(invalid_each("spec.template.labels", name, label_value(name)));
    labels_and_annotations(object, "spec.template", "/spec/template/metadata", errors);
    let pods =
        FieldCursor::at("spec.template.spec", value_at(spec, "/template/spec").unwrap_or(&Value::Null));
    pod_rules::check(&pods, errors);
    job_restart_policy(spec, errors);
    if let Some(old) = old {
        job_update(object, old, errors);
    }
}

fn completion_mode(object: &Value, spec: &Value, errors: &mut Errors) {
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    match spec.get("completionMode").and_then(Value::as_str) {
        Some(INDEXED) => {
            let completions = number("completions");
            if completions.is_none() {
                errors.push(FieldError::required("spec.completions", "when completion mode is Indexed"));
            }
            if let Some(pods) = number("parallelism").filter(|pods| *pods > 100_000) {
                let detail = "must be less than or equal to 100000 when completion mode is Indexed";
                errors.push(FieldError::invalid("spec.parallelism", pods, detail));
            }
            if let Some((failed, _)) = number("maxFailedIndexes").zip(completions).filter(|(f, c)| f > c) {
                let detail = "must be less than or equal to completions";
                errors.push(FieldError::invalid("spec.maxFailedIndexes", failed, detail));
            }
            let name = text_at(object, "/metadata/name");
            let last =
                completions.filter(|all| *all > 0).map(|all| format!("{name}-{}", all.saturating_sub(1)));
            if let Some(hostname) = last.filter(|hostname| !dns_label(hostname).is_empty()) {
                let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
                errors.push(FieldError::invalid("metadata.name", name, detail));
            }
            return;
        }
        None | Some("NonIndexed") => {}
        Some(mode) => {
            errors.push(FieldError::not_supported("spec.completionMode", mode, ["NonIndexed", INDEXED]));
            return;
        }
    }
    for field in ONLY_INDEXED {
        if let Some(value) = spec.get(field).filter(|value| !value.is_null()) {
            let (path, detail) = (format!("spec.{field}"), "requires indexed completion mode");
            errors.push(match value {
                Value::Number(_) => FieldError::invalid(path, value.clone(), detail),
                _ => FieldError::invalid_unshown(path, detail),
            });
        }
    }
}

fn replacement_policy(spec: &Value, errors: &mut Errors) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else { return };
    let supported: &[&str] = if spec.get("podFailurePolicy").is_some_and(Value::is_object) {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if !supported.contains(&policy) {
        let supported = supported.iter().copied();
        errors.push(FieldError::not_supported("spec.podReplacementPolicy", policy, supported));
    }
}

fn job_restart_policy(spec: &Value, errors: &mut Errors) {
    let path = "spec.template.spec.restartPolicy";
    let policy = text_at(spec, "/template/spec/restartPolicy");
    let has_failure_policy = spec.get("podFailurePolicy").is_some_and(Value::is_object);
    match policy {
        // Always is the default of an absent field.
        "" | "Always" => {
            errors.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
        }
        "OnFailure" if has_failure_policy => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(path, policy, detail));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(FieldError::not_supported(path, policy, ["OnFailure", "Never"])),
    }
}

fn job_update(object: &Value, old: &Value, errors: &mut Errors) {
    let field = |object: &Value, name: &str| {
        let value = value_at(object, "/spec").and_then(|spec| spec.get(name)).cloned().unwrap_or_default();
        // The default of an absent field.
        if name == "completionMode" && value.is_null() { json!("NonIndexed") } else { value }
    };
    let completions = (field(object, "completions"), field(old, "completions"));
    if !semantically_equal(&completions.0, &completions.1) {
        if field(object, "completionMode") != INDEXED {
            errors.push(FieldError::immutable("spec.completions", completions.0));
        } else if completions.0 != field(object, "parallelism") {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(FieldError::invalid("spec.completions", completions.0, detail));
        }
    }
    let suspended = value_at(old, "/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
    let active = value_at(old, "/status/active").and_then(Value::as_i64).unwrap_or(0) > 0;
    let started = active || value_at(old, "/status/startTime").is_some_and(|time| !time.is_null());
    let mut templates = (field(object, "template"), field(old, "template"));
    if suspended && !started {
        pod_rules::remove_mutable_fields(&mut templates.0);
        pod_rules::remove_mutable_fields(&mut templates.1);
    }
    if !semantically_equal(&templates.0, &templates.1) {
        errors.push(FieldError::invalid_unshown("spec.template", "field is immutable"));
    }
    for name in IMMUTABLE {
        let (new, old) = (field(object, name), field(old, name));
        if !semantically_equal(&new, &old) {
            errors.push(match new {
                Value::String(_) | Value::Number(_) | Value::Null => {
                    FieldError::immutable(format!("spec.{name}"), new)
                }
                _ => FieldError::invalid_unshown(format!("spec.{name}"), "field is immutable"),
            });
        }
    }
}

fn priority_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let value = |object: &Value| object.get("value").and_then(Value::as_i64).unwrap_or(0);
    let name = text_at(object, "/metadata/name");
    if name.starts_with("system-") && !matches!(name, "system-node-critical" | "system-cluster-critical") {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
        );
        errors.push(FieldError::forbidden("metadata.name", detail));
    } else if value(object) > MAX_PRIORITY && !name.starts_with("system-") {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policy = |object: &Value| {
        let policy = text_at(object, "/preemptionPolicy");
        if policy.is_empty() { "PreemptLowerPriority".to_owned() } else { policy.to_owned() }
    };
    let written = policy(object);
    if !matches!(written.as_str(), "Never" | "PreemptLowerPriority") {
        let supported = ["PreemptLowerPriority", "Never"];
        errors.push(FieldError::not_supported("preemptionPolicy", written.as_str(), supported));
    }
    if let Some(old) = old {
        if value(old) != value(object) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        if policy(old) != written {
            errors.push(FieldError::immutable("preemptionPolicy", written));
        }
    }
}

fn runtime_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let handler = text_at(object, "/handler");
    if handler.is_empty() {
        errors.push(FieldError::required("handler", ""));
    } else {
        errors.extend(invalid_each("handler", handler, dns_label(handler)));
    }
    if let Some(overhead) = value_at(object, "/overhead/podFixed") {
        pod_rules::check_amounts(&FieldCursor::at("overhead.limits", overhead), errors);
    }
    if old.is_some_and(|old| text_at(old, "/handler") != handler) {
        errors.push(FieldError::immutable("handler", handler));
    }
}

/// Two amounts of a LimitRange of which the first may not be above the second, the field and value that the error names, and
/// how its text names both.
struct LimitOrder {
    low: &'static str,
    high: &'static str,
    named: &'static str,
    shows_high: bool,
    texts: (&'static str, &'static str),
}

const fn limit_order(
    (low, high): (&'static str, &'static str),
    (named, shows_high): (&'static str, bool),
    texts: (&'static str, &'static str),
) -> LimitOrder {
    LimitOrder { low, high, named, shows_high, texts }
}

const LIMIT_ORDER: [LimitOrder; 6] = [
    limit_order(("min", "max"), ("min", false), ("min value", "max value")),
    limit_order(("min", "defaultRequest"), ("defaultRequest", true), ("min value", "default request value")),
    limit_order(("defaultRequest", "max"), ("defaultRequest", false), ("default request value", "max value")),
    limit_order(
        ("defaultRequest", "default"),
        ("defaultRequest", false),
        ("default request value", "default limit value"),
    ),
    limit_order(("min", "default"), ("default", false), ("min value", "default value")),
    limit_order(("default", "max"), ("default", true), ("default value", "max value")),
];

fn limit_range(object: &Value, errors: &mut Errors) {
    let mut types: Vec<&str> = Vec::new();
    for limit in spec_of(object).get("limits", errors).items(errors) {
        let kind = text_at(limit.value, "/type");
        if types.contains(&kind) {
            errors.push(FieldError::duplicate(limit.field_path("type"), kind, ""));
        }
        types.push(kind);
        let given = |field: &str| {
            limit.value.get(field).and_then(Value::as_object).is_some_and(|map| !map.is_empty())
        };
        for field in ["default", "defaultRequest"] {
            if kind == "Pod" && given(field) {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(limit.field_path(field), detail));
            }
        }
        for LimitOrder { low, high, named, shows_high, texts } in LIMIT_ORDER {
            let highs = limit.get(high, errors);
            for (resource, cursor) in limit.get(low, errors).entries(errors) {
                let large = highs.value.get(resource).and_then(pod_rules::amount);
                let amounts = pod_rules::amount(cursor.value).zip(large);
                let Some((small, large)) = amounts.filter(|(small, large)| small > large) else { continue };
                let detail = format!("{} {small} is greater than {} {large}", texts.0, texts.1);
                let path = format!("{}[{resource}]", limit.field_path(named));
                let shown = if shows_high { &large } else { &small };
                errors.push(FieldError::invalid(path, shown.to_string(), detail));
            }
        }
        for (resource, cursor) in limit.get("maxLimitRequestRatio", errors).entries(errors) {
            let one = Quantity::parse("1").ok();
            if let Some(ratio) = pod_rules::amount(cursor.value).filter(|ratio| Some(ratio) < one.as_ref()) {
                let path = format!("{}[{resource}]", limit.field_path("maxLimitRequestRatio"));
                errors.push(FieldError::invalid(
                    path,
                    ratio.to_string(),
                    format!("ratio {ratio} is less than 1"),
                ));
            }
        }
    }
}
