//! The kind batch/v1 Job: one pod set, `main`. Partial admission, readiness and reclaimable pods need code.

use super::hooks::{Hooks, ReviewField, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::played_status::{PlayedState, set_at};
use super::read;
use super::role_shape::RoleShape;
use super::row::{
    Active, Count, Elastic, Enabled, FieldPointers, FinishedRule, Flags, Framework, ManagedBy, Message,
    PodGrouping, PodLabel, PodLabels, PodSetSource, Pointer, Rank, Ready, Reclaimable, Role, StatusFields,
    TERMINATING, Test, TopologyChecks,
};
use super::row_parts::{JOB_RBAC, JOB_WEBHOOKS, NAME, PODS};
use super::topology::parse_bool;
use super::view::{Gvk, JobView, PodSetView};
use super::{JobError, batch_job_rules};
use crate::api::names;
use crate::api::validation::Errors;
use crate::lifecycle::conditions::to_api_time;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of pods that run at the same time; 1 when absent.
pub const PARALLELISM: Pointer = "/spec/parallelism";
/// Number of pods that must succeed.
pub const COMPLETIONS: Pointer = "/spec/completions";
/// Whether pods have an index: `Indexed` or `NonIndexed`.
pub const COMPLETION_MODE: Pointer = "/spec/completionMode";

/// Index of a pod of an indexed Job.
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: "batch", version: "v1", kind: "Job", plural: "jobs" },
    name: "batch/job",
    short_names: &[],
    enabled: Enabled::ByDefault,
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
        priority_class: None,
        roles: RoleShape::Template,
    },
    pod_sets: &[PodSetSource::Fixed {
        name: "main",
        template: "/spec/template",
        count: Count::Job { parallelism: PARALLELISM, completions: COMPLETIONS },
    }],
    related: &[],
    pods: PodLabels {
        selector: Some(&[PodLabel { key: "batch.kubernetes.io/job-name", value: NAME }]),
        rank: Rank { index_label: Some(COMPLETION_INDEX), sub_groups: None },
    },
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Complete"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::Counts(&["/status/active", TERMINATING]),
        ready: Ready::Hook,
        reclaimable: Reclaimable::Hook,
    },
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        pod_grouping: PodGrouping::Together,
        completed_pod_sets: false,
        pod_sets_from_spec: true,
        elastic: Elastic::GatedTemplates,
        prebuilt: true,
        resumes_children: false,
        create_rules_on_update: true,
        topology_checks: TopologyChecks::TemplateThenSlices,
        gate: None,
    },
    hooks: &BatchJob,
};

/// Additions to the row.
#[derive(Debug)]
struct BatchJob;

impl Hooks for BatchJob {
    fn review_fields(&self) -> &'static [ReviewField] {
        &[ReviewField::Text(COMPLETION_MODE)]
    }

    fn validate(&self, job: &JobUnderReview<'_>, errors: &mut Errors) {
        batch_job_rules::validate_synced_completions(job, errors);
    }

    fn validate_change(
        &self,
        job: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        batch_job_rules::validate_change(job, old, settings.gates, errors);
    }

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

    fn completions(&self, job: &Value) -> Result<Option<i32>, JobError> {
        read::count(job, COMPLETIONS)
    }

    fn pods_ready(&self, _row: &Framework, job: &Value, view: &JobView) -> Result<bool, JobError> {
        // Succeeded pods are listed here before they are counted in `succeeded`.
        let listed = job.pointer("/status/uncountedTerminatedPods/succeeded").and_then(Value::as_array);
        let uncounted = i32::try_from(listed.map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let ready = view.status.ready_pods.saturating_add(view.status.succeeded_pods);
        Ok(view.pod_sets.iter().all(|set| ready.saturating_add(uncounted) >= set.count))
    }

    /// Returns the pods that are not needed for what can still run: completions that have neither succeeded nor, with a
    /// backoff limit per index, failed. Running pods are never reclaimable.
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
        let ended = ended_completions(job, view)?;
        let remaining = completions.saturating_sub(ended).max(active).max(0);
        let spare = set.count.saturating_sub(remaining);
        if parallelism == 1 || ended == 0 || spare <= 0 {
            return Ok(Vec::new());
        }
        Ok(vec![(Arc::clone(&set.name), spare)])
    }

    /// Partial admission reduces the parallelism, and the completions if the Job keeps both equal. What undoes it raises
    /// completions that are fewer than the pods, whatever the annotation says by then.
    fn count_fields(&self, view: &JobView, set: &PodSetView, count: i32) -> Vec<(Pointer, i32)> {
        if set.count == count {
            return Vec::new();
        }
        let fewer = count < set.count && view.options.completions_follow_parallelism;
        let raised = view.options.completions.is_some_and(|completions| completions < count);
        let completions = (fewer || raised).then_some((COMPLETIONS, count));
        [(PARALLELISM, count)].into_iter().chain(completions).collect()
    }

    /// Counts its pods, which the row leaves to this hook to read, and those that have ended.
    fn play(&self, job: &mut Value, state: PlayedState, now: Timestamp) -> Result<(), JobError> {
        let ready = if state == PlayedState::Ready { pods_at_once(job) } else { 0 };
        set_at(job, "/status/ready", json!(ready));
        let ended = match state {
            PlayedState::Succeeded => "/status/succeeded",
            PlayedState::Failed => "/status/failed",
            PlayedState::Started | PlayedState::Ready | PlayedState::Stopped => return Ok(()),
        };
        let all = read::count(job, COMPLETIONS)?.unwrap_or_else(|| pods_at_once(job));
        set_at(job, ended, json!(all));
        set_at(job, "/status/completionTime", json!(to_api_time(now)));
        Ok(())
    }

    fn waves(&self, job: &Value) -> i32 {
        let pods = pods_at_once(job);
        let all = read::count(job, COMPLETIONS).ok().flatten().unwrap_or(1);
        all.saturating_add(pods).saturating_sub(1).checked_div(pods).unwrap_or(1).max(1)
    }
}

