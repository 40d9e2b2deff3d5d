//! Why a Workload is in its state, and what would change that.
//!
//! Invariant: a verdict contains only what the engine can show; a line that would be a guess is absent.

use super::admission::AdmissionView;
use super::answer::{AmountView, is_false, is_zero};
use super::comparison::Comparison;
use super::workload::{Need, WorkloadView};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why a Workload is where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The Workload as a row: state, reason, message, position.
    #[serde(flatten)]
    pub workload: WorkloadView,
    /// Whether it cannot be admitted until quota, nodes or the Workload change, even if all others finish.
    #[serde(default)]
    pub never_fits: bool,
    /// What is in the way as a sentence without its full stop, where the blockers do not say it: empty nodes that do not take it, the
    /// flavor that was meant, the head that it is behind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub obstacle: String,
    /// What it waits for, in the order in which the scheduler found it.
    #[serde(default)]
    pub blockers: Vec<BlockerView>,
    /// What binds once the missing amounts before it are there: nodes up to the root, and pod sets that were not tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<BlockerView>,
    /// Flavor-resources of flavors with a blocker that would fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<BlockerView>,
    /// What would have to change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<ChangeOption>,
    /// The workloads before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
    /// Queueing strategy of its ClusterQueue; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queueing_strategy: String,
    /// When it may be admitted, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// What happened to it, the newest last, as far as it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Since when the replica that answers records evictions, if that is after the creation of the Workload: of what was before,
    /// `history` has only what the conditions say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub history_since: Option<Timestamp>,
    /// States of its admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckView>,
    /// What it has, if it has quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionView>,
    /// The comparison with another Workload, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Comparison>,
}

impl Verdict {
    /// Returns the blocker to show if only one is shown, preferably with amounts. If the Workload never fits, it is a blocker
    /// that the end of other workloads cannot remove, otherwise one that it may remove. Its amounts are the sums over all pod
    /// sets that need the same quota, because a Workload is admitted as a whole.
    pub fn main_blocker(&self) -> Option<BlockerView> {
        let with_amounts = if self.never_fits { BlockerKindView::NeverFits } else { BlockerKindView::InUse };
        let stays = |kind| {
            use BlockerKindView::{Mismatch, NeverFits, Undeclared};
            matches!(kind, Mismatch | NeverFits | Undeclared)
        };
        let mut blockers = self.blockers.iter();
        let best = blockers.find(|blocker| blocker.kind == with_amounts && blocker.requested.is_some());
        let best =
            best.or_else(|| self.blockers.iter().find(|blocker| stays(blocker.kind) == self.never_fits));
        best.or(self.blockers.first()).map(|blocker| self.of_all_pod_sets(blocker))
    }

    /// Returns a blocker; if it is quota in use, with the greatest request for the same quota. The request of a pod set includes
    /// the earlier ones, so that it is the request of all.
    fn of_all_pod_sets(&self, blocker: &BlockerView) -> BlockerView {
        let is_same = |row: &&BlockerView| {
            matches!(row.kind, BlockerKindView::InUse | BlockerKindView::Next)
                && (&row.flavor, &row.resource, &row.node)
                    == (&blocker.flavor, &blocker.resource, &blocker.node)
        };
        let requested = |row: &BlockerView| {
            let number = row.requested.as_ref().and_then(|amount| amount.number.as_ref());
            number.and_then(serde_json::Number::as_f64).unwrap_or_default()
        };
        let rows = self.blockers.iter().chain(&self.next).filter(is_same);
        let greatest = rows.map(|row| (requested(row), row)).max_by(|(a, _), (b, _)| a.total_cmp(b));
        match greatest.filter(|_| blocker.kind == BlockerKindView::InUse) {
            Some((_, row)) => BlockerView {
                requested: row.requested.clone(),
                missing: row.missing.clone(),
                ..blocker.clone()
            },
            None => blocker.clone(),
        }
    }
}

/// Why a pod set cannot get a resource from a flavor. Fields that say nothing are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockerView {
    /// Kind of the blocker.
    pub kind: BlockerKindView,
    /// Names of the pod sets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_set: String,
    /// Name of the flavor.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// Name of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The node whose limit binds: `ClusterQueue/name` or `Cohort/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Requested amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<AmountView>,
    /// Amount that is available to the ClusterQueue now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<AmountView>,
    /// Maximum usage of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<AmountView>,
    /// What is missing: requested less available, and what is used beyond the limits now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<AmountView>,
    /// What the workload would borrow, if only that keeps it from reclaiming the quota.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub borrowed: String,
    /// The blocker as text, as in the message of the condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Kinds of blockers, and results of flavor-resources beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BlockerKindView {
    /// The request exceeds what the ClusterQueue can ever have.
    NeverFits,
    /// Other workloads use the quota.
    #[default]
    InUse,
    /// No resource group of the ClusterQueue covers the resource.
    Undeclared,
    /// Other workloads use the nodes.
    NodesInUse,
    /// The flavor does not match the pods, or its topology could not hold them even if it were empty.
    Mismatch,
    /// The head of a StrictFIFO ClusterQueue is before it.
    Behind,
    /// It binds once the blockers before it have gone.
    Next,
    /// There is enough.
    Fits,
    /// Another controller keeps the pods from being scheduled.
    PodGate,
    /// A pod of an admitted Workload finds no node.
    Unschedulable,
}

