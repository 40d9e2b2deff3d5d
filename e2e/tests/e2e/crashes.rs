//! The manager is killed, paused or replaced by a standby, and a second writer changes the same objects concurrently.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient, condition, condition_is_true, expect_condition, text};
use sluice_e2e::wait::eventually;

/// Kills the manager with SIGKILL and starts it again.
async fn kill_and_restart(cluster: &mut Cluster) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    let new = Manager::start(&cluster.plane, old.settings()).await?;
    new.wait_until_ready().await?;
    cluster.put_manager(new);
    cluster.wait_for_webhooks().await
}

/// Returns whether a Job has reached a step of its lifecycle.
type StepPredicate = fn(job: &Value, workload: &Value) -> bool;

/// Kills the manager as soon as each step is visible; the result must be the same whether or not later writes have
/// landed.
pub(crate) async fn manager_killed_at_every_step(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let steps: [(&str, StepPredicate); 4] = [
        ("submitted", |_, _| true),
        ("workload-made", |_, workload| workload.is_object()),
        ("quota-reserved", |_, workload| condition_is_true(workload, "QuotaReserved")),
        ("started", |job, _| job["spec"]["suspend"] == json!(false)),
    ];
    for (name, is_reached) in steps {
        fixture.submit(fixture.job(name, "main", "1")).await?;
        eventually(format!("step {name} is reached"), async || {
            let job = fixture.objects.must_get(Kind::JOB, &fixture.name, name).await?;
            let workload = fixture.workload(name).await.unwrap_or_default();
            ensure!(is_reached(&job, &workload), "not yet");
            Ok(())
        })
        .await?;
        kill_and_restart(cluster).await?;
        fixture.wait_until_running(name).await?;
        fixture.finish_job(name).await?;
        fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    }

    // Killed between an eviction and the end of its pods: after the restart the quota is still in use.
    fixture
        .submit(fixture.job("evicted", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true"))
        .await?;
    fixture.wait_until_running("evicted").await?;
    fixture.set_workload_spec("evicted", json!({"active": false})).await?;
    fixture.wait_for_condition("evicted", "Evicted", "True", "Deactivated").await?;
    kill_and_restart(cluster).await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_pending("next", "WaitingForPreemptedWorkloads").await?;
    ensure!(
        condition_is_true(&fixture.workload("evicted").await?, "QuotaReserved"),
        "quota was released while a pod was running"
    );
    fixture.force_delete_pods("evicted")?;
    fixture.wait_until_running("next").await?;
    fixture.wait_until_pending("evicted", "Deactivated").await?;
    fixture.finish_job("next").await
}

pub(crate) async fn lease_holder(objects: &ObjectClient) -> Result<String> {
    let lease = objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
    Ok(text(&lease, "/spec/holderIdentity").to_owned())
}

pub(crate) async fn wait_for_other_holder(objects: &ObjectClient, previous: &str) -> Result<String> {
    eventually(format!("the lease holder is not {previous}"), async || {
        let holder = lease_holder(objects).await?;
        ensure!(!holder.is_empty() && holder != previous, "the holder is {holder:?}");
        Ok(holder)
    })
    .await
}

/// The standby takes over from a killed leader; a leader paused beyond its lease writes nothing when resumed and exits.
pub(crate) async fn leader_killed_then_paused(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let first = cluster.take_manager().context("no manager")?;
    let leader = lease_holder(&fixture.objects).await?;
    let settings =
        ManagerSettings { name: "standby".to_owned(), webhook_port: 0, ..first.settings().clone() };
    let second = Manager::start(&cluster.plane, &settings).await?;
    second.wait_until_ready().await?;
    let ports =
        |managers: &[&Manager]| managers.iter().map(|m| m.settings().webhook_port).collect::<Vec<_>>();
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    balancer.set_backends(ports(&[&first, &second]));

    fixture.submit(fixture.job("one", "main", "1")).await?;
    fixture.wait_until_running("one").await?;
    balancer.set_backends(ports(&[&second]));
    first.kill();
    let leader = wait_for_other_holder(&fixture.objects, &leader).await?;
    fixture.submit(fixture.job("two", "main", "1")).await?;
    fixture.wait_until_pending("two", "WaitingForQuota").await?;
    fixture.finish_job("one").await?;
    fixture.wait_until_running("two").await?;

    let third = Manager::start(&cluster.plane, first.settings()).await?;
    third.wait_until_ready().await?;
    balancer.set_backends(ports(&[&third]));
    second.pause();
    wait_for_other_holder(&fixture.objects, &leader).await?;
    fixture.submit(fixture.job("three", "main", "1")).await?;
    fixture.wait_until_pending("three", "WaitingForQuota").await?;
    fixture.finish_job("two").await?;
    fixture.wait_until_running("three").await?;
    // Its cache is stale by now, and another replica holds the lease.
    second.resume();
    fixture.submit(fixture.job("four", "main", "1")).await?;
    fixture.wait_until_pending("four", "WaitingForQuota").await?;
    expect_condition(&fixture.workload("three").await?, "Admitted", "True", "Admitted")?;
    fixture.finish_job("three").await?;
    fixture.wait_until_running("four").await?;
    fixture.finish_job("four").await?;
    eventually("the former leader has exited", async || {
        ensure!(second.process().check().is_err(), "it is still running");
        Ok(())
    })
    .await?;
    let fourth = Manager::start(&cluster.plane, &settings).await?;
    fourth.wait_until_ready().await?;
    ensure!(fourth.terminate() == Some(0), "the standby did not exit with 0 on SIGTERM");
    cluster.put_manager(third);
    cluster.wait_for_webhooks().await
}

/// A second writer changes metadata and status of every Workload in a loop: no condition of either writer is lost.
pub(crate) async fn concurrent_writer_keeps_conditions(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let (objects, namespace) = (fixture.objects.clone(), fixture.name.clone());
    let writer = tokio::spawn(async move {
        let mut count = 0_u64;
        loop {
            for workload in objects.list(Kind::WORKLOAD, &namespace, "").await.unwrap_or_default() {
                count += 1;
                // Ignored: the Workload may have been deleted since it was listed.
                let _ = touch(&objects, &workload, count).await;
            }
            tokio::task::yield_now().await;
        }
    });
    let names: Vec<String> = (1..=6).map(|number| format!("job-{number}")).collect();
    for name in &names {
        fixture.submit(fixture.job(name, "main", "1").runs_for("1s")).await?;
    }
    for name in &names {
        fixture.wait_until_finished(name, "Succeeded").await?;
    }
    for name in &names {
        eventually(format!("{name} has the conditions of both writers"), async || {
            let workload = fixture.workload(name).await?;
            for kind in ["QuotaReserved", "Admitted", "Finished", "e2e.example/Touched"] {
                ensure!(
                    condition_is_true(&workload, kind),
                    "{kind} is lost: {}",
                    workload["status"]["conditions"]
                );
            }
            ensure!(condition(&workload, "Finished").reason == "Succeeded", "Finished has the wrong reason");
            Ok(())
        })
        .await?;
    }
    writer.abort();
    Ok(())
}

async fn touch(objects: &ObjectClient, workload: &Value, count: u64) -> Result<()> {
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let annotations = json!({"metadata": {"annotations": {"e2e.example/touched": count.to_string()}}});
    objects.merge(Kind::WORKLOAD, namespace, name, &annotations).await?;
    let status = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "status": {"conditions": [{
            "type": "e2e.example/Touched", "status": "True", "reason": "Touched", "message": count.to_string(),
            "lastTransitionTime": workload["metadata"]["creationTimestamp"],
        }]},
    });
    let params = PatchParams::apply("second-writer").force();
    objects.api(Kind::WORKLOAD, namespace).patch_status(name, &params, &Patch::Apply(&status)).await?;
    Ok(())
}
