//! What a dump holds: jobs of every kind that run, wait and have ended, and Workloads in every state of their life.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::job_kinds::PlayedKind;
use crate::topology::{RACK, REQUIRED, create_racks_for};
use crate::{elastic_jobs, pod_groups, provisioning};
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::{Map, Value, json};
use sluice::frameworks::{PlayedState, Role, frameworks};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Job, Kind, condition, condition_is_true, text};
use sluice_e2e::samples::RelatedSamples;
use sluice_e2e::wait::eventually;

/// Name of the namespace, and prefix of queues and flavors.
pub(crate) const NAME: &str = "upgrade";
/// LocalQueue of the kinds that run, and of those that wait until its quota is raised.
const KINDS: &str = "kinds";
pub(crate) const NARROW: &str = "narrow";
/// Resources of the queues of all kinds.
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// Longer than any take-over takes.
const BACKOFF: u32 = 36_000;
const OLD_WORKLOAD: Kind = Kind::new("kueue.x-k8s.io", "v1beta1", "Workload", "workloads");
const OLD_QUEUE: Kind = Kind::new("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues");

/// Configuration of the manager: all kinds, and a time for pods to get ready.
pub(crate) fn configuration(timeout: &str) -> Value {
    let names: Vec<&str> = frameworks().map(|row| row.name).collect();
    let gates = frameworks().filter_map(|row| row.flags.gate);
    let gates: Map<String, Value> = gates.map(|gate| (gate.to_owned(), json!(true))).collect();
    json!({
        "integrations": {"frameworks": names}, "featureGates": gates,
        "waitForPodsReady": {"timeout": timeout, "requeuingStrategy": {
            "timestamp": "Eviction", "backoffBaseSeconds": BACKOFF, "backoffMaxSeconds": BACKOFF}},
        "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
    })
}

/// Brings everything into its state.
pub(crate) async fn build(fixture: &Fixture, cluster: &mut Cluster) -> Result<()> {
    late_pods(cluster, fixture).await.context("late pods")?;
    states_of_jobs(fixture).await.context("states of Jobs")?;
    preemptions(fixture).await.context("preemptions")?;
    checks(fixture).await.context("checks")?;
    slices(fixture).await.context("slices")?;
    racks(fixture).await.context("racks")?;
    groups(fixture).await.context("groups")?;
    without_jobs(fixture).await.context("Workloads without jobs")?;
    note("states of Workloads");
    kinds(fixture).await.context("kinds")
}

/// `late` is evicted because its pods do not get ready, and waits for hours.
async fn late_pods(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("late", "", &[("cpu", "1", None)], json!({})).await?;
    let before = cluster.reconfigure(&configuration("2s")).await?;
    fixture.submit(nowhere(fixture.job("late", "late", "1"))).await?;
    fixture.wait_for_condition("late", "Evicted", "True", "PodsReadyTimeout").await?;
    eventually("late is in back-off", async || {
        let workload = fixture.workload("late").await?;
        ensure!(
            workload["status"]["requeueState"]["requeueAt"].is_string()
                && !condition_is_true(&workload, "QuotaReserved"),
            "{}",
            workload["status"]
        );
        Ok(())
    })
    .await?;
    cluster.reconfigure(&before).await.map(drop)
}

/// A Job whose pods fit on no node.
fn nowhere(job: Job) -> Job {
    job.pod_spec("nodeSelector", json!({"e2e.example/none": "none"}))
}

fn stubborn(job: Job) -> Job {
    job.pod_annotation("sluice.dev/ignores-deletion", "true")
}

