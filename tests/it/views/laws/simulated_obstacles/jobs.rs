//! Jobs that run in a queue without a topology, and what uses the nodes: their pods, and pods in no queue.

use super::clusters::load;
use crate::fixtures::offline_objects::{kueue, meta};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A pod that runs on a node.
#[derive(Clone, Debug)]
pub(super) struct RunningPod {
    /// Index of the node, modulo their number.
    node: usize,
    cpu: u32,
    /// Whether it is the pod of a Job.
    of_job: bool,
}

pub(super) fn running_pods() -> impl Strategy<Value = Vec<RunningPod>> {
    let pod = (0..3_usize, 1..4_u32, prop::bool::weighted(0.7)).prop_map(|(node, cpu, of_job)| RunningPod {
        node,
        cpu,
        of_job,
    });
    prop::collection::vec(pod, 0..4)
}

fn job((index, pod): (usize, &RunningPod)) -> Value {
    let mut metadata = meta(&format!("j{index}"), "ns");
    metadata["labels"] = json!({"kueue.x-k8s.io/queue-name": "jobs"});
    let container =
        json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": pod.cpu.to_string()}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"parallelism": 1, "completions": 1, "suspend": true, "template": template}})
}

fn is_of_job(object: &Value, uid: &Value) -> bool {
    object["kind"] == "Workload" && object["metadata"]["ownerReferences"][0]["uid"] == *uid
}

/// The queue, the Jobs that run in it, their Workloads, and all pods, on this many nodes, as a cluster stores them.
pub(super) fn stored(pods: &[RunningPod], nodes: usize) -> Vec<Value> {
    let of_jobs = || pods.iter().enumerate().filter(|(_, pod)| pod.of_job);
    let quota = json!({"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "100"}]});
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ns", "")}),
        kueue("ResourceFlavor", "plain", "", &json!({})),
        kueue("ClusterQueue", "jobs", "", &spec),
        kueue("LocalQueue", "jobs", "ns", &json!({"clusterQueue": "jobs"})),
    ];
    objects.extend(of_jobs().map(job));
    let mut simulation = load(&objects);
    simulation.run_until_stable();
    let mut all = simulation.stored();
    let is_own = |object: &Value| {
        object["kind"] == "Job" || object["kind"] == "Workload" || object["metadata"]["name"] == "jobs"
    };
    all.retain(is_own);
    for object in all.iter_mut().filter(|object| object["kind"] == "Workload") {
        // Another simulation would give the UID to an object of its own.
        object["metadata"]["uid"] = json!(format!("u-{}", object["metadata"]["name"].as_str().unwrap()));
    }
    for (index, pod) in pods.iter().enumerate() {
        let mut metadata = meta(&format!("p{index}"), "ns");
        if pod.of_job {
            let uid = json!(format!("u-j{index}"));
            let workload = all.iter().find(|object| is_of_job(object, &uid)).unwrap();
            metadata["annotations"] = json!({"kueue.x-k8s.io/workload": workload["metadata"]["name"]});
            metadata["labels"] = json!({"kueue.x-k8s.io/podset": workload["spec"]["podSets"][0]["name"]});
            metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": format!("j{index}"),
                "uid": uid, "controller": true}]);
        }
        let requests = json!({"cpu": pod.cpu.to_string()});
        let container = json!({"name": "c", "image": "x", "resources": {"requests": requests}});
        all.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": format!("n{}", pod.node % nodes.max(1)), "containers": [container]},
            "status": {"phase": "Running"}}));
    }
    all
}

/// The Jobs run on the quota of their Workloads: otherwise the laws would say nothing of them.
#[test]
fn jobs_that_are_loaded_run_until_they_end() {
    let pods = [
        RunningPod { node: 0, cpu: 2, of_job: true },
        RunningPod { node: 0, cpu: 1, of_job: false },
        RunningPod { node: 1, cpu: 3, of_job: true },
    ];
    let mut objects = stored(&pods, 2);
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ns", "")}));
    objects.push(kueue("ResourceFlavor", "plain", "", &json!({})));
    let mut simulation = load(&objects);
    simulation.run_until_stable();
    assert_eq!(simulation.report().admitted.len(), 2);
    let number_of_pods = |simulation: &sluice::simulate::Simulation| {
        simulation.stored().iter().filter(|object| object["kind"] == "Pod").count()
    };
    assert_eq!(number_of_pods(&simulation), 3);
    simulation.run(sluice::simulate::Until::Settled);
    let end = simulation.report();
    assert_eq!((end.admitted.len(), end.pending.len()), (0, 0), "{end:?}");
    assert_eq!(number_of_pods(&simulation), 1, "pods in no queue stay");
}
