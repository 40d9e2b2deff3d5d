//! The manager is replaced by another build and back. Both builds are of one commit, and one has no symbols, so that the programs
//! differ; each reads what the other has stored.

use crate::fixture::Fixture;
use crate::image::stripped_program;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longer than several rounds of the manager and a check of all objects.
const SETTLED: Duration = Duration::from_secs(6);

/// Workloads that run, wait, are deactivated, are evicted with pods that remain, or have finished keep their state in an upgrade
/// and in the way back: neither build writes to them before something changes, and both continue from what the other stored.
pub(crate) async fn states_are_kept_up_and_back(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let old = cluster.manager()?.settings().clone();
    let new = ManagerSettings {
        name: "upgraded".to_owned(),
        program: stripped_program(&cluster.plane.folder().join("upgraded"))?,
        ..old.clone()
    };
    let differ = std::fs::read(&old.program)? != std::fs::read(&new.program)?;
    ensure!(differ, "both builds are the same program");
    fixture.create_queue("main", "", &[("cpu", "3", None)], json!({})).await?;
    for job in ["ended", "off", "running"] {
        fixture.submit(fixture.job(job, "main", "1")).await?;
        fixture.wait_until_running(job).await?;
    }
    fixture.finish_job("ended").await?;
    fixture.set_workload_spec("off", json!({"active": false})).await?;
    fixture.wait_until_pending("off", "Deactivated").await?;
    let stuck = fixture.job("stuck", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true");
    fixture.submit(stuck).await?;
    fixture.wait_until_running("stuck").await?;
    fixture.set_workload_spec("stuck", json!({"active": false})).await?;
    fixture.wait_for_condition("stuck", "Evicted", "True", "Deactivated").await?;
    fixture.submit(fixture.job("waiting", "main", "2")).await?;
    fixture.wait_until_pending("waiting", "WaitingForPreemptedWorkloads").await?;

    replace_and_compare(cluster, fixture, &new).await.context("upgrade")?;
    // The new build continues: the quota of the evicted workload is released, and the waiting one starts.
    fixture.force_delete_pods("stuck")?;
    fixture.wait_until_running("waiting").await?;
    fixture.wait_until_pending("stuck", "Deactivated").await?;
    fixture.submit(fixture.job("later", "main", "1")).await?;
    fixture.wait_until_pending("later", "WaitingForQuota").await?;

    replace_and_compare(cluster, fixture, &old).await.context("way back")?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("later").await?;
    fixture.set_workload_spec("off", json!({"active": true})).await?;
    fixture.finish_job("waiting").await?;
    fixture.wait_until_running("off").await?;
    for job in ["later", "off"] {
        fixture.finish_job(job).await?;
    }
    fixture.wait_for_cpu_usage("main", "0").await
}

/// Replaces the manager; the new one writes to no Workload, Job or queue, and all states are as before.
async fn replace_and_compare(cluster: &mut Cluster, fixture: &Fixture, to: &ManagerSettings) -> Result<()> {
    tokio::time::sleep(SETTLED).await;
    let before = states(fixture).await?;
    let mut audit = cluster.audit()?;
    cluster.replace_manager(to).await?;
    tokio::time::sleep(SETTLED).await;
    let writes = audit.new_writes_by(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"))?;
    let own = ["leases", "secrets", "events"];
    let others: Vec<_> = writes.iter().filter(|write| !own.contains(&write.resource.as_str())).collect();
    ensure!(others.is_empty(), "the other build writes: {others:?}");
    let after = states(fixture).await?;
    ensure!(before == after, "the states differ:\n{before:#?}\n{after:#?}");
    Ok(())
}

/// Returns conditions, admission and version of each Workload, by the name of its Job.
async fn states(fixture: &Fixture) -> Result<BTreeMap<String, Value>> {
    let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
    let state = |workload: &Value| {
        let facts = ["QuotaReserved", "Admitted", "Evicted", "Finished"]
            .map(|condition| condition_is_true(workload, condition));
        json!({"facts": facts, "spec": workload["spec"], "status": workload["status"],
            "version": workload["metadata"]["resourceVersion"]})
    };
    Ok(all.iter().map(|w| (text(w, "/metadata/ownerReferences/0/name").to_owned(), state(w))).collect())
}
