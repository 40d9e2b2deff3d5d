//! Serving certificates that are rotated under load, have expired, are not yet valid, or are not trusted.

use crate::fixture::{Fixture, expect_refused};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, PostParams};
use serde_json::json;
use sluice_e2e::bench::webhooks::ca_bundle;
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

/// Rate of creates.
const CREATES_PER_SECOND: usize = 50;
pub(crate) const CA_SECRET: &str = "kueue-webhook-server-cert-ca";
/// ConfigMap with the authority alone.
const CA_CONFIG_MAP: &str = "kueue-webhook-server-cert-ca-bundle";
pub(crate) const SERVING_SECRET: &str = "kueue-webhook-server-cert";
/// Certificate lifetimes of seconds, with overlapping authorities during a rotation.
const SHORT_LIFETIME_FLAGS: [&str; 4] = [
    "--ca-lifetime=40s",
    "--certificate-lifetime=20s",
    "--certificate-overlap=3s",
    "--certificate-retirement=3s",
];

pub(crate) async fn certificate(objects: &ObjectClient) -> Result<String> {
    let secret = objects.must_get(Kind::SECRET, NAMESPACE, SERVING_SECRET).await?;
    Ok(text(&secret, "/data/tls.crt").to_owned())
}

/// Certificates are rotated twice while 50 flavors per second are created through the webhooks: no create fails. Then the
/// ConfigMap for Prometheus has the authority of the webhooks, and no key.
pub(crate) async fn rotation_under_load(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    // The existing certificates are valid for months; delete them, so that short-lived ones are issued.
    empty_certificates(&fixture.objects).await?;
    let flags = SHORT_LIFETIME_FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    let settings = ManagerSettings { flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let load = tokio::spawn(create_load(fixture.objects.clone(), Arc::clone(&stop), Arc::clone(&done)));
    let mut certificates = BTreeSet::from([certificate(&fixture.objects).await?]);
    let outcome =
        sluice_e2e::wait::within(Duration::from_mins(3), "two rotations are completed", async || {
            certificates.insert(certificate(&fixture.objects).await?);
            ensure!(certificates.len() > 2, "{} certificates so far", certificates.len());
            // Creates of the last second may still be in flight.
            let expected = CREATES_PER_SECOND * usize::try_from(begun.elapsed().as_secs().saturating_sub(1))?;
            let done = done.load(Ordering::Acquire);
            ensure!(
                expected > CREATES_PER_SECOND && done >= expected,
                "{done} creates so far, expected {expected}"
            );
            Ok(())
        })
        .await;
    stop.store(true, Ordering::Relaxed);
    load.await??;
    outcome?;

    // Restore long-lived certificates: the next manager issues its own.
    manager.terminate();
    empty_certificates(&fixture.objects).await?;
    let restored = Manager::start(&cluster.plane, old.settings()).await?;
    restored.wait_until_ready().await?;
    cluster.put_manager(restored);
    cluster.wait_for_webhooks().await?;
    eventually("Prometheus' ConfigMap has the authority of the webhooks", async || {
        let authority = fixture.objects.must_get(Kind::CONFIG_MAP, NAMESPACE, CA_CONFIG_MAP).await?;
        let data = authority["data"].as_object().context("no data")?;
        ensure!(data.keys().eq(["ca.crt"]), "{authority}");
        // Of the bundle it has what this manager issued: an authority whose key is lost stays in the bundle alone.
        let own = text(&authority, "/data/ca.crt").trim();
        ensure!(!own.is_empty() && ca_bundle(cluster).await?.contains(own), "{authority}");
        Ok(())
    })
    .await
}

async fn empty_certificates(objects: &ObjectClient) -> Result<()> {
    for secret in [SERVING_SECRET, CA_SECRET] {
        objects.merge(Kind::SECRET, NAMESPACE, secret, &json!({"data": null})).await?;
    }
    Ok(())
}

/// Creates flavors at a fixed rate until `stop`, however long each create takes; returns the first failure.
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
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let flavor: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": format!("rotation-{number}")},
    }))?;
    let api = objects.api(Kind::FLAVOR, "");
    api.create(&dry_run, &flavor).await.map(drop).with_context(|| format!("create {number}"))
}

/// Names under which the API server calls the webhooks: here, and through a Service.
const NAMES: [&str; 3] = [
    "127.0.0.1",
    "kueue-webhook-service.kueue-system.svc",
    "kueue-webhook-service.kueue-system.svc.cluster.local",
];
const DAY: Duration = Duration::from_hours(24);
/// Lifetime that is long enough to be served and short enough to wait for its expiry.
const SHORT_LIFETIME: Duration = Duration::from_secs(8);