/// Jobs that run, wait, have ended, are deactivated, are shrunk, borrow, are held, are being evicted or deleted while their pods remain.
async fn states_of_jobs(fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "4", None)], json!({})).await?;
    for job in ["ended", "off", "running"] {
        fixture.submit(fixture.job(job, "main", "1")).await?;
        fixture.wait_until_running(job).await?;
    }
    fixture.finish_job("ended").await?;
    let fails = fixture.job("failed", "main", "1").pod_annotation("sluice.dev/exit-code", "1");
    fixture.submit(fails.runs_for("0s")).await?;
    fixture.wait_until_finished("failed", "Failed").await?;
    fixture.set_workload_spec("off", json!({"active": false})).await?;
    fixture.wait_until_pending("off", "Deactivated").await?;
    fixture.submit(nowhere(fixture.job("unready", "main", "1"))).await?;
    fixture.wait_for_condition("unready", "Admitted", "True", "Admitted").await?;
    let limited = fixture.job("limited", "main", "500m");
    fixture.submit(limited.label("kueue.x-k8s.io/max-exec-time-seconds", "86400")).await?;
    fixture.wait_until_running("limited").await?;
    fixture.submit(fixture.job("waiting", "main", "3")).await?;
    fixture.wait_until_pending("waiting", "").await?;
    fixture.submit(fixture.job("impossible", "main", "5")).await?;
    fixture.wait_until_pending("impossible", "").await?;
    fixture.submit(fixture.job("queueless", "missing", "1")).await?;
    fixture.wait_until_pending("queueless", "").await?;

    fixture.create_queue("partial", "", &[("cpu", "2", None)], json!({})).await?;
    let shrinks = fixture.job("shrunk", "partial", "1").pods(3);
    fixture.submit(shrinks.annotation("kueue.x-k8s.io/job-min-parallelism", "1")).await?;
    fixture.wait_until_running("shrunk").await?;

    let cohort = fixture.create_cohort("all", "", &[("cpu", "1", None)]).await?;
    fixture.create_queue("lends", &cohort, &[("cpu", "1", None)], json!({})).await?;
    fixture.create_queue("borrows", &cohort, &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("borrower", "borrows", "3")).await?;
    fixture.wait_until_running("borrower").await?;

    fixture.create_queue("held", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.submit(fixture.job("held-running", "held", "1")).await?;
    fixture.wait_until_running("held-running").await?;
    let hold = json!({"stopPolicy": "Hold"});
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &fixture.own_name("held"), hold).await?;
    fixture.submit(fixture.job("held-waiting", "held", "1")).await?;
    fixture.wait_until_pending("held-waiting", "").await?;

    for (queue, kind) in [("drained", Kind::CLUSTER_QUEUE), ("drained-local", Kind::LOCAL_QUEUE)] {
        let name = fixture.create_queue(queue, "", &[("cpu", "1", None)], json!({})).await?;
        fixture.submit(fixture.job(queue, queue, "1")).await?;
        fixture.wait_until_running(queue).await?;
        let drain = json!({"stopPolicy": "HoldAndDrain"});
        let (namespace, name) = if kind == Kind::LOCAL_QUEUE { (NAME, queue) } else { ("", name.as_str()) };
        fixture.set_spec(kind, namespace, name, drain).await?;
        fixture.wait_until_pending(queue, "").await?;
    }

    for (queue, job) in [("stuck", "stuck"), ("going", "going")] {
        fixture.create_queue(queue, "", &[("cpu", "1", None)], json!({})).await?;
        fixture.submit(stubborn(fixture.job(job, queue, "1"))).await?;
        fixture.wait_until_running(job).await?;
    }
    fixture.set_workload_spec("stuck", json!({"active": false})).await?;
    fixture.wait_for_condition("stuck", "Evicted", "True", "Deactivated").await?;
    fixture.objects.delete(Kind::JOB, NAME, "going", PropagationPolicy::Foreground).await?;
    for (queue, job) in [("stuck", "behind-stuck"), ("going", "behind-going")] {
        fixture.submit(fixture.job(job, queue, "1")).await?;
        fixture.wait_until_pending(job, "").await?;
    }
    Ok(())
}

