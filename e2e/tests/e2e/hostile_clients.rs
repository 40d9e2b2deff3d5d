//! Hostile clients against a release build with half the memory limit of its container.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use kube::Client;
use kube::client::Body;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use sluice_e2e::bench::webhooks::{ca_bundle, manager_client};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cgroup::Cgroup;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE_NAME, ManagerSettings, get};
use sluice_e2e::objects::Kind;
use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// Memory limit in the shipped Deployment.
const MEMORY_LIMIT: u64 = 512 << 20;
/// Maximum resident memory at any time.
const MAX_PEAK_MEMORY: u64 = 300 << 20;
/// Just below the maximum body size.
const LARGEST_BODY: usize = (6 << 20) + (250 << 10);
/// Hostile connections per port and kind.
const CONNECTIONS: usize = 4_096;
/// Concurrent hostile connections: more than the manager allows per port.
const CONCURRENT_CONNECTIONS: usize = 1_500;
/// Concurrent reviews of large objects.
const PARALLEL: usize = 40;
const JOBS: &str = "/validate-batch-v1-job";
const WORKLOADS: &str = "/validate-kueue-x-k8s-io-v1beta2-workload";
const QUEUES: &str = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";

/// Writes a script that joins the group and then executes the manager; returns its path.
fn write_launcher(folder: &Path, confined: Option<&Cgroup>) -> Result<PathBuf> {
    let program = binaries::sluice(Build::Dev)?;
    let mut lines = vec!["#!/bin/sh".to_owned()];
    let members = confined.into_iter().flat_map(Cgroup::members);
    lines.extend(members.map(|members| format!("echo $$ > '{}'", members.display())));
    lines.push(format!("exec '{}' \"$@\"\n", program.display()));
    let script = lines.join("\n");
    let path = folder.join("sluice-confined");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Returns the peak resident memory of a process in bytes.
fn peak_resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

async fn post(client: &Client, path: &str, body: Vec<u8>) -> Result<(u16, Value)> {
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let response = client.send(request.body(Body::from(body))?).await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    Ok((code, serde_json::from_slice(&bytes).unwrap_or_default()))
}

fn review(group: &str, version: &str, object: &Value, old: &Value) -> Vec<u8> {
    let kind = json!({"group": group, "version": version, "kind": object["kind"]});
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "good", "kind": kind, "operation": operation, "namespace": "ns", "object": object, "oldObject": old,
    }})
    .to_string()
    .into_bytes()
}

fn template(variables: usize) -> Value {
    let env: Vec<Value> = (0..variables).map(|n| json!({"name": format!("E{n}"), "value": ""})).collect();
    json!({"spec": {"containers": [{"name": "c", "image": "x", "env": env, "resources": {"requests": {"cpu": "1"}}}]}})
}

fn job(variables: usize) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": template(variables)}})
}

fn workload(variables: usize) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "ns", "uid": "w"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template(variables)}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1}]}}})
}