/// The test issues the certificates, as cert-manager does. With a bundle that trusts another authority, a certificate
/// that is not yet valid at start, or one that expires while served: Jobs with a queue name are refused, others are
/// not, the manager is not ready, and it recovers with a valid certificate. A not yet valid one that arrives while a
/// valid one is served is ignored.
pub(crate) async fn invalid_or_untrusted_certificate(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let issuer = Issuer { fixture, authority: CertificateAuthority::new("e2e-issuer")? };
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    issuer.publish_bundle(&issuer.authority).await?;
    issuer.store_certificate(0, DAY).await?;
    let before = old.settings().clone();
    let mut settings = before.clone();
    settings.configuration["internalCertManagement"] = json!({"enable": false});
    cluster.start_manager(&settings).await?;
    check_job_runs(cluster, fixture, "begins").await?;

    issuer.publish_bundle(&CertificateAuthority::new("e2e-stranger")?).await?;
    check_fails_closed(cluster, fixture).await?;
    issuer.publish_bundle(&issuer.authority).await?;
    check_job_runs(cluster, fixture, "trusted").await?;

    issuer.store_certificate(3600, DAY).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    check_job_runs(cluster, fixture, "early").await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    cluster.put_manager(Manager::start(&cluster.plane, old.settings()).await?);
    check_fails_closed(cluster, fixture).await?;
    issuer.store_certificate(0, DAY).await?;
    check_job_runs(cluster, fixture, "due").await?;

    issuer.store_certificate(0, SHORT_LIFETIME).await?;
    check_fails_closed(cluster, fixture).await?;
    issuer.store_certificate(0, DAY).await?;
    check_job_runs(cluster, fixture, "renewed").await?;

    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    empty_certificates(&fixture.objects).await?;
    cluster.start_manager(&before).await
}

/// Issues certificates and publishes CA bundles.
struct Issuer<'a> {
    fixture: &'a Fixture,
    authority: CertificateAuthority,
}

impl Issuer<'_> {
    /// Writes an authority to the bundles of all webhooks.
    async fn publish_bundle(&self, authority: &CertificateAuthority) -> Result<()> {
        let objects = &self.fixture.objects;
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

    /// Stores a certificate that is valid for `time` starting `from` seconds from now.
    async fn store_certificate(&self, from: i64, time: Duration) -> Result<()> {
        let PemPair { certificate, key } =
            self.authority.server_with_validity("webhooks", &NAMES, from, time)?;
        let data = json!({"data": {"tls.crt": base64(certificate.as_bytes()), "tls.key": base64(key.as_bytes()),
            "ca.crt": base64(self.authority.pem().as_bytes())}});
        self.fixture.objects.merge(Kind::SECRET, NAMESPACE, SERVING_SECRET, &data).await?;
        Ok(())
    }
}

/// Checks that the manager is ready and that a Job passes the webhooks and runs.
async fn check_job_runs(cluster: &Cluster, fixture: &Fixture, job: &str) -> Result<()> {
    cluster.manager()?.wait_until_ready().await?;
    reset_connections(cluster)?;
    cluster.wait_for_webhooks().await?;
    fixture.submit(fixture.job(job, "main", "1")).await?;
    fixture.wait_until_running(job).await?;
    fixture.finish_job(job).await
}

/// Checks that the manager is not ready, that Jobs with a queue name are refused and that others are not.
async fn check_fails_closed(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |queue: &str| {
        let job = fixture.job("tried", queue, "1");
        let mut body = job.body().clone();
        (body["apiVersion"], body["kind"]) = (json!("batch/v1"), json!("Job"));
        let object: DynamicObject = serde_json::from_value(body)?;
        anyhow::Ok(fixture.objects.api(Kind::JOB, &fixture.name).create(&dry_run, &object).await)
    };
    eventually("a Job with a queue name is refused", async || {
        // A connection opened earlier outlives its certificate.
        reset_connections(cluster)?;
        let message = expect_refused(create("main").await?, 500)?;
        ensure!(message.contains("failed calling webhook"), "{message}");
        Ok(())
    })
    .await?;
    create("").await?.context("a Job without a queue name was refused")?;
    eventually("the manager is not ready", async || {
        cluster.manager()?.process().check()?;
        ensure!(cluster.manager()?.is_ready().await.is_err(), "the manager is ready");
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
