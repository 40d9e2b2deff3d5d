//! Requests for features that are off or not supported: they are ignored, or reported as not supported.

use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload, workload, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Effect, Verb};
use sluice_core::scheduler::{EngineGates, EngineSettings};

/// The Workload without its owner.
fn without_owner(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

/// Conditions in all writes of an object.
fn written_conditions(effects: &[Effect], kind: Kind, name: &str) -> Vec<Value> {
    let body = |effect: &Effect| match effect {
        Effect::Write(write) if write.kind == kind && *write.key.name == *name => {
            serde_json::to_value(write.payload()).ok()
        }
        _ => None,
    };
    let conditions = |body: Value| body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    effects.iter().filter_map(body).flat_map(conditions).collect()
}

/// An admitted Workload: nothing needs to be written.
fn running_workload(owner: &str) -> Value {
    let conditions = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", "x"));
    without_owner(reserving_workload(owner, &conditions))
}

fn condition_is_true(conditions: &[Value], kind: &str) -> bool {
    conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// A queue with this many CPUs, and more fields in its spec. It has its finalizer, so that its first write is its status.
fn cluster_queue_object(name: &str, cpu: &str, more: &Value) -> Value {
    let metadata = json!({"name": name, "finalizers": ["kueue.x-k8s.io/resource-in-use"]});
    let mut queue = json!({"metadata": metadata, "spec": {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]}});
    for (name, value) in more.as_object().into_iter().flatten() {
        queue["spec"][name] = value.clone();
    }
    queue
}

/// State of an earlier manager: the check is active, one Workload waits for it with quota, another one without.
#[test]
fn multikueue_check_is_inactive_and_releases_quota() {
    let mut core = Core::new(CoreSettings::default());
    let check = json!({"metadata": {"name": "mk", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"controllerName": "kueue.x-k8s.io/multikueue",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}},
        "status": {"conditions": [condition("Active", "True", "Active")]}});
    let active =
        written_conditions(&core.put(Kind::AdmissionCheck, check), Kind::AdmissionCheck, "mk").remove(0);
    assert_eq!((&active["status"], &active["reason"]), (&json!("False"), &json!("NotSupported")));
    let message = active["message"].as_str().unwrap();
    assert!(message.contains("MultiKueueConfig workers") && message.contains("quotaManagement"), "{message}");
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}});
    core.put(Kind::ClusterQueue, cluster_queue_object("cq", "2", &checks));
    let mut effects = core.put(Kind::ClusterQueue, cluster_queue_object("other", "2", &checks));
    effects.extend(core.advance_seconds(2));
    let active = written_conditions(&effects, Kind::ClusterQueue, "other")
        .pop()
        .expect("the queue reports its status");
    assert_eq!((&active["status"], &active["reason"]), (&json!("False"), &json!("AdmissionCheckInactive")));
    let message = active["message"].as_str().unwrap();
    assert!(message.contains("(mk: jobs are not sent to other clusters"), "{message}");
    let mut reserving = without_owner(reserving_workload("held", &[condition("QuotaReserved", "True", "x")]));
    reserving["status"]["admissionChecks"] = json!([{"name": "mk", "state": "Pending", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let conditions = written_conditions(&core.put(Kind::Workload, reserving), Kind::Workload, "w-held");
    let evicted = conditions.iter().find(|c| c["type"] == "Evicted").expect("it is evicted");
    assert_eq!((&evicted["status"], &evicted["reason"]), (&json!("True"), &json!("AdmissionCheck")));
    let conditions = written_conditions(
        &core.put(Kind::Workload, without_owner(workload("next", &[]))),
        Kind::Workload,
        "w-next",
    );
    assert!(!condition_is_true(&conditions, "QuotaReserved"), "{conditions:?}");
}

/// With ProvisioningRequests off, their checks are inactive, and a Workload that waits for one releases its quota.
#[test]
fn provisioning_check_is_inactive_when_requests_are_off() {
    let mut settings = CoreSettings::default();
    settings.gates.provisioning_requests = false;
    let mut core = Core::new(settings);
    let check = json!({"metadata": {"name": "pr", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}},
        "status": {"conditions": [condition("Active", "True", "Active")]}});
    let active =
        written_conditions(&core.put(Kind::AdmissionCheck, check), Kind::AdmissionCheck, "pr").remove(0);
    assert_eq!((&active["status"], &active["reason"]), (&json!("False"), &json!("NotSupported")));
    assert!(active["message"].as_str().unwrap().contains("--provisioning-requests=false"), "{active}");
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "pr"}]}});
    core.put(Kind::ClusterQueue, cluster_queue_object("cq", "2", &checks));
    let mut reserving = without_owner(reserving_workload("held", &[condition("QuotaReserved", "True", "x")]));
    reserving["status"]["admissionChecks"] = json!([{"name": "pr", "state": "Pending", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let conditions = written_conditions(&core.put(Kind::Workload, reserving), Kind::Workload, "w-held");
    let evicted = conditions.iter().find(|c| c["type"] == "Evicted").expect("it is evicted");
    assert_eq!((&evicted["status"], &evicted["reason"]), (&json!("True"), &json!("AdmissionCheck")));
}

/// A cluster is reported as not supported, whatever an earlier manager reported, and only once.
#[test]
fn multikueue_cluster_reports_not_supported() {
    for conditions in [vec![], vec![condition("Active", "True", "Active")]] {
        let mut core = Core::new(CoreSettings::default());
        let mut cluster = json!({"metadata": {"name": "east"}, "spec": {"clusterSource": {"kubeConfig":
            {"location": "east", "locationType": "Secret"}}}, "status": {"conditions": conditions}});
        let reported = written_conditions(
            &core.put(Kind::MultiKueueCluster, cluster.clone()),
            Kind::MultiKueueCluster,
            "east",
        );
        assert_eq!(
            (&reported[0]["status"], &reported[0]["reason"]),
            (&json!("False"), &json!("NotSupported"))
        );
        cluster["status"]["conditions"] = json!(reported);
        cluster["metadata"]["name"] = json!("west");
        assert!(
            written_conditions(&core.put(Kind::MultiKueueCluster, cluster), Kind::MultiKueueCluster, "west")
                .is_empty()
        );
    }
}

fn with_gates(gates: EngineGates) -> Core {
    Core::new(CoreSettings {
        engine: EngineSettings { gates, ..EngineSettings::default() },
        ..CoreSettings::default()
    })
}

/// Preemption gates belong to two features; with both off they are ignored.
#[test]
fn preemption_gates_apply_when_feature_is_on() {
    let on = EngineGates::default;
    let table = [
        (on(), false),
        (EngineGates { orchestrated_preemption: true, ..on() }, true),
        (EngineGates { concurrent_admission: true, ..on() }, true),
    ];
    for (gates, applied) in table {
        let mut core = with_gates(gates);
        let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
        core.put(Kind::ClusterQueue, cluster_queue_object("cq", "1", &preemption));
        core.put(Kind::Workload, running_workload("low"));
        let mut high = without_owner(workload("high", &[]));
        high["spec"]["priority"] = json!(1);
        high["spec"]["preemptionGates"] = json!([{"name": "kueue.x-k8s.io/multikueue"}]);
        let effects = core.put(Kind::Workload, high);
        let low = condition_is_true(&written_conditions(&effects, Kind::Workload, "w-low"), "Preempted");
        let high = condition_is_true(
            &written_conditions(&effects, Kind::Workload, "w-high"),
            "BlockedOnPreemptionGates",
        );
        assert_eq!((low, high), (!applied, applied), "{gates:?}");
    }
}

/// Without concurrent admission, the annotation of a variant has no effect.
#[test]
fn allowed_flavors_apply_when_concurrent_admission_is_on() {
    for concurrent_admission in [false, true] {
        let mut core = with_gates(EngineGates { concurrent_admission, ..EngineGates::default() });
        let mut variant = without_owner(workload("j", &[]));
        variant["metadata"]["annotations"] =
            json!({"kueue.x-k8s.io/workload-allowed-resource-flavors": "another"});
        variant["metadata"]["ownerReferences"] = json!([{"apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload", "name": "parent", "uid": "workloads-parent", "controller": true}]);
        let conditions = written_conditions(&core.put(Kind::Workload, variant), Kind::Workload, "w-j");
        assert_eq!(condition_is_true(&conditions, "QuotaReserved"), !concurrent_admission, "{conditions:?}");
    }
}

/// With the feature off, a Workload that names another as its former slice needs quota for all of its pods.
#[test]
fn slice_needs_full_quota_when_feature_is_off() {
    let mut core = with_gates(EngineGates { elastic_slices: false, ..EngineGates::default() });
    core.put(Kind::ClusterQueue, cluster_queue_object("cq", "1", &json!({})));
    core.put(Kind::Workload, running_workload("old"));
    let mut new = without_owner(workload("new", &[]));
    new["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w-old"});
    let conditions = written_conditions(&core.put(Kind::Workload, new), Kind::Workload, "w-new");
    assert!(!condition_is_true(&conditions, "QuotaReserved"), "{conditions:?}");
}

/// A victim of a preemptor that borrowed comes behind what was created before its eviction, unless priorities sort the cohort.
#[test]
fn victim_comes_behind_a_borrowing_preemptor_without_priority_sorting() {
    for (sorts, expected) in [(true, "w-victim"), (false, "w-later")] {
        let gates = EngineGates { priority_sorting_within_cohort: sorts, ..EngineGates::default() };
        let mut core = with_gates(gates);
        core.put(Kind::ClusterQueue, cluster_queue_object("cq", "1", &json!({})));
        let evicted = [
            condition("QuotaReserved", "False", "Pending"),
            condition("Evicted", "True", "Preempted"),
            condition("Preempted", "True", "InCohortReclaimWhileBorrowing"),
            condition("Requeued", "True", "Preempted"),
        ];
        let mut victim = without_owner(workload("victim", &evicted));
        victim["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let later = without_owner(workload("later", &[]));
        let deltas = [victim, later].map(|object| core.applied_delta(Kind::Workload, object));
        let effects = core.feed_all(deltas);
        let admitted =
            |name| condition_is_true(&written_conditions(&effects, Kind::Workload, name), "QuotaReserved");
        let names: Vec<&str> = ["w-victim", "w-later"].into_iter().filter(|name| admitted(name)).collect();
        assert_eq!(names, [expected], "priority sorting: {sorts}");
    }
}

/// The annotation for partial admission counts in Job and Workload, or in neither.
#[test]
fn least_parallelism_of_a_job_counts_with_partial_admission_alone() {
    for enabled in [true, false] {
        let mut core = with_gates(EngineGates { partial_admission: enabled, ..EngineGates::default() });
        let mut partial = job("j");
        partial["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        partial["spec"]["parallelism"] = json!(4);
        partial["spec"]["completions"] = json!(4);
        let effects = core.put(JOB, partial);
        let [created] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
        assert_eq!(created.verb, Verb::Create);
        let set = &created.body["spec"]["podSets"][0];
        assert_eq!(set["minCount"], if enabled { json!(2) } else { json!(null) }, "{set:#}");
        // The Workload as the server stores it agrees with the Job: neither is written again.
        let mut stored = created.body.clone();
        let effects = core.land(&effects, &mut stored);
        let of_spec = writes(&effects, Kind::Workload);
        assert!(of_spec.iter().all(|write| write.subresource == Some("status")), "{of_spec:#?}");
    }
}
