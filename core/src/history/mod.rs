//! History of the last 24 hours, in memory: records of waits, evictions and ends, open runs, and series of each ClusterQueue.
//!
//! Invariants:
//! - the history follows the objects: decisions whose write has not landed leave no trace, and amounts equal the charges of the
//!   ledger;
//! - the amounts of the open runs of a ClusterQueue are its usage in the ledger, at each instant;
//! - memory stays within the limit: the oldest records go first, then the oldest hours of the series;
//! - the cost of a change is that of the Workload that changed;
//! - a recorder gets every record and every change of a run once, in order.

mod chunk;
mod filling;
mod line;
mod log;
mod names;
mod observe;
mod outbox;
mod preemptions;
mod queue_usage;
mod record;
mod recorded;
mod remembered;
mod ring;
mod seen;
mod series;
mod series_set;
mod submitter_usage;
mod tracked;
mod usage;
mod usage_scan;
mod view;

pub use line::Point;
pub use outbox::{Entry, NamedAmounts, QueueHour, RunEnd, RunState};
pub use preemptions::{PreemptionQuery, PreemptionRecord, PreemptionSum, PreemptionSums};
pub use record::{
    Amounts, EvictionEvent, FinishEvent, Preemption, Preemptor, Record, RecordEvent, RecordKey, RecordKind,
    Run, Subject, WaitEvent, WaitResult,
};
pub use recorded::{FilledPart, Gap, RecordedUsage};
pub use remembered::Remembered;
pub use ring::{HistoryStats, Ring};
pub use seen::SeenWorkload;
pub use series::HOUR;
pub use series::{Bucket, Width};
pub use series_set::{Measure, QueueNumber};
pub use tracked::{OpenRun, OpenWait, Sums};
pub use usage::{FlavorHours, OTHERS, Usage, UsageGroup, UsageQuery, UsageRow};
pub use usage_scan::{BorrowedParts, PARTS, StepSum, hour_of};
pub use view::HistoryView;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
