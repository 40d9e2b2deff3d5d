//! Serving certificates change under load, expire, come too early, or are not trusted.

use crate::fixture::{Fixture, expect_refused};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, PostParams, PropagationPolicy};
use serde_json::json;
use sluice_e2e::certs::{CertificateAuthority, PemPair};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::kubeconfig::base64;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Creates a second.
const CREATES_PER_SECOND: usize = 50;
pub(crate) const CA_SECRET: &str = "kueue-webhook-server-cert-ca";
pub(crate) const SERVING_SECRET: &str = "kueue-webhook-server-cert";
/// Certificates that live for seconds, and two authorities trusted while one replaces the other.
const SHORT_LIFETIME_FLAGS: [&str; 4] = [
    "--authority-lifetime=40s",
    "--certificate-lifetime=20s",
    "--certificate-overlap=3s",
    "--certificate-retirement=3s",
];

pub(crate) async fn certificate(objects: &ObjectClient) -> Result<String> {
    let secret = objects.must_get(Kind::SECRET, NAMESPACE, SERVING_SECRET).await?;
    Ok(text(&secret, "/data/tls.crt").to_owned())
}

/// Two rotations while 50 flavors a second are created, each through the webhooks: none fails.
pub(crate) async fn rotation_under_load(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    // What stands there lives for months: it is made anew.
    delete_certificates(&ground.objects).await?;
    let flags = SHORT_LIFETIME_FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    let settings = ManagerSettings { flags, ..old.settings().clone() };
    let short = Manager::start(&cluster.plane, &settings).await?;
    short.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let load = tokio::spawn(create_load(ground.objects.clone(), Arc::clone(&stop), Arc::clone(&done)));
    let mut seen = BTreeSet::from([certificate(&ground.objects).await?]);
    let outcome = sluice_e2e::wait::within(Duration::from_mins(3), "two rotations", async || {
        seen.insert(certificate(&ground.objects).await?);
        ensure!(seen.len() > 2, "{} certificates so far", seen.len());
        // Those of the last second may be under way.
        let wanted = CREATES_PER_SECOND * usize::try_from(begun.elapsed().as_secs().saturating_sub(1))?;
        let done = done.load(Ordering::Acquire);
        ensure!(wanted > CREATES_PER_SECOND && done >= wanted, "{done} creates so far, {wanted} are wanted");
        Ok(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    load.await??;
    outcome?;

    // Back to certificates that live long: the next manager makes its own.
    short.terminate();
    delete_certificates(&ground.objects).await?;
    let long = Manager::start(&cluster.plane, old.settings()).await?;
    long.wait_until_ready().await?;
    cluster.put_manager(long);
    cluster.wait_for_webhooks().await
}

async fn delete_certificates(objects: &ObjectClient) -> Result<()> {
    for secret in [SERVING_SECRET, CA_SECRET] {
        objects.delete(Kind::SECRET, NAMESPACE, secret, PropagationPolicy::Background).await?;
    }
    Ok(())
}

/// One every so often, however long each takes; the first that fails is the outcome.
pub(crate) async fn create_load(
    objects: ObjectClient,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
) -> Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(CREATES_PER_SECOND)?);
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

async fn create(objects: ObjectClient, number: usize) -> Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let flavor: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": format!("rotation-{number}")},
    }))?;
    let api = objects.api(Kind::FLAVOR, "");
    api.create(&dry, &flavor).await.map(drop).with_context(|| format!("create {number}"))
}

/// Names that the API server calls the webhooks by, here and where there is a Service.
const NAMES: [&str; 3] = [
    "127.0.0.1",
    "kueue-webhook-service.kueue-system.svc",
    "kueue-webhook-service.kueue-system.svc.cluster.local",
];
const DAY: Duration = Duration::from_hours(24);
/// Long enough to be served, short enough to wait for its end.
const SHORT_LIFETIME: Duration = Duration::from_secs(8);

