//! The manager dies in the middle of second passes: what was to come of them comes of them after the restart, once.

use crate::between::set;
use crate::ground::Ground;
use crate::matrix::{
    AT_ONCE, Cell, HOST, Moment, PASSES, Pass, QUIET, Stage, State, assignment, check, host,
};
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind, condition, holds, text};
use sluice_e2e::proxy::{Call, Fault, Trap};
use sluice_e2e::wait::eventually;
use std::fs;

/// When it dies, and what becomes of the write that is under way then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// There is none.
    None,
    /// It arrives at once.
    Arrives,
    /// It arrives when the next manager is done.
    Late,
    /// It has arrived, and its answer has not.
    Unanswered,
}

const DEATHS: [(&str, Moment, Fate); 7] = [
    ("armed", Moment::Armed, Fate::None),
    ("due", Moment::Due, Fate::None),
    ("taken", Moment::Taken, Fate::None),
    ("decided", Moment::Decided, Fate::None),
    ("flight", Moment::Flight, Fate::Arrives),
    ("delayed", Moment::Flight, Fate::Late),
    ("landed", Moment::Flight, Fate::Unanswered),
];

/// One pass on its way.
struct Play<'a> {
    cell: Cell<'a>,
    fate: Fate,
    before: Value,
    /// Versions before it was called for.
    versions: usize,
    trap: Option<Trap>,
}

/// What must not depend on what happened on the way.
#[derive(Debug, PartialEq)]
struct End {
    conditions: Vec<(String, String, String)>,
    checks: Vec<String>,
    delayed: Value,
    /// How often places were given since the pass was called for.
    given: usize,
    /// How many versions there are since then.
    versions: usize,
}

