//! Second passes against all that can come between: for each kind of pass, whatever ends its reason, at each moment on its
//! way. Nothing lands on one who goes. Each cell is played once more with the guards taken away, and must fail then.

use crate::ground::Ground;
use crate::harm::harm;
use crate::history::History;
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use kube::api::{Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::binaries;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, Settings, moments};
use sluice_e2e::objects::{self, Kind, condition, expect, holds, text};
use sluice_e2e::proxy::{Call, Fault, Proxy, Trap};
use sluice_e2e::wait::{eventually, within};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Cells at once: fewer than the calls that the manager makes at a time, of which each may be held.
const AT_ONCE: usize = 12;
/// After this long nothing lands any more: a pass waits one second.
const QUIET: Duration = Duration::from_millis(2500);
/// How long one without guards may take to do its harm.
const HARM: Duration = Duration::from_secs(20);
const HOST: &str = "kubernetes.io/hostname";
const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
const STAMP: &str = "2026-01-01T00:00:00Z";

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Places that could not be given before a check was ready.
    Late,
    /// Others instead of a node that has failed.
    Instead,
}

/// What comes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Finished,
    Preempted,
    Deleted,
    Recreated,
    Deactivated,
    Unreserved,
    Retried,
    Drained,
}

/// How far the pass is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    Armed,
    Due,
    Taken,
    Decided,
    Flight,
}

const PASSES: [(&str, Pass); 2] = [("late", Pass::Late), ("instead", Pass::Instead)];
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
struct Stage<'a> {
    ground: &'a Ground,
    proxy: Proxy,
    script: PathBuf,
    history: History,
    /// Who owns the Workloads: an object of a kind that nobody follows, so that nobody stops them either.
    owner: Value,
    /// The checks: one of the case's, and one that makes places come late.
    gate: String,
    room: String,
}

/// One play.
struct Cell<'a> {
    stage: &'a Stage<'a>,
    name: String,
    pass: Pass,
    state: State,
    moment: Moment,
    moment_name: &'static str,
    guarded: bool,
}

/// Every cell of the matrix with guards, where nothing may land, and without, where something must.
pub(crate) async fn no_pass_lands_on_who_goes(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let program = binaries::sluice_with_moments()?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let mut settings = Settings { program, server: Some(proxy.url()), ..old.settings().clone() };
    // The case says which nodes have failed, and nobody else does.
    settings.configuration["featureGates"] = json!({"TASFailedNodeReplacement": false});
    let script = moments(&cluster.plane);
    fs::create_dir_all(&script)?;
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.ready().await?;
    cluster.webhooks_answer().await?;
    let stage = Stage::prepare(ground, proxy, script).await?;
    let cells = stage.cells();
    let names: Vec<String> = cells.iter().map(|cell| cell.name.clone()).collect();
    let wrong: Vec<String> = stream::iter(cells)
        .map(async |cell| cell.verdict().await.err().map(|error| format!("{}: {error:#}", cell.name)))
        .buffer_unordered(AT_ONCE)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    for name in names.iter().filter(|name| !wrong.iter().any(|wrong| wrong.starts_with(&format!("{name}:"))))
    {
        println!("        {name}");
    }
    ensure!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.ready().await?;
    cluster.put_manager(direct);
    cluster.webhooks_answer().await
}

impl<'a> Stage<'a> {
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
        let owner = json!({"metadata": {"namespace": ground.name, "name": "owner"}});
        let owner = ground.objects.create(Kind::CONFIG_MAP, &owner).await?;
        let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
        Ok(Self { ground, proxy, script, history, owner, gate, room })
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for (moment_name, moment) in MOMENTS {
            for (state_name, state) in STATES {
                for (pass_name, pass) in PASSES {
                    for (end, guarded) in [("", true), ("-unguarded", false)] {
                        let name = format!("{pass_name}-{state_name}-{moment_name}{end}");
                        cells.push(Cell { stage: self, name, pass, state, moment, moment_name, guarded });
                    }
                }
            }
        }
        cells
    }
}

