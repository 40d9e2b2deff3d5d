//! The second part of the demo: Jobs placed on racks, a node that fails under one, and one that is evicted as its node fails.

use crate::cluster::Cluster;
use crate::demo::{NAMESPACE, chapter, create, workload};
use crate::objects::{Job, Kind, condition, condition_is_true, expect_condition, text};
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// For how long nothing may come of a pass for the one that was evicted: the first is due after a second.
const EVICTED_CHECK_TIME: Duration = Duration::from_secs(4);

/// A pod's node and whether it runs, by pod.
type Placements = Vec<(String, String, bool)>;

pub(super) async fn scenario(cluster: &Cluster) -> Result<()> {
    println!("$ kubectl apply -f e2e/demo-racks.yaml");
    cluster.kubectl.apply(include_str!("../demo-racks.yaml"))?;
    eventually("the racks are ready", async || {
        expect_condition(
            &cluster.objects.must_get(Kind::CLUSTER_QUEUE, "", "lab").await?,
            "Active",
            "True",
            "",
        )?;
        let nodes = cluster.objects.list(Kind::NODE, "", "pool=racks").await?;
        for node in &nodes {
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            ensure!(
                condition_is_true(node, "Ready") && taints == 1,
                "{} is not ready",
                text(node, "/metadata/name")
            );
        }
        ensure!(nodes.len() == 6, "{} nodes", nodes.len());
        Ok(())
    })
    .await?;

    chapter("\n5. Two racks of three nodes, 2 CPU each. The pods of train must share a rack.");
    submit(cluster, "train", 3)?;
    let before = wait_until_placed(cluster, "train", 3).await?;
    print_placements("train", &before);

    let fallen = before.first().context("no pod")?.1.clone();
    chapter(&format!("6. {fallen} fails. Its pods get other nodes of the same rack; the Job goes on."));
    fail_node(cluster, &fallen)?;
    let after = eventually("train has other nodes", async || {
        let stand = placements(cluster, "train", 3).await?;
        ensure!(stand.iter().all(|(_, node, _)| *node != fallen), "{stand:?}");
        let workload = workload_of_job(cluster, "train").await?;
        ensure!(
            condition_is_true(&workload, "Admitted") && !condition_is_true(&workload, "Evicted"),
            "{}",
            workload["status"]
        );
        let unhealthy = workload["status"]["unhealthyNodes"].as_array().map_or(0, Vec::len);
        ensure!(unhealthy == 0, "{}", workload["status"]["unhealthyNodes"]);
        Ok(stand)
    })
    .await?;
    ensure!(common_rack(&before) == common_rack(&after), "train has changed its rack: {before:?} {after:?}");
    print_placements("train", &after);

    chapter("7. A node of probe fails, and in the same second probe is taken off. It stays evicted.");
    submit(cluster, "probe", 2)?;
    let stand = wait_until_placed(cluster, "probe", 2).await?;
    print_placements("probe", &stand);
    let name = text(&workload_of_job(cluster, "probe").await?, "/metadata/name").to_owned();
    let patch = json!({"spec": {"active": false}}).to_string();
    fail_node(cluster, &stand.first().context("no pod")?.1)?;
    println!("$ kubectl patch workload -n {NAMESPACE} {name} --type merge -p '{patch}'");
    cluster.kubectl.run(&["patch", "workload", "-n", NAMESPACE, &name, "--type", "merge", "-p", &patch])?;
    eventually("probe is evicted and its quota is back", async || stays_evicted(cluster).await).await?;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < EVICTED_CHECK_TIME {
        stays_evicted(cluster).await.context("it does not stay evicted")?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let message = condition(&workload_of_job(cluster, "probe").await?, "Evicted").message;
    println!("\n  probe has no pod, no quota and no place: {message}\n");
    Ok(())
}

fn submit(cluster: &Cluster, name: &str, pods: i32) -> Result<()> {
    println!("$ kubectl create -f {name}.yaml");
    let job = Job::new(NAMESPACE, name, "lab", &[("cpu", "1"), ("memory", "1Gi")]).pods(pods);
    // A pod that is lost with its node is not a failure of the Job.
    let job = job.spec("completionMode", json!("Indexed")).spec("backoffLimit", json!(6));
    create(cluster, &job.pod_annotation(REQUIRED, "rack"))
}

/// The node is gone, and with it what ran there.
fn fail_node(cluster: &Cluster, node: &str) -> Result<()> {
    println!("$ kubectl delete node {node}");
    cluster.kubectl.run(&["delete", "node", node])?;
    let on = format!("spec.nodeName={node}");
    let force = ["--force", "--grace-period=0"];
    let pods = ["delete", "pods", "-n", NAMESPACE, "--field-selector", &on];
    cluster.kubectl.run(&pods.iter().chain(&force).copied().collect::<Vec<_>>()).map(drop)
}

async fn workload_of_job(cluster: &Cluster, job: &str) -> Result<Value> {
    let job = cluster.objects.must_get(Kind::JOB, NAMESPACE, job).await?;
    workload(cluster, &job).await?.context("no Workload yet")
}

async fn wait_until_placed(cluster: &Cluster, job: &str, pods: usize) -> Result<Placements> {
    eventually("its pods run where they were placed", async || placements(cluster, job, pods).await).await
}

/// Where a Job's pods run; an error as long as they do not, or if they are not where the Workload says.
async fn placements(cluster: &Cluster, job: &str, count: usize) -> Result<Placements> {
    let mut stand = Placements::new();
    for pod in cluster.objects.list(Kind::POD, NAMESPACE, &format!("job-name={job}")).await? {
        let node = text(&pod, "/spec/nodeName").to_owned();
        let wanted = text(&pod, "/spec/nodeSelector/kubernetes.io~1hostname");
        let runs = text(&pod, "/status/phase") == "Running";
        ensure!(runs && wanted == node, "a pod of {job} is on {node:?} and was sent to {wanted:?}");
        stand.push((text(&pod, "/metadata/name").to_owned(), node, runs));
    }
    ensure!(stand.len() == count, "{job} has {} pods of {count}", stand.len());
    common_rack(&stand).with_context(|| format!("{job} is on several racks: {stand:?}"))?;
    stand.sort();
    Ok(stand)
}

/// The one rack of all pods.
fn common_rack(stand: &Placements) -> Option<&str> {
    let mut racks = stand.iter().map(|(_, node, _)| node.split('-').next().unwrap_or_default());
    let first = racks.next()?;
    racks.all(|rack| rack == first).then_some(first)
}

fn print_placements(job: &str, stand: &Placements) {
    println!("\n  {:8} {:16} NODE", "JOB", "POD");
    for (pod, node, _) in stand {
        println!("  {job:8} {pod:16} {node}");
    }
    println!();
}

async fn stays_evicted(cluster: &Cluster) -> Result<()> {
    let workload = workload_of_job(cluster, "probe").await?;
    expect_condition(&workload, "Evicted", "True", "Deactivated")?;
    ensure!(
        !condition_is_true(&workload, "QuotaReserved") && !condition_is_true(&workload, "Admitted"),
        "{}",
        workload["status"]
    );
    ensure!(workload["status"]["admission"].is_null(), "{}", workload["status"]["admission"]);
    let pods = cluster.objects.list(Kind::POD, NAMESPACE, "job-name=probe").await?.len();
    ensure!(pods == 0, "probe has {pods} pods");
    Ok(())
}
