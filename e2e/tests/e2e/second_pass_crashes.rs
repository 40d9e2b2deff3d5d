//! The manager is killed in the middle of second passes. After the restart each pass completes as without a crash,
//! exactly once.

use crate::fixture::Fixture;
use crate::second_pass::{
    HOST, PARALLEL_CASES, PassFixture, RaceCase, SETTLE_TIME, assigned_host, assignment, check_state,
};
use crate::second_pass_matrix::{Interference, PASS_KINDS, PassKind, PassStep};
use crate::second_pass_races::set_condition;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind, condition, condition_is_true, text};
use sluice_e2e::proxy::{ActiveFault, Call, Fault};
use sluice_e2e::wait::eventually;
use std::fs;

/// What happens to a write that is in flight when the manager is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFate {
    /// No write is in flight.
    NoWrite,
    /// It lands at once.
    Arrives,
    /// It lands after the next manager has completed the pass.
    Delayed,
    /// It has landed, but its response was lost.
    Unanswered,
}

const CRASH_POINTS: [(&str, PassStep, WriteFate); 7] = [
    ("armed", PassStep::Armed, WriteFate::NoWrite),
    ("due", PassStep::Due, WriteFate::NoWrite),
    ("object-read", PassStep::ObjectRead, WriteFate::NoWrite),
    ("decided", PassStep::Decided, WriteFate::NoWrite),
    ("flight", PassStep::WriteInFlight, WriteFate::Arrives),
    ("delayed", PassStep::WriteInFlight, WriteFate::Delayed),
    ("landed", PassStep::WriteInFlight, WriteFate::Unanswered),
];

/// A second pass that has reached its crash point.
struct RunningPass<'a> {
    case: RaceCase<'a>,
    fate: WriteFate,
    before: Value,
    /// Number of Workload revisions before the pass was triggered.
    versions_before: usize,
    trap: Option<ActiveFault>,
}

/// The end state of a pass, which must not depend on a crash.
#[derive(Debug, PartialEq)]
struct PassEnd {
    conditions: Vec<(String, String, String)>,
    checks: Vec<String>,
    delayed: Value,
    /// Number of topology assignments since the pass was triggered.
    assignments: usize,
    /// Number of revisions since then.
    versions: usize,
}

/// Kills the manager once, while passes of each kind are at each crash point and a preemptor has evicted one of two
/// victims.
pub(crate) async fn manager_killed_mid_pass(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let (pass_fixture, before) = PassFixture::open(cluster, fixture).await?;
    let victims = VictimPair::prepare(&pass_fixture).await?;

    let cases = PASS_KINDS.iter().flat_map(|(name, pass_kind)| {
        let crashes =
            CRASH_POINTS.iter().map(move |(point, step, fate)| (format!("{name}-{point}"), *step, *fate));
        let undisturbed = (format!("{name}-calm"), PassStep::Before, WriteFate::NoWrite);
        crashes
            .chain([undisturbed])
            .map(|(name, step, fate)| (race_case(&pass_fixture, name, *pass_kind, step), fate))
    });
    let reserved: Vec<(RaceCase<'_>, WriteFate, Result<Value>)> = stream::iter(cases)
        .map(async |(case, fate)| {
            let reserved = case.reserve().await;
            (case, fate, reserved)
        })
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let mut fates = Vec::new();
    let mut passes = Vec::new();
    for (case, fate, before) in reserved {
        fates.push(fate);
        passes.push((case, before));
    }
    pass_fixture.taint_hosts(&passes).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let passes = passes.into_iter().zip(fates);
    let passes: Vec<Result<RunningPass<'_>>> = stream::iter(passes)
        .map(async |((case, before), fate)| bring_to_step(case, fate, before?).await)
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let passes: Vec<RunningPass<'_>> = passes.into_iter().collect::<Result<_>>()?;
    let (undisturbed, passes): (Vec<_>, Vec<_>) =
        passes.into_iter().partition(|running| running.case.step == PassStep::Before);
    let mut ends = Vec::new();
    for running in &undisturbed {
        running.wait_until_placed().await?;
        tokio::time::sleep(SETTLE_TIME).await;
        ends.push((running.case.pass_kind, running.end_state()?));
    }
    let undisturbed = ends;
    victims.evict_first().await?;

    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    for running in &passes {
        running.release(WriteFate::Arrives)?;
    }
    cluster.start_manager(old.settings()).await?;
    let failures = stream::iter(&passes).map(async |running| {
        let outcome = running.check_end(&undisturbed).await;
        outcome.err().map(|error| format!("{}: {error:#}", running.case.name))
    });
    let mut failures: Vec<String> =
        failures.buffered(passes.len()).filter_map(async |failure| failure).collect().await;
    failures.extend(victims.check_both_evicted().await.err().map(|error| format!("victims: {error:#}")));
    ensure!(failures.is_empty(), "{}\nend state without a crash: {undisturbed:#?}", failures.join("\n"));
    pass_fixture.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

fn race_case<'a>(
    pass_fixture: &'a PassFixture<'a>,
    name: String,
    pass_kind: PassKind,
    step: PassStep,
) -> RaceCase<'a> {
    let step_name = match step {
        PassStep::Armed => "armed",
        PassStep::Due => "due",
        PassStep::ObjectRead => "object-read",
        PassStep::Decided => "decided",
        PassStep::Before | PassStep::WriteInFlight => "",
    };
    RaceCase {
        pass_fixture,
        name,
        pass_kind,
        interference: Interference::Undisturbed,
        step,
        step_name,
        guarded: true,
    }
}

