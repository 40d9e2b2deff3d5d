//! Elastic jobs: they grow, wait for quota, shrink, are evicted and end. After each write the quota is right, and no pod runs
//! without it.

mod on_nodes;
mod story;

use super::plane::Plane;
use jiff::SignedDuration;
use serde_json::json;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, framework};
use story::{FAULTS, JOB, Story, charged, holds};

#[test]
fn elastic_jobs_are_reconciled_as_recorded() {
    super::play_chosen("job", ("batch", "Job"), |name| name.contains("-elastic"));
}

#[test]
fn job_grows_waits_shrinks_and_ends() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true)], (3, 0)), "{fault:?}");
        story.scale(6);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (6, false)], (3, 3)), "{fault:?}");
        story.scale(7);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (7, false)], (3, 4)), "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(7, true)], (7, 0)), "{fault:?}");
        story.scale(2);
        assert_eq!((story.slices(), story.pods()), (vec![(2, true)], (2, 0)), "{fault:?}");
        story.create("third", 7, false);
        assert_eq!(charged(&story.plane.harness.server).len(), 2, "what was given up is free: {fault:?}");
        assert!(!story.suspended(), "{fault:?}");
        story.finish("j");
        assert_eq!(story.slices(), [], "{fault:?}");
        assert_eq!(story.ends(), ["Succeeded", "Succeeded", "WorkloadSliceReplaced"], "{fault:?}");
    }
}

#[test]
fn job_that_shrinks_while_it_waits_gets_what_it_asks_for_then() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(8);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (8, false)], (3, 5)), "{fault:?}");
        story.scale(2);
        assert_eq!((story.slices(), story.pods()), (vec![(2, true)], (2, 0)), "{fault:?}");
    }
}

/// Deactivates or activates a slice.
fn activate(story: &mut Story, slice: &str, active: bool) {
    story.edit(Kind::Workload, slice, |workload| workload["spec"]["active"] = json!(active));
}

/// Kueue 6221, 13923: an eviction of the slice in use stops the job before the slice that waits gets its quota.
#[test]
fn slice_that_is_evicted_while_another_waits_stops_the_job_first() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(6);
        let first = story.slice(false);
        let evicted = json!({"type": "Evicted", "status": "True", "reason": "Preempted", "message": "m",
            "lastTransitionTime": story.plane.now().to_string()});
        story.edit(Kind::Workload, &first, |workload| {
            workload["status"]["conditions"].as_array_mut().unwrap().push(evicted);
        });
        assert_eq!((story.slices(), story.pods()), (vec![(6, false)], (0, 0)), "{fault:?}");
        assert!(story.suspended(), "{fault:?}");
        assert_eq!(story.ends(), ["WorkloadSliceReplaced"], "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
    }
}

/// No slice starts a job whose slice a user has deactivated, until the user activates that one.
#[test]
fn slice_that_is_deactivated_while_another_waits_stops_the_job() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(6);
        let first = story.slice(false);
        activate(&mut story, &first, false);
        assert_eq!(story.ends(), ["OutOfSync"], "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(6, false)], (0, 0)), "{fault:?}");
        assert!(story.suspended(), "{fault:?}");
        activate(&mut story, &first, true);
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
    }
}

/// Preemption by a job of higher priority, of a Job that has grown.
#[test]
fn grown_job_is_evicted_and_runs_again() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, true);
        story.scale(6);
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
        let last = story.slice(true);
        activate(&mut story, &last, false);
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(6, false)], (0, 0), true),
            "{fault:?}"
        );
        story.scale(8);
        assert_eq!((story.slices(), story.pods()), (vec![(8, false)], (0, 0)), "{fault:?}");
        activate(&mut story, &last, true);
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(8, true)], (8, 0), false),
            "{fault:?}"
        );
    }
}

