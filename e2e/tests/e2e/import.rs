//! `sluice import`: pods that run without a Workload are charged, and run on when the manager takes them over.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::documented::{commands, run};
use sluice_e2e::objects::{self, Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::process::Command;

/// A pod that cannot be imported stops the import before its first write, and is named. Then two pods are imported, of which the quota
/// has room for one; a repeated import writes nothing. When the manager manages pods, both run on and are charged until they end.
pub(crate) async fn running_pods_are_imported(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let mut uids = Vec::new();
    for name in ["one", "two", "lost"] {
        let team = if name == "lost" { "unmapped" } else { "main" };
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({
            "metadata": {"namespace": fixture.name, "name": name, "labels": {"team": team}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        });
        let created = fixture.objects.create(Kind::POD, &pod).await?;
        uids.push((name, text(&created, "/metadata/uid").to_owned()));
    }
    for (name, uid) in &uids {
        runs(fixture, name, uid).await?;
    }
    let (code, output) = import(cluster, fixture, &["--dry-run=false"])?;
    ensure!(code == Some(1) && output.contains("lost: LocalQueue"), "{code:?}\n{output}");
    ensure!(
        fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?.is_empty(),
        "something was written"
    );
    fixture.objects.delete(Kind::POD, &fixture.name, "lost", PropagationPolicy::Background).await?;
    eventually("the pod is gone", async || {
        ensure!(fixture.objects.get(Kind::POD, &fixture.name, "lost").await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    let (code, output) = import(cluster, fixture, &[])?;
    ensure!(
        code == Some(0) && output.contains("checked: 2") && output.contains("nothing was written"),
        "{output}"
    );
    for expected in ["imported: 2, before: 0", "imported: 0, before: 2"] {
        let (code, output) = import(cluster, fixture, &["--dry-run=false"])?;
        ensure!(code == Some(0) && output.contains(expected), "{code:?}\n{output}");
    }
    let workloads = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
    ensure!(workloads.len() == 2, "{} Workloads", workloads.len());
    run_as_printed(cluster, fixture).await?;
    let integrations = json!({"integrations": {"frameworks": ["batch/job", "pod"]}});
    let before = cluster.reconfigure(&integrations).await?;
    fixture.wait_for_cpu_usage("main", "3").await?;
    for (name, uid) in uids.iter().take(2) {
        runs(fixture, name, uid).await?;
    }
    for workload in fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await? {
        ensure!(condition_is_true(&workload, "Admitted"), "{}", workload["status"]);
    }
    let ends = json!({"metadata": {"annotations": {"sluice.dev/run-for": "1s"}}});
    for (name, _) in uids.iter().take(2) {
        fixture.objects.merge(Kind::POD, &fixture.name, name, &ends).await?;
    }
    fixture.objects.merge(Kind::POD, "team-a", "old", &ends).await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    cluster.reconfigure(&before).await.map(drop)
}

/// The commands at the top of docs/import.md, in the namespaces that they name: a pod of one of them is imported.
async fn run_as_printed(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    for namespace in ["team-a", "team-b"] {
        fixture.create_namespace(namespace, &json!({})).await?;
    }
    let queue = objects::local_queue("team-a", "main", &fixture.own_name("main"));
    fixture.objects.create(Kind::LOCAL_QUEUE, &queue).await?;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let metadata = json!({"namespace": "team-a", "name": "old", "labels": {"team": "main"}});
    let pod = json!({"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}});
    fixture.objects.create(Kind::POD, &pod).await?;
    let program = binaries::sluice(Build::Dev)?;
    let programs = [program.parent().unwrap_or(&program)];
    let printed = commands("import.md", None)?;
    for (command, expected) in printed.iter().zip(["checked: 1", "imported: 1"]) {
        eventually(command, async || {
            let output = run(command, &programs, &cluster.plane.admin_kubeconfig())?;
            ensure!(output.contains(expected), "{output}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn runs(fixture: &Fixture, name: &str, uid: &str) -> Result<()> {
    eventually(format!("pod {name} runs"), async || {
        let pod: Value = fixture.objects.must_get(Kind::POD, &fixture.name, name).await?;
        ensure!(text(&pod, "/metadata/uid") == uid, "it was replaced");
        ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "it is deleted");
        ensure!(text(&pod, "/status/phase") == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await
}

/// Imports the pods of the namespace into the queue that their label names; returns exit code and output.
fn import(cluster: &Cluster, fixture: &Fixture, more: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binaries::sluice(Build::Dev)?);
    command.args(["import", "--namespace", &fixture.name, "--queuelabel", "team"]).args(more);
    command.arg("--kubeconfig").arg(cluster.plane.admin_kubeconfig());
    let output = command.output().context("cannot run sluice")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}
