//! Condition types and reasons as Kueue spells them. Conditions, events, metric labels and explanations take them from here.

/// Condition types of a Workload that this field manager owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Quota is reserved on the whole path of the tree.
    QuotaReserved,
    /// A preemption gate keeps the workload from preempting.
    BlockedOnPreemptionGates,
    /// The workload must stop; its quota returns when its pods are gone.
    Evicted,
    /// The job may run.
    Admitted,
    /// Evicted to make room.
    Preempted,
    /// Whether an evicted workload may be queued again.
    Requeued,
    /// The workload is about to be deactivated.
    DeactivationTarget,
    /// The job has ended.
    Finished,
    /// The pods run or have succeeded.
    PodsReady,
}

impl ConditionType {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 9] = [
        Self::QuotaReserved,
        Self::BlockedOnPreemptionGates,
        Self::Evicted,
        Self::Admitted,
        Self::Preempted,
        Self::Requeued,
        Self::DeactivationTarget,
        Self::Finished,
        Self::PodsReady,
    ];

    /// The type as it stands in the object.
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
        }
    }
}

/// Why a workload holds no quota: the reason of `QuotaReserved=False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PendingReason {
    /// `spec.active` is false.
    Deactivated,
    /// Its job is scaled to nothing.
    OnHold,
    /// A queue is missing, the namespace is not selected, or the requests are not valid.
    Misconfigured,
    /// A queue on the way is stopped or inactive.
    Suspended,
    /// An annotation holds it back.
    AdmissionGated,
    /// Not judged yet.
    PendingEvaluation,
    /// No flavor matches the pods.
    NoMatchingFlavor,
    /// More than the tree could ever give.
    ExceedsMaxQuota,
    /// The quota is in use by others.
    WaitingForQuota,
    /// No topology domain takes the pods.
    TopologyPlacementFailed,
    /// Its victims are ending.
    WaitingForPreemptedWorkloads,
    /// Another workload's pods are starting.
    WaitingForPodsReady,
}

impl PendingReason {
    /// All of them.
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

    /// The reason as it stands in the condition.
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
