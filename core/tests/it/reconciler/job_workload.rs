//! A Job and its Workload while they change: whether the Workload is kept, updated or recreated.

use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload, workload, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Verb, Write};

/// A change that a user makes to a Job.
type Change = fn(&mut Value);

fn reserved_condition() -> Value {
    condition("QuotaReserved", "True", "QuotaReserved")
}

fn admitted_conditions() -> [Value; 2] {
    [reserved_condition(), condition("Admitted", "True", "Admitted")]
}

/// A core whose queue has an admission check.
fn with_check() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": "check"}, "spec": {"controllerName": "a.io/b"},
        "status": {"conditions": [{"type": "Active", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}),
    );
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
        "cohortName": "team", "resourceGroups": groups,
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}}),
    );
    core
}

/// Effects of a core that becomes leader with this Job and this Workload.
fn take_leadership(core: &mut Core, job: Value, workload: Value) -> Vec<Effect> {
    core.feed(Delta::Leading(false));
    let objects = [core.applied_delta(JOB, job), core.applied_delta(Kind::Workload, workload)];
    core.feed_all(objects.into_iter().chain([Delta::Leading(true)]))
}

fn count_deletes(effects: &[Effect]) -> usize {
    writes(effects, Kind::Workload).iter().filter(|write| write.verb == Verb::Delete).count()
}

fn spec_patches(effects: &[Effect]) -> Vec<Write> {
    let patches_spec = |write: &Write| write.verb == Verb::Merge && write.body.get("spec").is_some();
    writes(effects, Kind::Workload).into_iter().filter(patches_spec).collect()
}

