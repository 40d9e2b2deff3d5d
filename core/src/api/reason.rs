//! Kueue's condition types and reasons, used by conditions, events, metric labels and explanations.

use serde::{Deserialize, Serialize};

/// Condition types of a Workload that this field manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Quota is reserved on every node of the path to the root of the cohort tree.
    QuotaReserved,
    /// A closed preemption gate prevents the workload from preempting.
    BlockedOnPreemptionGates,
    /// The workload must stop; its quota is released when its pods have terminated.
    Evicted,
    /// The job may run.
    Admitted,
    /// The workload was evicted for a preemptor.
    Preempted,
    /// Whether an evicted workload may be requeued.
    Requeued,
    /// The workload is about to be deactivated.
    DeactivationTarget,
    /// The job has finished.
    Finished,
    /// All pods are ready or have succeeded.
    PodsReady,
    /// Pods of the group are missing, because they failed or were deleted.
    WaitingForReplacementPods,
}

impl ConditionType {
    /// All types, in the order in which they are written.
    pub const ALL: [Self; 10] = [
        Self::QuotaReserved,
        Self::BlockedOnPreemptionGates,
        Self::Evicted,
        Self::Admitted,
        Self::Preempted,
        Self::Requeued,
        Self::DeactivationTarget,
        Self::Finished,
        Self::PodsReady,
        Self::WaitingForReplacementPods,
    ];

    /// Returns the condition type as written in the object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaReserved => "QuotaReserved",
            Self::BlockedOnPreemptionGates => "BlockedOnPreemptionGates",
            Self::Evicted => "Evicted",
            Self::Admitted => "Admitted",
            Self::Preempted => "Preempted",
            Self::Requeued => "Requeued",
            Self::DeactivationTarget => "DeactivationTarget",
            Self::Finished => "Finished",
            Self::PodsReady => "PodsReady",
            Self::WaitingForReplacementPods => "WaitingForReplacementPods",
        }
    }
}

/// What ends the wait of a pending workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEnd {
    /// The object that keeps it out of its queue changes.
    ObjectChange,
    /// The scheduler evaluates it.
    Evaluation,
    /// Quota, nodes, flavors or the workload change.
    CapacityChange,
    /// Other workloads end, release quota or get ready.
    OtherWorkloads,
}

/// Why a workload has no quota reservation: the reason of `QuotaReserved=False`. The order has a meaning: of several
/// flavors, the greatest reason is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PendingReason {
    /// `spec.active` is false.
    Deactivated,
    /// The job is scaled to zero pods.
    OnHold,
    /// A queue is missing, the namespace is not selected, or the requests are invalid.
    Misconfigured,
    /// The LocalQueue or ClusterQueue is stopped or inactive.
    Suspended,
    /// The `admission-gated-by` annotation names a gate.
    AdmissionGated,
    /// Not evaluated yet.
    PendingEvaluation,
    /// No flavor matches the pods.
    NoMatchingFlavor,
    /// The request exceeds the potential available quota of the tree.
    ExceedsMaxQuota,
    /// Other workloads use the quota.
    WaitingForQuota,
    /// No topology domain fits the pods.
    TopologyPlacementFailed,
    /// The workload's victims have not terminated yet.
    WaitingForPreemptedWorkloads,
    /// The pods of another workload are not ready yet.
    WaitingForPodsReady,
}

impl PendingReason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Deactivated,
        Self::OnHold,
        Self::Misconfigured,
        Self::Suspended,
        Self::AdmissionGated,
        Self::PendingEvaluation,
        Self::NoMatchingFlavor,
        Self::ExceedsMaxQuota,
        Self::WaitingForQuota,
        Self::TopologyPlacementFailed,
        Self::WaitingForPreemptedWorkloads,
        Self::WaitingForPodsReady,
    ];

    /// Without a wildcard, so that a new reason decides: else its workloads could be missing in lists and in the audit.
    const fn wait_end(self) -> WaitEnd {
        match self {
            Self::Deactivated
            | Self::OnHold
            | Self::Misconfigured
            | Self::Suspended
            | Self::AdmissionGated => WaitEnd::ObjectChange,
            Self::PendingEvaluation => WaitEnd::Evaluation,
            Self::NoMatchingFlavor | Self::ExceedsMaxQuota | Self::TopologyPlacementFailed => {
                WaitEnd::CapacityChange
            }
            Self::WaitingForQuota | Self::WaitingForPreemptedWorkloads | Self::WaitingForPodsReady => {
                WaitEnd::OtherWorkloads
            }
        }
    }

    /// Whether the state of an object keeps the workload out: it stays until that object changes.
    pub const fn keeps_out(self) -> bool {
        matches!(self.wait_end(), WaitEnd::ObjectChange)
    }

    /// Whether the workload stays pending until something is changed.
    pub const fn needs_change(self) -> bool {
        matches!(self.wait_end(), WaitEnd::ObjectChange | WaitEnd::CapacityChange)
    }

    /// Whether the workload may be in no queue: the scheduler has not evaluated it.
    pub const fn is_unevaluated(self) -> bool {
        matches!(self.wait_end(), WaitEnd::ObjectChange | WaitEnd::Evaluation)
    }

    /// Returns the reason as written in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deactivated => "Deactivated",
            Self::OnHold => "OnHold",
            Self::Misconfigured => "Misconfigured",
            Self::Suspended => "Suspended",
            Self::AdmissionGated => "AdmissionGated",
            Self::PendingEvaluation => "PendingEvaluation",
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::TopologyPlacementFailed => "TopologyPlacementFailed",
            Self::WaitingForPreemptedWorkloads => "WaitingForPreemptedWorkloads",
            Self::WaitingForPodsReady => "WaitingForPodsReady",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variants of an enum. Does not compile if one is not given here.
    macro_rules! variants {
        ($type:ident: $($variant:ident),+ $(,)?) => {{
            const fn check_exhaustive(value: $type) {
                match value {
                    $($type::$variant)|+ => {}
                }
            }
            let variants = vec![$($type::$variant),+];
            variants.iter().copied().for_each(check_exhaustive);
            variants
        }};
    }

    #[test]
    fn all_lists_every_pending_reason() {
        let variants = variants!(
            PendingReason: Deactivated, OnHold, Misconfigured, Suspended, AdmissionGated, PendingEvaluation,
            NoMatchingFlavor, ExceedsMaxQuota, WaitingForQuota, TopologyPlacementFailed,
            WaitingForPreemptedWorkloads, WaitingForPodsReady,
        );
        assert_eq!(PendingReason::ALL.to_vec(), variants);
    }

    #[test]
    fn all_lists_every_condition_type() {
        let variants = variants!(
            ConditionType: QuotaReserved, BlockedOnPreemptionGates, Evicted, Admitted, Preempted, Requeued,
            DeactivationTarget, Finished, PodsReady, WaitingForReplacementPods,
        );
        assert_eq!(ConditionType::ALL.to_vec(), variants);
    }
}
