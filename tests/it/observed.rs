//! What is told of Workloads and their jobs beside conditions: events with their texts, and times as Kueue counts them.

use super::queue_status::Cluster;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::lifecycle::pods_ready::Limits;
use sluice::state::{Kind, Observation, Settings};

const JOB: Kind = Kind::Job(0);

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A Job of so many pods with 1 CPU each, and the priority class, if any.
fn job(name: &str, pods: i32, class: &str) -> Value {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    if !class.is_empty() {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let template = json!({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template},
    })
}

/// A Workload of 1 CPU without an owner.
fn workload(name: &str, annotations: &Value) -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let spec = json!({"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]});
    json!({"metadata": {"name": name, "namespace": "ns", "annotations": annotations}, "spec": spec})
}

/// Waits for pods for an hour.
fn awaiting_pods() -> Settings {
    let mut settings = Settings::default();
    let hour = SignedDuration::from_hours(1);
    settings.lifecycle.pods_ready = Some(Limits {
        timeout: hour,
        recovery: None,
        requeues: None,
        backoff_base: SignedDuration::from_secs(1),
        backoff_max: SignedDuration::from_secs(1),
    });
    settings
}

impl Cluster {
    /// One with priority classes `low` and `high`, whose queue evicts for the more important.
    fn contended(settings: Settings) -> Self {
        let mut cluster = Self::new(settings);
        for (name, value) in [("low", -10), ("high", 10)] {
            cluster.make(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
        }
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        });
        cluster
    }

    /// One whose queue has a check `c` of another controller.
    fn checked() -> Self {
        let mut cluster = Self::new(Settings::default());
        let spec = json!({"controllerName": "example.com/c"});
        let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        cluster
            .make(Kind::AdmissionCheck, json!({"metadata": {"name": "c"}, "spec": spec, "status": active}));
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "c"}]});
        });
        cluster
    }

    /// Does something, and lets so many seconds pass.
    fn then(&mut self, seconds: i32, mut act: impl FnMut(&mut Self)) {
        self.pass(1, |cluster, _| act(cluster));
        self.pass(10 * seconds - 1, |_, _| {});
    }

    /// So many pods of a Job run and are ready.
    fn run(&mut self, name: &str, pods: i32) {
        self.server.edit(JOB, &key(name), |job| job["status"] = json!({"active": pods, "ready": pods}));
    }

    fn complete(&mut self, name: &str) {
        self.server.edit(JOB, &key(name), |job| {
            job["status"] =
                json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]});
        });
    }

    fn the_workload(&self) -> Value {
        self.server.all(Kind::Workload).next().cloned().unwrap_or_default()
    }

    /// Texts of the events with a reason, on objects of a kind.
    fn notes(&self, kind: Kind, reason: &str) -> Vec<String> {
        let told = self.events.iter().filter(|event| event.kind == kind && event.reason == reason);
        told.map(|event| event.note.clone()).collect()
    }

    /// Whether the events with a reason are warnings, and that there are some.
    fn warns(&self, reason: &str) -> bool {
        let told: Vec<bool> =
            self.events.iter().filter(|event| event.reason == reason).map(|event| event.warning).collect();
        assert!(!told.is_empty(), "no event {reason} in {:#?}", self.events);
        told[0]
    }

    /// What was counted with a time, in full seconds.
    fn times(&self) -> Vec<String> {
        self.observed.iter().filter_map(time_of).collect()
    }
}

fn time_of(observation: &Observation) -> Option<String> {
    Some(match observation {
        Observation::QuotaReserved(labels, wait) => {
            format!("{} reserved after {}", labels.priority_class, wait.as_secs())
        }
        Observation::Admitted(labels, wait) => {
            format!("{} admitted after {}", labels.priority_class, wait.as_secs())
        }
        Observation::ChecksPassed(labels, wait) => {
            format!("{} checked after {}", labels.priority_class, wait.as_secs())
        }
        Observation::PodsReady(labels, admitted, queued) => {
            format!("{} ready after {} and {}", labels.priority_class, admitted.as_secs(), queued.as_secs())
        }
        Observation::Evicted { labels, reason, ready, .. } => {
            format!("{} evicted: {reason}, ready for {:?}", labels.priority_class, ready.map(|t| t.as_secs()))
        }
        Observation::Released { cluster_queue, reason, latency } => {
            format!("{cluster_queue} released: {reason} {}", latency.as_secs())
        }
        Observation::Finished(labels, ran) => {
            format!("{} finished after {:?}", labels.priority_class, ran.map(|ran| ran.as_secs()))
        }
        Observation::SliceReplaced { cluster_queue } => format!("{cluster_queue} slice replaced"),
        _ => return None,
    })
}

