//! A running manager whose core hangs, whose permissions are removed, or whose lease is renewed under hostile
//! connections.

use crate::cases::note;
use crate::crashes::{lease_holder, wait_for_other_holder};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings, failpoints_folder};
use sluice_e2e::objects::{Kind, ObjectClient, number, text};
use sluice_e2e::wait::{eventually, scaled_duration};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// If the core of the leader hangs, its process exits and the standby takes over. If the core of a standby hangs, its
/// process exits without changing the lease.
pub(crate) async fn hung_core_is_replaced(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let script = failpoints_folder(&cluster.plane);
    fs::create_dir_all(&script)?;
    let before = cluster.manager()?.settings().clone();
    let settings = ManagerSettings { program: binaries::sluice(Build::Failpoints)?, ..before.clone() };
    cluster.replace_manager(&settings).await?;
    let first = cluster.take_manager().context("no manager")?;
    let led = eventually("the manager leads", async || {
        let holder = lease_holder(&fixture.objects).await?;
        ensure!(holder.contains(&format!("_{}-", first.process().identity().pid)), "{holder} leads");
        Ok(holder)
    })
    .await?;
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("one", "main", "1")).await?;
    fixture.wait_until_running("one").await?;

    let standby = ManagerSettings { name: "standby".to_owned(), webhook_port: 0, ..settings.clone() };
    let second = Manager::start(&cluster.plane, &standby).await?;
    second.wait_until_ready().await?;
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    balancer.set_backends(vec![second.settings().webhook_port]);
    let transitions = self::transitions(&fixture.objects).await?;
    let begun = Instant::now();
    hang_core(&script, &first)?;
    let led = wait_for_other_holder(&fixture.objects, &led).await?;
    note(format_args!("taken over {:.1} s after the core hung", begun.elapsed().as_secs_f64()));
    wait_until_exited("the hung leader", &first).await?;
    ensure!(self::transitions(&fixture.objects).await? == transitions + 1, "more than one change of holder");
    fixture.submit(fixture.job("two", "main", "1")).await?;
    fixture.wait_until_pending("two", "WaitingForQuota").await?;
    fixture.finish_job("one").await?;
    fixture.wait_until_running("two").await?;

    let third =
        Manager::start(&cluster.plane, &ManagerSettings { name: "third".to_owned(), ..standby }).await?;
    third.wait_until_ready().await?;
    hang_core(&script, &third)?;
    wait_until_exited("the hung standby", &third).await?;
    ensure!(lease_holder(&fixture.objects).await? == led, "the leader lost the lease");
    fixture.finish_job("two").await?;
    second.terminate();
    if let Some(balancer) = &cluster.balancer {
        balancer.set_backends(vec![before.webhook_port]);
    }
    cluster.start_manager(&before).await
}

fn hang_core(script: &std::path::Path, manager: &Manager) -> Result<()> {
    fs::write(script.join(format!("core.{}.hangs", manager.process().identity().pid)), "")?;
    Ok(())
}

async fn wait_until_exited(what: &str, manager: &Manager) -> Result<()> {
    eventually(format!("{what} has exited"), async || {
        ensure!(manager.process().check().is_err(), "it is still running");
        Ok(())
    })
    .await?;
    let log = fs::read_to_string(manager.log())?;
    ensure!(log.contains("progress"), "{what} does not log why it exits");
    Ok(())
}

async fn lease(objects: &ObjectClient) -> Result<Value> {
    objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await
}

async fn transitions(objects: &ObjectClient) -> Result<i64> {
    Ok(number(&lease(objects).await?, "/spec/leaseTransitions"))
}

