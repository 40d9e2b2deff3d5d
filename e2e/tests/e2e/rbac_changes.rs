//! Permissions that are removed from the running manager and restored, and frameworks that lack permissions or webhooks.

use crate::background_jobs::BackgroundJobs;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true};
use sluice_e2e::wait::{eventually, scaled_duration};
use std::time::Duration;

const ROLE: &str = "kueue-manager-role";
/// How long each permission is missing; a tenth of it outside soak runs.
const MISSING_PERIOD: Duration = Duration::from_secs(40);
/// Jobs created while a permission is missing: more than the quota admits at once.
const JOBS: usize = 6;
/// The server checks permissions only when a watch starts, so running watches must end soon.
const FLAGS: [&str; 1] = ["--watch-timeout=2s"];

/// A cluster-wide permission of the manager.
#[derive(Clone, Copy)]
struct Permission {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

/// The configuration with the webhook that suspends Jobs, and the path of that webhook.
const CONFIGURATION: &str = "kueue-mutating-webhook-configuration";
const JOB_PATH: &str = "/mutate-batch-v1-job";

const READ_VERBS: &[&str] = &["get", "list", "watch"];

/// The permissions to start Jobs, to reserve quota, and to watch Workloads and Jobs are removed for some time, one
/// after another. Work that needs the permission waits, everything else continues, webhooks answer, and when the
/// permission is restored all Jobs run, each once.
pub(crate) async fn permission_removed_and_restored(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let flags = FLAGS.map(str::to_owned).to_vec();
    let settings = ManagerSettings { flags, ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let role = fixture.objects.must_get(Kind::CLUSTER_ROLE, "", ROLE).await?;
    let work = BackgroundJobs::start(fixture, "main").await?;
    let permission = |group, resource, verbs| Permission { group, resource, verbs };
    let permissions = [
        permission("batch", "jobs", &["patch"]),
        permission("kueue.x-k8s.io", "workloads/status", &["patch"]),
        permission("kueue.x-k8s.io", "workloads", READ_VERBS),
        permission("batch", "jobs", READ_VERBS),
    ];
    for (round, permission) in permissions.into_iter().enumerate() {
        let numbers = round * JOBS..(round + 1) * JOBS;
        revoke(fixture, &role, permission).await?;
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
        restore(fixture, &role, permission).await?;
        let what = format!("all Jobs finish with {} on {}", permission.verbs.join(", "), permission.resource);
        eventually(what, async || {
            let finished = work.count_finished().await?;
            ensure!(finished == numbers.end, "{finished} of {} have finished", numbers.end);
            Ok(())
        })
        .await?;
    }
    work.wait_and_check(cluster, permissions.len() * JOBS).await?;
    cluster.replace_manager(&before).await.map(drop)
}

/// A manager that starts without the webhook or a permission of a listed framework is not ready, and names what lacks. One that
/// was ready stays so, because the other kinds need its webhooks.
pub(crate) async fn incomplete_framework_is_not_ready(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let settings = cluster.manager()?.settings().clone();
    let role = fixture.objects.must_get(Kind::CLUSTER_ROLE, "", ROLE).await?;
    let starts_jobs = Permission { group: "batch", resource: "jobs", verbs: &["patch"] };
    let webhooks = fixture.objects.must_get(Kind::MUTATING_WEBHOOKS, "", CONFIGURATION).await?;
    let all = webhooks["webhooks"].as_array().context("no webhooks")?;
    let others: Vec<&Value> = all.iter().filter(|entry| !entry.to_string().contains(JOB_PATH)).collect();
    ensure!(others.len() < all.len(), "no entry of Jobs");
    let set_webhooks = async |entries: Value| {
        fixture.objects.merge(Kind::MUTATING_WEBHOOKS, "", CONFIGURATION, &entries).await
    };

    set_webhooks(json!({"webhooks": others})).await?;
    revoke(fixture, &role, starts_jobs).await?;
    cluster.take_manager().context("no manager")?.terminate();
    let manager = Manager::start(&cluster.plane, &settings).await?;
    eventually("the manager names what lacks", async || {
        let reason = manager.is_ready().await.err().context("it is ready")?.to_string();
        let wanted = format!(
            "framework batch/job lacks an entry in {CONFIGURATION}, permission to patch jobs of batch: apply"
        );
        ensure!(reason.contains(&wanted), "{reason}");
        Ok(())
    })
    .await?;
    restore(fixture, &role, starts_jobs).await?;
    set_webhooks(json!({"webhooks": all})).await?;
    manager.wait_until_ready().await?;
    cluster.put_manager(manager);
    cluster.wait_for_webhooks().await?;

    set_webhooks(json!({"webhooks": others})).await?;
    let manager = cluster.manager()?;
    eventually("the lost entry is in the log", async || {
        let log = std::fs::read_to_string(manager.log())?;
        ensure!(log.contains("no webhook is called for a framework"), "the log ends with {}", log.len());
        Ok(())
    })
    .await?;
    manager.is_ready().await?;
    set_webhooks(json!({"webhooks": all})).await?;
    Ok(())
}

/// Checks that quota is reserved and no Job is started.
async fn check_reserved_but_suspended(fixture: &Fixture) -> Result<()> {
    eventually("reservations continue", async || {
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

/// Checks that each Job has its Workload and none has quota.
async fn check_created_but_unreserved(fixture: &Fixture, count: usize) -> Result<()> {
    eventually("each Job has its Workload", async || {
        let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
        let open: Vec<&Value> =
            all.iter().filter(|workload| !condition_is_true(workload, "Finished")).collect();
        ensure!(open.len() == count, "{} unfinished Workloads exist", open.len());
        ensure!(open.iter().all(|workload| !condition_is_true(workload, "QuotaReserved")), "some have quota");
        Ok(())
    })
    .await
}

/// Removes the verbs; returns when the server denies them.
async fn revoke(fixture: &Fixture, role: &Value, permission: Permission) -> Result<()> {
    let mut rules = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let of_group = rule["apiGroups"].as_array().is_some_and(|all| all.contains(&json!(permission.group)));
        for resource in rule["resources"].as_array().into_iter().flatten() {
            let mut narrowed = rule.clone();
            narrowed["resources"] = json!([resource]);
            if of_group
                && resource == permission.resource
                && let Some(verbs) = narrowed["verbs"].as_array_mut()
            {
                verbs.retain(|verb| !permission.verbs.iter().any(|gone| verb == gone));
            }
            if narrowed["verbs"].as_array().is_some_and(|verbs| !verbs.is_empty()) {
                rules.push(narrowed);
            }
        }
    }
    fixture.objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": rules})).await?;
    wait_for_access_review(fixture, permission, false).await
}

/// Restores the verbs; returns when the server allows them.
async fn restore(fixture: &Fixture, role: &Value, permission: Permission) -> Result<()> {
    fixture.objects.merge(Kind::CLUSTER_ROLE, "", ROLE, &json!({"rules": role["rules"]})).await?;
    wait_for_access_review(fixture, permission, true).await
}

async fn wait_for_access_review(fixture: &Fixture, permission: Permission, granted: bool) -> Result<()> {
    let (resource, subresource) = permission.resource.split_once('/').unwrap_or((permission.resource, ""));
    for verb in permission.verbs {
        let asked = json!({
            "group": permission.group, "resource": resource, "subresource": subresource, "verb": verb,
        });
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let groups = json!([format!("system:serviceaccounts:{NAMESPACE}"), "system:serviceaccounts"]);
        let body =
            json!({"metadata": {}, "spec": {"resourceAttributes": asked, "user": user, "groups": groups}});
        eventually(format!("{verb} {} is granted: {granted}", permission.resource), async || {
            let answer = fixture.objects.create(Kind::ACCESS_REVIEW, &body).await?;
            ensure!(answer["status"]["allowed"] == json!(granted), "{}", answer["status"]);
            Ok(())
        })
        .await?;
    }
    Ok(())
}