/// A change that would admit a Workload, or that would not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeOption {
    /// What changes.
    pub kind: ChangeKind,
    /// Whether it would be enough.
    pub possible: bool,
    /// As a sentence without a full stop.
    pub detail: String,
    /// The numbers in the sentence, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, OptionNumber>,
}

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// Other workloads release quota or nodes.
    Wait,
    /// Other workloads are preempted.
    Preempt,
    /// The Workload asks for fewer pods.
    Smaller,
    /// The Workload takes another flavor.
    Flavor,
    /// A quota or limit is raised.
    Quota,
    /// The Workload asks for less of the topology.
    Topology,
}

impl ChangeKind {
    /// Returns the words at the start of its line, in a terminal and on a page.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Wait => "Wait",
            Self::Preempt => "Preempt",
            Self::Smaller => "Smaller",
            Self::Flavor => "Other flavor",
            Self::Quota => "Quota",
            Self::Topology => "Topology",
        }
    }
}

/// A number of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionNumber {
    /// A number of things.
    Count(u64),
    /// An amount of a resource.
    Amount(AmountView),
}

/// The workloads before a pending one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ahead {
    /// Number of workloads.
    pub count: u64,
    /// At most three of the workloads that the reader may see, the first of the queue first.
    #[serde(default)]
    pub first: Vec<AheadRow>,
    /// Number of workloads among the first in namespaces that the reader may not see.
    #[serde(default)]
    pub hidden: u64,
    /// Number of workloads among the first that are not admitted even if all others finish: time alone does not let them run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stuck: u64,
    /// Whether only the first of them were examined for `hidden` and `stuck`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// A workload before another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AheadRow {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Effective priority.
    pub priority: i64,
    /// What it asks for.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Whether it is not admitted even if all others finish.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stuck: bool,
}

/// When a Workload may be admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Estimate {
    /// There is no range.
    Refused(RefusedEstimate),
    /// A range.
    Range(EstimatedRange),
}

/// Why there is no range in which a Workload may be admitted, and what is known all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedEstimate {
    /// Why.
    pub refused: String,
    /// Before when it is not admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub not_before: Option<Timestamp>,
    /// Workloads, as NAMESPACE/NAME, that end then at the earliest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_end: Vec<String>,
    /// What is taken as given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// Workloads, as NAMESPACE/NAME, whose run times are unknown, of the ones that the reader may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// What was ignored, as sentences without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A range in which a Workload may be admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EstimatedRange {
    /// If runs end early; missing where a run may end at any time before its maximum execution time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub earliest: Option<Timestamp>,
    /// Before when it is not admitted, where `earliest` is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub not_before: Option<Timestamp>,
    /// Workloads, as NAMESPACE/NAME, that end then at the earliest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_end: Vec<String>,
    /// If runs end late.
    #[schemars(with = "String")]
    pub latest: Timestamp,
    /// What is taken as given.
    pub assumptions: Vec<String>,
    /// Number of running workloads that declare a maximum execution time.
    pub declared: u64,
    /// Number of running workloads without one whose run time an annotation says.
    #[serde(default)]
    pub expected: u64,
    /// Number of running workloads whose time comes from earlier runs.
    pub from_history: u64,
    /// Number of running workloads without any of these: they do not end by themselves.
    pub unknown: u64,
    /// Number of earlier runs.
    #[serde(default)]
    pub earlier_runs: u64,
    /// When the oldest of them ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub earlier_runs_since: Option<Timestamp>,
    /// What was ignored, as sentences without a full stop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Something that happened to a Workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// When.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// What: a condition type (`QuotaReserved`, `Admitted`, `Evicted`, `Preempted`, `Finished`, ...), or one of `Created`,
    /// `Pending`, `LeftQueue` and `QuotaReleased`.
    pub event: String,
    /// Reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// As a sentence without a full stop; without names that the reader may not see.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The workload that the sentence names last: the preemptor, if the reader may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<WorkloadReference>,
}

/// Which Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl HistoryEntry {
    /// Event of the creation of a Workload.
    pub const CREATED: &'static str = "Created";
    /// Event of the start of a wait, and of a change of its reason.
    pub const PENDING: &'static str = "Pending";
    /// Event of the end of a wait without a reservation.
    pub const LEFT_QUEUE: &'static str = "LeftQueue";
    /// Event of the end of an eviction.
    pub const QUOTA_RELEASED: &'static str = "QuotaReleased";

    /// Sorts by time; events of one second in the order in which they occur in the life of a Workload.
    pub fn sort(entries: &mut [Self]) {
        const LIFE: [&str; 8] = [
            HistoryEntry::CREATED,
            HistoryEntry::PENDING,
            "QuotaReserved",
            "Admitted",
            "PodsReady",
            "Evicted",
            "Preempted",
            HistoryEntry::QUOTA_RELEASED,
        ];
        let releases: BTreeSet<Timestamp> = entries
            .iter()
            .filter(|entry| matches!(entry.event.as_str(), "Evicted" | "Preempted" | Self::QUOTA_RELEASED))
            .map(|entry| entry.time)
            .collect();
        entries.sort_by_key(|entry| {
            let place = LIFE.iter().position(|event| entry.event == *event).unwrap_or(LIFE.len());
            // An evicted Workload waits again in the second in which it has released its quota.
            let is_again = entry.event == Self::PENDING && releases.contains(&entry.time);
            (entry.time, if is_again { LIFE.len() } else { place })
        });
    }

    /// Returns whether the entry is about waiting, and not about a condition that holds.
    pub fn is_of_queue(&self) -> bool {
        [Self::CREATED, Self::PENDING, Self::LEFT_QUEUE, Self::QUOTA_RELEASED].contains(&self.event.as_str())
    }
}

/// State of an admission check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// Name of the AdmissionCheck.
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    pub state: String,
    /// Message of the check.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
}
