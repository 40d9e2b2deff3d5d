//! Nodes that fail under workloads: while these are being preempted, two at once, under two at once; and that come back.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{self, Kind, assigned_hosts, condition, condition_is_true, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/site";
/// Passes that are armed within it come due together for one who sleeps through it.
const PASS_WAIT: Duration = Duration::from_millis(1600);

/// Nodes of one CPU each that nobody else is sent to, and a queue for them.
async fn create_site(ground: &Fixture, name: &str, nodes: usize, cpu: &str) -> Result<()> {
    let full = ground.own_name(name);
    for number in 1..=nodes {
        let object = node(ground, name, &ground.own_name(&format!("{name}-{number}")));
        ground.create_tracked(Kind::NODE, object).await?;
    }
    let levels = json!([{"nodeLabel": HOST}]);
    ground
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": full}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: full}, "tolerations": [toleration], "topologyName": full});
    ground.create_flavor(name, spec).await?;
    let mut body = objects::cluster_queue(&full, "", &full, &[("cpu", cpu, None)]);
    body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    ground.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &full)).await?;
    for number in 1..=nodes {
        wait_until_node_ready(ground, &ground.own_name(&format!("{name}-{number}"))).await?;
    }
    ground.wait_until_queue_active(name).await
}

fn node(ground: &Fixture, site: &str, name: &str) -> Value {
    let room = json!({"cpu": "1", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": ground.own_name(site), "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": {LABEL: ground.own_name(site), HOST: name}}, "spec": {"taints": [taint]},
        "status": {"capacity": room, "allocatable": room},
    })
}

/// Nothing but its site keeps pods away.
async fn wait_until_node_ready(ground: &Fixture, node: &str) -> Result<()> {
    eventually(format!("{node} is ready"), async || {
        let node = ground.objects.must_get(Kind::NODE, "", node).await?;
        let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
        ensure!(condition_is_true(&node, "Ready") && taints == 1, "{}", node["spec"]["taints"]);
        Ok(())
    })
    .await
}

async fn delete_node(ground: &Fixture, node: &str) -> Result<()> {
    Ok(ground.objects.delete(Kind::NODE, "", node, PropagationPolicy::Background).await?)
}

async fn recreate_node(ground: &Fixture, site: &str, name: &str) -> Result<()> {
    ground.objects.create(Kind::NODE, &node(ground, site, name)).await?;
    wait_until_node_ready(ground, name).await
}

