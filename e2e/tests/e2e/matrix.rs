//! Second passes against all that can come between: for each kind of pass, whatever ends its reason, at each moment on its
//! way. Nothing lands on one who goes. Each cell is played once more with the guards taken away, and must fail then.
//! `SLUICE_CELL=word` plays those cells whose names contain the word.

use crate::ground::Ground;
use crate::harm::harm;
use crate::history::History;
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::binaries;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Settings, moments};
use sluice_e2e::objects::{self, Kind, expect, holds, text};
use sluice_e2e::proxy::{Call, Fault, Proxy, Trap};
use sluice_e2e::wait::{eventually, within};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Cells at once: fewer than the calls that the manager makes at a time, of which each may be held.
pub(crate) const AT_ONCE: usize = 12;
/// After this long nothing lands any more: a pass waits one second.
pub(crate) const QUIET: Duration = Duration::from_millis(2500);
/// How long one without guards may take to do its harm.
pub(crate) const HARM: Duration = Duration::from_secs(20);
pub(crate) const HOST: &str = "kubernetes.io/hostname";
const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
const STAMP: &str = "2026-01-01T00:00:00Z";

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Places that could not be given before a check was ready.
    Late,
    /// Others instead of a node that has failed.
    Instead,
}

/// What comes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Finished,
    Preempted,
    Deleted,
    Recreated,
    Deactivated,
    Unreserved,
    Retried,
    Drained,
    /// Nothing.
    Undisturbed,
}

/// How far the pass is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    Armed,
    Due,
    Taken,
    Decided,
    Flight,
}

pub(crate) const PASSES: [(&str, Pass); 2] = [("late", Pass::Late), ("instead", Pass::Instead)];
const STATES: [(&str, State); 8] = [
    ("finished", State::Finished),
    ("preempted", State::Preempted),
    ("deleted", State::Deleted),
    ("recreated", State::Recreated),
    ("deactivated", State::Deactivated),
    ("unreserved", State::Unreserved),
    ("retried", State::Retried),
    ("drained", State::Drained),
];
const MOMENTS: [(&str, Moment); 6] = [
    ("before", Moment::Before),
    ("armed", Moment::Armed),
    ("due", Moment::Due),
    ("taken", Moment::Taken),
    ("decided", Moment::Decided),
    ("flight", Moment::Flight),
];

/// What all cells share.
pub(crate) struct Stage<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) proxy: Proxy,
    script: PathBuf,
    pub(crate) history: History,
    /// Who owns the Workloads: an object of a kind that nobody follows, so that nobody stops them either.
    owner: Value,
    /// The checks: one of the case's, and one that makes places come late.
    pub(crate) gate: String,
    pub(crate) room: String,
}

/// One play.
pub(crate) struct Cell<'a> {
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) name: String,
    pub(crate) pass: Pass,
    pub(crate) state: State,
    pub(crate) moment: Moment,
    pub(crate) moment_name: &'static str,
    pub(crate) guarded: bool,
}

