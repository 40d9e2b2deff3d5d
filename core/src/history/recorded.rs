//! Answers of a durable record beyond the last day, in the terms of this history.

use super::usage::Usage;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time in which nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gap {
    /// Start of the gap.
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// End of the gap.
    #[schemars(with = "String")]
    pub end: Timestamp,
    /// Number of runs that ended in it at an unknown time; they count until its start.
    pub unknown_ends: u64,
}

/// Usage in a period from a durable record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedUsage {
    /// The usage from the full hour of the start on.
    pub usage: Usage,
    /// End of the period: now, or a full hour.
    pub until: Timestamp,
    /// Start of the record.
    pub recorded_from: Option<Timestamp>,
    /// Times of the period in which nothing was recorded.
    pub gaps: Vec<Gap>,
}

impl Gap {
    /// Longest time without a recorder, in seconds, in which usually no Workload is created and deleted: the time of a restart.
    const SHORT_SECONDS: i64 = 60;

    /// Returns whether sums over the gap may be too small: a run ended in it at an unknown time, or the gap is too long to
    /// exclude it.
    pub fn is_lossy(&self) -> bool {
        self.unknown_ends > 0
            || self.end.as_second().saturating_sub(self.start.as_second()) > Self::SHORT_SECONDS
    }
}