#[test]
fn waits_count_from_the_last_requeue_and_times_admitted_are_added_up() {
    let mut cluster = Cluster::contended(awaiting_pods());
    cluster.then(1, |cluster| cluster.make(JOB, job("l", 2, "low")));
    cluster.then(9, |cluster| cluster.run("l", 2));
    cluster.then(3, |cluster| cluster.make(JOB, job("h", 2, "high")));
    cluster.then(1, |cluster| cluster.run("l", 0));
    cluster.then(6, |cluster| cluster.run("h", 2));
    cluster.then(2, |cluster| cluster.complete("h"));
    cluster.then(8, |cluster| cluster.run("l", 2));
    cluster.then(1, |cluster| cluster.complete("l"));
    cluster.then(1, |cluster| cluster.make(JOB, job("never", 3, "")));
    cluster.then(1, |cluster| cluster.complete("never"));
    let want = [
        "low reserved after 0",
        "low admitted after 0",
        "low ready after 1 and 1",
        "low evicted: Preempted, ready for Some(9)",
        "cq released: Preempted 3",
        "high reserved after 3",
        "high admitted after 3",
        "high ready after 1 and 4",
        "high finished after Some(7)",
        "low reserved after 7",
        "low admitted after 7",
        "low ready after 2 and 9",
        "low finished after Some(23)",
        " finished after None",
    ];
    assert_eq!(cluster.times(), want);
    let reserved = cluster.notes(Kind::Workload, "QuotaReserved");
    let want =
        [0, 3, 7].map(|s| format!("Quota reserved in ClusterQueue cq, wait time since queued was {s}s"));
    assert_eq!(reserved, want);
}

#[test]
fn a_preemption_is_told_to_both_sides_with_their_priorities() {
    let mut cluster = Cluster::contended(Settings::default());
    cluster.then(1, |cluster| cluster.make(JOB, job("l", 2, "low")));
    let victim = cluster.the_workload();
    cluster.then(1, |cluster| cluster.make(JOB, job("h", 2, "high")));
    let priorities = "preemptor effective priority: 10 (base: 10, boost: 0); \
        preemptee effective priority: -10 (base: -10, boost: 0)";
    let name = victim["metadata"]["name"].as_str().unwrap();
    let uid = victim["metadata"]["uid"].as_str().unwrap();
    let want = format!("Preempted workload ns/{name} (UID: {uid}) in ClusterQueue cq; {priorities}");
    assert_eq!(cluster.notes(Kind::Workload, "PreemptedWorkload"), [want]);
    let told = cluster.notes(Kind::Workload, "Preempted").remove(0);
    assert!(
        told.starts_with("Preempted to accommodate a workload (UID: ") && told.ends_with(priorities),
        "{told}"
    );
}

#[test]
fn what_checks_say_is_told_with_the_time_that_they_took() {
    let mut cluster = Cluster::checked();
    let say = |cluster: &mut Cluster, state: &str, message: &str| {
        let found = sluice::simulate::server::key_of(&cluster.the_workload());
        cluster.server.edit(Kind::Workload, &found, |w| {
            w["status"]["admissionChecks"][0]["state"] = json!(state);
            w["status"]["admissionChecks"][0]["message"] = json!(message);
        });
    };
    cluster.then(10, |cluster| cluster.make(JOB, job("j", 1, "")));
    assert_eq!(cluster.times(), [" reserved after 0"]);
    cluster.then(10, |cluster| say(cluster, "Pending", "place 3 of 9"));
    assert_eq!(cluster.notes(JOB, "UpdatedAdmissionCheck"), ["c: place 3 of 9"], "once");
    cluster.then(5, |cluster| say(cluster, "Ready", "all is there"));
    assert_eq!(cluster.times()[1..], [" admitted after 20", " checked after 20"]);
    let want = "Admitted by ClusterQueue cq, wait time since reservation was 20s";
    assert_eq!(cluster.notes(Kind::Workload, "Admitted"), [want]);
    cluster.then(1, |cluster| say(cluster, "Rejected", "gone"));
    let want = "Deactivated due to AdmissionCheck in Rejected state: \"c\" (gone)";
    assert_eq!(cluster.notes(Kind::Workload, "AdmissionCheckRejected"), [want]);
    assert!(cluster.warns("AdmissionCheckRejected"));
}

