//! The switch from a Kueue that runs: its own manager of 0.19.2 in the Deployment of its manifests, on a control plane with a kubelet.

use crate::fixture::Fixture;
use crate::image::unpack_image;
use crate::shipped_manifests::{Installation, is_supported};
use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_e2e::binaries::{Binaries, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::definitions;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const KUEUE_IMAGE: &str = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue:main";

pub(crate) async fn hold(_: &mut Cluster, _: &Fixture) -> Result<()> {
    if !is_supported() {
        return Ok(());
    }
    let installation = Installation::with_images("live", images).await?;
    let outcome = async {
        let folder = definitions::module("kueue", "sigs.k8s.io/kueue")?.join("config/default");
        let text_of_all = installation.kubectl.run(&["kustomize", &folder.display().to_string()])?;
        fs::write("/tmp/swi-kueue-live.yaml", &text_of_all)?;
        println!("KUBECONFIG={}", installation.plane.admin_kubeconfig().display());
        let _: Vec<Value> = serde_saphyr::from_multiple(&text_of_all).context("Kueue's manifests")?;
        for _ in 0..7200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Err(error) = installation.kubelet.check() {
                println!("{error:#}");
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            if Path::new("/tmp/swi-stop").exists() {
                break;
            }
        }
        Ok(())
    }
    .await;
    outcome
}

fn images(folder: &Path) -> Result<BTreeMap<String, std::path::PathBuf>> {
    unpack_image(Build::Dev, folder)?;
    let kueue = folder.with_extension("kueue");
    fs::create_dir_all(&kueue)?;
    fs::copy(Binaries::ensure(&["kueue"])?.path("kueue"), kueue.join("manager"))?;
    Ok(BTreeMap::from([(KUEUE_IMAGE.to_owned(), kueue)]))
}
