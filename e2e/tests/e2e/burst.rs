//! A thousand Jobs at once.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::within;
use std::collections::BTreeMap;
use std::time::Duration;

const JOBS: usize = 1000;

/// A node of the tree, its parent, and what it may use in all: what it has with its subtree and what it may borrow.
struct NodeLimit {
    node: &'static str,
    parent: &'static str,
    maximum: i64,
}

/// Three levels: root 24; left 12 and right 0 under it, right may borrow 18; four queues of 18, 12, 12, 6.
const TREE: [NodeLimit; 7] = [
    NodeLimit { node: "root", parent: "", maximum: 84 },
    NodeLimit { node: "left", parent: "root", maximum: 84 },
    // Its queues' 18 and what it may borrow.
    NodeLimit { node: "right", parent: "root", maximum: 36 },
    NodeLimit { node: "a", parent: "left", maximum: 30 },
    NodeLimit { node: "b", parent: "left", maximum: 84 },
    NodeLimit { node: "c", parent: "right", maximum: 36 },
    NodeLimit { node: "d", parent: "right", maximum: 12 },
];

/// At no revision does any queue or cohort hold more than it may.
pub(crate) async fn thousand_jobs_over_three_levels(_: &mut Cluster, ground: &Fixture) -> Result<()> {
    let root = ground.create_cohort("root", "", &[("cpu", "24", None)]).await?;
    let left = ground.create_cohort("left", &root, &[("cpu", "12", None)]).await?;
    let right = ground.create_cohort("right", &root, &[("cpu", "0", Some("18"))]).await?;
    ground.create_queue("a", &left, &[("cpu", "18", Some("12"))], json!({})).await?;
    ground.create_queue("b", &left, &[("cpu", "12", None)], json!({})).await?;
    ground.create_queue("c", &right, &[("cpu", "12", None)], json!({})).await?;
    ground.create_queue("d", &right, &[("cpu", "6", Some("6"))], json!({})).await?;
    for queue in ["a", "b", "c", "d"] {
        ground.wait_until_queue_active(queue).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let jobs = stream::iter(0..JOBS).map(|number| {
        let queue = ["a", "b", "c", "d"][number % 4];
        ground.submit(ground.job(&format!("job-{number}"), queue, "1").runs_for("0s"))
    });
    jobs.buffer_unordered(8).try_collect::<Vec<()>>().await?;
    within(Duration::from_mins(7), "all have finished", async || {
        let all = ground.objects.list(Kind::WORKLOAD, &ground.name, "").await?;
        let finished = all.iter().filter(|workload| condition_is_true(workload, "Finished")).count();
        ensure!(finished == JOBS, "{finished} of {JOBS} have");
        Ok(())
    })
    .await?;
    let revisions = history.revisions()?;
    let most = check_limits(ground, &revisions)?;
    println!("      {} revisions; most in use at once: {most:?}", revisions.len());
    Ok(())
}

/// Replays the revisions and compares what each node holds with its limit; returns the most that each held.
fn check_limits(ground: &Fixture, revisions: &[Value]) -> Result<BTreeMap<&'static str, i64>> {
    let mut held: BTreeMap<String, (String, i64)> = BTreeMap::new();
    let mut most = BTreeMap::new();
    for object in revisions {
        let name = text(object, "/metadata/name").to_owned();
        let queue = text(object, "/status/admission/clusterQueue");
        if condition_is_true(object, "QuotaReserved")
            && !condition_is_true(object, "Finished")
            && object["metadata"]["deletionTimestamp"].is_null()
        {
            let cpu = text(object, "/status/admission/podSetAssignments/0/resourceUsage/cpu").parse()?;
            let short = queue.strip_prefix(&format!("{}-", ground.name)).unwrap_or(queue).to_owned();
            held.insert(name, (short, cpu));
        } else {
            held.remove(&name);
        }
        for limit in &TREE {
            let used: i64 =
                held.values().filter(|(queue, _)| is_below(queue, limit.node)).map(|(_, cpu)| cpu).sum();
            ensure!(
                used <= limit.maximum,
                "{} holds {used} of {} at revision {}",
                limit.node,
                limit.maximum,
                text(object, "/metadata/resourceVersion")
            );
            let peak = most.entry(limit.node).or_insert(0);
            *peak = used.max(*peak);
        }
    }
    Ok(most)
}

fn is_below(node: &str, ancestor: &str) -> bool {
    node == ancestor
        || TREE
            .iter()
            .find(|limit| limit.node == node)
            .is_some_and(|limit| !limit.parent.is_empty() && is_below(limit.parent, ancestor))
}
