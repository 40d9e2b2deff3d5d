//! Simulations of elastic Jobs.

use crate::simulate_cluster::{empty_simulation, flavor, history, job, manifests, queue, report};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::simulate::Until;

fn elastic(pods: u32) -> Value {
    let mut elastic =
        job("grows", "q", pods, &json!({"kueue.x-k8s.io/elastic-job": "true", "sluice.dev/run-for": "30m"}));
    elastic["spec"].as_object_mut().unwrap().shift_remove("completions");
    elastic
}

#[test]
fn job_grows_when_there_is_quota_and_shrinks() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "8", &json!({})));
    objects.push(job("other", "q", 4, &json!({"sluice.dev/run-for": "10m"})));
    objects.push(elastic(3));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::After(SignedDuration::from_mins(1)));
    simulation.apply_all(manifests(&[elastic(6)]));
    simulation.run(Until::After(SignedDuration::from_mins(2)));
    let waiting = report(&mut simulation);
    let conditions = &waiting["pending"][0]["conditions"]["QuotaReserved"];
    let message = conditions["message"].as_str().unwrap();
    assert!(message.contains("request 3, limit 8"), "three pods have quota: {message}");
    simulation.run(Until::After(SignedDuration::from_mins(15)));
    let grown = report(&mut simulation);
    assert_eq!(grown["admitted"][0]["podSets"][0]["count"], 6, "{grown}");
    simulation.apply_all(manifests(&[elastic(2)]));
    simulation.run(Until::Settled);
    assert_eq!(
        history(&report(&mut simulation)),
        [
            "0.0 admitted team/grows",
            "0.0 admitted team/other",
            "60.0 pending team/grows",
            "600.0 finished team/other",
            "600.0 admitted team/grows",
            "600.0 finished team/grows",
            "1800.0 finished team/grows",
        ]
    );
}

/// A larger slice would be placed on other nodes than those on which pods of the Job run.
#[test]
fn elastic_job_gets_no_flavor_with_a_topology() {
    let mut objects = vec![flavor()];
    objects[0]["spec"] = json!({"topologyName": "t", "nodeLabels": {"pool": "a"}});
    let levels = json!([{"nodeLabel": "kubernetes.io/hostname"}]);
    objects
        .push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "t"},
        "spec": {"levels": levels}}));
    objects.push(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {"pool": "a", "kubernetes.io/hostname": "n"}},
        "status": {"allocatable": {"cpu": "8", "pods": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
    objects.extend(queue("q", "8", &json!({})));
    objects.extend([elastic(3), job("other", "q", 4, &json!({}))]);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let report = report(&mut simulation);
    assert_eq!(report["admitted"][0]["job"], "team/other", "{report}");
    let message = report["pending"][0]["conditions"]["QuotaReserved"]["message"].as_str().unwrap();
    assert!(message.contains("ElasticJobsViaWorkloadSlicesWithTAS"), "{message}");
}
