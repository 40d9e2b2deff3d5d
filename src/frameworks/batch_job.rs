//! The job kind batch/v1 Job: one pod set, `main`.

use super::read::{self, malformed};
use super::template::{TemplateInfo, template_patch};
use super::template_fingerprint::pod_set_fingerprint;
use super::topology::{parse_bool, topology_request};
use super::view::{Finished, Gvk, JobStatus, JobView, PodSetInfo, PodSetView};
use super::workload::clean_template;
use super::{JobError, JobKind, JobPatch};
use crate::api::names;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Implementation of [`JobKind`] for batch/v1 Job.
#[derive(Debug)]
pub(super) struct BatchJob;

const MAIN: &str = "main";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Labels that the API server adds to the template of each Job. They identify the Job and are not part of the pod set.
const SERVER_LABELS: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

impl JobKind for BatchJob {
    fn gvk(&self) -> Gvk {
        Gvk { group: "batch", version: "v1", kind: "Job", plural: "jobs" }
    }

    fn framework(&self) -> &'static str {
        "batch/job"
    }

    fn decode_after(&self, job: &Value, before: Option<&JobView>) -> Result<JobView, JobError> {
        let counts = JobPodCounts::read(job)?;
        let common = read::common_view(job)?;
        let same =
            before.filter(|b| b.uid == common.uid && b.generation == common.generation && b.generation > 0);
        let known = same.and_then(|b| b.pod_sets.first());
        let (fingerprint, template) = match known {
            Some(set) => (set.fingerprint, set.template.clone()),
            None => (
                pod_set_fingerprint(&pod_set(job, &counts)?),
                Arc::new(without_server_labels(TemplateInfo::read(job.pointer("/spec/template"))?)),
            ),
        };
        let view = PodSetView {
            name: Arc::from(MAIN),
            count: counts.pods(),
            min_count: counts.min_parallelism,
            fingerprint,
            template,
        };
        let status = status(job, &counts)?;
        Ok(JobView {
            managed_by: read::string(job, "/spec/managedBy")?.map(str::to_owned),
            suspended: read::boolean(job, "/spec/suspend")?.unwrap_or(false),
            completions_follow_parallelism: counts.completions_follow_parallelism,
            elastic: read::string_map(job, "/metadata/annotations")?
                .get(names::ELASTIC_JOB_ANNOTATION)
                .is_some_and(|text| text == "true"),
            pod_sets: vec![view],
            reclaimable_pods: counts.reclaimable(job, &status)?,
            status,
            ..common
        })
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<Value>, JobError> {
        Ok(vec![pod_set(job, &JobPodCounts::read(job)?)?])
    }

    fn run_patch(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Vec<JobPatch>, JobError> {
        if !view.suspended {
            return Ok(Vec::new());
        }
        let (set, info) = single_pod_set(view, infos)?;
        let mut target = (*set.template).clone();
        target.merge(&without_server_labels((*info.template).clone()))?;
        let label = BTreeMap::from([(names::POD_SET_LABEL.to_owned(), set.name.to_string())]);
        target.merge(&TemplateInfo { labels: label, ..TemplateInfo::default() })?;
        // Kueue's webhook adds this gate to elastic Jobs. It is removed because this version never ungates such pods.
        target.scheduling_gates.retain(|gate| gate != names::ELASTIC_JOB_ANNOTATION);
        let mut spec = Map::from_iter([("suspend".to_owned(), Value::Bool(false))]);
        if let Some(patch) = template_patch(&set.template, &target) {
            spec.insert("template".to_owned(), patch);
        }
        spec.extend(count_patch(view, set, info.count));
        Ok(clear_start_time_patch(view)
            .into_iter()
            .chain([JobPatch { status: false, body: json!({ "spec": spec }) }])
            .collect())
    }

    fn stop_patches(&self, view: &JobView, original: &[PodSetInfo]) -> Vec<JobPatch> {
        if !view.suspended {
            return vec![JobPatch { status: false, body: json!({ "spec": { "suspend": true } }) }];
        }
        if let Some(patch) = clear_start_time_patch(view) {
            return vec![patch];
        }
        restore_patch(view, original).into_iter().collect()
    }
}

/// Returns a patch that removes the start time, as the template of a Job is immutable while it is set.
fn clear_start_time_patch(view: &JobView) -> Option<JobPatch> {
    view.status.started.then(|| JobPatch { status: true, body: json!({ "status": { "startTime": null } }) })
}

/// Returns a patch that restores the template. A template without the pod set label was not changed by a start, so it
/// is the user's own and is kept.
fn restore_patch(view: &JobView, original: &[PodSetInfo]) -> Option<JobPatch> {
    let (set, info) = single_pod_set(view, original).ok()?;
    let before = without_server_labels((*info.template).clone());
    if !set.template.labels.contains_key(names::POD_SET_LABEL)
        || before.labels.contains_key(names::POD_SET_LABEL)
    {
        return None;
    }
    let mut spec = count_patch(view, set, info.count);
    if let Some(patch) = template_patch(&set.template, &before) {
        spec.insert("template".to_owned(), patch);
    }
    Some(JobPatch { status: false, body: json!({ "spec": spec }) })
}

/// Returns the fields that partial admission changes: parallelism, and completions if the Job keeps both equal.
fn count_patch(view: &JobView, set: &PodSetView, count: i32) -> Map<String, Value> {
    let mut spec = Map::new();
    if set.min_count.is_some() && set.count != count {
        spec.insert("parallelism".to_owned(), json!(count));
        if view.completions_follow_parallelism {
            spec.insert("completions".to_owned(), json!(count));
        }
    }
    spec
}

fn single_pod_set<'a>(
    view: &'a JobView,
    infos: &'a [PodSetInfo],
) -> Result<(&'a PodSetView, &'a PodSetInfo), JobError> {
    let missing = |name: &str| JobError::PodSetMismatch { name: name.to_owned() };
    if let Some(other) = infos.iter().find(|info| &*info.name != MAIN) {
        return Err(missing(&other.name));
    }
    let set = view.pod_sets.first().ok_or_else(|| missing(MAIN))?;
    Ok((set, infos.first().ok_or_else(|| missing(MAIN))?))
}