/// Returns bodies that are small as text and large when decoded, in fields that validation reads and in others.
fn bad_bodies() -> Vec<(&'static str, String)> {
    let list = |item: &str| format!("[{}0]", format!("{item},").repeat(LARGEST_BODY / (item.len() + 1)));
    let nested = |open: &str, close: &str| {
        let depth = LARGEST_BODY / (open.len() + close.len());
        format!("{}0{}", open.repeat(depth), close.repeat(depth))
    };
    let mut values: Vec<String> = [r#"{"":0}"#, "0", r#""""#, "[]"].iter().map(|item| list(item)).collect();
    values.extend([nested("[", "]"), nested(r#"{"":"#, "}")]);
    let labels: Vec<String> = (0..LARGEST_BODY / 12).map(|n| format!(r#""{n:07}":0,"#)).collect();
    let labels = labels.concat();
    values.push(format!(r#"{{{labels}"":0}}"#));
    let contexts = [
        (JOBS, r#"{"request":{"uid":"u","operation":"CREATE","object":"#, "}}"),
        (JOBS, r#"{"request":{"uid":"u","operation":"CREATE","object":{"metadata":{"labels":"#, "}}}}"),
        (WORKLOADS, r#"{"request":{"uid":"u","operation":"CREATE","object":{"spec":{"podSets":"#, "}}}}"),
        (
            WORKLOADS,
            r#"{"request":{"uid":"u","operation":"CREATE","object":{"status":{"conditions":"#,
            "}}}}",
        ),
        (QUEUES, r#"{"request":{"uid":"u","operation":"CREATE","object":{"spec":{"resourceGroups":"#, "}}}}"),
    ];
    let wrapped =
        |value: &String| contexts.map(|(path, before, after)| (path, format!("{before}{value}{after}")));
    values.iter().flat_map(wrapped).collect()
}

/// Sends valid requests until `stop`; each must be answered.
async fn run_good_clients(cluster: &Cluster, stop: &AtomicBool, answered: &AtomicUsize) -> Result<()> {
    let manager = cluster.manager()?;
    let persistent = manager_client(cluster).await?;
    let body = review("batch", "v1", &job(1), &Value::Null);
    while !stop.load(Ordering::Relaxed) {
        let new = manager_client(cluster).await?;
        for client in [&persistent, &new] {
            let (code, response) = post(client, JOBS, body.clone()).await.context("a valid review")?;
            ensure!(code == 200 && response["response"]["allowed"] == true, "{code}: {response}");
        }
        // The shipped readiness probe tolerates one failure.
        if manager.is_ready().await.is_err() {
            manager.is_ready().await.context("two failed probes in a row")?;
        }
        ensure!(manager.metrics().await?.contains("sluice_reviews_in_flight"), "no metrics");
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn connect_from(number: usize, port: u16) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(2 + number % 32)?;
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
    Ok(socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await?)
}

/// Opens connections that send `opening` and then stay silent.
async fn open_silent_connections(port: u16, opening: &str) -> Result<()> {
    let mut open = VecDeque::new();
    for number in 0..CONNECTIONS {
        let mut stream = connect_from(number, port).await?;
        // Ignored: the server may already have closed the connection.
        let _ = stream.write_all(opening.as_bytes()).await;
        open.push_back(stream);
        if open.len() > CONCURRENT_CONNECTIONS {
            open.pop_front();
        }
    }
    Ok(())
}

/// Opens connections that stay silent after the TLS handshake.
async fn open_silent_tls_connections(port: u16, tls: &TlsConnector) -> Result<()> {
    let name = ServerName::try_from("127.0.0.1")?;
    let connect = async |number| {
        let stream = connect_from(number, port).await?;
        anyhow::Ok(tls.connect(name.clone(), stream).await.ok())
    };
    let mut open = VecDeque::new();
    let mut all = stream::iter(0..CONNECTIONS).map(connect).buffer_unordered(8);
    let mut completed = 0;
    while let Some(stream) = all.next().await {
        completed += usize::from(stream.as_ref().is_ok_and(Option::is_some));
        open.push_back(stream?);
        if open.len() > CONCURRENT_CONNECTIONS {
            open.pop_front();
        }
    }
    ensure!(completed > CONNECTIONS / 2, "{completed} of {CONNECTIONS} handshakes were completed");
    Ok(())
}

async fn send_bad_reviews(cluster: &Cluster) -> Result<()> {
    let client = manager_client(cluster).await?;
    for (path, body) in bad_bodies() {
        let requests = (0..4).map(|_| post(&client, path, body.clone().into_bytes()));
        for outcome in futures::future::join_all(requests).await {
            // If the body is refused before it is read, the client may only see a closed connection.
            let code = outcome.map_or(413, |(code, _)| code);
            ensure!([200, 400, 408, 413, 503].contains(&code), "{path} returned {code} for {body:.80}");
        }
    }
    let (job, workload) = (job(105_000), workload(105_000));
    for (path, body) in [
        (JOBS, review("batch", "v1", &job, &job)),
        (WORKLOADS, review("kueue.x-k8s.io", "v1beta2", &workload, &workload)),
    ] {
        let url = format!("{path}?timeout=10s");
        let requests = (0..PARALLEL).map(|_| post(&client, &url, body.clone()));
        let mut reviewed = 0;
        for outcome in futures::future::join_all(requests).await {
            let (code, response) = outcome?;
            ensure!(
                code == 503 || (code == 200 && response["response"]["allowed"] == true),
                "{code}: {response:.200}"
            );
            reviewed += usize::from(code == 200);
        }
        note(format_args!(
            "{reviewed} of {PARALLEL} reviews of {} bytes on {path} were completed",
            body.len()
        ));
        ensure!(reviewed > 0, "no review was completed");
    }
    Ok(())
}

async fn open_connection_floods(cluster: &Cluster) -> Result<()> {
    let manager = cluster.manager()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle(cluster).await?.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));
    let webhooks = manager.settings().webhook_port;
    for port in [manager.health_port(), webhooks, manager.metrics_port()] {
        for opening in ["", "GET /livez HTTP/1.1\r\nhost:", "PRI * HTTP/2.0\r\n\r\n"] {
            open_silent_connections(port, opening)
                .await
                .with_context(|| format!("port {port} {opening:?}"))?;
        }
    }
    open_silent_tls_connections(webhooks, &tls).await
}

/// Bodies that expand in memory, forty large reviews at a time, and thousands of silent connections: valid clients are
/// answered on every port throughout, the lease keeps its holder, and memory stays within its limit.
pub(crate) async fn good_clients_are_still_answered(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    sluice::kube::cryptography::install();
    rlimit::increase_nofile_limit(u64::MAX)?;
    let cgroup = Cgroup::with_memory(MEMORY_LIMIT);
    let program = write_launcher(cluster.plane.folder(), cgroup.as_ref())?;
    let mut settings = ManagerSettings { program, ..cluster.manager()?.settings().clone() };
    settings.flags.push("--metrics-insecure".to_owned());
    let old = cluster.replace_manager(&settings).await?;
    let pid = cluster.manager()?.process().identity().pid;
    let lease = async || fixture.objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await;
    sluice_e2e::wait::eventually("the manager leads", async || {
        let page = cluster.manager()?.metrics().await?;
        ensure!(page.contains(r#"replica_role="leader""#), "not yet");
        Ok(())
    })
    .await?;
    let before = lease().await?["spec"]["leaseTransitions"].clone();
    note(format_args!("{} MiB resident at most after the start", peak_resident(pid)? >> 20));

    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let attack = async {
        let outcome = async {
            send_bad_reviews(cluster).await?;
            note(format_args!("{} MiB after bodies", peak_resident(pid)? >> 20));
            open_connection_floods(cluster).await
        };
        let outcome = outcome.await;
        stop.store(true, Ordering::Relaxed);
        outcome
    };
    let (attack_outcome, good_outcome) = tokio::join!(attack, run_good_clients(cluster, &stop, &answered));
    good_outcome?;
    attack_outcome?;
    cluster.manager()?.process().check()?;
    let (peak, rounds) = (peak_resident(pid)?, answered.load(Ordering::Relaxed));
    note(format_args!("{} MiB resident at most, {rounds} rounds of valid requests", peak >> 20));
    ensure!(peak < MAX_PEAK_MEMORY, "{} MiB were resident", peak >> 20);
    ensure!(rounds > 20, "only {rounds} rounds of valid requests");
    let after = lease().await?["spec"]["leaseTransitions"].clone();
    ensure!(before == after, "leaseTransitions changed from {before} to {after}");
    let (code, body) = get(cluster.manager()?.health_port(), "/livez").await?;
    ensure!(code == 200, "/livez returned {code}: {body}");
    cluster.replace_manager(&old).await.map(drop)
}