/// Triggers the pass and waits until it has reached its crash point.
async fn bring_to_step(case: RaceCase<'_>, fate: WriteFate, before: Value) -> Result<RunningPass<'_>> {
    let fault = match fate {
        WriteFate::NoWrite => None,
        WriteFate::Arrives | WriteFate::Delayed => Some(Fault::Hold),
        WriteFate::Unanswered => Some(Fault::HoldResponse),
    };
    let held_write = fault.map(|fault| case.inject_fault(&before, fault));
    if case.is_failpoint() {
        fs::write(case.script_file(case.step_name), "")?;
    }
    let running = RunningPass { versions_before: 0, case, fate, before, trap: held_write };
    let running = RunningPass { versions_before: running.versions_of_workload()?.len(), ..running };
    running.case.trigger_pass(&running.before).await?;
    match &running.trap {
        Some(held_write) => held_write.wait_until_matched().await?,
        None if running.case.is_failpoint() => running.case.wait_for_step(running.case.step_name).await?,
        None => {}
    }
    if fate == WriteFate::Unanswered {
        running.wait_until_placed().await?;
    }
    Ok(running)
}

impl RunningPass<'_> {
    /// Returns the revisions of the Workload so far.
    fn versions_of_workload(&self) -> Result<Vec<Value>> {
        let all = self.case.pass_fixture.history.revisions()?;
        Ok(all.into_iter().filter(|w| text(w, "/metadata/name") == self.case.name).collect())
    }

    /// Releases the failpoint, and the held write if it has this fate.
    fn release(&self, fate: WriteFate) -> Result<()> {
        if self.case.is_failpoint() && fs::exists(self.case.script_file(self.case.step_name))? {
            fs::remove_file(self.case.script_file(self.case.step_name))?;
        }
        if let Some(trap) = self.trap.as_ref().filter(|_| self.fate == fate) {
            trap.release();
        }
        Ok(())
    }

    async fn wait_until_placed(&self) -> Result<()> {
        let old = assigned_host(&self.before);
        let is_placed = |w: &Value| {
            let listed = w["status"]["unhealthyNodes"].as_array().is_some_and(|all| !all.is_empty());
            condition_is_true(w, "Admitted")
                && !listed
                && assigned_host(w).is_some_and(|host| Some(host) != old)
        };
        self.case.wait_until("the workload has its topology assignment", is_placed).await.map(drop)
    }

    fn end_state(&self) -> Result<PassEnd> {
        let own = self.versions_of_workload()?;
        let last = own.last().context("no revision of the Workload was recorded")?;
        let conditions = last["status"]["conditions"].as_array().into_iter().flatten();
        let string = |object: &Value, pointer: &str| text(object, pointer).to_owned();
        let mut conditions: Vec<_> =
            conditions.map(|c| (string(c, "/type"), string(c, "/status"), string(c, "/reason"))).collect();
        conditions.sort();
        let from = self.versions_before.saturating_sub(1);
        let recent = own.get(from..).unwrap_or_default();
        Ok(PassEnd {
            conditions,
            checks: [&self.case.pass_fixture.gate, &self.case.pass_fixture.provisioning_check]
                .map(|name| check_state(last, name).to_owned())
                .to_vec(),
            delayed: last["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"].clone(),
            assignments: recent
                .windows(2)
                .filter(|pair| assignment(&pair[0]) != assignment(&pair[1]))
                .count(),
            versions: recent.len(),
        })
    }

    /// Checks that the pass ends as without a crash, and that nothing is written afterwards.
    async fn check_end(&self, undisturbed: &[(PassKind, PassEnd)]) -> Result<()> {
        self.wait_until_placed().await?;
        self.release(WriteFate::Delayed)?;
        self.release(WriteFate::Unanswered)?;
        if let Some(trap) = &self.trap {
            trap.wait_until_completed().await?;
        }
        tokio::time::sleep(SETTLE_TIME).await;
        let end = self.end_state()?;
        let expected =
            undisturbed.iter().find(|(pass_kind, _)| *pass_kind == self.case.pass_kind).map(|(_, end)| end);
        ensure!(expected == Some(&end), "it ended as {end:#?}");
        ensure!(end.assignments == 1, "the topology assignment changed {} times", end.assignments);
        self.case.check_usage().await
    }
}