/// The cases of Kueue's integrations: containers, counts and tolerations alone decide whether a Workload matches its Job; with
/// any other change, its reservation, topology assignment and retries would be lost for nothing.
#[test]
fn reserved_workload_is_deleted_when_pod_spec_changes() {
    let table: [(&str, Change, bool); 8] = [
        ("nothing", |_| {}, false),
        ("labels", |job| job["spec"]["template"]["metadata"]["labels"] = json!({"a": "b"}), false),
        ("node selector", |job| job["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"}), false),
        (
            "topology",
            |job| {
                job["spec"]["template"]["metadata"]["annotations"] =
                    json!({"kueue.x-k8s.io/podset-preferred-topology": "rack"});
            },
            false,
        ),
        ("priority class", |job| job["spec"]["template"]["spec"]["priorityClassName"] = json!("p"), false),
        ("image", |job| job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("y"), true),
        (
            "tolerations",
            |job| {
                job["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
            },
            true,
        ),
        (
            "parallelism",
            |job| {
                job["spec"]["parallelism"] = json!(2);
                job["spec"]["completions"] = json!(2);
            },
            true,
        ),
    ];
    for (case, change, deleted) in table {
        let not_admitted = condition("Admitted", "False", "UnsatisfiedAdmissionChecks");
        let mut reserving = reserving_workload("j", &[reserved_condition(), not_admitted]);
        reserving["status"]["admissionChecks"] = json!([{"name": "check", "state": "Pending", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut changed = job("j");
        change(&mut changed);
        assert_eq!(
            count_deletes(&take_leadership(&mut with_check(), changed, reserving)),
            usize::from(deleted),
            "{case}"
        );
    }
}

/// A pending Workload is updated in place, whatever has changed in its Job.
#[test]
fn pending_workload_is_updated_from_job() {
    let mut core = Core::new(CoreSettings::default());
    let mut big = workload("j", &[condition("QuotaReserved", "False", "ExceedsMaxQuota")]);
    big["spec"]["podSets"][0]["count"] = json!(5);
    let mut changed = job("j");
    changed["spec"]["parallelism"] = json!(5);
    changed["spec"]["completions"] = json!(5);
    changed["spec"]["template"]["metadata"]["labels"] = json!({"a": "b"});
    let patches = spec_patches(&take_leadership(&mut core, changed, big));
    assert_eq!(patches.len(), 1, "{patches:?}");
    let set = &patches[0].body["spec"]["podSets"][0];
    assert_eq!(set["template"]["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn priority_class_change_reaches_running_workload() {
    for (class, updated) in [("high", true), ("absent", false), ("low", false)] {
        let mut core = Core::new(CoreSettings::default());
        for (name, value) in [("low", 1), ("high", 9)] {
            core.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
        }
        let mut running = reserving_workload("j", &admitted_conditions());
        running["spec"]["priority"] = json!(1);
        running["spec"]["priorityClassRef"] =
            json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"});
        let mut labelled = job("j");
        labelled["spec"]["suspend"] = json!(false);
        labelled["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        let patches = spec_patches(&take_leadership(&mut core, labelled, running));
        assert_eq!(patches.len(), usize::from(updated), "{class}: {patches:?}");
        if let Some(patch) = patches.first() {
            assert_eq!(patch.body["spec"]["priority"], 9);
            assert_eq!(patch.body["spec"]["priorityClassRef"]["name"], "high");
            assert!(patch.body["spec"].get("podSets").is_none());
        }
    }
}

/// The garbage collector removes the references to a Job that is deleted without its dependents. With a reference that is
/// written again it would delete the Workload, or not, depending on which of both was faster.
#[test]
fn job_that_is_being_deleted_does_not_take_its_workload_back() {
    let created = writes(&Core::new(CoreSettings::default()).put(JOB, job("j")), Kind::Workload);
    let mut orphan = created[0].body.clone();
    orphan["metadata"]["ownerReferences"] = json!([]);
    orphan["status"] = json!({"conditions": [condition("QuotaReserved", "False", "ExceedsMaxQuota")]});
    for (deleting, labelled, taken) in [(false, true, 1), (true, true, 0), (true, false, 1)] {
        let (mut job, mut orphan) = (job("j"), orphan.clone());
        if !labelled {
            orphan["metadata"]["labels"] = json!({});
        }
        if deleting {
            job["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            job["metadata"]["finalizers"] = json!(["orphan"]);
        }
        let effects = take_leadership(&mut Core::new(CoreSettings::default()), job, orphan);
        let sets_owner = |write: &Write| write.body["metadata"].get("ownerReferences").is_some();
        let owners = writes(&effects, Kind::Workload).into_iter().filter(sets_owner).count();
        assert_eq!(owners, taken, "deleting: {deleting}, labelled: {labelled}, {effects:?}");
    }
}

/// Devices have no quota yet: Workloads with resource claims stay pending with a reason, however much quota is available.
#[test]
fn resource_claims_are_never_admitted() {
    for (claim, text) in [
        (json!({"name": "gpu", "resourceClaimTemplateName": "one-gpu"}), "one-gpu"),
        (json!({"name": "gpu", "resourceClaimName": "mine"}), "does not support use of resource claims"),
    ] {
        let mut core = Core::new(CoreSettings::default());
        let mut claiming = workload("j", &[]);
        claiming["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = json!([claim]);
        claiming["metadata"]["ownerReferences"] = json!([]);
        claiming["metadata"]["labels"] = json!({});
        let written = writes(&core.put(Kind::Workload, claiming), Kind::Workload);
        assert_eq!(written.len(), 1, "{written:?}");
        let status = &written[0].body["status"];
        assert!(status.get("admission").is_none(), "{status}");
        let condition =
            status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "QuotaReserved");
        let condition = condition.unwrap();
        assert_eq!(
            (condition["status"].as_str(), condition["reason"].as_str()),
            (Some("False"), Some("Misconfigured"))
        );
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains("podSets[0].template.spec.resourceClaims[0]"), "{message}");
        assert!(message.contains(text), "{message}");
    }
}

/// Changes after which the pods of a Job request more than its prebuilt Workload is charged.
const REQUEST_CHANGES: [(&str, Change); 9] = [
    ("count", |job| {
        job["spec"]["parallelism"] = json!(2);
        job["spec"]["completions"] = json!(2);
    }),
    ("request", |job| {
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    }),
    ("limit", |job| {
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = json!({"memory": "1Gi"});
    }),
    ("container", |job| {
        let containers = job["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": "d", "image": "x", "resources": {"requests": {"cpu": "1"}}}));
    }),
    ("init container", |job| {
        job["spec"]["template"]["spec"]["initContainers"] =
            json!([{"name": "d", "image": "x", "resources": {"requests": {"cpu": "2"}}}]);
    }),
    ("sidecar", |job| {
        job["spec"]["template"]["spec"]["initContainers"] = json!([{"name": "d", "image": "x",
            "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]);
    }),
    ("RuntimeClass", |job| job["spec"]["template"]["spec"]["runtimeClassName"] = json!("vm")),
    ("pod-level requests", |job| {
        job["spec"]["template"]["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
    }),
    ("claims", |job| {
        job["spec"]["template"]["spec"]["resourceClaims"] =
            json!([{"name": "gpu", "resourceClaimTemplateName": "gpu"}]);
    }),
];

#[test]
fn prebuilt_workload_that_asks_for_less_is_out_of_sync() {
    let prebuilt = |core: &mut Core, change: Change| {
        let mut job = job("j");
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("w-j");
        change(&mut job);
        take_leadership(core, job, reserving_workload("j", &admitted_conditions()))
    };
    let starts = |effects: &[Effect]| {
        writes(effects, JOB).iter().any(|write| write.body["spec"]["suspend"] == json!(false))
    };
    let mut core = Core::new(CoreSettings::default());
    assert!(starts(&prebuilt(&mut core, |_| {})));
    for (case, change) in REQUEST_CHANGES {
        let mut core = Core::new(CoreSettings::default());
        let effects = prebuilt(&mut core, change);
        assert!(!starts(&effects), "{case}: {effects:?}");
        let written = writes(&effects, Kind::Workload);
        let conditions = written.iter().filter_map(|write| write.body["status"]["conditions"].as_array());
        let finished = conditions.flatten().find(|condition| condition["type"] == "Finished");
        assert_eq!(finished.map(|condition| &condition["reason"]), Some(&json!("OutOfSync")), "{case}");
    }
}

/// Whatever overhead a Workload states, its pods get that of their RuntimeClass.
#[test]
fn workload_is_charged_overhead_of_runtime_class() {
    for (class, overhead, charged) in [
        ("vm", json!({"cpu": "1m"}), 1500),
        ("vm", json!({}), 1500),
        ("vm", json!({"cpu": "750m"}), 1750),
        ("gone", json!({"cpu": "1m"}), 1001),
    ] {
        let mut core = Core::new(CoreSettings::default());
        core.put(
            Kind::RuntimeClass,
            json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "500m"}}}),
        );
        let mut bare = workload("j", &[]);
        bare["metadata"] = json!({"name": "w", "namespace": "ns"});
        let spec = &mut bare["spec"]["podSets"][0]["template"]["spec"];
        spec["runtimeClassName"] = json!(class);
        spec["overhead"] = overhead.clone();
        let written = writes(&core.put(Kind::Workload, bare), Kind::Workload);
        let usage = &written[0].body["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
        assert_eq!(usage["cpu"], json!(format!("{charged}m")), "{class} {overhead}: {written:?}");
    }
}

/// What can raise the requests of pods after quota was reserved: the containers of the Job request nothing themselves.
fn limit_range(cpu: &str) -> (Kind, Value) {
    let range = json!({"type": "Container", "defaultRequest": {"cpu": cpu}});
    (Kind::LimitRange, json!({"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": [range]}}))
}

fn runtime_class(cpu: &str) -> (Kind, Value) {
    let overhead = json!({"podFixed": {"cpu": cpu}});
    (Kind::RuntimeClass, json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": overhead}))
}

#[test]
fn job_whose_requests_rose_since_its_charge_is_queued_again() {
    type WithCpu = fn(&str) -> (Kind, Value);
    let objects: [(&str, WithCpu); 2] = [("LimitRange", limit_range), ("RuntimeClass", runtime_class)];
    for (case, object) in objects {
        for (cpu, admitted, covered) in [
            ("1", true, true),
            ("500m", true, true),
            ("1500m", true, false),
            ("1500m", false, false),
            ("1", false, true),
        ] {
            let mut core = if admitted { Core::new(CoreSettings::default()) } else { with_check() };
            let without_requests = |pods: &mut Value| {
                pods["spec"]["containers"][0]["resources"] = json!({});
                pods["spec"]["runtimeClassName"] = json!("vm");
            };
            let mut asking = job("j");
            without_requests(&mut asking["spec"]["template"]);
            let conditions =
                if admitted { admitted_conditions().to_vec() } else { vec![reserved_condition()] };
            let mut charged = reserving_workload("j", &conditions);
            without_requests(&mut charged["spec"]["podSets"][0]["template"]);
            if !admitted {
                charged["status"]["admissionChecks"] = json!([{"name": "check", "state": "Pending", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
            }
            let (kind, before) = object("1");
            core.put(kind, before);
            core.feed(Delta::Leading(false));
            let objects = [core.applied_delta(JOB, asking), core.applied_delta(Kind::Workload, charged)];
            let (kind, after) = object(cpu);
            let raised = core.applied_delta(kind, after);
            let effects = core.feed_all(objects.into_iter().chain([raised, Delta::Leading(true)]));
            let starts = writes(&effects, JOB).len();
            let expected = (usize::from(admitted && covered), usize::from(!covered));
            assert_eq!((starts, count_deletes(&effects)), expected, "{case} {cpu} {admitted}: {effects:?}");
        }
    }
}

/// A Job that waits for its checks is looked at when the LimitRange changes.
#[test]
fn raised_limit_range_requeues_job_that_waits_for_checks() {
    let mut core = with_check();
    let (kind, before) = limit_range("1");
    core.put(kind, before);
    let mut asking = job("j");
    asking["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    let mut unchecked = condition("Admitted", "False", "UnsatisfiedAdmissionChecks");
    unchecked["message"] = json!("The workload has not all checks ready");
    let mut charged = reserving_workload("j", &[reserved_condition(), unchecked]);
    charged["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
    charged["status"]["admissionChecks"] = json!([{"name": "check", "state": "Pending", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let waiting = take_leadership(&mut core, asking, charged);
    assert!(writes(&waiting, Kind::Workload).is_empty(), "{waiting:?}");
    let (kind, after) = limit_range("2");
    let effects = core.put(kind, after);
    assert_eq!(count_deletes(&effects), 1, "{effects:?}");
}
