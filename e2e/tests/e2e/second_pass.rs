//! Second passes against all that can come between: for each kind of pass, whatever ends its reason, at each moment on its
//! way. Nothing lands on one who goes. Each cell is played once more with the guards taken away, and must fail then.
//! `SLUICE_CELL=word` plays those cells whose names contain the word.

use crate::fixture::Fixture;
use crate::history::History;
use crate::invariants::transition_violation;
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::binaries;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{ManagerSettings, failpoints_folder};
use sluice_e2e::objects::{self, Kind, condition_is_true, expect_condition, text};
use sluice_e2e::proxy::{ActiveFault, Call, Fault, Proxy};
use sluice_e2e::wait::{eventually, within};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Cells at once: fewer than the calls that the manager makes at a time, of which each may be held.
pub(crate) const PARALLEL_CASES: usize = 12;
/// After this long nothing lands any more: a pass waits one second.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(2500);
/// How long one without guards may take to do its harm.
pub(crate) const VIOLATION_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const HOST: &str = "kubernetes.io/hostname";
const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
const STAMP: &str = "2026-01-01T00:00:00Z";

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassKind {
    /// Places that could not be given before a check was ready.
    DelayedAssignment,
    /// Others instead of a node that has failed.
    NodeReplacement,
}

/// What comes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interference {
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
pub(crate) enum PassStep {
    Before,
    Armed,
    Due,
    Taken,
    Decided,
    WriteInFlight,
}

pub(crate) const PASS_KINDS: [(&str, PassKind); 2] =
    [("late", PassKind::DelayedAssignment), ("instead", PassKind::NodeReplacement)];
const INTERFERENCES: [(&str, Interference); 8] = [
    ("finished", Interference::Finished),
    ("preempted", Interference::Preempted),
    ("deleted", Interference::Deleted),
    ("recreated", Interference::Recreated),
    ("deactivated", Interference::Deactivated),
    ("unreserved", Interference::Unreserved),
    ("retried", Interference::Retried),
    ("drained", Interference::Drained),
];
const PASS_STEPS: [(&str, PassStep); 6] = [
    ("before", PassStep::Before),
    ("armed", PassStep::Armed),
    ("due", PassStep::Due),
    ("taken", PassStep::Taken),
    ("decided", PassStep::Decided),
    ("flight", PassStep::WriteInFlight),
];

/// What all cells share.
pub(crate) struct PassFixture<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) proxy: Proxy,
    script: PathBuf,
    pub(crate) history: History,
    /// Who owns the Workloads: an object of a kind that nobody follows, so that nobody stops them either.
    owner: Value,
    /// The checks: one of the case's, and one that makes places come late.
    pub(crate) gate: String,
    pub(crate) provisioning_check: String,
}

/// One play.
pub(crate) struct RaceCase<'a> {
    pub(crate) pass_fixture: &'a PassFixture<'a>,
    pub(crate) name: String,
    pub(crate) pass_kind: PassKind,
    pub(crate) interference: Interference,
    pub(crate) step: PassStep,
    pub(crate) step_name: &'static str,
    pub(crate) guarded: bool,
}

