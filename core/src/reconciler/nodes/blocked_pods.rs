//! Reports what keeps pods of admitted Workloads from running, although they have the quota.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::pod_blocker::{BlockedPods, PodBlocker};
use crate::reconciler::events::{event_on, workload_warning};
use crate::reconciler::messages::{Effect, EventType};
use crate::reconciler::warnings::Warnings;
use crate::reconciler::writes::in_flight::Writes;
use std::sync::Arc;

/// Emits a warning event on each pod that waits because it was changed, and asks for more than its Workload is charged for it.
pub(crate) fn report_oversized<'a>(
    pods: impl IntoIterator<Item = (&'a ObjectKey, &'a Arc<str>, String)>,
    warnings: &mut Warnings,
    writes: &mut Writes,
) {
    for (key, uid, note) in pods {
        if warnings.record(Kind::Pod, key, &note) {
            let event = event_on((Kind::Pod, key, uid), EventType::Warning, "PodExceedsWorkload", note);
            writes.emit(Effect::Event(event));
        }
    }
}

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