fn without_server_labels(mut template: TemplateInfo) -> TemplateInfo {
    template.labels.retain(|key, _| !SERVER_LABELS.contains(&key.as_str()));
    template
}

/// Pod counts that a Job requests.
struct JobPodCounts {
    parallelism: i32,
    completions: Option<i32>,
    min_parallelism: Option<i32>,
    completions_follow_parallelism: bool,
}

impl JobPodCounts {
    fn read(job: &Value) -> Result<Self, JobError> {
        let annotations = read::string_map(job, "/metadata/annotations")?;
        let min = annotations.get(names::JOB_MIN_PARALLELISM_ANNOTATION).and_then(|text| text.parse().ok());
        let follow = annotations.get(names::JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION);
        let mut counts = Self {
            parallelism: read::count(job, "/spec/parallelism")?.unwrap_or(1),
            completions: read::count(job, "/spec/completions")?,
            min_parallelism: None,
            completions_follow_parallelism: follow.and_then(|text| parse_bool(text)).unwrap_or(false),
        };
        counts.min_parallelism = min.filter(|min| (1..=counts.pods()).contains(min));
        Ok(counts)
    }

    /// Returns the number of pods that can run at the same time.
    fn pods(&self) -> i32 {
        self.completions.map_or(self.parallelism, |completions| completions.min(self.parallelism))
    }

    /// Returns the pods that are not needed for the remaining completions. Running pods are never reclaimable.
    fn reclaimable(&self, job: &Value, status: &JobStatus) -> Result<Vec<(Arc<str>, i32)>, JobError> {
        let Some(completions) = self.completions else {
            return Ok(Vec::new());
        };
        let active = read::count(job, "/status/active")?.unwrap_or(0);
        let remaining = completions.saturating_sub(status.succeeded_pods).max(active).max(0);
        let spare = self.pods().saturating_sub(remaining);
        if self.parallelism == 1 || status.succeeded_pods == 0 || spare <= 0 {
            return Ok(Vec::new());
        }
        Ok(vec![(Arc::from(MAIN), spare)])
    }
}

fn status(job: &Value, counts: &JobPodCounts) -> Result<JobStatus, JobError> {
    let number = |pointer: &str| Ok::<_, JobError>(read::count(job, pointer)?.unwrap_or(0));
    let (ready, succeeded) = (number("/status/ready")?, number("/status/succeeded")?);
    // Succeeded pods are listed here before they are counted in `succeeded`.
    let listed = job.pointer("/status/uncountedTerminatedPods/succeeded").and_then(Value::as_array);
    let uncounted = i32::try_from(listed.map_or(0, Vec::len)).unwrap_or(i32::MAX);
    let complete = read::true_condition(job, "Complete")?.map(|message| (true, message));
    let failed = read::true_condition(job, "Failed")?.map(|message| (false, message));
    Ok(JobStatus {
        active_pods: number("/status/active")?.saturating_add(number("/status/terminating")?),
        ready_pods: ready,
        succeeded_pods: succeeded,
        started: read::string(job, "/status/startTime")?.is_some(),
        has_suspended_condition: read::true_condition(job, "Suspended")?.is_some(),
        finished: complete
            .or(failed)
            .map(|(success, message)| Finished { success, message: message.to_owned() }),
        pods_ready: ready.saturating_add(succeeded).saturating_add(uncounted) >= counts.pods(),
    })
}

fn pod_set(job: &Value, counts: &JobPodCounts) -> Result<Value, JobError> {
    let raw = job.pointer("/spec/template").filter(|template| template.is_object());
    let raw = raw.ok_or_else(|| malformed("/spec/template", "is required"))?;
    let annotations = read::string_map(raw, "/metadata/annotations")?;
    let mut template = clean_template(raw);
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !SERVER_LABELS.contains(&key.as_str()));
    }
    let mut set = Map::from_iter([
        ("name".to_owned(), json!(MAIN)),
        ("template".to_owned(), template),
        ("count".to_owned(), json!(counts.pods())),
    ]);
    if let Some(min) = counts.min_parallelism {
        set.insert("minCount".to_owned(), json!(min));
    }
    set.insert("topologyRequest".to_owned(), topology_request(&annotations, COMPLETION_INDEX)?);
    Ok(Value::Object(set))
}
