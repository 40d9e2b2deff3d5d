//! Status of a job, by the rules of its row.

use super::JobError;
use super::read;
use super::row::{Active, FinishedRule, Framework, Message, Ready, Reclaimable, Test};
use super::view::{Finished, JobHold, JobStatus, JobView};
use serde_json::Value;
use std::sync::Arc;

/// Reads the status of a job, without whether its pods are ready.
pub(super) fn read_status(row: &Framework, job: &Value) -> Result<JobStatus, JobError> {
    let number = |pointer: &str| Ok::<_, JobError>(read::count(job, pointer)?.unwrap_or(0));
    let (ready, succeeded) = (number("/status/ready")?, number("/status/succeeded")?);
    let started = row.fields.start_time.map(|pointer| read::string(job, pointer)).transpose()?.flatten();
    Ok(JobStatus {
        reclaimable_pods: Vec::new(),
        active_pods: active(row, job)?,
        ready_pods: ready,
        succeeded_pods: succeeded,
        started: started.is_some(),
        finished: finished(row, job)?,
        pods_ready: false,
        hold: JobHold::Unknown,
        replicas: 1,
        rolls: false,
    })
}

fn active(row: &Framework, job: &Value) -> Result<i32, JobError> {
    match row.status.active {
        Active::Counts(pointers) => pointers
            .iter()
            .try_fold(0_i32, |sum, pointer| Ok(sum.saturating_add(read::count(job, pointer)?.unwrap_or(0)))),
        Active::SumOver(list, field) => sum_over(job, list, &[field]),
        Active::When(test) => Ok(i32::from(test.holds(job)?)),
    }
}

/// Returns the sum of counts over the entries of an array or map.
fn sum_over(job: &Value, list: &str, fields: &[&str]) -> Result<i32, JobError> {
    let mut sum = 0_i32;
    for entry in read::entries(job, list)? {
        for field in fields {
            sum = sum.saturating_add(read::count(entry, field)?.unwrap_or(0));
        }
    }
    Ok(sum)
}

fn finished(row: &Framework, job: &Value) -> Result<Option<Finished>, JobError> {
    for rule in row.status.finished {
        if rule.when.holds(job)? {
            let message = message(rule, job)?.to_owned();
            return Ok(Some(Finished { success: rule.success, message }));
        }
    }
    Ok(None)
}

fn message<'a>(rule: &FinishedRule, job: &'a Value) -> Result<&'a str, JobError> {
    let text = match (rule.message, rule.when) {
        (Message::OfCondition, Test::Condition(type_)) => read::true_condition(job, type_)?,
        (Message::OfCondition, _) => None,
        (Message::Field(pointer), _) => read::string(job, pointer)?,
        (Message::Text(text), _) => Some(text),
    };
    Ok(text.unwrap_or_default())
}

