//! The component `config/dashboard` as it is: a kubelet runs its pod beside the manager's, and users reach it through its Service.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Result, ensure};
use http::Request;
use http::header::COOKIE;
use serde_json::Value;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::wait::eventually;

/// The Service as the API server's proxy names it.
const SERVICE: &str = "/api/v1/namespaces/kueue-system/services/https:kueue-dashboard:https/proxy";

/// The dashboard's pod starts as rendered, answers through its Service, asks a token for a page, and shows a user of the cluster what
/// it has of its own and from the leader in another pod.
pub(crate) async fn dashboard_runs_as_rendered(_: &mut Cluster, _: &Fixture) -> Result<()> {
    check_support()?;
    let (mut installation, manifests) = Installation::prepare("dashboard", &["dashboard"]).await?;
    let mut outcome = installation.install(manifests).await;
    if outcome.is_ok() {
        outcome = check(&installation).await;
    }
    installation.report(outcome).await
}

async fn check(installation: &Installation) -> Result<()> {
    let kubectl = &installation.kubectl;
    kubectl.run(&["-n", NAMESPACE, "create", "serviceaccount", "viewer"])?;
    let account = format!("--serviceaccount={NAMESPACE}:viewer");
    kubectl.run(&[
        "create",
        "clusterrolebinding",
        "viewer",
        "--clusterrole=sluice-cluster-viewer",
        &account,
    ])?;
    let token =
        kubectl.run(&["-n", NAMESPACE, "create", "token", "viewer", "--audience=sluice-dashboard"])?;
    let client = installation.plane.admin().await?;
    let get = async |path: &str, cookie: &str| -> Result<String> {
        let request = Request::get(format!("{SERVICE}{path}")).header(COOKIE, cookie).body(Vec::new())?;
        Ok(client.request_text(request).await?)
    };
    eventually("the Service reaches the dashboard", async || {
        installation.kubelet.check()?;
        let answer = get("/healthz", "").await?;
        ensure!(answer == "ok\n", "{answer}");
        Ok(())
    })
    .await?;
    let refused = get("/?o=json", "").await.err().map(|error| format!("{error:?}")).unwrap_or_default();
    ensure!(refused.contains("a token is required"), "a page without a token: {refused}");
    let cookie = format!("__Host-sluice={}", token.trim());
    let page = get("/", &cookie).await?;
    ensure!(page.contains("<h1>Overview") && page.contains("viewer"), "{page}");
    // What only the leader knows comes from a pod of the manager.
    eventually("the page has what the leader knows", async || {
        let value: Value = serde_json::from_str(&get("/?o=json", &cookie).await?)?;
        ensure!(
            value["manager"]["leads"] == true && value["trend"]["recorded"]["from"].is_string(),
            "{value}"
        );
        Ok(())
    })
    .await?;
    note(format_args!("the page of the pod has {} bytes", page.len()));
    Ok(())
}
