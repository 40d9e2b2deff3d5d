//! What all answers have: amounts, metadata, lists, and where an answer comes from.
//!
//! Invariant: an amount is exact in `value`; `number` is its value as a number, absent where a reader would lose digits.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use std::collections::BTreeMap;

/// An amount of a resource, in the unit of the quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AmountView {
    /// As a quantity: `64`, `1500m`, `32Ti`; `unlimited` for a limit that is none.
    pub value: String,
    /// In cores, bytes or pieces; `null` beyond 2^53 and for `unlimited`.
    pub number: Option<Number>,
}

/// Metadata of a view: a part of the metadata of its object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ViewMetadata {
    /// Namespace; empty for views of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object; empty if it has none, as a cohort that exists only by its members.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// When the object was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub creation_timestamp: Option<Timestamp>,
    /// Labels of the object; of a Workload but that with the UID of its job.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A view as the answer to one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// The view.
    #[serde(flatten)]
    pub view: T,
    /// Where it comes from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

/// A page of views.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewList<T> {
    /// Token of the next page, and number of rows after this one.
    #[serde(default)]
    pub metadata: ListMetadata,
    /// The views.
    pub items: Vec<T>,
    /// Where they come from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// Of findings: when the checks ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Timestamp>,
    /// Of the Workloads of one job of which there are none: why, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_workload: Option<WithoutWorkload>,
}

/// Why a job has no Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WithoutWorkload {
    /// One word, as events have it.
    pub reason: String,
    /// The cause, as the end of a sentence without a full stop.
    pub message: String,
}

/// Metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMetadata {
    /// The token of the next page; empty for the last one. Every replica takes it.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// Number of rows after this page, if it is known without reading them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<u64>,
}

/// Where an answer comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// What computed it.
    pub kind: SourceKind,
    /// Name of the manager's replica, or of the file; empty for a cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replica: String,
    /// Of a manager: whether it led.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Of a manager: number of the published state.
    #[serde(default)]
    pub state_version: u64,
    /// Time of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub time: Option<Timestamp>,
}

/// What computed an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SourceKind {
    /// A replica of the manager.
    #[default]
    Manager,
    /// The asking process, from objects that it read.
    Cluster,
    /// The asking process, from a dump.
    File,
}

/// Whether a replica writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// It decides and writes.
    Leader,
    /// It only reads.
    Follower,
}

/// Returns whether a flag is not set: such flags are not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Returns whether a count is 0: such counts are not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub const fn is_zero(number: &u64) -> bool {
    *number == 0
}