impl Cell<'_> {
    /// With guards nothing went wrong; without, something did.
    async fn verdict(&self) -> Result<()> {
        match (self.play().await, self.guarded) {
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

    async fn play(&self) -> Result<()> {
        if !self.guarded {
            fs::write(self.file("unguarded"), "")?;
        }
        let before = self.reserve().await?;
        let trap = self.trap(&before);
        let halts = matches!(self.moment, Moment::Armed | Moment::Due | Moment::Taken | Moment::Decided);
        if halts {
            fs::write(self.file(self.moment_name), "")?;
        }
        if self.moment == Moment::Before {
            self.intervene_early(&before).await?;
        } else {
            self.call_for_pass(&before).await?;
            match &trap {
                Some(trap) => trap.caught().await?,
                None => self.reached().await?,
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

    fn file(&self, what: &str) -> PathBuf {
        self.stage.script.join(format!("{}.{}.{what}", self.stage.ground.name, self.name))
    }

    async fn reached(&self) -> Result<()> {
        let file = self.file(&format!("{}.reached", self.moment_name));
        eventually(format!("the pass is {}", self.moment_name), async || {
            ensure!(file.exists(), "it is not");
            Ok(())
        })
        .await
    }

    /// Holds the write of the pass, if that is the moment.
    fn trap(&self, before: &Value) -> Option<Trap> {
        let path = format!("/workloads/{}/status", self.name);
        let old = assignment(before).clone();
        let picks = move |call: &Call| {
            let new = assignment(&call.body);
            call.is(&Method::PATCH, &path) && !new.is_null() && *new != old
        };
        (self.moment == Moment::Flight).then(|| self.stage.proxy.trap(Fault::Hold, 0..1, picks))
    }

    async fn workload(&self) -> Result<Value> {
        self.stage.ground.objects.need(Kind::WORKLOAD, &self.stage.ground.name, &self.name).await
    }

    async fn create(&self, name: &str, priority: i32) -> Result<()> {
        let owner = &self.stage.owner["metadata"];
        let owner =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]});
        let pods = json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}]});
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
    async fn reserve(&self) -> Result<Value> {
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
        self.create(&self.name, 0).await?;
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

    async fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, async || {
            let workload = self.workload().await?;
            ensure!(is(&workload), "{}", workload["status"]);
            Ok(workload)
        })
        .await
    }

    /// Writes the status as the manager would, on the newest version.
    async fn rewrite(&self, change: impl Fn(&mut Value)) -> Result<()> {
        let api = self.stage.ground.objects.api(Kind::WORKLOAD, &self.stage.ground.name);
        eventually("the status is written", async || {
            let workload = self.workload().await?;
            let mut status = workload["status"].clone();
            change(&mut status);
            let meta = json!({"name": self.name, "resourceVersion": workload["metadata"]["resourceVersion"]});
            let body = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": meta,
                "status": status});
            let params = PatchParams::apply("kueue-admission").force();
            api.patch_status(&self.name, &params, &Patch::Apply(&body)).await?;
            Ok(())
        })
        .await
    }

    async fn answer(&self, state: &str) -> Result<()> {
        let gate = &self.stage.gate;
        self.rewrite(|status| {
            for check in status["admissionChecks"].as_array_mut().into_iter().flatten() {
                if check["name"] == **gate {
                    check["state"] = json!(state);
                }
            }
        })
        .await
    }

    /// Gives the reason for the pass.
    async fn call_for_pass(&self, before: &Value) -> Result<()> {
        match self.pass {
            Pass::Late => self.answer("Ready").await,
            Pass::Instead => {
                let values = &assignment(before)["slices"][0]["valuesPerLevel"][0];
                let host = values["universal"].as_str().context("no host")?.to_owned();
                self.rewrite(|status| status["unhealthyNodes"] = json!([{"name": host}])).await
            }
        }
    }

    /// First what comes between, then the reason for the pass. One that is made again has its reason before it goes.
    async fn intervene_early(&self, before: &Value) -> Result<()> {
        if self.state == State::Recreated {
            self.mark_deleted().await?;
            self.call_for_pass(before).await?;
            return self.make_again().await;
        }
        self.intervene().await?;
        self.call_for_pass(before).await
    }

    /// What comes between.
    async fn intervene(&self) -> Result<()> {
        let ground = self.stage.ground;
        let evicted = |w: &Value| holds(w, "Evicted");
        match self.state {
            State::Finished => self.rewrite(|status| set(status, "Finished", "True", "Succeeded")).await,
            State::Preempted => {
                self.create(&format!("{}-preemptor", self.name), 100).await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Deleted => self.mark_deleted().await,
            State::Recreated => {
                self.mark_deleted().await?;
                self.make_again().await
            }
            State::Deactivated => {
                ground.set(Kind::WORKLOAD, &ground.name, &self.name, json!({"active": false})).await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Unreserved => self.lose_reservation().await,
            State::Retried => {
                self.answer("Retry").await?;
                self.until("it is evicted", evicted).await.map(drop)
            }
            State::Drained => {
                let spec = json!({"stopPolicy": "HoldAndDrain"});
                ground.set(Kind::LOCAL_QUEUE, &ground.name, &self.name, spec).await?;
                self.until("it lets go", |w| evicted(w) || !holds(w, "QuotaReserved")).await.map(drop)
            }
        }
    }

    async fn mark_deleted(&self) -> Result<()> {
        let ground = self.stage.ground;
        let how = PropagationPolicy::Background;
        ground.objects.delete(Kind::WORKLOAD, &ground.name, &self.name, how).await?;
        Ok(())
    }

    async fn make_again(&self) -> Result<()> {
        let ground = self.stage.ground;
        let none = json!({"metadata": {"finalizers": null}});
        ground.objects.merge(Kind::WORKLOAD, &ground.name, &self.name, &none).await?;
        self.create(&self.name, 0).await?;
        self.until("the new one holds quota", |w| holds(w, "QuotaReserved")).await.map(drop)
    }

    /// Somebody takes its reservation, and there is no quota for another.
    async fn lose_reservation(&self) -> Result<()> {
        let ground = self.stage.ground;
        let name = ground.own(&self.name);
        let none = objects::cluster_queue(&name, "", &ground.own("placed"), &[("cpu", "0", None)]);
        let groups = json!({"resourceGroups": none["spec"]["resourceGroups"]});
        ground.set(Kind::CLUSTER_QUEUE, "", &name, groups).await?;
        self.rewrite(|status| {
            set(status, "QuotaReserved", "False", "Pending");
            set(status, "Admitted", "False", "NoReservation");
            status["admission"] = Value::Null;
        })
        .await?;
        self.until("there is no quota", |w| condition(w, "QuotaReserved").reason == "ExceedsMaxQuota")
            .await
            .map(drop)
    }

    /// The first rule that the versions of the Workload break.
    fn harm(&self) -> Result<Option<String>> {
        let all = self.stage.history.revisions()?;
        let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == self.name).collect();
        Ok(own.windows(2).find_map(|pair| harm(pair[0], pair[1])))
    }

    /// The queue holds what the objects say, and what is left of the reservation after what came between.
    async fn ledger(&self) -> Result<()> {
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
fn assignment(workload: &Value) -> &Value {
    &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

/// State of a check.
fn check<'a>(workload: &'a Value, name: &str) -> &'a str {
    let all = workload.pointer("/status/admissionChecks").and_then(Value::as_array);
    all.and_then(|all| all.iter().find(|check| text(check, "/name") == name))
        .map_or("", |check| text(check, "/state"))
}

/// Sets a condition in a status.
fn set(status: &mut Value, kind: &str, holds: &str, reason: &str) {
    let said =
        json!({"type": kind, "status": holds, "reason": reason, "message": "", "lastTransitionTime": STAMP});
    if let Some(all) = status["conditions"].as_array_mut() {
        all.retain(|condition| condition["type"] != kind);
        all.push(said);
    }
}
