//! Externally managed certificates, invalid certificates, client certificates of webhook callers, and another
//! namespace.

use crate::cases::note;
use crate::certificates::{CA_SECRET, SERVING_SECRET, certificate, create_load};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};
use sluice::kube::pki::{self, PemPair};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::kubeconfig::{anonymous, base64};
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient};
use sluice_e2e::wait::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_hours(24);

/// Terminates the manager and starts one with changed settings; returns it with the previous settings.
async fn replace_manager(
    cluster: &mut Cluster,
    change: impl FnOnce(&mut ManagerSettings),
) -> Result<(Manager, ManagerSettings)> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let mut settings = old.settings().clone();
    change(&mut settings);
    settings.flags.push("--metrics-insecure".to_owned());
    Ok((Manager::start(&cluster.plane, &settings).await?, old.settings().clone()))
}

async fn restore_manager(cluster: &mut Cluster, manager: Manager, settings: &ManagerSettings) -> Result<()> {
    manager.terminate();
    cluster.start_manager(settings).await
}

/// With a client CA, the API server is answered; clients without a certificate or with one of another CA are refused.
pub(crate) async fn only_api_server_is_answered(cluster: &mut Cluster, _: &Fixture) -> Result<()> {
    let file = cluster.plane.folder().join("webhook-callers.crt");
    std::fs::write(&file, cluster.plane.webhook_client_ca())?;
    let flag = format!("--webhook-client-ca={}", file.display());
    let (manager, settings) = replace_manager(cluster, |settings| settings.flags.push(flag)).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    let secret = cluster.objects.must_get(Kind::SECRET, NAMESPACE, SERVING_SECRET).await?;
    let ca: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["ca.crt"].clone())?;
    let ca = String::from_utf8(ca.0)?;
    let server = format!("https://127.0.0.1:{}", manager.settings().webhook_port);
    let trusted_client = cluster.plane.webhook_client_credentials(&server, &ca, true)?.client().await?;
    send_review(&trusted_client).await.context("a client with a trusted certificate")?;
    for (credential, client) in [
        ("no certificate", anonymous(&server, &ca)?),
        (
            "a certificate of another CA",
            cluster.plane.webhook_client_credentials(&server, &ca, false)?.client().await?,
        ),
    ] {
        match tokio::time::timeout(Duration::from_secs(20), send_review(&client)).await {
            Ok(Ok(response)) => bail!("a client with {credential} got a response: {response}"),
            Ok(Err(error)) => note(format_args!("{credential}: {error:#}")),
            Err(_) => bail!("a client with {credential} is not refused"),
        }
    }
    // The API server still gets responses after refused clients.
    cluster.wait_for_webhooks().await?;
    restore_manager(cluster, manager, &settings).await
}

async fn send_review(client: &Client) -> Result<String> {
    let body =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}});
    let request = Request::post("/validate-kueue-x-k8s-io-v1beta2-resourceflavor")
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())?;
    Ok(client.request_text(request).await?)
}

fn authority() -> Result<PemPair> {
    Ok(pki::new_ca(Timestamp::now().saturating_sub(DAY)?, 30 * DAY)?)
}

fn leaf(authority: &PemPair, names: &[&str], issued_at: Timestamp, lifetime: Duration) -> Result<PemPair> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Ok(pki::new_leaf(authority, Timestamp::MAX, &names, issued_at, lifetime)?)
}

/// Stores a certificate in the Secret, as cert-manager does.
async fn store_certificate(objects: &ObjectClient, leaf: &PemPair, authority: &PemPair) -> Result<()> {
    let parts = json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate});
    objects.merge(Kind::SECRET, NAMESPACE, SERVING_SECRET, &json!({"stringData": parts})).await?;
    Ok(())
}

