//! Startup of the manager in a large cluster: thousands of nodes in racks, and ten times as many pods. A pending
//! Workload requires one rack, and only one rack has enough capacity. Its topology assignment shows whether the manager
//! scheduled before it knew all nodes and pods.

use super::api_server_only::ApiServerOnly;
use super::load::{WorkloadWatch, finish};
use super::racks;
use super::scenario::NAMESPACE;
use crate::control_plane::ControlPlane;
use crate::manager::Manager;
use crate::objects::{Kind, ObjectClient, assigned_hosts, cluster_queue, local_queue};
use crate::process::ProcessUsage;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measured starts.
const STARTS: usize = 3;
/// Concurrent requests.
const CLIENTS: usize = 64;
/// Idle time before the manager's memory is read again.
const IDLE_TIME: Duration = Duration::from_secs(20);
const QUEUE: &str = "large";
/// The rack with free capacity.
const FREE_RACK: usize = 3;

/// Runs the benchmark and prints the results.
pub async fn run(nodes: usize, pods: usize, controller: Option<PathBuf>) -> Result<()> {
    let bare = ApiServerOnly::start(controller, &ControlPlane::temporary_folder(), Value::Null).await?;
    let objects = &bare.objects;
    let webhooks = bare.remove_webhooks().await?;
    let begun = Instant::now();
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": NAMESPACE}})).await?;
    racks::create_nodes(objects, nodes).await?;
    make_pods(objects, nodes, pods).await?;
    make_queue(objects).await?;
    println!("{nodes} nodes and {pods} pods created in {:.1} s", begun.elapsed().as_secs_f64());
    bare.restore_webhooks(webhooks).await?;
    for start in 0..STARTS {
        measure(&bare, &format!("first-{start}")).await?;
    }
    Ok(())
}

/// Measures one start with a pending Workload.
async fn measure(bare: &ApiServerOnly, name: &str) -> Result<()> {
    let webhooks = bare.remove_webhooks().await?;
    bare.objects.create(Kind::WORKLOAD, &workload(name)).await?;
    bare.restore_webhooks(webhooks).await?;
    let mut watch = WorkloadWatch::start(&bare.objects).await?;
    let manager = Manager::start(&bare.plane, &bare.settings).await?;
    let begun = Instant::now();
    let admitted = async {
        while !watch.next().await?.is_admitted(name) {}
        anyhow::Ok(begun.elapsed())
    };
    let ready = async {
        manager.wait_until_ready_precisely().await?;
        anyhow::Ok(begun.elapsed())
    };
    let (ready, admitted) = tokio::try_join!(ready, admitted)?;
    let pid = manager.process().identity().pid;
    let usage = ProcessUsage::of_process(pid)?;
    println!(
        "start to ready {:.2} s, to the first admission {:.2} s, until then CPU {:.2} s and at most {} MiB resident",
        ready.as_secs_f64(),
        admitted.as_secs_f64(),
        usage.cpu.as_secs_f64(),
        usage.peak_mib
    );
    let rack = format!("{}-", racks::rack_name(FREE_RACK));
    let hosts = assigned_hosts(&bare.objects.must_get(Kind::WORKLOAD, NAMESPACE, name).await?);
    ensure!(!hosts.is_empty(), "admitted without a topology assignment");
    for host in hosts {
        ensure!(host.starts_with(&rack), "assigned to {host}, which has no free capacity");
    }
    tokio::time::sleep(IDLE_TIME).await;
    let usage = ProcessUsage::of_process(pid)?;
    println!(
        "  {} s later {} MiB resident, at most {}",
        IDLE_TIME.as_secs(),
        usage.resident_mib,
        usage.peak_mib
    );
    finish(&bare.objects, name).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    manager.terminate();
    Ok(())
}

async fn make_queue(objects: &ObjectClient) -> Result<()> {
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": QUEUE}, "spec": racks::flavor()})).await?;
    let queue = cluster_queue(QUEUE, "", QUEUE, &[("cpu", "1000000", None)]);
    objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
    objects.create(Kind::LOCAL_QUEUE, &local_queue(NAMESPACE, QUEUE, QUEUE)).await?;
    Ok(())
}

/// Creates bound pods without owner or queue, round-robin over the nodes. Ten of them leave 6 of a node's 96 CPUs,
/// except on the free rack.
async fn make_pods(objects: &ObjectClient, nodes: usize, pods: usize) -> Result<()> {
    stream::iter(0..pods)
        .map(async |number| objects.create(Kind::POD, &pod(number, number % nodes)).await.map(drop))
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

fn pod(number: usize, node: usize) -> Value {
    let cpu = if racks::is_in_rack(FREE_RACK, node) { "1" } else { "9" };
    json!({
        "metadata": {
            "namespace": NAMESPACE, "name": format!("serving-{number}"),
            "labels": {"app": "serving", "pod-template-hash": "5d8f7c9b6d"},
        },
        "spec": {
            "nodeName": racks::node_name(node), "containers": [{
                "name": "main", "image": "registry.example.com/serving:1", "args": ["--port=8080"],
                "env": [{"name": "MODE", "value": "full"}], "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
            }],
        },
    })
}

/// Builds a Workload of 64 pods with 8 CPUs each that requires one rack.
fn workload(name: &str) -> Value {
    let container = json!({"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "8"}}});
    json!({
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {"queueName": QUEUE, "priority": 0, "podSets": [{
            "name": "main", "count": 64, "topologyRequest": racks::required_topology_request(),
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }]},
    })
}
