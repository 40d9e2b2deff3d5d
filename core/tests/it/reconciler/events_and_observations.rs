//! Events of Workloads and Jobs with their texts, and durations as Kueue observes them.

use crate::fixtures::leading_core::JOB;
use crate::fixtures::queue_cluster::Cluster;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::{CoreSettings, Event, Observation};

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// A Job of `pods` pods with 1 CPU each, with the priority class unless it is empty.
pub(crate) fn job(name: &str, pods: i32, class: &str) -> Value {
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

/// Settings with a PodsReady timeout of one hour.
fn pods_ready_settings() -> CoreSettings {
    let mut settings = CoreSettings::default();
    let hour = SignedDuration::from_hours(1);
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: hour,
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: SignedDuration::from_secs(1),
        backoff_max: SignedDuration::from_secs(1),
    });
    settings
}

impl Cluster {
    /// A cluster with priority classes `low` and `high`, whose queue preempts lower priority.
    fn with_preemption(settings: CoreSettings) -> Self {
        let mut cluster = Self::new(settings);
        for (name, value) in [("low", -10), ("high", 10)] {
            cluster.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
        }
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        });
        cluster
    }

    /// A cluster whose queue has a check `c` of another controller.
    fn with_check() -> Self {
        let mut cluster = Self::new(CoreSettings::default());
        let spec = json!({"controllerName": "example.com/c"});
        let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        cluster
            .create(Kind::AdmissionCheck, json!({"metadata": {"name": "c"}, "spec": spec, "status": active}));
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "c"}]});
        });
        cluster
    }

    /// Acts, and advances until this many seconds have passed.
    pub(crate) fn act_then_wait(&mut self, seconds: i32, mut act: impl FnMut(&mut Self)) {
        self.advance_tenths(1, |cluster, _| act(cluster));
        self.advance_tenths(10 * seconds - 1, |_, _| {});
    }

    /// Reports this many pods of a Job as active and ready.
    fn set_pods_ready(&mut self, name: &str, pods: i32) {
        self.server.edit(JOB, &key(name), |job| job["status"] = json!({"active": pods, "ready": pods}));
    }

    fn complete(&mut self, name: &str) {
        self.server.edit(JOB, &key(name), |job| {
            job["status"] =
                json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]});
        });
    }

    pub(crate) fn only_workload(&self) -> Value {
        self.server.all(Kind::Workload).next().cloned().unwrap_or_default()
    }

    /// Notes of the events with this reason on objects of this kind.
    pub(crate) fn event_notes(&self, kind: Kind, reason: &str) -> Vec<String> {
        let events = self.events.iter().filter(|event| event.kind == kind && event.reason == reason);
        events.map(|event| event.note.clone()).collect()
    }

    /// Whether the events with this reason are warnings. Fails if there are none.
    fn is_warning(&self, reason: &str) -> bool {
        let warnings: Vec<bool> =
            self.events.iter().filter(|event| event.reason == reason).map(Event::is_warning).collect();
        assert!(!warnings.is_empty(), "no event {reason} in {:#?}", self.events);
        warnings[0]
    }

    /// The observations with a duration, in whole seconds.
    fn observed_times(&self) -> Vec<String> {
        self.observed.iter().filter_map(describe_observation).collect()
    }
}