/// Every cell of the matrix with guards, where nothing may land, and without, where something must.
pub(crate) async fn races_with_workload_end(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let (stage, before) = PassFixture::open(cluster, ground).await?;
    let names: Vec<String> = stage.race_cases().into_iter().map(|cell| cell.name).collect();
    let reserved: Vec<(RaceCase<'_>, Result<Value>)> = stream::iter(stage.race_cases())
        .map(async |cell| {
            let reserved = cell.reserve().await;
            (cell, reserved)
        })
        .buffer_unordered(PARALLEL_CASES)
        .collect()
        .await;
    stage.taint_hosts(&reserved).await?;
    let wrong: Vec<String> = stream::iter(reserved)
        .map(async |(cell, reserved)| {
            cell.run_checked(reserved).await.err().map(|error| format!("{}: {error:#}", cell.name))
        })
        .buffer_unordered(PARALLEL_CASES)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    for name in names.iter().filter(|name| !wrong.iter().any(|wrong| wrong.starts_with(&format!("{name}:"))))
    {
        println!("        {name}");
    }
    ensure!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    stage.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

impl<'a> PassFixture<'a> {
    /// Puts a manager that stops at moments behind a proxy; returns with the stage what undoes that.
    pub(crate) async fn open(cluster: &mut Cluster, ground: &'a Fixture) -> Result<(Self, ManagerSettings)> {
        let program = binaries::sluice_with_failpoints()?;
        let proxy = Proxy::open(&cluster.plane).await?;
        let before = cluster.manager()?.settings().clone();
        let mut settings = ManagerSettings { program, api_server_url: Some(proxy.url()), ..before.clone() };
        // The case says which nodes have failed, and nobody else does.
        settings.configuration["featureGates"] = json!({"TASFailedNodeReplacement": false,
            "TASFailedNodeReplacementFailFast": false, "TASReplaceNodeOnPodTermination": false});
        let script = failpoints_folder(&cluster.plane);
        fs::create_dir_all(&script)?;
        cluster.replace_manager(&settings).await?;
        Ok((Self::prepare(ground, proxy, script).await?, before))
    }

    async fn prepare(ground: &'a Fixture, proxy: Proxy, script: PathBuf) -> Result<Self> {
        for number in 1..=3 {
            let name = ground.own_name(&format!("host-{number}"));
            let labels = json!({"e2e.example/pool": ground.name, HOST: name});
            ground.create_tracked(Kind::NODE, json!({"metadata": {"name": name, "labels": labels}})).await?;
        }
        let levels = json!([{"nodeLabel": HOST}]);
        let topology = json!({"metadata": {"name": ground.own_name("hosts")}, "spec": {"levels": levels}});
        let topology = ground.create_tracked(Kind::TOPOLOGY, topology).await?;
        let labels = json!({"e2e.example/pool": ground.name});
        ground.create_flavor("placed", json!({"nodeLabels": labels, "topologyName": topology})).await?;
        let gate = ground.own_name("gate");
        let spec = json!({"controllerName": "e2e.example/gate"});
        ground
            .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": gate}, "spec": spec}))
            .await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        ground.objects.merge_status(Kind::ADMISSION_CHECK, "", &gate, &status).await?;
        let room = ground.own_name("room");
        let spec = json!({"provisioningClassName": "any", "managedResources": ["e2e.example/none"]});
        let config = json!({"metadata": {"name": room}, "spec": spec});
        ground.create_tracked(Kind::PROVISIONING_CONFIG, config).await?;
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": room});
        let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
        ground
            .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": room}, "spec": spec}))
            .await?;
        // Before that the queues of all cells are inactive, and whoever is told so had no reservation that could come back.
        eventually("the manager serves the check", async || {
            let check = ground.objects.must_get(Kind::ADMISSION_CHECK, "", &room).await?;
            ensure!(condition_is_true(&check, "Active"), "{}", check["status"]);
            Ok(())
        })
        .await?;
        let owner = json!({"metadata": {"namespace": ground.name, "name": "owner"}});
        let owner = ground.objects.create(Kind::CONFIG_MAP, &owner).await?;
        let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
        Ok(Self { fixture: ground, proxy, script, history, owner, gate, provisioning_check: room })
    }

    fn race_cases(&self) -> Vec<RaceCase<'_>> {
        let word = std::env::var("SLUICE_CELL").unwrap_or_default();
        let mut cells = Vec::new();
        for (moment_name, moment) in PASS_STEPS {
            for (state_name, state) in INTERFERENCES {
                for (pass_name, pass) in PASS_KINDS {
                    for (end, guarded) in [("", true), ("-unguarded", false)] {
                        let name = format!("{pass_name}-{state_name}-{moment_name}{end}");
                        if !name.contains(&word) {
                            continue;
                        }
                        cells.push(RaceCase {
                            pass_fixture: self,
                            name,
                            pass_kind: pass,
                            interference: state,
                            step: moment,
                            step_name: moment_name,
                            guarded,
                        });
                    }
                }
            }
        }
        cells
    }
}

impl PassFixture<'_> {
    /// Those whom nobody stops would stay for ever.
    pub(crate) async fn delete_workloads(&self) -> Result<()> {
        let objects = &self.fixture.objects;
        for workload in objects.list(Kind::WORKLOAD, &self.fixture.name, "").await? {
            let name = text(&workload, "/metadata/name");
            objects.delete(Kind::WORKLOAD, &self.fixture.name, name, PropagationPolicy::Background).await?;
            let none = json!({"metadata": {"finalizers": null}});
            // It may have gone at once.
            let _ = objects.merge(Kind::WORKLOAD, &self.fixture.name, name, &none).await;
        }
        Ok(())
    }

    /// Nobody else can be placed where those stand who are to move.
    pub(crate) async fn taint_hosts(&self, reserved: &[(RaceCase<'_>, Result<Value>)]) -> Result<()> {
        let moving = reserved.iter().filter(|(cell, _)| cell.pass_kind == PassKind::NodeReplacement);
        let hosts: BTreeSet<&str> =
            moving.filter_map(|(_, before)| assigned_host(before.as_ref().ok()?)).collect();
        ensure!(hosts.len() <= 1, "they stand on {hosts:?}");
        for name in hosts {
            let taint = json!({"key": "e2e.example/failed", "effect": "NoSchedule"});
            self.fixture.set_spec(Kind::NODE, "", name, json!({"taints": [taint]})).await?;
        }
        Ok(())
    }
}

impl RaceCase<'_> {
    /// With guards nothing went wrong; without, something did.
    async fn run_checked(&self, reserved: Result<Value>) -> Result<()> {
        let before = reserved.context("it has no reservation")?;
        match (self.run(&before).await, self.guarded) {
            (Ok(()), true) => Ok(()),
            (Err(error), true) => Err(error),
            (outcome, false) => {
                outcome.context("it could not be played")?;
                within(VIOLATION_TIMEOUT, "harm is done", async || match self.violation()? {
                    Some(_) => Ok(()),
                    None => bail!("no rule is broken without guards"),
                })
                .await
            }
        }
    }

    async fn run(&self, before: &Value) -> Result<()> {
        let trap = (self.step == PassStep::WriteInFlight).then(|| self.inject_fault(before, Fault::Hold));
        let halts = self.is_failpoint();
        if halts {
            fs::write(self.script_file(self.step_name), "")?;
        }
        if self.step == PassStep::Before {
            self.intervene_before_pass(before).await?;
        } else {
            self.trigger_pass(before).await?;
            match &trap {
                Some(trap) => trap.wait_until_matched().await?,
                None => self.wait_for_step(self.step_name).await?,
            }
            self.intervene().await?;
        }
        if halts {
            fs::remove_file(self.script_file(self.step_name))?;
        }
        if let Some(trap) = &trap {
            trap.release();
            trap.wait_until_completed().await?;
        }
        if !self.guarded {
            return Ok(());
        }
        tokio::time::sleep(SETTLE_TIME).await;
        if let Some(harm) = self.violation()? {
            bail!("{harm}");
        }
        self.check_usage().await
    }

    pub(crate) fn script_file(&self, what: &str) -> PathBuf {
        self.pass_fixture.script.join(format!("{}.{}.{what}", self.pass_fixture.fixture.name, self.name))
    }

    pub(crate) async fn wait_for_step(&self, moment: &str) -> Result<()> {
        let file = self.script_file(&format!("{moment}.reached"));
        eventually(format!("the pass is {moment}"), async || {
            ensure!(file.exists(), "it is not");
            Ok(())
        })
        .await
    }

    /// Whether the moment is one at which the pass halts.
    pub(crate) const fn is_failpoint(&self) -> bool {
        matches!(self.step, PassStep::Armed | PassStep::Due | PassStep::Taken | PassStep::Decided)
    }

    /// Does harm to the write of the pass.
    pub(crate) fn inject_fault(&self, before: &Value, fault: Fault) -> ActiveFault {
        let path = format!("/workloads/{}/status", self.name);
        let old = assignment(before).clone();
        let picks = move |call: &Call| {
            let new = assignment(&call.body);
            call.matches(&Method::PATCH, &path) && !new.is_null() && *new != old
        };
        self.pass_fixture.proxy.inject(fault, 0..1, picks)
    }

    pub(crate) async fn workload(&self) -> Result<Value> {
        self.pass_fixture
            .fixture
            .objects
            .must_get(Kind::WORKLOAD, &self.pass_fixture.fixture.name, &self.name)
            .await
    }

    pub(crate) async fn create(&self, name: &str, priority: i32, cpu: &str) -> Result<()> {
        let owner = &self.pass_fixture.owner["metadata"];
        let owner =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]});
        let pods = json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": cpu}}}]});
        let set = json!({"name": "main", "count": 1, "template": {"spec": pods},
            "topologyRequest": {"required": HOST}});
        let body = json!({
            "metadata": {"namespace": self.pass_fixture.fixture.name, "name": name, "ownerReferences": [owner],
                "finalizers": [FINALIZER]},
            "spec": {"queueName": self.name, "priority": priority, "podSets": [set]},
        });
        self.pass_fixture.fixture.objects.create(Kind::WORKLOAD, &body).await?;
        Ok(())
    }

    /// A queue with room for one, and the Workload that has it, short of its pass.
    pub(crate) async fn reserve(&self) -> Result<Value> {
        if !self.guarded {
            fs::write(self.script_file("unguarded"), "")?;
        }
        let ground = self.pass_fixture.fixture;
        let checks = match self.pass_kind {
            PassKind::DelayedAssignment => {
                json!([{"name": self.pass_fixture.gate}, {"name": self.pass_fixture.provisioning_check}])
            }
            PassKind::NodeReplacement => json!([{"name": self.pass_fixture.gate}]),
        };
        let name = ground.own_name(&self.name);
        let mut body = objects::cluster_queue(&name, "", &ground.own_name("placed"), &[("cpu", "1", None)]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        ground.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
        let queue = objects::local_queue(&ground.name, &self.name, &name);
        ground.objects.create(Kind::LOCAL_QUEUE, &queue).await?;
        self.create(&self.name, 0, "1").await?;
        self.wait_until("it holds quota", |w| {
            condition_is_true(w, "QuotaReserved") && check_state(w, &self.pass_fixture.gate) == "Pending"
        })
        .await?;
        match self.pass_kind {
            PassKind::DelayedAssignment => {
                let waits = |w: &Value| {
                    check_state(w, &self.pass_fixture.provisioning_check) == "Ready"
                        && assignment(w).is_null()
                };
                self.wait_until("it waits for its places", waits).await
            }
            PassKind::NodeReplacement => {
                self.set_check_state("Ready").await?;
                self.wait_until("it is admitted", |w| {
                    condition_is_true(w, "Admitted") && !assignment(w).is_null()
                })
                .await
            }
        }
    }

    pub(crate) async fn wait_until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, async || {
            let workload = self.workload().await?;
            ensure!(is(&workload), "{}", workload["status"]);
            Ok(workload)
        })
        .await
    }

    /// The first rule that the versions of the Workload break.
    pub(crate) fn violation(&self) -> Result<Option<String>> {
        let all = self.pass_fixture.history.revisions()?;
        let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == self.name).collect();
        let uid = |w: &Value| w["metadata"]["uid"].clone();
        // Nobody has answered for the one that was made again.
        let answered =
            |w: &&&Value| uid(w) != uid(own[0]) && check_state(w, &self.pass_fixture.gate) == "Ready";
        if let Some(answered) = own.iter().find(answered) {
            return Ok(Some(format!("it has what the one before had: {}", answered["status"])));
        }
        Ok(own.windows(2).find_map(|pair| transition_violation(pair[0], pair[1])))
    }

    /// The queue holds what the objects say, and what is left of the reservation after what came between.
    pub(crate) async fn check_usage(&self) -> Result<()> {
        let lost = match self.interference {
            Interference::Finished | Interference::Unreserved => true,
            Interference::Drained => self.pass_kind == PassKind::DelayedAssignment,
            _ => false,
        };
        let want = if lost { "0" } else { "1" };
        self.pass_fixture.fixture.wait_for_cpu_usage(&self.name, want).await?;
        let workload = self.workload().await?;
        let reserved = if lost && self.interference != Interference::Finished { "False" } else { "True" };
        expect_condition(&workload, "QuotaReserved", reserved, "")
    }
}

/// The assignment of the only pod set.
pub(crate) fn assignment(workload: &Value) -> &Value {
    &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

/// The host of the only pod.
pub(crate) fn assigned_host(workload: &Value) -> Option<&str> {
    assignment(workload)["slices"][0]["valuesPerLevel"][0]["universal"].as_str()
}

/// State of a check.
pub(crate) fn check_state<'a>(workload: &'a Value, name: &str) -> &'a str {
    let all = workload.pointer("/status/admissionChecks").and_then(Value::as_array);
    all.and_then(|all| all.iter().find(|check| text(check, "/name") == name))
        .map_or("", |check| text(check, "/state"))
}
