//! Items that cannot be admitted, among good ones: the shape of volcano#4028.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition, condition_is_true, local_queue};
use sluice_e2e::wait::eventually;

const QUEUES: [&str; 3] = ["one", "two", "three"];
/// Name, and the reasons that tell it apart.
const INFEASIBLE: [(&str, &[&str]); 7] = [
    ("no-flavor", &["NoMatchingFlavor"]),
    ("unknown-resource", &["NoMatchingFlavor", "ExceedsMaxQuota"]),
    ("too-big", &["ExceedsMaxQuota"]),
    ("foreign-namespace", &["Misconfigured"]),
    ("limit-range", &["Misconfigured"]),
    ("stopped-queue", &["Suspended"]),
    ("missing-queue", &["Misconfigured"]),
];

/// In three orders: every good Job runs, every bad one says why it does not.
pub(crate) async fn feasible_jobs_still_run(_: &Cluster, ground: &Fixture) -> Result<()> {
    for queue in QUEUES {
        ground.create_queue(queue, "", &[("cpu", "9", None)], json!({})).await?;
    }
    let elsewhere = json!({"namespaceSelector": {"matchLabels": {"nobody": "has-this"}}});
    ground.create_queue("foreign", "", &[("cpu", "9", None)], elsewhere).await?;
    ground.create_queue("stopped", "", &[("cpu", "9", None)], json!({"stopPolicy": "Hold"})).await?;
    let labelled = ground.create_flavor("labelled", json!({"nodeLabels": {"kind": "rare"}})).await?;
    let groups = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": labelled, "resources": [{"name": "cpu", "nominalQuota": "9"}]},
    ]}]});
    ground.create_queue("picky", "", &[("cpu", "9", None)], groups).await?;
    let limits = json!({
        "metadata": {"namespace": ground.name, "name": "limits"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2k"}}]},
    });
    ground.objects.create(Kind::LIMIT_RANGE, &limits).await?;
    for queue in QUEUES {
        ground.wait_until_queue_active(queue).await?;
    }
    for seed in 1..=3_u64 {
        run_round(ground, seed).await?;
    }
    Ok(())
}

async fn run_round(ground: &Fixture, seed: u64) -> Result<()> {
    let mut jobs: Vec<Job> =
        INFEASIBLE.iter().map(|(kind, _)| infeasible_job(ground, kind, &format!("{kind}-{seed}"))).collect();
    let good: Vec<String> =
        QUEUES.iter().flat_map(|queue| (1..=2).map(move |n| format!("good-{queue}-{n}-{seed}"))).collect();
    jobs.extend(good.iter().map(|name| ground.job(name, name.split('-').nth(1).unwrap(), "1").pods(2)));
    shuffle(&mut jobs, seed);
    for job in jobs {
        ground.submit(job).await?;
    }
    for name in &good {
        ground.wait_until_running(name).await?;
    }
    for (kind, reasons) in INFEASIBLE {
        let name = format!("{kind}-{seed}");
        eventually(format!("{name} says why it waits"), async || {
            let workload = ground.workload(&name).await?;
            ensure!(!condition_is_true(&workload, "QuotaReserved"), "it has quota");
            let found = condition(&workload, "QuotaReserved");
            ensure!(reasons.contains(&found.reason.as_str()), "it says {}: {}", found.reason, found.message);
            ensure!(!found.message.is_empty(), "the reason has no message");
            Ok(())
        })
        .await?;
        ground.check_pending(&name).await?;
    }
    for name in &good {
        ground.finish_job(name).await?;
    }
    Ok(())
}

fn infeasible_job(ground: &Fixture, kind: &str, name: &str) -> Job {
    match kind {
        "no-flavor" => ground.job(name, "picky", "1").pod_spec("nodeSelector", json!({"kind": "common"})),
        "unknown-resource" => {
            Job::new(&ground.name, name, "one", &[("cpu", "1"), ("ephemeral-storage", "1Gi")])
        }
        "too-big" => ground.job(name, "one", "1k"),
        "foreign-namespace" => ground.job(name, "foreign", "1"),
        "limit-range" => ground.job(name, "two", "3k"),
        "stopped-queue" => ground.job(name, "stopped", "1"),
        _ => ground.job(name, "there-is-none", "1"),
    }
}

/// The same order for the same seed, everywhere.
fn shuffle(jobs: &mut [Job], seed: u64) {
    let mut state = seed;
    for last in (1..jobs.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        jobs.swap(last, usize::try_from(state >> 33).unwrap() % (last + 1));
    }
}

/// A `LocalQueue` appears late: the Job that named it before runs then.
pub(crate) async fn missing_queue_appears_later(_: &Cluster, ground: &Fixture) -> Result<()> {
    let queue = ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("early", "late", "1")).await?;
    ground.wait_until_pending("early", "Misconfigured").await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &local_queue(&ground.name, "late", &queue)).await?;
    ground.wait_until_running("early").await
}
