//! Work that goes on while something is wrong, and the proof that it came to a good end: no queue above its quota at any
//! revision, every Job started once and never stopped, no write lost, all quota given back.

use crate::ground::Ground;
use crate::history::History;
use crate::watches::most_held;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, holds, number, text};
use sluice_e2e::wait::within;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Jobs of one CPU each that run at once.
pub(crate) const ROOM: usize = 4;
/// Long enough for anything that lasts, and for what a loaded machine makes of it.
const PATIENCE: Duration = Duration::from_mins(5);
/// Jobs that are created at once.
const AT_ONCE: usize = 8;

/// Jobs in one queue, and all that was ever stored of their Workloads.
pub(crate) struct Work<'a> {
    ground: &'a Ground,
    history: History,
    queue: String,
}

impl<'a> Work<'a> {
    /// A queue with room for some at once.
    pub(crate) async fn open(ground: &'a Ground, queue: &str) -> Result<Self> {
        ground.queue(queue, "", &[("cpu", &ROOM.to_string(), None)], json!({})).await?;
        ground.active(queue).await?;
        let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
        Ok(Self { ground, history, queue: queue.to_owned() })
    }

    /// The API server will be restarted.
    pub(crate) fn forgive(&self) {
        self.history.forgive();
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.queue)
    }

    /// Creates so many Jobs; each as often as it takes until the server has it.
    pub(crate) async fn submit(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let submitted = stream::iter(numbers).map(async |number| self.submit_one(number, "500ms").await);
        submitted.buffer_unordered(AT_ONCE).collect::<Vec<Result<()>>>().await.into_iter().collect()
    }

    /// Creates one that runs for so long.
    pub(crate) async fn submit_one(&self, number: usize, duration: &str) -> Result<()> {
        let job = self.ground.job(&self.name(number), &self.queue, "1").runs_for(duration);
        within(PATIENCE, format!("{} is created", self.name(number)), async || {
            match self.ground.objects.create(Kind::JOB, job.body()).await {
                // The answer to an earlier try was lost.
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                outcome => outcome.map(drop).map_err(Into::into),
            }
        })
        .await
    }

    /// How many have finished.
    pub(crate) async fn finished(&self) -> Result<usize> {
        let all = self.ground.objects.list(Kind::WORKLOAD, &self.ground.name, "").await?;
        Ok(all.iter().filter(|workload| self.is_ours(workload) && holds(workload, "Finished")).count())
    }

    fn is_ours(&self, workload: &Value) -> bool {
        text(workload, "/spec/queueName") == self.queue
    }

    /// Waits until so many Jobs have ended, and judges all that happened; the manager is started again if it has ended.
    pub(crate) async fn ends(&self, cluster: &mut Cluster, count: usize) -> Result<()> {
        let most = self.ends_with(cluster, count).await?;
        ensure!(most <= ROOM, "{most} were held at once");
        Ok(())
    }

    /// The same, whatever was held at once: that is returned.
    pub(crate) async fn ends_with(&self, cluster: &mut Cluster, count: usize) -> Result<usize> {
        within(PATIENCE, format!("{count} Jobs in {} have ended", self.queue), async || {
            revive(cluster).await?;
            let finished = self.finished().await?;
            ensure!(finished == count, "{finished} of {count} have");
            Ok(())
        })
        .await?;
        self.ground.counts(&self.queue, (0, 0, 0), &[("cpu", "0")]).await?;
        self.judge(count).await
    }

    /// What must be true of all Jobs that have ended; the most that was held at once.
    async fn judge(&self, count: usize) -> Result<usize> {
        let all = self.history.revisions()?;
        let own: Vec<Value> = all.into_iter().filter(|w| w.is_null() || self.is_ours(w)).collect();
        let most = most_held(&own, usize::MAX)?;
        ensure!(most > 0, "nothing was ever admitted");
        let mut lives: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for workload in own.iter().filter(|workload| !workload.is_null()) {
            lives.entry(text(workload, "/metadata/uid")).or_default().push(workload);
        }
        ensure!(lives.len() == count, "there were {} Workloads of {count} Jobs", lives.len());
        for life in lives.values() {
            once(life)?;
        }
        let jobs = self.ground.objects.list(Kind::JOB, &self.ground.name, "").await?;
        let prefix = format!("{}-", self.queue);
        let jobs: Vec<&Value> =
            jobs.iter().filter(|job| text(job, "/metadata/name").starts_with(&prefix)).collect();
        let names: BTreeSet<&str> = jobs.iter().map(|job| text(job, "/metadata/name")).collect();
        ensure!(names.len() == count, "there are {} Jobs", names.len());
        for job in jobs {
            // Created suspended, and changed by its start alone: each change of the spec counts.
            let starts = number(job, "/metadata/generation") - 1;
            ensure!(starts == 1, "{} was started or stopped {starts} times", text(job, "/metadata/name"));
            ensure!(number(job, "/status/succeeded") == 1, "its status is {}", job["status"]);
        }
        println!("      {count} Jobs, {} revisions, {most} held at once", own.len());
        Ok(most)
    }
}

/// Quota was given once and not taken, and it has finished once.
fn once(life: &[&Value]) -> Result<()> {
    let last = life.last().context("no revision")?;
    let name = text(last, "/metadata/name");
    let began = |condition: &str| {
        let first = life.first().is_some_and(|first| holds(first, condition));
        usize::from(first)
            + life.windows(2).filter(|pair| !holds(pair[0], condition) && holds(pair[1], condition)).count()
    };
    for condition in ["QuotaReserved", "Admitted", "Finished"] {
        ensure!(began(condition) == 1, "{name} was {condition} {} times", began(condition));
    }
    ensure!(!life.iter().any(|workload| holds(workload, "Evicted")), "{name} was evicted");
    ensure!(holds(last, "Finished"), "{name} has not finished: {}", last["status"]);
    Ok(())
}

/// Starts the manager again if it has ended, as a kubelet does; whether it had.
pub(crate) async fn revive(cluster: &mut Cluster) -> Result<bool> {
    if cluster.manager()?.process().check().is_ok() {
        return Ok(false);
    }
    let old = cluster.take_manager().context("no manager")?;
    let settings = old.settings().clone();
    drop(old);
    if let Err(error) = cluster.start_manager(&settings).await {
        // It is there to be revived again.
        if cluster.manager().is_err() {
            cluster.put_manager(sluice_e2e::manager::Manager::start(&cluster.plane, &settings).await?);
        }
        return Err(error);
    }
    Ok(true)
}
