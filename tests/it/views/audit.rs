//! The checks of an audit, each found where it holds and not where it does not, and only by readers of its objects.

use crate::fixtures::audit_commands::assert_runs_as_it_stands;
use crate::fixtures::leading_core::{Core, JOB, condition, put_job_and_workload};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::reconciler::{CoreSettings, Delta};
use sluice::snapshot::{AuditFacts, Snapshot};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::findings::{audit, count, findings};
use sluice::visibility::page::ModelError;
use sluice::visibility::views::Finding;
use std::collections::BTreeMap;

/// A follower, so that nothing is decided, with a queue of 2 CPUs and a node that has them.
pub(crate) fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    node(&mut core, "n0", &json!({}), &[]);
    core
}

pub(crate) fn node(core: &mut Core, name: &str, labels: &Value, taints: &[Value]) {
    core.put(
        Kind::Node,
        json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "example.com/gpu": "8", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
}

pub(crate) fn quota(flavor: &str, cpu: &str) -> Value {
    json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}])
}

pub(crate) fn queue(core: &mut Core, name: &str, spec: &Value) {
    let mut all = json!({"namespaceSelector": {}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": all}));
    let local = json!({"metadata": {"name": format!("to-{name}"), "namespace": "ns"}, "spec": {"clusterQueue": name}});
    core.put(Kind::LocalQueue, local);
}

pub(crate) fn workload(core: &mut Core, (name, queue): (&str, &str), requests: &Value, conditions: &[Value]) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": requests}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    put_job_and_workload(core, ("ns", name, queue), (1, 0), &template, conditions);
}

pub(crate) fn published(core: &mut Core) -> Snapshot {
    core.advance_seconds(120);
    core.state.snapshot()
}

/// What an audit of the cluster finds: `check object: message`.
fn found(core: &mut Core) -> Vec<String> {
    let snapshot = published(core);
    let facts = core.state.audit_facts();
    let all = audit((&snapshot, Some(&facts)), &Access::everything(), (None, core.now)).unwrap();
    let names: BTreeMap<&str, &Finding> = all.iter().map(|one| (&*one.metadata.name, one)).collect();
    assert_eq!(names.len(), all.len(), "names are their own");
    all.iter().for_each(assert_runs_as_it_stands);
    let text = |one: &Finding| {
        let place = if one.object.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", one.object.namespace)
        };
        format!("{} {}/{place}{}: {}", one.check.as_str(), one.object.kind, one.object.name, one.message)
    };
    all.iter().map(text).collect()
}

/// Asserts that a cluster has exactly these findings after `set_up`, beside those that it always has.
pub(crate) fn assert_found(what: &str, set_up: impl FnOnce(&mut Core), expected: &[&str]) {
    let mut core = core();
    let before = found(&mut core);
    set_up(&mut core);
    let all = found(&mut core);
    let new: Vec<&String> = all.iter().filter(|one| !before.contains(one)).collect();
    assert_eq!(new, expected, "{what}");
}

#[test]
fn a_cluster_without_faults_has_no_findings() {
    assert_eq!(found(&mut core()), Vec::<String>::new());
}

#[test]
fn faults_of_queues_are_found() {
    assert_found(
        "no quota",
        |core| queue(core, "empty", &json!({})),
        &["clusterqueue-no-flavor ClusterQueue/empty: it has no resource groups"],
    );
    assert_found(
        "a flavor that does not exist",
        |core| queue(core, "broken", &json!({"resourceGroups": quota("ff", "1")})),
        &["flavor-missing ClusterQueue/broken: ResourceFlavor ff does not exist; f?"],
    );
    assert_found(
        "a cohort that was misspelt",
        |core| queue(core, "lost", &json!({"cohortName": "taem"})),
        &[
            "cohort-single-member ClusterQueue/lost: Cohort taem has no other member; team?",
            "clusterqueue-no-flavor ClusterQueue/lost: it has no resource groups",
        ],
    );
    assert_found(
        "no way in",
        |core| {
            drop(core.put(Kind::ClusterQueue, json!({"metadata": {"name": "alone"}, "spec": {"namespaceSelector": {}, "resourceGroups": quota("f", "0")}})));
        },
        &["clusterqueue-unreachable ClusterQueue/alone: no LocalQueue names it"],
    );
    let selector = json!({"matchLabels": {"team": "none"}});
    assert_found(
        "it selects nothing",
        |core| {
            queue(core, "picky", &json!({"namespaceSelector": selector, "resourceGroups": quota("f", "0")}));
        },
        &["clusterqueue-unreachable ClusterQueue/picky: its namespaceSelector matches no namespace"],
    );
    let orphan = json!({"metadata": {"name": "orphan", "namespace": "ns"}, "spec": {"clusterQueue": "cp"}});
    assert_found(
        "a queue that does not exist",
        |core| drop(core.put(Kind::LocalQueue, orphan)),
        &["localqueue-orphan LocalQueue/ns/orphan: ClusterQueue cp does not exist; cq?"],
    );
    assert_found(
        "cohorts in a circle",
        |core| {
            drop(
                core.put(Kind::Cohort, json!({"metadata": {"name": "org"}, "spec": {"parentName": "team"}})),
            );
        },
        &[
            "cohort-cycle Cohort/org: its parents form a cycle",
            "cohort-cycle Cohort/team: its parents form a cycle",
            "clusterqueue-inactive ClusterQueue/cq: it is inactive: the parents of Cohort team form a cycle",
        ],
    );
}