/// Another than the manager makes the certificates, as cert-manager does. With bundles that trust somebody else, with a
/// certificate whose time has not come when the manager starts, and with one that expires while it is served: Jobs that name
/// a queue are refused, others are not, the manager is not ready; and each time all is well when it is mended. One that comes
/// too early while a good one is served changes nothing.
pub(crate) async fn invalid_or_untrusted_certificate(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let issuer = Issuer { ground, authority: CertificateAuthority::new("e2e-issuer")? };
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    issuer.publish_bundle(&issuer.authority).await?;
    issuer.store_certificate(0, DAY).await?;
    let before = old.settings().clone();
    let mut settings = before.clone();
    settings.configuration["internalCertManagement"] = json!({"enable": false});
    cluster.start_manager(&settings).await?;
    check_job_runs(cluster, ground, "begins").await?;

    issuer.publish_bundle(&CertificateAuthority::new("e2e-stranger")?).await?;
    check_fails_closed(cluster, ground).await?;
    issuer.publish_bundle(&issuer.authority).await?;
    check_job_runs(cluster, ground, "trusted").await?;

    issuer.store_certificate(3600, DAY).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    check_job_runs(cluster, ground, "early").await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    cluster.put_manager(Manager::start(&cluster.plane, old.settings()).await?);
    check_fails_closed(cluster, ground).await?;
    issuer.store_certificate(0, DAY).await?;
    check_job_runs(cluster, ground, "due").await?;

    issuer.store_certificate(0, SHORT_LIFETIME).await?;
    check_fails_closed(cluster, ground).await?;
    issuer.store_certificate(0, DAY).await?;
    check_job_runs(cluster, ground, "renewed").await?;

    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    delete_certificates(&ground.objects).await?;
    cluster.start_manager(&before).await
}

/// Who makes certificates and says that they are to be trusted.
struct Issuer<'a> {
    ground: &'a Fixture,
    authority: CertificateAuthority,
}

impl Issuer<'_> {
    /// Writes an authority to the bundles of all webhooks.
    async fn publish_bundle(&self, authority: &CertificateAuthority) -> Result<()> {
        let objects = &self.ground.objects;
        for kind in [Kind::MUTATING_WEBHOOKS, Kind::VALIDATING_WEBHOOKS] {
            for object in objects.list(kind, "", "").await? {
                let mut webhooks = object["webhooks"].clone();
                for webhook in webhooks.as_array_mut().into_iter().flatten() {
                    webhook["clientConfig"]["caBundle"] = json!(base64(authority.pem().as_bytes()));
                }
                objects
                    .merge(kind, "", text(&object, "/metadata/name"), &json!({"webhooks": webhooks}))
                    .await?;
            }
        }
        Ok(())
    }

    /// Writes a certificate that is valid so many seconds from now on, for so long.
    async fn store_certificate(&self, from: i64, time: Duration) -> Result<()> {
        let PemPair { certificate, key } =
            self.authority.server_with_validity("webhooks", &NAMES, from, time)?;
        let data = json!({"data": {"tls.crt": base64(certificate.as_bytes()), "tls.key": base64(key.as_bytes()),
            "ca.crt": base64(self.authority.pem().as_bytes())}});
        self.ground.objects.merge(Kind::SECRET, NAMESPACE, SERVING_SECRET, &data).await?;
        Ok(())
    }
}

/// The manager is ready, and a Job passes the webhooks and runs.
async fn check_job_runs(cluster: &Cluster, ground: &Fixture, job: &str) -> Result<()> {
    cluster.manager()?.wait_until_ready().await?;
    reset_connections(cluster)?;
    cluster.wait_for_webhooks().await?;
    ground.submit(ground.job(job, "main", "1")).await?;
    ground.wait_until_running(job).await?;
    ground.finish_job(job).await
}

/// The manager is not ready, who names a queue is refused, and who names none is not.
async fn check_fails_closed(cluster: &Cluster, ground: &Fixture) -> Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |queue: &str| {
        let job = ground.job("tried", queue, "1");
        let mut body = job.body().clone();
        (body["apiVersion"], body["kind"]) = (json!("batch/v1"), json!("Job"));
        let object: DynamicObject = serde_json::from_value(body)?;
        anyhow::Ok(ground.objects.api(Kind::JOB, &ground.name).create(&dry, &object).await)
    };
    eventually("who names a queue is refused", async || {
        // One that was made in time lasts longer than its certificate.
        reset_connections(cluster)?;
        let message = expect_refused(create("main").await?, 500)?;
        ensure!(message.contains("failed calling webhook"), "{message}");
        Ok(())
    })
    .await?;
    create("").await?.context("a Job that names no queue")?;
    eventually("the manager is not ready", async || {
        cluster.manager()?.process().check()?;
        ensure!(cluster.manager()?.is_ready().await.is_err(), "it is");
        Ok(())
    })
    .await
}

/// Cuts the connections of the API server to the webhooks.
fn reset_connections(cluster: &Cluster) -> Result<()> {
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    balancer.set_backends(Vec::new());
    balancer.set_backends(vec![cluster.manager()?.settings().webhook_port]);
    Ok(())
}
