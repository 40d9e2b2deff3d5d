//! The kind batch/v1 Job: one pod set, `main`. Partial admission, readiness and reclaimable pods need code.

use super::JobError;
use super::hooks::Hooks;
use super::read;
use super::row::{
    Active, Count, Family, FieldPointers, FinishedRule, Flags, Framework, Listing, ManagedBy, Message,
    PodSetSource, Pointer, Rank, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::table::{JOB_RBAC, JOB_WEBHOOKS, PODS};
use super::topology::parse_bool;
use super::view::{Gvk, JobView, PodSetView};
use crate::api::names;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of pods that run at the same time; 1 when absent.
pub const PARALLELISM: Pointer = "/spec/parallelism";
/// Number of pods that must succeed.
pub const COMPLETIONS: Pointer = "/spec/completions";
/// Whether pods have an index: `Indexed` or `NonIndexed`.
pub const COMPLETION_MODE: Pointer = "/spec/completionMode";

/// Index of a pod of an indexed Job.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) const ROW: Framework = Framework {
    gvk: Gvk { group: "batch", version: "v1", kind: "Job", plural: "jobs" },
    name: "batch/job",
    listing: Listing { family: Family::Batch, label: "Job" },
    served: true,
    role: Role::Suspended,
    fields: FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy { field: "/spec/managedBy", built_in: "kubernetes.io/job-controller" }),
        start_time: Some("/status/startTime"),
        server_labels: &[
            "batch.kubernetes.io/controller-uid",
            "batch.kubernetes.io/job-name",
            "controller-uid",
            "job-name",
        ],
    },
    pod_sets: PodSetSource::Fixed {
        name: "main",
        template: "/spec/template",
        count: Count::Job { parallelism: PARALLELISM, completions: COMPLETIONS },
    },
    rank: Rank { index_label: Some(COMPLETION_INDEX), sub_groups: None },
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Complete"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::Counts(&["/status/active", "/status/terminating"]),
        ready: Ready::Hook,
        reclaimable: Reclaimable::Hook,
    },
    priority_class: None,
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        pod_sets_from_spec: true,
        elastic: true,
        prebuilt: true,
        create_rules_on_update: true,
        topology_checks: TopologyChecks::Templates,
    },
    hooks: &BatchJob,
};

/// Additions to the row.
#[derive(Debug)]
struct BatchJob;

impl Hooks for BatchJob {
    fn min_count(&self, job: &Value, count: i32) -> Result<Option<i32>, JobError> {
        let annotations = read::string_map(job, "/metadata/annotations")?;
        let min = annotations.get(names::JOB_MIN_PARALLELISM_ANNOTATION).and_then(|text| text.parse().ok());
        Ok(min.filter(|min| (1..=count).contains(min)))
    }

    fn completions_follow_parallelism(&self, job: &Value) -> Result<bool, JobError> {
        let annotations = read::string_map(job, "/metadata/annotations")?;
        let follow = annotations.get(names::JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION);
        Ok(follow.and_then(|text| parse_bool(text)).unwrap_or(false))
    }

    fn pods_ready(&self, _row: &Framework, job: &Value, view: &JobView) -> Result<bool, JobError> {
        // Succeeded pods are listed here before they are counted in `succeeded`.
        let listed = job.pointer("/status/uncountedTerminatedPods/succeeded").and_then(Value::as_array);
        let uncounted = i32::try_from(listed.map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let ready = view.status.ready_pods.saturating_add(view.status.succeeded_pods);
        Ok(view.pod_sets.iter().all(|set| ready.saturating_add(uncounted) >= set.count))
    }

    /// Returns the pods that are not needed for the remaining completions. Running pods are never reclaimable.
    fn reclaimable_pods(
        &self,
        _row: &Framework,
        job: &Value,
        view: &JobView,
    ) -> Result<Vec<(Arc<str>, i32)>, JobError> {
        let (Some(completions), Some(set)) = (read::count(job, COMPLETIONS)?, view.pod_sets.first()) else {
            return Ok(Vec::new());
        };
        let parallelism = read::count(job, PARALLELISM)?.unwrap_or(1);
        let active = read::count(job, "/status/active")?.unwrap_or(0);
        let succeeded = view.status.succeeded_pods;
        let remaining = completions.saturating_sub(succeeded).max(active).max(0);
        let spare = set.count.saturating_sub(remaining);
        if parallelism == 1 || succeeded == 0 || spare <= 0 {
            return Ok(Vec::new());
        }
        Ok(vec![(Arc::clone(&set.name), spare)])
    }

    /// Partial admission changes the parallelism, and the completions if the Job keeps both equal.
    fn count_fields(&self, view: &JobView, set: &PodSetView, count: i32) -> Vec<(Pointer, i32)> {
        let mut fields = Vec::new();
        if set.min_count.is_some() && set.count != count {
            fields.push((PARALLELISM, count));
            if view.completions_follow_parallelism {
                fields.push((COMPLETIONS, count));
            }
        }
        fields
    }
}
