//! A Lease that is edited by hand, and a second active replica.

use crate::background_jobs::BackgroundJobs;
use crate::cases::note;
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

/// Identities of the replicas in the Lease.
const NAMES: [&str; 2] = ["first", "second"];
/// Jobs per edit.
const JOBS: usize = 16;
/// Pause before each edit, in which the leader is undisturbed, and after each batch of Jobs.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// An edit of the Lease.
#[derive(Clone, Copy, Debug)]
enum LeaseEdit {
    /// Sets the standby as holder.
    Standby,
    /// Deletes the Lease.
    Delete,
    /// Clears the holder, as a release does, but keeps the lease duration.
    NoHolder,
    /// Deletes the Lease while the leader is paused; the leader is resumed when the other replica leads.
    DeleteUnderPaused,
}

const EDITS: [LeaseEdit; 4] =
    [LeaseEdit::Standby, LeaseEdit::Delete, LeaseEdit::NoHolder, LeaseEdit::DeleteUnderPaused];

/// Two replicas; a replica that has exited is restarted.
struct ReplicaPair<'a> {
    cluster: &'a Cluster,
    objects: sluice_e2e::objects::ObjectClient,
    replicas: RefCell<Vec<Manager>>,
}

impl ReplicaPair<'_> {
    /// Restarts each replica that has exited.
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

    /// Waits until one replica leads and both are running; returns the index of the leader.
    async fn wait_for_leader(&self) -> Result<usize> {
        eventually("a replica leads", async || {
            self.restart_ended().await?;
            let name = lease_holder(&self.objects).await?;
            let at = NAMES.iter().position(|own| *own == name).with_context(|| format!("{name:?} leads"))?;
            let running = {
                let replicas = self.replicas.borrow();
                replicas.iter().all(|replica| replica.process().check().is_ok())
            };
            ensure!(running, "a replica has exited");
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
                let outcome = eventually(format!("{other} leads"), async || {
                    let name = lease_holder(&self.objects).await?;
                    ensure!(name == other, "{name:?} leads");
                    Ok(())
                })
                .await;
                self.replicas.borrow()[leader].resume();
                outcome
            }
        }
    }
}

/// The Lease is edited and deleted by hand repeatedly while Jobs are created. Two replicas never act at once: at no
/// revision does a queue exceed its quota, each Job runs once and no write is lost.
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
    let submission = async {
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
    let (submission, edited) = futures::join!(submission, edited);
    edited?;
    submission?;
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

/// A second replica without leader election acts concurrently with the leader. The API has no transactions over two
/// objects, so two simultaneous decisions can reserve the same quota for two workloads: peak usage is printed, not
/// checked. Still guaranteed: no write of either replica is lost, each Job is started once, and all quota is released.
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
    ensure!(conflicts > 0, "no conflicts: only one replica acted");
    note(format_args!("{conflicts} conflicts"));
    second.terminate();
    Ok(())
}
