//! `sluice-e2e up | down | demo | conformance | bench`.

use sluice_e2e::plane::{Extent, Plane};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let begun = std::time::Instant::now();
    let plane = Plane::start(Extent::Full, &Plane::own_folder()).await?;
    println!("{:?} {}", begun.elapsed(), plane.admin_kubeconfig().display());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