/// The lease is renewed while clients start handshakes, send junk and open silent connections, on all ports.
pub(crate) async fn lease_survives_hostile_clients(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let before = cluster.manager()?.settings().clone();
    let flags = vec!["--metrics-insecure".to_owned()];
    cluster.replace_manager(&ManagerSettings { flags, ..before.clone() }).await?;
    let manager = cluster.manager()?;
    let led = eventually("the manager leads", async || {
        let holder = lease_holder(&fixture.objects).await?;
        ensure!(holder.contains(&format!("_{}-", manager.process().identity().pid)), "{holder} leads");
        Ok(holder)
    })
    .await?;
    let transitions = self::transitions(&fixture.objects).await?;
    let (webhook_port, other_ports) = (manager.settings().webhook_port, manager.ports());
    let mut clients = Vec::new();
    for client in 0..32_usize {
        clients.push(tokio::spawn(open_handshakes(webhook_port)));
        let port = [other_ports.0, other_ports.1, webhook_port][client % 3];
        clients.push(tokio::spawn(open_silent_connections(port)));
    }
    // Ten times the lease duration of this test, or the whole time in a soak run.
    let (begun, length) = (Instant::now(), scaled_duration(Duration::from_mins(4)));
    let (mut renewals, mut seen, mut longest) = (BTreeSet::new(), Instant::now(), Duration::ZERO);
    while begun.elapsed() < length {
        let lease = lease(&fixture.objects).await?;
        ensure!(text(&lease, "/spec/holderIdentity") == led, "the leader lost the lease: {}", lease["spec"]);
        if renewals.insert(text(&lease, "/spec/renewTime").to_owned()) {
            longest = longest.max(seen.elapsed());
            seen = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for client in clients {
        client.abort();
    }
    manager.process().check()?;
    let after = self::transitions(&fixture.objects).await?;
    ensure!(after == transitions, "{} changes of holder", after - transitions);
    ensure!(renewals.len() > 2, "{} renewals", renewals.len());
    note(format_args!("{} renewals, the longest pause {:.1} s", renewals.len(), longest.as_secs_f64()));
    cluster.replace_manager(&before).await.map(drop)
}

/// Starts handshakes one after another and completes none, after the server has computed its keys.
async fn open_handshakes(port: u16) {
    let hello = client_hello();
    let mut answer = vec![0; 4096];
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await
            && stream.write_all(&hello).await.is_ok()
        {
            // Ignored: the server may close the connection.
            let _ = stream.read(&mut answer).await;
            let _ = stream.write_all(b"junk in the place of a record").await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Opens connections and sends nothing.
async fn open_silent_connections(port: u16) {
    let mut open = Vec::new();
    while open.len() < 16 {
        open.extend(TcpStream::connect(("127.0.0.1", port)).await.ok());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    std::future::pending::<()>().await;
}

/// Builds the first message of a TLS 1.3 client, with a curve that the server supports and a point on it.
fn client_hello() -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, body: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(u16::try_from(body.len()).unwrap_or_default().to_be_bytes());
        extensions.extend(body);
    };
    extension(43, &[2, 3, 4]);
    extension(10, &[0, 2, 0, 29]);
    extension(13, &[0, 6, 4, 3, 8, 4, 8, 7]);
    let mut share = vec![0, 36, 0, 29, 0, 32];
    // The base point of the curve.
    share.push(9);
    share.extend([0; 31]);
    extension(51, &share);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0x13, 0x01, 0x13, 0x02, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap_or_default().to_be_bytes());
    body.extend(extensions);
    let mut hello = vec![1, 0];
    hello.extend(u16::try_from(body.len()).unwrap_or_default().to_be_bytes());
    hello.extend(body);
    let mut record = vec![0x16, 3, 1];
    record.extend(u16::try_from(hello.len()).unwrap_or_default().to_be_bytes());
    record.extend(hello);
    record
}

const ROLE: &str = "kueue-manager-role";

/// A missing write permission is reported once in the log and in a metric; webhooks keep answering. A missing
/// permission that webhooks need makes the replica not ready. The manager detects when either is restored.
pub(crate) async fn missing_permission_is_reported(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let before = cluster.manager()?.settings().clone();
    let flags = vec!["--metrics-insecure".to_owned()];
    cluster.replace_manager(&ManagerSettings { name: "rights".to_owned(), flags, ..before.clone() }).await?;
    let manager = cluster.manager()?;
    let role = fixture.objects.must_get(Kind::CLUSTER_ROLE, "", ROLE).await?;
    let rules = role["rules"].clone();
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;

    set_rules(&fixture.objects, &rules_without(&rules, "jobs", "patch")).await?;
    wait_for_missing_permission(manager, r#"resource="jobs""#, r#"verb="patch""#, true).await?;
    manager.is_ready().await.context("not ready although only a write permission is missing")?;
    fixture.submit(fixture.job("reserving", "main", "1")).await?;
    fixture.wait_for_condition("reserving", "QuotaReserved", "True", "QuotaReserved").await?;
    eventually("the refused write is logged", async || {
        let log = fs::read_to_string(manager.log())?;
        ensure!(log.contains("write refused"), "not logged yet");
        Ok(())
    })
    .await?;
    let log = fs::read_to_string(manager.log())?;
    ensure!(log.matches("missing RBAC permissions; apply").count() == 1, "not reported exactly once:\n{log}");
    set_rules(&fixture.objects, &rules).await?;
    wait_for_missing_permission(manager, r#"resource="jobs""#, r#"verb="patch""#, false).await?;
    fixture.wait_until_running("reserving").await?;
    fixture.finish_job("reserving").await?;

    set_rules(&fixture.objects, &rules_without(&rules, "localqueues", "list")).await?;
    wait_for_missing_permission(manager, r#"resource="localqueues""#, r#"needed_by="webhooks""#, true)
        .await?;
    ensure!(manager.is_ready().await.is_err(), "ready although webhooks lack a permission");
    set_rules(&fixture.objects, &rules).await?;
    wait_for_missing_permission(manager, r#"resource="localqueues""#, r#"needed_by="webhooks""#, false)
        .await?;
    manager.wait_until_ready().await?;
    let metrics = manager.metrics().await?;
    for name in ["sluice_watch_age_seconds", "sluice_core_channel_capacity", "process_resident_memory_bytes"]
    {
        ensure!(metrics.lines().any(|line| line.starts_with(name)), "{name} is not exposed");
    }
    cluster.replace_manager(&before).await.map(drop)
}

/// A field of the configuration that is not known ends the start; the last line of the log names it.
pub(crate) async fn unknown_configuration_field_stops_start(
    cluster: &mut Cluster,
    _: &Fixture,
) -> Result<()> {
    let mut settings = ManagerSettings {
        name: "unknown-field".to_owned(),
        webhook_port: 0,
        ..cluster.manager()?.settings().clone()
    };
    settings.configuration["webhook"] = json!({"prot": 9443});
    let manager = Manager::start(&cluster.plane, &settings).await?;
    eventually("the manager ends", async || {
        ensure!(manager.process().check().is_err(), "it still runs");
        Ok(())
    })
    .await?;
    let log = fs::read_to_string(manager.log())?;
    let last = log.lines().last().unwrap_or_default();
    ensure!(last.contains("webhook.prot: unknown field"), "the log ends: {last}");
    Ok(())
}

/// Returns the rules without this verb on this resource.
fn rules_without(rules: &Value, resource: &str, verb: &str) -> Value {
    let named =
        |rule: &Value, what: &str| rule["resources"].as_array().is_some_and(|r| r.iter().any(|r| r == what));
    let mut changed = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        if !named(rule, resource) {
            changed.push(rule.clone());
            continue;
        }
        let (mut rest, mut edited) = (rule.clone(), rule.clone());
        if let Some(resources) = rest["resources"].as_array_mut() {
            resources.retain(|entry| entry != resource);
        }
        edited["resources"] = json!([resource]);
        if let Some(verbs) = edited["verbs"].as_array_mut() {
            verbs.retain(|entry| entry != verb);
        }
        let real = |rule: &Value, field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
        changed
            .extend([rest, edited].into_iter().filter(|rule| real(rule, "resources") && real(rule, "verbs")));
    }
    Value::from(changed)
}

async fn set_rules(objects: &ObjectClient, rules: &Value) -> Result<()> {
    objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": rules})).await?;
    Ok(())
}

pub(crate) async fn wait_for_missing_permission(
    manager: &Manager,
    resource: &str,
    label: &str,
    reported: bool,
) -> Result<()> {
    eventually(format!("{resource} {label} is reported as missing: {reported}"), async || {
        let metrics = manager.metrics().await?;
        let is_match = |line: &&str| {
            line.starts_with("sluice_missing_permissions{") && line.contains(resource) && line.contains(label)
        };
        let found: Vec<&str> = metrics.lines().filter(is_match).collect();
        ensure!(found.is_empty() != reported, "{found:?}");
        Ok(())
    })
    .await
}
