//! The manager is killed between any two writes with which a pod group starts and stops.
//!
//! A proxy lets a number of writes of each group through and holds the later ones; then the manager is killed. With as many groups as
//! a start has writes, one kill meets each of its steps, and another one each step of the stop.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::{History, in_store_order, is_deleted};
use crate::pod_groups::{is_gated, member};
use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use http::Method;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::{ActiveFault, Call, Fault, Proxy};
use sluice_e2e::wait::eventually;
use std::collections::{BTreeMap, BTreeSet};

const QUEUE: &str = "main";
const MEMBERS: usize = 3;
/// More than the writes of a start, and than those of a stop: in the last groups none is held.
const GROUPS: usize = 16;

/// After the restart the pods of each group are all ungated, and after the next one they have all ended; the queue counts what the groups
/// have. At no revision that the API server had, a pod was ungated while its group had no quota.
pub(crate) async fn manager_killed_between_any_two_writes(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let before = cluster.manager()?.settings().clone();
    let mut settings = ManagerSettings { api_server_url: Some(proxy.url()), ..before.clone() };
    // Writes that are held delay no other group.
    settings.flags.push("--write-concurrency=256".to_owned());
    settings.configuration["integrations"] = json!({"frameworks": ["batch/job", "pod"]});
    cluster.replace_manager(&settings).await?;
    let all = MEMBERS * GROUPS;
    let quota = all.to_string();
    fixture.create_queue(QUEUE, "", &[("cpu", &quota, None)], json!({})).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    let groups = Groups { fixture, names: (0..GROUPS).map(|number| format!("g{number:02}")).collect() };

    let held = groups.hold_writes(&proxy);
    groups.create().await?;
    groups.wait_until_held(&held, Groups::has_started).await?;
    let ungated = groups.count(|pod| !is_gated(pod)).await?;
    restart(cluster, &settings, held).await?;
    groups.wait_for_all(Groups::has_started).await?;
    let count = i64::try_from(GROUPS)?;
    fixture.wait_for_queue_counts(QUEUE, (0, count, count), &[("cpu", &quota)]).await?;
    expect_each_step("ungated", &ungated)?;

    let held = groups.hold_writes(&proxy);
    groups.deactivate().await?;
    groups.wait_until_held(&held, Groups::has_stopped).await?;
    let left = groups.count(|pod| pod["metadata"]["deletionTimestamp"].is_null()).await?;
    restart(cluster, &settings, held).await?;
    groups.wait_for_all(Groups::has_stopped).await?;
    fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0")]).await?;
    expect_each_step("not deleted", &left)?;

    groups.delete().await?;
    check_revisions(&workloads.revisions()?, &pods.revisions()?)?;
    cluster.replace_manager(&before).await.map(drop)
}

/// Kills the manager, drops the writes that are held, and starts it again.
async fn restart(cluster: &mut Cluster, settings: &ManagerSettings, held: Vec<ActiveFault>) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    drop(held);
    cluster.start_manager(settings).await
}

/// Checks that the manager was killed while a group had each number of such pods: none, some and all.
fn expect_each_step(what: &str, pods: &BTreeMap<String, usize>) -> Result<()> {
    note(format!("{what} at the kill: {pods:?}"));
    let seen: BTreeSet<usize> = pods.values().copied().collect();
    ensure!(seen == (0..=MEMBERS).collect(), "no group had each number of pods that are {what}: {pods:?}");
    Ok(())
}

/// Groups of which the one with index N has its first N writes let through.
struct Groups<'a> {
    fixture: &'a Fixture,
    names: Vec<String>,
}

