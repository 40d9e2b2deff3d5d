//! What the status of a batch/v1 Job says.

use crate::fixtures::job_samples::stored;
use serde_json::{Value, json};
use sluice_core::frameworks::{Framework, framework};

/// The row of batch/v1 Job, and its sample.
fn batch_job() -> (&'static Framework, Value) {
    let kind = framework("batch", "Job").unwrap();
    (kind, stored(kind))
}

#[test]
fn uncounted_succeeded_pod_counts_as_ready() {
    let (kind, mut job) = batch_job();
    job["spec"]["parallelism"] = json!(1);
    job["spec"]["completions"] = json!(1);
    job["status"] = json!({"ready": 0, "uncountedTerminatedPods": {"succeeded": ["a"]}});
    assert!(kind.decode(&job).unwrap().status.pods_ready);
}

#[test]
fn finished_job_stays_finished() {
    let (kind, sample) = batch_job();
    for (type_, success) in [("Complete", true), ("Failed", false)] {
        let mut job = sample.clone();
        job["status"]["conditions"] = json!([
            { "type": "SuccessCriteriaMet", "status": "True" },
            { "type": type_, "status": "True", "message": "done" },
        ]);
        let finished = kind.decode(&job).unwrap().status.finished.unwrap();
        assert_eq!((finished.success, finished.message.as_str()), (success, "done"));
        job["spec"]["suspend"] = json!(false);
        job["status"]["active"] = json!(1);
        assert!(kind.decode(&job).unwrap().status.finished.is_some());
    }
}

#[test]
fn pods_beyond_completions_are_reclaimable() {
    let (kind, sample) = batch_job();
    let reclaimable = |parallelism: i32, completions: i32, succeeded: i32, active: i32| {
        let mut job = sample.clone();
        job["spec"]["parallelism"] = json!(parallelism);
        job["spec"]["completions"] = json!(completions);
        job["status"] = json!({ "succeeded": succeeded, "active": active });
        kind.decode(&job).unwrap().status.reclaimable_pods.first().map_or(0, |(_, count)| *count)
    };
    assert_eq!(reclaimable(5, 9, 3, 5), 0);
    assert_eq!(reclaimable(5, 9, 6, 3), 2);
    assert_eq!(reclaimable(5, 3, 1, 2), 1);
    assert_eq!(reclaimable(5, 9, 9, 0), 5);
    assert_eq!(reclaimable(1, 9, 9, 0), 0);
    assert_eq!(reclaimable(5, 9, 6, 4), 1, "a pod that still runs is not reclaimable");
}

#[test]
fn ended_indexes_are_reclaimable() {
    let (kind, sample) = batch_job();
    let reclaimable = |completed: &str, failed: &str, succeeded: i32, active: i32| {
        let mut job = sample.clone();
        job["spec"]["completionMode"] = json!("Indexed");
        job["spec"]["parallelism"] = json!(3);
        job["spec"]["completions"] = json!(3);
        job["status"] = json!({"completedIndexes": completed, "failedIndexes": failed, "succeeded": succeeded,
            "active": active});
        kind.decode(&job).unwrap().status.reclaimable_pods.first().map_or(0, |(_, count)| *count)
    };
    assert_eq!(reclaimable("1", "0", 1, 1), 2, "a failed and a completed index of three");
    assert_eq!(reclaimable("", "0", 0, 2), 1, "a failed index alone");
    assert_eq!(reclaimable("0", "", 3, 2), 1, "two of the succeeded pods had indexes that are removed");
    assert_eq!(reclaimable("0-1", "", 2, 1), 2);
    assert_eq!(reclaimable("", "", 0, 3), 0);
    assert_eq!(reclaimable("0", "1-2", 1, 1), 2, "a pod that still runs is not reclaimable");
}
