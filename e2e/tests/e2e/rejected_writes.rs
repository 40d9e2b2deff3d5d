//! Writes that the server refuses for some time: as conflicts, by a policy, by throttling, by server errors, or by not
//! answering.

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

/// How long a step is refused as a conflict; a tenth of it outside soak runs.
const CONFLICT_PERIOD: Duration = Duration::from_mins(1);
/// How long a step is refused otherwise; a tenth of it outside soak runs.
const REJECTION_PERIOD: Duration = Duration::from_secs(30);
/// Request timeout of the manager; a tenth of it outside soak runs.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent scenarios.
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

/// Returns the maximum number of attempts that back-off allows in this time: some at once, then doubling up to at least
/// 5 s.
fn allowed_tries(time: Duration) -> Result<usize> {
    Ok(12 + usize::try_from(time.as_secs())? / 5)
}

/// Refuses each write of a Job's life in each way for some time. It must be retried with growing back-off, never on an
/// older object than before, and when it is accepted the end state must be as without faults.
pub(crate) async fn refused_writes_back_off(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = vec![
        format!("--request-timeout={}s", scaled_duration(CALL_TIMEOUT).as_secs()),
        "--metrics-insecure".to_owned(),
    ];
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), flags, ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    scenario(fixture, "calm").await?;
    let expected = wait_for_counted_end(fixture, cluster.manager()?, "calm").await?;
    let manager = cluster.manager()?;
    let all = REJECTIONS.iter().flat_map(|rejection| STEPS.iter().map(move |step| (*rejection, *step)));
    let failures: Vec<String> = stream::iter(all)
        .map(async |((rejection_name, fault, time), (step_name, step))| {
            let case = RejectionCase {
                fixture,
                manager,
                proxy: &proxy,
                name: format!("{step_name}-{rejection_name}"),
                step,
            };
            let outcome = case.run(fault, scaled_duration(time), &expected).await;
            outcome.err().map(|error| format!("{}: {error:#}", case.name))
        })
        .buffer_unordered(PARALLEL_SCENARIOS)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    ensure!(failures.is_empty(), "{}\nend state without faults: {expected:#?}", failures.join("\n"));
    cluster.replace_manager(&before).await.map(drop)
}

/// One step refused with one kind of rejection.
struct RejectionCase<'a> {
    fixture: &'a Fixture,
    manager: &'a Manager,
    proxy: &'a Proxy,
    name: String,
    step: Step,
}

impl RejectionCase<'_> {
    async fn run(&self, fault: Fault, time: Duration, expected: &EndState) -> Result<()> {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let (job, step, sent_versions) = (self.name.clone(), self.step, Arc::clone(&versions));
        let injected = self.proxy.inject_all(fault, move |call: &Call| {
            let matches = step(call, &job);
            if matches {
                sent_versions.lock().unwrap().extend(call.resource_version());
            }
            matches
        });
        let fault = async {
            injected.wait_until_matched().await?;
            tokio::time::sleep(time).await;
            let attempts = injected.matched();
            drop(injected);
            ensure!(attempts <= allowed_tries(time)?, "{attempts} attempts in {} s", time.as_secs());
            anyhow::Ok(())
        };
        let (scenario_outcome, fault_outcome) = futures::join!(scenario(self.fixture, &self.name), fault);
        fault_outcome?;
        scenario_outcome?;
        let versions = versions.lock().unwrap().clone();
        ensure!(versions.is_sorted(), "retried with an older resourceVersion: {versions:?}");
        eventually("the end state is as without faults", async || {
            let end = end_state(self.fixture, self.manager, &self.name).await?;
            ensure!(end == *expected, "the end state is {end:#?}");
            Ok(())
        })
        .await
    }
}

