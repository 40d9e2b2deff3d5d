//! Changes by users, allowed and forbidden ones.

use crate::fixture::{Fixture, expect_refused};
use crate::history::History;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, ObjectClient, expect_condition, local_queue, number, text};
use sluice_e2e::wait::eventually;
use std::time::Duration;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

fn label(key: &str, value: impl Into<Value>) -> Value {
    let value: Value = value.into();
    json!({"metadata": {"labels": {key: value}}})
}

pub(crate) async fn edits_of_pending_job(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("full", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.create_queue("free", "", &[("cpu", "9", None)], json!({})).await?;
    let (low, high) =
        (fixture.create_priority_class("low", 1).await?, fixture.create_priority_class("high", 9).await?);
    fixture.submit(fixture.job("running", "full", "2")).await?;
    fixture.wait_until_running("running").await?;
    // Only an indexed Job may change completions, together with parallelism.
    let edited = fixture.job("edited", "full", "2").priority(&low).spec("completionMode", json!("Indexed"));
    fixture.submit(edited).await?;
    fixture.wait_until_pending("edited", "WaitingForQuota").await?;
    let change = async |patch: Value| fixture.objects.merge(Kind::JOB, &fixture.name, "edited", &patch).await;

    // Unsuspended by hand: it is suspended again and keeps no active pod.
    change(json!({"spec": {"suspend": false}})).await?;
    eventually("the Job is suspended again", async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "edited").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "it is not suspended");
        ensure!(number(&job, "/status/active") == 0, "it has active pods");
        Ok(())
    })
    .await?;

    expect_refused(change(label(CLASS, Value::Null)).await, 403)?;
    change(label(CLASS, high)).await?;
    eventually("the Workload has the new priority", async || {
        let workload = fixture.workload("edited").await?;
        ensure!(number(&workload, "/spec/priority") == 9, "its priority is {}", workload["spec"]["priority"]);
        Ok(())
    })
    .await?;
    change(json!({"spec": {"parallelism": 3, "completions": 3}})).await?;
    eventually("the Workload requests three pods", async || {
        let workload = fixture.workload("edited").await?;
        ensure!(number(&workload, "/spec/podSets/0/count") == 3, "{}", workload["spec"]["podSets"]);
        Ok(())
    })
    .await?;
    // It now exceeds the quota of this queue and moves to a larger one.
    fixture.wait_until_pending("edited", "ExceedsMaxQuota").await?;
    change(label(QUEUE, "free")).await?;
    fixture.wait_until_running("edited").await
}

pub(crate) async fn edits_of_running_job(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.create_queue("other", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.submit(fixture.job("running", "main", "2")).await?;
    fixture.wait_until_running("running").await?;
    let change =
        async |patch: Value| fixture.objects.merge(Kind::JOB, &fixture.name, "running", &patch).await;
    let message = expect_refused(change(label(QUEUE, "other")).await, 403)?;
    ensure!(message.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{message}");
    expect_refused(change(label(CLASS, "any")).await, 403)?;
    // Suspended by hand while it has quota: it is started again.
    change(json!({"spec": {"suspend": true}})).await?;
    fixture.wait_until_running("running").await?;
    let invalid_label = label("kueue.x-k8s.io/max-exec-time-seconds", "soon");
    expect_refused(change(invalid_label).await, 403)?;
    fixture.finish_job("running").await
}

/// Workloads of a running and a pending Job that lose owner, finalizer and label get them back; no Job is stopped, and none
/// waits for ever.
pub(crate) async fn workload_gets_its_owner_back(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_pending("next", "WaitingForQuota").await?;
    let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "first").await?;
    for name in ["first", "next"] {
        let before = fixture.workload(name).await?;
        let workload = text(&before, "/metadata/name");
        let labels = json!({"kueue.x-k8s.io/job-uid": null});
        let patch = json!({"metadata": {"finalizers": null, "ownerReferences": null, "labels": labels}});
        fixture.objects.merge(Kind::WORKLOAD, &fixture.name, workload, &patch).await?;
        eventually(format!("the Workload of {name} has its owner again"), async || {
            let after = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, workload).await?;
            for field in ["uid", "ownerReferences", "finalizers", "labels"] {
                let (before, after) = (&before["metadata"][field], &after["metadata"][field]);
                ensure!(before == after, "{field} is {after}");
            }
            Ok(())
        })
        .await?;
    }
    let after = fixture.objects.must_get(Kind::JOB, &fixture.name, "first").await?;
    ensure!(after["metadata"]["generation"] == job["metadata"]["generation"], "the running Job was changed");
    fixture.check_pending("next").await?;
    fixture.finish_job("first").await?;
    fixture.wait_until_running("next").await
}