/// Returns how many pods a Job runs at the same time; at least 1, as a Job without pods runs until it has finished.
fn pods_at_once(job: &Value) -> i32 {
    let number = |pointer| read::count(job, pointer).ok().flatten();
    let pods = number(PARALLELISM).unwrap_or(1);
    number(COMPLETIONS).map_or(pods, |all| all.min(pods)).max(1)
}

/// Returns the number of completions for which no pod will run again. A Job with indexes lists them: its counter of
/// succeeded pods also has those of indexes that a change of `completions` has removed.
fn ended_completions(job: &Value, view: &JobView) -> Result<i32, JobError> {
    if read::string(job, "/spec/completionMode")? != Some("Indexed") {
        return Ok(view.status.succeeded_pods);
    }
    let completed = read::string(job, "/status/completedIndexes")?.unwrap_or_default();
    let failed = read::string(job, "/status/failedIndexes")?.unwrap_or_default();
    Ok(index_count(completed).saturating_add(index_count(failed)))
}

/// Returns the number of indexes in a list like `1,3-5,7`. What is no index or interval counts as none.
fn index_count(list: &str) -> i32 {
    let size = |interval: &str| {
        let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
        let (first, last): (i32, i32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1).filter(|size| *size > 0)
    };
    list.split(',').filter_map(size).fold(0, i32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::{JobPatch, TemplateInfo, pod_set_infos};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn indexes_are_counted() {
        for (list, count) in [
            ("", 0),
            ("0", 1),
            ("1,3-5,7", 5),
            ("0-2147483646", 2_147_483_647),
            ("0-2147483646,0-9", i32::MAX),
            ("5-3", 0),
            ("x,2,-,--1,1-", 1),
        ] {
            assert_eq!(index_count(list), count, "{list}");
        }
    }

    /// Between the writes of a stop the Job says that it is not complete, as Kueue's do: whichever manager goes on restores it.
    #[test]
    fn job_is_marked_between_the_writes_of_a_stop() {
        let template = json!({"metadata": {}, "spec": {"containers": []}});
        let mut job = json!({"metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}},
            "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": template}});
        let originals = pod_set_infos(&ROW.pod_sets(&job).unwrap()).unwrap();
        let mut grants = originals.clone();
        let selector = BTreeMap::from([("pool".to_owned(), "p".to_owned())]);
        grants[0].template = Arc::new(TemplateInfo { node_selector: selector, ..TemplateInfo::default() });
        let stopping = |job: &Value| job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"].clone();
        let apply = |job: &mut Value, patches: Vec<JobPatch>| {
            for patch in patches {
                json_patch::merge(job, &patch.at_version("7"));
            }
        };
        for starts_between in [false, true] {
            let start = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants).unwrap();
            apply(&mut job, start);
            job["status"] = json!({"active": 1, "startTime": "2026-01-01T00:00:00Z"});
            let stop = ROW.stop_patches(&ROW.decode(&job).unwrap(), &originals);
            apply(&mut job, stop);
            assert_eq!((&job["spec"]["suspend"], stopping(&job)), (&json!(true), json!("true")));
            job["status"] = json!({"active": 0});
            if !starts_between {
                let restore = ROW.stop_patches(&ROW.decode(&job).unwrap(), &originals);
                apply(&mut job, restore);
                assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"]["pool"], Value::Null);
            }
            let start = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants).unwrap();
            apply(&mut job, start);
            assert_eq!((&job["spec"]["suspend"], stopping(&job)), (&json!(false), Value::Null));
            assert_eq!(job["metadata"]["annotations"]["a"], "b");
            job["spec"]["suspend"] = json!(true);
            let restore = ROW.stop_patches(&ROW.decode(&job).unwrap(), &originals);
            apply(&mut job, restore);
            assert!(ROW.stop_patches(&ROW.decode(&job).unwrap(), &originals).is_empty());
        }
    }
}
