//! Predictions of `sluice simulate --from-cluster --then job.yaml` match what the cluster then does.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, text};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// Exit code of `simulate` if it skipped objects.
const INCOMPLETE_EXIT_CODE: i32 = 3;

/// A Job, the Jobs that are running before it is created, and its expected prediction.
struct PredictedJob {
    name: &'static str,
    job: Job,
    /// Jobs that are running before it is created.
    running_jobs: Vec<Job>,
    /// `admitted`, the pending reason, or a word of the refusal; fixed here, so that prediction and cluster cannot
    /// agree by accident.
    expected: &'static str,
}

pub(crate) async fn twelve_jobs_match_prediction(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    create_queues(fixture).await?;
    let high = fixture.create_priority_class("high", 1000).await?;
    for case in predicted_jobs(fixture, &high) {
        let name = case.name;
        check_prediction(cluster, fixture, case).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Creates independent queues for each case.
async fn create_queues(fixture: &Fixture) -> Result<()> {
    let cpu = |amount| [("cpu", amount, None)];
    for name in ["fits", "full", "small", "checked"] {
        fixture.create_queue(name, "", &cpu("2"), json!({})).await?;
    }
    fixture.create_queue("lends", "idle", &cpu("2"), json!({})).await?;
    fixture.create_queue("borrows", "idle", &cpu("2"), json!({})).await?;
    fixture.create_queue("stopped", "", &cpu("2"), json!({"stopPolicy": "Hold"})).await?;
    fixture.create_queue("strict", "", &cpu("2"), json!({"queueingStrategy": "StrictFIFO"})).await?;
    let within = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue("contended", "", &cpu("2"), within).await?;
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    fixture.create_queue("owner", "lent", &cpu("2"), reclaims).await?;
    fixture.create_queue("guest", "lent", &cpu("2"), json!({})).await?;
    let spare = fixture.create_flavor("spare", json!({})).await?;
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "2"}]});
    let groups =
        json!([{"coveredResources": ["cpu"], "flavors": [flavor(&fixture.own_name("any")), flavor(&spare)]}]);
    fixture.create_queue("two", "", &cpu("2"), json!({"resourceGroups": groups})).await.map(drop)
}

fn predicted_jobs(fixture: &Fixture, high: &str) -> Vec<PredictedJob> {
    let case =
        |name: &'static str, queue: &str, cpu: &str, running: &[(&str, &str)], outcome: &'static str| {
            let running = running.iter().enumerate();
            PredictedJob {
                name,
                job: fixture.job(name, queue, cpu),
                running_jobs: running
                    .map(|(at, (q, cpu))| fixture.job(&format!("{name}-{at}"), q, cpu))
                    .collect(),
                expected: outcome,
            }
        };
    let mut found = vec![
        case("it-fits", "fits", "2", &[], "admitted"),
        case("it-waits", "full", "1", &[("full", "2")], "WaitingForQuota"),
        case("it-never-fits", "small", "3", &[], "ExceedsMaxQuota"),
        case("it-borrows", "borrows", "3", &[("lends", "1")], "admitted"),
        case("it-takes-the-second-flavor", "two", "2", &[("two", "1")], "admitted"),
        case("it-preempts", "contended", "1", &[("contended", "2")], "admitted"),
        case("it-reclaims", "owner", "2", &[("guest", "3")], "admitted"),
        case("its-queue-is-missing", "nowhere", "1", &[], "Misconfigured"),
        case("its-queue-is-stopped", "stopped", "1", &[], "Suspended"),
        case("it-is-refused", "fits", "1", &[], "kueue.x-k8s.io/queue-name"),
        case("its-resource-is-not-declared", "checked", "1", &[], "NoMatchingFlavor"),
        case("it-is-behind-the-head", "strict", "1", &[("strict", "1")], "WaitingForQuota"),
    ];
    for case in &mut found {
        case.job = match case.name {
            "it-preempts" => case.job.clone().priority(high),
            // A valid label value, but not a valid queue name.
            "it-is-refused" => case.job.clone().label("kueue.x-k8s.io/queue-name", "Not_A_Name"),
            "its-resource-is-not-declared" => {
                Job::new(&fixture.name, case.name, "checked", &[("memory", "1Gi")])
            }
            _ => case.job.clone(),
        };
    }
    found
}

