//! Leases that are edited by hand, and a leader more than there should be.

use crate::background_jobs::BackgroundJobs;
use crate::crashes::lease_holder;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings};
use sluice_e2e::objects::Kind;
use sluice_e2e::wait::{eventually, is_soak_run};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Names of the replicas in the lease.
const NAMES: [&str; 2] = ["first", "second"];
/// Jobs per edit.
const JOBS: usize = 16;
/// How long whoever leads is let alone.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// What a hand does.
#[derive(Clone, Copy, Debug)]
enum LeaseEdit {
    /// The Lease names the standby.
    Standby,
    /// It is deleted.
    Delete,
    /// It names nobody, as after a release but for its duration.
    NoHolder,
    /// It is deleted under a leader that is paused, and that goes on when another leads.
    DeleteUnderPaused,
}

const EDITS: [LeaseEdit; 4] =
    [LeaseEdit::Standby, LeaseEdit::Delete, LeaseEdit::NoHolder, LeaseEdit::DeleteUnderPaused];

/// Two replicas, of which one that has ended is started again.
struct ReplicaPair<'a> {
    cluster: &'a Cluster,
    objects: sluice_e2e::objects::ObjectClient,
    replicas: RefCell<Vec<Manager>>,
}

impl ReplicaPair<'_> {
    /// Starts who has ended.
    async fn restart_ended(&self) -> Result<()> {
        for at in 0..NAMES.len() {
            let settings = {
                let replicas = self.replicas.borrow();
                if replicas[at].process().check().is_ok() {
                    continue;
                }
                replicas[at].settings().clone()
            };
            let new = Manager::start(&self.cluster.plane, &settings).await?;
            self.replicas.borrow_mut()[at] = new;
        }
        Ok(())
    }

    /// Waits until one of the two leads and both are ready; gives its place.
    async fn wait_for_leader(&self) -> Result<usize> {
        eventually("one leads", async || {
            self.restart_ended().await?;
            let name = lease_holder(&self.objects).await?;
            let at = NAMES.iter().position(|own| *own == name).with_context(|| format!("it is {name:?}"))?;
            let ready = {
                let replicas = self.replicas.borrow();
                replicas.iter().all(|replica| replica.process().check().is_ok())
            };
            ensure!(ready, "one has ended");
            Ok(at)
        })
        .await
    }

    async fn set_holder(&self, holder: &str) -> Result<()> {
        let spec = json!({"spec": {"holderIdentity": holder}});
        self.objects.merge(Kind::LEASE, NAMESPACE, LEASE_NAME, &spec).await?;
        Ok(())
    }

    async fn delete_lease(&self) -> Result<()> {
        self.objects.delete(Kind::LEASE, NAMESPACE, LEASE_NAME, PropagationPolicy::Background).await?;
        Ok(())
    }

    async fn apply_edit(&self, edit: LeaseEdit) -> Result<()> {
        let leader = self.wait_for_leader().await?;
        tokio::time::sleep(QUIET_TIME).await;
        match edit {
            LeaseEdit::Standby => self.set_holder(NAMES[1 - leader]).await,
            LeaseEdit::Delete => self.delete_lease().await,
            LeaseEdit::NoHolder => self.set_holder("").await,
            LeaseEdit::DeleteUnderPaused => {
                self.replicas.borrow()[leader].pause();
                self.delete_lease().await?;
                let other = NAMES[1 - leader];
                let taken = eventually(format!("{other} leads"), async || {
                    let name = lease_holder(&self.objects).await?;
                    ensure!(name == other, "it is {name:?}");
                    Ok(())
                })
                .await;
                self.replicas.borrow()[leader].resume();
                taken
            }
        }
    }
}

/// The Lease is edited and deleted by hand under its holder, over and over, while Jobs come: two never act at once, so that
/// no queue holds more than its quota at any revision, each Job runs once and no write is lost.
pub(crate) async fn lease_is_edited_by_hand(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let before = cluster.manager()?.settings().clone();
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let mut replicas = Vec::new();
    for name in NAMES {
        let flags = vec![format!("--identity={name}")];
        let settings = ManagerSettings { name: name.to_owned(), flags, webhook_port: 0, ..before.clone() };
        let replica = Manager::start(&cluster.plane, &settings).await?;
        replica.wait_until_ready().await?;
        replicas.push(replica);
    }
    let ports = replicas.iter().map(|replica| replica.settings().webhook_port).collect();
    cluster.balancer.as_ref().context("no balancer")?.set_backends(ports);
    let objects = fixture.objects.clone();
    let pair = ReplicaPair { cluster, objects, replicas: RefCell::new(replicas) };

    let work = BackgroundJobs::start(fixture, "work").await?;
    let edits = EDITS.repeat(if is_soak_run() { 10 } else { 1 });
    let count = edits.len() * JOBS;
    let submitted = Cell::new(false);
    let coming = async {
        for at in 0..edits.len() {
            work.submit(at * JOBS..(at + 1) * JOBS).await?;
            tokio::time::sleep(QUIET_TIME).await;
        }
        submitted.set(true);
        anyhow::Ok(())
    };
    let edited = async {
        for edit in &edits {
            pair.apply_edit(*edit).await.with_context(|| format!("{edit:?}"))?;
        }
        while !submitted.get() {
            pair.wait_for_leader().await?;
            tokio::time::sleep(QUIET_TIME).await;
        }
        anyhow::Ok(())
    };
    let (coming, edited) = futures::join!(coming, edited);
    edited?;
    coming?;
    pair.wait_for_leader().await?;
    let mut replicas = pair.replicas.into_inner();
    drop(replicas.pop());
    let port = vec![before.webhook_port];
    if let Some(first) = replicas.pop() {
        first.terminate();
    }
    cluster.balancer.as_ref().context("no balancer")?.set_backends(port);
    cluster.start_manager(&before).await?;
    work.wait_and_check(cluster, count).await
}

/// A second replica that asks for no lease acts beside the leader. Nothing of the API joins two objects in one write, so that
/// two who decide at the same moment can give the same quota to two workloads: how much was held is told, not judged. What
/// holds all the same: no write of either is lost, each Job is started once, and all quota is given back.
pub(crate) async fn two_replicas_act_concurrently(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let mut settings = ManagerSettings {
        name: NAMES[1].to_owned(),
        webhook_port: 0,
        ..cluster.manager()?.settings().clone()
    };
    settings.configuration["leaderElection"]["leaderElect"] = json!(false);
    let second = Manager::start(&cluster.plane, &settings).await?;
    second.wait_until_ready().await?;
    let work = BackgroundJobs::start(fixture, "work").await?;
    let mut audit = cluster.audit()?;
    let count = JOBS * if is_soak_run() { 40 } else { 2 };
    work.submit(0..count).await?;
    work.wait_and_return_peak(cluster, count).await?;
    second.process().check()?;
    let conflicts =
        audit.read_new()?.iter().filter(|request| request.is_write() && request.code == 409).count();
    ensure!(conflicts > 0, "only one has acted");
    println!("      {conflicts} conflicts");
    second.terminate();
    Ok(())
}