fn describe_observation(observation: &Observation) -> Option<String> {
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
        Observation::PodsReady { labels, since_admission: admitted, since_queued: queued } => {
            format!("{} ready after {} and {}", labels.priority_class, admitted.as_secs(), queued.as_secs())
        }
        Observation::Evicted { labels, reason, ready, .. } => {
            format!("{} evicted: {reason}, ready for {:?}", labels.priority_class, ready.map(|t| t.as_secs()))
        }
        Observation::QuotaReleased { cluster_queue, reason, latency } => {
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
fn wait_times_count_from_last_requeue() {
    let mut cluster = Cluster::with_preemption(pods_ready_settings());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("l", 2, "low")));
    cluster.act_then_wait(9, |cluster| cluster.set_pods_ready("l", 2));
    cluster.act_then_wait(3, |cluster| cluster.create(JOB, job("h", 2, "high")));
    cluster.act_then_wait(1, |cluster| cluster.set_pods_ready("l", 0));
    cluster.act_then_wait(6, |cluster| cluster.set_pods_ready("h", 2));
    cluster.act_then_wait(2, |cluster| cluster.complete("h"));
    cluster.act_then_wait(8, |cluster| cluster.set_pods_ready("l", 2));
    cluster.act_then_wait(1, |cluster| cluster.complete("l"));
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("never", 3, "")));
    cluster.act_then_wait(1, |cluster| cluster.complete("never"));
    let expected = [
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
    assert_eq!(cluster.observed_times(), expected);
    let reserved = cluster.event_notes(Kind::Workload, "QuotaReserved");
    let expected =
        [0, 3, 7].map(|s| format!("Quota reserved in ClusterQueue cq, wait time since queued was {s}s"));
    assert_eq!(reserved, expected);
}

#[test]
fn preemption_events_name_both_priorities() {
    let mut cluster = Cluster::with_preemption(CoreSettings::default());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("l", 2, "low")));
    let victim = cluster.only_workload();
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("h", 2, "high")));
    let priorities = "preemptor effective priority: 10 (base: 10, boost: 0); \
        preemptee effective priority: -10 (base: -10, boost: 0)";
    let name = victim["metadata"]["name"].as_str().unwrap();
    let uid = victim["metadata"]["uid"].as_str().unwrap();
    let expected = format!("Preempted workload ns/{name} (UID: {uid}) in ClusterQueue cq; {priorities}");
    assert_eq!(cluster.event_notes(Kind::Workload, "PreemptedWorkload"), [expected]);
    let note = cluster.event_notes(Kind::Workload, "Preempted").remove(0);
    assert!(
        note.starts_with("Preempted to accommodate a workload (UID: ") && note.ends_with(priorities),
        "{note}"
    );
}

#[test]
fn check_updates_emit_events_with_wait_times() {
    let mut cluster = Cluster::with_check();
    let set_state = |cluster: &mut Cluster, state: &str, message: &str| {
        let workload_key = sluice_core::simulate::fake_api_server::key_of(&cluster.only_workload());
        cluster.server.edit(Kind::Workload, &workload_key, |w| {
            w["status"]["admissionChecks"][0]["state"] = json!(state);
            w["status"]["admissionChecks"][0]["message"] = json!(message);
        });
    };
    cluster.act_then_wait(10, |cluster| cluster.create(JOB, job("j", 1, "")));
    assert_eq!(cluster.observed_times(), [" reserved after 0"]);
    cluster.act_then_wait(10, |cluster| set_state(cluster, "Pending", "place 3 of 9"));
    assert_eq!(cluster.event_notes(JOB, "UpdatedAdmissionCheck"), ["c: place 3 of 9"], "once");
    cluster.act_then_wait(5, |cluster| set_state(cluster, "Ready", "all is there"));
    assert_eq!(cluster.observed_times()[1..], [" admitted after 20", " checked after 20"]);
    let expected = "Admitted by ClusterQueue cq, wait time since reservation was 20s";
    assert_eq!(cluster.event_notes(Kind::Workload, "Admitted"), [expected]);
    cluster.act_then_wait(1, |cluster| set_state(cluster, "Rejected", "gone"));
    let expected = "Deactivated due to AdmissionCheck in Rejected state: \"c\" (gone)";
    assert_eq!(cluster.event_notes(Kind::Workload, "AdmissionCheckRejected"), [expected]);
    assert!(cluster.is_warning("AdmissionCheckRejected"));
}

#[test]
fn deleting_mismatched_workload_emits_event() {
    let mut cluster = Cluster::with_check();
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 1, "")));
    let name = cluster.only_workload()["metadata"]["name"].clone();
    cluster.act_then_wait(1, |cluster| {
        cluster.server.edit(JOB, &key("j"), |job| {
            job["spec"]["parallelism"] = json!(2);
            job["spec"]["completions"] = json!(2);
        });
    });
    let expected = format!("Deleted not matching Workload: ns/{}", name.as_str().unwrap());
    assert_eq!(cluster.event_notes(JOB, "DeletedWorkload"), [expected], "{:#?}", cluster.events);
}

