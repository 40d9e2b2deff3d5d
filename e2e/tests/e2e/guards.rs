//! The guards of second passes, each taken away by itself: what only this one holds back comes through then, and what
//! another stands behind does not.
//!
//! Not by themselves: that what is due is a UID, that the object is read when its time has come, and that what was found is
//! forgotten with the version that it was decided on. Whoever takes one of these away is held back by the version that the
//! write carries, which is shown here.

use crate::ground::Ground;
use crate::matrix::{AT_ONCE, Cell, HARM, Moment, Pass, QUIET, Stage, State};
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition};
use sluice_e2e::proxy::Fault;
use sluice_e2e::wait::{eventually, within};
use std::fs;

/// A guard, the moment at which something comes between, what that is, and whether nobody else stands in the way.
type Row = (&'static str, &'static str, Moment, State, bool);

const ROWS: [Row; 6] = [
    // The object is as it was, and what ends it is known from elsewhere: nothing but another look tells.
    ("recheck", "decided", Moment::Decided, State::Preempted, true),
    ("recheck", "decided", Moment::Decided, State::Drained, true),
    // The write is under way when somebody else ends it.
    ("version", "flight", Moment::Flight, State::Finished, true),
    // The write is under way, and the object stays as it is until another write overtakes it.
    ("overtaking", "flight", Moment::Flight, State::Preempted, true),
    // Behind the look when its time has come stand the scheduler's own and the one before the write.
    ("dequeue", "due", Moment::Due, State::Preempted, false),
    ("dequeue", "due", Moment::Due, State::Finished, false),
];

/// Each row for each kind of pass.
pub(crate) async fn each_is_needed_or_stands_before_another(
    cluster: &mut Cluster,
    ground: &Ground,
) -> Result<()> {
    let (stage, before) = Stage::open(cluster, ground).await?;
    let rows = ROWS.iter().enumerate().flat_map(|(at, row)| {
        [("late", Pass::Late), ("instead", Pass::Instead)].map(|(name, pass)| {
            let (guard, moment_name, moment, between, needed) = *row;
            let name = format!("{name}-{guard}-{at}");
            let cell = Cell { stage: &stage, name, pass, state: between, moment, moment_name, guarded: true };
            (cell, guard, needed)
        })
    });
    let reserved: Vec<_> = stream::iter(rows)
        .map(async |(cell, guard, needed)| {
            let reserved = cell.reserve().await;
            (cell, reserved, guard, needed)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut rest = Vec::new();
    let mut cells = Vec::new();
    for (cell, reserved, guard, needed) in reserved {
        rest.push((guard, needed));
        cells.push((cell, reserved));
    }
    stage.fail_hosts(&cells).await?;
    let wrong: Vec<String> = stream::iter(cells.into_iter().zip(rest))
        .map(async |((cell, reserved), (guard, needed))| {
            let outcome = async { play(&cell, &reserved?, guard, needed).await };
            outcome.await.err().map(|error| format!("{} ({:?}): {error:#}", cell.name, cell.state))
        })
        .buffered(AT_ONCE)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    stage.let_go().await?;
    cluster.replace_manager(&before).await.map(drop)
}

async fn play(cell: &Cell<'_>, before: &serde_json::Value, guard: &str, needed: bool) -> Result<()> {
    fs::write(cell.file(&format!("without-{guard}")), "")?;
    let trap = (cell.moment == Moment::Flight).then(|| cell.trap(before, Fault::Hold));
    if cell.halts() {
        fs::write(cell.file(cell.moment_name), "")?;
    }
    cell.call_for_pass(before).await?;
    match &trap {
        Some(trap) => trap.caught().await?,
        None => cell.reached(cell.moment_name).await?,
    }
    intervene(cell).await?;
    if cell.halts() {
        fs::remove_file(cell.file(cell.moment_name))?;
    }
    if let Some(trap) = &trap {
        trap.release();
        trap.over().await?;
    }
    if needed {
        return within(HARM, "harm is done", async || match cell.harm()? {
            Some(_) => Ok(()),
            None => bail!("no rule is broken without it"),
        })
        .await;
    }
    tokio::time::sleep(QUIET).await;
    match cell.harm()? {
        Some(harm) => bail!("{harm}"),
        None => Ok(()),
    }
}

/// What comes between, known to the manager although it cannot write of it.
async fn intervene(cell: &Cell<'_>) -> Result<()> {
    let ground = cell.stage.ground;
    match cell.state {
        State::Preempted => {
            let name = format!("{}-preemptor", cell.name);
            cell.create(&name, 100, "1").await?;
            eventually("the preemptor waits for it", async || {
                let workload = ground.objects.need(Kind::WORKLOAD, &ground.name, &name).await?;
                let why = condition(&workload, "QuotaReserved").reason;
                ensure!(why == "WaitingForPreemptedWorkloads", "{why}");
                Ok(())
            })
            .await
        }
        State::Drained => {
            let spec = json!({"stopPolicy": "HoldAndDrain"});
            ground.set(Kind::LOCAL_QUEUE, &ground.name, &cell.name, spec).await?;
            eventually("its queue is stopped", async || {
                let queue = ground.objects.need(Kind::LOCAL_QUEUE, &ground.name, &cell.name).await?;
                ensure!(condition(&queue, "Active").status == "False", "{}", queue["status"]);
                Ok(())
            })
            .await
        }
        State::Finished => cell.intervene().await,
        other => Err(anyhow::anyhow!("{other:?}")).context("no row has it"),
    }
}
