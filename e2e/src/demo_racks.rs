//! The demo, part two: topology-aware scheduling. A node fails under a running Job, and another Job is deactivated
//! while its node fails. Part one is `demo`.

use crate::cluster::Cluster;
use crate::demo::{NAMESPACE, chapter, create, workload};
use crate::objects::{Job, Kind, condition, condition_is_true, expect_condition, text};
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
/// How long the evicted Job must stay evicted. The first second pass is due after 1 s, so a wrong one would show in
/// this time.
const EVICTED_CHECK_TIME: Duration = Duration::from_secs(4);

/// (pod, node, whether it runs), sorted by pod.
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

    chapter("\n7. Two racks of three nodes, 2 CPU each. The pods of train must share a rack.");
    submit(cluster, "train", 3)?;
    let before = wait_until_placed(cluster, "train", 3).await?;
    print_placements("train", &before);

    let failed_node = before.first().context("no pod")?.1.clone();
    chapter(&format!(
        "8. {failed_node} fails. Its pods get other nodes of the same rack; the Job keeps running."
    ));
    fail_node(cluster, &failed_node)?;
    let after = eventually("train runs on other nodes", async || {
        let current = placements(cluster, "train", 3).await?;
        ensure!(current.iter().all(|(_, node, _)| *node != failed_node), "{current:?}");
        let workload = workload_of_job(cluster, "train").await?;
        ensure!(
            condition_is_true(&workload, "Admitted") && !condition_is_true(&workload, "Evicted"),
            "{}",
            workload["status"]
        );
        let unhealthy = workload["status"]["unhealthyNodes"].as_array().map_or(0, Vec::len);
        ensure!(unhealthy == 0, "{}", workload["status"]["unhealthyNodes"]);
        Ok(current)
    })
    .await?;
    ensure!(common_rack(&before) == common_rack(&after), "train moved to another rack: {before:?} {after:?}");
    print_placements("train", &after);

    chapter("9. A node of probe fails, and probe is deactivated in the same second. It stays evicted.");
    submit(cluster, "probe", 2)?;
    let current = wait_until_placed(cluster, "probe", 2).await?;
    print_placements("probe", &current);
    let workload_name = text(&workload_of_job(cluster, "probe").await?, "/metadata/name").to_owned();
    let patch = json!({"spec": {"active": false}}).to_string();
    fail_node(cluster, &current.first().context("no pod")?.1)?;
    println!("$ kubectl patch workload -n {NAMESPACE} {workload_name} --type merge -p '{patch}'");
    cluster.kubectl.run(&[
        "patch",
        "workload",
        "-n",
        NAMESPACE,
        &workload_name,
        "--type",
        "merge",
        "-p",
        &patch,
    ])?;
    eventually("probe is evicted and its quota is released", async || stays_evicted(cluster).await).await?;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < EVICTED_CHECK_TIME {
        stays_evicted(cluster).await.context("probe does not stay evicted")?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let message = condition(&workload_of_job(cluster, "probe").await?, "Evicted").message;
    println!("\n  probe has no pod, no quota and no topology assignment: {message}\n");
    Ok(())
}

fn submit(cluster: &Cluster, name: &str, pods: i32) -> Result<()> {
    println!("$ kubectl create -f {name}.yaml");
    let job = Job::new(NAMESPACE, name, "lab", &[("cpu", "1"), ("memory", "1Gi")]).pods(pods);
    // Pods lost with their node must not fail the Job.
    let job = job.spec("completionMode", json!("Indexed")).spec("backoffLimit", json!(6));
    create(cluster, &job.pod_annotation(REQUIRED, "rack"))
}

/// Deletes a node and force-deletes the pods on it.
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
    eventually(format!("the pods of {job} run on their assigned nodes"), async || {
        placements(cluster, job, pods).await
    })
    .await
}

/// Returns where a Job's pods run. An error if one does not run, is not on its assigned node, or they span racks.
async fn placements(cluster: &Cluster, job: &str, count: usize) -> Result<Placements> {
    let mut found = Placements::new();
    for pod in cluster.objects.list(Kind::POD, NAMESPACE, &format!("job-name={job}")).await? {
        let node = text(&pod, "/spec/nodeName").to_owned();
        let assigned = text(&pod, "/spec/nodeSelector/kubernetes.io~1hostname");
        let runs = text(&pod, "/status/phase") == "Running";
        ensure!(runs && assigned == node, "a pod of {job} is on {node:?}, assigned to {assigned:?}");
        found.push((text(&pod, "/metadata/name").to_owned(), node, runs));
    }
    ensure!(found.len() == count, "{job} has {} pods of {count}", found.len());
    common_rack(&found).with_context(|| format!("{job} is on several racks: {found:?}"))?;
    found.sort();
    Ok(found)
}

/// Returns the rack of all pods, or `None` if they are on several.
fn common_rack(placements: &Placements) -> Option<&str> {
    let mut racks = placements.iter().map(|(_, node, _)| node.split('-').next().unwrap_or_default());
    let first = racks.next()?;
    racks.all(|rack| rack == first).then_some(first)
}

fn print_placements(job: &str, placements: &Placements) {
    println!("\n  {:8} {:16} NODE", "JOB", "POD");
    for (pod, node, _) in placements {
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
