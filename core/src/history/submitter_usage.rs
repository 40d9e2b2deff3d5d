//! Usage by the workloads of one submitter, from the runs of the history.
//!
//! Invariant: a run counts for the submitter that its Workload had then, also after the Workload was deleted.

use super::seen::millis;
use super::usage_scan::CountedRun;
use super::view::HistoryView;
use crate::frameworks::submitter_name;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl HistoryView {
    /// Returns the number of workloads of a submitter that had quota in a period, and what they used by resource, in units ×
    /// milliseconds. Only workloads of namespaces for which `sees` is true count.
    pub fn usage_of_submitter(
        &self,
        submitter: &str,
        (from, until): (Timestamp, Timestamp),
        sees: impl Fn(&str) -> bool,
    ) -> (usize, BTreeMap<Arc<str>, i128>) {
        let (from, until, submitter) = (millis(from), millis(until), submitter_name(submitter));
        let (mut workloads, mut used) = (BTreeSet::new(), BTreeMap::new());
        let is_own = |run: &CountedRun<'_>| {
            run.workload.submitter.as_deref() == Some(submitter) && sees(&run.workload.key.namespace)
        };
        for run in self.counted_runs(until).filter(is_own) {
            let time = run.end.min(until).saturating_sub(run.start.max(from));
            if time <= 0 {
                continue;
            }
            workloads.insert(&run.workload.key);
            for (number, amount) in run.amounts.iter() {
                let Some(fr) = self.named(*number) else { continue };
                let sum = used.entry(Arc::clone(&fr.resource)).or_insert(0_i128);
                *sum = sum.saturating_add(i128::from(*amount).saturating_mul(i128::from(time)));
            }
        }
        (workloads.len(), used)
    }
}
