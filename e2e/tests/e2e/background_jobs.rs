//! Work that goes on while something is wrong, and the proof that it came to a good end: no queue above its quota at any
//! revision, every Job started once and never stopped, no write lost, all quota given back.

use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, number, text};
use sluice_e2e::wait::within;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Jobs of one CPU each that run at once.
pub(crate) const PARALLEL_JOBS: usize = 4;
/// Long enough for anything that lasts, and for what a loaded machine makes of it.
const WORK_TIMEOUT: Duration = Duration::from_mins(5);
/// Jobs that are created at once.
const PARALLEL_CREATES: usize = 8;

/// Jobs in one queue, and all that was ever stored of their Workloads.
pub(crate) struct BackgroundJobs<'a> {
    fixture: &'a Fixture,
    history: History,
    queue: String,
}

impl<'a> BackgroundJobs<'a> {
    /// A queue with room for some at once.
    pub(crate) async fn start(ground: &'a Fixture, queue: &str) -> Result<Self> {
        ground.create_queue(queue, "", &[("cpu", &PARALLEL_JOBS.to_string(), None)], json!({})).await?;
        ground.wait_until_queue_active(queue).await?;
        let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
        Ok(Self { fixture: ground, history, queue: queue.to_owned() })
    }

    /// The API server will be restarted.
    pub(crate) fn allow_relist(&self) {
        self.history.allow_relist();
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.queue)
    }

    /// Creates so many Jobs; each as often as it takes until the server has it.
    pub(crate) async fn submit(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let submitted = stream::iter(numbers).map(async |number| self.submit_one(number, "500ms").await);
        submitted.buffer_unordered(PARALLEL_CREATES).collect::<Vec<Result<()>>>().await.into_iter().collect()
    }

    /// Creates one that runs for so long.
    pub(crate) async fn submit_one(&self, number: usize, duration: &str) -> Result<()> {
        let job = self.fixture.job(&self.name(number), &self.queue, "1").runs_for(duration);
        within(WORK_TIMEOUT, format!("{} is created", self.name(number)), async || {
            match self.fixture.objects.create(Kind::JOB, job.body()).await {
                // The answer to an earlier try was lost.
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                outcome => outcome.map(drop).map_err(Into::into),
            }
        })
        .await
    }

    /// How many have finished.
    pub(crate) async fn count_finished(&self) -> Result<usize> {
        let all = self.fixture.objects.list(Kind::WORKLOAD, &self.fixture.name, "").await?;
        Ok(all
            .iter()
            .filter(|workload| self.is_own_workload(workload) && condition_is_true(workload, "Finished"))
            .count())
    }

    fn is_own_workload(&self, workload: &Value) -> bool {
        text(workload, "/spec/queueName") == self.queue
    }

    /// Waits until so many Jobs have ended, and judges all that happened; the manager is started again if it has ended.
    pub(crate) async fn wait_and_check(&self, cluster: &mut Cluster, count: usize) -> Result<()> {
        let most = self.wait_and_return_peak(cluster, count).await?;
        ensure!(most <= PARALLEL_JOBS, "{most} were held at once");
        Ok(())
    }

    /// The same, whatever was held at once: that is returned.
    pub(crate) async fn wait_and_return_peak(&self, cluster: &mut Cluster, count: usize) -> Result<usize> {
        within(WORK_TIMEOUT, format!("{count} Jobs in {} have ended", self.queue), async || {
            restart_if_exited(cluster).await?;
            let finished = self.count_finished().await?;
            ensure!(finished == count, "{finished} of {count} have");
            Ok(())
        })
        .await?;
        self.fixture.wait_for_queue_counts(&self.queue, (0, 0, 0), &[("cpu", "0")]).await?;
        self.check_history(count).await
    }

    /// What must be true of all Jobs that have ended; the most that was held at once.
    async fn check_history(&self, count: usize) -> Result<usize> {
        let all = self.history.revisions()?;
        let own: Vec<Value> = all.into_iter().filter(|w| w.is_null() || self.is_own_workload(w)).collect();
        let most = max_reserved(&own, usize::MAX)?;
        ensure!(most > 0, "nothing was ever admitted");
        let mut lives: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for workload in own.iter().filter(|workload| !workload.is_null()) {
            lives.entry(text(workload, "/metadata/uid")).or_default().push(workload);
        }
        ensure!(lives.len() == count, "there were {} Workloads of {count} Jobs", lives.len());
        for life in lives.values() {
            check_single_life(life)?;
        }
        let jobs = self.fixture.objects.list(Kind::JOB, &self.fixture.name, "").await?;
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
fn check_single_life(life: &[&Value]) -> Result<()> {
    let last = life.last().context("no revision")?;
    let name = text(last, "/metadata/name");
    let began = |condition: &str| {
        let first = life.first().is_some_and(|first| condition_is_true(first, condition));
        usize::from(first)
            + life
                .windows(2)
                .filter(|pair| {
                    !condition_is_true(pair[0], condition) && condition_is_true(pair[1], condition)
                })
                .count()
    };
    for condition in ["QuotaReserved", "Admitted", "Finished"] {
        ensure!(began(condition) == 1, "{name} was {condition} {} times", began(condition));
    }
    ensure!(!life.iter().any(|workload| condition_is_true(workload, "Evicted")), "{name} was evicted");
    ensure!(condition_is_true(last, "Finished"), "{name} has not finished: {}", last["status"]);
    Ok(())
}

/// Starts the manager again if it has ended, as a kubelet does; whether it had.
pub(crate) async fn restart_if_exited(cluster: &mut Cluster) -> Result<bool> {
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