/// Writes these authorities to the caBundle of all webhooks, as cert-manager's injector does.
async fn publish_bundle(objects: &ObjectClient, trusted: &[&PemPair]) -> Result<()> {
    let pem: String = trusted.iter().map(|authority| authority.certificate.as_str()).collect();
    let bundle = serde_json::to_value(k8s_openapi::ByteString(pem.into_bytes()))?;
    for kind in [Kind::MUTATING_WEBHOOKS, Kind::VALIDATING_WEBHOOKS] {
        let api = objects.api(kind, "");
        for mut object in api.list(&kube::api::ListParams::default()).await?.items {
            for webhook in object.data["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = bundle.clone();
            }
            let name = object.metadata.name.clone().unwrap_or_default();
            api.replace(&name, &PostParams::default(), &object).await?;
        }
    }
    Ok(())
}

/// How long a replica may stay in the Service whose certificate the API server does not accept.
const MOST_UNTRUSTED: Duration = Duration::from_secs(30);

/// Waits until the manager is not ready with a reason that contains `words`; prints how long it took. An error if it took too long.
async fn wait_until_not_ready(manager: &Manager, what: &str, words: &str) -> Result<()> {
    let begun = Instant::now();
    eventually(format!("the manager is not ready: {what}"), async || match manager.is_ready().await {
        Ok(()) => bail!("the manager is ready"),
        Err(error) => {
            let reason = format!("{error:#}");
            ensure!(reason.contains(words), "{reason}");
            Ok(())
        }
    })
    .await?;
    let taken = begun.elapsed();
    ensure!(taken < MOST_UNTRUSTED, "{what}: ready for another {:.1} s", taken.as_secs_f64());
    note(format_args!("{what}: not ready after {:.1} s", taken.as_secs_f64()));
    Ok(())
}

/// Externally managed certificates: a renewal under load causes no failure although the bundles are updated later; a
/// wrong authority and expired or not yet valid certificates make the manager not ready, with the reason.
pub(crate) async fn externally_managed_certificates(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let objects = &fixture.objects;
    let (old, new, foreign) = (authority()?, authority()?, authority()?);
    let now = Timestamp::now;
    let first = leaf(&old, &["127.0.0.1"], now().saturating_sub(DAY)?, 10 * DAY)?;
    let external = |settings: &mut ManagerSettings| {
        settings.configuration["internalCertManagement"] = json!({"enable": false});
    };
    let (manager, settings) = replace_manager(cluster, external).await?;
    store_certificate(objects, &first, &old).await?;
    publish_bundle(objects, &[&old]).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn(create_load(objects.clone(), Arc::clone(&stop), Arc::clone(&done)));
    let second = leaf(&new, &["127.0.0.1"], now(), 10 * DAY)?;
    store_certificate(objects, &second, &new).await?;
    wait_for_metric(&manager, "sluice_serving_certificate_held_back 1").await?;
    manager.is_ready().await.context("not ready although the previous certificate is still served")?;
    publish_bundle(objects, &[&old, &new]).await?;
    wait_for_metric(&manager, "sluice_serving_certificate_held_back 0").await?;
    let expiry = pki::certificates(second.certificate.as_bytes());
    let expiry = expiry.first().context("no certificate")?.info.not_after.as_second();
    wait_for_metric(&manager, &format!("sluice_serving_certificate_expiry_timestamp_seconds {expiry}"))
        .await?;
    // From now on the API server opens connections with the new certificate.
    let before = done.load(Ordering::Acquire);
    eventually("creates continue", async || {
        let new_creates = done.load(Ordering::Acquire) - before;
        ensure!(new_creates > 100, "{new_creates} creates since the renewal");
        Ok(())
    })
    .await?;
    stop.store(true, Ordering::Release);
    load.await?.context("a create failed during the renewal")?;
    manager.is_ready().await?;

    publish_bundle(objects, &[&foreign]).await?;
    wait_until_not_ready(&manager, "wrong authority", "not signed by a valid CA in the caBundle").await?;
    publish_bundle(objects, &[&new]).await?;
    manager.wait_until_ready().await?;
    let short = leaf(&new, &["127.0.0.1"], now(), Duration::from_secs(10))?;
    store_certificate(objects, &short, &new).await?;
    wait_until_not_ready(&manager, "expired (lifetime 10 s)", "certificate expired at").await?;
    let early = leaf(&new, &["127.0.0.1"], now().saturating_add(SignedDuration::from_hours(2))?, DAY)?;
    store_certificate(objects, &early, &new).await?;
    manager.terminate();
    let manager = Manager::start(&cluster.plane, manager.settings()).await?;
    wait_until_not_ready(&manager, "not yet valid", "not valid now").await?;
    let other = leaf(&new, &["localhost"], now(), DAY)?;
    store_certificate(objects, &other, &new).await?;
    wait_until_not_ready(&manager, "another name", "not valid for the name 127.0.0.1").await?;

    // Internally managed again: the stored certificate lacks the name that webhooks use, so it is replaced at once.
    restore_manager(cluster, manager, &settings).await?;
    let stored = certificate(objects).await?;
    ensure!(stored != base64(other.certificate.as_bytes()), "the certificate was not replaced");
    Ok(())
}

