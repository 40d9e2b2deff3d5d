//! A thousand Jobs at once.

use crate::ground::Ground;
use crate::history::History;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, holds, text};
use sluice_e2e::wait::within;
use std::collections::BTreeMap;
use std::time::Duration;

const JOBS: usize = 1000;

/// A node of the tree, its parent, and what it may use in all: what it has with its subtree and what it may borrow.
struct Limit {
    node: &'static str,
    parent: &'static str,
    most: i64,
}

/// Three levels: root 24; left 12 and right 0 under it, right may borrow 18; four queues of 18, 12, 12, 6.
const TREE: [Limit; 7] = [
    Limit { node: "root", parent: "", most: 84 },
    Limit { node: "left", parent: "root", most: 84 },
    // Its queues' 18 and what it may borrow.
    Limit { node: "right", parent: "root", most: 36 },
    Limit { node: "a", parent: "left", most: 30 },
    Limit { node: "b", parent: "left", most: 84 },
    Limit { node: "c", parent: "right", most: 36 },
    Limit { node: "d", parent: "right", most: 12 },
];

/// At no revision does any queue or cohort hold more than it may.
pub(crate) async fn thousand_jobs_over_three_levels(_: &mut Cluster, ground: &Ground) -> Result<()> {
    let root = ground.cohort("root", "", &[("cpu", "24", None)]).await?;
    let left = ground.cohort("left", &root, &[("cpu", "12", None)]).await?;
    let right = ground.cohort("right", &root, &[("cpu", "0", Some("18"))]).await?;
    ground.queue("a", &left, &[("cpu", "18", Some("12"))], json!({})).await?;
    ground.queue("b", &left, &[("cpu", "12", None)], json!({})).await?;
    ground.queue("c", &right, &[("cpu", "12", None)], json!({})).await?;
    ground.queue("d", &right, &[("cpu", "6", Some("6"))], json!({})).await?;
    for queue in ["a", "b", "c", "d"] {
        ground.active(queue).await?;
    }
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let jobs = stream::iter(0..JOBS).map(|number| {
        let queue = ["a", "b", "c", "d"][number % 4];
        ground.submit(ground.job(&format!("job-{number}"), queue, "1").runs_for("0s"))
    });
    jobs.buffer_unordered(8).try_collect::<Vec<()>>().await?;
    within(Duration::from_mins(7), "all have finished", async || {
        let all = ground.objects.list(Kind::WORKLOAD, &ground.name, "").await?;
        let finished = all.iter().filter(|workload| holds(workload, "Finished")).count();
        ensure!(finished == JOBS, "{finished} of {JOBS} have");
        Ok(())
    })
    .await?;
    let revisions = history.revisions()?;
    let most = judge(ground, &revisions)?;
    println!("      {} revisions; most in use at once: {most:?}", revisions.len());
    Ok(())
}

/// Replays the revisions and compares what each node holds with its limit; returns the most that each held.
fn judge(ground: &Ground, revisions: &[Value]) -> Result<BTreeMap<&'static str, i64>> {
    let mut held: BTreeMap<String, (String, i64)> = BTreeMap::new();
    let mut most = BTreeMap::new();
    for object in revisions {
        let name = text(object, "/metadata/name").to_owned();
        let queue = text(object, "/status/admission/clusterQueue");
        if holds(object, "QuotaReserved")
            && !holds(object, "Finished")
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
                held.values().filter(|(queue, _)| below(queue, limit.node)).map(|(_, cpu)| cpu).sum();
            ensure!(
                used <= limit.most,
                "{} holds {used} of {} at revision {}",
                limit.node,
                limit.most,
                text(object, "/metadata/resourceVersion")
            );
            let peak = most.entry(limit.node).or_insert(0);
            *peak = used.max(*peak);
        }
    }
    Ok(most)
}

fn below(node: &str, ancestor: &str) -> bool {
    node == ancestor
        || TREE
            .iter()
            .find(|limit| limit.node == node)
            .is_some_and(|limit| !limit.parent.is_empty() && below(limit.parent, ancestor))
}