impl Test {
    /// Returns whether the test holds for an object.
    pub(super) fn holds(&self, job: &Value) -> Result<bool, JobError> {
        Ok(match self {
            Self::Condition(type_) => read::true_condition(job, type_)?.is_some(),
            Self::Text(pointer, texts) => texts.contains(&read::string(job, pointer)?.unwrap_or_default()),
            Self::NotTrue(type_) => {
                read::condition_status(job, type_)?.is_some_and(|status| status != "True")
            }
            Self::Not(test) => !test.holds(job)?,
            Self::All(tests) => {
                for test in *tests {
                    if !test.holds(job)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Any(tests) => {
                for test in *tests {
                    if test.holds(job)? {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }
}

/// Returns whether the row says that all pods are ready or have succeeded.
pub(super) fn pods_ready(row: &Framework, job: &Value, view: &JobView) -> Result<bool, JobError> {
    match row.status.ready {
        Ready::When(test) => test.holds(job),
        Ready::SubGroupsOf(list) => {
            let groups = view.pod_sets.iter().filter_map(|set| set.sub_groups);
            let wanted = groups.fold(0_i32, i32::saturating_add);
            let known = !view.pod_sets.is_empty();
            Ok(known && sum_over(job, list, &["/ready", "/succeeded"])? == wanted)
        }
        Ready::Hook => Ok(false),
    }
}

/// Returns the reclaimable pods that the row names.
pub(super) fn reclaimable_pods(
    row: &Framework,
    job: &Value,
    view: &JobView,
) -> Result<Vec<(Arc<str>, i32)>, JobError> {
    let list = match row.status.reclaimable {
        Reclaimable::SubGroupsOf(list) => list,
        Reclaimable::None | Reclaimable::Hook => return Ok(Vec::new()),
    };
    let mut succeeded = Vec::new();
    for entry in read::entries(job, list)? {
        let name = read::string(entry, "/name")?.unwrap_or_default().to_lowercase();
        succeeded.push((name, read::count(entry, "/succeeded")?.unwrap_or(0)));
    }
    let mut reclaimable = Vec::new();
    for set in &view.pod_sets {
        let groups = set.sub_groups.unwrap_or(0);
        let done = succeeded.iter().find(|(name, _)| **name == *set.name).map_or(0, |(_, done)| *done);
        if done > 0 && done <= groups {
            let pods = set.count.checked_div(groups).unwrap_or(0).saturating_mul(done);
            reclaimable.push((Arc::clone(&set.name), pods));
        }
    }
    Ok(reclaimable)
}

#[cfg(test)]
mod tests {
    use super::super::framework;
    use super::*;
    use serde_json::json;

    #[test]
    fn status_cases() {
        let state = |state: &str| json!({"state": state});
        let condition =
            |type_: &str| json!({"conditions": [{"type": type_, "status": "True", "message": "m"}]});
        let suspended = |state: &str, status: &str| {
            json!({"state": state, "conditions": [
            {"type": "RayClusterSuspended", "status": status}]})
        };
        let ray =
            |state: &str, job: &str| json!({"jobDeploymentStatus": state, "jobStatus": job, "message": "r"});
        let spark = |state: &str| json!({"applicationState": {"state": state, "errorMessage": "e"}});
        // Group, kind, status, whether it is active and ready, success and message of a finished job.
        let table = [
            ("ray.io", "RayCluster", state("ready"), true, true, None),
            ("ray.io", "RayCluster", state("failed"), false, false, None),
            ("ray.io", "RayCluster", state(""), false, false, None),
            // Its pods start, or end.
            ("ray.io", "RayCluster", suspended("", "False"), true, false, None),
            ("ray.io", "RayCluster", suspended("suspended", "False"), true, false, None),
            ("ray.io", "RayCluster", suspended("ready", "False"), true, true, None),
            ("ray.io", "RayCluster", suspended("suspended", "True"), false, false, None),
            ("ray.io", "RayService", condition("Ready"), true, true, None),
            ("ray.io", "RayJob", json!({}), false, false, None),
            ("ray.io", "RayJob", ray("Suspended", ""), false, false, None),
            ("ray.io", "RayJob", ray("Running", "RUNNING"), true, false, None),
            ("ray.io", "RayJob", json!({"rayClusterStatus": state("ready")}), false, true, None),
            ("ray.io", "RayJob", ray("Complete", "SUCCEEDED"), true, false, Some((true, "r"))),
            ("ray.io", "RayJob", ray("Complete", "FAILED"), true, false, Some((false, "r"))),
            ("trainer.kubeflow.org", "TrainJob", condition("Complete"), false, false, Some((true, "m"))),
            ("trainer.kubeflow.org", "TrainJob", json!({"jobsStatus": [{"active": 2}]}), true, false, None),
            ("workload.codeflare.dev", "AppWrapper", condition("PodsReady"), false, true, None),
            ("workload.codeflare.dev", "AppWrapper", condition("QuotaReserved"), true, false, None),
            (
                "workload.codeflare.dev",
                "AppWrapper",
                json!({"phase": "Failed"}),
                false,
                false,
                Some((false, "AppWrapper failed")),
            ),
            (
                "workload.codeflare.dev",
                "AppWrapper",
                json!({"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "True"}]}),
                false,
                false,
                None,
            ),
            ("sparkoperator.k8s.io", "SparkApplication", spark("RUNNING"), true, false, None),
            ("sparkoperator.k8s.io", "SparkApplication", spark("FAILED"), false, false, Some((false, "e"))),
        ];
        for (group, kind, status, active, ready, finished) in table {
            let row = framework(group, kind).unwrap();
            let job = json!({"metadata": {"name": "j", "uid": "u"}, "status": status});
            let view = read::common_view(&job).unwrap();
            let read = read_status(row, &job).unwrap();
            assert_eq!(read.active_pods > 0, active, "{kind} {job}");
            assert_eq!(pods_ready(row, &job, &view).unwrap(), ready, "{kind} {job}");
            let result = read.finished.as_ref().map(|result| (result.success, result.message.as_str()));
            assert_eq!(result, finished, "{kind} {job}");
        }
    }
}
