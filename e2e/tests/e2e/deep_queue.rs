//! A deep queue.

use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::within;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const JOBS: usize = 500;
const CAPACITY: usize = 100;
/// How many end at once, one round after the other: a few, and all.
const ROUND_SIZES: [usize; 3] = [1, 20, CAPACITY];

/// The shape of kueue#14477: whatever ends is replaced in full, round for round, without anything else happening.
/// Prints how long the queue was not full.
pub(crate) async fn freed_capacity_is_refilled(_: &mut Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", &CAPACITY.to_string(), None)], json!({})).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    stream::iter(0..JOBS)
        .map(|number| ground.submit(ground.job(&format!("job-{number:03}"), "main", "1")))
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;
    let mut ended = 0;
    wait_until_full(ground, ended).await?;
    for ends in ROUND_SIZES {
        let begun = Instant::now();
        end_pods(ground, ends).await?;
        ended += ends;
        wait_until_full(ground, ended).await?;
        let longest = longest_gap(&history.timed_revisions()?, begun);
        println!(
            "      {ends:3} of {JOBS} end: the longest that a place stood empty was {:.2} s",
            longest.as_secs_f64()
        );
    }
    Ok(())
}

/// Waits until so many have finished, the room is full, and all others wait.
async fn wait_until_full(ground: &Fixture, ended: usize) -> Result<()> {
    within(Duration::from_mins(5), format!("{ended} have ended and {CAPACITY} run"), async || {
        let all = ground.objects.list(Kind::WORKLOAD, &ground.name, "").await?;
        ensure!(all.len() == JOBS, "there are {}", all.len());
        let finished = all.iter().filter(|workload| condition_is_true(workload, "Finished")).count();
        let running = all.iter().filter(|workload| is_running(workload)).count();
        ensure!(running <= CAPACITY, "{running} hold quota");
        ensure!(finished == ended && running == CAPACITY, "{finished} have ended, {running} run");
        Ok(())
    })
    .await?;
    // Their pods are what ends next.
    within(Duration::from_mins(2), format!("{CAPACITY} pods run"), async || {
        let running = running_pods(ground).await?.len();
        ensure!(running == CAPACITY, "{running} do");
        Ok(())
    })
    .await
}

fn is_running(workload: &Value) -> bool {
    condition_is_true(workload, "Admitted") && !condition_is_true(workload, "Finished")
}

async fn running_pods(ground: &Fixture) -> Result<Vec<String>> {
    let all = ground.objects.list(Kind::POD, &ground.name, "").await?;
    let running = all.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    Ok(running.map(|pod| text(pod, "/metadata/name").to_owned()).collect())
}

async fn end_pods(ground: &Fixture, number: usize) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
    stream::iter(running_pods(ground).await?.into_iter().take(number))
        .map(async |pod| ground.objects.merge(Kind::POD, &ground.name, &pod, &patch).await)
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

/// The longest time from one's end to another's admission in its place, first come, first served.
fn longest_gap(revisions: &[(Instant, Value)], since: Instant) -> Duration {
    let (mut holders, mut empty, mut longest) = (BTreeSet::new(), Vec::new(), Duration::ZERO);
    for (time, object) in revisions {
        let name = text(object, "/metadata/name");
        if is_running(object) {
            if holders.insert(name.to_owned()) && !empty.is_empty() && *time >= since {
                longest = longest.max(*time - empty.remove(0));
            }
        } else if holders.remove(name) && *time >= since {
            empty.push(*time);
        }
    }
    longest
}
