//! Kinds of jobs on nodes that a topology assigns: JobSets, whose pods have ranks, and jobs that are resized while they run.

use crate::cases::note;
use crate::elastic_jobs::GATE;
use crate::fixture::Fixture;
use crate::job_kinds::{clear, configuration};
use crate::ray_clusters::{Operator, group_of};
use crate::topology::{HOST, RACK, REQUIRED, create_racks};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

const JOB_SET: Kind = Kind::new("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Jobs of the JobSet, and pods of each.
const JOBS: usize = 2;
const PODS: usize = 3;
/// CPUs of a node, and pods of one CPU that fit on it.
const ROOM: usize = 2;

/// Pods of a JobSet are on the nodes that their ranks demand. Beside it, an elastic Job grows on the nodes that are free and shrinks, and
/// the groups of a RayCluster are resized against each other: pods that run stay where they are, and no node gets more than fit.
pub(crate) async fn ranks_and_resizes(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let gates = ["ElasticJobsViaWorkloadSlicesWithTAS"];
    let before = cluster.reconfigure(&configuration(&gates)).await?;
    create_racks(fixture).await?;
    job_set_is_ungated_by_rank(fixture).await?;
    note("JobSet");
    job_grows_on_free_nodes(fixture).await?;
    note("Job");
    fixture.objects.delete(JOB_SET, &fixture.name, "ranks", PropagationPolicy::Background).await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    groups_are_resized_against_each_other(fixture).await?;
    note("RayCluster");
    clear(fixture).await?;
    cluster.reconfigure(&before).await.map(drop)
}

/// The six pods need both nodes of a rack. Those of the second Job exist first.
async fn job_set_is_ungated_by_rank(fixture: &Fixture) -> Result<()> {
    let pod = json!({"metadata": {"annotations": {REQUIRED: RACK}}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "work", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}}]}});
    let job = json!({"parallelism": PODS, "completions": PODS, "completionMode": "Indexed", "template": pod});
    let set = json!({
        "metadata": {"name": "ranks", "namespace": fixture.name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": JOBS, "template": {"spec": job}}]},
    });
    fixture.objects.create(JOB_SET, &set).await?;
    let set = eventually("the JobSet is started", async || {
        let set = fixture.objects.must_get(JOB_SET, &fixture.name, "ranks").await?;
        ensure!(set["spec"]["suspend"] == json!(false), "it is suspended");
        Ok(set)
    })
    .await?;
    for index in (0..JOBS).rev() {
        create_child(fixture, &set, index).await?;
    }
    let nodes = nodes_by_rank(fixture, &set).await?;
    ensure!(nodes.len() == JOBS * PODS && nodes.first() != nodes.last(), "{nodes:?}");
    eventually("each pod is on the node of its rank", async || {
        let pods = pods(fixture, "jobset.sigs.k8s.io/jobset-name=ranks").await?;
        ensure!(pods.len() == nodes.len(), "{} pods", pods.len());
        for pod in pods {
            let index = |label: &str| -> Result<usize> {
                let value = pod["metadata"]["labels"][label].as_str();
                Ok(value.with_context(|| label.to_owned())?.parse()?)
            };
            let rank = index(JOB_INDEX)? * PODS + index(COMPLETION_INDEX)?;
            let node = text(&pod, "/spec/nodeName");
            ensure!(condition_is_true(&pod, "Ready") && nodes[rank] == node, "rank {rank} is on {node:?}");
        }
        Ok(())
    })
    .await
}

/// Makes a Job of a JobSet, as its operator does.
async fn create_child(fixture: &Fixture, set: &Value, index: usize) -> Result<()> {
    let mut spec = set["spec"]["replicatedJobs"][0]["template"]["spec"].clone();
    let labels = json!({"jobset.sigs.k8s.io/jobset-name": "ranks", JOB_INDEX: index.to_string()});
    for (key, value) in labels.as_object().into_iter().flatten() {
        spec["template"]["metadata"]["labels"][key] = value.clone();
    }
    let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "ranks",
        "uid": set["metadata"]["uid"], "controller": true});
    let job = json!({
        "metadata": {"name": format!("ranks-workers-{index}"), "namespace": fixture.name, "labels": labels,
            "ownerReferences": [owner]},
        "spec": spec,
    });
    fixture.objects.create(Kind::JOB, &job).await?;
    Ok(())
}

/// Returns the node of each rank, as the Workload of a JobSet with one role is assigned to them.
async fn nodes_by_rank(fixture: &Fixture, set: &Value) -> Result<Vec<String>> {
    let selector = format!("kueue.x-k8s.io/job-uid={}", text(set, "/metadata/uid"));
    let found = fixture.objects.list(Kind::WORKLOAD, &fixture.name, &selector).await?;
    let workload = found.first().context("it has no Workload")?;
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    let set = sets.and_then(|sets| sets.first()).context("it has no admission")?;
    let assignment = serde_json::from_value(set["topologyAssignment"].clone())?;
    let placement = sluice::topology::decode(&assignment).context("it has no assignment")?;
    let mut nodes = Vec::new();
    for (values, pods) in placement.domains {
        let node = values.last().context("no node")?.to_string();
        nodes.extend(std::iter::repeat_n(node, usize::try_from(pods)?));
    }
    Ok(nodes)
}

async fn pods(fixture: &Fixture, selector: &str) -> Result<Vec<Value>> {
    let mut pods = fixture.objects.list(Kind::POD, &fixture.name, selector).await?;
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    Ok(pods)
}

