//! Metrics, alerts and dashboards on a real control plane with a real Prometheus: `make metrics-test`.
//!
//! A scripted load with known numbers; each query of the dashboards must return the expected value, and no alert may fire.
//! Then one fault for each alert: exactly that alert fires. Times of the alerts are divided by 20.
//!
//! `cargo test --test metrics -- WORD...` runs the parts whose names contain a word.
#![expect(clippy::disallowed_methods, reason = "tests wait and run programs")]
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "indexing JSON by a missing key returns null, and this harness prints"
)]

mod expected;
mod faults;
mod hours;
mod load;
mod page;
mod prometheus;
mod setup;
mod slow_client;

use anyhow::{Context as _, Result, ensure};
use expected::Facts;
use faults::Issuer;
use futures::future::FutureExt as _;
use load::Load;
use page::{Change, Page};
use prometheus::{SCRAPE, now};
use serde_json::json;
use setup::Setup;
use sluice_e2e::audit::AuditCursor;
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::process::ProcessUsage;
use sluice_e2e::signals;
use sluice_e2e::wait::eventually;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MANAGER: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";

/// Time between the ends of the window of queries and the nearest samples, which Prometheus moves by up to 2 ms.
const MARGIN: Duration = Duration::from_millis(15);

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--list") {
        println!("metrics: test");
        return ExitCode::SUCCESS;
    }
    match signals::interruptible(run().boxed_local()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let begun = Instant::now();
    let mut setup = Setup::start().await?;
    println!("ready after {:.0} s", begun.elapsed().as_secs_f64());
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let outcome = check_all(&mut setup, wanted).await;
    if outcome.is_err() {
        setup::keep_logs(&mut setup);
    }
    outcome?;
    println!("as expected; {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn check_all(setup: &mut Setup, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let load = Load::prepare(setup.cluster.objects.clone()).await?;
    if wanted("queries") {
        check_without_fault(setup, &load).await?;
    }
    if wanted("writes_are_refused") {
        faults::writes_are_refused(setup, &load).await?;
    }
    if wanted("reservations_conflict") {
        faults::reservations_conflict(setup, &load).await?;
    }
    if wanted("watch_is_held") {
        faults::watch_is_held(setup).await?;
    }
    if wanted("reviews_are_slow") {
        faults::reviews_are_slow(setup).await?;
    }
    if wanted("reviews_are_refused") {
        faults::reviews_are_refused(setup).await?;
    }
    if wanted("permission_is_removed") {
        faults::permission_is_removed(setup).await?;
    }
    if wanted("ledger_drifts") || wanted("wakeups_are_lost") {
        let mut settings = setup.stop_replicas()?;
        settings.program = binaries::sluice(Build::Failpoints)?;
        setup.start_replicas(&settings).await?;
        faults::wait_for_silence(setup).await?;
        if wanted("wakeups_are_lost") {
            faults::wakeups_are_lost(setup, &load).await?;
        }
        if wanted("ledger_drifts") {
            faults::ledger_drifts(setup).await?;
        }
    }
    if wanted("certificates") {
        let mut settings = setup.stop_replicas()?;
        settings.configuration["internalCertManagement"] = json!({"enable": false});
        let issuer = Issuer::start(setup).await?;
        setup.start_replicas(&settings).await?;
        faults::wait_for_silence(setup).await?;
        issuer.certificate_ends_soon(setup).await?;
        issuer.bundle_is_overwritten(setup).await?;
    }
    if wanted("all_replicas_are_killed") {
        faults::all_replicas_are_killed(setup).await?;
    }
    Ok(())
}

/// The load: each query returns its expected value, and no alert fires.
async fn check_without_fault(setup: &Setup, load: &Load) -> Result<()> {
    let begin = now();
    check_queries(setup, load).await?;
    hours::are_the_integral(setup).await?;
    load.delete_all().await?;
    let fired = setup.prometheus.fired_since(begin).await?;
    ensure!(fired.is_empty(), "{fired:?} fired without a fault");
    for (name, expression) in &setup.prometheus.rules {
        let found = setup.prometheus.query(expression, now()).await?;
        ensure!(found.is_empty(), "{name} is true without a fault: {found:?}");
    }
    println!("no alert fired in {:.0} s of load, and no condition is true", now() - begin);
    Ok(())
}

/// Runs the load and compares each query of the dashboards.
async fn check_queries(setup: &Setup, load: &Load) -> Result<()> {
    load.warm_up().await?;
    let [leader, standby] = quiet_pages(setup).await?;
    let mut audit = setup.cluster.audit()?;
    let (usage, read_at) = (usage(setup)?, Instant::now());
    tokio::time::sleep(SCRAPE).await;
    let begin = now();
    tokio::time::sleep(SCRAPE).await;
    load.run().await?;
    let [leader_after, standby_after] = quiet_pages(setup).await?;
    let (usage_after, usage_time) = (self::usage(setup)?, read_at.elapsed());
    tokio::time::sleep(SCRAPE).await;
    // The window begins and ends just outside of two samples, so that almost nothing is extrapolated.
    let instances = setup.instances();
    let last = setup.prometheus.query("timestamp(sluice_leader)", now()).await?;
    let time = *last.get(&format!("instance={}", instances[0])).context("the leader is not scraped")?;
    let time = time + MARGIN.as_secs_f64();
    let window = Duration::from_secs(Duration::from_secs_f64(time - begin).as_secs()) + 2 * MARGIN;
    expected::check_standby_exports_queues(&standby_after)?;
    let facts = Facts {
        leader: Change { before: leader, after: leader_after },
        standby: Change { before: standby, after: standby_after },
        instances,
        usage: [(usage[0], usage_after[0]), (usage[1], usage_after[1])],
        pids: setup.pids()?,
        usage_time,
        time,
        window,
    };
    check_writes_against_audit(&mut audit, &facts.leader)?;
    let count = expected::check_dashboards(&setup.prometheus, &facts).await?;
    println!("{count} queries of the dashboards return the expected values over {} s", window.as_secs());
    Ok(())
}

/// Waits until the counters of the load no longer change; returns the metrics of leader and standby.
async fn quiet_pages(setup: &Setup) -> Result<[Page; 2]> {
    eventually("the counters no longer change", async || {
        let before = setup.pages().await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let after = setup.pages().await?;
        ensure!(before[0].load_counters() == after[0].load_counters(), "they change");
        Ok(after)
    })
    .await
}

fn usage(setup: &Setup) -> Result<[ProcessUsage; 2]> {
    let [leader, standby] = setup.pids()?;
    Ok([ProcessUsage::of_process(leader)?, ProcessUsage::of_process(standby)?])
}

/// The writes that the metrics count are those that the API server has received.
fn check_writes_against_audit(audit: &mut AuditCursor, leader: &Change) -> Result<()> {
    let counted = leader.increase("sluice_writes_total", &["outcome"]);
    let counted = counted.get("outcome=done").copied().unwrap_or_default();
    let writes = audit.new_writes_by(MANAGER)?;
    let own = |resource: &str| !["events", "leases", "secrets"].contains(&resource);
    let received =
        writes.iter().filter(|write| own(&write.resource) && (200..300).contains(&write.code)).count();
    let received = f64::from(u32::try_from(received)?);
    ensure!(
        (counted - received).abs() < 0.5 && counted > 20.0,
        "{counted} writes are counted, {received} were received"
    );
    Ok(())
}