/// Every cell of the matrix with guards, where nothing may land, and without, where something must.
pub(crate) async fn no_pass_lands_on_who_goes(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let (stage, before) = Stage::open(cluster, ground).await?;
    let names: Vec<String> = stage.cells().into_iter().map(|cell| cell.name).collect();
    let reserved: Vec<(Cell<'_>, Result<Value>)> = stream::iter(stage.cells())
        .map(async |cell| {
            let reserved = cell.reserve().await;
            (cell, reserved)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    stage.fail_hosts(&reserved).await?;
    let wrong: Vec<String> = stream::iter(reserved)
        .map(async |(cell, reserved)| {
            cell.verdict(reserved).await.err().map(|error| format!("{}: {error:#}", cell.name))
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    for name in names.iter().filter(|name| !wrong.iter().any(|wrong| wrong.starts_with(&format!("{name}:"))))
    {
        println!("        {name}");
    }
    ensure!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    stage.let_go().await?;
    cluster.replace_manager(&before).await.map(drop)
}

impl<'a> Stage<'a> {
    /// Puts a manager that stops at moments behind a proxy; returns with the stage what undoes that.
    pub(crate) async fn open(cluster: &mut Cluster, ground: &'a Ground) -> Result<(Self, Settings)> {
        let program = binaries::sluice_with_moments()?;
        let proxy = Proxy::open(&cluster.plane).await?;
        let before = cluster.manager()?.settings().clone();
        let mut settings = Settings { program, server: Some(proxy.url()), ..before.clone() };
        // The case says which nodes have failed, and nobody else does.
        settings.configuration["featureGates"] = json!({"TASFailedNodeReplacement": false,
            "TASFailedNodeReplacementFailFast": false, "TASReplaceNodeOnPodTermination": false});
        let script = moments(&cluster.plane);
        fs::create_dir_all(&script)?;
        cluster.replace_manager(&settings).await?;
        Ok((Self::prepare(ground, proxy, script).await?, before))
    }

    async fn prepare(ground: &'a Ground, proxy: Proxy, script: PathBuf) -> Result<Self> {
        for number in 1..=3 {
            let name = ground.own(&format!("host-{number}"));
            let labels = json!({"e2e.example/pool": ground.name, HOST: name});
            ground.keep(Kind::NODE, json!({"metadata": {"name": name, "labels": labels}})).await?;
        }
        let levels = json!([{"nodeLabel": HOST}]);
        let topology = json!({"metadata": {"name": ground.own("hosts")}, "spec": {"levels": levels}});
        let topology = ground.keep(Kind::TOPOLOGY, topology).await?;
        let labels = json!({"e2e.example/pool": ground.name});
        ground.flavor("placed", json!({"nodeLabels": labels, "topologyName": topology})).await?;
        let gate = ground.own("gate");
        let spec = json!({"controllerName": "e2e.example/gate"});
        ground.keep(Kind::ADMISSION_CHECK, json!({"metadata": {"name": gate}, "spec": spec})).await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &gate, &status).await?;
        let room = ground.own("room");
        let spec = json!({"provisioningClassName": "any", "managedResources": ["e2e.example/none"]});
        let config = json!({"metadata": {"name": room}, "spec": spec});
        ground.keep(Kind::PROVISIONING_CONFIG, config).await?;
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": room});
        let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
        ground.keep(Kind::ADMISSION_CHECK, json!({"metadata": {"name": room}, "spec": spec})).await?;
        // Before that the queues of all cells are inactive, and whoever is told so had no reservation that could come back.
        eventually("the manager serves the check", async || {
            let check = ground.objects.need(Kind::ADMISSION_CHECK, "", &room).await?;
            ensure!(holds(&check, "Active"), "{}", check["status"]);
            Ok(())
        })
        .await?;
        let owner = json!({"metadata": {"namespace": ground.name, "name": "owner"}});
        let owner = ground.objects.create(Kind::CONFIG_MAP, &owner).await?;
        let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
        Ok(Self { ground, proxy, script, history, owner, gate, room })
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let word = std::env::var("SLUICE_CELL").unwrap_or_default();
        let mut cells = Vec::new();
        for (moment_name, moment) in MOMENTS {
            for (state_name, state) in STATES {
                for (pass_name, pass) in PASSES {
                    for (end, guarded) in [("", true), ("-unguarded", false)] {
                        let name = format!("{pass_name}-{state_name}-{moment_name}{end}");
                        if !name.contains(&word) {
                            continue;
                        }
                        cells.push(Cell { stage: self, name, pass, state, moment, moment_name, guarded });
                    }
                }
            }
        }
        cells
    }
}

impl Stage<'_> {
    /// Those whom nobody stops would stay for ever.
    pub(crate) async fn let_go(&self) -> Result<()> {
        let objects = &self.ground.objects;
        for workload in objects.list(Kind::WORKLOAD, &self.ground.name, "").await? {
            let name = text(&workload, "/metadata/name");
            objects.delete(Kind::WORKLOAD, &self.ground.name, name, PropagationPolicy::Background).await?;
            let none = json!({"metadata": {"finalizers": null}});
            // It may have gone at once.
            let _ = objects.merge(Kind::WORKLOAD, &self.ground.name, name, &none).await;
        }
        Ok(())
    }

    /// Nobody else can be placed where those stand who are to move.
    pub(crate) async fn fail_hosts(&self, reserved: &[(Cell<'_>, Result<Value>)]) -> Result<()> {
        let moving = reserved.iter().filter(|(cell, _)| cell.pass == Pass::Instead);
        let hosts: BTreeSet<&str> = moving.filter_map(|(_, before)| host(before.as_ref().ok()?)).collect();
        ensure!(hosts.len() <= 1, "they stand on {hosts:?}");
        for name in hosts {
            let taint = json!({"key": "e2e.example/failed", "effect": "NoSchedule"});
            self.ground.set(Kind::NODE, "", name, json!({"taints": [taint]})).await?;
        }
        Ok(())
    }
}

impl Cell<'_> {
    /// With guards nothing went wrong; without, something did.
    async fn verdict(&self, reserved: Result<Value>) -> Result<()> {
        let before = reserved.context("it has no reservation")?;
        match (self.play(&before).await, self.guarded) {
            (Ok(()), true) => Ok(()),
            (Err(error), true) => Err(error),
            (outcome, false) => {
                outcome.context("it could not be played")?;
                within(HARM, "harm is done", async || match self.harm()? {
                    Some(_) => Ok(()),
                    None => bail!("no rule is broken without guards"),
                })
                .await
            }
        }
    }

    async fn play(&self, before: &Value) -> Result<()> {
        let trap = (self.moment == Moment::Flight).then(|| self.trap(before, Fault::Hold));
        let halts = self.halts();
        if halts {
            fs::write(self.file(self.moment_name), "")?;
        }
        if self.moment == Moment::Before {
            self.intervene_early(before).await?;
        } else {
            self.call_for_pass(before).await?;
            match &trap {
                Some(trap) => trap.caught().await?,
                None => self.reached(self.moment_name).await?,
            }
            self.intervene().await?;
        }
        if halts {
            fs::remove_file(self.file(self.moment_name))?;
        }
        if let Some(trap) = &trap {
            trap.release();
            trap.over().await?;
        }
        if !self.guarded {
            return Ok(());
        }
        tokio::time::sleep(QUIET).await;
        if let Some(harm) = self.harm()? {
            bail!("{harm}");
        }
        self.ledger().await
    }

    pub(crate) fn file(&self, what: &str) -> PathBuf {
        self.stage.script.join(format!("{}.{}.{what}", self.stage.ground.name, self.name))
    }

    pub(crate) async fn reached(&self, moment: &str) -> Result<()> {
        let file = self.file(&format!("{moment}.reached"));
        eventually(format!("the pass is {moment}"), async || {
            ensure!(file.exists(), "it is not");
            Ok(())
        })
        .await
    }

    /// Whether the moment is one at which the pass halts.
    pub(crate) const fn halts(&self) -> bool {
        matches!(self.moment, Moment::Armed | Moment::Due | Moment::Taken | Moment::Decided)
    }

    /// Does harm to the write of the pass.
    pub(crate) fn trap(&self, before: &Value, fault: Fault) -> Trap {
        let path = format!("/workloads/{}/status", self.name);
        let old = assignment(before).clone();
        let picks = move |call: &Call| {
            let new = assignment(&call.body);
            call.is(&Method::PATCH, &path) && !new.is_null() && *new != old
        };
        self.stage.proxy.trap(fault, 0..1, picks)
    }

    pub(crate) async fn workload(&self) -> Result<Value> {
        self.stage.ground.objects.need(Kind::WORKLOAD, &self.stage.ground.name, &self.name).await
    }

    pub(crate) async fn create(&self, name: &str, priority: i32, cpu: &str) -> Result<()> {
        let owner = &self.stage.owner["metadata"];
        let owner =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]});
        let pods = json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": cpu}}}]});
        let set = json!({"name": "main", "count": 1, "template": {"spec": pods},
            "topologyRequest": {"required": HOST}});
        let body = json!({
            "metadata": {"namespace": self.stage.ground.name, "name": name, "ownerReferences": [owner],
                "finalizers": [FINALIZER]},
            "spec": {"queueName": self.name, "priority": priority, "podSets": [set]},
        });
        self.stage.ground.objects.create(Kind::WORKLOAD, &body).await?;
        Ok(())
    }

    /// A queue with room for one, and the Workload that has it, short of its pass.
    pub(crate) async fn reserve(&self) -> Result<Value> {
        if !self.guarded {
            fs::write(self.file("unguarded"), "")?;
        }
        let ground = self.stage.ground;
        let checks = match self.pass {
            Pass::Late => json!([{"name": self.stage.gate}, {"name": self.stage.room}]),
            Pass::Instead => json!([{"name": self.stage.gate}]),
        };
        let name = ground.own(&self.name);
        let mut body = objects::cluster_queue(&name, "", &ground.own("placed"), &[("cpu", "1", None)]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        ground.keep(Kind::CLUSTER_QUEUE, body).await?;
        let queue = objects::local_queue(&ground.name, &self.name, &name);
        ground.objects.create(Kind::LOCAL_QUEUE, &queue).await?;
        self.create(&self.name, 0, "1").await?;
        self.until("it holds quota", |w| {
            holds(w, "QuotaReserved") && check(w, &self.stage.gate) == "Pending"
        })
        .await?;
        match self.pass {
            Pass::Late => {
                let waits = |w: &Value| check(w, &self.stage.room) == "Ready" && assignment(w).is_null();
                self.until("it waits for its places", waits).await
            }
            Pass::Instead => {
                self.answer("Ready").await?;
                self.until("it is admitted", |w| holds(w, "Admitted") && !assignment(w).is_null()).await
            }
        }
    }

    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, async || {
            let workload = self.workload().await?;
            ensure!(is(&workload), "{}", workload["status"]);
            Ok(workload)
        })
        .await
    }

    /// The first rule that the versions of the Workload break.
    pub(crate) fn harm(&self) -> Result<Option<String>> {
        let all = self.stage.history.revisions()?;
        let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == self.name).collect();
        let uid = |w: &Value| w["metadata"]["uid"].clone();
        // Nobody has answered for the one that was made again.
        let answered = |w: &&&Value| uid(w) != uid(own[0]) && check(w, &self.stage.gate) == "Ready";
        if let Some(answered) = own.iter().find(answered) {
            return Ok(Some(format!("it has what the one before had: {}", answered["status"])));
        }
        Ok(own.windows(2).find_map(|pair| harm(pair[0], pair[1])))
    }

    /// The queue holds what the objects say, and what is left of the reservation after what came between.
    pub(crate) async fn ledger(&self) -> Result<()> {
        let lost = match self.state {
            State::Finished | State::Unreserved => true,
            State::Drained => self.pass == Pass::Late,
            _ => false,
        };
        let want = if lost { "0" } else { "1" };
        self.stage.ground.counts_of(&self.name, want).await?;
        let workload = self.workload().await?;
        let reserved = if lost && self.state != State::Finished { "False" } else { "True" };
        expect(&workload, "QuotaReserved", reserved, "")
    }
}

/// The assignment of the only pod set.
pub(crate) fn assignment(workload: &Value) -> &Value {
    &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

/// The host of the only pod.
pub(crate) fn host(workload: &Value) -> Option<&str> {
    assignment(workload)["slices"][0]["valuesPerLevel"][0]["universal"].as_str()
}

/// State of a check.
pub(crate) fn check<'a>(workload: &'a Value, name: &str) -> &'a str {
    let all = workload.pointer("/status/admissionChecks").and_then(Value::as_array);
    all.and_then(|all| all.iter().find(|check| text(check, "/name") == name))
        .map_or("", |check| text(check, "/state"))
}