/// An admission policy of the cluster forbids a reservation, then an eviction. The quota of the failed reservation is
/// released at every ancestor, no part of the eviction happens, the Job gets an event, and scheduling continues when
/// the policy is deleted.
pub(crate) async fn policy_forbids_manager_writes(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let cohort = fixture.create_cohort("org", "", &[]).await?;
    for queue in ["left", "right"] {
        fixture.create_queue(queue, &cohort, &[("cpu", "1", None)], json!({})).await?;
        fixture.wait_until_queue_active(queue).await?;
    }
    let policy = Policy::forbid(fixture, "QuotaReserved").await?;
    fixture.submit(fixture.job("denied", "left", "2")).await?;
    policy.wait_for_event("denied").await?;
    for (job, queue) in [("one", "left"), ("two", "right")] {
        fixture.submit(fixture.job(job, queue, "1")).await?;
        fixture.wait_until_running(job).await?;
    }
    fixture.check_pending("denied").await?;
    policy.delete().await?;
    for job in ["one", "two"] {
        fixture.finish_job(job).await?;
    }
    fixture.wait_until_running_and_reported("denied").await?;

    let policy = Policy::forbid(fixture, "Evicted").await?;
    fixture.set_workload_spec("denied", json!({"active": false})).await?;
    policy.wait_for_event("denied").await?;
    fixture.submit(fixture.job("next", "right", "1")).await?;
    // A deactivated workload counts as being evicted, even if the eviction could not be written.
    fixture.wait_until_pending("next", "WaitingForPreemptedWorkloads").await?;
    let workload = fixture.workload("denied").await?;
    ensure!(
        condition_is_true(&workload, "QuotaReserved") && !condition_is_true(&workload, "Evicted"),
        "{}",
        workload["status"]
    );
    fixture.wait_until_running("denied").await?;
    policy.delete().await?;
    fixture.wait_until_pending("denied", "Deactivated").await?;
    fixture.wait_until_running("next").await?;
    fixture.finish_job("next").await?;
    fixture.set_workload_spec("denied", json!({"active": true})).await?;
    fixture.wait_until_running("denied").await?;
    fixture.finish_job("denied").await?;
    for queue in ["left", "right"] {
        fixture.wait_for_queue_counts(queue, (0, 0, 0), &[("cpu", "0")]).await?;
    }
    Ok(())
}

/// An active ValidatingAdmissionPolicy: no Workload of the Job "denied" may get this condition.
struct Policy<'a> {
    fixture: &'a Fixture,
    name: String,
}

impl<'a> Policy<'a> {
    /// Creates the policy and waits until the server enforces it.
    async fn forbid(fixture: &'a Fixture, condition: &str) -> Result<Self> {
        let name = format!("{}.e2e.example", fixture.own_name(&condition.to_lowercase()));
        let rule = json!({"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["workloads/status"]});
        let has_condition =
            format!("object.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')");
        let expression = format!("!has(object.status) || !has(object.status.conditions) || !{has_condition}");
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels":
                {"kubernetes.io/metadata.name": fixture.name}}},
            "matchConditions": [{"name": "denied", "expression": "object.metadata.name.startsWith('job-denied-')"}],
            "validations": [{"expression": expression, "message": "not today", "reason": "Forbidden"}],
        });
        let body = json!({"metadata": {"name": name}, "spec": spec});
        fixture.objects.create(Kind::VALIDATING_POLICY, &body).await?;
        let binding = json!({"policyName": name, "validationActions": ["Deny"]});
        let body = json!({"metadata": {"name": name}, "spec": binding});
        fixture.objects.create(Kind::VALIDATING_POLICY_BINDING, &body).await?;
        let policy = Self { fixture, name };
        policy.wait_until_enforced(condition).await?;
        Ok(policy)
    }

    /// Waits until a dry-run patch of an unschedulable Workload is refused.
    async fn wait_until_enforced(&self, condition: &str) -> Result<()> {
        let fixture = self.fixture;
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "work:1"}]}});
        let name = format!("job-denied-{}", condition.to_lowercase());
        let body = json!({"metadata": {"namespace": fixture.name, "name": name},
            "spec": {"queueName": "none", "podSets": [{"name": "main", "count": 1, "template": template}]}});
        fixture.objects.create(Kind::WORKLOAD, &body).await?;
        let forbidden_condition = json!({"type": condition, "status": "True", "reason": "Tried", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"conditions": [forbidden_condition]}});
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        eventually("the policy is enforced", async || {
            let api = fixture.objects.api(Kind::WORKLOAD, &fixture.name);
            let outcome: kube::Result<DynamicObject> =
                api.patch_status(&name, &dry_run, &Patch::Merge(&patch)).await;
            let message = expect_refused(outcome, 403)?;
            ensure!(message.contains(&self.name), "{message}");
            Ok(())
        })
        .await
    }

    /// Waits for a WriteRejected event on the Job's Workload that names the policy.
    async fn wait_for_event(&self, job: &str) -> Result<()> {
        eventually(format!("{job} has a WriteRejected event"), async || {
            let workload = self.fixture.workload(job).await?;
            let name = text(&workload, "/metadata/name");
            let events = self.fixture.objects.list(Kind::EVENT, &self.fixture.name, "").await?;
            let is_rejection = |event: &&Value| {
                text(event, "/regarding/name") == name && text(event, "/reason") == "WriteRejected"
            };
            let event = events.iter().rev().find(is_rejection).context("no event")?;
            let note = text(event, "/note");
            ensure!(
                events.iter().filter(is_rejection).any(|e| text(e, "/note").contains(&self.name)),
                "{note}"
            );
            Ok(())
        })
        .await
    }

    /// Deletes the policy.
    async fn delete(self) -> Result<()> {
        for kind in [Kind::VALIDATING_POLICY_BINDING, Kind::VALIDATING_POLICY] {
            self.fixture.objects.delete(kind, "", &self.name, PropagationPolicy::Background).await?;
        }
        Ok(())
    }
}
