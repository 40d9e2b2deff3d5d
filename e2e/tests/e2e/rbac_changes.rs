//! Rights that are taken from the running manager and given back.

use crate::background_jobs::BackgroundJobs;
use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, condition_is_true};
use sluice_e2e::wait::{eventually, scaled_duration};
use std::time::Duration;

const ROLE: &str = "kueue-manager-role";
/// How long each right is missing; a tenth of it, but for a soak.
const MISSING_PERIOD: Duration = Duration::from_secs(40);
/// Jobs that come while a right is missing: more than there is room for.
const JOBS: usize = 6;
/// A watch that runs is not asked for its right: it has to end first.
const FLAGS: [&str; 1] = ["--watch-timeout=2s"];

/// A right of the manager over the whole cluster.
#[derive(Clone, Copy)]
struct Permission {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

const READ_VERBS: &[&str] = &["get", "list", "watch"];

/// Starts of Jobs, reservations, and the watches of either are forbidden for a while, one after the other: what needs the
/// right waits, everything else goes on, webhooks answer, and with the right back all Jobs run, each once.
pub(crate) async fn permission_removed_and_restored(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let flags = FLAGS.map(str::to_owned).to_vec();
    let settings = ManagerSettings { flags, ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let role = fixture.objects.must_get(Kind::CLUSTER_ROLE, "", ROLE).await?;
    let work = BackgroundJobs::start(fixture, "main").await?;
    let right = |group, resource, verbs| Permission { group, resource, verbs };
    let rights = [
        right("batch", "jobs", &["patch"]),
        right("kueue.x-k8s.io", "workloads/status", &["patch"]),
        right("kueue.x-k8s.io", "workloads", READ_VERBS),
        right("batch", "jobs", READ_VERBS),
    ];
    for (round, right) in rights.into_iter().enumerate() {
        let numbers = round * JOBS..(round + 1) * JOBS;
        revoke(fixture, &role, right).await?;
        work.submit(numbers.clone()).await?;
        match round {
            0 => check_reserved_but_suspended(fixture).await?,
            1 => check_created_but_unreserved(fixture, numbers.len()).await?,
            _ => {}
        }
        tokio::time::sleep(scaled_duration(MISSING_PERIOD)).await;
        cluster.manager()?.process().check()?;
        cluster.wait_for_webhooks().await?;
        match round {
            0 => check_reserved_but_suspended(fixture).await?,
            1 => check_created_but_unreserved(fixture, numbers.len()).await?,
            _ => {}
        }
        restore(fixture, &role, right).await?;
        eventually(format!("all go on with {} of {}", right.verbs.join(", "), right.resource), async || {
            let finished = work.count_finished().await?;
            ensure!(finished == numbers.end, "{finished} of {} have finished", numbers.end);
            Ok(())
        })
        .await?;
    }
    work.wait_and_check(cluster, rights.len() * JOBS).await?;
    cluster.replace_manager(&before).await.map(drop)
}

/// Quota is given as ever, and no Job is started.
async fn check_reserved_but_suspended(fixture: &Fixture) -> Result<()> {
    eventually("reservations go on", async || {
        let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let admitted = all
            .iter()
            .filter(|w| condition_is_true(w, "Admitted") && !condition_is_true(w, "Finished"))
            .count();
        ensure!(admitted == crate::background_jobs::PARALLEL_JOBS, "{admitted} are admitted");
        Ok(())
    })
    .await?;
    let jobs = fixture.objects.list(Kind::JOB, &fixture.name, "").await?;
    let started = jobs.iter().filter(|job| job["spec"]["suspend"] == json!(false)).count();
    ensure!(started == 0, "{started} Jobs were started");
    Ok(())
}

/// Each Job has its Workload, and none has quota.
async fn check_created_but_unreserved(fixture: &Fixture, count: usize) -> Result<()> {
    eventually("Workloads are made", async || {
        let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let open: Vec<&Value> =
            all.iter().filter(|workload| !condition_is_true(workload, "Finished")).collect();
        ensure!(open.len() == count, "{} are there", open.len());
        ensure!(open.iter().all(|workload| !condition_is_true(workload, "QuotaReserved")), "some have quota");
        Ok(())
    })
    .await
}

/// Takes the verbs away; returns when the server refuses them.
async fn revoke(fixture: &Fixture, role: &Value, right: Permission) -> Result<()> {
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let of_group = rule["apiGroups"].as_array().is_some_and(|all| all.contains(&json!(right.group)));
        for resource in rule["resources"].as_array().into_iter().flatten() {
            let mut narrowed = rule.clone();
            narrowed["resources"] = json!([resource]);
            if of_group
                && resource == right.resource
                && let Some(verbs) = narrowed["verbs"].as_array_mut()
            {
                verbs.retain(|verb| !right.verbs.iter().any(|gone| verb == gone));
            }
            if narrowed["verbs"].as_array().is_some_and(|verbs| !verbs.is_empty()) {
                rules.push(narrowed);
            }
        }
    }
    fixture.objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": rules})).await?;
    wait_for_access_review(fixture, right, false).await
}

/// Gives them back; returns when the server grants them.
async fn restore(fixture: &Fixture, role: &Value, right: Permission) -> Result<()> {
    fixture.objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": role["rules"]})).await?;
    wait_for_access_review(fixture, right, true).await
}

async fn wait_for_access_review(fixture: &Fixture, right: Permission, granted: bool) -> Result<()> {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((right.resource, ""));
    for verb in right.verbs {
        let asked =
            json!({"group": right.group, "resource": resource, "subresource": subresource, "verb": verb});
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let groups = json!([format!("system:serviceaccounts:{NAMESPACE}"), "system:serviceaccounts"]);
        let body =
            json!({"metadata": {}, "spec": {"resourceAttributes": asked, "user": user, "groups": groups}});
        eventually(format!("{verb} {} is granted: {granted}", right.resource), async || {
            let answer = fixture.objects.create(Kind::ACCESS_REVIEW, &body).await?;
            ensure!(answer["status"]["allowed"] == json!(granted), "{}", answer["status"]);
            Ok(())
        })
        .await?;
    }
    Ok(())
}
