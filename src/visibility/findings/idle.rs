//! Findings about LocalQueues without use.
//!
//! Invariant: nothing is said before the history covers a day: until then a Workload that is gone may have been there.

use super::{Audit, Said, finding};
use crate::snapshot::AuditFacts;
use crate::visibility::views::{Check, Finding, OptionNumber};
use jiff::SignedDuration;

/// Age from which on an unused queue is told.
const MIN_AGE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Length of the history that is needed; it keeps at most a day.
const MIN_RECORDED: SignedDuration = SignedDuration::from_hours(23);

impl Audit<'_> {
    pub(super) fn idle(&self, facts: &AuditFacts, found: &mut Vec<Finding>) {
        let recorded = facts.recorded_since.map(|since| self.now.duration_since(since));
        if recorded.is_none_or(|recorded| recorded < MIN_RECORDED) {
            return;
        }
        for (key, created) in &facts.unused_queues {
            let age = self.now.duration_since(*created);
            if age < MIN_AGE {
                continue;
            }
            let days = u64::try_from(age.as_hours().div_euclid(24)).unwrap_or_default();
            let said = Said {
                message: format!("it is {days} days old and has no workload; none was recorded for a day"),
                consequence: "it may be unused",
                correction: format!("kubectl delete localqueue {} -n {}", key.name, key.namespace),
                ..Said::default()
            };
            let said = said.with("days", OptionNumber::Count(days));
            found.push(finding(Check::LocalQueueIdle, ("LocalQueue", key), said));
        }
    }
}
