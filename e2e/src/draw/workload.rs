//! Draws Workloads.
//!
//! Invariant: as in `cluster`, the order of draws is part of the scenarios.

use super::cluster::{API_VERSION, Cluster, NAMESPACE, amount};
use super::random::Random;
use super::suite::Suite;
use serde_json::{Map, Value, json};

/// Priorities of Workloads.
pub(super) static EVEN: [i32; 10] = [0, 0, 0, 1, 1, 1, 2, 2, 3, 4];
/// Priorities of Workloads that come later, where they preempt the earlier ones more often.
pub(super) static HIGH: [i32; 6] = [2, 3, 3, 4, 4, 5];

/// Draws the Workload with this number in its scenario. The creation time is in RFC 3339.
pub(super) fn draw(
    cluster: &Cluster,
    random: &mut Random,
    number: u64,
    created: &str,
    priorities: &[i32],
) -> Value {
    let queue = random.pick(&cluster.queues);
    let names: &[&str] = if random.chance(20) { &["main", "ps1"] } else { &["main"] };
    // UIDs, which decide ties, are not in the order of the names.
    let uid = format!("u{:06}-{number}", random.below(1_000_000));
    let priority = random.pick(priorities);
    let pod_sets: Vec<Value> =
        names.iter().map(|name| draw_pod_set(cluster, random, name, queue.resources)).collect();
    let name = format!("w{number}");
    json!({
        "apiVersion": API_VERSION, "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": created},
        "spec": {"active": true, "queueName": queue.name, "priority": priority, "podSets": pod_sets}
    })
}

fn draw_pod_set(cluster: &Cluster, random: &mut Random, name: &str, resources: &[&str]) -> Value {
    let has_topology = cluster.suite == Suite::Tas;
    let counts: &[u64] = if has_topology { &[1, 2, 2, 3, 4, 5, 6] } else { &[1, 1, 1, 2, 2, 3] };
    let count = *random.pick(counts);
    let mut requests = Map::new();
    for resource in resources {
        if random.chance(85) {
            let requested = if has_topology && *resource == "cpu" {
                (*random.pick(&["500m", "1", "1", "2"])).to_owned()
            } else {
                amount(resource, *random.pick(&[1, 1, 2, 3]))
            };
            requests.insert((*resource).to_owned(), json!(requested));
        }
    }
    let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
    let mut pod = json!({"restartPolicy": "Never", "containers": containers});
    if cluster.suite == Suite::Flavor {
        select_flavors(random, &cluster.flavors, &mut pod);
    }
    let mut pod_set = json!({"name": name, "count": count, "template": {"metadata": {}, "spec": pod}});
    if has_topology {
        if random.chance(80) {
            pod_set["topologyRequest"] = draw_topology_request(random, cluster.levels, count);
        }
    } else if name == "main" && random.chance(10) {
        pod_set["minCount"] = json!(random.between(1..=count));
    }
    pod_set
}

/// Adds node selectors, affinities and tolerations, by which flavors are chosen.
fn select_flavors(random: &mut Random, flavors: &[String], pod: &mut Value) {
    if random.chance(20) {
        pod["nodeSelector"] = json!({"type": random.pick(flavors)});
    }
    if random.chance(15) {
        let operator = random.pick(&["In", "NotIn"]);
        let expression = json!({"key": "type", "operator": operator, "values": [random.pick(flavors)]});
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    }
    if random.chance(60) {
        let toleration = json!({"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"});
        pod["tolerations"] = json!([toleration]);
    }
}

fn draw_topology_request(random: &mut Random, levels: &[&str], count: u64) -> Value {
    let at = random.index(levels.len());
    let modes = ["required", "required", "preferred", "preferred", "unconstrained"];
    let mode = *random.pick(&modes);
    if mode == "unconstrained" {
        return json!({"unconstrained": true});
    }
    let mut request = json!({(mode): levels[at]});
    if count.is_multiple_of(2) && random.chance(25) {
        request["podSetSliceRequiredTopology"] = json!(random.pick(&levels[at..]));
        request["podSetSliceSize"] = json!(2);
    }
    request
}