/// Running Jobs that are resized are stopped once, and started once at their new size when the old pods, which take 20 s to
/// end, are gone; then nothing more is written.
pub(crate) async fn resize_of_running_jobs(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "12", None)], json!({})).await?;
    let job = |name: &str, pods: i32| {
        let job = fixture.job(name, "main", "1").pods(pods);
        job.pod_annotation("sluice.dev/terminate-after", "20s")
    };
    // Name, new parallelism, and the pods that then run.
    let resized = [("grows", 3, 3), ("shrinks", 1, 1), ("indexed", 4, 4), ("limited", 5, 3)];
    fixture.submit(job("grows", 2).spec("completions", Value::Null)).await?;
    fixture.submit(job("shrinks", 3)).await?;
    fixture.submit(job("indexed", 2).spec("completionMode", json!("Indexed"))).await?;
    fixture.submit(job("limited", 2).spec("completions", json!(3))).await?;
    let mut old = Vec::new();
    for (name, ..) in resized {
        fixture.wait_until_running(name).await?;
        let workload = fixture.workload(name).await?;
        old.push(text(&workload, "/metadata/uid").to_owned());
    }
    let jobs = History::start(&fixture.objects, Kind::JOB, &fixture.name).await?;
    for (name, parallelism, _) in resized {
        let mut spec = json!({"parallelism": parallelism});
        if name == "indexed" {
            spec["completions"] = json!(parallelism);
        }
        fixture.objects.merge(Kind::JOB, &fixture.name, name, &json!({"spec": spec})).await?;
    }
    fixture.wait_for_cpu_usage("main", "11").await?;
    for (name, _, pods) in resized {
        eventually(format!("{name} runs at its new size"), async || {
            let job = fixture.objects.must_get(Kind::JOB, &fixture.name, name).await?;
            ensure!(number(&job, "/status/ready") == pods, "{} pods are ready", job["status"]["ready"]);
            let workload = fixture.workload(name).await?;
            ensure!(number(&workload, "/spec/podSets/0/count") == pods, "{}", workload["spec"]["podSets"]);
            ensure!(
                !old.iter().any(|uid| uid == text(&workload, "/metadata/uid")),
                "it has its old Workload"
            );
            Ok(())
        })
        .await?;
    }
    let before = generations(fixture).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(generations(fixture).await? == before, "the Jobs are still changed");
    for (name, ..) in resized {
        check_stopped_once(&jobs.revisions()?, name)?;
    }
    fixture.expect_no_warning_of("WriteRejected").await
}

/// Generation of each Job.
async fn generations(fixture: &Fixture) -> Result<Vec<i64>> {
    let jobs = fixture.objects.list(Kind::JOB, &fixture.name, "").await?;
    Ok(jobs.iter().map(|job| number(job, "/metadata/generation")).collect())
}

/// Checks that a Job was suspended once and started once, and that it had no pod when it was started.
fn check_stopped_once(revisions: &[Value], name: &str) -> Result<()> {
    let own: Vec<&Value> = revisions.iter().filter(|job| text(job, "/metadata/name") == name).collect();
    let mut states: Vec<bool> = own.iter().map(|job| job["spec"]["suspend"] == json!(true)).collect();
    let start = states.iter().rposition(|suspended| *suspended).context("it was not suspended")?;
    let pods = number(own[start], "/status/active") + number(own[start], "/status/terminating");
    ensure!(pods == 0, "{name} was started beside {pods} pods");
    states.dedup();
    ensure!(states == [false, true, false], "{name} was suspended: {states:?}");
    Ok(())
}

pub(crate) async fn batch_user_is_restricted(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let other_namespace = fixture.own_name("b");
    fixture.create_namespace(&other_namespace, &json!({})).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &local_queue(&other_namespace, "theirs", &queue)).await?;
    let user = fixture.own_name("user");
    let binding = json!({
        "metadata": {"namespace": fixture.name, "name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-batch-user-role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    fixture.objects.create(Kind::ROLE_BINDING, &binding).await?;
    let user_client = ObjectClient::new(cluster.plane.credentials(&user, None)?.client().await?);
    // The role becomes effective only after the binding was processed.
    eventually("the user may create Jobs", async || {
        user_client
            .create(Kind::JOB, fixture.job("mine", "main", "1").body())
            .await
            .map(drop)
            .map_err(Into::into)
    })
    .await?;
    fixture.wait_until_running("mine").await?;
    let workload = text(&fixture.workload("mine").await?, "/metadata/name").to_owned();
    user_client.must_get(Kind::WORKLOAD, &fixture.name, &workload).await?;
    let admitted = json!({"status": {"conditions": []}});
    expect_refused(user_client.merge_status(Kind::WORKLOAD, &fixture.name, &workload, &admitted).await, 403)?;
    expect_refused(
        user_client.merge(Kind::CLUSTER_QUEUE, "", &queue, &json!({"spec": {"stopPolicy": "Hold"}})).await,
        403,
    )?;
    expect_refused(
        user_client
            .merge(Kind::LOCAL_QUEUE, &fixture.name, "main", &json!({"spec": {"stopPolicy": "Hold"}}))
            .await,
        403,
    )?;
    expect_refused(
        user_client.create(Kind::LOCAL_QUEUE, &local_queue(&fixture.name, "more", &queue)).await,
        403,
    )?;
    let mut body = fixture.job("intruder", "theirs", "1").body().clone();
    body["metadata"]["namespace"] = other_namespace.into();
    expect_refused(user_client.create(Kind::JOB, &body).await, 403)?;

    // An owner reference to a queued Job does not exempt a Job from queueing, because Jobs create no Jobs.
    let mine = user_client.must_get(Kind::JOB, &fixture.name, "mine").await?;
    let mut body = fixture.job("stowaway", "main", "100").body().clone();
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "mine",
        "uid": text(&mine, "/metadata/uid"), "controller": true}]);
    user_client.create(Kind::JOB, &body).await?;
    fixture.wait_until_pending("stowaway", "ExceedsMaxQuota").await?;

    // A LocalQueue of another namespace is not found here.
    user_client.create(Kind::JOB, fixture.job("reaches-out", "theirs", "1").body()).await?;
    eventually("the Workload reports that its queue does not exist", async || {
        expect_condition(&fixture.workload("reaches-out").await?, "QuotaReserved", "False", "Misconfigured")
    })
    .await?;
    fixture.check_pending("reaches-out").await
}
