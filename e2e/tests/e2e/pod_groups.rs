//! Pods that wait one by one: groups, and the pods of Deployments and StatefulSets, whose controllers the control plane has.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::{History, is_deleted, revision};
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, expect_condition, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeMap;

const QUEUE: &str = "main";
/// CPUs of the queue.
const QUOTA: i64 = 5;
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";

/// A group is preempted and replaced, and one of its pods fails and is replaced; a StatefulSet goes from 0 to 3, to 0 and to 5 pods
/// under a full queue; a Deployment is rolled while its pods are gated. At no revision that the API server had is more charged than
/// the quota.
pub(crate) async fn groups_and_sets_under_a_full_queue(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let frameworks = json!(["batch/job", "pod", "deployment", "statefulset"]);
    let before = cluster.reconfigure(&json!({"integrations": {"frameworks": frameworks}})).await?;
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue(QUEUE, "", &[("cpu", &QUOTA.to_string(), None)], policy).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    group_is_preempted_and_replaced(fixture).await?;
    note("pod group");
    set_is_scaled(fixture).await?;
    note("StatefulSet");
    deployment_is_rolled(fixture).await?;
    note("Deployment");
    check_charges(&workloads.revisions()?)?;
    drop(cluster.reconfigure(&before).await?);
    Ok(())
}

fn spec(cpu: &str) -> Value {
    json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu}}}]})
}

/// A pod of a group, which runs until the case ends it.
pub(crate) fn member(namespace: &str, name: &str, group: &str, total: usize, cpu: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE_LABEL: QUEUE, "group": group},
            "annotations": {"kueue.x-k8s.io/pod-group-name": group,
                "kueue.x-k8s.io/pod-group-total-count": total.to_string()}},
        "spec": spec(cpu),
    });
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

/// Creates a pod of the group that is preempted. It does not end when it is deleted.
async fn create_member(fixture: &Fixture, name: &str) -> Result<()> {
    let mut pod = member(&fixture.name, name, "group", 2, "2");
    pod["metadata"]["labels"]["app"] = json!("group");
    pod["metadata"]["annotations"]["sluice.dev/ignores-deletion"] = json!("true");
    fixture.objects.create(Kind::POD, &pod).await?;
    Ok(())
}

async fn live_pods(fixture: &Fixture, app: &str) -> Result<Vec<Value>> {
    let mut pods = fixture.objects.list(Kind::POD, &fixture.name, &format!("app={app}")).await?;
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    Ok(pods)
}

/// Returns whether a pod waits for admission.
pub(crate) fn is_gated(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == ADMISSION_GATE))
}

/// Waits until so many pods are ready, and so many wait at their gates.
async fn wait_for_pods(fixture: &Fixture, app: &str, ready: usize, gated: usize) -> Result<()> {
    eventually(format!("{ready} pods of {app} are ready and {gated} are gated"), async || {
        let pods = live_pods(fixture, app).await?;
        let found = (
            pods.iter().filter(|pod| condition_is_true(pod, "Ready")).count(),
            pods.iter().filter(|pod| is_gated(pod)).count(),
        );
        ensure!(found == (ready, gated), "{} pods, ready and gated: {found:?}", pods.len());
        Ok(())
    })
    .await
}

/// Ends the members that are deleted, as a kubelet does: their phase first, because their finalizers keep them.
async fn end_deleted_members(fixture: &Fixture, names: &[&str]) -> Result<()> {
    for name in names {
        eventually(format!("{name} is deleted"), async || {
            let pod = fixture.objects.must_get(Kind::POD, &fixture.name, name).await?;
            ensure!(pod["metadata"]["deletionTimestamp"].is_string(), "it is not");
            Ok(())
        })
        .await?;
    }
    let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, "group").await?;
    ensure!(condition_is_true(&workload, "QuotaReserved"), "its quota is free under pods that terminate");
    for name in names {
        let ended = json!({"status": {"phase": "Failed"}});
        fixture.objects.merge_status(Kind::POD, &fixture.name, name, &ended).await?;
        fixture.kubectl.run(&[
            "delete",
            "pod",
            name,
            "-n",
            &fixture.name,
            "--force",
            "--grace-period=0",
            "--wait=false",
        ])?;
    }
    Ok(())
}

async fn group_condition(fixture: &Fixture, kind: &str, status: &str, reason: &str) -> Result<()> {
    eventually(format!("the group has {kind}={status}"), async || {
        let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, "group").await?;
        expect_condition(&workload, kind, status, reason)
    })
    .await
}

async fn group_is_preempted_and_replaced(fixture: &Fixture) -> Result<()> {
    let high = fixture.create_priority_class("high", 1_000).await?;
    for name in ["member-0", "member-1"] {
        create_member(fixture, name).await?;
    }
    wait_for_pods(fixture, "group", 2, 0).await?;
    fixture.submit(fixture.job("urgent", QUEUE, "3").priority(&high)).await?;
    end_deleted_members(fixture, &["member-0", "member-1"]).await?;
    fixture.wait_until_running("urgent").await?;
    group_condition(fixture, "WaitingForReplacementPods", "True", "Preempted").await?;
    for name in ["again-0", "again-1"] {
        create_member(fixture, name).await?;
    }
    wait_for_pods(fixture, "group", 0, 2).await?;
    group_condition(fixture, "WaitingForReplacementPods", "False", "").await?;
    fixture.finish_job("urgent").await?;
    wait_for_pods(fixture, "group", 2, 0).await?;

    // A pod fails and is replaced in the same admission.
    let fails =
        json!({"metadata": {"annotations": {"sluice.dev/exit-code": "1", "sluice.dev/run-for": "0s"}}});
    fixture.objects.merge(Kind::POD, &fixture.name, "again-0", &fails).await?;
    group_condition(fixture, "WaitingForReplacementPods", "True", "PodsFailed").await?;
    create_member(fixture, "spare").await?;
    eventually("the replacement runs", async || {
        let pod = fixture.objects.must_get(Kind::POD, &fixture.name, "spare").await?;
        expect_condition(&pod, "Ready", "True", "")
    })
    .await?;
    for name in ["again-1", "spare"] {
        let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
        fixture.objects.merge(Kind::POD, &fixture.name, name, &patch).await?;
    }
    group_condition(fixture, "Finished", "True", "Succeeded").await?;
    fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0")]).await
}

