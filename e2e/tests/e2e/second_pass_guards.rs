//! Disables each guard of second passes on its own. A violation must happen if no other guard covers the case, and must
//! not if one does.
//!
//! Not disabled on their own: the queue stores only UIDs, the object is read again when the pass runs, and a decision
//! is discarded with the resourceVersion it was made on. Without any of these, the resourceVersion in the write still
//! prevents a violation, which is tested here.

use crate::fixture::Fixture;
use crate::second_pass::{PARALLEL_CASES, PassFixture, RaceCase, SETTLE_TIME, VIOLATION_TIMEOUT};
use crate::second_pass_matrix::{Interference, PassKind, PassStep};
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition};
use sluice_e2e::proxy::Fault;
use sluice_e2e::wait::{eventually, within};
use std::fs;

/// Guard, name of the step, step, interference, and whether this guard alone prevents the violation.
type GuardCase = (&'static str, &'static str, PassStep, Interference, bool);

const GUARD_CASES: [GuardCase; 6] = [
    // The object is unchanged; only a second evaluation sees the preemptor or the stopped queue.
    ("recheck", "decided", PassStep::Decided, Interference::Preempted, true),
    ("recheck", "decided", PassStep::Decided, Interference::Drained, true),
    // Another client finishes the workload while the write is in flight.
    ("version", "flight", PassStep::WriteInFlight, Interference::Finished, true),
    // The write is in flight, and the object is unchanged until a later write of the manager overtakes it.
    ("supersede-write", "flight", PassStep::WriteInFlight, Interference::Preempted, true),
    // The check at dequeue is backed by the scheduler's check and the one before the write.
    ("dequeue", "due", PassStep::Due, Interference::Preempted, false),
    ("dequeue", "due", PassStep::Due, Interference::Finished, false),
];

/// Runs each row for each kind of pass.
pub(crate) async fn each_guard_is_effective(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let (pass_fixture, before) = PassFixture::open(cluster, fixture).await?;
    let rows = GUARD_CASES.iter().enumerate().flat_map(|(index, row)| {
        [("assignment", PassKind::DelayedAssignment), ("replacement", PassKind::NodeReplacement)].map(
            |(name, pass_kind)| {
                let (guard, step_name, step, interference, needed) = *row;
                let name = format!("{name}-{guard}-{index}");
                let case = RaceCase {
                    pass_fixture: &pass_fixture,
                    name,
                    pass_kind,
                    interference,
                    step,
                    step_name,
                    guarded: true,
                };
                (case, guard, needed)
            },
        )
    });
    let reserved: Vec<_> = stream::iter(rows)
        .map(async |(case, guard, needed)| {
            let reserved = case.reserve().await;
            (case, reserved, guard, needed)
        })
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let mut guards = Vec::new();
    let mut cases = Vec::new();
    for (case, reserved, guard, needed) in reserved {
        guards.push((guard, needed));
        cases.push((case, reserved));
    }
    pass_fixture.taint_hosts(&cases).await?;
    let failures: Vec<String> = stream::iter(cases.into_iter().zip(guards))
        .map(async |((case, reserved), (guard, needed))| {
            let outcome = async { run_case(&case, &reserved?, guard, needed).await };
            outcome.await.err().map(|error| format!("{} ({:?}): {error:#}", case.name, case.interference))
        })
        .buffered(PARALLEL_CASES)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    pass_fixture.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

async fn run_case(case: &RaceCase<'_>, before: &serde_json::Value, guard: &str, needed: bool) -> Result<()> {
    fs::write(case.script_file(&format!("without-{guard}")), "")?;
    let fault = (case.step == PassStep::WriteInFlight).then(|| case.inject_fault(before, Fault::Hold));
    if case.is_failpoint() {
        fs::write(case.script_file(case.step_name), "")?;
    }
    case.trigger_pass(before).await?;
    match &fault {
        Some(fault) => fault.wait_until_matched().await?,
        None => case.wait_for_step(case.step_name).await?,
    }
    intervene(case).await?;
    if case.is_failpoint() {
        fs::remove_file(case.script_file(case.step_name))?;
    }
    if let Some(fault) = &fault {
        fault.release();
        fault.wait_until_completed().await?;
    }
    if needed {
        return within(VIOLATION_TIMEOUT, "a rule is violated", async || match case.violation()? {
            Some(_) => Ok(()),
            None => bail!("no rule is violated without guard {guard}"),
        })
        .await;
    }
    tokio::time::sleep(SETTLE_TIME).await;
    match case.violation()? {
        Some(violation) => bail!("{violation}"),
        None => Ok(()),
    }
}

/// Causes the interference and waits until the manager knows it, although its writes to the Workload are held.
async fn intervene(case: &RaceCase<'_>) -> Result<()> {
    let fixture = case.pass_fixture.fixture;
    match case.interference {
        Interference::Preempted => {
            let name = format!("{}-preemptor", case.name);
            case.create(&name, 100, "1").await?;
            eventually("the preemptor waits for the victim", async || {
                let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, &name).await?;
                let reason = condition(&workload, "QuotaReserved").reason;
                ensure!(reason == "WaitingForPreemptedWorkloads", "{reason}");
                Ok(())
            })
            .await
        }
        Interference::Drained => {
            let spec = json!({"stopPolicy": "HoldAndDrain"});
            fixture.set_spec(Kind::LOCAL_QUEUE, &fixture.name, &case.name, spec).await?;
            eventually("the queue is stopped", async || {
                let queue = fixture.objects.must_get(Kind::LOCAL_QUEUE, &fixture.name, &case.name).await?;
                ensure!(condition(&queue, "Active").status == "False", "{}", queue["status"]);
                Ok(())
            })
            .await
        }
        Interference::Finished => case.intervene().await,
        other => Err(anyhow::anyhow!("{other:?}")).context("no row uses this interference"),
    }
}
