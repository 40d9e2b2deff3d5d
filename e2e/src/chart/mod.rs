//! `chart-test`: the Helm chart renders the objects of `config/`, refuses wrong values with a message that names them, can be
//! installed, upgraded, rolled back and uninstalled on a real control plane by both versions of Helm, and starts what each value renders.

mod comparison;
mod helm;
mod kustomization;
mod lifecycle;
mod references;
mod rendering;
mod settings;

use crate::binaries::Binaries;
use crate::control_plane::{ControlPlane, Extent};
use crate::installed_manifests::{self, InstalledManifests};
use crate::kubectl::Kubectl;
use crate::objects::{Kind, ObjectClient};
use anyhow::{Context as _, Result};
use helm::Helm;
use serde_json::{Value, json};
use std::path::Path;

/// Runs the whole test. An error names the check that failed.
pub async fn run() -> Result<()> {
    let binaries = Binaries::ensure(&["helm", "helm3", "kubectl"])?;
    let folder = ControlPlane::temporary_folder();
    let helm = Helm::new(&binaries.path("helm"), &folder.with_extension("helm"))?;
    helm.lint().context("helm lint")?;
    println!("helm lint passes");
    rendering::check(&helm, &binaries.path("kubectl"))?;
    settings::check(&helm)?;
    let plane = ControlPlane::start(Extent::Full, &folder).await?;
    let kubectl = Kubectl::new(&binaries.path("kubectl"), &plane.admin_kubeconfig());
    let objects = ObjectClient::new(plane.admin().await?);
    for number in 1..=2 {
        objects.create(Kind::NODE, &json!({"metadata": {"name": format!("node-{number}")}})).await?;
    }
    for program in ["helm", "helm3"] {
        let helm = Helm::new(&binaries.path(program), &folder.with_extension(program))?;
        let helm = helm.for_cluster(&plane.admin_kubeconfig());
        let cluster = lifecycle::ChartCluster { helm, kubectl: &kubectl, objects: &objects, plane: &plane };
        lifecycle::check(&cluster, program).await.with_context(|| program.to_owned())?;
    }
    drop(plane);
    start_each(&helm, &folder.with_extension("values")).await?;
    println!("Every check passed.");
    Ok(())
}

/// Starts the processes that the chart renders for each value, but those that wait for a certificate that another system issues.
async fn start_each(helm: &Helm, folder: &Path) -> Result<()> {
    let mut site = InstalledManifests::start(folder).await?;
    let (mut started, mut left) = (0_u32, 0_u32);
    for (values, objects) in settings::accepted(helm)? {
        if !issues_certificates(&objects)? {
            left += 1;
            continue;
        }
        let outcome = site.check(&objects, |_| ()).await.with_context(|| values.to_string());
        if outcome.is_err() {
            site.keep_folder();
        }
        started += u32::from(outcome?);
    }
    println!(
        "{started} values start the manager, which becomes ready; {left} need a certificate from elsewhere"
    );
    Ok(())
}

/// Returns whether the manager issues its certificates. With cert-manager, the configuration of the chart says that it does not.
fn issues_certificates(objects: &[Value]) -> Result<bool> {
    let configuration = installed_manifests::configuration(objects)?;
    Ok(configuration.pointer("/internalCertManagement/enable").and_then(Value::as_bool) != Some(false))
}