/// Returns the node of each pod by its name, and checks that it asked for that node.
fn nodes_of(pods: &[Value]) -> Result<BTreeMap<String, String>> {
    let node_of = |pod: &Value| {
        let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
        ensure!(condition_is_true(pod, "Ready"), "{name} does not run");
        ensure!(pod["spec"]["nodeSelector"][HOST] == node, "{name} is assigned to another node than {node}");
        Ok((name.to_owned(), node.to_owned()))
    };
    pods.iter().map(node_of).collect()
}

/// Checks that pods that run in both are on the same nodes.
fn expect_none_moved(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Result<()> {
    for (pod, node) in before {
        ensure!(after.get(pod).is_none_or(|now| now == node), "{pod} moved from {node}: {after:?}");
    }
    Ok(())
}

fn count_by_node(nodes: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes.values() {
        *counts.entry(node.as_str()).or_default() += 1;
    }
    counts
}

/// The JobSet leaves room for one pod beside it, and for four on the nodes of the other rack.
async fn job_grows_on_free_nodes(fixture: &Fixture) -> Result<()> {
    let job = fixture.job("grows", "main", "1").pods(2).spec("completions", Value::Null);
    fixture.submit(job.annotation(GATE, "true")).await?;
    let mut before = wait_for_size(fixture, 2).await?;
    for size in [5, 3, 4] {
        fixture.set_spec(Kind::JOB, &fixture.name, "grows", json!({"parallelism": size})).await?;
        let after = wait_for_size(fixture, size).await?;
        expect_none_moved(&before, &after)?;
        let most = count_by_node(&after).into_values().max();
        ensure!(most <= Some(ROOM), "{after:?}");
        before = after;
    }
    fixture.set_spec(Kind::JOB, &fixture.name, "grows", json!({"parallelism": 6})).await?;
    eventually("two further pods wait: there is room for one", async || {
        let pods = pods(fixture, "job-name=grows").await?;
        let gated = pods.iter().filter(|pod| pod["spec"].get("schedulingGates").is_some()).count();
        ensure!((pods.len(), gated) == (6, 2), "{} pods, {gated} gated", pods.len());
        Ok(())
    })
    .await?;
    fixture.objects.delete(Kind::JOB, &fixture.name, "grows", PropagationPolicy::Background).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "3")]).await
}

/// Waits until this many pods of the elastic Job run, and no others exist; returns their nodes.
async fn wait_for_size(fixture: &Fixture, size: usize) -> Result<BTreeMap<String, String>> {
    eventually(format!("{size} pods run on their nodes"), async || {
        let nodes = nodes_of(&pods(fixture, "job-name=grows").await?)?;
        ensure!(nodes.len() == size, "{nodes:?}");
        Ok(nodes)
    })
    .await
}

/// In one edit, one group of a RayCluster grows and the other shrinks. On the four nodes is room for eight pods.
async fn groups_are_resized_against_each_other(fixture: &Fixture) -> Result<()> {
    let mut operator = Operator::start(fixture, &["a", "b"], &[1, 5]).await?;
    operator.wait_until_settled().await?;
    let mut before = settled_nodes(&operator).await?;
    for (a, b) in [(5, 1), (2, 4), (6, 1), (0, 7)] {
        operator.resize(&[a, b]).await?;
        operator.wait_until_settled().await?;
        let after = settled_nodes(&operator).await?;
        expect_none_moved(&before, &after)?;
        let cpu = (1 + a + b).to_string();
        fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", &cpu)]).await?;
        check_charged_nodes(fixture, &operator).await?;
        before = after;
    }
    operator.delete().await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await
}

async fn settled_nodes(operator: &Operator<'_>) -> Result<BTreeMap<String, String>> {
    eventually("all pods run on their nodes", async || {
        let nodes = nodes_of(&operator.pods().await?)?;
        let most = count_by_node(&nodes).into_values().max();
        ensure!(most <= Some(ROOM), "{nodes:?}");
        Ok(nodes)
    })
    .await
}

/// Checks that the slice in use is charged for each group on the nodes on which its pods run.
async fn check_charged_nodes(fixture: &Fixture, operator: &Operator<'_>) -> Result<()> {
    eventually("each group is charged where it runs", async || {
        let pods = operator.pods().await?;
        let mut running: BTreeMap<(String, String), usize> = BTreeMap::new();
        for pod in &pods {
            let group = if group_of(pod) == "headgroup" { "head" } else { group_of(pod) };
            *running.entry((group.to_owned(), text(pod, "/spec/nodeName").to_owned())).or_default() += 1;
        }
        let workloads = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let used = |workload: &&Value| {
            condition_is_true(workload, "QuotaReserved") && !condition_is_true(workload, "Finished")
        };
        let used: Vec<&Value> = workloads.iter().filter(used).collect();
        let [used] = used[..] else { anyhow::bail!("{} slices have quota", used.len()) };
        let mut charged: BTreeMap<(String, String), usize> = BTreeMap::new();
        let sets = used.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
        for set in sets.into_iter().flatten() {
            let assignment = serde_json::from_value(set["topologyAssignment"].clone()).ok();
            let placement = assignment.and_then(|assignment| sluice::topology::decode(&assignment));
            for (values, pods) in placement.into_iter().flat_map(|placement| placement.domains) {
                let node = values.last().context("no node")?.to_string();
                charged.insert((text(set, "/name").to_owned(), node), usize::try_from(pods)?);
            }
        }
        ensure!(charged == running, "charged {charged:?}, running {running:?}");
        Ok(())
    })
    .await
}
