//! Infeasible Jobs among feasible ones (scenario of volcano#4028).

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, condition, condition_is_true, local_queue};
use sluice_e2e::wait::eventually;

const QUEUES: [&str; 3] = ["one", "two", "three"];
/// Name, and the accepted pending reasons.
const INFEASIBLE: [(&str, &[&str]); 7] = [
    ("no-flavor", &["NoMatchingFlavor"]),
    ("unknown-resource", &["NoMatchingFlavor", "ExceedsMaxQuota"]),
    ("too-big", &["ExceedsMaxQuota"]),
    ("foreign-namespace", &["Misconfigured"]),
    ("limit-range", &["Misconfigured"]),
    ("stopped-queue", &["Suspended"]),
    ("missing-queue", &["Misconfigured"]),
];

/// In three orders, every feasible Job runs and every infeasible one reports its reason.
pub(crate) async fn feasible_jobs_still_run(_: &Cluster, fixture: &Fixture) -> Result<()> {
    for queue in QUEUES {
        fixture.create_queue(queue, "", &[("cpu", "9", None)], json!({})).await?;
    }
    let elsewhere = json!({"namespaceSelector": {"matchLabels": {"matches": "none"}}});
    fixture.create_queue("foreign", "", &[("cpu", "9", None)], elsewhere).await?;
    fixture.create_queue("stopped", "", &[("cpu", "9", None)], json!({"stopPolicy": "Hold"})).await?;
    let labelled = fixture.create_flavor("labelled", json!({"nodeLabels": {"kind": "rare"}})).await?;
    let groups = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": labelled, "resources": [{"name": "cpu", "nominalQuota": "9"}]},
    ]}]});
    fixture.create_queue("picky", "", &[("cpu", "9", None)], groups).await?;
    let limits = json!({
        "metadata": {"namespace": fixture.name, "name": "limits"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2k"}}]},
    });
    fixture.objects.create(Kind::LIMIT_RANGE, &limits).await?;
    for queue in QUEUES {
        fixture.wait_until_queue_active(queue).await?;
    }
    for seed in 1..=3_u64 {
        run_round(fixture, seed).await?;
    }
    Ok(())
}

async fn run_round(fixture: &Fixture, seed: u64) -> Result<()> {
    let mut jobs: Vec<Job> =
        INFEASIBLE.iter().map(|(kind, _)| infeasible_job(fixture, kind, &format!("{kind}-{seed}"))).collect();
    let feasible: Vec<String> =
        QUEUES.iter().flat_map(|queue| (1..=2).map(move |n| format!("good-{queue}-{n}-{seed}"))).collect();
    jobs.extend(feasible.iter().map(|name| fixture.job(name, name.split('-').nth(1).unwrap(), "1").pods(2)));
    shuffle(&mut jobs, seed);
    for job in jobs {
        fixture.submit(job).await?;
    }
    for name in &feasible {
        fixture.wait_until_running(name).await?;
    }
    for (kind, reasons) in INFEASIBLE {
        let name = format!("{kind}-{seed}");
        eventually(format!("{name} reports its pending reason"), async || {
            let workload = fixture.workload(&name).await?;
            ensure!(!condition_is_true(&workload, "QuotaReserved"), "it has quota");
            let found = condition(&workload, "QuotaReserved");
            ensure!(
                reasons.contains(&found.reason.as_str()),
                "it reports {}: {}",
                found.reason,
                found.message
            );
            ensure!(!found.message.is_empty(), "the reason has no message");
            Ok(())
        })
        .await?;
        fixture.check_pending(&name).await?;
    }
    for name in &feasible {
        fixture.finish_job(name).await?;
    }
    Ok(())
}

fn infeasible_job(fixture: &Fixture, kind: &str, name: &str) -> Job {
    match kind {
        "no-flavor" => fixture.job(name, "picky", "1").pod_spec("nodeSelector", json!({"kind": "common"})),
        "unknown-resource" => {
            Job::new(&fixture.name, name, "one", &[("cpu", "1"), ("ephemeral-storage", "1Gi")])
        }
        "too-big" => fixture.job(name, "one", "1k"),
        "foreign-namespace" => fixture.job(name, "foreign", "1"),
        "limit-range" => fixture.job(name, "two", "3k"),
        "stopped-queue" => fixture.job(name, "stopped", "1"),
        _ => fixture.job(name, "there-is-none", "1"),
    }
}

/// Shuffles deterministically by seed.
fn shuffle(jobs: &mut [Job], seed: u64) {
    let mut state = seed;
    for last in (1..jobs.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        jobs.swap(last, usize::try_from(state >> 33).unwrap() % (last + 1));
    }
}

/// A Job whose `LocalQueue` does not exist yet runs when the queue is created.
pub(crate) async fn missing_queue_appears_later(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("early", "late", "1")).await?;
    fixture.wait_until_pending("early", "Misconfigured").await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &local_queue(&fixture.name, "late", &queue)).await?;
    fixture.wait_until_running("early").await
}