/// Kueue 14139: pods name the first slice, which may be gone.
#[test]
fn pods_are_ungated_after_the_first_slice_was_deleted() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 2, true);
        story.scale(3);
        let key = story.key(&story.slice(false));
        let now = story.plane.now();
        story.plane.harness.server.delete(Kind::Workload, &key, now);
        story.settle();
        assert_eq!(story.plane.harness.server.all(Kind::Workload).count(), 1, "{fault:?}");
        story.scale(5);
        assert_eq!((story.slices(), story.pods()), (vec![(5, true)], (5, 0)), "{fault:?}");
    }
}

/// Kueue 12994: the marks of an earlier admission do not contradict a new one.
#[test]
fn job_whose_slice_was_deleted_gets_another_and_runs() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 2, true);
        story.scale(4);
        let key = story.key(&story.slice(true));
        let now = story.plane.now();
        story.plane.harness.server.delete(Kind::Workload, &key, now);
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(4, true)], (4, 0)), "{fault:?}");
        assert!(!story.ends().contains(&"FailedToStart".to_owned()), "{fault:?}");
    }
}

/// Kueue 13126: a pod that has ended leaves its place to its replacement.
#[test]
fn failed_pod_is_replaced() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, true);
        story.scale(4);
        let pod = story.plane.harness.server.keys_of(Kind::Pod)[0].name.to_string();
        story.edit(Kind::Pod, &pod, |pod| pod["status"]["phase"] = json!("Failed"));
        assert_eq!((story.slices(), story.pods()), (vec![(4, true)], (4, 0)), "{fault:?}");
    }
}

/// Kueue 12766: scaling below what has succeeded.
#[test]
fn job_shrinks_below_its_succeeded_pods() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 5, true);
        story.edit(JOB, "j", |job| {
            job["spec"]["completions"] = json!(8);
            job["status"]["succeeded"] = json!(7);
        });
        for key in story.plane.harness.server.keys_of(Kind::Pod).into_iter().skip(1) {
            story
                .plane
                .harness
                .server
                .edit(Kind::Pod, &key, |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
        for parallelism in [3, 2, 4] {
            story.scale(parallelism);
            assert_eq!(story.slices(), [(parallelism, true)], "{fault:?}");
        }
    }
}

/// Kueue 13071: a Workload that says that it replaces another job's slice replaces nothing.
#[test]
fn slice_of_another_job_is_not_replaced() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 7, true);
        let slice = story.slice(false);
        let template =
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        let metadata = json!({"name": "thief", "namespace": "ns", "annotations": {
            "kueue.x-k8s.io/workload-slice-replacement-for": format!("ns/{slice}"),
            "kueue.x-k8s.io/workload-slice-name": slice, "kueue.x-k8s.io/elastic-job": "true",
        }});
        let pod_sets = json!([{"name": "main", "count": 5, "template": template}]);
        let spec = json!({"queueName": "lq", "podSets": pod_sets, "active": true, "priority": 0});
        story.plane.create(Kind::Workload, &json!({"metadata": metadata, "spec": spec}));
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(7, true)], (7, 0)), "{fault:?}");
        let thief = story.plane.harness.server.get(Kind::Workload, &story.key("thief")).unwrap();
        assert!(!holds(thief, "QuotaReserved"), "{fault:?}");
    }
}

/// Of slices that another client made, those without a part in the job end.
#[test]
fn superfluous_slices_end() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 4, false);
        story.create("j", 3, true);
        story.scale(6);
        let waiting =
            story.plane.harness.server.get(Kind::Workload, &story.key(&story.slice(true))).unwrap().clone();
        for name in ["fork-1", "fork-2"] {
            let mut fork = json!({"metadata": waiting["metadata"], "spec": waiting["spec"]});
            let metadata = fork["metadata"].as_object_mut().unwrap();
            metadata.retain(|field, _| {
                ["namespace", "annotations", "ownerReferences", "labels"].contains(&field.as_str())
            });
            metadata.insert("name".to_owned(), json!(name));
            if name == "fork-2" {
                metadata["annotations"]
                    .as_object_mut()
                    .unwrap()
                    .shift_remove("kueue.x-k8s.io/workload-slice-replacement-for");
            }
            story.plane.advance(SignedDuration::from_secs(1));
            story.plane.create(Kind::Workload, &fork);
        }
        story.settle();
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (6, false)], (3, 3)), "{fault:?}");
        assert_eq!(story.ends(), ["OutOfSync", "OutOfSync"], "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(6, true)], (6, 0)), "{fault:?}");
    }
}

