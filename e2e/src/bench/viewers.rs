//! What viewers of the dashboard cost: each page with 50 viewers at once, and 50 open pages that follow the objects, with many pending
//! Workloads in many queues. The manager serves the pages itself, so that all of the cost is in one process; how long webhooks and
//! cycles take beside the viewers and without; and the memory of a manager that keeps no history.

use super::api_server_only::ApiServerOnly;
use super::cycle_times::CycleTimes;
use super::sizing::{prepare, queue_name, run_jobs, wait_until_counted};
use super::webhooks::{self, percentile};
use crate::control_plane::ControlPlane;
use crate::dashboard::Viewer;
use crate::install::apply;
use crate::kubectl::Kubectl;
use crate::manager::Manager;
use crate::objects::{Kind, text};
use crate::process::ProcessUsage;
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times that each viewer asks for each page.
const ROUNDS: usize = 20;
/// Time for which CPU is measured.
const WATCHED: Duration = Duration::from_secs(30);
/// How long the manager may list all objects.
const START: Duration = Duration::from_mins(10);
/// How long a viewer reads: the rate of questions about workloads of all users together is bounded.
const PAUSE: Duration = Duration::from_secs(1);
/// Reviews a second while webhooks are measured.
const REVIEWS: u32 = 50;
/// Time for which they are measured.
const REVIEWED: Duration = Duration::from_secs(20);
/// Role of all viewers.
const ROLE: &str = "sluice-cluster-viewer";

/// Prints one line for each page, and what the manager uses without viewers and with open pages.
pub async fn run(jobs: usize, queues: usize, viewers: usize) -> Result<()> {
    let mut bare = ApiServerOnly::start(None, &ControlPlane::temporary_folder(), Value::Null).await?;
    bare.settings.flags.push("--metrics-insecure".to_owned());
    let originals = prepare(&bare, queues, None).await?;
    originals.copy(&bare.plane, 1..jobs, queues).await?;
    let manager = started(&bare, jobs).await?;
    let pid = manager.process().identity().pid;
    let users = users(&bare, manager.dashboard_port(), viewers)?;
    println!("{jobs} pending Workloads, {queues} queues, {viewers} viewers; ms, kB");
    let alone = usage(pid, WATCHED).await?;
    println!("page                p50     p99     kB   gzip");
    let workloads =
        bare.objects.list(Kind::WORKLOAD, super::scenario::NAMESPACE, "kueue.x-k8s.io/job-uid").await?;
    let workload = workloads.get(workloads.len() / 2).context("no Workload")?;
    for (name, path) in pages(text(workload, "/metadata/namespace"), text(workload, "/metadata/name")) {
        println!("{}", measure(name, &path, &users).await?);
    }
    let watched = open_pages(pid, &users).await?;
    println!(
        "manager without viewers: {} m, {} MiB; with {viewers} open pages: {} m, {} MiB",
        alone.0, alone.1, watched.0, watched.1
    );
    println!("without viewers: {}", latencies(&bare, &manager, (queues, 0)).await?);
    let reading: Vec<_> = users.into_iter().map(|user| tokio::spawn(read(user))).collect();
    let beside = latencies(&bare, &manager, (queues, 1)).await;
    for viewer in &reading {
        viewer.abort();
    }
    println!("beside {viewers} viewers, a page a second each: {}", beside?);
    manager.terminate();
    bare.settings.flags.push("--history-ring=0".to_owned());
    let manager = started(&bare, jobs).await?;
    let without = ProcessUsage::of_process(manager.process().identity().pid)?;
    println!("a manager without history: {} MiB", without.resident_mib);
    manager.terminate();
    Ok(())
}

/// Starts a manager, and waits until it has counted all Workloads and written the statuses of queues.
pub(super) async fn started(bare: &ApiServerOnly, jobs: usize) -> Result<Manager> {
    let manager = Manager::start(&bare.plane, &bare.settings).await?;
    within(START, "the manager is ready", async || manager.is_ready().await).await?;
    wait_until_counted(&bare.objects, jobs).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(manager)
}