#[test]
fn suspending_child_job_emits_event() {
    let external_kinds = [("example.com".to_owned(), "Foo".to_owned())].into();
    let mut cluster = Cluster::new(CoreSettings { external_kinds, ..CoreSettings::default() });
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": "uid-foo",
        "controller": true}]);
    let mut parent = workload("parent", &json!({}));
    parent["spec"]["podSets"][0]["count"] = json!(3);
    parent["metadata"]["ownerReferences"] = owner.clone();
    cluster.act_then_wait(1, |cluster| cluster.create(Kind::Workload, parent.clone()));
    let mut child = job("child", 1, "");
    child["metadata"]["ownerReferences"] = owner;
    child["spec"]["suspend"] = json!(false);
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, child.clone()));
    assert_eq!(
        cluster.event_notes(JOB, "Suspended"),
        ["Kueue managed child job suspended"],
        "{:#?}",
        cluster.events
    );
}

#[test]
fn admission_gates_are_reported_and_cleared() {
    for full in [false, true] {
        let mut cluster = Cluster::new(CoreSettings::default());
        if full {
            cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 2, "")));
        }
        let gates = "example.com/a,example.com/b";
        let gated = workload("w", &json!({"kueue.x-k8s.io/admission-gated-by": gates}));
        cluster.act_then_wait(1, |cluster| cluster.create(Kind::Workload, gated.clone()));
        let condition =
            cluster.server.get(Kind::Workload, &key("w")).unwrap()["status"]["conditions"][0].clone();
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("QuotaReserved"), &json!("AdmissionGated"))
        );
        assert_eq!(condition["message"], format!("Admission is gated by: {gates}"));
        let expected = format!("Workload admission is gated by: {gates}");
        assert_eq!(cluster.event_notes(Kind::Workload, "AdmissionGated"), [expected]);
        assert!(!cluster.is_warning("AdmissionGated"));
        cluster.act_then_wait(1, |cluster| {
            cluster.server.edit(Kind::Workload, &key("w"), |w| w["metadata"]["annotations"] = json!({}));
        });
        let expected = "Admission gate cleared, workload is now admissible";
        assert_eq!(cluster.event_notes(Kind::Workload, "AdmissionGateCleared"), [expected], "full: {full}");
        let after = cluster.server.get(Kind::Workload, &key("w")).unwrap()["status"].clone();
        assert_eq!(after["admission"].is_object(), !full, "{after}");
    }
}

#[test]
fn execution_timeout_and_retention_emit_events() {
    let mut settings = CoreSettings::default();
    settings.lifecycle.retain_finished = Some(SignedDuration::from_secs(10));
    let mut cluster = Cluster::new(settings);
    let mut limited = job("j", 1, "");
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("5");
    cluster.act_then_wait(8, |cluster| cluster.create(JOB, limited.clone()));
    let expected = "The maximum execution time (5s) exceeded";
    assert_eq!(cluster.event_notes(Kind::Workload, "MaximumExecutionTimeExceeded"), [expected]);
    let expected = "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded";
    assert_eq!(cluster.event_notes(Kind::Workload, expected).len(), 1, "{:#?}", cluster.events);
    // The target of the deactivation stays as long as the Workload is inactive, and does not end it again afterwards.
    let statuses = |cluster: &Cluster| {
        let workload = cluster.only_workload();
        let conditions = workload["status"]["conditions"].as_array().unwrap().clone();
        let status = move |kind: &str| {
            let found = conditions.iter().find(|condition| condition["type"] == kind);
            found.map(|condition| (condition["status"].clone(), condition["reason"].clone()))
        };
        (workload["spec"]["active"].clone(), status("DeactivationTarget"), status("Admitted"))
    };
    let target = Some((json!("True"), json!("MaximumExecutionTimeExceeded")));
    let (active, found, _) = statuses(&cluster);
    assert_eq!((active, found), (json!(false), target));
    let key = sluice_core::simulate::fake_api_server::key_of(&cluster.only_workload());
    // A target that another client leaves on the deactivated Workload is removed.
    cluster.act_then_wait(3, |cluster| {
        cluster.server.edit(Kind::Workload, &key, |workload| {
            let conditions = workload["status"]["conditions"].as_array_mut().unwrap();
            let target =
                conditions.iter_mut().find(|condition| condition["type"] == "DeactivationTarget").unwrap();
            target["reason"] = json!("AdmissionCheck");
        });
    });
    assert_eq!(statuses(&cluster).1, None);
    cluster.act_then_wait(3, |cluster| {
        cluster.server.edit(Kind::Workload, &key, |workload| workload["spec"]["active"] = json!(true));
    });
    let (active, found, admitted) = statuses(&cluster);
    assert_eq!((active, found), (json!(true), None), "{:#}", cluster.only_workload()["status"]);
    assert_eq!(admitted.unwrap().0, "True", "{:#}", cluster.only_workload()["status"]);
    cluster.act_then_wait(15, |cluster| cluster.complete("j"));
    let expected = "Deleted finished workload due to elapsed retention";
    assert_eq!(cluster.event_notes(Kind::Workload, "Deleted"), [expected]);
    assert_eq!(cluster.server.all(Kind::Workload).count(), 0);
}

