//! The commands of docs/install.md that remove an installation.

use crate::fixture::Fixture;
use crate::installation::Installation;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::documented::{commands, run};
use sluice_e2e::objects::{Kind, text};
use std::time::Duration;

/// Waiting for a finalizer that nothing removes ends with an error after this. Longer than the five minutes after which the API
/// server takes up a definition again whose cleanup met a conflict with its own status writes.
const TIMEOUT: &str = "--timeout=7m";
/// The kinds of `config/default` that are not in its namespace.
const CLUSTER_SCOPED: [&str; 6] = [
    "apiservices",
    "customresourcedefinitions",
    "clusterroles",
    "clusterrolebindings",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];

/// With queues, a running and a pending Job, the commands end without an error and nothing of the installation is left. The
/// Jobs stay, suspended and without pods: the manager must not make new Workloads whose finalizers outlive it.
pub(crate) async fn documented_commands_leave_nothing(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let installed = Installation::start(cluster, fixture, |_, _| Ok(true)).await?;
    let outcome = async {
        installed.wait_until_ready().await?;
        let fixture = &installed.fixture;
        fixture.prepare().await?;
        let cohort = fixture.create_cohort("all", "", &[("cpu", "1", None)]).await?;
        fixture.create_queue("main", &cohort, &[("cpu", "1", None)], json!({})).await?;
        fixture.submit(fixture.job("runs", "main", "2")).await?;
        fixture.wait_until_running("runs").await?;
        fixture.submit(fixture.job("waits", "main", "1")).await?;
        fixture.wait_for_condition("waits", "QuotaReserved", "False", "").await?;
        let kubectl = installed.plane.binaries.path("kubectl");
        let programs = [kubectl.parent().unwrap_or(&kubectl)];
        for command in commands("install.md", Some("Uninstalling"))? {
            let command = command.split_once('#').map_or(command.as_str(), |(command, _)| command);
            run(&format!("{command} {TIMEOUT}"), &programs, &installed.plane.admin_kubeconfig())?;
        }
        check_removed(fixture).await
    }
    .await;
    installed.finish(outcome)
}

/// Time in which a controller of Kubernetes would make an aggregating role again.
const SETTLED: Duration = Duration::from_secs(3);

async fn check_removed(fixture: &Fixture) -> Result<()> {
    tokio::time::sleep(SETTLED).await;
    for resource in CLUSTER_SCOPED {
        let names = fixture.kubectl.run(&["get", resource, "--output=name"])?;
        let left: Vec<&str> = names.lines().filter(|name| name.contains("kueue")).collect();
        ensure!(left.is_empty(), "{left:?} are left");
    }
    for job in ["runs", "waits"] {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
        ensure!(job["spec"]["suspend"] == json!(true), "{} is not suspended", text(&job, "/metadata/name"));
    }
    let pods = fixture.objects.list(Kind::POD, &fixture.name, "").await?;
    ensure!(pods.is_empty(), "pods of {} Jobs run without a reservation", pods.len());
    Ok(())
}
