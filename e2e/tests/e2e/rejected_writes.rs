//! Writes that the server refuses for a while: as conflicts, by a policy, because it is asked too much, is broken, is away
//! or does not answer.

use crate::fixture::{Fixture, expect_refused};
use crate::lost_writes::{EndState, STEPS, Step, end_state, scenario, wait_for_counted_end};
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use kube::api::{DynamicObject, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::{Call, ErrorResponse, Fault, Proxy};
use sluice_e2e::wait::{eventually, scaled_duration};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long each step is refused; a tenth of it, but for a soak.
const CONFLICT_PERIOD: Duration = Duration::from_mins(1);
const REJECTION_PERIOD: Duration = Duration::from_secs(30);
/// The manager gives a call up after this time; a tenth of it as well.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Stories at once.
const PARALLEL_SCENARIOS: usize = 24;

const REJECTIONS: [(&str, Fault, Duration); 7] = [
    ("conflict", Fault::Respond(ErrorResponse::CONFLICT), CONFLICT_PERIOD),
    ("throttled", Fault::Respond(ErrorResponse::THROTTLED), REJECTION_PERIOD),
    ("unavailable", Fault::Respond(ErrorResponse::UNAVAILABLE), REJECTION_PERIOD),
    ("broken", Fault::Respond(ErrorResponse::BROKEN), REJECTION_PERIOD),
    ("silent", Fault::NeverAnswer, REJECTION_PERIOD),
    ("forbidden", Fault::Respond(ErrorResponse::FORBIDDEN), REJECTION_PERIOD),
    ("invalid", Fault::Respond(ErrorResponse::INVALID), REJECTION_PERIOD),
];

/// The tries of one write that its waits allow for in this time: after some at once they double up to 5 s at least.
fn allowed_tries(time: Duration) -> Result<usize> {
    Ok(12 + usize::try_from(time.as_secs())? / 5)
}

/// Each write of a Job's life is refused in each way for as long as it lasts, however often it is tried: it is tried in
/// waits that grow, never on an older object than before, and once it is let through the end is as without.
pub(crate) async fn refused_writes_back_off(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = vec![
        format!("--call-timeout={}s", scaled_duration(CALL_TIMEOUT).as_secs()),
        "--metrics-insecure".to_owned(),
    ];
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), flags, ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    scenario(ground, "calm").await?;
    let calm = wait_for_counted_end(ground, cluster.manager()?, "calm").await?;
    let manager = cluster.manager()?;
    let all = REJECTIONS.iter().flat_map(|answer| STEPS.iter().map(move |step| (*answer, *step)));
    let wrong: Vec<String> = stream::iter(all)
        .map(async |((how, fault, time), (what, step))| {
            let cell = RejectionCase {
                fixture: ground,
                manager,
                proxy: &proxy,
                name: format!("{what}-{how}"),
                step,
            };
            let outcome = cell.run(fault, scaled_duration(time), &calm).await;
            outcome.err().map(|error| format!("{}: {error:#}", cell.name))
        })
        .buffer_unordered(PARALLEL_SCENARIOS)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    ensure!(wrong.is_empty(), "{}\nand without any fault: {calm:#?}", wrong.join("\n"));
    cluster.replace_manager(&before).await.map(drop)
}

/// One step refused in one way.
struct RejectionCase<'a> {
    fixture: &'a Fixture,
    manager: &'a Manager,
    proxy: &'a Proxy,
    name: String,
    step: Step,
}

impl RejectionCase<'_> {
    async fn run(&self, fault: Fault, time: Duration, calm: &EndState) -> Result<()> {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let (job, step, seen) = (self.name.clone(), self.step, Arc::clone(&versions));
        let trap = self.proxy.inject_all(fault, move |call: &Call| {
            let picked = step(call, &job);
            if picked {
                seen.lock().unwrap().extend(call.resource_version());
            }
            picked
        });
        let fault = async {
            trap.wait_until_matched().await?;
            tokio::time::sleep(time).await;
            let tried = trap.matched();
            drop(trap);
            ensure!(tried <= allowed_tries(time)?, "it was tried {tried} times in {} s", time.as_secs());
            anyhow::Ok(())
        };
        let (told, lasted) = futures::join!(scenario(self.fixture, &self.name), fault);
        lasted?;
        told?;
        let versions = versions.lock().unwrap().clone();
        ensure!(versions.is_sorted(), "it was sent again on an older object: {versions:?}");
        eventually("the end is as without", async || {
            let end = end_state(self.fixture, self.manager, &self.name).await?;
            ensure!(end == *calm, "it is {end:#?}");
            Ok(())
        })
        .await
    }
}