/// What ran on nodes that are gone is gone with them.
fn delete_pods_on(ground: &Fixture, nodes: &BTreeSet<String>) -> Result<()> {
    for node in nodes {
        let on = format!("spec.nodeName={node}");
        let force = ["--force", "--grace-period=0", "--wait=false", "--field-selector", &on];
        let pods = ["delete", "pods", "-n", &ground.name];
        ground.kubectl.run(&pods.iter().chain(&force).copied().collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn job_hosts(ground: &Fixture, job: &str) -> Result<BTreeSet<String>> {
    Ok(assigned_hosts(&ground.workload(job).await?))
}

/// All pods of a Job that stay are where its Workload says.
async fn check_pods_on_assigned_hosts(ground: &Fixture, job: &str) -> Result<()> {
    let hosts = job_hosts(ground, job).await?;
    let pods = ground.pods(job).await?;
    let ended = |pod: &&Value| {
        let phase = text(pod, "/status/phase");
        !pod["metadata"]["deletionTimestamp"].is_null() || matches!(phase, "Failed" | "Succeeded")
    };
    let left: Vec<&Value> = pods.iter().filter(|pod| !ended(pod)).collect();
    let seen = |pod: &Value| {
        let gone = text(pod, "/metadata/deletionTimestamp");
        format!("{} on {:?} since {gone:?}", text(pod, "/status/phase"), text(pod, "/spec/nodeName"))
    };
    let all = || pods.iter().map(seen).collect::<Vec<_>>().join(", ");
    ensure!(!left.is_empty(), "{job} has no pod that goes on, but [{}]", all());
    for pod in left {
        let node = text(pod, "/spec/nodeName");
        ensure!(hosts.contains(node), "a pod of {job} is on {node:?}, not on {hosts:?}");
    }
    Ok(())
}

/// The life of a Job's Workload is legal, and no pass touches it while it goes; how often it was evicted, and why.
fn eviction_reasons(history: &History, job: &str) -> Result<Vec<String>> {
    let prefix = format!("job-{job}-");
    let all = history.revisions()?;
    let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name").starts_with(&prefix)).collect();
    ensure!(!own.is_empty(), "nothing was seen of {job}");
    let types = |w: &Value| -> BTreeSet<String> {
        let all = w["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().map(|c| text(c, "/type").to_owned()).filter(|kind| kind != "DeactivationTarget").collect()
    };
    let mut evictions = Vec::new();
    for pair in own.windows(2) {
        let [before, after] = pair else { continue };
        let told = format!("{} -> {}", before["status"], after["status"]);
        ensure!(types(before).is_subset(&types(after)), "a condition disappeared: {told}");
        if !condition_is_true(before, "Evicted") && condition_is_true(after, "Evicted") {
            evictions.push(condition(after, "Evicted").reason);
        }
        if !condition_is_true(before, "Evicted") {
            continue;
        }
        ensure!(before["status"]["unhealthyNodes"].is_null(), "a node is listed of one who goes: {told}");
        if condition_is_true(before, "QuotaReserved") {
            ensure!(
                condition_is_true(after, "Evicted") || condition_is_true(after, "Finished"),
                "it was taken back: {told}"
            );
            let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
            ensure!(new.is_null() || old == new, "an assignment landed: {told}");
        }
    }
    Ok(evictions)
}

/// The node of one that is being preempted fails, before or after it was told to go, and comes back, before or after it
/// has gone: it is evicted once, for the preemptor, and runs again when that has ended.
pub(crate) async fn node_fails_under_victim(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_priority_class("low", -1).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let stories = [("b-g", true, false), ("b-l", true, true), ("g-g", false, false), ("g-l", false, true)];
    let wrong = join_all(stories.map(async |(name, first, late)| {
        let story = preemption_scenario(ground, &history, name, first, late).await;
        story.err().map(|error| format!("{name}: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn preemption_scenario(
    ground: &Fixture,
    history: &History,
    name: &str,
    first: bool,
    late: bool,
) -> Result<()> {
    let (victim, urgent) = (format!("victim-{name}"), format!("urgent-{name}"));
    create_site(ground, name, 2, "1").await?;
    let job = ground.job(&victim, name, "1").priority(&ground.own_name("low")).spec("backoffLimit", json!(6));
    ground.submit(job.pod_annotation("sluice.dev/ignores-deletion", "true")).await?;
    ground.wait_until_running(&victim).await?;
    let lost = job_hosts(ground, &victim).await?.into_iter().next().context("it has no place")?;
    if first {
        delete_node(ground, &lost).await?;
    }
    ground.submit(ground.job(&urgent, name, "1")).await?;
    ground.wait_for_condition(&victim, "Evicted", "True", "Preempted").await?;
    if !first {
        delete_node(ground, &lost).await?;
    }
    if !late {
        recreate_node(ground, name, &lost).await?;
    }
    // Long enough for a pass that should not be.
    tokio::time::sleep(PASS_WAIT).await;
    ensure!(
        condition_is_true(&ground.workload(&victim).await?, "QuotaReserved"),
        "quota was given back under a pod"
    );
    ground.check_pending(&urgent).await?;
    ground.force_delete_pods(&victim)?;
    ground.wait_until_running(&urgent).await?;
    if late {
        recreate_node(ground, name, &lost).await?;
    }
    ground.check_pending(&victim).await?;
    ground.finish_job(&urgent).await?;
    ground.wait_until_running(&victim).await?;
    check_pods_on_assigned_hosts(ground, &victim).await?;
    ground.wait_for_queue_counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.finish_job(&victim).await?;
    ground.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, &victim)?;
    ensure!(evictions == ["Preempted"], "it was evicted for {evictions:?}");
    ensure!(job_hosts(ground, &urgent).await?.len() == 1, "the preemptor had no place");
    Ok(())
}

/// Two nodes of one workload fail, so many milliseconds apart: at once it is evicted, once, and both are named; later each
/// may be replaced by itself. In the end it runs on the two that are left.
pub(crate) async fn two_nodes_of_workload_fail(_: &Cluster, ground: &Fixture) -> Result<()> {
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let wrong = join_all([0, 10, 1000].map(async |gap| {
        let story = two_node_failure_scenario(ground, &history, gap).await;
        story.err().map(|error| format!("{gap} ms apart: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn two_node_failure_scenario(ground: &Fixture, history: &History, gap: u64) -> Result<()> {
    let name = format!("gap-{gap}");
    create_site(ground, &name, 4, "2").await?;
    let job = ground.job(&name, &name, "1").pods(2).spec("completionMode", json!("Indexed"));
    ground.submit(job.spec("backoffLimit", json!(6))).await?;
    ground.wait_until_running(&name).await?;
    let lost = job_hosts(ground, &name).await?;
    ensure!(lost.len() == 2, "it stands on {lost:?}");
    for (at, node) in lost.iter().enumerate() {
        if at > 0 {
            tokio::time::sleep(Duration::from_millis(gap)).await;
        }
        delete_node(ground, node).await?;
    }
    eventually("it has other nodes", async || {
        delete_pods_on(ground, &lost)?;
        let workload = ground.workload(&name).await?;
        let now = assigned_hosts(&workload);
        let listed = &workload["status"]["unhealthyNodes"];
        let holds = condition_is_true(&workload, "Admitted")
            && !condition_is_true(&workload, "Evicted")
            && listed.is_null();
        ensure!(holds && now.len() == 2 && now.is_disjoint(&lost), "{}", workload["status"]);
        Ok(())
    })
    .await?;
    ground.wait_until_running(&name).await?;
    check_pods_on_assigned_hosts(ground, &name).await?;
    ground.wait_for_queue_counts(&name, (0, 1, 1), &[("cpu", "2")]).await?;
    ground.finish_job(&name).await?;
    ground.wait_for_queue_counts(&name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, &name)?;
    let once = evictions == ["NodeFailures"];
    // A second after the first has failed it may have another one already.
    ensure!(once || (gap >= 1000 && evictions.is_empty()), "it was evicted for {evictions:?}");
    if once {
        let names = |w: &Value| {
            let message = condition(w, "Evicted").message;
            lost.iter().all(|node| message.contains(node.as_str()))
        };
        let job = format!("job-{name}-");
        let told =
            history.revisions()?.iter().any(|w| text(w, "/metadata/name").starts_with(&job) && names(w));
        ensure!(told, "the nodes were not named");
    }
    Ok(())
}

/// Two lose their nodes at once, their passes come due at once, and there is one other node: one has it, the other is
/// evicted, told why, and has it next.
pub(crate) async fn two_jobs_need_last_node(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    create_site(ground, "site", 3, "3").await?;
    for job in ["one", "two"] {
        ground.submit(ground.job(job, "site", "1").spec("backoffLimit", json!(6))).await?;
        ground.wait_until_running(job).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let lost: BTreeSet<String> =
        job_hosts(ground, "one").await?.into_iter().chain(job_hosts(ground, "two").await?).collect();
    ensure!(lost.len() == 2, "they stand on {lost:?}");
    for node in &lost {
        delete_node(ground, node).await?;
    }
    eventually("both nodes are listed", async || {
        for job in ["one", "two"] {
            let workload = ground.workload(job).await?;
            ensure!(!workload["status"]["unhealthyNodes"].is_null(), "{}", workload["status"]);
        }
        Ok(())
    })
    .await?;
    let manager = cluster.manager()?;
    manager.pause();
    tokio::time::sleep(PASS_WAIT).await;
    manager.resume();
    let (has, has_not) = eventually("one has the node, the other none", async || {
        delete_pods_on(ground, &lost)?;
        for (has, not) in [("one", "two"), ("two", "one")] {
            let moved =
                job_hosts(ground, has).await?.is_disjoint(&lost) && !job_hosts(ground, has).await?.is_empty();
            let gone = !condition_is_true(&ground.workload(not).await?, "QuotaReserved");
            if moved && gone {
                return Ok((has, not));
            }
        }
        bail!("{} and {}", ground.workload("one").await?["status"], ground.workload("two").await?["status"])
    })
    .await?;
    ground.wait_until_running(has).await?;
    check_pods_on_assigned_hosts(ground, has).await?;
    ground.wait_until_pending(has_not, "WaitingForQuota").await?;
    ground.wait_for_queue_counts("site", (1, 1, 1), &[("cpu", "1")]).await?;
    ground.finish_job(has).await?;
    ground.wait_until_running(has_not).await?;
    check_pods_on_assigned_hosts(ground, has_not).await?;
    ground.finish_job(has_not).await?;
    ground.wait_for_queue_counts("site", (0, 0, 0), &[("cpu", "0")]).await?;
    check_hosts_unshared(&history)?;
    ensure!(
        eviction_reasons(&history, has)?.is_empty(),
        "{has} was evicted for {:?}",
        eviction_reasons(&history, has)?
    );
    let why = eviction_reasons(&history, has_not)?;
    ensure!(why == ["NodeFailures"], "{has_not} was evicted for {why:?}");
    let named = |w: &Value| {
        let message = condition(w, "Evicted").message;
        message.contains("no replacement for unhealthy node(s)")
            && lost.iter().any(|node| message.contains(node))
    };
    ensure!(history.revisions()?.iter().any(named), "nobody was told why");
    Ok(())
}

/// At no revision do two who hold quota have the same node: each has room for one.
fn check_hosts_unshared(history: &History) -> Result<()> {
    let mut held: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        let own = if condition_is_true(&object, "QuotaReserved") && !condition_is_true(&object, "Finished") {
            assigned_hosts(&object)
        } else {
            BTreeSet::new()
        };
        let others = held.iter().filter(|(other, _)| **other != name);
        for (other, theirs) in others {
            ensure!(own.is_disjoint(theirs), "{name} and {other} have {own:?}");
        }
        held.insert(name, own);
    }
    Ok(())
}

/// What becomes of the write that lets the pod go to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UngateFate {
    /// It has landed, and the pod runs.
    Landed,
    /// It lands when the node is gone.
    Lost,
    /// It lands when the node is there again, and is not the pod's any more.
    Late,
}

/// A node that is not ready, ready, deleted and made again, before its pod was let go to it and after: one other place is
/// given, once, nobody is evicted, and what stands on nodes is counted there.
pub(crate) async fn node_flaps_around_ungating(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let stories = [("open", UngateFate::Landed), ("lost", UngateFate::Lost), ("late", UngateFate::Late)];
    let wrong = join_all(stories.map(async |(name, gate)| {
        let story = node_flap_scenario(ground, &proxy, &history, name, gate).await;
        story.err().map(|error| format!("{name}: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.replace_manager(&before).await.map(drop)
}

async fn node_flap_scenario(
    ground: &Fixture,
    proxy: &Proxy,
    history: &History,
    name: &str,
    gate: UngateFate,
) -> Result<()> {
    create_site(ground, name, 2, "2").await?;
    let pod = format!("/pods/{name}-");
    let picks = move |call: &Call| call.method == Method::PATCH && call.path.contains(&pod);
    let trap = (gate != UngateFate::Landed).then(|| proxy.inject(Fault::Hold, 0..1, picks));
    ground.submit(ground.job(name, name, "1").spec("backoffLimit", json!(6))).await?;
    match &trap {
        Some(trap) => trap.wait_until_matched().await?,
        None => ground.wait_until_running(name).await?,
    }
    let release = async || match &trap {
        Some(trap) => {
            trap.release();
            trap.wait_until_completed().await
        }
        None => Ok(()),
    };
    let node = job_hosts(ground, name).await?.into_iter().next().context("it has no place")?;
    set_ready(ground, &node, false).await?;
    if gate == UngateFate::Landed {
        // Its pod goes on there: nothing is to be done.
        tokio::time::sleep(PASS_WAIT).await;
        ensure!(job_hosts(ground, name).await?.contains(&node), "it was moved from under its pod");
        set_ready(ground, &node, true).await?;
        delete_node(ground, &node).await?;
        wait_until_moved(ground, name, &node).await?;
    } else {
        wait_until_moved(ground, name, &node).await?;
        set_ready(ground, &node, true).await?;
        delete_node(ground, &node).await?;
    }
    if gate == UngateFate::Lost {
        release().await?;
    }
    if gate != UngateFate::Late {
        let gone = BTreeSet::from([node.clone()]);
        // The scheduler may have sent it there before it knew that the node is gone.
        let settled = async || {
            delete_pods_on(ground, &gone)?;
            check_pods_on_assigned_hosts(ground, name).await
        };
        eventually("its pod is where it should be", settled).await?;
    }
    recreate_node(ground, name, &node).await?;
    release().await?;
    ground.wait_until_running(name).await?;
    let pods = ground.pods(name).await?;
    let left = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    let on: BTreeSet<String> = left.map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    let stands = job_hosts(ground, name).await?;
    let more = format!("more-{name}");
    ground.submit(ground.job(&more, name, "1")).await?;
    if stands == on {
        ground.wait_until_running(&more).await?;
        check_pods_on_assigned_hosts(ground, &more).await?;
        ground.wait_for_queue_counts(name, (0, 2, 2), &[("cpu", "2")]).await?;
    } else {
        // What it was given is kept for it, and what it has is taken.
        ground.wait_until_pending(&more, "WaitingForQuota").await?;
        ensure!(gate == UngateFate::Late, "a pod is on {on:?}, and not on {stands:?}");
    }
    ground.finish_job(name).await?;
    ground.wait_until_running(&more).await?;
    ground.finish_job(&more).await?;
    ground.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = eviction_reasons(history, name)?;
    ensure!(evictions.is_empty(), "it was evicted for {evictions:?}");
    let prefix = format!("job-{name}-");
    let own = history.revisions()?;
    let own = own.iter().filter(|w| text(w, "/metadata/name").starts_with(&prefix)).map(assigned_hosts);
    let mut places: Vec<BTreeSet<String>> = own.filter(|hosts| !hosts.is_empty()).collect();
    places.dedup();
    ensure!(places.len() == 2, "it was given {places:?}");
    Ok(())
}

/// It has another node, and none of its nodes is said to have failed.
async fn wait_until_moved(ground: &Fixture, job: &str, from: &str) -> Result<()> {
    eventually("it has another node", async || {
        let workload = ground.workload(job).await?;
        let (now, listed) = (assigned_hosts(&workload), &workload["status"]["unhealthyNodes"]);
        ensure!(now.len() == 1 && !now.contains(from) && listed.is_null(), "{}", workload["status"]);
        Ok(())
    })
    .await
}

/// What the kubelet of a node says, or its absence.
async fn set_ready(ground: &Fixture, name: &str, ready: bool) -> Result<()> {
    let broken = if ready { Value::Null } else { json!("true") };
    let patch = json!({"metadata": {"annotations": {"sluice.dev/broken": broken}}});
    ground.objects.merge(Kind::NODE, "", name, &patch).await?;
    if ready {
        return self::wait_until_node_ready(ground, name).await;
    }
    eventually("the node is not ready", async || {
        let node = ground.objects.must_get(Kind::NODE, "", name).await?;
        let mut all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for one in all.iter_mut().filter(|one| one["type"] == "Ready") {
            one["status"] = json!("False");
            one["reason"] = json!("KubeletNotReady");
        }
        let version = &node["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": all}});
        ground.objects.merge_status(Kind::NODE, "", name, &patch).await?;
        Ok(())
    })
    .await
}
