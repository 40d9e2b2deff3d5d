//! One fault for each alert. Exactly its alert fires while the fault lasts, and none after it.

use crate::load::{Load, NAMESPACE};
use crate::prometheus::now;
use crate::setup::Setup;
use crate::slow_client::post_slowly;
use anyhow::{Context as _, Result, ensure};
use futures::future::LocalBoxFuture;
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use sluice_e2e::bench::webhooks::manager_client;
use sluice_e2e::certs::{CertificateAuthority, PemPair};
use sluice_e2e::install::NAMESPACE as MANAGER_NAMESPACE;
use sluice_e2e::kubeconfig::base64;
use sluice_e2e::objects::{Kind, ObjectClient, text};
use sluice_e2e::proxy::{Call, ErrorResponse, Fault};
use sluice_e2e::wait::within;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const ROLE: &str = "kueue-manager-role";
const SECRET: &str = "kueue-webhook-server-cert";
const JOBS_PATH: &str = "/validate-batch-v1-job";
const DAY: Duration = Duration::from_hours(24);
/// Names under which the manager is called: webhooks and metrics of this test, and the metrics Service.
const CERTIFICATE_NAMES: [&str; 2] =
    ["127.0.0.1", "kueue-controller-manager-metrics-service.kueue-system.svc"];
/// Longest time until an alert fires, and until it ends.
const TIMEOUT: Duration = Duration::from_mins(3);
/// How long the set of firing alerts must stay as it is.
const HOLD: Duration = Duration::from_secs(4);

/// Repeats `cause` until exactly these alerts (names with labels) fire, and for some time more. Then `end` ends the fault,
/// and all alerts must end. No other alert may have fired since.
pub(crate) async fn expect(
    setup: &Setup,
    alerts: &[String],
    mut cause: impl FnMut() -> LocalBoxFuture<'static, Result<()>>,
    end: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let prometheus = &setup.prometheus;
    let begin = now();
    let expected: BTreeSet<String> = alerts.iter().cloned().collect();
    let before = prometheus.firing().await?;
    ensure!(before.is_empty(), "{before:?} fire before the fault");
    within(TIMEOUT, format!("{expected:?} fire"), async || {
        cause().await?;
        let firing = prometheus.firing().await?;
        ensure!(firing == expected, "{firing:?} fire");
        Ok(())
    })
    .await?;
    let fired_after = now() - begin;
    let hold = std::time::Instant::now();
    while hold.elapsed() < HOLD {
        cause().await?;
        let firing = prometheus.firing().await?;
        ensure!(firing == expected, "{firing:?} fire after {expected:?}");
    }
    end().await?;
    wait_for_silence(setup).await?;
    let names: BTreeSet<String> = expected.iter().map(|alert| alert_name(alert)).collect();
    let fired = prometheus.fired_since(begin).await?;
    ensure!(fired == names, "{fired:?} fired, expected {names:?}");
    println!(
        "  {} fired after {fired_after:.0} s, and no other",
        names.into_iter().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// Waits until no alert fires.
pub(crate) async fn wait_for_silence(setup: &Setup) -> Result<()> {
    within(TIMEOUT, "no alert fires", async || {
        let firing = setup.prometheus.firing().await?;
        ensure!(firing.is_empty(), "{firing:?} fire");
        Ok(())
    })
    .await
}

fn alert_name(alert: &str) -> String {
    alert.split(',').find_map(|part| part.strip_prefix("alertname=")).unwrap_or(alert).to_owned()
}

/// Sorted labels of an alert.
fn alert(name: &str, labels: &[(&str, &str)]) -> String {
    let mut parts: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    parts.push(format!("alertname={name}"));
    parts.sort();
    parts.join(",")
}

fn nothing() -> LocalBoxFuture<'static, Result<()>> {
    Box::pin(async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(())
    })
}

/// The start of a Job is refused with 403.
pub(crate) async fn writes_are_refused(setup: &Setup, load: &Load) -> Result<()> {
    let fault = setup.proxy.inject_all(Fault::Respond(ErrorResponse::FORBIDDEN), |call: &Call| {
        call.matches(&Method::PATCH, "/jobs/refused")
    });
    load.submit("refused", "red", "low", "1").await?;
    let labels = [("code", "403"), ("resource", "jobs"), ("verb", "merge")];
    expect(setup, &[alert("SluiceWritesRefused", &labels)], nothing, async || {
        drop(fault);
        load.wait_until_running("refused").await?;
        load.delete_all().await
    })
    .await
}

/// Number of Jobs that wait behind a head, more than fit.
const BACKLOG: usize = 40;