/// A Job that a user unsuspends before it has quota is suspended again: its pods would carry no marks of an admission.
#[test]
fn job_that_was_not_started_does_not_run() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("other", 8, false);
        story.create("j", 3, true);
        story.edit(JOB, "j", |job| job["spec"]["suspend"] = json!(false));
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(3, false)], (0, 0), true),
            "{fault:?}"
        );
        story.finish("other");
        assert_eq!(
            (story.slices(), story.pods(), story.suspended()),
            (vec![(3, true)], (3, 0), false),
            "{fault:?}"
        );
    }
}

/// A running Job without the gate is not elastic: it was started by a manager that did not know the gate.
#[test]
fn running_job_without_gate_is_stopped_when_it_grows() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 3, false);
        story.edit(JOB, "j", |job| {
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        });
        assert_eq!((story.slices(), story.pods()), (vec![(3, true)], (3, 0)), "{fault:?}");
        story.scale(5);
        assert_eq!((story.slices(), story.pods()), (vec![(5, true)], (5, 0)), "{fault:?}");
        story.scale(6);
        assert_eq!(
            (story.slices(), story.pods()),
            (vec![(6, true)], (6, 0)),
            "now it has the gate: {fault:?}"
        );
    }
}

/// Kueue 11200, 8341: resizes within a second; the newest size counts.
#[test]
fn job_is_resized_several_times_within_a_second() {
    for fault in FAULTS {
        let mut story = Story::new(fault);
        story.create("j", 1, true);
        for parallelism in [2, 5, 3, 4, 9, 6] {
            let key = story.key("j");
            story.plane.harness.server.edit(JOB, &key, |job| job["spec"]["parallelism"] = json!(parallelism));
            story.settle();
            let pods = usize::try_from(parallelism).unwrap();
            assert_eq!((story.slices(), story.pods()), (vec![(parallelism, true)], (pods, 0)), "{fault:?}");
        }
    }
}

/// Jobs below an elastic one are not suspended while it waits: their pods have its gate. They are when it is evicted.
#[test]
fn child_of_an_elastic_job_runs_gated() {
    let kind = JobKind::new(framework("ray.io", "RayCluster").expect("a row"));
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    for (fault, elastic) in FAULTS.into_iter().flat_map(|fault| [(fault, true), (fault, false)]) {
        let mut plane = Plane::new(kind, "ns", fault);
        let spec = json!({"suspend": true, "headGroupSpec": {"template": pod}});
        let metadata = json!({"name": "r", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/elastic-job": elastic.to_string()}});
        plane.create(Kind::Job(kind), &json!({"metadata": metadata, "spec": spec}));
        plane.settle();
        let parent = plane.harness.server.get(Kind::Job(kind), &plane.key("r")).unwrap();
        let owner = json!({
            "apiVersion": kind.gvk.api_version(), "kind": kind.gvk.kind, "name": "r", "controller": true,
            "uid": parent["metadata"]["uid"],
        });
        let metadata = json!({"name": "child", "namespace": "ns", "ownerReferences": [owner]});
        plane.create(
            JOB,
            &json!({"metadata": metadata, "spec": {"suspend": false, "parallelism": 1, "template": pod}}),
        );
        plane.settle();
        let suspended = |plane: &Plane| {
            plane.harness.server.get(JOB, &plane.key("child")).unwrap()["spec"]["suspend"] == true
        };
        assert_eq!(suspended(&plane), !elastic, "{fault:?}");
        let workload = plane.harness.server.keys_of(Kind::Workload).remove(0);
        plane.harness.server.edit(Kind::Workload, &workload, |w| w["spec"]["active"] = json!(false));
        plane.settle();
        assert!(suspended(&plane), "{fault:?}");
    }
}
