//! What users change, and what they may not.

use crate::fixture::{Fixture, expect_refused};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, ObjectClient, expect_condition, local_queue, number, text};
use sluice_e2e::wait::eventually;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

fn label(key: &str, value: impl Into<Value>) -> Value {
    let value: Value = value.into();
    json!({"metadata": {"labels": {key: value}}})
}

pub(crate) async fn edits_of_pending_job(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("full", "", &[("cpu", "2", None)], json!({})).await?;
    ground.create_queue("roomy", "", &[("cpu", "9", None)], json!({})).await?;
    let (low, high) =
        (ground.create_priority_class("low", 1).await?, ground.create_priority_class("high", 9).await?);
    ground.submit(ground.job("holder", "full", "2")).await?;
    ground.wait_until_running("holder").await?;
    // Completions of an indexed Job may follow its parallelism.
    let edited = ground.job("edited", "full", "2").priority(&low).spec("completionMode", json!("Indexed"));
    ground.submit(edited).await?;
    ground.wait_until_pending("edited", "WaitingForQuota").await?;
    let change = async |patch: Value| ground.objects.merge(Kind::JOB, &ground.name, "edited", &patch).await;

    // Started by hand, it is stopped again and never gets a pod that lasts.
    change(json!({"spec": {"suspend": false}})).await?;
    eventually("it is suspended again", async || {
        let job = ground.objects.must_get(Kind::JOB, &ground.name, "edited").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "it is not");
        ensure!(number(&job, "/status/active") == 0, "it has active pods");
        Ok(())
    })
    .await?;

    expect_refused(change(label(CLASS, Value::Null)).await, 403)?;
    change(label(CLASS, high)).await?;
    eventually("its Workload has the new priority", async || {
        let workload = ground.workload("edited").await?;
        ensure!(number(&workload, "/spec/priority") == 9, "it is {}", workload["spec"]["priority"]);
        Ok(())
    })
    .await?;
    change(json!({"spec": {"parallelism": 3, "completions": 3}})).await?;
    eventually("its Workload asks for three pods", async || {
        let workload = ground.workload("edited").await?;
        ensure!(number(&workload, "/spec/podSets/0/count") == 3, "{}", workload["spec"]["podSets"]);
        Ok(())
    })
    .await?;
    // Now it can never run here, and moves where it can.
    ground.wait_until_pending("edited", "ExceedsMaxQuota").await?;
    change(label(QUEUE, "roomy")).await?;
    ground.wait_until_running("edited").await
}

pub(crate) async fn edits_of_running_job(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    ground.create_queue("other", "", &[("cpu", "2", None)], json!({})).await?;
    ground.submit(ground.job("running", "main", "2")).await?;
    ground.wait_until_running("running").await?;
    let change = async |patch: Value| ground.objects.merge(Kind::JOB, &ground.name, "running", &patch).await;
    let message = expect_refused(change(label(QUEUE, "other")).await, 403)?;
    ensure!(message.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{message}");
    expect_refused(change(label(CLASS, "any")).await, 403)?;
    // Suspended by hand while it has quota: it starts again.
    change(json!({"spec": {"suspend": true}})).await?;
    ground.wait_until_running("running").await?;
    let bad = label("kueue.x-k8s.io/max-exec-time-seconds", "soon");
    expect_refused(change(bad).await, 403)?;
    ground.finish_job("running").await
}

pub(crate) async fn batch_user_is_restricted(cluster: &Cluster, ground: &Fixture) -> Result<()> {
    let queue = ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let foreign = ground.own_name("b");
    ground.create_namespace(&foreign, &json!({})).await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &local_queue(&foreign, "theirs", &queue)).await?;
    let user = ground.own_name("user");
    let binding = json!({
        "metadata": {"namespace": ground.name, "name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-batch-user-role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    ground.objects.create(Kind::ROLE_BINDING, &binding).await?;
    let own = ObjectClient::new(cluster.plane.credentials(&user, None)?.client().await?);
    // The role is aggregated a moment after it exists.
    eventually("the user may create Jobs", async || {
        own.create(Kind::JOB, ground.job("mine", "main", "1").body()).await.map(drop).map_err(Into::into)
    })
    .await?;
    ground.wait_until_running("mine").await?;
    let workload = text(&ground.workload("mine").await?, "/metadata/name").to_owned();
    own.must_get(Kind::WORKLOAD, &ground.name, &workload).await?;
    let admitted = json!({"status": {"conditions": []}});
    expect_refused(own.merge_status(Kind::WORKLOAD, &ground.name, &workload, &admitted).await, 403)?;
    expect_refused(
        own.merge(Kind::CLUSTER_QUEUE, "", &queue, &json!({"spec": {"stopPolicy": "Hold"}})).await,
        403,
    )?;
    expect_refused(
        own.merge(Kind::LOCAL_QUEUE, &ground.name, "main", &json!({"spec": {"stopPolicy": "Hold"}})).await,
        403,
    )?;
    expect_refused(own.create(Kind::LOCAL_QUEUE, &local_queue(&ground.name, "more", &queue)).await, 403)?;
    let mut body = ground.job("intruder", "theirs", "1").body().clone();
    body["metadata"]["namespace"] = foreign.into();
    expect_refused(own.create(Kind::JOB, &body).await, 403)?;

    // A queued Job as the owner gives no free passage: a Job creates no Jobs.
    let mine = own.must_get(Kind::JOB, &ground.name, "mine").await?;
    let mut body = ground.job("stowaway", "main", "100").body().clone();
    body["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "mine",
        "uid": text(&mine, "/metadata/uid"), "controller": true}]);
    own.create(Kind::JOB, &body).await?;
    ground.wait_until_pending("stowaway", "ExceedsMaxQuota").await?;

    // A queue of another namespace is no queue here.
    own.create(Kind::JOB, ground.job("reaches-out", "theirs", "1").body()).await?;
    eventually("it says that there is no such queue", async || {
        expect_condition(&ground.workload("reaches-out").await?, "QuotaReserved", "False", "Misconfigured")
    })
    .await?;
    ground.check_pending("reaches-out").await
}