/// Each reservation conflicts, as if another client changed the Workloads all the time. Nothing is refused.
pub(crate) async fn reservations_conflict(setup: &Setup, load: &Load) -> Result<()> {
    let fault = setup.proxy.inject_all(Fault::Respond(ErrorResponse::CONFLICT), |call: &Call| {
        call.method == Method::PATCH
            && call.path.ends_with("/status")
            && call.path.contains("/workloads/")
            && call.sets_condition("QuotaReserved", "True")
    });
    load.submit("stuck", "blue", "high", "1").await?;
    load.submit_backlog("blue", BACKLOG).await?;
    let alerts = [alert("SluiceHeadFitsButWaits", &[("cluster_queue", "blue")])];
    expect(setup, &alerts, nothing, async || {
        drop(fault);
        // Those whose backoff ends first get the three CPUs.
        load.wait_for_counts("blue", (i64::try_from(BACKLOG)? - 2, 3, 3)).await?;
        load.delete_all().await
    })
    .await
}

/// Quota is released, and no parked workload is woken: a deep queue waits beside free quota.
pub(crate) async fn wakeups_are_lost(setup: &Setup, load: &Load) -> Result<()> {
    load.submit("running", "blue", "low", "3").await?;
    load.wait_until_running("running").await?;
    load.submit("stuck", "blue", "high", "2").await?;
    load.submit_backlog("blue", BACKLOG).await?;
    let pending = i64::try_from(BACKLOG)? + 1;
    load.wait_for_counts("blue", (pending, 1, 1)).await?;
    let failpoint = Failpoint::set(setup, "drops-wakeups")?;
    load.finish("running").await?;
    load.wait_for_counts("blue", (pending, 0, 0)).await?;
    let alerts = [alert("SluiceHeadFitsButWaits", &[("cluster_queue", "blue")])];
    expect(setup, &alerts, nothing, async || {
        failpoint.remove()?;
        // The next release wakes all that wait.
        load.submit("released", "blue", "low", "3").await?;
        load.wait_until_running("released").await?;
        load.finish("released").await?;
        load.wait_until_running("stuck").await?;
        load.delete_all().await
    })
    .await
}

/// The API server no longer answers watches of ResourceFlavors.
pub(crate) async fn watch_is_held(setup: &Setup) -> Result<()> {
    let fault = setup.proxy.inject_all(Fault::NeverAnswer, |call: &Call| {
        call.is_watch() && call.path.ends_with("/resourceflavors")
    });
    let labels = [("group", "kueue.x-k8s.io"), ("resource", "resourceflavors")];
    expect(setup, &[alert("SluiceWatchStale", &labels)], nothing, async || {
        drop(fault);
        Ok(())
    })
    .await
}

/// Bodies of reviews arrive within 1.5 seconds.
pub(crate) async fn reviews_are_slow(setup: &Setup) -> Result<()> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "slow", "operation": "CREATE", "namespace": NAMESPACE, "name": "slow",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "slow", "namespace": NAMESPACE}}},
    })
    .to_string();
    let port = setup.cluster.manager()?.settings().webhook_port;
    let cause = || -> LocalBoxFuture<'static, Result<()>> {
        let (ca, review) = (setup.ca.clone(), review.clone());
        Box::pin(
            async move { post_slowly((port, JOBS_PATH), &ca, &review, Duration::from_millis(1500)).await },
        )
    };
    expect(setup, &[alert("SluiceReviewsSlow", &[("path", JOBS_PATH)])], cause, async || Ok(())).await
}

/// A client sends reviews that are larger than any object.
pub(crate) async fn reviews_are_refused(setup: &Setup) -> Result<()> {
    let client = manager_client(&setup.cluster).await?;
    let cause = || -> LocalBoxFuture<'static, Result<()>> {
        let client = client.clone();
        Box::pin(async move {
            let request = Request::post(JOBS_PATH).header("content-type", "application/json");
            // The response may arrive before the body was sent.
            let _ = client.send(request.body(Body::from(vec![b' '; 7 << 20]))?).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok(())
        })
    };
    expect(setup, &[alert("SluiceReviewsRefused", &[("reason", "too_large")])], cause, async || Ok(())).await
}

/// The manager loses the permission to patch Jobs, while it has none to patch.
pub(crate) async fn permission_is_removed(setup: &Setup) -> Result<()> {
    let objects = &setup.cluster.objects;
    let role = objects.must_get(Kind::CLUSTER_ROLE, "", ROLE).await?;
    let mut rules = role["rules"].clone();
    let mut removed = 0;
    for rule in rules.as_array_mut().into_iter().flatten() {
        if rule["apiGroups"] == json!(["batch"])
            && rule["resources"].as_array().is_some_and(|all| all.contains(&json!("jobs")))
            && let Some(verbs) = rule["verbs"].as_array_mut()
        {
            let before = verbs.len();
            verbs.retain(|verb| verb != "patch");
            removed += before - verbs.len();
        }
    }
    ensure!(removed == 1, "{removed} rules allow to patch Jobs");
    objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": rules})).await?;
    let labels = [("group", "batch"), ("needed_by", "controller"), ("resource", "jobs"), ("verb", "patch")];
    expect(setup, &[alert("SluicePermissionMissing", &labels)], nothing, async || {
        objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": role["rules"]})).await?;
        Ok(())
    })
    .await
}

/// Issues certificates as cert-manager would, and publishes CA bundles.
pub(crate) struct Issuer {
    objects: ObjectClient,
    authority: CertificateAuthority,
}

