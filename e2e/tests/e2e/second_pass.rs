//! Races of second passes with the end of their workload: each kind of pass, each interference, at each step of the
//! pass. No second pass may write to a workload that is ending. Each cell is repeated with all guards disabled and must
//! fail then. `SLUICE_CELL=word` runs the cells whose names contain the word. The matrix is in
//! `second_pass_matrix`, its interferences are in `second_pass_races`, single guards in `second_pass_guards`, crashes in
//! `second_pass_crashes`.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::History;
use crate::invariants::transition_violation;
use crate::second_pass_matrix::{
    INTERFERENCES, Interference, PASS_KINDS, PASS_STEPS, PassKind, PassStep, sample,
};
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{ManagerSettings, failpoints_folder, get};
use sluice_e2e::objects::{self, Kind, condition_is_true, expect_condition, text};
use sluice_e2e::proxy::{ActiveFault, Call, Fault, Proxy};
use sluice_e2e::wait::{eventually, within};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Concurrent cells; fewer than the manager's in-flight write slots, because each cell may hold one.
pub(crate) const PARALLEL_CASES: usize = 12;
/// No write of a pass lands after this time: a pass is delayed by 1 s.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(2500);
/// Deadline for a violation when guards are disabled.
pub(crate) const VIOLATION_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const HOST: &str = "kubernetes.io/hostname";
const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
const STAMP: &str = "2026-01-01T00:00:00Z";

/// Objects shared by all cells.
pub(crate) struct PassFixture<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) proxy: Proxy,
    script: PathBuf,
    pub(crate) history: History,
    /// Owner of the Workloads. Its kind has no job integration, so that no job is started or stopped.
    owner: Value,
    /// Admission check that the test controls.
    pub(crate) gate: String,
    /// Provisioning check, which delays topology assignment.
    pub(crate) provisioning_check: String,
    /// Port of the manager's metrics.
    metrics_port: u16,
}

/// One cell of the matrix.
pub(crate) struct RaceCase<'a> {
    pub(crate) pass_fixture: &'a PassFixture<'a>,
    pub(crate) name: String,
    pub(crate) pass_kind: PassKind,
    pub(crate) interference: Interference,
    pub(crate) step: PassStep,
    pub(crate) step_name: &'static str,
    pub(crate) guarded: bool,
}

/// Runs every cell with guards, where no rule may be violated, and without, where one must be.
pub(crate) async fn races_with_workload_end(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let word = std::env::var("SLUICE_CELL").unwrap_or_default();
    run_races(cluster, fixture, |case| case.name.contains(&word)).await
}

/// Runs one cell for each interference, with guards. Together they have each step and each kind of pass.
pub(crate) async fn one_race_for_each_interference(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let sample = sample();
    let is_sampled = |case: &RaceCase<'_>| sample.contains(&(case.interference, case.step, case.pass_kind));
    run_races(cluster, fixture, |case| case.guarded && is_sampled(case)).await
}

