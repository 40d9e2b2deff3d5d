//! Reports what keeps pods of admitted Workloads from running, although they have the quota.

use crate::cache::records::WorkloadRecord;
use crate::lifecycle::pod_blocker::{BlockedPods, PodBlocker};
use crate::reconciler::events::workload_warning;
use crate::reconciler::warnings::Warnings;
use crate::reconciler::writes::in_flight::Writes;

/// Emits an event on a Workload that names what blocks its pods: once in an admission for each blocker, however often the
/// scheduler tries again.
pub(crate) fn report<'a>(
    record: &WorkloadRecord,
    pods: impl IntoIterator<Item = (&'a str, &'a PodBlocker)>,
    warnings: &mut Warnings,
    writes: &mut Writes,
) {
    let key = &record.meta.key;
    if !record.may_run() {
        return warnings.clear_blocked_pods(key);
    }
    if let Some(blocked) = BlockedPods::of(pods)
        && warnings.record_blocked_pods(key, &blocked.identity)
    {
        writes.emit(workload_warning(record, "PodsBlocked", blocked.text));
    }
}