impl Issuer {
    /// Publishes an authority with a certificate that is valid for a year.
    pub(crate) async fn start(setup: &Setup) -> Result<Self> {
        let issuer =
            Self { objects: setup.cluster.objects.clone(), authority: CertificateAuthority::new("issuer")? };
        issuer.publish_bundle(&issuer.authority.pem()).await?;
        issuer.store_certificate(365 * DAY).await?;
        fs::write(setup.prometheus_folder().join("ca.crt"), issuer.authority.pem())?;
        Ok(issuer)
    }

    async fn publish_bundle(&self, authority: &str) -> Result<()> {
        for kind in [Kind::MUTATING_WEBHOOKS, Kind::VALIDATING_WEBHOOKS] {
            for object in self.objects.list(kind, "", "").await? {
                let mut webhooks = object["webhooks"].clone();
                for webhook in webhooks.as_array_mut().into_iter().flatten() {
                    webhook["clientConfig"]["caBundle"] = json!(base64(authority.as_bytes()));
                }
                let name = text(&object, "/metadata/name");
                self.objects.merge(kind, "", name, &json!({"webhooks": webhooks})).await?;
            }
        }
        Ok(())
    }

    async fn store_certificate(&self, time: Duration) -> Result<()> {
        let PemPair { certificate, key } =
            self.authority.server_with_validity("webhooks", &CERTIFICATE_NAMES, 0, time)?;
        let data = json!({"data": {"tls.crt": base64(certificate.as_bytes()), "tls.key": base64(key.as_bytes()),
            "ca.crt": base64(self.authority.pem().as_bytes())}});
        self.objects.merge(Kind::SECRET, MANAGER_NAMESPACE, SECRET, &data).await?;
        Ok(())
    }

    /// The certificate is replaced by one that ends in three days.
    pub(crate) async fn certificate_ends_soon(&self, setup: &Setup) -> Result<()> {
        self.store_certificate(3 * DAY).await?;
        expect(setup, &[alert("SluiceCertificateEndsSoon", &[])], nothing, async || {
            self.store_certificate(365 * DAY).await
        })
        .await
    }

    /// The bundles of the webhooks contain another authority.
    pub(crate) async fn bundle_is_overwritten(&self, setup: &Setup) -> Result<()> {
        self.publish_bundle(&CertificateAuthority::new("stranger")?.pem()).await?;
        let alerts = setup
            .instances()
            .map(|instance| alert("SluiceCertificateNotTrusted", &[("instance", &instance)]));
        expect(setup, &alerts, nothing, async || self.publish_bundle(&self.authority.pem()).await).await
    }
}

/// A failpoint of the leader's core, active until it is removed.
struct Failpoint(PathBuf);

impl Failpoint {
    fn set(setup: &Setup, name: &str) -> Result<Self> {
        let folder = sluice_e2e::manager::failpoints_folder(&setup.cluster.plane);
        fs::create_dir_all(&folder)?;
        let pid = setup.cluster.manager()?.process().identity().pid;
        let file = folder.join(format!("core.{pid}.{name}"));
        fs::write(&file, "")?;
        Ok(Self(file))
    }

    fn remove(&self) -> Result<()> {
        Ok(fs::remove_file(&self.0)?)
    }
}

/// The ledger drift that the leader publishes is set by a failpoint, then that of its history.
pub(crate) async fn ledger_drifts(setup: &Setup) -> Result<()> {
    published_drift(setup, "drifts", "SluiceLedgerDrift").await?;
    published_drift(setup, "history-drifts", "SluiceHistoryDrift").await
}

async fn published_drift(setup: &Setup, failpoint: &str, expected: &str) -> Result<()> {
    let failpoint = Failpoint::set(setup, failpoint)?;
    let objects = setup.cluster.objects.clone();
    // Each change publishes a snapshot.
    let cause = || -> LocalBoxFuture<'static, Result<()>> {
        let objects = objects.clone();
        Box::pin(async move {
            touch_flavor(&objects).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok(())
        })
    };
    expect(setup, &[alert(expected, &[])], cause, async || {
        failpoint.remove()?;
        touch_flavor(&setup.cluster.objects).await
    })
    .await
}

async fn touch_flavor(objects: &ObjectClient) -> Result<()> {
    let labels: Value = json!({"metadata": {"labels": {"touched": format!("{:.0}", now() * 1000.0)}}});
    objects.merge(Kind::FLAVOR, "", "any", &labels).await?;
    Ok(())
}

/// Both replicas are killed.
pub(crate) async fn all_replicas_are_killed(setup: &mut Setup) -> Result<()> {
    let standby = setup.standby.take().context("no standby")?;
    standby.kill();
    let leader = setup.cluster.take_manager().context("no leader")?;
    leader.kill();
    let settings = leader.settings().clone();
    let setup = &*setup;
    let mut restarted = None;
    expect(setup, &[alert("SluiceNoLeader", &[])], nothing, async || {
        restarted = Some(sluice_e2e::manager::Manager::start(&setup.cluster.plane, &settings).await?);
        Ok(())
    })
    .await
}
