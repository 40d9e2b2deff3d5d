//! The manager dies in the middle of second passes: what was to come of them comes of them after the restart, once.

use crate::fixture::Fixture;
use crate::second_pass::{
    HOST, Interference, PARALLEL_CASES, PASS_KINDS, PassFixture, PassKind, PassStep, RaceCase, SETTLE_TIME,
    assigned_host, assignment, check_state,
};
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

/// When it dies, and what becomes of the write that is under way then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFate {
    /// There is none.
    NoWrite,
    /// It arrives at once.
    Arrives,
    /// It arrives when the next manager is done.
    Delayed,
    /// It has arrived, and its answer has not.
    Unanswered,
}

const CRASH_POINTS: [(&str, PassStep, WriteFate); 7] = [
    ("armed", PassStep::Armed, WriteFate::NoWrite),
    ("due", PassStep::Due, WriteFate::NoWrite),
    ("taken", PassStep::Taken, WriteFate::NoWrite),
    ("decided", PassStep::Decided, WriteFate::NoWrite),
    ("flight", PassStep::WriteInFlight, WriteFate::Arrives),
    ("delayed", PassStep::WriteInFlight, WriteFate::Delayed),
    ("landed", PassStep::WriteInFlight, WriteFate::Unanswered),
];

/// One pass on its way.
struct RunningPass<'a> {
    case: RaceCase<'a>,
    fate: WriteFate,
    before: Value,
    /// Versions before it was called for.
    versions_before: usize,
    trap: Option<ActiveFault>,
}

/// What must not depend on what happened on the way.
#[derive(Debug, PartialEq)]
struct PassEnd {
    conditions: Vec<(String, String, String)>,
    checks: Vec<String>,
    delayed: Value,
    /// How often places were given since the pass was called for.
    assignments: usize,
    /// How many versions there are since then.
    versions: usize,
}