async fn wait_for_metric(manager: &Manager, line: &str) -> Result<()> {
    eventually(format!("metrics show {line}"), async || {
        let page = manager.metrics().await?;
        ensure!(page.lines().any(|shown| shown == line), "line not found");
        Ok(())
    })
    .await
}

/// The manifests of a kustomization for another namespace work, on their own control plane.
pub(crate) async fn other_namespace_installation(_: &mut Cluster, _: &Fixture) -> Result<()> {
    use sluice_e2e::{binaries, cluster, control_plane, install, kubectl::Kubectl, paths, process};
    let namespace = "batch-queues";
    let folder = control_plane::ControlPlane::temporary_folder().with_extension("namespace");
    let plane = control_plane::ControlPlane::start(control_plane::Extent::Api, &folder).await?;
    let objects = ObjectClient::new(plane.admin().await?);
    let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
    // kustomize accepts only relative paths.
    let overlay = paths::root().join("target").join(format!("overlay-{}", std::process::id()));
    std::fs::create_dir_all(&overlay)?;
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": namespace,
        "resources": ["../../config/default"], "transformers": ["../../config/namespace"],
    });
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string())?;
    let manifests = kubectl.run(&["kustomize", &overlay.display().to_string()]);
    std::fs::remove_dir_all(&overlay)?;
    let manifests = manifests?;
    ensure!(!manifests.contains(NAMESPACE), "the manifests still contain {NAMESPACE}");
    let all: Vec<Value> = serde_saphyr::from_multiple(&manifests).context("invalid YAML")?;
    let port = process::free_ports(1)?.first().copied().context("no port")?;
    install::install_all(&kubectl, &objects, port, all).await?;
    let settings = ManagerSettings {
        name: "elsewhere".to_owned(),
        program: binaries::sluice(binaries::Build::Dev)?,
        webhook_port: port,
        configuration: Value::Null,
        flags: Vec::new(),
        api_server_url: None,
        namespace: namespace.to_owned(),
    };
    let manager = Manager::start(&plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster::wait_for_webhooks(&objects).await?;
    for (kind, name) in [
        (Kind::SECRET, SERVING_SECRET),
        (Kind::SECRET, CA_SECRET),
        (Kind::LEASE, sluice_e2e::manager::LEASE_NAME),
    ] {
        eventually(format!("{name} exists in {namespace}"), async || {
            objects.must_get(kind, namespace, name).await.map(drop)
        })
        .await?;
    }
    // Without a manager, Jobs with a queue name are refused, except in the manager's namespace, where it must be able
    // to start.
    manager.terminate();
    let job = |namespace: &str| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"namespace": namespace, "name": "queued", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"template": {"spec": pod}}})
    };
    objects
        .create(Kind::JOB, &job(namespace))
        .await
        .context("a Job in the manager's namespace was refused")?;
    let queued = objects.create(Kind::JOB, &job("default")).await;
    ensure!(queued.is_err(), "a Job with a queue name was accepted without a manager");
    Ok(())
}