#[test]
fn workload_activated_while_its_pods_end_gets_its_whole_execution_time() {
    let mut cluster = Cluster::new(CoreSettings::default());
    let mut limited = job("j", 1, "");
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("5");
    cluster.act_then_wait(2, |cluster| cluster.create(JOB, limited.clone()));
    cluster.act_then_wait(8, |cluster| cluster.set_pods_ready("j", 1));
    let workload = cluster.only_workload();
    assert_eq!(workload["spec"]["active"], json!(false), "{workload:#}");
    assert!(workload["status"]["admission"].is_object(), "its pod has not ended: {workload:#}");
    let workload_key = sluice_core::simulate::fake_api_server::key_of(&workload);
    cluster.act_then_wait(2, |cluster| {
        cluster
            .server
            .edit(Kind::Workload, &workload_key, |workload| workload["spec"]["active"] = json!(true));
    });
    cluster.act_then_wait(3, |cluster| cluster.set_pods_ready("j", 0));
    let suspended =
        |cluster: &Cluster| cluster.server.get(JOB, &key("j")).unwrap()["spec"]["suspend"].clone();
    let workload = cluster.only_workload();
    assert_eq!(
        (&workload["spec"]["active"], suspended(&cluster)),
        (&json!(true), json!(false)),
        "{workload:#}"
    );
    cluster.act_then_wait(4, |_| {});
    assert_eq!(cluster.only_workload()["spec"]["active"], json!(false), "the limit holds for the second run");
}

#[test]
fn pods_ready_timeout_emits_one_event() {
    let mut settings = pods_ready_settings();
    if let Some(limits) = &mut settings.lifecycle.pods_ready {
        limits.timeout = SignedDuration::from_secs(3);
    }
    let mut cluster = Cluster::new(settings);
    cluster.act_then_wait(5, |cluster| cluster.create(JOB, job("j", 1, "")));
    assert_eq!(
        cluster.event_notes(Kind::Workload, "EvictedDueToPodsReadyTimeout").len(),
        1,
        "{:#?}",
        cluster.events
    );
}