/// One death, with a pass of each kind at each of its moments, and one between the evictions of two victims.
pub(crate) async fn the_manager_dies_in_a_second_pass(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let (stage, before) = Stage::open(cluster, ground).await?;
    let victims = Victims::prepare(&stage).await?;

    let cells = PASSES.iter().flat_map(|(name, pass)| {
        let deaths =
            DEATHS.iter().map(move |(what, moment, fate)| (format!("{name}-{what}"), *moment, *fate));
        let calm = (format!("{name}-calm"), Moment::Before, Fate::None);
        deaths.chain([calm]).map(|(name, moment, fate)| (cell(&stage, name, *pass, moment), fate))
    });
    let reserved: Vec<(Cell<'_>, Fate, Result<Value>)> = stream::iter(cells)
        .map(async |(cell, fate)| {
            let reserved = cell.reserve().await;
            (cell, fate, reserved)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut fates = Vec::new();
    let mut plays = Vec::new();
    for (cell, fate, before) in reserved {
        fates.push(fate);
        plays.push((cell, before));
    }
    stage.fail_hosts(&plays).await?;
    tokio::time::sleep(QUIET).await;
    let plays = plays.into_iter().zip(fates);
    let plays: Vec<Result<Play<'_>>> = stream::iter(plays)
        .map(async |((cell, before), fate)| bring(cell, fate, before?).await)
        .buffered(AT_ONCE)
        .collect()
        .await;
    let plays: Vec<Play<'_>> = plays.into_iter().collect::<Result<_>>()?;
    let (calm, plays): (Vec<_>, Vec<_>) =
        plays.into_iter().partition(|play| play.cell.moment == Moment::Before);
    let mut ends = Vec::new();
    for play in &calm {
        play.ended().await?;
        tokio::time::sleep(QUIET).await;
        ends.push((play.cell.pass, play.end()?));
    }
    let calm = ends;
    victims.half_way().await?;

    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    for play in &plays {
        play.let_go(Fate::Arrives)?;
    }
    cluster.start_manager(old.settings()).await?;
    let wrong = stream::iter(&plays).map(async |play| {
        let outcome = play.judge(&calm).await;
        outcome.err().map(|error| format!("{}: {error:#}", play.cell.name))
    });
    let mut wrong: Vec<String> = wrong.buffered(plays.len()).filter_map(async |wrong| wrong).collect().await;
    wrong.extend(victims.both_go().await.err().map(|error| format!("victims: {error:#}")));
    ensure!(wrong.is_empty(), "{}\nand without any death: {calm:#?}", wrong.join("\n"));
    stage.let_go().await?;
    cluster.replace_manager(&before).await.map(drop)
}

fn cell<'a>(stage: &'a Stage<'a>, name: String, pass: Pass, moment: Moment) -> Cell<'a> {
    let moment_name = match moment {
        Moment::Armed => "armed",
        Moment::Due => "due",
        Moment::Taken => "taken",
        Moment::Decided => "decided",
        Moment::Before | Moment::Flight => "",
    };
    Cell { stage, name, pass, state: State::Undisturbed, moment, moment_name, guarded: true }
}

/// Calls for the pass and waits until it has come to its moment.
async fn bring(cell: Cell<'_>, fate: Fate, before: Value) -> Result<Play<'_>> {
    let fault = match fate {
        Fate::None => None,
        Fate::Arrives | Fate::Late => Some(Fault::Hold),
        Fate::Unanswered => Some(Fault::HoldAnswer),
    };
    let trap = fault.map(|fault| cell.trap(&before, fault));
    if cell.halts() {
        fs::write(cell.file(cell.moment_name), "")?;
    }
    let play = Play { versions: 0, cell, fate, before, trap };
    let play = Play { versions: play.own()?.len(), ..play };
    play.cell.call_for_pass(&play.before).await?;
    match &play.trap {
        Some(trap) => trap.caught().await?,
        None if play.cell.halts() => play.cell.reached(play.cell.moment_name).await?,
        None => {}
    }
    if fate == Fate::Unanswered {
        play.ended().await?;
    }
    Ok(play)
}

impl Play<'_> {
    /// Versions of the Workload so far.
    fn own(&self) -> Result<Vec<Value>> {
        let all = self.cell.stage.history.revisions()?;
        Ok(all.into_iter().filter(|w| text(w, "/metadata/name") == self.cell.name).collect())
    }

    /// What was halted goes on, and a write with this fate.
    fn let_go(&self, fate: Fate) -> Result<()> {
        if self.cell.halts() && fs::exists(self.cell.file(self.cell.moment_name))? {
            fs::remove_file(self.cell.file(self.cell.moment_name))?;
        }
        if let Some(trap) = self.trap.as_ref().filter(|_| self.fate == fate) {
            trap.release();
        }
        Ok(())
    }

    async fn ended(&self) -> Result<()> {
        let old = host(&self.before);
        let placed = |w: &Value| {
            let listed = w["status"]["unhealthyNodes"].as_array().is_some_and(|all| !all.is_empty());
            holds(w, "Admitted") && !listed && host(w).is_some_and(|host| Some(host) != old)
        };
        self.cell.until("it has its places", placed).await.map(drop)
    }

    fn end(&self) -> Result<End> {
        let own = self.own()?;
        let last = own.last().context("nothing was seen of it")?;
        let conditions = last["status"]["conditions"].as_array().into_iter().flatten();
        let word = |object: &Value, what: &str| text(object, what).to_owned();
        let mut conditions: Vec<_> =
            conditions.map(|c| (word(c, "/type"), word(c, "/status"), word(c, "/reason"))).collect();
        conditions.sort();
        let from = self.versions.saturating_sub(1);
        let recent = own.get(from..).unwrap_or_default();
        Ok(End {
            conditions,
            checks: [&self.cell.stage.gate, &self.cell.stage.room]
                .map(|name| check(last, name).to_owned())
                .to_vec(),
            delayed: last["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"].clone(),
            given: recent.windows(2).filter(|pair| assignment(&pair[0]) != assignment(&pair[1])).count(),
            versions: recent.len(),
        })
    }

    /// It ends as without the death, and nothing comes after that.
    async fn judge(&self, calm: &[(Pass, End)]) -> Result<()> {
        self.ended().await?;
        self.let_go(Fate::Late)?;
        self.let_go(Fate::Unanswered)?;
        if let Some(trap) = &self.trap {
            trap.over().await?;
        }
        tokio::time::sleep(QUIET).await;
        let end = self.end()?;
        let want = calm.iter().find(|(pass, _)| *pass == self.cell.pass).map(|(_, end)| end);
        ensure!(want == Some(&end), "it is {end:#?}");
        ensure!(end.given == 1, "places were given {} times", end.given);
        self.cell.ledger().await
    }
}

/// One that can be placed once two others are gone: between the eviction of the first and that of the second.
struct Victims<'a> {
    stage: &'a Stage<'a>,
    pair: [Cell<'a>; 2],
    preemptor: Cell<'a>,
    trap: Trap,
}

impl<'a> Victims<'a> {
    /// A host for two, two who stand there, and one who has quota and wants all of it.
    async fn prepare(stage: &'a Stage<'a>) -> Result<Self> {
        let ground = stage.ground;
        let (pool, queue) = (ground.own("tight"), ground.own("victims"));
        let room = json!({"cpu": "2", "memory": "8Gi", "pods": "20"});
        let metadata = json!({"name": pool, "labels": {"e2e.example/pool": pool, HOST: pool}});
        let status = json!({"capacity": room, "allocatable": room});
        ground.keep(Kind::NODE, json!({"metadata": metadata, "status": status})).await?;
        let spec = json!({"nodeLabels": {"e2e.example/pool": pool}, "topologyName": ground.own("hosts")});
        let flavor = ground.flavor("tight", spec).await?;
        let mut body = objects::cluster_queue(&queue, "", &flavor, &[("cpu", "4", None)]);
        let checks = json!([{"name": stage.gate}, {"name": stage.room}]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        ground.keep(Kind::CLUSTER_QUEUE, body).await?;
        let asks = async |name: &str, priority: i32, cpu: &str| {
            let cell = cell(stage, name.to_owned(), Pass::Late, Moment::Before);
            ground
                .objects
                .create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &queue))
                .await?;
            cell.create(name, priority, cpu).await?;
            let asked = |w: &Value| holds(w, "QuotaReserved") && check(w, &stage.room) == "Ready";
            cell.until("it holds quota", asked).await?;
            anyhow::Ok(cell)
        };
        let pair = [asks("first", 0, "1").await?, asks("second", 0, "1").await?];
        for victim in &pair {
            victim.answer("Ready").await?;
            victim.until("it has its place", |w| holds(w, "Admitted") && host(w).is_some()).await?;
        }
        let preemptor = asks("preemptor", 100, "2").await?;
        let picks = |call: &Call| {
            let one =
                ["first", "second"].iter().any(|name| call.path.contains(&format!("/workloads/{name}/")));
            one && call.is(&Method::PATCH, "/status") && call.sets("Evicted", "True")
        };
        let trap = stage.proxy.trap(Fault::Hold, 1..2, picks);
        Ok(Self { stage, pair, preemptor, trap })
    }

    /// One is told to go, and the write for the other is under way.
    async fn half_way(&self) -> Result<()> {
        self.preemptor.answer("Ready").await?;
        self.trap.caught().await?;
        eventually("one victim is told", async || ensure_told(&self.told().await?, 1)).await
    }

    async fn told(&self) -> Result<Vec<Value>> {
        let mut told = Vec::new();
        for victim in &self.pair {
            told.extend(Some(victim.workload().await?).filter(|w| holds(w, "Evicted")));
        }
        Ok(told)
    }

    /// After the restart the other is told, too, each once; when both are over, the places are given.
    async fn both_go(&self) -> Result<()> {
        eventually("both victims are told", async || ensure_told(&self.told().await?, 2)).await?;
        self.trap.release();
        self.trap.over().await?;
        for victim in &self.pair {
            victim.rewrite(|status| set(status, "Finished", "True", "Succeeded")).await?;
        }
        let placed = |w: &Value| holds(w, "Admitted") && host(w).is_some();
        self.preemptor.until("it has its places", placed).await?;
        let all = self.stage.history.revisions()?;
        for victim in &self.pair {
            let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == victim.name).collect();
            let told = own.windows(2).filter(|w| !holds(w[0], "Evicted") && holds(w[1], "Evicted")).count();
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

fn ensure_told(told: &[Value], want: usize) -> Result<()> {
    ensure!(told.len() == want, "{} are", told.len());
    Ok(())
}
