//! docs/install.md as a newcomer follows it: each command as it is printed, on a control plane whose kubelet has the image.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Result, ensure};
use sluice_e2e::cluster::{Cluster, wait_for_webhooks};
use sluice_e2e::documented::{commands, run};
use sluice_e2e::objects::{Kind, condition_is_true};
use sluice_e2e::wait::eventually;

/// Installed, checked, restarted, its objects stored again, and uninstalled; nothing with the name of the installation is left.
pub(crate) async fn install_page_runs_as_printed(_: &mut Cluster, _: &Fixture) -> Result<()> {
    check_support()?;
    let (mut installation, _) = Installation::prepare("documented", &[]).await?;
    let outcome = follow(&installation).await;
    installation.report(outcome).await
}

async fn follow(installation: &Installation) -> Result<()> {
    let kubeconfig = installation.plane.admin_kubeconfig();
    let kubectl = installation.plane.binaries.path("kubectl");
    let programs = [kubectl.parent().unwrap_or(&kubectl)];
    let mut count = 0_u32;
    let mut follow = |command: &str| {
        count += 1;
        run(command, &programs, &kubeconfig)
    };
    for command in commands("install.md", Some("With kubectl"))? {
        follow(&command)?;
    }
    let check = commands("install.md", Some("Check"))?;
    ensure!(check.iter().any(|command| command.contains("rollout status")), "{check:?}");
    for command in &check {
        if command.contains("samples/queues") {
            wait_for_webhooks(&installation.objects).await?;
        }
        // A replica takes the Lease after it is ready.
        eventually(command, async || follow(command).map(drop)).await?;
    }
    eventually("the sample is admitted", async || {
        let workloads = installation.objects.list(Kind::WORKLOAD, "default", "").await?;
        let admitted = workloads.iter().filter(|workload| condition_is_true(workload, "Admitted")).count();
        ensure!(admitted == 1, "{admitted} of {} Workloads", workloads.len());
        Ok(())
    })
    .await?;
    // The last line of the section.
    let shown = follow(check.last().map_or("", String::as_str))?;
    ensure!(shown.contains("ADMITTED") && shown.contains("True"), "{shown}");
    // Behind the table of choices, and of the section on v1beta1 what does not need its component.
    for command in commands("install.md", Some("Choices"))? {
        follow(&command)?;
    }
    follow("kubectl -n kueue-system rollout status deployment kueue-controller-manager --timeout=2m")?;
    wait_for_webhooks(&installation.objects).await?;
    for command in commands("install.md", Some("API version v1beta1"))? {
        if !command.contains("conversion") || command.starts_with("for ") {
            follow(&command)?;
        }
    }
    // The kubelet has no image of the sample: its pods do not end by themselves.
    follow("kubectl delete jobs --all && kubectl delete pods --all --force")?;
    for command in commands("install.md", Some("Uninstalling"))? {
        follow(&command)?;
    }
    let kinds = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices,\
        customresourcedefinitions,namespaces,priorityclasses";
    let left = follow(&format!("kubectl get {kinds} --output=name | grep kueue || true"))?;
    ensure!(left.is_empty(), "left behind:\n{left}");
    note(format_args!("{count} commands"));
    Ok(())
}