#[test]
fn a_reserved_workload_that_its_job_has_left_is_deleted_and_told_of() {
    let mut cluster = Cluster::checked();
    cluster.then(1, |cluster| cluster.make(JOB, job("j", 1, "")));
    let name = cluster.the_workload()["metadata"]["name"].clone();
    cluster.then(1, |cluster| {
        cluster.server.edit(JOB, &key("j"), |job| {
            job["spec"]["parallelism"] = json!(2);
            job["spec"]["completions"] = json!(2);
        });
    });
    let want = format!("Deleted not matching Workload: ns/{}", name.as_str().unwrap());
    assert_eq!(cluster.notes(JOB, "DeletedWorkload"), [want], "{:#?}", cluster.events);
}

#[test]
fn a_child_that_is_held_is_told_of() {
    let external_kinds = [("example.com".to_owned(), "Foo".to_owned())].into();
    let mut cluster = Cluster::new(Settings { external_kinds, ..Settings::default() });
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": "uid-foo",
        "controller": true}]);
    let mut parent = workload("parent", &json!({}));
    parent["spec"]["podSets"][0]["count"] = json!(3);
    parent["metadata"]["ownerReferences"] = owner.clone();
    cluster.then(1, |cluster| cluster.make(Kind::Workload, parent.clone()));
    let mut child = job("child", 1, "");
    child["metadata"]["ownerReferences"] = owner;
    child["spec"]["suspend"] = json!(false);
    cluster.then(1, |cluster| cluster.make(JOB, child.clone()));
    assert_eq!(
        cluster.notes(JOB, "Suspended"),
        ["Kueue managed child job suspended"],
        "{:#?}",
        cluster.events
    );
}

#[test]
fn gates_of_an_annotation_are_named_and_their_end_is_told() {
    for full in [false, true] {
        let mut cluster = Cluster::new(Settings::default());
        if full {
            cluster.then(1, |cluster| cluster.make(JOB, job("j", 2, "")));
        }
        let gates = "example.com/a,example.com/b";
        let held = workload("w", &json!({"kueue.x-k8s.io/admission-gated-by": gates}));
        cluster.then(1, |cluster| cluster.make(Kind::Workload, held.clone()));
        let said = cluster.server.get(Kind::Workload, &key("w")).unwrap()["status"]["conditions"][0].clone();
        assert_eq!((&said["type"], &said["reason"]), (&json!("QuotaReserved"), &json!("AdmissionGated")));
        assert_eq!(said["message"], format!("Admission is gated by: {gates}"));
        let want = format!("Workload admission is gated by: {gates}");
        assert_eq!(cluster.notes(Kind::Workload, "AdmissionGated"), [want]);
        assert!(!cluster.warns("AdmissionGated"));
        cluster.then(1, |cluster| {
            cluster.server.edit(Kind::Workload, &key("w"), |w| w["metadata"]["annotations"] = json!({}));
        });
        let want = "Admission gate cleared, workload is now admissible";
        assert_eq!(cluster.notes(Kind::Workload, "AdmissionGateCleared"), [want], "full: {full}");
        let after = cluster.server.get(Kind::Workload, &key("w")).unwrap()["status"].clone();
        assert_eq!(after["admission"].is_object(), !full, "{after}");
    }
}

#[test]
fn the_end_of_a_time_limit_and_of_a_retention_is_told() {
    let mut settings = Settings::default();
    settings.lifecycle.retain_finished = Some(SignedDuration::from_secs(10));
    let mut cluster = Cluster::new(settings);
    let mut limited = job("j", 1, "");
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("5");
    cluster.then(8, |cluster| cluster.make(JOB, limited.clone()));
    let want = "The maximum execution time (5s) exceeded";
    assert_eq!(cluster.notes(Kind::Workload, "MaximumExecutionTimeExceeded"), [want]);
    let want = "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded";
    assert_eq!(cluster.notes(Kind::Workload, want).len(), 1, "{:#?}", cluster.events);
    cluster.then(15, |cluster| cluster.complete("j"));
    let want = "Deleted finished workload due to elapsed retention";
    assert_eq!(cluster.notes(Kind::Workload, "Deleted"), [want]);
    assert_eq!(cluster.server.all(Kind::Workload).count(), 0);
}

