//! Queues, flavors and what else a queue refers to, in a form that cannot be read: what waits for them says so, what holds quota
//! keeps it, and all go on when the object can be read again.

use crate::fixtures::leading_core::{Core, condition, reserving_workload, workload, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Effect, SnapshotIntervals, Verb, Write};

/// A queue of 4 CPU with a check, below two cohorts, whose flavor has a topology; each object can be read.
fn objects() -> Vec<(Kind, Value)> {
    vec![
        (
            Kind::Node,
            json!({"metadata": {"name": "n", "labels": {"rack": "r"}}, "status": {
                "allocatable": {"cpu": "9", "pods": "9"}, "conditions": [condition("Ready", "True", "Ready")]}}),
        ),
        (Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})),
        (Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {"topologyName": "t"}})),
        (
            Kind::AdmissionCheck,
            json!({"metadata": {"name": "c"}, "spec": {"controllerName": "a.b/c"},
            "status": {"conditions": [condition("Active", "True", "Active")]}}),
        ),
        (Kind::Cohort, json!({"metadata": {"name": "org"}, "spec": {}})),
        (Kind::Cohort, json!({"metadata": {"name": "team"}, "spec": {"parentName": "org"}})),
        (
            Kind::ClusterQueue,
            json!({"metadata": {"name": "cq"}, "spec": {
            "namespaceSelector": {}, "cohortName": "team",
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}),
        ),
        (
            Kind::LocalQueue,
            json!({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
        ),
    ]
}

fn without_owner(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

fn new_core(objects: &[(Kind, Value)]) -> Core {
    let snapshot = SnapshotIntervals { queues: jiff::SignedDuration::ZERO, ..SnapshotIntervals::default() };
    let mut core = Core::new(CoreSettings { snapshot, ..CoreSettings::default() });
    for (kind, object) in objects {
        core.put(*kind, object.clone());
    }
    core
}

fn cpu_usage(core: &Core) -> i64 {
    let queues = &core.state.snapshot().queues.cluster_queues;
    queues["cq"].usage_by_flavor_resource.values().map(|node| node.usage.get()).sum()
}

/// The message of the condition QuotaReserved in the last write of Workload `next`.
fn pending_message(effects: &[Effect]) -> String {
    let of_next = writes(effects, Kind::Workload).into_iter().filter(|write| *write.key.name == *"w-next");
    let status = of_next.last().map(|write| write.body["status"].clone()).unwrap_or_default();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let reserved = conditions.iter().find(|c| c["type"] == "QuotaReserved" && c["status"] == "False");
    reserved.map(|c| c["message"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn unreadable_reference_is_named_where_jobs_wait() {
    let cases = [
        (
            "ClusterQueue",
            "/spec/queueingStrategy",
            json!("Sideways"),
            "ClusterQueue cq is inactive: Can't admit new workloads: it cannot be read: spec.queueingStrategy: unknown variant `Sideways`",
        ),
        (
            "ClusterQueue",
            "/spec/preemption",
            json!({"withinClusterQueue": "Sometimes"}),
            "spec.preemption.withinClusterQueue: unknown variant `Sometimes`",
        ),
        (
            "LocalQueue",
            "/spec/stopPolicy",
            json!("Later"),
            "LocalQueue lq is inactive: it cannot be read: spec.stopPolicy: unknown variant `Later`",
        ),
        (
            "ResourceFlavor",
            "/spec/nodeTaints",
            json!([{"key": 7}]),
            "ResourceFlavor f cannot be read: spec.nodeTaints[0].key: ",
        ),
        (
            "Topology",
            "/spec/levels",
            json!([{"nodeLabel": "rack"}, {"nodeLabel": 7}]),
            "Topology t cannot be read: spec.levels[1].nodeLabel: ",
        ),
        (
            "AdmissionCheck",
            "/spec/parameters",
            json!("none"),
            "AdmissionCheck c cannot be read: spec.parameters: ",
        ),
        ("Cohort", "/spec/parentName", json!(7), "Cohort team cannot be read: spec.parentName: "),
    ];
    for (name, field, odd, expected) in cases {
        let mut broken = objects();
        let (kind, object) = broken.iter_mut().rev().find(|(kind, _)| kind.resource().kind == name).unwrap();
        let (kind, good) = (*kind, object.clone());
        let (parent, last) = field.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[last] = odd.clone();
        let odd_object = object.clone();
        let admitted = [condition("QuotaReserved", "True", "a"), condition("Admitted", "True", "a")];
        let holder = without_owner(reserving_workload("holder", &admitted));
        let next = without_owner(workload("next", &[]));

        // It becomes unreadable, or is so when the manager starts.
        for starts in [false, true] {
            let case = format!("{name} {field}, at the start: {starts}");
            let mut core = new_core(if starts { &broken } else { &[] });
            if !starts {
                for (kind, object) in objects() {
                    core.put(kind, object);
                }
            }
            core.put(Kind::Workload, holder.clone());
            if !starts {
                core.put(kind, odd_object.clone());
            }
            let effects = core.put(Kind::Workload, next.clone());
            assert!(pending_message(&effects).contains(expected), "{case}: {effects:#?}");
            core.advance_seconds(1);
            assert_eq!(cpu_usage(&core), 1000, "{case}");

            // The write is answered, and the object can be read again.
            let mut pending = next.clone();
            let effects: Vec<_> = effects
                .into_iter()
                .filter(|effect| {
                    matches!(effect,
                Effect::Write(write) if *write.key.name == *"w-next")
                })
                .collect();
            core.land(&effects, &mut pending);
            let effects = core.put(kind, good.clone());
            let reserves =
                |write: &Write| write.verb == Verb::Apply && write.body["status"]["admission"].is_object();
            assert!(writes(&effects, Kind::Workload).iter().any(reserves), "{case}: {effects:#?}");
        }
    }
}

/// A state of a check that a later version has written: the Workload waits for it, and the state stays as it is.
#[test]
fn unknown_state_of_a_check_is_waited_for() {
    let mut core = new_core(&objects());
    let mut reserving = without_owner(reserving_workload("next", &[condition("QuotaReserved", "True", "a")]));
    let check = |state: &str| json!([{"name": "c", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    reserving["status"]["admissionChecks"] = check("Later");
    let written = writes(&core.put(Kind::Workload, reserving.clone()), Kind::Workload);
    let state = |write: &Write| write.body["status"]["admissionChecks"][0]["state"].clone();
    let admits = |write: &Write| {
        let conditions = write.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Admitted" && c["status"] == "True")
    };
    assert!(written.iter().all(|write| state(write) == "Later" && !admits(write)), "{written:#?}");
    core.advance_seconds(1);
    assert_eq!(cpu_usage(&core), 1000);
    let mut started = new_core(&objects());
    reserving["status"]["admissionChecks"] = check("Ready");
    let written = writes(&started.put(Kind::Workload, reserving), Kind::Workload);
    assert!(written.iter().any(admits), "{written:#?}");
}

/// Times in the statuses of what Kueue manages are read as Go reads them.
#[test]
fn odd_times_of_statuses_are_read() {
    let odd = "9999-12-31T23:59:59.1234567890Z";
    let mut objects = objects();
    for (kind, object) in objects.iter_mut().filter(|(kind, _)| *kind != Kind::Node) {
        let mut active = condition("Active", "True", "Ready");
        active["lastTransitionTime"] = json!(odd);
        object["status"] = json!({"conditions": [active]});
        if *kind == Kind::LocalQueue {
            object["status"]["fairSharing"] = json!({"weightedShare": 0, "admissionFairSharingStatus":
                {"consumedResources": {"cpu": "1"}, "lastUpdate": odd}});
        }
    }
    let mut core = new_core(&objects);
    let effects = core.put(Kind::Workload, without_owner(workload("next", &[])));
    assert!(
        writes(&effects, Kind::Workload).iter().any(|w| w.body["status"]["admission"].is_object()),
        "{effects:#?}"
    );
}
