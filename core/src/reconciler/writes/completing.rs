//! Workloads whose pods were all ready until some succeeded, and when that was first seen.
//!
//! Invariant: only admitted Workloads whose status still says that their pods are ready are stored. So a lost readiness is
//! written once, when the time since then has expired, however often that write fails.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::lifecycle::conditions;
use crate::lifecycle::pods_ready::Readiness;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The Workloads, with the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletingWorkloads(BTreeMap<ObjectKey, Timestamp>);

impl CompletingWorkloads {
    /// Returns since when pods of a Workload have been seen to succeed.
    pub(crate) fn since(&self, workload: &ObjectKey) -> Option<Timestamp> {
        self.0.get(workload).copied()
    }

    /// Remembers a Workload while its status says that its pods are ready.
    pub(crate) fn record(&mut self, workload: &ObjectKey, status: &WorkloadStatus, readiness: Readiness) {
        let holds = |kind| conditions::is_true(status, kind);
        match readiness {
            Readiness::CompletingSince(since)
                if holds(ConditionType::PodsReady) && !holds(ConditionType::Finished) =>
            {
                self.0.insert(workload.clone(), since);
            }
            Readiness::CompletingSince(_) | Readiness::NotReady | Readiness::NoPods | Readiness::Ready => {
                self.remove(workload);
            }
        }
    }

    pub(crate) fn remove(&mut self, workload: &ObjectKey) {
        self.0.remove(workload);
    }
}
