//! Items that cannot be admitted, among good ones: the shape of volcano#4028.

use crate::ground::Ground;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition, holds, local_queue};
use sluice_e2e::wait::eventually;

const QUEUES: [&str; 3] = ["one", "two", "three"];
/// Name, and the reasons that tell it apart.
const BAD: [(&str, &[&str]); 7] = [
    ("no-flavor", &["NoMatchingFlavor"]),
    ("unknown-resource", &["NoMatchingFlavor", "ExceedsMaxQuota"]),
    ("too-big", &["ExceedsMaxQuota"]),
    ("foreign-namespace", &["Misconfigured"]),
    ("limit-range", &["Misconfigured"]),
    ("stopped-queue", &["Suspended"]),
    ("missing-queue", &["Misconfigured"]),
];

/// In three orders: every good Job runs, every bad one says why it does not.
pub(crate) async fn bad_items_stop_no_good_one(_: &Cluster, ground: &Ground) -> Result<()> {
    for queue in QUEUES {
        ground.queue(queue, "", &[("cpu", "9", None)], json!({})).await?;
    }
    let elsewhere = json!({"namespaceSelector": {"matchLabels": {"nobody": "has-this"}}});
    ground.queue("foreign", "", &[("cpu", "9", None)], elsewhere).await?;
    ground.queue("stopped", "", &[("cpu", "9", None)], json!({"stopPolicy": "Hold"})).await?;
    let labelled = ground.flavor("labelled", json!({"nodeLabels": {"kind": "rare"}})).await?;
    let groups = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": labelled, "resources": [{"name": "cpu", "nominalQuota": "9"}]},
    ]}]});
    ground.queue("picky", "", &[("cpu", "9", None)], groups).await?;
    let limits = json!({
        "metadata": {"namespace": ground.name, "name": "limits"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]},
    });
    ground.objects.create(Kind::LIMIT_RANGE, &limits).await?;
    for queue in QUEUES {
        ground.active(queue).await?;
    }
    for seed in 1..=3_u64 {
        round(ground, seed).await?;
    }
    Ok(())
}

async fn round(ground: &Ground, seed: u64) -> Result<()> {
    let mut jobs: Vec<Job> =
        BAD.iter().map(|(kind, _)| bad(ground, kind, &format!("{kind}-{seed}"))).collect();
    let good: Vec<String> =
        QUEUES.iter().flat_map(|queue| (1..=2).map(move |n| format!("good-{queue}-{n}-{seed}"))).collect();
    jobs.extend(good.iter().map(|name| ground.job(name, name.split('-').nth(1).unwrap(), "1").pods(2)));
    shuffle(&mut jobs, seed);
    for job in jobs {
        ground.submit(job).await?;
    }
    for name in &good {
        ground.runs(name).await?;
    }
    for (kind, reasons) in BAD {
        let name = format!("{kind}-{seed}");
        eventually(format!("{name} says why it waits"), async || {
            let workload = ground.workload(&name).await?;
            ensure!(!holds(&workload, "QuotaReserved"), "it has quota");
            let found = condition(&workload, "QuotaReserved");
            ensure!(reasons.contains(&found.reason.as_str()), "it says {}: {}", found.reason, found.message);
            ensure!(!found.message.is_empty(), "the reason has no message");
            Ok(())
        })
        .await?;
        ground.still_waits(&name).await?;
    }
    for name in &good {
        ground.finish(name).await?;
    }
    Ok(())
}

fn bad(ground: &Ground, kind: &str, name: &str) -> Job {
    match kind {
        "no-flavor" => ground.job(name, "picky", "1").pod_spec("nodeSelector", json!({"kind": "common"})),
        "unknown-resource" => {
            Job::new(&ground.name, name, "one", &[("cpu", "1"), ("ephemeral-storage", "1Gi")])
        }
        "too-big" => ground.job(name, "one", "1k"),
        "foreign-namespace" => ground.job(name, "foreign", "1"),
        "limit-range" => Job::new(&ground.name, name, "two", &[("cpu", "1"), ("memory", "2Gi")]),
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
pub(crate) async fn a_missing_queue_appears(_: &Cluster, ground: &Ground) -> Result<()> {
    let queue = ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("early", "late", "1")).await?;
    ground.waits("early", "Misconfigured").await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &local_queue(&ground.name, "late", &queue)).await?;
    ground.runs("early").await
}
