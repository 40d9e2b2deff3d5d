//! Simulations of elastic Jobs.

use crate::fixtures::simulate_cluster::{
    empty_simulation, flavor, history, job, manifests, options, queue, report,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::simulate::{Simulation, Until};

const HOST: &str = "kubernetes.io/hostname";

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

/// A queue with quota for eight pods, and two nodes with room for four each.
fn nodes_and_queue() -> Vec<Value> {
    let mut objects = vec![flavor()];
    objects[0]["spec"] = json!({"topologyName": "t", "nodeLabels": {"pool": "a"}});
    let levels = json!([{"nodeLabel": HOST}]);
    objects
        .push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "t"},
        "spec": {"levels": levels}}));
    for name in ["n1", "n2"] {
        objects.push(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": "a", HOST: name}},
            "status": {"allocatable": {"cpu": "4", "pods": "8"},
                "conditions": [{"type": "Ready", "status": "True"}]}}));
    }
    objects.extend(queue("q", "8", &json!({})));
    objects
}

/// A larger slice would be placed on other nodes than those on which pods of the Job run.
#[test]
fn elastic_job_gets_no_flavor_with_a_topology() {
    let mut objects = nodes_and_queue();
    objects.extend([elastic(3), job("other", "q", 4, &json!({}))]);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let report = report(&mut simulation);
    assert_eq!(report["admitted"][0]["job"], "team/other", "{report}");
    let message = report["pending"][0]["conditions"]["QuotaReserved"]["message"].as_str().unwrap();
    assert!(message.contains("ElasticJobsViaWorkloadSlicesWithTAS"), "{message}");
}

#[test]
fn elastic_job_keeps_its_nodes_with_the_gate() {
    let mut options = options();
    options.core.engine.gates.elastic_topology = true;
    let mut simulation = Simulation::new(options).unwrap();
    let mut objects = nodes_and_queue();
    objects.extend([elastic(3), job("other", "q", 2, &json!({}))]);
    simulation.apply_all(manifests(&objects));
    for (pods, nodes) in [(3, &[("n1", 3)][..]), (5, &[("n1", 3), ("n2", 2)]), (2, &[("n1", 2)])] {
        simulation.apply_all(manifests(&[elastic(pods)]));
        simulation.run(Until::After(SignedDuration::from_mins(1)));
        let report = report(&mut simulation);
        let admitted = report["admitted"].as_array().unwrap();
        let own = admitted.iter().find(|row| row["job"] == "team/grows").unwrap();
        let assignment = own["podSets"][0]["topologyAssignment"].clone();
        let placement = sluice_core::topology::decode(&serde_json::from_value(assignment).unwrap()).unwrap();
        let domains: Vec<(&str, i32)> =
            placement.domains.iter().map(|(values, pods)| (&**values.last().unwrap(), *pods)).collect();
        assert_eq!(domains, nodes, "{report}");
    }
}
