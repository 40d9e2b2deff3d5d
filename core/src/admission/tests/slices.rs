//! Reviews of Jobs whose slices do not divide the number of pods.

use super::{Cluster, allowed, asked, errors, queued};
use crate::admission::AdmissionSettings;
use serde_json::{Value, json};

fn sliced(pods: u32, size: &str, suspended: bool) -> Value {
    let mut job = queued("lq");
    job["spec"]["suspend"] = json!(suspended);
    job["spec"]["parallelism"] = json!(pods);
    job["spec"]["completions"] = json!(pods);
    let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
    annotations["kueue.x-k8s.io/podset-required-topology"] = json!("rack");
    annotations["kueue.x-k8s.io/podset-slice-required-topology"] = json!("host");
    annotations["kueue.x-k8s.io/podset-slice-size"] = json!(size);
    job
}

#[test]
fn job_has_whole_slices() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let review =
        |new: &Value, old: Option<&Value>| asked("/validate-batch-v1-job", new, old, &cluster, &settings);
    for (pods, size, detail) in [
        (4, "2", None),
        (5, "1", None),
        (5, "2", Some("must evenly divide pod set count 5")),
        (3, "4", Some("must not be greater than pod set count 3")),
    ] {
        let response = review(&sliced(pods, size, true), None);
        let Some(detail) = detail else {
            assert!(allowed(&response), "{pods} {size}");
            continue;
        };
        let text = errors(&response).concat();
        let path = "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value: ";
        assert!(text.starts_with(path) && text.ends_with(detail), "{text}");
    }
    // A user resizes a suspended Job.
    assert!(!allowed(&review(&sliced(5, "2", true), Some(&sliced(4, "2", true)))));
    assert!(!allowed(&review(&sliced(4, "3", true), Some(&sliced(4, "2", true)))));
    // A start with fewer pods, the stop after it, and a Job that was stored before the rule.
    assert!(allowed(&review(&sliced(3, "2", false), Some(&sliced(4, "2", true)))));
    assert!(allowed(&review(&sliced(3, "2", true), Some(&sliced(3, "2", false)))));
    assert!(allowed(&review(&sliced(4, "2", true), Some(&sliced(3, "2", true)))));
    assert!(allowed(&review(&sliced(5, "2", true), Some(&sliced(5, "2", true)))));
}

/// The annotations of a template are on each pod, and on each object that is created for a part of the pods.
#[test]
fn parts_of_a_pod_set_need_no_whole_slices() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let child = |controller: bool| {
        let mut job = sliced(2, "4", true);
        job["metadata"]["labels"] = json!({});
        job["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet", "name": "set", "uid": "u", "controller": controller}]);
        job
    };
    let review = |new: &Value| asked("/validate-batch-v1-job", new, None, &cluster, &settings);
    assert!(allowed(&review(&child(true))));
    assert!(!allowed(&review(&child(false))), "it is a job of its own");

    let annotations = &sliced(4, "2", true)["spec"]["template"]["metadata"]["annotations"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    for queue in [None, Some("lq")] {
        if let Some(queue) = queue {
            pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue,
                "kueue.x-k8s.io/pod-group-name": "g"});
            pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("4");
        }
        let response = asked("/validate--v1-pod", &pod, None, &cluster, &settings);
        assert!(allowed(&response), "{queue:?}: {:?}", errors(&response));
    }
}

#[test]
fn ranks_begin_with_a_number() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    for (offset, detail) in [
        ("0", None),
        ("1", None),
        ("-1", Some("must not be negative")),
        ("one", Some("must be an integer")),
        ("9223372036854775808", Some("must be an integer that fits 64 bits: value out of range")),
    ] {
        let mut job = sliced(4, "2", true);
        job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] = json!(offset);
        let response = asked("/validate-batch-v1-job", &job, None, &cluster, &settings);
        let Some(detail) = detail else {
            assert!(allowed(&response), "{offset}");
            continue;
        };
        let path = "spec.template.metadata.annotations[kueue.x-k8s.io/pod-index-offset]: Invalid value: ";
        let text = errors(&response).concat();
        assert!(text.starts_with(path) && text.ends_with(detail), "{text}");
    }
}
