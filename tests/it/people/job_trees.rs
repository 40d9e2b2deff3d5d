//! Golden texts of `tree job`.

use crate::people::texts::check;
use serde_json::json;
use sluice::people::job_tree::{JobParts, Part, job_tree};

#[test]
fn expected_trees_of_jobs() {
    let since = |seconds: i64| format!("2026-11-26T13:{:02}:{:02}Z", seconds / 60, seconds % 60);
    let condition = |kind: &str, at: i64| json!({"type": kind, "status": "True", "lastTransitionTime": since(at), "reason": kind});
    let pod = |name: &str, node: &str, phase: &str, ready: bool| {
        json!({"metadata": {"name": name, "uid": format!("u-{name}"), "labels": {"kueue.x-k8s.io/podset": "main"}}, "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
    };
    let parts = JobParts {
        name: "Job ranker-daily".to_owned(),
        job: Some(json!({"metadata": {"uid": "u-job"}, "spec": {"parallelism": 4}, "status": {"ready": 3}})),
        workloads: vec![json!({
            "metadata": {"name": "job-ranker-daily-77ac2", "uid": "u-wl"},
            "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 4, "topologyRequest": {"preferred": "dc.example/block"}}]},
            "status": {
                "admission": {"clusterQueue": "ranking", "podSetAssignments": [{"name": "main", "count": 4, "flavors": {"cpu": "h100-80g", "nvidia.com/gpu": "h100-80g"}}]},
                "admissionChecks": [
                    {"name": "capacity", "state": "Ready", "lastTransitionTime": since(18)},
                    {"name": "gpu-budget", "state": "Pending", "message": "the budget of this month is used up", "lastTransitionTime": since(0)}],
                "conditions": [condition("QuotaReserved", 0), condition("Admitted", 18)],
            },
        })],
        provisioning: Part::Read(vec![
            json!({"metadata": {"name": "job-ranker-daily-77ac2-capacity-1"}, "status": {"conditions": [condition("Provisioned", 18)]}}),
        ]),
        pods: Part::Read(vec![
            pod("a", "h1", "Running", true),
            pod("b", "h1", "Running", true),
            pod("c", "h3", "Running", true),
            pod("d", "", "Pending", false),
        ]),
        nodes: [("h3".to_owned(), "cordoned")].into(),
        domains: std::collections::BTreeMap::new(),
    };
    check("tree-job", |look| job_tree(&parts, look.wide, look));
    let domain = |node: &str, domain: &str| (node.to_owned(), domain.to_owned());
    let racks = JobParts {
        domains: [domain("h1", "b2/r3"), domain("h2", "b2/r3"), domain("h3", "b1/r4")].into(),
        pods: Part::Read(vec![
            pod("a", "h1", "Running", true),
            pod("b", "h2", "Running", true),
            pod("c", "h3", "Running", true),
            pod("d", "h4", "Running", true),
        ]),
        ..parts.clone()
    };
    check("tree-job-topology", |look| job_tree(&racks, false, look));
    let forbidden = JobParts {
        pods: Part::Forbidden,
        provisioning: Part::Forbidden,
        job: Some(json!({"spec": {"suspend": true}})),
        ..parts.clone()
    };
    check("tree-job-forbidden", |look| job_tree(&forbidden, false, look));
    let bare = JobParts {
        name: "no job".to_owned(),
        job: None,
        workloads: vec![
            json!({"metadata": {"name": "bare"}, "spec": {"queueName": "main", "podSets": [{"name": "main"}]}, "status": {"nominatedClusterNames": ["eu", "us"]}}),
            json!({"metadata": {"name": "odd\u{1b}[31m\nname"}, "spec": {}}),
        ],
        provisioning: Part::Read(Vec::new()),
        pods: Part::Read(Vec::new()),
        nodes: std::collections::BTreeMap::new(),
        domains: std::collections::BTreeMap::new(),
    };
    check("tree-job-bare", |look| job_tree(&bare, false, look));
}
