//! The guards of second passes, each taken away by itself: what only this one holds back comes through then, and what
//! another stands behind does not.
//!
//! Not by themselves: that what is due is a UID, that the object is read when its time has come, and that what was found is
//! forgotten with the version that it was decided on. Whoever takes one of these away is held back by the version that the
//! write carries, which is shown here.

use crate::fixture::Fixture;
use crate::second_pass::{
    Interference, PARALLEL_CASES, PassFixture, PassKind, PassStep, RaceCase, SETTLE_TIME, VIOLATION_TIMEOUT,
};
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition};
use sluice_e2e::proxy::Fault;
use sluice_e2e::wait::{eventually, within};
use std::fs;

/// A guard, the moment at which something comes between, what that is, and whether nobody else stands in the way.
type GuardCase = (&'static str, &'static str, PassStep, Interference, bool);

const GUARD_CASES: [GuardCase; 6] = [
    // The object is as it was, and what ends it is known from elsewhere: nothing but another look tells.
    ("recheck", "decided", PassStep::Decided, Interference::Preempted, true),
    ("recheck", "decided", PassStep::Decided, Interference::Drained, true),
    // The write is under way when somebody else ends it.
    ("version", "flight", PassStep::WriteInFlight, Interference::Finished, true),
    // The write is under way, and the object stays as it is until another write overtakes it.
    ("overtaking", "flight", PassStep::WriteInFlight, Interference::Preempted, true),
    // Behind the look when its time has come stand the scheduler's own and the one before the write.
    ("dequeue", "due", PassStep::Due, Interference::Preempted, false),
    ("dequeue", "due", PassStep::Due, Interference::Finished, false),
];

/// Each row for each kind of pass.
pub(crate) async fn each_guard_is_effective(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let (stage, before) = PassFixture::open(cluster, ground).await?;
    let rows = GUARD_CASES.iter().enumerate().flat_map(|(at, row)| {
        [("late", PassKind::DelayedAssignment), ("instead", PassKind::NodeReplacement)].map(|(name, pass)| {
            let (guard, moment_name, moment, between, needed) = *row;
            let name = format!("{name}-{guard}-{at}");
            let cell = RaceCase {
                pass_fixture: &stage,
                name,
                pass_kind: pass,
                interference: between,
                step: moment,
                step_name: moment_name,
                guarded: true,
            };
            (cell, guard, needed)
        })
    });
    let reserved: Vec<_> = stream::iter(rows)
        .map(async |(cell, guard, needed)| {
            let reserved = cell.reserve().await;
            (cell, reserved, guard, needed)
        })
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let mut rest = Vec::new();
    let mut cells = Vec::new();
    for (cell, reserved, guard, needed) in reserved {
        rest.push((guard, needed));
        cells.push((cell, reserved));
    }
    stage.taint_hosts(&cells).await?;
    let wrong: Vec<String> = stream::iter(cells.into_iter().zip(rest))
        .map(async |((cell, reserved), (guard, needed))| {
            let outcome = async { run_case(&cell, &reserved?, guard, needed).await };
            outcome.await.err().map(|error| format!("{} ({:?}): {error:#}", cell.name, cell.interference))
        })
        .buffered(PARALLEL_CASES)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    stage.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

async fn run_case(cell: &RaceCase<'_>, before: &serde_json::Value, guard: &str, needed: bool) -> Result<()> {
    fs::write(cell.script_file(&format!("without-{guard}")), "")?;
    let trap = (cell.step == PassStep::WriteInFlight).then(|| cell.inject_fault(before, Fault::Hold));
    if cell.is_failpoint() {
        fs::write(cell.script_file(cell.step_name), "")?;
    }
    cell.trigger_pass(before).await?;
    match &trap {
        Some(trap) => trap.wait_until_matched().await?,
        None => cell.wait_for_step(cell.step_name).await?,
    }
    intervene(cell).await?;
    if cell.is_failpoint() {
        fs::remove_file(cell.script_file(cell.step_name))?;
    }
    if let Some(trap) = &trap {
        trap.release();
        trap.wait_until_completed().await?;
    }
    if needed {
        return within(VIOLATION_TIMEOUT, "harm is done", async || match cell.violation()? {
            Some(_) => Ok(()),
            None => bail!("no rule is broken without it"),
        })
        .await;
    }
    tokio::time::sleep(SETTLE_TIME).await;
    match cell.violation()? {
        Some(harm) => bail!("{harm}"),
        None => Ok(()),
    }
}

/// What comes between, known to the manager although it cannot write of it.
async fn intervene(cell: &RaceCase<'_>) -> Result<()> {
    let ground = cell.pass_fixture.fixture;
    match cell.interference {
        Interference::Preempted => {
            let name = format!("{}-preemptor", cell.name);
            cell.create(&name, 100, "1").await?;
            eventually("the preemptor waits for it", async || {
                let workload = ground.objects.must_get(Kind::WORKLOAD, &ground.name, &name).await?;
                let why = condition(&workload, "QuotaReserved").reason;
                ensure!(why == "WaitingForPreemptedWorkloads", "{why}");
                Ok(())
            })
            .await
        }
        Interference::Drained => {
            let spec = json!({"stopPolicy": "HoldAndDrain"});
            ground.set_spec(Kind::LOCAL_QUEUE, &ground.name, &cell.name, spec).await?;
            eventually("its queue is stopped", async || {
                let queue = ground.objects.must_get(Kind::LOCAL_QUEUE, &ground.name, &cell.name).await?;
                ensure!(condition(&queue, "Active").status == "False", "{}", queue["status"]);
                Ok(())
            })
            .await
        }
        Interference::Finished => cell.intervene().await,
        other => Err(anyhow::anyhow!("{other:?}")).context("no row has it"),
    }
}
