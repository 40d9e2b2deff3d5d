//! `sluice migrate` on a real API server: rights that are missing and granted as printed, owners of an installation, a wrong namespace.
//! The switch itself is in `live_switch`.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;
use std::fs;
use std::path::Path;
use std::process::Command;

const DEPLOYMENT: &str = "kueue-controller-manager";
const WORKLOADS: &str = "workloads.kueue.x-k8s.io";
/// Metadata by which an owner is known, its name in the report, and the annotation that keeps the definitions.
const OWNERS: [(&str, &str, &str, &str); 2] = [
    (
        r#"{"annotations": {"argocd.argoproj.io/tracking-id": "batch:apps/Deployment:kueue-system/kueue"}}"#,
        "owner: Argo CD, batch:apps/Deployment:kueue-system/kueue",
        "argocd.argoproj.io/sync-options",
        "Prune=false,Delete=false",
    ),
    (
        r#"{"labels": {"kustomize.toolkit.fluxcd.io/name": "infra"}}"#,
        "owner: Flux, infra",
        "kustomize.toolkit.fluxcd.io/prune",
        "disabled",
    ),
];

/// A user without rights is told which and what grants it; these commands, run as printed, are enough. For a GitOps controller the
/// definitions are marked before anything is replaced, and no manager is replaced while it runs.
pub(crate) async fn rights_owners_and_namespaces(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let user = cluster.plane.folder().join("ann.kubeconfig");
    cluster.plane.credentials("ann", None)?.write(&user)?;
    for verb in [&["check"][..], &["to-sluice", "--yes"]] {
        let (code, output) = migrate(&user, verb)?;
        ensure!(code == Some(1) && output.contains("ann may not"), "{code:?}\n{output}");
        let commands = output.lines().map(str::trim).filter(|line| line.starts_with("kubectl create "));
        let commands: Vec<&str> = commands.collect();
        ensure!(!commands.is_empty(), "{output}");
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().skip(1).collect();
            // A role of the same verb was made for the check.
            if fixture.kubectl.run(&words).is_err() {
                let again = command.replace("sluice-migrate-", "sluice-migrate-more-");
                let words: Vec<&str> = again.split_whitespace().skip(1).collect();
                fixture.kubectl.run(&words)?;
            }
        }
    }
    within_rights(&user, &["check"]).await?;
    let admin = cluster.plane.admin_kubeconfig();
    let outcome = check_owners(fixture, &admin).await;
    fixture.objects.delete(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT, PropagationPolicy::Foreground).await?;
    outcome
}

/// Rights take effect a moment after they are granted.
async fn within_rights(user: &Path, verb: &[&str]) -> Result<()> {
    eventually("the user has the rights", async || {
        let (code, output) = migrate(user, verb)?;
        ensure!(code == Some(0), "{code:?}\n{output}");
        Ok(())
    })
    .await
}

async fn check_owners(fixture: &Fixture, admin: &Path) -> Result<()> {
    let labels = json!({"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"});
    let container = json!({"name": "manager", "image": "kueue"});
    let deployment = json!({
        "metadata": {"namespace": NAMESPACE, "name": DEPLOYMENT, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"control-plane": "controller-manager"}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    fixture.objects.create(Kind::DEPLOYMENT, &deployment).await?;
    for (metadata, owner, mark, value) in OWNERS {
        let metadata: Value = serde_json::from_str(metadata)?;
        let patch = json!({"metadata": metadata});
        fixture.objects.merge(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT, &patch).await?;
        let (_, report) = migrate(admin, &["check"])?;
        ensure!(report.contains(owner), "no {owner:?} in\n{report}");
        let (code, output) = migrate(admin, &["to-sluice", "--yes", "--timeout", "3"])?;
        ensure!(code == Some(1), "{code:?}\n{output}");
        for part in
            ["synchronise it, with server-side apply", "still waiting for the deletion of Kueue's Deployment"]
        {
            ensure!(output.contains(part), "no {part:?} in\n{output}");
        }
        let definition = fixture.objects.must_get(Kind::CRD, "", WORKLOADS).await?;
        ensure!(definition["metadata"]["annotations"][mark] == value, "{}", definition["metadata"]);
        // As it was.
        let none = |kind: &str| {
            let all = metadata[kind].as_object().into_iter().flatten();
            Value::Object(all.map(|(name, _)| (name.clone(), Value::Null)).collect())
        };
        let patch = json!({"metadata": {"labels": none("labels"), "annotations": none("annotations")}});
        fixture.objects.merge(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT, &patch).await?;
        for definition in fixture.objects.list(Kind::CRD, "", "").await? {
            let patch = json!({"metadata": {"annotations": {mark: null}}});
            fixture.objects.merge(Kind::CRD, "", text(&definition, "/metadata/name"), &patch).await?;
        }
    }
    let (code, output) = migrate(admin, &["to-sluice", "--dry-run", "--namespace", "default"])?;
    let expected =
        format!("Deployment {NAMESPACE}/{DEPLOYMENT} runs a manager in another namespace than default");
    ensure!(code == Some(4) && output.contains(&expected), "{code:?}\n{output}");
    Ok(())
}

/// Runs `sluice migrate`; returns exit code and output.
fn migrate(kubeconfig: &Path, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    ensure!(fs::exists(kubeconfig)?, "{} does not exist", kubeconfig.display());
    let mut command = Command::new(binaries::sluice(Build::Dev)?);
    command.arg("migrate").args(arguments).arg("--kubeconfig").arg(kubeconfig);
    let output = command.output().context("cannot run sluice")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}