#[test]
fn a_timeout_of_pods_is_told_by_its_reason_alone() {
    let mut settings = awaiting_pods();
    if let Some(limits) = &mut settings.lifecycle.pods_ready {
        limits.timeout = SignedDuration::from_secs(3);
    }
    let mut cluster = Cluster::new(settings);
    cluster.then(5, |cluster| cluster.make(JOB, job("j", 1, "")));
    assert_eq!(
        cluster.notes(Kind::Workload, "EvictedDueToPodsReadyTimeout").len(),
        1,
        "{:#?}",
        cluster.events
    );
}

#[test]
fn a_request_for_capacity_is_told_when_it_is_made_refused_and_answered() {
    let mut cluster = Cluster::new(Settings::default());
    let spec = json!({"provisioningClassName": "check-capacity"});
    cluster.make(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "config"}, "spec": spec}));
    let spec = json!({
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"},
    });
    cluster.make(Kind::AdmissionCheck, json!({"metadata": {"name": "room"}, "spec": spec}));
    cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "room"}]});
    });
    cluster.refused = Some(Kind::ProvisioningRequest);
    cluster.then(5, |cluster| cluster.make(JOB, job("j", 1, "")));
    let refused = cluster.notes(Kind::Workload, "FailedCreate");
    assert_eq!(refused.len(), 1, "once: {refused:?}");
    assert!(cluster.warns("FailedCreate"));
    assert!(refused[0].starts_with("Error creating ProvisioningRequest \"job-j-"), "{refused:?}");
    assert!(refused[0].ends_with("\": no room"), "{refused:?}");
    cluster.refused = None;
    cluster.then(20, |_| {});
    let made = cluster.server.all(Kind::ProvisioningRequest).next().cloned().unwrap();
    let want = format!("Created ProvisioningRequest: {}", made["metadata"]["name"]);
    assert_eq!(cluster.notes(Kind::Workload, "ProvisioningRequestCreated"), [want]);
    cluster.then(1, |cluster| {
        let key = sluice::simulate::server::key_of(&made);
        cluster.server.edit(Kind::ProvisioningRequest, &key, |request| {
            request["status"] = json!({"conditions": [{"type": "Provisioned", "status": "True",
                "reason": "Provisioned", "message": "there is room",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        });
    });
    let want = "Admission check room updated state from Pending to Ready with message: there is room";
    assert_eq!(cluster.notes(Kind::Workload, "AdmissionCheckUpdated"), [want]);
}

#[test]
fn a_slice_that_another_replaces_is_told_and_counted() {
    let mut cluster = Cluster::new(Settings::default());
    let slice = |name: &str, pods: i32, annotations: &Value| {
        let mut made = workload(name, annotations);
        made["spec"]["podSets"][0]["count"] = json!(pods);
        made["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Foo",
            "name": "foo", "uid": "uid-foo", "controller": true}]);
        made["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": "uid-foo"});
        made
    };
    cluster.then(1, |cluster| cluster.make(Kind::Workload, slice("old", 1, &json!({}))));
    let replaces = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"});
    cluster.then(1, |cluster| cluster.make(Kind::Workload, slice("new", 2, &replaces)));
    // Its owner is of another controller, so nothing but an event of its own brings its next step.
    cluster.then(1, |cluster| {
        cluster
            .server
            .edit(Kind::Workload, &key("old"), |old| old["metadata"]["annotations"] = json!({"a": "b"}));
    });
    let uid = cluster.server.get(Kind::Workload, &key("new")).unwrap()["metadata"]["uid"].clone();
    let want = format!(
        "Replaced to accommodate a workload (UID: {}, JobUID: uid-foo) due to workload slice aggregation",
        uid.as_str().unwrap()
    );
    assert_eq!(cluster.notes(Kind::Workload, "WorkloadSliceReplaced"), [want], "{:#?}", cluster.events);
    assert!(cluster.times().contains(&"cq slice replaced".to_owned()), "{:?}", cluster.times());
}
