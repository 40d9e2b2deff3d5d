//! The values that users see: the objects of `visibility.sluice.dev`, for the command line, the dashboard and clients of the API.
//!
//! Invariants: only types, which are serialized and parsed in the same form; an unknown value is absent, never a zero; a view
//! contains only what its reader may see, because it is built for that reader. Times are RFC 3339 in UTC, durations whole
//! seconds, positions start at 1.

mod admission;
mod answer;
mod comparison;
mod finding;
mod flavor;
mod history;
mod manager;
mod past_usage;
mod purge;
mod queues;
mod usage_record;
mod verdict;
mod workload;

pub use admission::{AdmissionView, PodSetAdmission, PodStatesView};
pub use answer::{
    AmountView, Answer, ListMetadata, Role, Source, SourceKind, ViewList, ViewMetadata, WithoutWorkload,
    is_false, is_zero,
};
pub use comparison::{Comparison, Factor, Scope};
pub use finding::{Check, Finding, FindingCounts, FindingObject, Severity, WorkloadClass};
pub use flavor::{
    DomainView, FlavorResourceView, FlavorView, JobFitView, LevelView, NodeCount, OccupantView, PodSetShape,
    QueueCapacityView, QueueFlavorView, QueueLevelView,
};
pub use history::{
    DayReport, FlavorUsage, HistoryAmount, HistoryWorkload, HoursOf, HoursView, LineReport, LineView,
    OwnReport, PreemptionReport, PreemptionSumView, PreemptionView, Recorded, StepGroup, UsageReport,
    UsageStep, UsageView,
};
pub use manager::{DecisionView, HistoryView, LeaderView, ManagerView, WatchView, WriteView};
pub use past_usage::PastUsage;
pub use purge::{HistoryPurge, HistoryPurgeSpec, HistoryPurgeStatus, PurgeReport};
pub use queues::{
    ClusterQueueView, CohortView, LendingPair, LocalQueueView, LocalQuotaView, PendingView, QuotaView,
    ReasonCount, ShareView, state_in_words,
};
pub use usage_record::{RecordedRun, RecordedSums, UsageRecordReport, UsageRecordView, WaitCount};
pub use verdict::{
    Ahead, AheadRow, BlockerKindView, BlockerView, ChangeKind, ChangeOption, CheckView, Estimate,
    EstimatedRange, HistoryEntry, OptionNumber, RefusedEstimate, Verdict, WorkloadReference,
};
pub use workload::{JobView, Need, Position, WorkloadState, WorkloadView};

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn assert_same_both_ways<T: Serialize + DeserializeOwned>(value: &Value) {
        let read: T = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(json!(read), *value);
    }

    #[test]
    fn views_are_written_as_they_are_read() {
        let amount = json!({"value": "64", "number": 64});
        let blocker = json!({
            "kind": "inUse", "podSet": "main", "flavor": "h100", "resource": "nvidia.com/gpu",
            "node": "ClusterQueue/nlp", "requested": amount, "available": {"value": "8", "number": 8},
            "limit": {"value": "unlimited", "number": null}, "missing": {"value": "56", "number": 56},
            "text": "insufficient",
        });
        let row = json!({
            "metadata": {"namespace": "nlp-train", "name": "job-x", "uid": "7", "creationTimestamp": "2026-11-26T13:02:46Z"},
            "job": {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}, "state": "Pending",
            "localQueue": "train", "clusterQueue": "nlp", "priority": 100, "boost": 0,
            "since": "2026-11-26T13:02:46Z",
            "position": {"clusterQueue": 3, "localQueue": 1, "of": 412, "ofLocalQueue": 37},
            "needs": [{"resource": "nvidia.com/gpu", "amount": amount}], "reason": "WaitingForQuota",
            "message": "m", "firstBlocker": blocker,
        });
        assert_same_both_ways::<WorkloadView>(&row);
        let mut verdict = row.clone();
        let more = json!({
            "neverFits": false, "blockers": [blocker],
            "options": [{"kind": "wait", "possible": true, "detail": "56 must be released", "numbers": {"missing": amount, "workloads": 61}}],
            "ahead": {"count": 2, "first": [{"namespace": "a", "name": "b", "priority": 200, "needs": []}], "hidden": 1},
            "estimate": {"refused": "it can never be admitted"},
            "history": [{"time": "2026-11-26T13:02:11Z", "event": "Preempted", "reason": "InCohortReclamation"}],
            "source": {"kind": "manager", "replica": "m-0", "role": "leader", "stateVersion": 81231, "time": "2026-11-26T14:05:12Z"},
            "partial": true,
        });
        verdict.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_same_both_ways::<Answer<Verdict>>(&verdict);
        let list = json!({
            "metadata": {"continue": "abc", "remainingItemCount": 407}, "items": [row],
            "source": {"kind": "file", "replica": "dump.yaml", "stateVersion": 0},
        });
        assert_same_both_ways::<ViewList<WorkloadView>>(&list);
        assert_same_both_ways::<Finding>(&json!({
            "metadata": {"name": "flavor-missing.nlp"}, "check": "flavor-missing", "severity": "error",
            "object": {"kind": "ClusterQueue", "name": "nlp"}, "message": "m", "evidence": {"workloads": 27},
        }));
    }

    #[test]
    fn an_object_of_the_api_is_read_as_a_view() {
        let object = json!({
            "apiVersion": "visibility.sluice.dev/v1alpha1", "kind": "WorkloadView", "metadata": {"name": "x"},
            "state": "Admitted", "priority": -3,
        });
        let view: WorkloadView = serde_json::from_value(object).unwrap();
        assert_eq!((view.state, view.priority, view.position), (WorkloadState::Admitted, -3, None));
    }

    #[test]
    fn checks_have_codes_of_their_own() {
        let codes: std::collections::BTreeSet<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
        assert_eq!((codes.len(), Check::ALL.len()), (28, 28));
        for check in Check::ALL {
            assert_eq!(json!(check), check.as_str());
            assert!(check.describe().ends_with('.'), "{check:?}");
        }
    }
}
