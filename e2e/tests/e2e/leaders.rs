//! Leases that are edited by hand, and a leader more than there should be.

use crate::crashes::holder;
use crate::ground::Ground;
use crate::work::Work;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::{LEASE, Manager, Settings};
use sluice_e2e::objects::Kind;
use sluice_e2e::wait::{eventually, soaks};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Names of the replicas in the lease.
const NAMES: [&str; 2] = ["first", "second"];
/// Jobs per edit.
const JOBS: usize = 16;
/// How long whoever leads is let alone.
const PEACE: Duration = Duration::from_secs(1);

/// What a hand does.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// The Lease names the standby.
    Standby,
    /// It is deleted.
    Delete,
    /// It names nobody, as after a release but for its duration.
    Nobody,
    /// It is deleted under a leader that is paused, and that goes on when another leads.
    DeleteUnderPaused,
}

const EDITS: [Edit; 4] = [Edit::Standby, Edit::Delete, Edit::Nobody, Edit::DeleteUnderPaused];

/// Two replicas, of which one that has ended is started again.
struct Pair<'a> {
    cluster: &'a Cluster,
    objects: sluice_e2e::objects::Objects,
    replicas: RefCell<Vec<Manager>>,
}

impl Pair<'_> {
    /// Starts who has ended.
    async fn revive(&self) -> Result<()> {
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
    async fn leader(&self) -> Result<usize> {
        eventually("one leads", async || {
            self.revive().await?;
            let name = holder(&self.objects).await?;
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

    async fn name(&self, holder: &str) -> Result<()> {
        let spec = json!({"spec": {"holderIdentity": holder}});
        self.objects.merge(Kind::LEASE, NAMESPACE, LEASE, &spec).await?;
        Ok(())
    }

    async fn delete(&self) -> Result<()> {
        self.objects.delete(Kind::LEASE, NAMESPACE, LEASE, PropagationPolicy::Background).await?;
        Ok(())
    }

    async fn play(&self, edit: Edit) -> Result<()> {
        let leader = self.leader().await?;
        tokio::time::sleep(PEACE).await;
        match edit {
            Edit::Standby => self.name(NAMES[1 - leader]).await,
            Edit::Delete => self.delete().await,
            Edit::Nobody => self.name("").await,
            Edit::DeleteUnderPaused => {
                self.replicas.borrow()[leader].pause();
                self.delete().await?;
                let other = NAMES[1 - leader];
                let taken = eventually(format!("{other} leads"), async || {
                    let name = holder(&self.objects).await?;
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
pub(crate) async fn a_lease_edited_by_hand(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let before = cluster.manager()?.settings().clone();
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let mut replicas = Vec::new();
    for name in NAMES {
        let flags = vec![format!("--identity={name}")];
        let settings = Settings { name: name.to_owned(), flags, webhook_port: 0, ..before.clone() };
        let replica = Manager::start(&cluster.plane, &settings).await?;
        replica.ready().await?;
        replicas.push(replica);
    }
    let ports = replicas.iter().map(|replica| replica.settings().webhook_port).collect();
    cluster.balancer.as_ref().context("no balancer")?.set(ports);
    let objects = ground.objects.clone();
    let pair = Pair { cluster, objects, replicas: RefCell::new(replicas) };

    let work = Work::open(ground, "work").await?;
    let edits = EDITS.repeat(if soaks() { 10 } else { 1 });
    let count = edits.len() * JOBS;
    let submitted = Cell::new(false);
    let coming = async {
        for at in 0..edits.len() {
            work.submit(at * JOBS..(at + 1) * JOBS).await?;
            tokio::time::sleep(PEACE).await;
        }
        submitted.set(true);
        anyhow::Ok(())
    };
    let edited = async {
        for edit in &edits {
            pair.play(*edit).await.with_context(|| format!("{edit:?}"))?;
        }
        while !submitted.get() {
            pair.leader().await?;
            tokio::time::sleep(PEACE).await;
        }
        anyhow::Ok(())
    };
    let (coming, edited) = futures::join!(coming, edited);
    edited?;
    coming?;
    pair.leader().await?;
    let mut replicas = pair.replicas.into_inner();
    drop(replicas.pop());
    let port = vec![before.webhook_port];
    if let Some(first) = replicas.pop() {
        first.terminate();
    }
    cluster.balancer.as_ref().context("no balancer")?.set(port);
    cluster.start_manager(&before).await?;
    work.ends(cluster, count).await
}

/// A second replica that asks for no lease acts beside the leader. Nothing of the API joins two objects in one write, so that
/// two who decide at the same moment can give the same quota to two workloads: how much was held is told, not judged. What
/// holds all the same: no write of either is lost, each Job is started once, and all quota is given back.
pub(crate) async fn two_that_act_at_once(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let mut settings =
        Settings { name: NAMES[1].to_owned(), webhook_port: 0, ..cluster.manager()?.settings().clone() };
    settings.configuration["leaderElection"]["leaderElect"] = json!(false);
    let second = Manager::start(&cluster.plane, &settings).await?;
    second.ready().await?;
    let work = Work::open(ground, "work").await?;
    let mut audit = cluster.audit()?;
    let count = JOBS * if soaks() { 40 } else { 2 };
    work.submit(0..count).await?;
    work.ends_with(cluster, count).await?;
    second.process().check()?;
    let conflicts = audit.read()?.iter().filter(|request| request.writes() && request.code == 409).count();
    ensure!(conflicts > 0, "only one has acted");
    println!("      {conflicts} conflicts");
    second.terminate();
    Ok(())
}