/// A policy of the cluster forbids a reservation, then an eviction: what was reserved in vain is given back at every
/// ancestor, so that others have it; nothing of the eviction is done; the Job is told; and all goes on without the policy.
pub(crate) async fn policy_forbids_manager_writes(_: &Cluster, ground: &Fixture) -> Result<()> {
    let cohort = ground.create_cohort("org", "", &[]).await?;
    for queue in ["left", "right"] {
        ground.create_queue(queue, &cohort, &[("cpu", "1", None)], json!({})).await?;
        ground.wait_until_queue_active(queue).await?;
    }
    let policy = Policy::forbid(ground, "QuotaReserved").await?;
    ground.submit(ground.job("judged", "left", "2")).await?;
    policy.wait_for_event("judged").await?;
    for (job, queue) in [("one", "left"), ("two", "right")] {
        ground.submit(ground.job(job, queue, "1")).await?;
        ground.wait_until_running(job).await?;
    }
    ground.check_pending("judged").await?;
    policy.delete().await?;
    for job in ["one", "two"] {
        ground.finish_job(job).await?;
    }
    ground.wait_until_running_and_reported("judged").await?;

    let policy = Policy::forbid(ground, "Evicted").await?;
    ground.set_workload_spec("judged", json!({"active": false})).await?;
    policy.wait_for_event("judged").await?;
    ground.submit(ground.job("next", "right", "1")).await?;
    // A deactivated workload counts as leaving, whether or not that could be written.
    ground.wait_until_pending("next", "WaitingForPreemptedWorkloads").await?;
    let workload = ground.workload("judged").await?;
    ensure!(
        condition_is_true(&workload, "QuotaReserved") && !condition_is_true(&workload, "Evicted"),
        "{}",
        workload["status"]
    );
    ground.wait_until_running("judged").await?;
    policy.delete().await?;
    ground.wait_until_pending("judged", "Deactivated").await?;
    ground.wait_until_running("next").await?;
    ground.finish_job("next").await?;
    ground.set_workload_spec("judged", json!({"active": true})).await?;
    ground.wait_until_running("judged").await?;
    ground.finish_job("judged").await?;
    for queue in ["left", "right"] {
        ground.wait_for_queue_counts(queue, (0, 0, 0), &[("cpu", "0")]).await?;
    }
    Ok(())
}

/// A policy of the API server in force: no Workload of the Job "judged" is told this condition.
struct Policy<'a> {
    fixture: &'a Fixture,
    name: String,
}

impl<'a> Policy<'a> {
    /// Returns when the server acts on it.
    async fn forbid(ground: &'a Fixture, condition: &str) -> Result<Self> {
        let name = format!("{}.e2e.example", ground.own_name(&condition.to_lowercase()));
        let rule = json!({"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["workloads/status"]});
        let told =
            format!("object.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')");
        let expression = format!("!has(object.status) || !has(object.status.conditions) || !{told}");
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels":
                {"kubernetes.io/metadata.name": ground.name}}},
            "matchConditions": [{"name": "judged", "expression": "object.metadata.name.startsWith('job-judged-')"}],
            "validations": [{"expression": expression, "message": "not today", "reason": "Forbidden"}],
        });
        let body = json!({"metadata": {"name": name}, "spec": spec});
        ground.objects.create(Kind::VALIDATING_POLICY, &body).await?;
        let binding = json!({"policyName": name, "validationActions": ["Deny"]});
        let body = json!({"metadata": {"name": name}, "spec": binding});
        ground.objects.create(Kind::VALIDATING_POLICY_BINDING, &body).await?;
        let policy = Self { fixture: ground, name };
        policy.wait_until_enforced(condition).await?;
        Ok(policy)
    }

    /// Tries it on a Workload that nobody schedules.
    async fn wait_until_enforced(&self, condition: &str) -> Result<()> {
        let ground = self.fixture;
        let pods =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "work:1"}]}});
        let name = format!("job-judged-{}", condition.to_lowercase());
        let body = json!({"metadata": {"namespace": ground.name, "name": name},
            "spec": {"queueName": "none", "podSets": [{"name": "main", "count": 1, "template": pods}]}});
        ground.objects.create(Kind::WORKLOAD, &body).await?;
        let told = json!({"type": condition, "status": "True", "reason": "Tried", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [told]}});
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        eventually("the policy is in force", async || {
            let api = ground.objects.api(Kind::WORKLOAD, &ground.name);
            let outcome: kube::Result<DynamicObject> =
                api.patch_status(&name, &dry, &Patch::Merge(&patch)).await;
            let message = expect_refused(outcome, 403)?;
            ensure!(message.contains(&self.name), "{message}");
            Ok(())
        })
        .await
    }

    /// Waits for the event that says so.
    async fn wait_for_event(&self, job: &str) -> Result<()> {
        eventually(format!("{job} is told"), async || {
            let workload = self.fixture.workload(job).await?;
            let name = text(&workload, "/metadata/name");
            let events = self.fixture.objects.list(Kind::EVENT, &self.fixture.name, "").await?;
            let told = |event: &&Value| {
                text(event, "/regarding/name") == name && text(event, "/reason") == "WriteRejected"
            };
            let event = events.iter().rev().find(told).context("no event")?;
            let note = text(event, "/note");
            ensure!(events.iter().filter(told).any(|e| text(e, "/note").contains(&self.name)), "{note}");
            Ok(())
        })
        .await
    }

    /// Takes it away.
    async fn delete(self) -> Result<()> {
        for kind in [Kind::VALIDATING_POLICY_BINDING, Kind::VALIDATING_POLICY] {
            self.fixture.objects.delete(kind, "", &self.name, PropagationPolicy::Background).await?;
        }
        Ok(())
    }
}
