//! Checks whether the controller of a kind keeps the contract of `docs/third-party-workloads.md`: runs two jobs of it in one queue
//! that has quota for one.
//!
//! Invariants: apart from `spec.active` of the Workloads of these jobs, only what the check created is changed, and all of it is
//! deleted at the end, also after a failure. A rule is reported as broken only for what the controller did: that Sluice does not
//! admit or evict is an error of another kind.

mod job;
mod queue;
mod rule;

pub use job::Manifest;
pub use rule::{Breach, Rule};

use crate::objects::{ObjectClient, condition, condition_is_true, expect_condition, text};
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use job::{CheckedJob, QUEUE, is_started, pod_count};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Delay between two looks at the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long the check waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For each reaction of the controller or of Sluice.
    pub reaction: Duration,
    /// For the end of the pods of a job.
    pub run: Duration,
    /// For pods that must not start.
    pub quiet: Duration,
}

/// What is checked, and how.
pub struct Check {
    /// A user who may create namespaces and queues.
    pub objects: ObjectClient,
    /// Name of the queue and flavor, and prefix of the namespaces.
    pub name: String,
    /// The job.
    pub manifest: Manifest,
    /// A label of nodes that the flavor selects.
    pub node_label: (String, String),
    /// How long it waits.
    pub limits: Limits,
}

impl Check {
    /// Runs the check and prints each rule that is kept. A `Breach` in the error names the rule that is broken.
    pub async fn run(&self) -> Result<()> {
        let jobs = ["first", "second"];
        let [first, second] = jobs.map(|job| format!("{}-{job}", self.name));
        println!("checking in the namespaces {first} and {second}, with the ClusterQueue {}", self.name);
        let mut first = CheckedJob::new(&self.objects, &self.manifest, first);
        let mut second = CheckedJob::new(&self.objects, &self.manifest, second);
        let outcome = async {
            queue::create_namespace(self, &first.namespace).await?;
            queue::create_namespace(self, &second.namespace).await?;
            self.steps(&mut first, &mut second).await
        }
        .await;
        let cleaned = queue::clean_up(self, &[&first, &second]).await;
        outcome?;
        cleaned.context("the rules are kept, but objects of the check are left")?;
        println!("the controller keeps the contract");
        Ok(())
    }

    async fn steps(&self, first: &mut CheckedJob<'_>, second: &mut CheckedJob<'_>) -> Result<()> {
        first.create().await?;
        let workload = self.expect_workload(first).await?;
        kept(Rule::Workload);
        self.expect_no_start(first).await?;
        queue::create_queue(self, &workload).await?;
        self.expect_start(first, Rule::Starts).await?;
        kept(Rule::Starts);
        self.check_assignment(first).await?;
        kept(Rule::Assignment);
        // There is quota for one job.
        second.create().await?;
        self.expect_workload(second).await?;
        self.expect_no_start(second).await?;
        kept(Rule::Waits);
        first.set_active(false).await?;
        self.expect_stop(first).await?;
        kept(Rule::Stops);
        self.expect_release(first).await?;
        kept(Rule::Releases);
        self.expect_start(second, Rule::Starts).await?;
        self.expect_finish(second).await?;
        kept(Rule::Finishes);
        expect_no_pod(first, Rule::Stops, "although its Workload is inactive").await?;
        first.forget_pods().await?;
        first.set_active(true).await?;
        self.expect_start(first, Rule::Restarts).await?;
        self.check_assignment(first).await?;
        kept(Rule::Restarts);
        first.delete().await?;
        self.expect_nothing_left(first).await?;
        kept(Rule::Deletes);
        Ok(())
    }

    /// Waits for the Workload of a job, and checks that it describes the job.
    async fn expect_workload(&self, job: &CheckedJob<'_>) -> Result<Value> {
        let found = within(self.limits.reaction, "its Workload", async || job.workload().await).await;
        let workload = found.map_err(|error| Breach::error(Rule::Workload, format!("{error:#}")))?;
        let name = text(&workload, "/metadata/name");
        let queue = text(&workload, "/spec/queueName");
        if queue != QUEUE {
            let seen = format!("Workload {name} has queueName {queue:?}, the job has {QUEUE:?}");
            return Err(Breach::error(Rule::Workload, seen));
        }
        let mut pods = 0;
        for set in workload["spec"]["podSets"].as_array().into_iter().flatten() {
            pods += set["count"].as_i64().unwrap_or(1);
            if set["template"]["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
                let seen = format!("pod set {} of Workload {name} has no containers", text(set, "/name"));
                return Err(Breach::error(Rule::Workload, seen));
            }
        }
        if pods == 0 {
            return Err(Breach::error(Rule::Workload, format!("Workload {name} asks for no pods")));
        }
        Ok(workload)
    }

