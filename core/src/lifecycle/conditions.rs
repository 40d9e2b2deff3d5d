//! Reads and sets conditions. Setting a condition to its current status, reason and message changes nothing.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Maximum length of a condition message that the API server accepts, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// Content of a condition to set; [`set`] adds the generation and the transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    /// Condition type.
    pub kind: ConditionType,
    /// Condition status: True or False.
    pub holds: bool,
    /// Machine-readable reason in CamelCase.
    pub reason: &'a str,
    /// Human-readable message; truncated to the limit of the API server.
    pub message: &'a str,
}

impl<'a> ConditionUpdate<'a> {
    /// Returns an update of type, status, reason and message.
    pub const fn new(kind: ConditionType, holds: bool, reason: &'a str, message: &'a str) -> Self {
        Self { kind, holds, reason, message }
    }
}

/// Returns the condition of a type.
pub fn find(status: &WorkloadStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|c| c.type_ == kind.as_str())
}

/// Returns whether the condition of a type is True.
pub fn is_true(status: &WorkloadStatus, kind: ConditionType) -> bool {
    find(status, kind).is_some_and(|c| c.status == "True")
}

/// Returns whether the condition of a type is False; false if the condition is absent.
pub fn is_false(status: &WorkloadStatus, kind: ConditionType) -> bool {
    find(status, kind).is_some_and(|c| c.status == "False")
}

/// Returns the reason of a condition, or the empty string if the condition is absent.
pub fn reason(status: &WorkloadStatus, kind: ConditionType) -> &str {
    find(status, kind).map_or("", |c| c.reason.as_str())
}

/// Returns the last transition time of a condition if it is True.
pub fn true_since(status: &WorkloadStatus, kind: ConditionType) -> Option<Timestamp> {
    find(status, kind).filter(|c| c.status == "True").map(|c| c.last_transition_time.0)
}

/// Truncates a time to whole seconds, the precision of API objects, so that a written time equals the time read back.
pub fn to_api_time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Sets a condition. The transition time changes only if the condition status changes.
pub fn set(status: &mut WorkloadStatus, statement: &ConditionUpdate<'_>, generation: i64, now: Timestamp) {
    let holds = if statement.holds { "True" } else { "False" };
    let message = truncate(statement.message);
    if let Some(found) = status.conditions.iter_mut().find(|c| c.type_ == statement.kind.as_str()) {
        if found.status == holds && found.reason == statement.reason && found.message == message {
            return;
        }
        if found.status != holds {
            found.last_transition_time = to_api_time(now);
            holds.clone_into(&mut found.status);
        }
        statement.reason.clone_into(&mut found.reason);
        message.clone_into(&mut found.message);
        found.observed_generation = Some(generation);
        return;
    }
    status.conditions.push(Condition {
        type_: statement.kind.as_str().to_owned(),
        status: holds.to_owned(),
        reason: statement.reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: to_api_time(now),
        observed_generation: Some(generation),
    });
}

/// Removes a condition.
pub fn remove(status: &mut WorkloadStatus, kind: ConditionType) {
    status.conditions.retain(|c| c.type_ != kind.as_str());
}

fn truncate(message: &str) -> &str {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    let end = (0..=MAX_MESSAGE_BYTES).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
    message.get(..end).unwrap_or_default()
}