/// A preemptor that needs the capacity of two victims; the eviction of the second one is held.
struct VictimPair<'a> {
    stage: &'a PassFixture<'a>,
    pair: [RaceCase<'a>; 2],
    preemptor: RaceCase<'a>,
    trap: ActiveFault,
}

impl<'a> VictimPair<'a> {
    /// Creates a host for two pods, two workloads on it, and a preemptor with quota that requests the whole host.
    async fn prepare(pass_fixture: &'a PassFixture<'a>) -> Result<Self> {
        let fixture = pass_fixture.fixture;
        let (pool, queue) = (fixture.own_name("tight"), fixture.own_name("victims"));
        let capacity = json!({"cpu": "2", "memory": "8Gi", "pods": "20"});
        let metadata = json!({"name": pool, "labels": {"e2e.example/pool": pool, HOST: pool}});
        let status = json!({"capacity": capacity, "allocatable": capacity});
        fixture.create_tracked(Kind::NODE, json!({"metadata": metadata, "status": status})).await?;
        let spec =
            json!({"nodeLabels": {"e2e.example/pool": pool}, "topologyName": fixture.own_name("hosts")});
        let flavor = fixture.create_flavor("tight", spec).await?;
        let mut body = objects::cluster_queue(&queue, "", &flavor, &[("cpu", "4", None)]);
        let checks = json!([{"name": pass_fixture.gate}, {"name": pass_fixture.provisioning_check}]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        fixture.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
        let create_case = async |name: &str, priority: i32, cpu: &str| {
            let case =
                race_case(pass_fixture, name.to_owned(), PassKind::DelayedAssignment, PassStep::Before);
            fixture
                .objects
                .create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, name, &queue))
                .await?;
            case.create(name, priority, cpu).await?;
            let is_reserved = |w: &Value| {
                condition_is_true(w, "QuotaReserved")
                    && check_state(w, &pass_fixture.provisioning_check) == "Ready"
            };
            case.wait_until("the workload has quota", is_reserved).await?;
            anyhow::Ok(case)
        };
        let pair = [create_case("first", 0, "1").await?, create_case("second", 0, "1").await?];
        for victim in &pair {
            victim.set_check_state("Ready").await?;
            victim
                .wait_until("the workload has a topology assignment", |w| {
                    condition_is_true(w, "Admitted") && assigned_host(w).is_some()
                })
                .await?;
        }
        let preemptor = create_case("preemptor", 100, "2").await?;
        let is_eviction = |call: &Call| {
            let is_victim =
                ["first", "second"].iter().any(|name| call.path.contains(&format!("/workloads/{name}/")));
            is_victim && call.matches(&Method::PATCH, "/status") && call.sets_condition("Evicted", "True")
        };
        let held_eviction = pass_fixture.proxy.inject(Fault::Hold, 1..2, is_eviction);
        Ok(Self { stage: pass_fixture, pair, preemptor, trap: held_eviction })
    }

    /// Triggers the preemption: one victim is evicted, and the eviction of the other is in flight.
    async fn evict_first(&self) -> Result<()> {
        self.preemptor.set_check_state("Ready").await?;
        self.trap.wait_until_matched().await?;
        eventually("one victim is evicted", async || ensure_count(&self.evicted().await?, 1)).await
    }

    async fn evicted(&self) -> Result<Vec<Value>> {
        let mut evicted = Vec::new();
        for victim in &self.pair {
            evicted.extend(Some(victim.workload().await?).filter(|w| condition_is_true(w, "Evicted")));
        }
        Ok(evicted)
    }

    /// Checks that after the restart both victims are evicted, each once, and that the preemptor is assigned when both
    /// finished.
    async fn check_both_evicted(&self) -> Result<()> {
        eventually("both victims are evicted", async || ensure_count(&self.evicted().await?, 2)).await?;
        self.trap.release();
        self.trap.wait_until_completed().await?;
        for victim in &self.pair {
            victim.update_status(|status| set_condition(status, "Finished", "True", "Succeeded")).await?;
        }
        let is_placed = |w: &Value| condition_is_true(w, "Admitted") && assigned_host(w).is_some();
        self.preemptor.wait_until("the workload has its topology assignment", is_placed).await?;
        let all = self.stage.history.revisions()?;
        for victim in &self.pair {
            let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == victim.name).collect();
            let times_evicted = own
                .windows(2)
                .filter(|w| !condition_is_true(w[0], "Evicted") && condition_is_true(w[1], "Evicted"))
                .count();
            let last = own.last().context("no revision of the Workload was recorded")?;
            let evictions = &last["status"]["schedulingStats"]["evictions"];
            ensure!(
                times_evicted == 1 && evictions[0]["count"] == 1,
                "{} was evicted {times_evicted} times: {evictions}",
                victim.name
            );
            ensure!(condition(last, "Evicted").reason == "Preempted", "{}", last["status"]);
        }
        Ok(())
    }
}

fn ensure_count(evicted: &[Value], expected: usize) -> Result<()> {
    ensure!(evicted.len() == expected, "{} are evicted", evicted.len());
    Ok(())
}