    /// Watches for a while that no pod of a job starts.
    async fn expect_no_start(&self, job: &CheckedJob<'_>) -> Result<()> {
        let end = Instant::now() + self.limits.quiet;
        while Instant::now() < end {
            expect_no_pod(job, Rule::Waits, "although its Workload is not admitted").await?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits for an admission, and then for the pods.
    async fn expect_start(&self, job: &CheckedJob<'_>, rule: Rule) -> Result<()> {
        within(self.limits.reaction, format!("Sluice admits {}", job.described()), async || {
            let workload = job.workload().await?;
            let pending = condition(&workload, "QuotaReserved");
            // Evicted and Admitted stay as they were until the next reservation.
            let admitted =
                condition_is_true(&workload, "Admitted") && !condition_is_true(&workload, "Evicted");
            ensure!(
                admitted && pending.status == "True",
                "it is pending: {} ({})",
                pending.reason,
                pending.message
            );
            Ok(())
        })
        .await?;
        let admitted = pod_count(&job.workload().await?);
        let outcome = within(self.limits.reaction, format!("{admitted} pods start"), async || {
            let started = i64::try_from(job.pods().await?.iter().filter(|pod| is_started(pod)).count())?;
            ensure!(started >= admitted, "{started} of {admitted} admitted pods of {}", job.described());
            Ok(started)
        });
        match outcome.await {
            Ok(started) if started == admitted => Ok(()),
            Ok(started) => {
                let seen = format!("{started} pods of {} started, {admitted} are admitted", job.described());
                Err(Breach::error(rule, seen))
            }
            Err(error) => Err(Breach::error(rule, format!("{error:#}"))),
        }
    }

    /// Checks that all pods are where the flavor says.
    async fn check_assignment(&self, job: &CheckedJob<'_>) -> Result<()> {
        let (label, value) = &self.node_label;
        for pod in job.pods().await?.iter().filter(|pod| is_started(pod)) {
            let name = text(pod, "/metadata/name");
            let found = &pod["spec"]["nodeSelector"][label];
            if *found != value.as_str() {
                let seen = format!("pod {name} has nodeSelector {label}={found}, expected {value:?}");
                return Err(Breach::error(Rule::Assignment, seen));
            }
            let tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
            if !tolerations.into_iter().any(|toleration| toleration["key"] == queue::TOLERATED) {
                let seen = format!("pod {name} lacks the toleration of the flavor for {}", queue::TOLERATED);
                return Err(Breach::error(Rule::Assignment, seen));
            }
        }
        Ok(())
    }

    /// Waits until no pod runs, of a job whose Workload was deactivated.
    async fn expect_stop(&self, job: &CheckedJob<'_>) -> Result<()> {
        within(self.limits.reaction, "Sluice evicts the job", async || {
            let workload = job.workload().await?;
            let finished = condition_is_true(&workload, "Finished");
            ensure!(!finished, "it has finished before: use pods that run longer");
            expect_condition(&workload, "Evicted", "True", "")
        })
        .await?;
        let begun = Instant::now();
        loop {
            // Read before the pods: none starts after the reservation is gone.
            let released = !condition_is_true(&job.workload().await?, "QuotaReserved");
            let running = job.running().await?;
            if running.is_empty() {
                return Ok(());
            }
            if released {
                let seen = format!("QuotaReserved of {} is False while {running:?} run", job.described());
                return Err(Breach::error(Rule::Releases, seen));
            }
            if begun.elapsed() > self.limits.reaction {
                let seconds = begun.elapsed().as_secs();
                let seen = format!("{seconds} s after its eviction {running:?} of {} run", job.described());
                return Err(Breach::error(Rule::Stops, seen));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the reservation of a job without pods is gone.
    async fn expect_release(&self, job: &CheckedJob<'_>) -> Result<()> {
        let released = within(self.limits.reaction, "QuotaReserved is False", async || {
            let workload = job.workload().await?;
            ensure!(
                !condition_is_true(&workload, "QuotaReserved"),
                "Workload {} is evicted, no pod of {} runs, and QuotaReserved is True",
                text(&workload, "/metadata/name"),
                job.described()
            );
            Ok(())
        });
        released.await.map_err(|error| Breach::error(Rule::Releases, format!("{error:#}")))
    }

    /// Waits until the pods of a job have ended, and then until its Workload says so.
    async fn expect_finish(&self, job: &CheckedJob<'_>) -> Result<()> {
        let begun = Instant::now();
        let mut ended = None;
        loop {
            let workload = job.workload().await?;
            if condition_is_true(&workload, "Finished") {
                return Ok(());
            }
            let running = job.running().await?;
            if !running.is_empty() {
                ended = None;
                let limit = self.limits.run;
                ensure!(begun.elapsed() < limit, "{running:?} still run after {} s", limit.as_secs());
            } else if ended.get_or_insert_with(Instant::now).elapsed() > self.limits.reaction {
                let seconds = self.limits.reaction.as_secs();
                let name = text(&workload, "/metadata/name");
                let seen = format!("Workload {name} is not Finished {seconds} s after its last pod ended");
                return Err(Breach::error(Rule::Finishes, seen));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a deleted job has neither pods nor a Workload.
    async fn expect_nothing_left(&self, job: &CheckedJob<'_>) -> Result<()> {
        let gone = within(self.limits.reaction, "nothing is left of the job", async || {
            let running = job.running().await?;
            ensure!(running.is_empty(), "{running:?} of {} run", job.described());
            let left = job.workloads().await?;
            let names: Vec<&str> = left.iter().map(|workload| text(workload, "/metadata/name")).collect();
            ensure!(
                left.is_empty(),
                "Workloads {names:?} of {} are left, QuotaReserved is True: {}",
                job.described(),
                left.iter().any(|workload| condition_is_true(workload, "QuotaReserved"))
            );
            Ok(())
        });
        gone.await.map_err(|error| Breach::error(Rule::Deletes, format!("{error:#}")))
    }
}

/// Checks that no pod of a job has started and not ended.
async fn expect_no_pod(job: &CheckedJob<'_>, rule: Rule, although: &str) -> Result<()> {
    let running = job.running().await?;
    if running.is_empty() {
        return Ok(());
    }
    Err(Breach::error(rule, format!("{running:?} of {} run {although}", job.described())))
}

fn kept(rule: Rule) {
    println!("ok    {:10}  {}", rule.name(), rule.demand());
}
