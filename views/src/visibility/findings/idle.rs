//! Findings about LocalQueues without use.
//!
//! Invariant: there is no finding before the history covers a day: until then a deleted Workload may have used the queue.

use super::{Audit, Said, finding};
use crate::snapshot::AuditFacts;
use crate::visibility::views::{Check, Finding, OptionNumber};
use jiff::SignedDuration;

/// Minimum age of an unused queue in a finding.
const MIN_AGE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Minimum length of the history for a finding; it covers at most a day.
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
