//! 1,000 Jobs created at once.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::within;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const JOBS: usize = 1000;

/// A quota tree node, its parent, and its maximum usage: subtree quota plus what it may borrow.
struct NodeLimit {
    node: &'static str,
    parent: &'static str,
    maximum: i64,
}

/// Three levels: root 24; below it left 12 and right 0, which may borrow 18; four queues with 18, 12, 12 and 6.
const TREE: [NodeLimit; 7] = [
    NodeLimit { node: "root", parent: "", maximum: 84 },
    NodeLimit { node: "left", parent: "root", maximum: 84 },
    // The 18 of its queues plus its borrowing limit.
    NodeLimit { node: "right", parent: "root", maximum: 36 },
    NodeLimit { node: "a", parent: "left", maximum: 30 },
    NodeLimit { node: "b", parent: "left", maximum: 84 },
    NodeLimit { node: "c", parent: "right", maximum: 36 },
    NodeLimit { node: "d", parent: "right", maximum: 12 },
];

/// At no revision does the usage of a queue or cohort exceed its maximum.
pub(crate) async fn thousand_jobs_over_three_levels(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let root = fixture.create_cohort("root", "", &[("cpu", "24", None)]).await?;
    let left = fixture.create_cohort("left", &root, &[("cpu", "12", None)]).await?;
    let right = fixture.create_cohort("right", &root, &[("cpu", "0", Some("18"))]).await?;
    fixture.create_queue("a", &left, &[("cpu", "18", Some("12"))], json!({})).await?;
    fixture.create_queue("b", &left, &[("cpu", "12", None)], json!({})).await?;
    fixture.create_queue("c", &right, &[("cpu", "12", None)], json!({})).await?;
    fixture.create_queue("d", &right, &[("cpu", "6", Some("6"))], json!({})).await?;
    for queue in ["a", "b", "c", "d"] {
        fixture.wait_until_queue_active(queue).await?;
    }
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let jobs = stream::iter(0..JOBS).map(|number| {
        let queue = ["a", "b", "c", "d"][number % 4];
        fixture.submit(fixture.job(&format!("job-{number}"), queue, "1").runs_for("0s"))
    });
    jobs.buffer_unordered(8).try_collect::<Vec<()>>().await?;
    within(Duration::from_mins(7), "all workloads have finished", async || {
        let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let finished = all.iter().filter(|workload| condition_is_true(workload, "Finished")).count();
        ensure!(finished == JOBS, "{finished} of {JOBS} have finished");
        Ok(())
    })
    .await?;
    let revisions = history.revisions()?;
    let peaks = check_limits(fixture, &revisions)?;
    note(format_args!("{} revisions; peak usage: {peaks:?}", revisions.len()));
    Ok(())
}

/// A burst of Jobs, of which few run, is deleted while it is worked on: no Workload, pod or usage is left, and the next Job runs.
pub(crate) async fn burst_is_deleted(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "10", None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    let jobs = stream::iter(0..JOBS)
        .map(|number| fixture.submit(fixture.job(&format!("job-{number}"), "main", "1")));
    jobs.buffer_unordered(8).try_collect::<Vec<()>>().await?;
    let begun = Instant::now();
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..Default::default() };
    for kind in [Kind::JOB, Kind::WORKLOAD] {
        let api = fixture.objects.api(kind, &fixture.name);
        // Workloads are made for Jobs whose deletion waits; deleting these as well must not leave others behind.
        api.delete_collection(&foreground, &ListParams::default()).await?;
    }
    for kind in [Kind::JOB, Kind::WORKLOAD, Kind::POD] {
        within(Duration::from_mins(5), format!("no {} is left", kind.resource()), async || {
            let left = fixture.objects.list(kind, &fixture.name, "").await?.len();
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
        .await?;
    }
    note(format_args!(
        "{JOBS} Jobs and what belongs to them were gone after {} s",
        begun.elapsed().as_secs()
    ));
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    cluster.manager()?.process().check()?;
    fixture.submit(fixture.job("after", "main", "10")).await?;
    fixture.wait_until_running("after").await?;
    fixture.finish_job("after").await
}

/// Replays the revisions and checks each node's usage against its limit; returns the peak usage by node.
fn check_limits(fixture: &Fixture, revisions: &[Value]) -> Result<BTreeMap<&'static str, i64>> {
    let mut reserved: BTreeMap<String, (String, i64)> = BTreeMap::new();
    let mut peaks = BTreeMap::new();
    for object in revisions {
        let name = text(object, "/metadata/name").to_owned();
        let queue = text(object, "/status/admission/clusterQueue");
        if condition_is_true(object, "QuotaReserved")
            && !condition_is_true(object, "Finished")
            && object["metadata"]["deletionTimestamp"].is_null()
        {
            let cpu = text(object, "/status/admission/podSetAssignments/0/resourceUsage/cpu").parse()?;
            let queue_name = queue.strip_prefix(&format!("{}-", fixture.name)).unwrap_or(queue).to_owned();
            reserved.insert(name, (queue_name, cpu));
        } else {
            reserved.remove(&name);
        }
        for limit in &TREE {
            let used: i64 =
                reserved.values().filter(|(queue, _)| is_below(queue, limit.node)).map(|(_, cpu)| cpu).sum();
            ensure!(
                used <= limit.maximum,
                "{} uses {used} of {} at revision {}",
                limit.node,
                limit.maximum,
                text(object, "/metadata/resourceVersion")
            );
            let peak = peaks.entry(limit.node).or_insert(0);
            *peak = used.max(*peak);
        }
    }
    Ok(peaks)
}

fn is_below(node: &str, ancestor: &str) -> bool {
    node == ancestor
        || TREE
            .iter()
            .find(|limit| limit.node == node)
            .is_some_and(|limit| !limit.parent.is_empty() && is_below(limit.parent, ancestor))
}