/// A victim that waits again, and one whose pods keep its preemptor waiting.
async fn preemptions(fixture: &Fixture) -> Result<()> {
    let (low, high) =
        (fixture.create_priority_class("low", 1).await?, fixture.create_priority_class("high", 100).await?);
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    for (queue, victim, preemptor) in
        [("preempts", "victim", "urgent"), ("preempting", "slow-victim", "later")]
    {
        fixture.create_queue(queue, "", &[("cpu", "2", None)], policy.clone()).await?;
        let job = fixture.job(victim, queue, "2").priority(&low);
        fixture.submit(if queue == "preempting" { stubborn(job) } else { job }).await?;
        fixture.wait_until_running(victim).await?;
        fixture.submit(fixture.job(preemptor, queue, "2").priority(&high)).await?;
        fixture.wait_for_condition(victim, "Evicted", "True", "Preempted").await?;
    }
    fixture.wait_until_running("urgent").await?;
    fixture.wait_until_pending("victim", "").await?;
    fixture.wait_until_pending("later", "WaitingForPreemptedWorkloads").await
}

/// Creates a check whose controller is the test.
async fn create_check(fixture: &Fixture, name: &str) -> Result<String> {
    let check = fixture.own_name(name);
    let spec = json!({"controllerName": "e2e.example/manual"});
    fixture.create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": check}, "spec": spec})).await?;
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": format!("{:.0}", Timestamp::now())});
    let status = json!({"status": {"conditions": [active]}});
    fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &check, &status).await?;
    Ok(check)
}

/// Sets the state of the only check of a Job's Workload.
pub(crate) async fn set_check(
    fixture: &Fixture,
    workload: &str,
    state: &str,
    after: Option<u32>,
) -> Result<()> {
    eventually(format!("the check of {workload} is {state}"), async || {
        let object = fixture.objects.must_get(Kind::WORKLOAD, NAME, workload).await?;
        let mut checks = object["status"]["admissionChecks"].clone();
        checks[0]["state"] = state.into();
        checks[0]["lastTransitionTime"] = json!(format!("{:.0}", Timestamp::now()));
        if let Some(seconds) = after {
            checks[0]["requeueAfterSeconds"] = seconds.into();
        }
        let version = &object["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"admissionChecks": checks}});
        fixture.objects.merge_status(Kind::WORKLOAD, NAME, workload, &patch).await?;
        Ok(())
    })
    .await
}

/// Quota is reserved while checks are pending; a check is ready, asks for a retry, rejects; requests are pending and provisioned.
async fn checks(fixture: &Fixture) -> Result<()> {
    let check = create_check(fixture, "check").await?;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    fixture.create_queue("checked", "", &[("cpu", "4", None)], strategy).await?;
    fixture.wait_until_queue_active("checked").await?;
    for (job, state) in [("reserved", ""), ("checked", "Ready"), ("again", "Retry"), ("rejected", "Rejected")]
    {
        fixture.submit(fixture.job(job, "checked", "1")).await?;
        fixture.wait_for_condition(job, "QuotaReserved", "True", "QuotaReserved").await?;
        let workload = fixture.workload(job).await?;
        if !state.is_empty() {
            let after = (state == "Retry").then_some(BACKOFF);
            set_check(fixture, text(&workload, "/metadata/name"), state, after).await?;
        }
    }
    fixture.wait_until_running("checked").await?;
    fixture.wait_until_pending("again", "").await?;
    fixture.wait_until_pending("rejected", "Deactivated").await?;

    let check = provisioning::create_check(fixture).await?;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    fixture.create_queue("provisioned", "", &[("cpu", "2", None)], strategy).await?;
    fixture.wait_until_queue_active("provisioned").await?;
    for job in ["provisioning", "provisioned"] {
        fixture.submit(fixture.job(job, "provisioned", "1")).await?;
        provisioning::wait_for_request(fixture, job, 1).await?;
    }
    let request = provisioning::wait_for_request(fixture, "provisioned", 1).await?;
    provisioning::set_request_condition(fixture, &request, "Provisioned", "capacity was provisioned").await?;
    fixture.wait_until_running("provisioned").await
}

/// An elastic Job that has grown, and one whose larger slice waits for quota.
async fn slices(fixture: &Fixture) -> Result<()> {
    fixture.create_queue("elastic", "", &[("cpu", "6", None)], json!({})).await?;
    for (job, from, to) in [("grown", 1, 2), ("grows", 2, 5)] {
        let elastic = fixture.job(job, "elastic", "1").pods(from).spec("completions", Value::Null);
        fixture.submit(elastic.annotation(elastic_jobs::GATE, "true")).await?;
        wait_for_ready(fixture, job, usize::try_from(from)?).await?;
        fixture.set_spec(Kind::JOB, NAME, job, json!({"parallelism": to})).await?;
        if job == "grown" {
            wait_for_ready(fixture, job, 2).await?;
        }
    }
    eventually("three pods wait for the larger slice", async || {
        let pods = fixture.pods("grows").await?;
        let gated = pods.iter().filter(|pod| elastic_jobs::is_gated(pod)).count();
        ensure!(gated == 3, "{gated} pods are gated");
        Ok(())
    })
    .await
}

async fn wait_for_ready(fixture: &Fixture, job: &str, count: usize) -> Result<()> {
    eventually(format!("{count} pods of {job} are ready"), async || {
        let ready = fixture.pods(job).await?.iter().filter(|pod| condition_is_true(pod, "Ready")).count();
        ensure!(ready == count, "{ready} pods are ready");
        Ok(())
    })
    .await
}

/// Jobs on the nodes of racks, and one that waits for nodes although it has quota, since it has lost one.
async fn racks(fixture: &Fixture) -> Result<()> {
    create_racks_for(fixture, "racks").await?;
    let racked = |name: &str, pods: i32| {
        let job = fixture.job(name, "racks", "1").pods(pods);
        job.spec("completionMode", json!("Indexed")).pod_annotation(REQUIRED, RACK)
    };
    for (job, pods) in [("rack-a", 4), ("rack-b", 3)] {
        fixture.submit(racked(job, pods)).await?;
        fixture.wait_until_running(job).await?;
    }
    // It runs in what is left of the rack of the other one, which has lost a node for which there is no other.
    fixture.submit(racked("rack-waits", 2)).await?;
    fixture.wait_until_pending("rack-waits", "").await?;
    fixture.objects.delete(Kind::NODE, "", &fixture.own_name("a2"), PropagationPolicy::Background).await?;
    fixture.wait_for_condition("rack-a", "Evicted", "True", "NodeFailures").await?;
    fixture.wait_until_running("rack-waits").await?;
    fixture.wait_until_pending("rack-a", "").await?;
    // It says why it waits as it was when both were tried; a change of its queue has it tried again.
    let change = json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}});
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &fixture.own_name("racks"), change).await
}