#[test]
fn provisioning_request_lifecycle_emits_events() {
    let mut cluster = Cluster::new(CoreSettings::default());
    let spec = json!({"provisioningClassName": "check-capacity"});
    cluster.create(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "config"}, "spec": spec}));
    let spec = json!({
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"},
    });
    cluster.create(Kind::AdmissionCheck, json!({"metadata": {"name": "room"}, "spec": spec}));
    cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "room"}]});
    });
    cluster.rejected_kind = Some(Kind::ProvisioningRequest);
    cluster.act_then_wait(5, |cluster| cluster.create(JOB, job("j", 1, "")));
    let notes = cluster.event_notes(Kind::Workload, "FailedCreate");
    assert_eq!(notes.len(), 1, "once: {notes:?}");
    assert!(cluster.is_warning("FailedCreate"));
    assert!(notes[0].starts_with("Error creating ProvisioningRequest \"job-j-"), "{notes:?}");
    assert!(notes[0].ends_with("\": no room"), "{notes:?}");
    cluster.rejected_kind = None;
    cluster.act_then_wait(20, |_| {});
    let created = cluster.server.all(Kind::ProvisioningRequest).next().cloned().unwrap();
    let expected = format!("Created ProvisioningRequest: {}", created["metadata"]["name"]);
    assert_eq!(cluster.event_notes(Kind::Workload, "ProvisioningRequestCreated"), [expected]);
    cluster.act_then_wait(1, |cluster| {
        let key = sluice_core::simulate::fake_api_server::key_of(&created);
        cluster.server.edit(Kind::ProvisioningRequest, &key, |request| {
            request["status"] = json!({"conditions": [{"type": "Provisioned", "status": "True",
                "reason": "Provisioned", "message": "there is room",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        });
    });
    let expected = "Admission check room updated state from Pending to Ready with message: there is room";
    assert_eq!(cluster.event_notes(Kind::Workload, "AdmissionCheckUpdated"), [expected]);
}

#[test]
fn replaced_slice_is_reported_and_counted() {
    let mut cluster = Cluster::new(CoreSettings::default());
    let slice = |name: &str, pods: i32, annotations: &Value| {
        let mut created = workload(name, annotations);
        created["spec"]["podSets"][0]["count"] = json!(pods);
        created["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Foo",
            "name": "foo", "uid": "uid-foo", "controller": true}]);
        created["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": "uid-foo"});
        created
    };
    cluster.act_then_wait(1, |cluster| cluster.create(Kind::Workload, slice("old", 1, &json!({}))));
    let replaces = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"});
    cluster.act_then_wait(1, |cluster| cluster.create(Kind::Workload, slice("new", 2, &replaces)));
    // Its owner belongs to another controller, so that only an event of the Workload itself triggers its next step.
    cluster.act_then_wait(1, |cluster| {
        cluster
            .server
            .edit(Kind::Workload, &key("old"), |old| old["metadata"]["annotations"] = json!({"a": "b"}));
    });
    let uid = cluster.server.get(Kind::Workload, &key("new")).unwrap()["metadata"]["uid"].clone();
    let expected = format!(
        "Replaced to accommodate a workload (UID: {}, JobUID: uid-foo) due to workload slice aggregation",
        uid.as_str().unwrap()
    );
    assert_eq!(
        cluster.event_notes(Kind::Workload, "WorkloadSliceReplaced"),
        [expected],
        "{:#?}",
        cluster.events
    );
    assert!(
        cluster.observed_times().contains(&"cq slice replaced".to_owned()),
        "{:?}",
        cluster.observed_times()
    );
}

/// A Workload that another client finishes stops its Job, and the Job says why.
#[test]
fn job_says_why_it_is_stopped() {
    let finished = |message: &str| {
        json!({"type": "Finished", "status": "True", "reason": "ByHand", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let mut cluster = Cluster::with_preemption(CoreSettings::default());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 1, "")));
    let workload = sluice_core::simulate::fake_api_server::key_of(&cluster.only_workload());
    cluster.act_then_wait(1, |cluster| {
        cluster.server.edit(Kind::Workload, &workload, |w| {
            w["status"]["conditions"].as_array_mut().unwrap().push(finished("no longer needed"));
        });
    });
    let expected = format!("Workload {workload} has finished: no longer needed");
    assert_eq!(cluster.event_notes(JOB, "Stopped"), [expected]);

    let mut cluster = Cluster::with_preemption(CoreSettings::default());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 1, "")));
    cluster.act_then_wait(1, |cluster| {
        cluster.server.edit(JOB, &key("j"), |job| job["spec"]["parallelism"] = json!(2));
        cluster.server.edit(JOB, &key("j"), |job| job["spec"]["completions"] = json!(2));
    });
    let expected = "No matching Workload; restoring pod templates according to existent Workload";
    assert_eq!(cluster.event_notes(JOB, "Stopped"), [expected]);
    assert_eq!(cluster.event_notes(JOB, "Started").len(), 2);
}