#[test]
fn limits_without_effect_are_found() {
    let limits = |cohort: Option<&str>, nominal: &str, limits: &Value| {
        let mut resource = json!({"name": "cpu", "nominalQuota": nominal});
        resource.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        json!({"cohortName": cohort, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]})
    };
    let case = |what: &str, spec: Value, expected: &[&str]| {
        assert_found(what, |core| queue(core, "own", &spec), expected);
    };
    case(
        "no cohort",
        limits(None, "0", &json!({"borrowingLimit": "1"})),
        &["borrowing-useless ClusterQueue/own: it has a borrowing limit and no cohort"],
    );
    // The queue of the fixture lends 2 CPUs.
    case("as much as there is", limits(Some("team"), "0", &json!({"borrowingLimit": "2"})), &[]);
    case(
        "more than there is",
        limits(Some("team"), "0", &json!({"borrowingLimit": "3"})),
        &[
            "borrowing-useless ClusterQueue/own: the borrowing limit of f cpu is above what its cohorts can provide",
        ],
    );
    case(
        "lends all",
        limits(Some("team"), "0", &json!({"lendingLimit": "0"})),
        &["lending-useless ClusterQueue/own: the lending limit of f cpu is not below the nominal quota"],
    );
}

#[test]
fn one_sided_preemption_is_found() {
    let spec = |policy: Option<&str>, limits: &Value| {
        let mut resource = json!({"name": "cpu", "nominalQuota": "2"});
        resource.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let mut spec = json!({"cohortName": "pair", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]});
        if let Some(policy) = policy {
            spec["preemption"] = json!({"reclaimWithinCohort": policy});
        }
        spec
    };
    let says = "preemption-asymmetric ClusterQueue/gives: it lends cpu to takes, which takes back quota, and never takes back its own";
    for (what, gives, takes, expected) in [
        ("one reclaims", spec(None, &json!({})), spec(Some("Any"), &json!({})), &[says][..]),
        ("by priority", spec(Some("Never"), &json!({})), spec(Some("LowerPriority"), &json!({})), &[says]),
        ("both reclaim", spec(Some("Any"), &json!({})), spec(Some("Any"), &json!({})), &[]),
        ("none reclaims", spec(None, &json!({})), spec(None, &json!({})), &[]),
        ("it lends nothing", spec(None, &json!({"lendingLimit": "0"})), spec(Some("Any"), &json!({})), &[]),
        (
            "the other one borrows nothing",
            spec(None, &json!({})),
            spec(Some("Any"), &json!({"borrowingLimit": "0"})),
            &[],
        ),
    ] {
        let mut core = core();
        queue(&mut core, "gives", &gives);
        queue(&mut core, "takes", &takes);
        let all = found(&mut core).into_iter().filter(|one| one.starts_with("preemption-asymmetric"));
        assert_eq!(all.collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn unused_queues_are_found_after_a_day() {
    let mut core = core();
    queue(&mut core, "used", &json!({"resourceGroups": quota("f", "0")}));
    queue(&mut core, "unused", &json!({"resourceGroups": quota("f", "0")}));
    workload(&mut core, ("a", "to-used"), &json!({"cpu": "1"}), &[]);
    let idle = |core: &mut Core| -> Vec<String> {
        found(core).into_iter().filter(|one| one.starts_with("localqueue-idle")).collect()
    };
    core.advance_seconds(29 * 86_400);
    assert_eq!(idle(&mut core), Vec::<String>::new(), "they are younger than 30 days");
    core.advance_seconds(2 * 86_400);
    let says = |name: &str| {
        format!(
            "localqueue-idle LocalQueue/ns/{name}: it is 31 days old and has no workload; none was recorded for a day"
        )
    };
    assert_eq!(idle(&mut core), [says("lq"), says("to-unused")]);
    // What was read just now tells nothing of the time before.
    let facts = AuditFacts { recorded_since: Some(core.now), ..core.state.audit_facts() };
    let all = audit((&core.state.snapshot(), Some(&facts)), &Access::everything(), (None, core.now)).unwrap();
    assert!(all.iter().all(|one| one.check.as_str() != "localqueue-idle"));
}

#[test]
fn faults_of_workloads_are_found() {
    let waits = |reason: &str, message: &str| {
        let mut waits = condition("QuotaReserved", "False", reason);
        waits["message"] = json!(message);
        waits
    };
    let never = |request: &str| {
        waits(
            "ExceedsMaxQuota",
            &format!(
                "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f, request ({request}) > maximum capacity (2) at ClusterQueue cq"
            ),
        )
    };
    assert_found(
        "more than there can be",
        |core| {
            for (name, cpu) in [("a", "3"), ("b", "8"), ("c", "5")] {
                workload(core, (name, "lq"), &json!({"cpu": cpu}), &[never(cpu)]);
            }
            workload(core, ("d", "lq"), &json!({"cpu": "2"}), &[waits("WaitingForQuota", "m")]);
        },
        &["workload-never-fits ClusterQueue/cq: 3 workloads request 3 to 8 cpu, at most 2"],
    );
    assert_found(
        "no such LocalQueue",
        |core| {
            workload(core, ("a", "lqq"), &json!({"cpu": "1"}), &[]);
            workload(core, ("b", "lqq"), &json!({"cpu": "1"}), &[]);
        },
        &["localqueue-missing Namespace/ns: 2 workloads name LocalQueue lqq; lq?"],
    );
    assert_found(
        "a pod that no node holds, beside its devices",
        |core| {
            let large = json!({"metadata": {"name": "large"}, "status": {"allocatable": {"cpu": "64", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}});
            core.put(Kind::Node, large);
            let groups = json!([{"coveredResources": ["cpu", "example.com/gpu"], "flavors": [{"name": "f", "resources": [
                {"name": "cpu", "nominalQuota": "62"}, {"name": "example.com/gpu", "nominalQuota": "8"}]}]}]);
            queue(core, "wide", &json!({"resourceGroups": groups}));
            for (name, requests) in [
                ("a", json!({"cpu": "3", "example.com/gpu": "8"})),
                ("b", json!({"cpu": "2", "example.com/gpu": "8"})),
                ("c", json!({"cpu": "60"})),
            ] {
                workload(core, (name, "to-wide"), &requests, &[]);
            }
        },
        &["request-exceeds-node ClusterQueue/wide: 1 workload: 3 cpu beside 8 gpu, nodes have 2"],
    );
}

#[test]
fn faults_of_flavors_are_found() {
    let flavor =
        |name: &str, spec: Value| (Kind::ResourceFlavor, json!({"metadata": {"name": name}, "spec": spec}));
    let put = |core: &mut Core, (kind, object): (Kind, Value)| drop(core.put(kind, object));
    assert_found(
        "no node has the label",
        |core| {
            node(core, "n1", &json!({"gpu": "a100-40g"}), &[]);
            core.put(Kind::Node, json!({"metadata": {"name": "n1", "labels": {"gpu": "a100-40g"}}, "spec": {"unschedulable": true}}));
            put(core, flavor("gpus", json!({"nodeLabels": {"gpu": "a100-80g"}})));
        },
        &["flavor-without-nodes ResourceFlavor/gpus: no node has gpu=a100-80g; a100-40g?"],
    );
    assert_found(
        "more quota than nodes",
        |core| {
            node(core, "n1", &json!({"pool": "a"}), &[]);
            core.put(
                Kind::Node,
                json!({"metadata": {"name": "n2", "labels": {"pool": "a"}}, "spec": {"unschedulable": true}}),
            );
            put(core, flavor("pool", json!({"nodeLabels": {"pool": "a"}})));
            queue(core, "pooled", &json!({"resourceGroups": quota("pool", "5")}));
            queue(core, "rest", &json!({"resourceGroups": quota("f", "2")}));
        },
        &[
            "quota-exceeds-capacity ResourceFlavor/pool: 5 cpu of quota, 2 on schedulable nodes (1 node not schedulable)",
        ],
    );
    assert_found(
        "less quota than nodes",
        |core| node(core, "n1", &json!({}), &[]),
        &["quota-below-capacity ResourceFlavor/f: 2 cpu of quota, 4 on schedulable nodes"],
    );
    assert_found(
        "another flavor has the rest of the same nodes",
        |core| {
            node(core, "n1", &json!({"pool": "p"}), &[]);
            put(core, flavor("spot", json!({"nodeLabels": {"pool": "p"}})));
            queue(core, "spots", &json!({"resourceGroups": quota("spot", "2")}));
        },
        &[],
    );
    let taint = json!({"key": "reserved", "value": "x", "effect": "NoSchedule"});
    assert_found(
        "a taint",
        |core| {
            node(core, "n0", &json!({}), std::slice::from_ref(&taint));
            workload(core, ("a", "lq"), &json!({"cpu": "1"}), &[]);
        },
        &[
            "flavor-untolerated ResourceFlavor/f: 1 of 1 node has taint reserved=x:NoSchedule, which nothing tolerates",
        ],
    );
    assert_found(
        "a taint that pods tolerate",
        |core| {
            node(core, "n0", &json!({}), std::slice::from_ref(&taint));
            let template = json!({"spec": {"restartPolicy": "Never", "tolerations": [{"key": "reserved", "operator": "Exists"}],
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
            put_job_and_workload(core, ("ns", "a", "lq"), (1, 0), &template, &[]);
        },
        &[],
    );
    assert_found(
        "a level that nodes lack",
        |core| {
            core.put(
                Kind::Topology,
                json!({"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}),
            );
            node(core, "n0", &json!({"pool": "a"}), &[]);
            put(core, flavor("racked", json!({"nodeLabels": {"pool": "a"}, "topologyName": "racks"})));
        },
        &["topology-level-missing ResourceFlavor/racked: 1 of 1 node lacks a level label of Topology racks"],
    );
}

#[test]
fn faults_of_jobs_and_checks_are_found() {
    let job = |name: &str, labels: Value, suspend: bool| {
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
        json!({"metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"parallelism": 1, "completions": 1, "suspend": suspend, "template": template}})
    };
    let class =
        |class: &str| json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": class});
    assert_found(
        "a class that does not exist",
        |core| {
            core.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": "prod"}, "value": 7}));
            for name in ["a", "b"] {
                core.put(JOB, job(name, class("prdo"), true));
            }
            core.put(JOB, job("c", class("prod"), true));
        },
        &["priority-class-missing Namespace/ns: 2 Jobs name class prdo; prod?"],
    );
    assert_found(
        "a job past the queues",
        |core| {
            core.put(JOB, job("a", json!({}), false));
            core.put(JOB, job("b", json!({}), true));
            core.put(Kind::Namespace, json!({"metadata": {"name": "plain"}}));
            let mut elsewhere = job("c", json!({}), false);
            elsewhere["metadata"]["namespace"] = json!("plain");
            core.put(JOB, elsewhere);
        },
        &["job-unmanaged Namespace/ns: 1 Job runs without a queue name"],
    );
    let check = |name: &str, status: &str| {
        let active = json!({"type": "Active", "status": status, "reason": "Active", "message": "", "lastTransitionTime": "2027-01-15T07:00:00Z"});
        json!({"metadata": {"name": name}, "spec": {"controllerName": "example.com/budget"}, "status": {"conditions": [active]}})
    };
    let reserving = |core: &mut Core, since: i64| {
        let reserved = condition("QuotaReserved", "True", "QuotaReserved");
        workload(core, ("a", "lq"), &json!({"cpu": "1"}), &[reserved]);
        let mut stored = json!({"metadata": {"name": "a", "namespace": "ns", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j-a", "uid": "jobs-j-a", "controller": true}]},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}]}});
        let at = Timestamp::from_second(core.now.as_second() - since).unwrap();
        stored["status"] = json!({"conditions": [condition("QuotaReserved", "True", "QuotaReserved")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}]},
            "admissionChecks": [{"name": "budget", "state": "Pending", "lastTransitionTime": at.to_string(), "message": ""}]});
        core.put(Kind::Workload, stored);
    };
    assert_found(
        "no controller",
        |core| {
            core.put(Kind::AdmissionCheck, check("budget", "True"));
            core.put(Kind::AdmissionCheck, check("other", "False"));
            reserving(core, 60);
        },
        &["check-unanswered AdmissionCheck/other: no controller says that it is active"],
    );
    assert_found(
        "a late answer",
        |core| {
            core.put(Kind::AdmissionCheck, check("budget", "True"));
            reserving(core, 3_600);
        },
        &["check-unanswered AdmissionCheck/budget: it has been pending for more than an hour on 1 workload"],
    );
}

#[test]
fn a_queue_that_waits_for_its_own_quota_is_found() {
    let starve = |core: &mut Core, policy: &str| {
        node(core, "n1", &json!({}), &[]);
        queue(
            core,
            "owner",
            &json!({"cohortName": "team", "preemption": {"reclaimWithinCohort": policy}, "resourceGroups": quota("f", "2")}),
        );
        // The queue of the fixture has 2 CPUs of its own and uses 4.
        let reserved = || condition("QuotaReserved", "True", "QuotaReserved");
        for name in ["a", "b", "c", "d"] {
            workload(core, (name, "lq"), &json!({"cpu": "1"}), &[reserved()]);
        }
        workload(
            core,
            ("mine", "to-owner"),
            &json!({"cpu": "2"}),
            &[condition("QuotaReserved", "False", "WaitingForQuota")],
        );
        core.advance_seconds(600);
    };
    let text = |policy: &str| {
        format!(
            "starved ClusterQueue/owner: its head has waited for 14m below nominal quota (0 of 2 f cpu) while cq borrows 2; preemption.reclaimWithinCohort is {policy}"
        )
    };
    // The queue of the fixture never takes back quota.
    let other = "preemption-asymmetric ClusterQueue/cq: it lends cpu to owner, which takes back quota, and never takes back its own";
    assert_found("Never", |core| starve(core, "Never"), &[&text("Never")]);
    assert_found("LowerPriority", |core| starve(core, "LowerPriority"), &[&text("LowerPriority"), other]);
    assert_found("it reclaims", |core| starve(core, "Any"), &[other]);
}

#[test]
fn findings_are_for_readers_of_their_objects() {
    let mut core = core();
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    let orphan = |namespace: &str| json!({"metadata": {"name": "orphan", "namespace": namespace}, "spec": {"clusterQueue": "cp"}});
    core.put(Kind::LocalQueue, orphan("other"));
    core.put(Kind::LocalQueue, orphan("ns"));
    workload(&mut core, ("lost", "secnd"), &json!({"cpu": "1"}), &[]);
    queue(&mut core, "empty", &json!({}));
    let snapshot = published(&mut core);
    let all = findings(&snapshot, &Access::everything(), None).unwrap();
    assert_eq!((all.len(), count(&all).errors), (4, 4));
    // A tenant reads of its own objects, and no name of a ClusterQueue that it did not write.
    let tenant = Access::to_namespace("other", TenantDetail::Sums);
    let own = findings(&snapshot, &tenant, Some("other")).unwrap();
    let messages: Vec<&str> = own.iter().map(|finding| &*finding.message).collect();
    assert_eq!(messages, ["ClusterQueue cp does not exist"]);
    assert_eq!(findings(&snapshot, &tenant, None).unwrap(), own);
    let tenant = Access::to_namespace("ns", TenantDetail::Sums);
    let checks: Vec<&str> = findings(&snapshot, &tenant, Some("ns"))
        .unwrap()
        .iter()
        .map(|finding| finding.check.as_str())
        .collect();
    assert_eq!(checks, ["localqueue-missing", "localqueue-orphan"]);
    assert_eq!(findings(&Snapshot::default(), &tenant, None), Err(ModelError::NotSynced));
}
