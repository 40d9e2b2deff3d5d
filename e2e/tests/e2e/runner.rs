//! Runs cases in lanes. A lane is a thread with a control plane of its own, which its cases use one after the other; after
//! a failed case the plane's logs are kept, and the lane's next case gets a new plane.
//!
//! Invariants: a case that needs a control plane shares it with no other case while it runs; a control plane serves all job kinds
//! or those of the shipped configuration as long as it runs; of the cases that run a kubelet at most one runs; a case that needs
//! the machine runs when no other case does. A case may block its thread (it runs kubectl and waits for processes): that delays no
//! case of another lane.

use crate::cases::{CASE_NAME, Case, ExclusiveCase, NotRun, SharedCase, Work};
use crate::fixture::Fixture;
use crate::job_kinds;
use anyhow::{Context as _, Result, anyhow, bail};
use futures::future::{FutureExt as _, LocalBoxFuture};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sluice_e2e::cluster::{Cluster, ClusterOptions};
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::{process, signals};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Cases that run concurrently on one plane: enough to hide waiting, few enough for two cores.
const CASES_PER_PLANE: usize = 4;

/// Number of planes started by this process, which names their folders.
static STARTED_PLANES: AtomicU32 = AtomicU32::new(0);

/// How the cases of a run ended that did not pass.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// Names.
    pub(crate) failed: Vec<&'static str>,
    /// Names, and what this machine lacks.
    pub(crate) not_run: Vec<(&'static str, String)>,
}

impl Outcomes {
    fn add(&mut self, other: Self) {
        self.failed.extend(other.failed);
        self.not_run.extend(other.not_run);
    }

    fn record(&mut self, name: &'static str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => {}
            Outcome::Failed => self.failed.push(name),
            Outcome::NotRun(reason) => self.not_run.push((name, reason)),
        }
    }
}

/// How a case ended.
enum Outcome {
    Passed,
    Failed,
    NotRun(String),
}

/// Runs the cases, at most `lanes` control planes at a time; returns what did not pass. An error if a control plane cannot be
/// started, or at a signal.
pub(crate) fn run(runtime: &Runtime, cases: &[Case], lanes: usize) -> Result<Outcomes> {
    let schedule = Schedule::new(cases);
    let lanes = lanes.clamp(1, cases.len().max(1));
    let of_lanes = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes)
            .map(|number| {
                let shared = if number == 0 { schedule.shared.as_slice() } else { &[] };
                let own = schedule.queues_of(number, lanes);
                scope.spawn(move || Lane::default().run_until_signal(runtime, shared, &own))
            })
            .collect();
        let ended = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked")));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>>>()
    })?;
    let mut outcomes = Outcomes::default();
    for lane in of_lanes {
        outcomes.add(lane);
    }
    outcomes.add(Lane::default().run_until_signal(runtime, &[], &[&schedule.alone])?);
    Ok(outcomes)
}

/// The cases of a run by what they need.
#[derive(Default)]
struct Schedule {
    shared: Vec<(&'static str, SharedCase)>,
    job_kinds: CaseQueue,
    /// The longest first, so that no lane is left with a long one at the end.
    exclusive: CaseQueue,
    kubelet: CaseQueue,
    /// They need the machine.
    alone: CaseQueue,
}

/// Cases that lanes take one after the other.
#[derive(Default)]
struct CaseQueue {
    cases: Mutex<VecDeque<(&'static str, ExclusiveCase)>>,
    /// Whether their control planes serve all job kinds.
    job_kinds: bool,
}

impl CaseQueue {
    fn push(&mut self, name: &'static str, case: ExclusiveCase) {
        self.cases.get_mut().unwrap_or_else(PoisonError::into_inner).push_back((name, case));
    }