async fn scale(fixture: &Fixture, replicas: usize) -> Result<()> {
    fixture.set_spec(Kind::STATEFUL_SET, &fixture.name, "set", json!({"replicas": replicas})).await
}

async fn set_is_scaled(fixture: &Fixture) -> Result<()> {
    let labels = json!({"app": "set"});
    let set = json!({
        "metadata": {"name": "set", "namespace": fixture.name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"replicas": 0, "serviceName": "set", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec("1")}},
    });
    fixture.objects.create(Kind::STATEFUL_SET, &set).await?;
    fixture.submit(fixture.job("first", QUEUE, "4")).await?;
    fixture.wait_until_running("first").await?;
    scale(fixture, 3).await?;
    wait_for_pods(fixture, "set", 0, 3).await?;
    fixture.wait_for_queue_counts(QUEUE, (1, 1, 1), &[("cpu", "4")]).await?;
    fixture.finish_job("first").await?;
    wait_for_pods(fixture, "set", 3, 0).await?;
    let by_subresource = |replicas: &str| {
        let replicas = format!("--replicas={replicas}");
        fixture.kubectl.run(&["scale", "statefulset", "set", "-n", &fixture.name, &replicas])
    };
    let refusal = by_subresource("4").err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("spec.replicas"), "kubectl scale to 4: {refusal:?}");
    by_subresource("0")?;
    fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0")]).await?;
    fixture.submit(fixture.job("second", QUEUE, "1")).await?;
    fixture.wait_until_running("second").await?;
    eventually("its pods are gone", async || {
        let set = fixture.objects.must_get(Kind::STATEFUL_SET, &fixture.name, "set").await?;
        ensure!(set["status"]["replicas"] == 0, "{}", set["status"]);
        Ok(())
    })
    .await?;
    scale(fixture, 5).await?;
    wait_for_pods(fixture, "set", 0, 5).await?;
    fixture.finish_job("second").await?;
    wait_for_pods(fixture, "set", 5, 0).await?;
    fixture.wait_for_queue_counts(QUEUE, (0, 1, 1), &[("cpu", "5")]).await
}

/// The StatefulSet fills the queue. The pods of the Deployment wait, and so do those of its next revision.
async fn deployment_is_rolled(fixture: &Fixture) -> Result<()> {
    let labels = json!({"app": "web"});
    let web = json!({
        "metadata": {"name": "web", "namespace": fixture.name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels}, "spec": spec("1")}},
    });
    fixture.objects.create(Kind::DEPLOYMENT, &web).await?;
    wait_for_pods(fixture, "web", 0, 2).await?;
    let rolled = json!({"template": {"metadata": {"annotations": {"revision": "2"}}}});
    fixture.set_spec(Kind::DEPLOYMENT, &fixture.name, "web", rolled).await?;
    eventually("a pod of the next revision waits", async || {
        let pods = live_pods(fixture, "web").await?;
        ensure!(pods.iter().all(is_gated), "a pod has started");
        ensure!(pods.iter().any(|pod| pod["metadata"]["annotations"]["revision"] == "2"), "none");
        Ok(())
    })
    .await?;
    scale(fixture, 0).await?;
    eventually("two pods of the next revision run, and no others", async || {
        let pods = live_pods(fixture, "web").await?;
        let new = |pod: &&Value| pod["metadata"]["annotations"]["revision"] == "2";
        let ready = pods.iter().filter(new).filter(|pod| condition_is_true(pod, "Ready")).count();
        ensure!((ready, pods.len()) == (2, 2), "{ready} of {} pods", pods.len());
        Ok(())
    })
    .await?;
    fixture.wait_for_queue_counts(QUEUE, (0, 2, 2), &[("cpu", "2")]).await?;
    fixture.objects.delete(Kind::DEPLOYMENT, &fixture.name, "web", PropagationPolicy::Background).await?;
    fixture.objects.delete(Kind::STATEFUL_SET, &fixture.name, "set", PropagationPolicy::Background).await?;
    fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0")]).await
}

/// Checks that at no revision of the Workloads more CPU was charged than the queue has.
fn check_charges(revisions: &[Value]) -> Result<()> {
    let mut known: BTreeMap<&str, i64> = BTreeMap::new();
    let mut last = 0;
    for workload in revisions {
        let now = revision(workload)?;
        ensure!(now >= last, "revisions are out of order");
        last = now;
        known.insert(text(workload, "/metadata/name"), charged_cpu(workload));
        let all: i64 = known.values().sum();
        ensure!(all <= QUOTA, "{all} CPU are charged: {known:?}");
    }
    ensure!(last > 0, "no revision was seen");
    Ok(())
}

/// Returns for how many CPUs a revision of a Workload is charged.
fn charged_cpu(workload: &Value) -> i64 {
    let holds = condition_is_true(workload, "QuotaReserved") && !condition_is_true(workload, "Finished");
    if !holds || is_deleted(workload) {
        return 0;
    }
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    let cpu = |set: &Value| set["resourceUsage"]["cpu"].as_str()?.parse::<i64>().ok();
    sets.into_iter().flatten().filter_map(cpu).sum()
}
