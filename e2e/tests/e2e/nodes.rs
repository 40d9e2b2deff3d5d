//! Nodes that fail under workloads: while these are being preempted, two at once, under two at once; and that come back.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::Settings;
use sluice_e2e::objects::{self, Kind, condition, holds, hosts, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/site";
/// Passes that are armed within it come due together for one who sleeps through it.
const SLEEP: Duration = Duration::from_millis(1600);

/// Nodes of one CPU each that nobody else is sent to, and a queue for them.
async fn site(ground: &Ground, name: &str, nodes: usize, cpu: &str) -> Result<()> {
    let full = ground.own(name);
    for number in 1..=nodes {
        ground.keep(Kind::NODE, node(ground, name, &ground.own(&format!("{name}-{number}")))).await?;
    }
    let levels = json!([{"nodeLabel": HOST}]);
    ground.keep(Kind::TOPOLOGY, json!({"metadata": {"name": full}, "spec": {"levels": levels}})).await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: full}, "tolerations": [toleration], "topologyName": full});
    ground.flavor(name, spec).await?;
    let mut body = objects::cluster_queue(&full, "", &full, &[("cpu", cpu, None)]);
    body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    ground.keep(Kind::CLUSTER_QUEUE, body).await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &full)).await?;
    for number in 1..=nodes {
        ready(ground, &ground.own(&format!("{name}-{number}"))).await?;
    }
    ground.active(name).await
}

fn node(ground: &Ground, site: &str, name: &str) -> Value {
    let room = json!({"cpu": "1", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": ground.own(site), "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": {LABEL: ground.own(site), HOST: name}}, "spec": {"taints": [taint]},
        "status": {"capacity": room, "allocatable": room},
    })
}

/// Nothing but its site keeps pods away.
async fn ready(ground: &Ground, node: &str) -> Result<()> {
    eventually(format!("{node} is ready"), async || {
        let node = ground.objects.need(Kind::NODE, "", node).await?;
        let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
        ensure!(holds(&node, "Ready") && taints == 1, "{}", node["spec"]["taints"]);
        Ok(())
    })
    .await
}

async fn lose(ground: &Ground, node: &str) -> Result<()> {
    Ok(ground.objects.delete(Kind::NODE, "", node, PropagationPolicy::Background).await?)
}

async fn bring_back(ground: &Ground, site: &str, name: &str) -> Result<()> {
    ground.objects.create(Kind::NODE, &node(ground, site, name)).await?;
    ready(ground, name).await
}

