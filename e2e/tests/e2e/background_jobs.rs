//! Jobs that run in the background of fault tests, and the checks on their history: at no revision is a queue above its
//! quota, every Job is started once and never stopped, no write is lost, all quota is released.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, number, text};
use sluice_e2e::wait::within;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Quota of the queue in CPU; each Job needs one, so this many run at once.
pub(crate) const PARALLEL_JOBS: usize = 4;
/// Deadline for all Jobs, with margin for long faults on a loaded machine.
const WORK_TIMEOUT: Duration = Duration::from_mins(5);
/// Concurrent creates.
const PARALLEL_CREATES: usize = 8;

/// Jobs in one queue, and every stored revision of their Workloads.
pub(crate) struct BackgroundJobs<'a> {
    fixture: &'a Fixture,
    history: History,
    queue: String,
    /// Whether the API server is restarted.
    restarts: Cell<bool>,
}

impl<'a> BackgroundJobs<'a> {
    /// Creates the queue, with quota for `PARALLEL_JOBS`, and starts recording.
    pub(crate) async fn start(fixture: &'a Fixture, queue: &str) -> Result<Self> {
        fixture.create_queue(queue, "", &[("cpu", &PARALLEL_JOBS.to_string(), None)], json!({})).await?;
        fixture.wait_until_queue_active(queue).await?;
        let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
        Ok(Self { fixture, history, queue: queue.to_owned(), restarts: Cell::new(false) })
    }

    /// Allows what restarts of the API server cause: a relist, and a second pod of a Job, because Kubernetes' Job controller
    /// repeats a create whose response is lost.
    pub(crate) fn expect_restarts(&self) {
        self.history.allow_relist();
        self.restarts.set(true);
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.queue)
    }

    /// Creates Jobs, retrying each until the server has stored it.
    pub(crate) async fn submit(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let submitted = stream::iter(numbers).map(async |number| self.submit_one(number, "500ms").await);
        submitted.buffer_unordered(PARALLEL_CREATES).collect::<Vec<Result<()>>>().await.into_iter().collect()
    }

    /// Creates one Job with this run time.
    pub(crate) async fn submit_one(&self, number: usize, duration: &str) -> Result<()> {
        let job = self.fixture.job(&self.name(number), &self.queue, "1").runs_for(duration);
        within(WORK_TIMEOUT, format!("{} is created", self.name(number)), async || {
            match self.fixture.objects.create(Kind::JOB, job.body()).await {
                // The response to an earlier attempt was lost.
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
                outcome => outcome.map(drop).map_err(Into::into),
            }
        })
        .await
    }

    /// Returns how many Jobs have finished.
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

    /// Waits until `count` Jobs have finished and checks the history. Restarts the manager if it has exited.
    pub(crate) async fn wait_and_check(&self, cluster: &mut Cluster, count: usize) -> Result<()> {
        let peak = self.wait_and_return_peak(cluster, count).await?;
        ensure!(peak <= PARALLEL_JOBS, "{peak} CPU were reserved at once");
        Ok(())
    }

    /// Like `wait_and_check`, but returns the peak usage instead of checking it.
    pub(crate) async fn wait_and_return_peak(&self, cluster: &mut Cluster, count: usize) -> Result<usize> {
        within(WORK_TIMEOUT, format!("{count} Jobs in {} have finished", self.queue), async || {
            restart_if_exited(cluster).await?;
            let finished = self.count_finished().await?;
            ensure!(finished == count, "{finished} of {count} have finished");
            Ok(())
        })
        .await?;
        self.fixture.wait_for_queue_counts(&self.queue, (0, 0, 0), &[("cpu", "0")]).await?;
        self.check_history(count).await
    }

    /// Checks the history of all Jobs; returns the peak of CPU reserved at once.
    async fn check_history(&self, count: usize) -> Result<usize> {
        let all = self.history.revisions()?;
        let own: Vec<Value> = all.into_iter().filter(|w| w.is_null() || self.is_own_workload(w)).collect();
        let peak = max_reserved(&own, usize::MAX)?;
        ensure!(peak > 0, "no workload was ever admitted");
        let mut revisions_by_uid: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for workload in own.iter().filter(|workload| !workload.is_null()) {
            revisions_by_uid.entry(text(workload, "/metadata/uid")).or_default().push(workload);
        }
        ensure!(revisions_by_uid.len() == count, "{} Workloads for {count} Jobs", revisions_by_uid.len());
        for revisions in revisions_by_uid.values() {
            check_single_life(revisions)?;
        }
        let jobs = self.fixture.objects.list(Kind::JOB, &self.fixture.name, "").await?;
        let prefix = format!("{}-", self.queue);
        let jobs: Vec<&Value> =
            jobs.iter().filter(|job| text(job, "/metadata/name").starts_with(&prefix)).collect();
        let names: BTreeSet<&str> = jobs.iter().map(|job| text(job, "/metadata/name")).collect();
        ensure!(names.len() == count, "{} Jobs instead of {count}", names.len());
        for job in jobs {
            // Created suspended; each later start or stop changes the spec and increments the generation.
            let starts = number(job, "/metadata/generation") - 1;
            ensure!(starts == 1, "{} was started or stopped {starts} times", text(job, "/metadata/name"));
            let succeeded = number(job, "/status/succeeded");
            ensure!(
                succeeded == 1 || self.restarts.get() && succeeded > 1 && condition_is_true(job, "Complete"),
                "{} has status {}",
                text(job, "/metadata/name"),
                job["status"]
            );
        }
        note(format_args!("{count} Jobs, {} revisions, {peak} CPU reserved at once at most", own.len()));
        Ok(peak)
    }
}

/// Checks that one Workload got quota once, was never evicted and finished once.
fn check_single_life(revisions: &[&Value]) -> Result<()> {
    let last = revisions.last().context("no revision")?;
    let name = text(last, "/metadata/name");
    let times_set = |condition: &str| {
        let first = revisions.first().is_some_and(|first| condition_is_true(first, condition));
        usize::from(first)
            + revisions
                .windows(2)
                .filter(|pair| {
                    !condition_is_true(pair[0], condition) && condition_is_true(pair[1], condition)
                })
                .count()
    };
    for condition in ["QuotaReserved", "Admitted", "Finished"] {
        ensure!(times_set(condition) == 1, "{name} was {condition} {} times", times_set(condition));
    }
    ensure!(!revisions.iter().any(|workload| condition_is_true(workload, "Evicted")), "{name} was evicted");
    ensure!(condition_is_true(last, "Finished"), "{name} has not finished: {}", last["status"]);
    Ok(())
}

/// Restarts the manager if it has exited, as a kubelet would; returns whether it had exited.
pub(crate) async fn restart_if_exited(cluster: &mut Cluster) -> Result<bool> {
    if cluster.manager()?.process().check().is_ok() {
        return Ok(false);
    }
    let old = cluster.take_manager().context("no manager")?;
    let settings = old.settings().clone();
    drop(old);
    if let Err(error) = cluster.start_manager(&settings).await {
        // Keep a manager in the cluster, so that the next call can restart it.
        if cluster.manager().is_err() {
            cluster.put_manager(sluice_e2e::manager::Manager::start(&cluster.plane, &settings).await?);
        }
        return Err(error);
    }
    Ok(true)
}
