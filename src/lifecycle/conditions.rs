//! Reading and setting conditions. Setting one that says the same already changes nothing.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message that the API server takes.
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// A condition to be set, but for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    /// Which condition.
    pub kind: ConditionType,
    /// True or False.
    pub holds: bool,
    /// Reason, one word.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
}

/// The condition of a type.
pub fn find(status: &WorkloadStatus, kind: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|c| c.type_ == kind.as_str())
}

/// Whether the condition of a type stands at True.
pub fn is_true(status: &WorkloadStatus, kind: ConditionType) -> bool {
    find(status, kind).is_some_and(|c| c.status == "True")
}

/// Whether the condition of a type stands at False.
pub fn is_false(status: &WorkloadStatus, kind: ConditionType) -> bool {
    find(status, kind).is_some_and(|c| c.status == "False")
}

/// Reason of the condition of a type, or empty.
pub fn reason(status: &WorkloadStatus, kind: ConditionType) -> &str {
    find(status, kind).map_or("", |c| c.reason.as_str())
}

/// When the condition of a type last changed, if it stands at True.
pub fn true_since(status: &WorkloadStatus, kind: ConditionType) -> Option<Timestamp> {
    find(status, kind).filter(|c| c.status == "True").map(|c| c.last_transition_time.0)
}

/// The time with the precision that objects keep.
pub fn to_api_time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Sets a condition; the transition time moves only with the status.
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