/// A pod of a group of two.
pub(crate) fn group_member(name: &str, group: &str, cpu: &str) -> Value {
    let mut pod = pod_groups::member(NAME, name, group, 2, cpu);
    pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "groups".into();
    pod
}

/// Groups of pods that run, wait, lack a pod, and have lost one that has failed.
async fn groups(fixture: &Fixture) -> Result<()> {
    fixture.create_queue("groups", "", &[("cpu", "4", None)], json!({})).await?;
    let create = async |group: &str, pods: usize, cpu: &str| {
        for number in 0..pods {
            let pod = group_member(&format!("{group}-{number}"), group, cpu);
            fixture.objects.create(Kind::POD, &pod).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    for (group, pods, cpu) in
        [("group-runs", 2, "1"), ("group-failed", 2, "1"), ("group-waits", 2, "2"), ("group-lacks", 1, "1")]
    {
        create(group, pods, cpu).await?;
    }
    for group in ["group-runs", "group-failed"] {
        wait_for_workload(fixture, group, "PodsReady", "True").await?;
    }
    wait_for_workload(fixture, "group-waits", "QuotaReserved", "False").await?;
    let fails =
        json!({"metadata": {"annotations": {"sluice.dev/exit-code": "1", "sluice.dev/run-for": "0s"}}});
    fixture.objects.merge(Kind::POD, NAME, "group-failed-0", &fails).await?;
    wait_for_workload(fixture, "group-failed", "WaitingForReplacementPods", "True").await
}

async fn wait_for_workload(fixture: &Fixture, name: &str, kind: &str, status: &str) -> Result<()> {
    eventually(format!("{name} has {kind}={status}"), async || {
        let workload = fixture.objects.must_get(Kind::WORKLOAD, NAME, name).await?;
        let found = condition(&workload, kind);
        ensure!(found.status == status, "{found:?}");
        Ok(())
    })
    .await
}

/// Workloads that users make themselves, of both versions, and a Job that names one.
async fn without_jobs(fixture: &Fixture) -> Result<()> {
    fixture.create_queue("bare", "", &[("cpu", "4", None)], json!({})).await?;
    let queue = objects::local_queue(NAME, "old", &fixture.own_name("bare"));
    fixture.objects.create(OLD_QUEUE, &queue).await?;
    let workload = |name: &str, queue: &str, cpu: &str| {
        let container = json!({"name": "main", "image": "work:1", "resources": {"requests": {"cpu": cpu}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        json!({"metadata": {"namespace": NAME, "name": name},
            "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]}})
    };
    fixture.objects.create(Kind::WORKLOAD, &workload("bare", "bare", "1")).await?;
    fixture.objects.create(Kind::WORKLOAD, &workload("prebuilt", "bare", "1")).await?;
    fixture.objects.create(OLD_WORKLOAD, &workload("old", "old", "1")).await?;
    for name in ["bare", "old", "prebuilt"] {
        wait_for_workload(fixture, name, "QuotaReserved", "True").await?;
    }
    fixture.objects.create(OLD_WORKLOAD, &workload("old-waits", "old", "2")).await?;
    wait_for_workload(fixture, "old-waits", "QuotaReserved", "False").await?;
    let job =
        fixture.job("of-prebuilt", "bare", "1").label("kueue.x-k8s.io/prebuilt-workload-name", "prebuilt");
    fixture.submit(job).await?;
    wait_for_workload(fixture, "prebuilt", "PodsReady", "True").await
}

/// One object of each kind that runs, one that waits for quota, and one that has ended.
async fn kinds(fixture: &Fixture) -> Result<()> {
    let flavor = fixture.own_name("any");
    for (queue, quota) in [(KINDS, ["100", "100Gi"]), (NARROW, ["1m", "1Mi"])] {
        let resources: Vec<Value> = RESOURCES
            .iter()
            .zip(quota)
            .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}))
            .collect();
        let group = json!({"coveredResources": RESOURCES,
            "flavors": [{"name": flavor, "resources": resources}]});
        fixture.create_queue(queue, "", &[], json!({"resourceGroups": [group]})).await?;
    }
    for (api, object) in RelatedSamples::read()?.objects() {
        fixture.objects.create(api, object).await?;
    }
    for row in frameworks() {
        let name = row.gvk.kind.to_lowercase();
        for (queue, suffix) in [(KINDS, "runs"), (NARROW, "waits"), (KINDS, "done")] {
            let kind = PlayedKind::named(row, &format!("{name}-{suffix}"), queue)?;
            let ends = kind.ends();
            if suffix == "done" && !ends {
                continue;
            }
            let outcome = bring_kind(fixture, &kind, suffix).await;
            outcome.with_context(|| format!("{} that {suffix}", row.name))?;
        }
    }
    Ok(())
}

async fn bring_kind(fixture: &Fixture, kind: &PlayedKind, state: &str) -> Result<()> {
    let object = fixture.objects.create(kind.api, &kind.object(fixture)?).await?;
    let of_pods = matches!(kind.row.role, Role::Pods | Role::PodsOfOwner | Role::PassThrough);
    if kind.row.role == Role::PodsOfOwner && kind.is_played() {
        kind.make_replicas(fixture, &object).await?;
    }
    if state == "waits" {
        return Ok(());
    }
    if of_pods && !(kind.row.role == Role::PassThrough && kind.is_played()) {
        return Ok(());
    }
    eventually("it is started", async || {
        ensure!(!kind.is_suspended(fixture).await?, "it is suspended");
        Ok(())
    })
    .await?;
    kind.bring_to(fixture, PlayedState::Ready).await?;
    if state == "done" {
        kind.bring_to(fixture, PlayedState::Succeeded).await?;
    }
    Ok(())
}
