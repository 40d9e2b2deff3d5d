//! Refilling freed capacity from a deep queue.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::History;
use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::{is_soak_run, within};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Number of Jobs, in a soak run and elsewhere: all but those that run and those that replace them stay pending.
const JOBS: [usize; 2] = [500, 300];
const CAPACITY: usize = 100;
/// Pause between two lists of all Workloads: one after the other, they would cost as much as the Jobs themselves.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of Jobs that finish at once, by round.
const ROUND_SIZES: [usize; 3] = [1, 20, CAPACITY];

/// Scenario of kueue#14477: in each round all finished Jobs are replaced, without any other event. Prints the longest
/// time that freed capacity stayed unused.
pub(crate) async fn freed_capacity_is_refilled(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", &CAPACITY.to_string(), None)], json!({})).await?;
    let [of_soak, of_core] = JOBS;
    let jobs = if is_soak_run() { of_soak } else { of_core };
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    stream::iter(0..jobs)
        .map(|number| fixture.submit(fixture.job(&format!("job-{number:03}"), "main", "1")))
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;
    let mut finished = 0;
    wait_until_full(fixture, jobs, finished).await?;
    for round_size in ROUND_SIZES {
        let begun = Instant::now();
        end_pods(fixture, round_size).await?;
        finished += round_size;
        wait_until_full(fixture, jobs, finished).await?;
        let longest = longest_gap(&history.timed_revisions()?, begun);
        note(format_args!(
            "{round_size:3} of {jobs} finish: freed capacity stayed unused for at most {:.2} s",
            longest.as_secs_f64()
        ));
    }
    Ok(())
}

/// Waits until so many of the Jobs have finished, the quota is fully used and all others are pending.
async fn wait_until_full(fixture: &Fixture, jobs: usize, expected: usize) -> Result<()> {
    within(
        Duration::from_mins(5),
        format!("{expected} Jobs have finished and {CAPACITY} are running"),
        async || {
            tokio::time::sleep(PAUSE).await;
            let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
            ensure!(all.len() == jobs, "{} Workloads exist", all.len());
            let finished = all.iter().filter(|workload| condition_is_true(workload, "Finished")).count();
            let running = all.iter().filter(|workload| is_running(workload)).count();
            ensure!(running <= CAPACITY, "{running} have quota");
            ensure!(
                finished == expected && running == CAPACITY,
                "{finished} have finished, {running} are running"
            );
            Ok(())
        },
    )
    .await?;
    // The next round ends these pods.
    within(Duration::from_mins(2), format!("{CAPACITY} pods are running"), async || {
        tokio::time::sleep(PAUSE).await;
        let running = running_pods(fixture).await?.len();
        ensure!(running == CAPACITY, "{running} are running");
        Ok(())
    })
    .await
}

fn is_running(workload: &Value) -> bool {
    condition_is_true(workload, "Admitted") && !condition_is_true(workload, "Finished")
}

async fn running_pods(fixture: &Fixture) -> Result<Vec<String>> {
    let all = fixture.objects.list(Kind::POD, &fixture.name, "").await?;
    let running = all.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    Ok(running.map(|pod| text(pod, "/metadata/name").to_owned()).collect())
}

async fn end_pods(fixture: &Fixture, number: usize) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
    stream::iter(running_pods(fixture).await?.into_iter().take(number))
        .map(async |pod| fixture.objects.merge(Kind::POD, &fixture.name, &pod, &patch).await)
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

/// Returns the longest time between a finish and the admission that uses the freed capacity, matched in order.
fn longest_gap(revisions: &[(Instant, Value)], since: Instant) -> Duration {
    let (mut running, mut freed_at, mut longest) = (BTreeSet::new(), Vec::new(), Duration::ZERO);
    for (time, object) in revisions {
        let name = text(object, "/metadata/name");
        if is_running(object) {
            if running.insert(name.to_owned()) && !freed_at.is_empty() && *time >= since {
                longest = longest.max(*time - freed_at.remove(0));
            }
        } else if running.remove(name) && *time >= since {
            freed_at.push(*time);
        }
    }
    longest
}