async fn run_races(
    cluster: &mut Cluster,
    fixture: &Fixture,
    selected: impl Fn(&RaceCase<'_>) -> bool,
) -> Result<()> {
    let (pass_fixture, before) = PassFixture::open(cluster, fixture).await?;
    let mut cases = pass_fixture.race_cases();
    cases.retain(selected);
    ensure!(!cases.is_empty(), "no cell is selected");
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    let reserved: Vec<(RaceCase<'_>, Result<Value>)> = stream::iter(cases)
        .map(async |case| {
            let reserved = case.reserve().await;
            (case, reserved)
        })
        .buffer_unordered(PARALLEL_CASES)
        .collect()
        .await;
    pass_fixture.taint_hosts(&reserved).await?;
    let failures: Vec<String> = stream::iter(reserved)
        .map(async |(case, reserved)| {
            case.run_checked(reserved).await.err().map(|error| format!("{}: {error:#}", case.name))
        })
        .buffer_unordered(PARALLEL_CASES)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    for name in
        names.iter().filter(|name| !failures.iter().any(|failure| failure.starts_with(&format!("{name}:"))))
    {
        note(name);
    }
    ensure!(
        failures.is_empty(),
        "{} of {} cells failed:\n{}",
        failures.len(),
        names.len(),
        failures.join("\n")
    );
    pass_fixture.delete_workloads().await?;
    cluster.replace_manager(&before).await.map(drop)
}

impl<'a> PassFixture<'a> {
    /// Replaces the manager by one with failpoints behind a proxy; returns also the previous settings.
    pub(crate) async fn open(cluster: &mut Cluster, fixture: &'a Fixture) -> Result<(Self, ManagerSettings)> {
        let program = binaries::sluice(Build::Failpoints)?;
        let proxy = Proxy::open(&cluster.plane).await?;
        let before = cluster.manager()?.settings().clone();
        let mut settings = ManagerSettings { program, api_server_url: Some(proxy.url()), ..before.clone() };
        // Only the test marks nodes as failed.
        settings.configuration["featureGates"] = json!({"TASFailedNodeReplacement": false,
            "TASFailedNodeReplacementFailFast": false, "TASReplaceNodeOnPodTermination": false});
        // The metrics say which quota the manager has read.
        settings.configuration["metrics"]["enableClusterQueueResources"] = json!(true);
        settings.flags.push("--metrics-insecure".to_owned());
        fs::create_dir_all(failpoints_folder(&cluster.plane))?;
        cluster.replace_manager(&settings).await?;
        Ok((Self::prepare(cluster, fixture, proxy).await?, before))
    }

    async fn prepare(cluster: &Cluster, fixture: &'a Fixture, proxy: Proxy) -> Result<Self> {
        for number in 1..=3 {
            let name = fixture.own_name(&format!("host-{number}"));
            let labels = json!({"e2e.example/pool": fixture.name, HOST: name});
            fixture.create_tracked(Kind::NODE, json!({"metadata": {"name": name, "labels": labels}})).await?;
        }
        let levels = json!([{"nodeLabel": HOST}]);
        let topology = json!({"metadata": {"name": fixture.own_name("hosts")}, "spec": {"levels": levels}});
        let topology = fixture.create_tracked(Kind::TOPOLOGY, topology).await?;
        let labels = json!({"e2e.example/pool": fixture.name});
        fixture.create_flavor("placed", json!({"nodeLabels": labels, "topologyName": topology})).await?;
        let gate = fixture.own_name("gate");
        let spec = json!({"controllerName": "e2e.example/gate"});
        fixture
            .create_tracked(Kind::ADMISSION_CHECK, json!({"metadata": {"name": gate}, "spec": spec}))
            .await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": STAMP});
        let status = json!({"status": {"conditions": [active]}});
        fixture.objects.merge_status(Kind::ADMISSION_CHECK, "", &gate, &status).await?;
        let provisioning_check = fixture.own_name("capacity");
        let spec = json!({"provisioningClassName": "any", "managedResources": ["e2e.example/none"]});
        let config = json!({"metadata": {"name": provisioning_check}, "spec": spec});
        fixture.create_tracked(Kind::PROVISIONING_CONFIG, config).await?;
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": provisioning_check});
        let spec = json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
        fixture
            .create_tracked(
                Kind::ADMISSION_CHECK,
                json!({"metadata": {"name": provisioning_check}, "spec": spec}),
            )
            .await?;
        // Until then the queues of all cells are inactive; workloads would get that status instead of a reservation.
        eventually("the provisioning check is active", async || {
            let check = fixture.objects.must_get(Kind::ADMISSION_CHECK, "", &provisioning_check).await?;
            ensure!(condition_is_true(&check, "Active"), "{}", check["status"]);
            Ok(())
        })
        .await?;
        let owner = json!({"metadata": {"namespace": fixture.name, "name": "owner"}});
        let owner = fixture.objects.create(Kind::CONFIG_MAP, &owner).await?;
        let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
        let script = failpoints_folder(&cluster.plane);
        let metrics_port = cluster.manager()?.metrics_port();
        Ok(Self { fixture, proxy, script, history, owner, gate, provisioning_check, metrics_port })
    }

    fn race_cases(&self) -> Vec<RaceCase<'_>> {
        let mut cases = Vec::new();
        for (step_name, step) in PASS_STEPS {
            for (interference_name, interference) in INTERFERENCES {
                for (pass_name, pass_kind) in PASS_KINDS {
                    for (suffix, guarded) in [("", true), ("-unguarded", false)] {
                        let name = format!("{pass_name}-{interference_name}-{step_name}{suffix}");
                        cases.push(RaceCase {
                            pass_fixture: self,
                            name,
                            pass_kind,
                            interference,
                            step,
                            step_name,
                            guarded,
                        });
                    }
                }
            }
        }
        cases
    }
}

impl PassFixture<'_> {
    /// Waits until the manager has read that a ClusterQueue has no quota: until then it may reserve quota again for a
    /// workload that lost its reservation.
    pub(crate) async fn wait_until_without_quota(&self, cluster_queue: &str) -> Result<()> {
        let name = format!("cluster_queue=\"{cluster_queue}\"");
        eventually("the manager has read that the quota is 0", async || {
            let (code, page) = get(self.metrics_port, "/metrics").await?;
            ensure!(code == 200, "/metrics returned {code}");
            let quota = page
                .lines()
                .find(|line| line.starts_with("kueue_cluster_queue_nominal_quota{") && line.contains(&name));
            ensure!(quota.is_some_and(|line| line.ends_with(" 0.0")), "{quota:?}");
            Ok(())
        })
        .await
    }

    /// Deletes all Workloads and their finalizers; no job controller would do it.
    pub(crate) async fn delete_workloads(&self) -> Result<()> {
        let objects = &self.fixture.objects;
        for workload in objects.list(Kind::WORKLOAD, &self.fixture.name, "").await? {
            let name = text(&workload, "/metadata/name");
            objects.delete(Kind::WORKLOAD, &self.fixture.name, name, PropagationPolicy::Background).await?;
            let no_finalizers = json!({"metadata": {"finalizers": null}});
            // Ignored: the Workload may already be deleted.
            let _ = objects.merge(Kind::WORKLOAD, &self.fixture.name, name, &no_finalizers).await;
        }
        Ok(())
    }

    /// Taints the host of the workloads whose node will fail, so that no other workload is assigned to it.
    pub(crate) async fn taint_hosts(&self, reserved: &[(RaceCase<'_>, Result<Value>)]) -> Result<()> {
        let replacements = reserved.iter().filter(|(case, _)| case.pass_kind == PassKind::NodeReplacement);
        let hosts: BTreeSet<&str> =
            replacements.filter_map(|(_, before)| assigned_host(before.as_ref().ok()?)).collect();
        ensure!(hosts.len() <= 1, "the workloads are on several hosts: {hosts:?}");
        for name in hosts {
            let taint = json!({"key": "e2e.example/failed", "effect": "NoSchedule"});
            self.fixture.set_spec(Kind::NODE, "", name, json!({"taints": [taint]})).await?;
        }
        Ok(())
    }
}

impl RaceCase<'_> {
    /// Runs the cell. With guards no rule may be violated; without, one must be.
    async fn run_checked(&self, reserved: Result<Value>) -> Result<()> {
        let before = reserved.context("cannot reserve quota")?;
        match (self.run(&before).await, self.guarded) {
            (Ok(()), true) => Ok(()),
            (Err(error), true) => Err(error),
            (outcome, false) => {
                outcome.context("cannot run the cell")?;
                within(VIOLATION_TIMEOUT, "a rule is violated", async || match self.violation()? {
                    Some(_) => Ok(()),
                    None => bail!("no rule is violated although the guards are disabled"),
                })
                .await
            }
        }
    }

    async fn run(&self, before: &Value) -> Result<()> {
        let fault = (self.step == PassStep::WriteInFlight).then(|| self.inject_fault(before, Fault::Hold));
        let at_failpoint = self.is_failpoint();
        if at_failpoint {
            fs::write(self.script_file(self.step_name), "")?;
        }
        if self.step == PassStep::Before {
            self.intervene_before_pass(before).await?;
        } else {
            self.trigger_pass(before).await?;
            match &fault {
                Some(fault) => fault.wait_until_matched().await?,
                None => self.wait_for_step(self.step_name).await?,
            }
            self.intervene().await?;
        }
        if at_failpoint {
            fs::remove_file(self.script_file(self.step_name))?;
        }
        if let Some(fault) = &fault {
            fault.release();
            fault.wait_until_completed().await?;
        }
        if !self.guarded {
            return Ok(());
        }
        tokio::time::sleep(SETTLE_TIME).await;
        if let Some(violation) = self.violation()? {
            bail!("{violation}");
        }
        self.check_usage().await
    }

    pub(crate) fn script_file(&self, what: &str) -> PathBuf {
        self.pass_fixture.script.join(format!("{}.{}.{what}", self.pass_fixture.fixture.name, self.name))
    }

    pub(crate) async fn wait_for_step(&self, step: &str) -> Result<()> {
        let file = self.script_file(&format!("{step}.reached"));
        eventually(format!("the pass reaches step {step}"), async || {
            ensure!(file.exists(), "step not reached");
            Ok(())
        })
        .await
    }

    /// Returns whether the step is a failpoint, at which the pass stops.
    pub(crate) const fn is_failpoint(&self) -> bool {
        matches!(self.step, PassStep::Armed | PassStep::Due | PassStep::ObjectRead | PassStep::Decided)
    }

    /// Injects a fault into the write of the pass.
    pub(crate) fn inject_fault(&self, before: &Value, fault: Fault) -> ActiveFault {
        let path = format!("/workloads/{}/status", self.name);
        let old = assignment(before).clone();
        let is_pass_write = move |call: &Call| {
            let new = assignment(&call.body);
            call.matches(&Method::PATCH, &path) && !new.is_null() && *new != old
        };
        self.pass_fixture.proxy.inject(fault, 0..1, is_pass_write)
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
        let pod_spec = json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": cpu}}}]});
        let pod_set = json!({"name": "main", "count": 1, "template": {"spec": pod_spec},
            "topologyRequest": {"required": HOST}});
        let body = json!({
            "metadata": {"namespace": self.pass_fixture.fixture.name, "name": name, "ownerReferences": [owner],
                "finalizers": [FINALIZER]},
            "spec": {"queueName": self.name, "priority": priority, "podSets": [pod_set]},
        });
        self.pass_fixture.fixture.objects.create(Kind::WORKLOAD, &body).await?;
        Ok(())
    }

    /// Creates a queue with quota for one workload and a Workload that reserves it; returns it before its second pass.
    pub(crate) async fn reserve(&self) -> Result<Value> {
        if !self.guarded {
            fs::write(self.script_file("unguarded"), "")?;
        }
        let fixture = self.pass_fixture.fixture;
        let checks = match self.pass_kind {
            PassKind::DelayedAssignment => {
                json!([{"name": self.pass_fixture.gate}, {"name": self.pass_fixture.provisioning_check}])
            }
            PassKind::NodeReplacement => json!([{"name": self.pass_fixture.gate}]),
        };
        let name = fixture.own_name(&self.name);
        let mut body = objects::cluster_queue(&name, "", &fixture.own_name("placed"), &[("cpu", "1", None)]);
        body["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        body["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        fixture.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
        let queue = objects::local_queue(&fixture.name, &self.name, &name);
        fixture.objects.create(Kind::LOCAL_QUEUE, &queue).await?;
        self.create(&self.name, 0, "1").await?;
        self.wait_until("the workload has quota", |w| {
            condition_is_true(w, "QuotaReserved") && check_state(w, &self.pass_fixture.gate) == "Pending"
        })
        .await?;
        match self.pass_kind {
            PassKind::DelayedAssignment => {
                let is_delayed = |w: &Value| {
                    check_state(w, &self.pass_fixture.provisioning_check) == "Ready"
                        && assignment(w).is_null()
                };
                self.wait_until("the workload waits for its topology assignment", is_delayed).await
            }
            PassKind::NodeReplacement => {
                self.set_check_state("Ready").await?;
                self.wait_until("the workload is admitted", |w| {
                    condition_is_true(w, "Admitted") && !assignment(w).is_null()
                })
                .await
            }
        }
    }

    pub(crate) async fn wait_until(&self, what: &str, predicate: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, async || {
            let workload = self.workload().await?;
            ensure!(predicate(&workload), "{}", workload["status"]);
            Ok(workload)
        })
        .await
    }

    /// Returns the first rule that the revisions of the Workload violate.
    pub(crate) fn violation(&self) -> Result<Option<String>> {
        let all = self.pass_fixture.history.revisions()?;
        let own: Vec<&Value> = all.iter().filter(|w| text(w, "/metadata/name") == self.name).collect();
        let uid = |w: &Value| w["metadata"]["uid"].clone();
        // The test never sets the check of a recreated Workload to Ready.
        let inherits_check =
            |w: &&&Value| uid(w) != uid(own[0]) && check_state(w, &self.pass_fixture.gate) == "Ready";
        if let Some(workload) = own.iter().find(inherits_check) {
            return Ok(Some(format!(
                "the recreated Workload has the check state of the deleted one: {}",
                workload["status"]
            )));
        }
        Ok(own.windows(2).find_map(|pair| transition_violation(pair[0], pair[1])))
    }

    /// Checks that usage of the queue and reservation of the Workload match the interference.
    pub(crate) async fn check_usage(&self) -> Result<()> {
        let released = match self.interference {
            Interference::Finished | Interference::Unreserved => true,
            Interference::Drained => self.pass_kind == PassKind::DelayedAssignment,
            _ => false,
        };
        let expected = if released { "0" } else { "1" };
        self.pass_fixture.fixture.wait_for_cpu_usage(&self.name, expected).await?;
        let workload = self.workload().await?;
        let reserved = if released && self.interference != Interference::Finished { "False" } else { "True" };
        expect_condition(&workload, "QuotaReserved", reserved, "")
    }
}

/// Returns the topology assignment of the only pod set.
pub(crate) fn assignment(workload: &Value) -> &Value {
    &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

/// Returns the host of the only pod.
pub(crate) fn assigned_host(workload: &Value) -> Option<&str> {
    assignment(workload)["slices"][0]["valuesPerLevel"][0]["universal"].as_str()
}

/// Returns the state of an admission check, or "".
pub(crate) fn check_state<'a>(workload: &'a Value, name: &str) -> &'a str {
    let all = workload.pointer("/status/admissionChecks").and_then(Value::as_array);
    all.and_then(|all| all.iter().find(|check| text(check, "/name") == name))
        .map_or("", |check| text(check, "/state"))
}
