//! Serving certificates change under load.

use crate::ground::Ground;
use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, PostParams, PropagationPolicy};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{Manager, Settings};
use sluice_e2e::objects::{Kind, Objects, text};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Creates a second.
const RATE: usize = 50;
pub(crate) const AUTHORITY: &str = "kueue-webhook-server-cert-ca";
pub(crate) const SECRET: &str = "kueue-webhook-server-cert";
/// Certificates that live for seconds, and two authorities trusted while one replaces the other.
const SHORT: [&str; 4] = [
    "--authority-lifetime=40s",
    "--certificate-lifetime=20s",
    "--certificate-overlap=3s",
    "--certificate-retirement=3s",
];

pub(crate) async fn certificate(objects: &Objects) -> Result<String> {
    let secret = objects.need(Kind::SECRET, NAMESPACE, SECRET).await?;
    Ok(text(&secret, "/data/tls.crt").to_owned())
}

/// Two rotations while 50 flavors a second are created, each through the webhooks: none fails.
pub(crate) async fn rotated_under_creates(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    // What stands there lives for months: it is made anew.
    forget_certificates(&ground.objects).await?;
    let flags = SHORT.iter().map(|&flag| flag.to_owned()).collect();
    let settings = Settings { flags, ..old.settings().clone() };
    let short = Manager::start(&cluster.plane, &settings).await?;
    short.ready().await?;
    cluster.webhooks_answer().await?;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let load = tokio::spawn(creates(ground.objects.clone(), Arc::clone(&stop), Arc::clone(&done)));
    let mut seen = BTreeSet::from([certificate(&ground.objects).await?]);
    let outcome = sluice_e2e::wait::within(Duration::from_mins(3), "two rotations", async || {
        seen.insert(certificate(&ground.objects).await?);
        ensure!(seen.len() > 2, "{} certificates so far", seen.len());
        // Those of the last second may be under way.
        let wanted = RATE * usize::try_from(begun.elapsed().as_secs().saturating_sub(1))?;
        let done = done.load(Ordering::Acquire);
        ensure!(wanted > RATE && done >= wanted, "{done} creates so far, {wanted} are wanted");
        Ok(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    load.await??;
    outcome?;

    // Back to certificates that live long: the next manager makes its own.
    short.terminate();
    forget_certificates(&ground.objects).await?;
    let long = Manager::start(&cluster.plane, old.settings()).await?;
    long.ready().await?;
    cluster.put_manager(long);
    cluster.webhooks_answer().await
}

async fn forget_certificates(objects: &Objects) -> Result<()> {
    for secret in [SECRET, AUTHORITY] {
        objects.delete(Kind::SECRET, NAMESPACE, secret, PropagationPolicy::Background).await?;
    }
    Ok(())
}

/// One every so often, however long each takes; the first that fails is the outcome.
pub(crate) async fn creates(objects: Objects, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    let mut running = JoinSet::new();
    let mut number = 0_usize;
    while !stop.load(Ordering::Acquire) {
        tick.tick().await;
        running.spawn(create(objects.clone(), number));
        number += 1;
        while let Some(outcome) = running.try_join_next() {
            outcome??;
            done.fetch_add(1, Ordering::AcqRel);
        }
    }
    while let Some(outcome) = running.join_next().await {
        outcome??;
    }
    Ok(())
}

async fn create(objects: Objects, number: usize) -> Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let flavor: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": format!("rotation-{number}")},
    }))?;
    let api = objects.api(Kind::FLAVOR, "");
    api.create(&dry, &flavor).await.map(drop).with_context(|| format!("create {number}"))
}
