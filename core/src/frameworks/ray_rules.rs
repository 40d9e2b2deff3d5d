//! Rules of the webhooks of KubeRay's kinds, beyond those for every job. They hold for jobs that name a queue.

use super::hooks::{Hooks as _, ReviewScope, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::ray::{BY_JOB, CLUSTER_SELECTOR, HEAD, Ray, RayRole, SHUTS_DOWN, SUBMISSION_MODE};
use super::workload::MAX_POD_SETS;
use crate::api::names::{ELASTIC_JOB_ANNOTATION, MULTIKUEUE_CONTROLLER};
use crate::api::validation::{Errors, FieldError};
use serde_json::Value;

/// Returns which rules a job is checked by: of a change, none if no queue is named before or after it. A RayJob that selects a
/// cluster, or has none, is not checked any further.
pub(super) fn scope(
    ray: &Ray,
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    settings: RuleSettings<'_>,
) -> ReviewScope {
    if !settings.concerns(job, old) {
        return ReviewScope::Nothing;
    }
    if ray.role != RayRole::Job || !settings.manages(job) {
        return ReviewScope::Full;
    }
    let selector = job.part(CLUSTER_SELECTOR).and_then(Value::as_object).filter(|labels| !labels.is_empty());
    let faults = match (selector, job.part(ray.cluster)) {
        (Some(labels), Some(_)) => {
            let detail = "a kueue managed job should not use an existing cluster";
            vec![FieldError::invalid("spec.clusterSelector", Value::Object(labels.clone()), detail)]
        }
        (Some(_), None) => Vec::new(),
        (None, None) => {
            let detail = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
            vec![FieldError::required("spec.rayClusterSpec", detail)]
        }
        (None, Some(_)) => return ReviewScope::Full,
    };
    ReviewScope::Changes(faults)
}

/// Checks a job that is managed.
pub(super) fn validate(ray: &Ray, job: &JobUnderReview<'_>, settings: RuleSettings<'_>, errors: &mut Errors) {
    if !settings.manages(job) {
        return;
    }
    if ray.role == RayRole::Job && !job.is_true(SHUTS_DOWN) {
        let detail = "a kueue managed job should delete the cluster after finishing";
        errors.push(FieldError::invalid("spec.shutdownAfterJobFinishes", false, detail));
    }
    let path = |field: &str| format!("{}.{field}", ray.shown);
    let elastic = job.elastic(settings.gates);
    let autoscaling = job.is_true(ray.fields.autoscaling);
    if autoscaling && !elastic {
        let detail = format!("is possible only with the annotation {ELASTIC_JOB_ANNOTATION}: \"true\"");
        errors.push(FieldError::invalid(path("enableInTreeAutoscaling"), true, detail));
    }
    if ray.role == RayRole::Cluster && elastic {
        validate_elastic(job, errors);
        if autoscaling && job.managed_by == Some(MULTIKUEUE_CONTROLLER) {
            let detail = "is not supported for a RayCluster that MultiKueue manages";
            errors.push(FieldError::forbidden(path("enableInTreeAutoscaling"), detail));
        }
    }
    let submitter = ray.role == RayRole::Job && job.text(SUBMISSION_MODE).is_none_or(|mode| mode == BY_JOB);
    let pod_sets = job.pod_sets.len().saturating_add(usize::from(submitter));
    if pod_sets > MAX_POD_SETS {
        errors.push(FieldError::too_many(path("workerGroupSpecs"), pod_sets, MAX_POD_SETS));
    }
    for name in job.pod_sets.iter().filter_map(|set| set.name.as_ref()).filter(|name| *name.value == HEAD) {
        let detail = format!("{HEAD:?} is the name of the head group");
        errors.push(FieldError::forbidden(ray.shown_path(name.path.clone().into_owned()), detail));
    }
}

/// Checks that each template has the gate that holds the pods of a cluster until their slice is admitted.
fn validate_elastic(job: &JobUnderReview<'_>, errors: &mut Errors) {
    for set in job.pod_sets.iter().filter(|set| !set.has_gate(ELASTIC_JOB_ANNOTATION)) {
        let gates = &set.gates;
        let detail = format!("must have the gate {ELASTIC_JOB_ANNOTATION}");
        errors.push(FieldError::invalid(gates.path.clone().into_owned(), gates.value.clone(), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::super::hooks::ManagedJobs;
    use super::super::ray::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};
    use super::super::row::Framework;
    use super::*;
    use crate::api::names::QUEUE_NAME_LABEL;
    use crate::api::validation::Gates;
    use serde_json::json;

    /// Returns paths and kinds of the faults of a new object, or `None` if no rule holds.
    fn faults(row: &'static Framework, object: &Value, old: Option<&Value>) -> Option<Vec<String>> {
        let read = |object| JobUnderReview::read(row, object, &mut Errors::new());
        let (job, old) = (read(object), old.map(read));
        let gates = Gates::default();
        let settings = RuleSettings {
            gates: &gates,
            managed: ManagedJobs::WithQueue,
            related: &super::super::NothingRelated,
        };
        let mut errors = Errors::new();
        match row.hooks.review_scope(&job, old.as_ref(), settings) {
            ReviewScope::Nothing => return None,
            ReviewScope::Changes(faults) => errors.extend(faults),
            ReviewScope::Full => row.hooks.validate_change(&job, old.as_ref(), settings, &mut errors),
        }
        let show = |error: &FieldError| error.to_string().split(": ").take(2).collect::<Vec<_>>().join(" ");
        Some(errors.take().iter().map(show).collect())
    }

    fn queued(spec: &Value) -> Value {
        json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "q"}}, "spec": spec})
    }

    fn cluster(groups: usize) -> Value {
        let group = |index: usize| json!({"groupName": format!("g{index}"), "template": {}});
        json!({"headGroupSpec": {"template": {}}, "workerGroupSpecs": (0..groups).map(group).collect::<Vec<_>>()})
    }

    #[test]
    fn clusters_are_checked_where_a_kind_has_them() {
        let mut bad = cluster(18);
        bad["enableInTreeAutoscaling"] = json!(true);
        bad["workerGroupSpecs"][2]["groupName"] = json!("head");
        let at = |prefix: &str| {
            [
                "enableInTreeAutoscaling Invalid value",
                "workerGroupSpecs Too many",
                "workerGroupSpecs[2].groupName Forbidden",
            ]
            .map(|fault| format!("{prefix}.{fault}"))
        };
        let service = queued(&json!({"rayClusterConfig": bad}));
        assert_eq!(faults(&RAY_SERVICE, &service, None).unwrap(), at("spec.rayClusterSpec"));
        let job = queued(&json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": bad}));
        assert_eq!(faults(&RAY_JOB, &job, None).unwrap(), at("spec.rayClusterSpec"));
        let cluster = queued(&bad);
        assert_eq!(faults(&RAY_CLUSTER, &cluster, None).unwrap(), at("spec"));
        // The submitter of a RayJob has a pod set as well, as far as a Job submits it.
        let submitted = |mode: &str| {
            let spec = json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": self::cluster(17), "submissionMode": mode});
            faults(&RAY_JOB, &queued(&spec), None).unwrap()
        };
        assert_eq!(submitted(BY_JOB), [at("spec.rayClusterSpec")[1].clone()]);
        assert_eq!(submitted("HTTPMode"), Vec::<String>::new());
        // Without a queue they are their user's own.
        let mut own = cluster.clone();
        own["metadata"] = json!({});
        assert_eq!(faults(&RAY_CLUSTER, &own, None), Some(Vec::new()));
        assert_eq!(faults(&RAY_CLUSTER, &own, Some(&own)), None);
        assert_eq!(faults(&RAY_CLUSTER, &own, Some(&cluster)), Some(Vec::new()));
    }

    #[test]
    fn cluster_without_a_head_gets_an_empty_one() {
        let paths = |row: &Framework, spec: Value| -> Vec<String> {
            let changes = row.hooks.defaults(&queued(&spec), &Gates::default());
            changes.iter().map(|change| change.path.join(".")).collect()
        };
        let (whole, headless) = (cluster(1), json!({"headGroupSpec": null, "workerGroupSpecs": []}));
        let none: [&str; 0] = [];
        assert_eq!(paths(&RAY_CLUSTER, whole.clone()), none);
        assert_eq!(paths(&RAY_CLUSTER, headless.clone()), ["spec.headGroupSpec"]);
        assert_eq!(paths(&RAY_SERVICE, json!({})), ["spec.rayClusterConfig.headGroupSpec"]);
        assert_eq!(
            paths(&RAY_JOB, json!({"rayClusterSpec": headless})),
            ["spec.rayClusterSpec.headGroupSpec"]
        );
        assert_eq!(paths(&RAY_JOB, json!({"rayClusterSpec": whole})), none);
        assert_eq!(paths(&RAY_JOB, json!({"clusterSelector": {"a": "b"}})), none);
    }

    #[test]
    fn jobs_bring_a_cluster_or_select_one() {
        let selects = json!({"ray.io/cluster": "c"});
        let check = |spec: Value| faults(&RAY_JOB, &queued(&spec), None).unwrap();
        assert_eq!(check(json!({})), ["spec.rayClusterSpec Required value"]);
        assert_eq!(check(json!({"clusterSelector": selects})), Vec::<String>::new());
        let both = json!({"clusterSelector": selects, "rayClusterSpec": cluster(1)});
        assert_eq!(check(both), ["spec.clusterSelector Invalid value"]);
        assert_eq!(
            check(json!({"rayClusterSpec": cluster(1)})),
            ["spec.shutdownAfterJobFinishes Invalid value"]
        );
    }
}
