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
    /// The part that was filled from the memory of a manager; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled: Option<FilledPart>,
}

/// A part of a gap of which the events are known from the memory of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FilledPart {
    /// Start of the part.
    #[schemars(with = "String")]
    pub from: Timestamp,
    /// End of the part.
    #[schemars(with = "String")]
    pub until: Timestamp,
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

    /// Returns the milliseconds of the gap that nothing filled.
    pub fn unfilled(&self) -> i64 {
        let length = |from: Timestamp, until: Timestamp| {
            until.as_millisecond().saturating_sub(from.as_millisecond()).max(0)
        };
        let filled = |part: FilledPart| length(part.from.max(self.start), part.until.min(self.end));
        length(self.start, self.end).saturating_sub(self.filled.map_or(0, filled))
    }

    /// Returns whether sums over the gap may be too small: a run ended in it at an unknown time, or what is not filled is too long
    /// to exclude it.
    pub fn is_lossy(&self) -> bool {
        self.unknown_ends > 0 || self.unfilled().div_euclid(1_000) > Self::SHORT_SECONDS
    }
}