    fn take(&self) -> Option<(&'static str, ExclusiveCase)> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Schedule {
    fn new(cases: &[Case]) -> Self {
        let mut longest_first: Vec<&Case> = cases.iter().collect();
        longest_first.sort_by_key(|case| std::cmp::Reverse(case.seconds));
        let job_kinds = CaseQueue { job_kinds: true, ..CaseQueue::default() };
        let mut schedule = Self { job_kinds, ..Self::default() };
        for case in longest_first {
            match case.work {
                Work::Queues(work) => schedule.shared.push((case.name, work)),
                Work::Kinds(work) => schedule.job_kinds.push(case.name, work),
                Work::Plane(work) => schedule.exclusive.push(case.name, work),
                Work::Kubelet(work) => schedule.kubelet.push(case.name, work),
                Work::Machine(work) => schedule.alone.push(case.name, work),
            }
        }
        schedule
    }

    /// Returns the queues of one of so many lanes, in their order. The first lane begins with the cases that share its plane, the second
    /// one with those of all job kinds, the last one with those of the kubelet.
    fn queues_of(&self, lane: usize, lanes: usize) -> Vec<&CaseQueue> {
        let mut queues = Vec::new();
        if lane == usize::min(1, lanes - 1) {
            queues.push(&self.job_kinds);
        }
        if lane + 1 == lanes {
            queues.push(&self.kubelet);
        }
        queues.push(&self.exclusive);
        queues
    }
}

/// A control plane and the cases that run on it.
#[derive(Default)]
struct Lane {
    cluster: Option<Cluster>,
    /// Whether that serves all job kinds.
    job_kinds: bool,
    outcomes: Outcomes,
}

impl Lane {
    /// Runs the shared cases, then those of the queues, each until it is empty. Its plane ends with it.
    fn run_until_signal(
        mut self,
        runtime: &Runtime,
        shared: &[(&'static str, SharedCase)],
        queues: &[&CaseQueue],
    ) -> Result<Outcomes> {
        let work = async {
            if !shared.is_empty() {
                self.run_shared(shared).await?;
            }
            for queue in queues {
                while let Some((name, case)) = queue.take() {
                    self.run_exclusive(name, case, queue.job_kinds).await?;
                }
            }
            Ok(())
        };
        let outcome = runtime.block_on(signals::interruptible(work));
        // The plane's balancer ends tasks of the runtime, also after a signal.
        let _runtime = runtime.enter();
        self.cluster = None;
        outcome?;
        Ok(self.outcomes)
    }

    /// Returns the control plane; starts a new one for the first case, after a failure, and if the one before served other job kinds.
    async fn cluster(&mut self, job_kinds: bool) -> Result<&mut Cluster> {
        if self.job_kinds != job_kinds {
            self.cluster = None;
            self.job_kinds = job_kinds;
        }
        if self.cluster.is_none() {
            let begun = Instant::now();
            let number = STARTED_PLANES.fetch_add(1, Ordering::Relaxed) + 1;
            let folder = ControlPlane::temporary_folder().with_extension(number.to_string());
            let cluster = Cluster::start(&options(job_kinds), &folder).await?;
            let (version, seconds) =
                (cluster.plane.kubernetes_version().await?, begun.elapsed().as_secs_f64());
            println!("      {seconds:6.1} s  control plane {number} and manager ready, Kubernetes {version}");
            self.cluster = Some(cluster);
        }
        self.cluster.as_mut().context("no control plane")
    }

    async fn run_shared(&mut self, cases: &[(&'static str, SharedCase)]) -> Result<()> {
        let cluster: &Cluster = self.cluster(false).await?;
        let outcomes = stream::iter(cases).map(async |(name, case)| {
            let fixture = Fixture::new(cluster, name);
            (*name, print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await)
        });
        let outcomes: Vec<_> = outcomes.buffer_unordered(CASES_PER_PLANE).collect().await;
        if outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed)) {
            self.abandon_cluster();
        }
        for (name, outcome) in outcomes {
            self.outcomes.record(name, outcome);
        }
        Ok(())
    }

    async fn run_exclusive(
        &mut self,
        name: &'static str,
        case: ExclusiveCase,
        job_kinds: bool,
    ) -> Result<()> {
        let cluster = self.cluster(job_kinds).await?;
        let fixture = Fixture::new(cluster, name);
        let outcome = print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await;
        if matches!(outcome, Outcome::Failed) {
            self.abandon_cluster();
        }
        self.outcomes.record(name, outcome);
        Ok(())
    }

    /// Stops the plane and keeps its logs, so that objects left by the failed case cannot affect later cases.
    fn abandon_cluster(&mut self) {
        let Some(mut failed_cluster) = self.cluster.take() else { return };
        if let Ok(manager) = failed_cluster.manager() {
            println!("last log lines of the manager:\n{}", process::tail(manager.log(), 30));
        }
        println!("logs are in {}", failed_cluster.plane.folder().display());
        failed_cluster.plane.keep_folder();
    }
}

fn options(job_kinds: bool) -> ClusterOptions {
    let mut configuration = if job_kinds { job_kinds::configuration(&[]) } else { json!({}) };
    // Short lease, so that a killed leader is replaced within seconds.
    configuration["leaderElection"] =
        json!({"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"});
    ClusterOptions { load_balanced: true, configuration, job_kinds, nodes: 4, ..ClusterOptions::default() }
}

/// Prepares the fixture, runs the case and, unless it failed, deletes what it created.
async fn run_case(fixture: &Fixture, case: LocalBoxFuture<'_, Result<()>>) -> Result<()> {
    fixture.prepare().await?;
    let outcome = case.await;
    if outcome.as_ref().is_err_and(|error| !error.is::<NotRun>()) {
        return outcome;
    }
    fixture.clean_up().await?;
    outcome
}

/// Runs a case and prints its result.
async fn print_outcome(name: &'static str, case: impl Future<Output = Result<()>>) -> Outcome {
    let begun = Instant::now();
    let case = CASE_NAME.scope(name, case);
    let outcome = AssertUnwindSafe(case).catch_unwind().await.unwrap_or_else(|_| Err(anyhow!("it panicked")));
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("ok    {seconds:6.1} s  {name}");
            Outcome::Passed
        }
        Err(error) if error.is::<NotRun>() => {
            println!("NOT RUN         {name}: {error:#}");
            Outcome::NotRun(format!("{error:#}"))
        }
        Err(error) => {
            println!("FAIL  {seconds:6.1} s  {name}: {error:#}");
            Outcome::Failed
        }
    }
}