async fn check_prediction(cluster: &Cluster, fixture: &Fixture, case: PredictedJob) -> Result<()> {
    for job in case.running_jobs {
        let name = text(job.body(), "/metadata/name").to_owned();
        fixture.submit(job).await?;
        fixture.wait_until_running(&name).await?;
    }
    if case.name == "it-is-behind-the-head" {
        fixture.submit(fixture.job("large", "strict", "2")).await?;
        fixture.wait_until_pending("large", "WaitingForQuota").await?;
        // Creation times have whole seconds: the next Job must be created in a later second.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let (code, report, stderr) = simulate(cluster, case.name, &case.job).await?;
    let refusal = stderr.lines().find_map(|line| line.split_once(&format!("{}: ", case.name)));
    match fixture.objects.create(Kind::JOB, case.job.body()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) => {
            let (_, reason) = refusal.with_context(|| format!("no refusal was predicted: {stderr}"))?;
            ensure!(code == INCOMPLETE_EXIT_CODE && reason.contains(case.expected), "code {code}: {reason}");
            ensure!(status.message.contains(reason), "refused with {}, not {reason}", status.message);
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    ensure!(code == 0, "code {code}: {stderr}");
    let job = report_row(&report, &fixture.name, case.name)?;
    let pending_reason = text(&job, "/conditions/QuotaReserved/reason");
    let outcome = if job["admission"].is_null() { pending_reason } else { "admitted" };
    ensure!(outcome == case.expected, "the prediction is {outcome}");
    let victims: Vec<&str> =
        report["preempted"].as_array().context("no victims")?.iter().map(|v| text(v, "/job")).collect();
    let agrees = async || {
        check_workload_matches(fixture, case.name, &job).await?;
        for victim in &victims {
            let name = victim.rsplit('/').next().unwrap_or_default();
            check_workload_matches(fixture, name, &report_row(&report, &fixture.name, name)?).await?;
        }
        Ok(())
    };
    eventually(format!("{} matches its prediction", case.name), agrees).await?;
    // The match must last, not be a passing state.
    tokio::time::sleep(Duration::from_secs(1)).await;
    agrees().await.context("a second later")
}

/// Simulates a Job on the state of this cluster; returns exit code, report and standard error.
async fn simulate(cluster: &Cluster, name: &str, job: &Job) -> Result<(i32, Value, String)> {
    let file = cluster.plane.folder().join(format!("{name}.json"));
    let mut body = job.body().clone();
    body["apiVersion"] = json!("batch/v1");
    body["kind"] = json!("Job");
    std::fs::write(&file, body.to_string())?;
    let output = tokio::process::Command::new(&cluster.manager()?.settings().program)
        .args(["simulate", "--from-cluster", "--output", "json", "--until", "1m", "--kubeconfig"])
        .arg(cluster.plane.admin_kubeconfig())
        .arg("--then")
        .arg(&file)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).with_context(|| stderr.clone())?;
    Ok((output.status.code().unwrap_or(-1), report, stderr))
}

/// Returns the predicted admission and conditions of a Job in a report.
fn report_row(report: &Value, namespace: &str, job: &str) -> Result<Value> {
    let name = format!("{namespace}/{job}");
    for list in ["admitted", "pending"] {
        let rows = report[list].as_array().context("not a list")?;
        if let Some(row) = rows.iter().find(|row| row["job"] == name.as_str()) {
            let admission = json!({"clusterQueue": row["clusterQueue"], "podSetAssignments": row["podSets"]});
            let admission = if list == "admitted" { admission } else { Value::Null };
            return Ok(json!({"admission": admission, "conditions": without_uids(&row["conditions"])}));
        }
    }
    bail!("the report has no row for {name}")
}

/// Checks that a Job's Workload has the predicted admission and conditions.
async fn check_workload_matches(fixture: &Fixture, job: &str, predicted: &Value) -> Result<()> {
    let workload = fixture.workload(job).await?;
    let list = workload.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = Map::new();
    for c in list.into_iter().flatten() {
        let row = json!({"status": c["status"], "reason": c["reason"], "message": c["message"]});
        conditions.insert(text(c, "/type").to_owned(), row);
    }
    let admission = workload.pointer("/status/admission").cloned().unwrap_or_default();
    let found = json!({"admission": admission, "conditions": without_uids(&Value::Object(conditions))});
    ensure!(found == *predicted, "{job} is {found}, predicted was {predicted}");
    Ok(())
}

/// Removes the UIDs from condition messages, because they cannot be predicted.
fn without_uids(conditions: &Value) -> Value {
    let mut conditions = conditions.clone();
    for condition in conditions.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let parts = text(condition, "/message").split("UID: ").enumerate().map(|(at, part)| {
            let end = part.find([',', ')']).filter(|_| at > 0).unwrap_or(0);
            part.split_at(end).1.to_owned()
        });
        condition["message"] = parts.collect::<Vec<_>>().join("UID: ").into();
    }
    conditions
}
