//! Findings of an audit: configurations that cannot work as written.

use super::answer::{AmountView, ViewMetadata};
use super::verdict::OptionNumber;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A name made of check and object, the same in every answer.
    pub metadata: ViewMetadata,
    /// The check that found it.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// The object.
    pub object: FindingObject,
    /// As a sentence without a full stop.
    pub message: String,
    /// The numbers behind it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, OptionNumber>,
    /// Workloads that it keeps from being admitted, by classes that are alike; the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadClass>,
    /// What it leads to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub consequence: String,
    /// How to correct it: a command that runs as it stands, what to do, or both with `; ` between them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub correction: String,
}

impl Finding {
    /// Returns the command of the correction, and further instructions; each may be empty.
    pub fn command_and_advice(&self) -> (&str, &str) {
        let is_command = ["kubectl ", "sluice "].iter().any(|start| self.correction.starts_with(start));
        match self.correction.split_once("; ") {
            Some((command, advice)) if is_command => (command, advice),
            None if is_command => (&self.correction, ""),
            _ => ("", &self.correction),
        }
    }
}

/// The object of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingObject {
    /// Kind.
    pub kind: String,
    /// Namespace; empty for objects of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl FindingObject {
    /// Returns the name, after the namespace if there is one: `NAMESPACE/NAME`.
    pub fn full_name(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

/// Workloads that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadClass {
    /// Namespace of the workloads.
    pub namespace: String,
    /// Name of the first of them.
    pub first: String,
    /// Number of workloads.
    pub count: u64,
}

/// How bad a finding is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Something cannot work.
    Error,
    /// Something probably does not do what was meant.
    Warning,
    /// Something has no effect.
    Note,
}

impl Severity {
    /// Returns the word for the severity.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Number of findings by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingCounts {
    /// Errors.
    pub errors: u64,
    /// Warnings.
    pub warnings: u64,
    /// Notes.
    pub notes: u64,
}

macro_rules! checks {
    ($($variant:ident $code:literal $severity:ident $text:literal,)*) => {
        /// The checks of an audit, in the order in which their findings are shown.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Check {
            $(#[doc = $text] #[serde(rename = $code)] $variant,)*
        }

        impl Check {
            /// All checks.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code of the check.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// Returns the severity of its findings.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// Returns the description of the check.
            pub const fn describe(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

checks! {
    WorkloadNeverFits "workload-never-fits" Error "Workloads can never be admitted: no empty quota or node takes them, or one before them.",
    QuotaExceedsCapacity "quota-exceeds-capacity" Error
        "The nominal quotas of a flavor-resource exceed the schedulable capacity of its nodes.",
    CohortSingleMember "cohort-single-member" Error
        "A cohort without a Cohort object has one member, and another has a similar name.",
    CohortCycle "cohort-cycle" Error "The parents of a cohort form a cycle.",
    ClusterQueueNoFlavor "clusterqueue-no-flavor" Error "A ClusterQueue has no resource groups.",
    ClusterQueueInactive "clusterqueue-inactive" Error
        "A ClusterQueue is inactive for a reason that needs a change.",
    LocalQueueMissing "localqueue-missing" Error "Workloads name a LocalQueue that does not exist.",
    LocalQueueOrphan "localqueue-orphan" Error "A LocalQueue names a ClusterQueue that does not exist.",
    LocalQueueExcluded "localqueue-excluded" Error
        "The namespaceSelector of a ClusterQueue does not match the namespace of a LocalQueue.",
    FlavorMissing "flavor-missing" Error "A ClusterQueue or Cohort names a flavor that does not exist.",
    CheckUnanswered "check-unanswered" Error
        "An AdmissionCheck has no active controller, or has been pending for more than an hour.",
    TopologyLevelMissing "topology-level-missing" Error "Nodes of a flavor lack a level label of its Topology.",
    RequestExceedsNode "request-exceeds-node" Warning "A pod fits the quota, but no node of the flavor.",
    FlavorWithoutNodes "flavor-without-nodes" Warning "No node matches the labels of a flavor.",
    FlavorUntolerated "flavor-untolerated" Warning
        "Nodes have a taint that neither the flavor nor any pending pod tolerates.",
    ClusterQueueUnreachable "clusterqueue-unreachable" Warning
        "A ClusterQueue has no LocalQueue, or its namespace selector matches no namespace.",
    LocalQueueBlocked "localqueue-blocked" Warning
        "New workloads of a LocalQueue would be behind one that can never be admitted; only the findings of a namespace have it.",
    PriorityClassMissing "priority-class-missing" Warning
        "Jobs name a WorkloadPriorityClass that does not exist.",
    JobUnmanaged "job-unmanaged" Warning
        "Jobs of a managed namespace run without a queue name, or their kind is not supported.",
    JobChargedTooLittle "job-charged-too-little" Warning
        "Jobs run with more than an earlier version of the manager charged them.",
    Starved "starved" Warning
        "A ClusterQueue below its nominal quota waits for more than ten minutes while a sibling borrows.",
    WorkloadKeptOut "workload-kept-out" Note
        "The state of an object keeps workloads out: a stopped queue, a gate, or their own.",
    LocalQueueStopped "localqueue-stopped" Note
        "A LocalQueue is stopped; only the findings of a namespace have it.",
    QuotaBelowCapacity "quota-below-capacity" Note "More than 5 % of the capacity of a flavor has no quota.",
    LendingUseless "lending-useless" Note
        "A lending limit has no effect: there is no cohort, or it is above the nominal quota.",
    BorrowingUseless "borrowing-useless" Note
        "A borrowing limit has no effect: there is no cohort, or it is above what the tree has.",
    PreemptionAsymmetric "preemption-asymmetric" Note
        "A ClusterQueue lends to others that take their quota back, and never takes its own back.",
    LocalQueueIdle "localqueue-idle" Note
        "A LocalQueue that is older than 30 days has no workload, and none was recorded for a day.",
}

impl From<AmountView> for OptionNumber {
    fn from(amount: AmountView) -> Self {
        Self::Amount(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_apart_from_what_to_do() {
        for (correction, command, advice) in [
            (
                "kubectl edit clusterqueue q; change spec.resourceGroups",
                "kubectl edit clusterqueue q",
                "change spec.resourceGroups",
            ),
            ("kubectl describe admissioncheck c", "kubectl describe admissioncheck c", ""),
            ("lower nominal quotas; or add nodes", "", "lower nominal quotas; or add nodes"),
            ("", "", ""),
        ] {
            let finding = Finding {
                metadata: ViewMetadata::default(),
                check: Check::Starved,
                severity: Severity::Note,
                object: FindingObject::default(),
                message: String::new(),
                evidence: BTreeMap::new(),
                workloads: Vec::new(),
                consequence: String::new(),
                correction: correction.to_owned(),
            };
            assert_eq!(finding.command_and_advice(), (command, advice));
        }
    }
}