/// What ran on nodes that are gone is gone with them.
fn bury(ground: &Ground, nodes: &BTreeSet<String>) -> Result<()> {
    for node in nodes {
        let on = format!("spec.nodeName={node}");
        let force = ["--force", "--grace-period=0", "--wait=false", "--field-selector", &on];
        let pods = ["delete", "pods", "-n", &ground.name];
        ground.kubectl.run(&pods.iter().chain(&force).copied().collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn stands(ground: &Ground, job: &str) -> Result<BTreeSet<String>> {
    Ok(hosts(&ground.workload(job).await?))
}

/// All pods of a Job that stay are where its Workload says.
async fn landed(ground: &Ground, job: &str) -> Result<()> {
    let hosts = stands(ground, job).await?;
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
fn evictions(history: &History, job: &str) -> Result<Vec<String>> {
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
        if !holds(before, "Evicted") && holds(after, "Evicted") {
            evictions.push(condition(after, "Evicted").reason);
        }
        if !holds(before, "Evicted") {
            continue;
        }
        ensure!(before["status"]["unhealthyNodes"].is_null(), "a node is listed of one who goes: {told}");
        if holds(before, "QuotaReserved") {
            ensure!(holds(after, "Evicted") || holds(after, "Finished"), "it was taken back: {told}");
            let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
            ensure!(new.is_null() || old == new, "an assignment landed: {told}");
        }
    }
    Ok(evictions)
}

/// The node of one that is being preempted fails, before or after it was told to go, and comes back, before or after it
/// has gone: it is evicted once, for the preemptor, and runs again when that has ended.
pub(crate) async fn one_fails_under_who_is_preempted(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.priority("low", -1).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let stories = [("b-g", true, false), ("b-l", true, true), ("g-g", false, false), ("g-l", false, true)];
    let wrong = join_all(stories.map(async |(name, first, late)| {
        let story = preempted(ground, &history, name, first, late).await;
        story.err().map(|error| format!("{name}: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn preempted(ground: &Ground, history: &History, name: &str, first: bool, late: bool) -> Result<()> {
    let (victim, urgent) = (format!("victim-{name}"), format!("urgent-{name}"));
    site(ground, name, 2, "1").await?;
    let job = ground.job(&victim, name, "1").priority(&ground.own("low")).spec("backoffLimit", json!(6));
    ground.submit(job.pod_annotation("sluice.dev/ignores-deletion", "true")).await?;
    ground.runs(&victim).await?;
    let lost = stands(ground, &victim).await?.into_iter().next().context("it has no place")?;
    if first {
        lose(ground, &lost).await?;
    }
    ground.submit(ground.job(&urgent, name, "1")).await?;
    ground.condition(&victim, "Evicted", "True", "Preempted").await?;
    if !first {
        lose(ground, &lost).await?;
    }
    if !late {
        bring_back(ground, name, &lost).await?;
    }
    // Long enough for a pass that should not be.
    tokio::time::sleep(SLEEP).await;
    ensure!(holds(&ground.workload(&victim).await?, "QuotaReserved"), "quota was given back under a pod");
    ground.still_waits(&urgent).await?;
    ground.force_pods_away(&victim)?;
    ground.runs(&urgent).await?;
    if late {
        bring_back(ground, name, &lost).await?;
    }
    ground.still_waits(&victim).await?;
    ground.finish(&urgent).await?;
    ground.runs(&victim).await?;
    landed(ground, &victim).await?;
    ground.counts(name, (0, 1, 1), &[("cpu", "1")]).await?;
    ground.finish(&victim).await?;
    ground.counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = evictions(history, &victim)?;
    ensure!(evictions == ["Preempted"], "it was evicted for {evictions:?}");
    ensure!(stands(ground, &urgent).await?.len() == 1, "the preemptor had no place");
    Ok(())
}

/// Two nodes of one workload fail, so many milliseconds apart: at once it is evicted, once, and both are named; later each
/// may be replaced by itself. In the end it runs on the two that are left.
pub(crate) async fn two_fail_under_one(_: &Cluster, ground: &Ground) -> Result<()> {
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let wrong = join_all([0, 10, 1000].map(async |gap| {
        let story = two_of_one(ground, &history, gap).await;
        story.err().map(|error| format!("{gap} ms apart: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn two_of_one(ground: &Ground, history: &History, gap: u64) -> Result<()> {
    let name = format!("gap-{gap}");
    site(ground, &name, 4, "2").await?;
    let job = ground.job(&name, &name, "1").pods(2).spec("completionMode", json!("Indexed"));
    ground.submit(job.spec("backoffLimit", json!(6))).await?;
    ground.runs(&name).await?;
    let lost = stands(ground, &name).await?;
    ensure!(lost.len() == 2, "it stands on {lost:?}");
    for (at, node) in lost.iter().enumerate() {
        if at > 0 {
            tokio::time::sleep(Duration::from_millis(gap)).await;
        }
        lose(ground, node).await?;
    }
    eventually("it has other nodes", async || {
        bury(ground, &lost)?;
        let workload = ground.workload(&name).await?;
        let now = hosts(&workload);
        let listed = &workload["status"]["unhealthyNodes"];
        let holds = holds(&workload, "Admitted") && !holds(&workload, "Evicted") && listed.is_null();
        ensure!(holds && now.len() == 2 && now.is_disjoint(&lost), "{}", workload["status"]);
        Ok(())
    })
    .await?;
    ground.runs(&name).await?;
    landed(ground, &name).await?;
    ground.counts(&name, (0, 1, 1), &[("cpu", "2")]).await?;
    ground.finish(&name).await?;
    ground.counts(&name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = evictions(history, &name)?;
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
pub(crate) async fn two_want_the_one_that_is_left(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    site(ground, "site", 3, "3").await?;
    for job in ["one", "two"] {
        ground.submit(ground.job(job, "site", "1").spec("backoffLimit", json!(6))).await?;
        ground.runs(job).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let lost: BTreeSet<String> =
        stands(ground, "one").await?.into_iter().chain(stands(ground, "two").await?).collect();
    ensure!(lost.len() == 2, "they stand on {lost:?}");
    for node in &lost {
        lose(ground, node).await?;
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
    tokio::time::sleep(SLEEP).await;
    manager.resume();
    let (has, has_not) = eventually("one has the node, the other none", async || {
        bury(ground, &lost)?;
        for (has, not) in [("one", "two"), ("two", "one")] {
            let moved =
                stands(ground, has).await?.is_disjoint(&lost) && !stands(ground, has).await?.is_empty();
            let gone = !holds(&ground.workload(not).await?, "QuotaReserved");
            if moved && gone {
                return Ok((has, not));
            }
        }
        bail!("{} and {}", ground.workload("one").await?["status"], ground.workload("two").await?["status"])
    })
    .await?;
    ground.runs(has).await?;
    landed(ground, has).await?;
    ground.waits(has_not, "WaitingForQuota").await?;
    ground.counts("site", (1, 1, 1), &[("cpu", "1")]).await?;
    ground.finish(has).await?;
    ground.runs(has_not).await?;
    landed(ground, has_not).await?;
    ground.finish(has_not).await?;
    ground.counts("site", (0, 0, 0), &[("cpu", "0")]).await?;
    never_shared(&history)?;
    ensure!(evictions(&history, has)?.is_empty(), "{has} was evicted for {:?}", evictions(&history, has)?);
    let why = evictions(&history, has_not)?;
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
fn never_shared(history: &History) -> Result<()> {
    let mut held: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in history.revisions()? {
        let name = text(&object, "/metadata/name").to_owned();
        let own = if holds(&object, "QuotaReserved") && !holds(&object, "Finished") {
            hosts(&object)
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
enum Gate {
    /// It has landed, and the pod runs.
    Open,
    /// It lands when the node is gone.
    Lost,
    /// It lands when the node is there again, and is not the pod's any more.
    Late,
}

/// A node that is not ready, ready, deleted and made again, before its pod was let go to it and after: one other place is
/// given, once, nobody is evicted, and what stands on nodes is counted there.
pub(crate) async fn one_comes_and_goes(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = Settings { server: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let stories = [("open", Gate::Open), ("lost", Gate::Lost), ("late", Gate::Late)];
    let wrong = join_all(stories.map(async |(name, gate)| {
        let story = to_and_fro(ground, &proxy, &history, name, gate).await;
        story.err().map(|error| format!("{name}: {error:#}"))
    }));
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.replace_manager(&before).await.map(drop)
}

async fn to_and_fro(ground: &Ground, proxy: &Proxy, history: &History, name: &str, gate: Gate) -> Result<()> {
    site(ground, name, 2, "2").await?;
    let pod = format!("/pods/{name}-");
    let picks = move |call: &Call| call.method == Method::PATCH && call.path.contains(&pod);
    let trap = (gate != Gate::Open).then(|| proxy.trap(Fault::Hold, 0..1, picks));
    ground.submit(ground.job(name, name, "1").spec("backoffLimit", json!(6))).await?;
    match &trap {
        Some(trap) => trap.caught().await?,
        None => ground.runs(name).await?,
    }
    let release = async || match &trap {
        Some(trap) => {
            trap.release();
            trap.over().await
        }
        None => Ok(()),
    };
    let node = stands(ground, name).await?.into_iter().next().context("it has no place")?;
    set_ready(ground, &node, false).await?;
    if gate == Gate::Open {
        // Its pod goes on there: nothing is to be done.
        tokio::time::sleep(SLEEP).await;
        ensure!(stands(ground, name).await?.contains(&node), "it was moved from under its pod");
        set_ready(ground, &node, true).await?;
        lose(ground, &node).await?;
        moved(ground, name, &node).await?;
    } else {
        moved(ground, name, &node).await?;
        set_ready(ground, &node, true).await?;
        lose(ground, &node).await?;
    }
    if gate == Gate::Lost {
        release().await?;
    }
    if gate != Gate::Late {
        let gone = BTreeSet::from([node.clone()]);
        // The scheduler may have sent it there before it knew that the node is gone.
        let settled = async || {
            bury(ground, &gone)?;
            landed(ground, name).await
        };
        eventually("its pod is where it should be", settled).await?;
    }
    bring_back(ground, name, &node).await?;
    release().await?;
    ground.runs(name).await?;
    let pods = ground.pods(name).await?;
    let left = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    let on: BTreeSet<String> = left.map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    let stands = stands(ground, name).await?;
    let more = format!("more-{name}");
    ground.submit(ground.job(&more, name, "1")).await?;
    if stands == on {
        ground.runs(&more).await?;
        landed(ground, &more).await?;
        ground.counts(name, (0, 2, 2), &[("cpu", "2")]).await?;
    } else {
        // What it was given is kept for it, and what it has is taken.
        ground.waits(&more, "WaitingForQuota").await?;
        ensure!(gate == Gate::Late, "a pod is on {on:?}, and not on {stands:?}");
    }
    ground.finish(name).await?;
    ground.runs(&more).await?;
    ground.finish(&more).await?;
    ground.counts(name, (0, 0, 0), &[("cpu", "0")]).await?;
    let evictions = evictions(history, name)?;
    ensure!(evictions.is_empty(), "it was evicted for {evictions:?}");
    let prefix = format!("job-{name}-");
    let own = history.revisions()?;
    let own = own.iter().filter(|w| text(w, "/metadata/name").starts_with(&prefix)).map(hosts);
    let mut places: Vec<BTreeSet<String>> = own.filter(|hosts| !hosts.is_empty()).collect();
    places.dedup();
    ensure!(places.len() == 2, "it was given {places:?}");
    Ok(())
}

/// It has another node, and none of its nodes is said to have failed.
async fn moved(ground: &Ground, job: &str, from: &str) -> Result<()> {
    eventually("it has another node", async || {
        let workload = ground.workload(job).await?;
        let (now, listed) = (hosts(&workload), &workload["status"]["unhealthyNodes"]);
        ensure!(now.len() == 1 && !now.contains(from) && listed.is_null(), "{}", workload["status"]);
        Ok(())
    })
    .await
}

/// What the kubelet of a node says, or its absence.
async fn set_ready(ground: &Ground, name: &str, ready: bool) -> Result<()> {
    let broken = if ready { Value::Null } else { json!("true") };
    let patch = json!({"metadata": {"annotations": {"sluice.dev/broken": broken}}});
    ground.objects.merge(Kind::NODE, "", name, &patch).await?;
    if ready {
        return self::ready(ground, name).await;
    }
    eventually("the node is not ready", async || {
        let node = ground.objects.need(Kind::NODE, "", name).await?;
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