/// Asks for pages until it is aborted.
async fn read(user: Viewer) -> Result<()> {
    for path in ["/", "/pending", "/clusterqueues/queue-0000", "/usage"].iter().cycle() {
        user.get(path).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Sends reviews, then runs Jobs, and returns how long reviews and cycles took.
async fn latencies(
    bare: &ApiServerOnly,
    manager: &Manager,
    (queues, round): (usize, usize),
) -> Result<String> {
    let reviews = Arc::new(webhooks::reviews(&bare.objects).await?);
    let client = webhooks::client_of(&bare.objects, bare.settings.webhook_port).await?;
    let mut times = webhooks::send_all(&client, &reviews, REVIEWS, REVIEWED).await?;
    times.sort_unstable();
    let before = CycleTimes::of(manager).await?;
    run_jobs(&bare.objects, queues, round).await?;
    let cycles = CycleTimes::of(manager).await?.since(&before);
    Ok(format!(
        "{} reviews p50 {:.2} ms, p99 {:.2} ms; {} cycles p99 at most {} ms",
        times.len(),
        percentile(&times, 50),
        percentile(&times, 99),
        cycles.count(),
        cycles.bound(99).as_millis()
    ))
}

/// Name and path of each page.
fn pages(namespace: &str, workload: &str) -> Vec<(&'static str, String)> {
    let queue = queue_name(0);
    vec![
        ("overview", "/".to_owned()),
        ("cohort", "/cohorts/cohort-0".to_owned()),
        ("cluster queue", format!("/clusterqueues/{queue}")),
        ("pending", "/pending".to_owned()),
        ("pending of a queue", format!("/pending?cq={queue}")),
        ("workload", format!("/workloads/{namespace}/{workload}")),
        ("namespace", format!("/namespaces/{namespace}")),
        ("flavors", "/flavors".to_owned()),
        ("preemptions", "/preemptions".to_owned()),
        ("usage", "/usage".to_owned()),
        ("audit", "/audit".to_owned()),
    ]
}

/// Makes an account for each viewer.
pub(super) fn users(bare: &ApiServerOnly, port: u16, number: usize) -> Result<Vec<Viewer>> {
    let kubectl = Kubectl::new(&bare.plane.binaries.path("kubectl"), &bare.plane.admin_kubeconfig());
    let names: Vec<String> = (0..number).map(|index| format!("viewer-{index}")).collect();
    let account = |name: &String| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}});
    let subject = |name: &String| json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
    let mut objects: Vec<Value> = names.iter().map(account).collect();
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewers"}, "subjects": names.iter().map(subject).collect::<Vec<_>>(),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
    }));
    apply(&kubectl, &objects)?;
    let viewer = |name: &String| {
        let arguments = ["-n", "default", "create", "token", name, "--audience=sluice-dashboard"];
        Viewer::new(&format!("https://127.0.0.1:{port}"), kubectl.run(&arguments)?.trim())
    };
    names.iter().map(viewer).collect()
}

/// Returns the line of a page that all viewers ask for at once, again and again.
async fn measure(name: &str, path: &str, users: &[Viewer]) -> Result<String> {
    let first = users.first().context("no viewer")?;
    // Once, so that rights are known; an answer of which no part was kept counts as well.
    try_join_all(users.iter().map(|user| user.get(path))).await?;
    tokio::time::sleep(PAUSE).await;
    let looks = users.iter().map(|user| async {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let page = user.get(path).await?;
            ensure!(page.status == 200, "{path}: {}: {}", page.status, page.text);
            times.push(begun.elapsed());
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::Ok(times)
    });
    let mut times: Vec<Duration> = try_join_all(looks).await?.into_iter().flatten().collect();
    times.sort_unstable();
    let page = first.get(path).await?;
    let packed = first.bytes(path, &[("accept-encoding", "gzip")]).await?;
    Ok(format!(
        "{name:<18} {:>6.1}  {:>6.1}  {:>5}  {:>5}",
        percentile(&times, 50),
        percentile(&times, 99),
        page.text.len() / 1_000,
        packed / 1_000
    ))
}

/// Returns thousandths of a core and MiB of a process over a time.
async fn usage(pid: u32, time: Duration) -> Result<(u64, u64)> {
    let before = ProcessUsage::of_process(pid)?;
    tokio::time::sleep(time).await;
    let after = ProcessUsage::of_process(pid)?;
    let millicores = after.cpu.saturating_sub(before.cpu).as_millis() / u128::from(time.as_secs());
    Ok((u64::try_from(millicores)?, after.resident_mib))
}

/// Returns what the manager uses while every viewer has a page open.
async fn open_pages(pid: u32, users: &[Viewer]) -> Result<(u64, u64)> {
    let paths = ["/", "/pending", "/clusterqueues/queue-0000", "/audit", "/flavors"];
    let opened = users.iter().zip(paths.iter().cycle()).map(|(user, path)| user.stream(path));
    let streams = try_join_all(opened).await?;
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { while stream.next(WATCHED * 2).await.is_ok() {} }))
        .collect();
    let used = usage(pid, WATCHED).await;
    for reader in readers {
        reader.abort();
    }
    used
}
