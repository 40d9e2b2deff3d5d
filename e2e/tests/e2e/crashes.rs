//! The manager dies, pauses, or has company; and somebody else writes the same objects all the time.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient, condition, condition_is_true, expect_condition, text};
use sluice_e2e::wait::eventually;

/// Kills the manager, as the kernel does, and starts it again.
async fn kill_and_restart(cluster: &mut Cluster) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    let new = Manager::start(&cluster.plane, old.settings()).await?;
    new.wait_until_ready().await?;
    cluster.put_manager(new);
    cluster.wait_for_webhooks().await
}

/// A moment in a Job's life, seen from outside.
type StepPredicate = fn(job: &Value, workload: &Value) -> bool;

/// Killed the moment each step is seen: with every write landed or not, the end is the same.
pub(crate) async fn manager_killed_at_every_step(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let moments: [(&str, StepPredicate); 4] = [
        ("submitted", |_, _| true),
        ("workload-made", |_, workload| workload.is_object()),
        ("quota-reserved", |_, workload| condition_is_true(workload, "QuotaReserved")),
        ("started", |job, _| job["spec"]["suspend"] == json!(false)),
    ];
    for (name, moment) in moments {
        ground.submit(ground.job(name, "main", "1")).await?;
        eventually(format!("{name} is seen"), async || {
            let job = ground.objects.must_get(Kind::JOB, &ground.name, name).await?;
            let workload = ground.workload(name).await.unwrap_or_default();
            ensure!(moment(&job, &workload), "not yet");
            Ok(())
        })
        .await?;
        kill_and_restart(cluster).await?;
        ground.wait_until_running(name).await?;
        ground.finish_job(name).await?;
        ground.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    }

    // Between an eviction and the end of its pods: the quota is still taken after the restart.
    ground
        .submit(ground.job("evicted", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true"))
        .await?;
    ground.wait_until_running("evicted").await?;
    ground.set_workload_spec("evicted", json!({"active": false})).await?;
    ground.wait_for_condition("evicted", "Evicted", "True", "Deactivated").await?;
    kill_and_restart(cluster).await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.wait_until_pending("next", "WaitingForPreemptedWorkloads").await?;
    ensure!(
        condition_is_true(&ground.workload("evicted").await?, "QuotaReserved"),
        "quota was given back under a pod"
    );
    ground.force_delete_pods("evicted")?;
    ground.wait_until_running("next").await?;
    ground.wait_until_pending("evicted", "Deactivated").await?;
    ground.finish_job("next").await
}

pub(crate) async fn lease_holder(objects: &ObjectClient) -> Result<String> {
    let lease = objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
    Ok(text(&lease, "/spec/holderIdentity").to_owned())
}

pub(crate) async fn wait_for_other_holder(objects: &ObjectClient, than: &str) -> Result<String> {
    eventually(format!("another holder than {than}"), async || {
        let now = lease_holder(objects).await?;
        ensure!(!now.is_empty() && now != than, "it is {now:?}");
        Ok(now)
    })
    .await
}

/// The standby takes over from a killed leader; a leader that slept through its lease does no harm when it wakes.
pub(crate) async fn leader_killed_then_paused(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let first = cluster.take_manager().context("no manager")?;
    let led = lease_holder(&ground.objects).await?;
    let settings =
        ManagerSettings { name: "standby".to_owned(), webhook_port: 0, ..first.settings().clone() };
    let second = Manager::start(&cluster.plane, &settings).await?;
    second.wait_until_ready().await?;
    let ports =
        |managers: &[&Manager]| managers.iter().map(|m| m.settings().webhook_port).collect::<Vec<_>>();
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    balancer.set_backends(ports(&[&first, &second]));

    ground.submit(ground.job("one", "main", "1")).await?;
    ground.wait_until_running("one").await?;
    balancer.set_backends(ports(&[&second]));
    first.kill();
    let led = wait_for_other_holder(&ground.objects, &led).await?;
    ground.submit(ground.job("two", "main", "1")).await?;
    ground.wait_until_pending("two", "WaitingForQuota").await?;
    ground.finish_job("one").await?;
    ground.wait_until_running("two").await?;

    let third = Manager::start(&cluster.plane, first.settings()).await?;
    third.wait_until_ready().await?;
    balancer.set_backends(ports(&[&third]));
    second.pause();
    wait_for_other_holder(&ground.objects, &led).await?;
    ground.submit(ground.job("three", "main", "1")).await?;
    ground.wait_until_pending("three", "WaitingForQuota").await?;
    ground.finish_job("two").await?;
    ground.wait_until_running("three").await?;
    // Its view is old by now, and its lease is another's.
    second.resume();
    ground.submit(ground.job("four", "main", "1")).await?;
    ground.wait_until_pending("four", "WaitingForQuota").await?;
    expect_condition(&ground.workload("three").await?, "Admitted", "True", "Admitted")?;
    ground.finish_job("three").await?;
    ground.wait_until_running("four").await?;
    ground.finish_job("four").await?;
    eventually("the deposed leader has ended itself", async || {
        ensure!(second.process().check().is_err(), "it runs on");
        Ok(())
    })
    .await?;
    let fourth = Manager::start(&cluster.plane, &settings).await?;
    fourth.wait_until_ready().await?;
    ensure!(fourth.terminate() == Some(0), "SIGTERM did not end the standby with 0");
    cluster.put_manager(third);
    cluster.wait_for_webhooks().await
}

/// Somebody changes every Workload in a loop, in metadata and in status: nobody's condition is lost.
pub(crate) async fn concurrent_writer_keeps_conditions(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let (objects, namespace) = (ground.objects.clone(), ground.name.clone());
    let writer = tokio::spawn(async move {
        let mut count = 0_u64;
        loop {
            for workload in objects.list(Kind::WORKLOAD, &namespace, "").await.unwrap_or_default() {
                count += 1;
                // It may be deleted meanwhile.
                let _ = touch(&objects, &workload, count).await;
            }
            tokio::task::yield_now().await;
        }
    });
    let names: Vec<String> = (1..=6).map(|number| format!("job-{number}")).collect();
    for name in &names {
        ground.submit(ground.job(name, "main", "1").runs_for("1s")).await?;
    }
    for name in &names {
        ground.wait_until_finished(name, "Succeeded").await?;
    }
    for name in &names {
        eventually(format!("{name} has everybody's conditions"), async || {
            let workload = ground.workload(name).await?;
            for kind in ["QuotaReserved", "Admitted", "Finished", "e2e.example/Touched"] {
                ensure!(
                    condition_is_true(&workload, kind),
                    "{kind} is lost: {}",
                    workload["status"]["conditions"]
                );
            }
            ensure!(condition(&workload, "Finished").reason == "Succeeded", "Finished has another reason");
            Ok(())
        })
        .await?;
    }
    writer.abort();
    Ok(())
}

async fn touch(objects: &ObjectClient, workload: &Value, count: u64) -> Result<()> {
    let (namespace, name) = (text(workload, "/metadata/namespace"), text(workload, "/metadata/name"));
    let note = json!({"metadata": {"annotations": {"e2e.example/touched": count.to_string()}}});
    objects.merge(Kind::WORKLOAD, namespace, name, &note).await?;
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