/// One death, with a pass of each kind at each of its moments, and one between the evictions of two victims.
pub(crate) async fn manager_killed_mid_pass(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let (stage, before) = PassFixture::open(cluster, ground).await?;
    let victims = VictimPair::prepare(&stage).await?;

    let cells = PASS_KINDS.iter().flat_map(|(name, pass)| {
        let deaths =
            CRASH_POINTS.iter().map(move |(what, moment, fate)| (format!("{name}-{what}"), *moment, *fate));
        let calm = (format!("{name}-calm"), PassStep::Before, WriteFate::NoWrite);
        deaths.chain([calm]).map(|(name, moment, fate)| (race_case(&stage, name, *pass, moment), fate))
    });
    let reserved: Vec<(RaceCase<'_>, WriteFate, Result<Value>)> = stream::iter(cells)
        .map(async |(cell, fate)| {
            let reserved = cell.reserve().await;
            (cell, fate, reserved)
        })
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let mut fates = Vec::new();
    let mut plays = Vec::new();
    for (cell, fate, before) in reserved {
        fates.push(fate);
        plays.push((cell, before));
    }
    stage.taint_hosts(&plays).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let plays = plays.into_iter().zip(fates);
    let plays: Vec<Result<RunningPass<'_>>> = stream::iter(plays)
        .map(async |((cell, before), fate)| bring_to_step(cell, fate, before?).await)
        .buffered(PARALLEL_CASES)
        .collect()
        .await;
    let plays: Vec<RunningPass<'_>> = plays.into_iter().collect::<Result<_>>()?;
    let (calm, plays): (Vec<_>, Vec<_>) =
        plays.into_iter().partition(|play| play.case.step == PassStep::Before);
    let mut ends = Vec::new();
    for play in &calm {
        play.wait_until_placed().await?;
        tokio::time::sleep(SETTLE_TIME).await;
        ends.push((play.case.pass_kind, play.end_state()?));
    }
    let calm = ends;
    victims.evict_first().await?;

    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    for play in &plays {
        play.release(WriteFate::Arrives)?;
    }
    cluster.start_manager(old.settings()).await?;
    let wrong = stream::iter(&plays).map(async |play| {
        let outcome = play.check_end(&calm).await;
        outcome.err().map(|error| format!("{}: {error:#}", play.case.name))
    });
    let mut wrong: Vec<String> = wrong.buffered(plays.len()).filter_map(async |wrong| wrong).collect().await;
    wrong.extend(victims.check_both_evicted().await.err().map(|error| format!("victims: {error:#}")));
    ensure!(wrong.is_empty(), "{}\nand without any death: {calm:#?}", wrong.join("\n"));
    stage.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

fn race_case<'a>(stage: &'a PassFixture<'a>, name: String, pass: PassKind, moment: PassStep) -> RaceCase<'a> {
    let moment_name = match moment {
        PassStep::Armed => "armed",
        PassStep::Due => "due",
        PassStep::Taken => "taken",
        PassStep::Decided => "decided",
        PassStep::Before | PassStep::WriteInFlight => "",
    };
    RaceCase {
        pass_fixture: stage,
        name,
        pass_kind: pass,
        interference: Interference::Undisturbed,
        step: moment,
        step_name: moment_name,
        guarded: true,
    }
}

/// Calls for the pass and waits until it has come to its moment.
async fn bring_to_step(cell: RaceCase<'_>, fate: WriteFate, before: Value) -> Result<RunningPass<'_>> {
    let fault = match fate {
        WriteFate::NoWrite => None,
        WriteFate::Arrives | WriteFate::Delayed => Some(Fault::Hold),
        WriteFate::Unanswered => Some(Fault::HoldResponse),
    };
    let trap = fault.map(|fault| cell.inject_fault(&before, fault));
    if cell.is_failpoint() {
        fs::write(cell.script_file(cell.step_name), "")?;
    }
    let play = RunningPass { versions_before: 0, case: cell, fate, before, trap };
    let play = RunningPass { versions_before: play.versions_of_workload()?.len(), ..play };
    play.case.trigger_pass(&play.before).await?;
    match &play.trap {
        Some(trap) => trap.wait_until_matched().await?,
        None if play.case.is_failpoint() => play.case.wait_for_step(play.case.step_name).await?,
        None => {}
    }
    if fate == WriteFate::Unanswered {
        play.wait_until_placed().await?;
    }
    Ok(play)
}

impl RunningPass<'_> {
    /// Versions of the Workload so far.
    fn versions_of_workload(&self) -> Result<Vec<Value>> {
        let all = self.case.pass_fixture.history.revisions()?;
        Ok(all.into_iter().filter(|w| text(w, "/metadata/name") == self.case.name).collect())
    }

    /// What was halted goes on, and a write with this fate.
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
        let placed = |w: &Value| {
            let listed = w["status"]["unhealthyNodes"].as_array().is_some_and(|all| !all.is_empty());
            condition_is_true(w, "Admitted")
                && !listed
                && assigned_host(w).is_some_and(|host| Some(host) != old)
        };
        self.case.wait_until("it has its places", placed).await.map(drop)
    }

    fn end_state(&self) -> Result<PassEnd> {
        let own = self.versions_of_workload()?;
        let last = own.last().context("nothing was seen of it")?;
        let conditions = last["status"]["conditions"].as_array().into_iter().flatten();
        let word = |object: &Value, what: &str| text(object, what).to_owned();
        let mut conditions: Vec<_> =
            conditions.map(|c| (word(c, "/type"), word(c, "/status"), word(c, "/reason"))).collect();
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

    /// It ends as without the death, and nothing comes after that.
    async fn check_end(&self, calm: &[(PassKind, PassEnd)]) -> Result<()> {
        self.wait_until_placed().await?;
        self.release(WriteFate::Delayed)?;
        self.release(WriteFate::Unanswered)?;
        if let Some(trap) = &self.trap {
            trap.wait_until_completed().await?;
        }
        tokio::time::sleep(SETTLE_TIME).await;
        let end = self.end_state()?;
        let want = calm.iter().find(|(pass, _)| *pass == self.case.pass_kind).map(|(_, end)| end);
        ensure!(want == Some(&end), "it is {end:#?}");
        ensure!(end.assignments == 1, "places were given {} times", end.assignments);
        self.case.check_usage().await
    }
}

/// One that can be placed once two others are gone: between the eviction of the first and that of the second.
struct VictimPair<'a> {
    stage: &'a PassFixture<'a>,
    pair: [RaceCase<'a>; 2],
    preemptor: RaceCase<'a>,
    trap: ActiveFault,
}

impl<'a> VictimPair<'a> {
    /// A host for two, two who stand there, and one who has quota and wants all of it.
    async fn prepare(stage: &'a PassFixture<'a>) -> Result<Self> {
        let ground = stage.fixture;
        let (pool, queue) = (ground.own_name("tight"), ground.own_name("victims"));
        let room = json!({"cpu": "2", "memory": "8Gi", "pods": "20"});
        let metadata = json!({"name": pool, "labels": {"e2e.example/pool": pool, HOST: pool}});
        let status = json!({"capacity": room, "allocatable": room});
        ground.create_tracked(Kind::NODE, json!({"metadata": metadata, "status": status})).await?;
        let spec =
            json!({"nodeLabels": {"e2e.example/pool": pool}, "topologyName": ground.own_name("hosts")});
        let flavor = ground.create_flavor("tight", spec).await?;
        let mut body = objects::cluster_queue(&queue, "", &flavor, &[("cpu", "4", None)]);
        let checks = json!([{"name": stage.gate}, {"name": stage.provisioning_check}]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        ground.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
        let asks = async |name: &str, priority: i32, cpu: &str| {
            let cell = race_case(stage, name.to_owned(), PassKind::DelayedAssignment, PassStep::Before);
            ground
                .objects
                .create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &queue))
                .await?;
            cell.create(name, priority, cpu).await?;
            let asked = |w: &Value| {
                condition_is_true(w, "QuotaReserved") && check_state(w, &stage.provisioning_check) == "Ready"
            };
            cell.wait_until("it holds quota", asked).await?;
            anyhow::Ok(cell)
        };
        let pair = [asks("first", 0, "1").await?, asks("second", 0, "1").await?];
        for victim in &pair {
            victim.set_check_state("Ready").await?;
            victim
                .wait_until("it has its place", |w| {
                    condition_is_true(w, "Admitted") && assigned_host(w).is_some()
                })
                .await?;
        }
        let preemptor = asks("preemptor", 100, "2").await?;
        let picks = |call: &Call| {
            let one =
                ["first", "second"].iter().any(|name| call.path.contains(&format!("/workloads/{name}/")));
            one && call.matches(&Method::PATCH, "/status") && call.sets_condition("Evicted", "True")
        };
        let trap = stage.proxy.inject(Fault::Hold, 1..2, picks);
        Ok(Self { stage, pair, preemptor, trap })
    }

    /// One is told to go, and the write for the other is under way.
    async fn evict_first(&self) -> Result<()> {
        self.preemptor.set_check_state("Ready").await?;
        self.trap.wait_until_matched().await?;
        eventually("one victim is told", async || ensure_count(&self.evicted().await?, 1)).await
    }

    async fn evicted(&self) -> Result<Vec<Value>> {
        let mut told = Vec::new();
        for victim in &self.pair {
            told.extend(Some(victim.workload().await?).filter(|w| condition_is_true(w, "Evicted")));
        }
        Ok(told)
    }

    /// After the restart the other is told, too, each once; when both are over, the places are given.
    async fn check_both_evicted(&self) -> Result<()> {
        eventually("both victims are told", async || ensure_count(&self.evicted().await?, 2)).await?;
        self.trap.release();
        self.trap.wait_until_completed().await?;
        for victim in &self.pair {
            victim.update_status(|status| set_condition(status, "Finished", "True", "Succeeded")).await?;
        }
        let placed = |w: &Value| condition_is_true(w, "Admitted") && assigned_host(w).is_some();
        self.preemptor.wait_until("it has its places", placed).await?;
        let all = self.stage.history.revisions()?;
        for victim in &self.pair {
            let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == victim.name).collect();
            let told = own
                .windows(2)
                .filter(|w| !condition_is_true(w[0], "Evicted") && condition_is_true(w[1], "Evicted"))
                .count();
            let last = own.last().context("nothing was seen of it")?;
            let evictions = &last["status"]["schedulingStats"]["evictions"];
            ensure!(
                told == 1 && evictions[0]["count"] == 1,
                "{} was told {told} times: {evictions}",
                victim.name
            );
            ensure!(condition(last, "Evicted").reason == "Preempted", "{}", last["status"]);
        }
        Ok(())
    }
}

fn ensure_count(told: &[Value], want: usize) -> Result<()> {
    ensure!(told.len() == want, "{} are", told.len());
    Ok(())
}