impl Groups<'_> {
    fn hold_writes(&self, proxy: &Proxy) -> Vec<ActiveFault> {
        let hold = |(passed, group): (usize, &String)| {
            let (pods, workload) = (format!("/pods/{group}-"), format!("/workloads/{group}"));
            let name = group.clone();
            proxy.inject(Fault::NeverAnswer, passed..usize::MAX, move |call: &Call| {
                let creates =
                    call.matches(&Method::POST, "/workloads") && call.body["metadata"]["name"] == *name;
                let changes = call.path.contains(&pods) || call.path.contains(&workload);
                creates || (changes && call.method != Method::GET)
            })
        };
        self.names.iter().enumerate().map(hold).collect()
    }

    async fn create(&self) -> Result<()> {
        for group in &self.names {
            for index in 0..MEMBERS {
                let pod = member(&self.fixture.name, &format!("{group}-{index}"), group, MEMBERS, "1");
                self.fixture.objects.create(Kind::POD, &pod).await?;
            }
        }
        Ok(())
    }

    async fn deactivate(&self) -> Result<()> {
        let inactive = json!({"active": false});
        for group in &self.names {
            self.fixture.set_spec(Kind::WORKLOAD, &self.fixture.name, group, inactive.clone()).await?;
        }
        Ok(())
    }

    /// Waits until a write of each group is held, or the group has no further one.
    async fn wait_until_held(
        &self,
        held: &[ActiveFault],
        is_done: impl AsyncFn(&Self, &str) -> Result<()>,
    ) -> Result<()> {
        for ((passed, group), fault) in self.names.iter().enumerate().zip(held) {
            eventually(format!("write {passed} of {group} is held"), async || {
                if fault.matched() > passed { Ok(()) } else { is_done(self, group).await }
            })
            .await?;
        }
        Ok(())
    }

    async fn wait_for_all(&self, is_done: impl AsyncFn(&Self, &str) -> Result<()>) -> Result<()> {
        let waits =
            self.names.iter().map(|group| eventually(group.clone(), async || is_done(self, group).await));
        join_all(waits).await.into_iter().collect()
    }

    async fn pods(&self, group: &str) -> Result<Vec<Value>> {
        Ok(self.fixture.objects.list(Kind::POD, &self.fixture.name, &format!("group={group}")).await?)
    }

    /// Returns for each group how many such pods it has.
    async fn count(&self, is: impl Fn(&Value) -> bool) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for group in &self.names {
            let pods = self.pods(group).await?;
            counts.insert(group.clone(), pods.iter().filter(|pod| is(pod)).count());
        }
        Ok(counts)
    }

    /// Checks that all pods of a group run, and its Workload says so.
    async fn has_started(&self, group: &str) -> Result<()> {
        let pods = self.pods(group).await?;
        let ready = pods.iter().filter(|pod| condition_is_true(pod, "Ready")).count();
        ensure!(ready == MEMBERS, "{ready} pods of {group} are ready");
        let workload = self.fixture.objects.must_get(Kind::WORKLOAD, &self.fixture.name, group).await?;
        ensure!(condition_is_true(&workload, "PodsReady"), "{}", workload["status"]);
        Ok(())
    }

    /// Checks that all pods of a group were deleted and have ended, and it has no quota. Ends deleted pods, as a kubelet does: a finalizer
    /// keeps them, because other pods may replace them.
    async fn has_stopped(&self, group: &str) -> Result<()> {
        for pod in self.pods(group).await?.iter().filter(|pod| !has_ended(pod)) {
            ensure!(pod["metadata"]["deletionTimestamp"].is_string(), "a pod of {group} is not deleted");
            let (name, ended) = (text(pod, "/metadata/name"), json!({"status": {"phase": "Failed"}}));
            self.fixture.objects.merge_status(Kind::POD, &self.fixture.name, name, &ended).await?;
        }
        let workload = self.fixture.objects.must_get(Kind::WORKLOAD, &self.fixture.name, group).await?;
        ensure!(!condition_is_true(&workload, "QuotaReserved"), "{group} has quota");
        Ok(())
    }

    /// Deletes the Workloads, and with them the pods that have ended.
    async fn delete(&self) -> Result<()> {
        for group in &self.names {
            let background = PropagationPolicy::Background;
            self.fixture.objects.delete(Kind::WORKLOAD, &self.fixture.name, group, background).await?;
        }
        eventually("no pod and no Workload is left", async || {
            for kind in [Kind::POD, Kind::WORKLOAD] {
                let left = self.fixture.objects.list(kind, &self.fixture.name, "").await?.len();
                ensure!(left == 0, "{left} {}", kind.resource());
            }
            Ok(())
        })
        .await
    }
}

fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// Checks at each revision that no pod that is ungated and has not ended is of a group without quota.
fn check_revisions(workloads: &[Value], pods: &[Value]) -> Result<()> {
    let mut reserves: BTreeMap<&str, bool> = BTreeMap::new();
    let mut running: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, object) in in_store_order(&[workloads, pods])? {
        let name = text(object, "/metadata/name");
        if object["spec"].get("podSets").is_some() {
            reserves.insert(name, condition_is_true(object, "QuotaReserved") && !is_deleted(object));
        } else if is_gated(object) || has_ended(object) || is_deleted(object) {
            running.remove(name);
        } else {
            running.insert(name, text(object, "/metadata/labels/group"));
        }
        for (pod, group) in &running {
            ensure!(reserves.get(group) == Some(&true), "revision {at}: {pod} runs without quota");
        }
    }
    Ok(())
}
