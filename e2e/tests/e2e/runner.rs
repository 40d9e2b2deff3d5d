//! Runs cases in lanes. A lane is a thread with a control plane of its own, which its cases use one after the other; after
//! a failed case the plane's logs are kept, and the lane's next case gets a new plane.
//!
//! Invariants: a case that needs a control plane shares it with no other case while it runs; of the cases that run a kubelet
//! at most one runs; a case that needs the machine runs when no other case does. A case may block its thread (it runs
//! kubectl and waits for processes): that delays no case of another lane.

use crate::cases::{CASE_NAME, Case, ExclusiveCase, SharedCase, Work};
use crate::fixture::Fixture;
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

/// Runs the cases, at most `lanes` control planes at a time; returns the names of the failed ones. An error if a control
/// plane cannot be started, or at a signal.
pub(crate) fn run(runtime: &Runtime, cases: &[Case], lanes: usize) -> Result<Vec<&'static str>> {
    let schedule = Schedule::new(cases);
    let (kubelet, exclusive) = (Mutex::new(schedule.kubelet), Mutex::new(schedule.exclusive));
    let lanes = lanes.clamp(1, cases.len().max(1));
    // The first lane begins with the cases that share its plane, the last one with those of the kubelet.
    let mut failed = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes)
            .map(|number| {
                let shared = if number == 0 { schedule.shared.as_slice() } else { &[] };
                let own = if number + 1 == lanes { vec![&kubelet, &exclusive] } else { vec![&exclusive] };
                scope.spawn(move || Lane::default().run_until_signal(runtime, shared, &own))
            })
            .collect();
        let ended = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked")));
        ended.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>>>()
    })?
    .concat();
    let alone = Mutex::new(schedule.alone);
    failed.extend(Lane::default().run_until_signal(runtime, &[], &[&alone])?);
    Ok(failed)
}

/// The cases of a run by what they need.
struct Schedule {
    shared: Vec<(&'static str, SharedCase)>,
    /// The longest first, so that no lane is left with a long one at the end.
    exclusive: CaseQueue,
    kubelet: CaseQueue,
    /// They need the machine.
    alone: CaseQueue,
}

type CaseQueue = VecDeque<(&'static str, ExclusiveCase)>;

impl Schedule {
    fn new(cases: &[Case]) -> Self {
        let mut longest_first: Vec<&Case> = cases.iter().collect();
        longest_first.sort_by_key(|case| std::cmp::Reverse(case.seconds));
        let mut schedule = Self {
            shared: Vec::new(),
            exclusive: VecDeque::new(),
            kubelet: VecDeque::new(),
            alone: VecDeque::new(),
        };
        for case in longest_first {
            match case.work {
                Work::Queues(work) => schedule.shared.push((case.name, work)),
                Work::Plane(work) => schedule.exclusive.push_back((case.name, work)),
                Work::Kubelet(work) => schedule.kubelet.push_back((case.name, work)),
                Work::Machine(work) => schedule.alone.push_back((case.name, work)),
            }
        }
        schedule
    }
}

/// A control plane and the cases that run on it.
#[derive(Default)]
struct Lane {
    cluster: Option<Cluster>,
    failed: Vec<&'static str>,
}

impl Lane {
    /// Runs the shared cases, then those of the queues, each until it is empty. Its plane ends with it.
    fn run_until_signal(
        mut self,
        runtime: &Runtime,
        shared: &[(&'static str, SharedCase)],
        queues: &[&Mutex<CaseQueue>],
    ) -> Result<Vec<&'static str>> {
        let work = async {
            if !shared.is_empty() {
                self.run_shared(shared).await?;
            }
            for queue in queues {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some((name, case)) = next() {
                    self.run_exclusive(name, case).await?;
                }
            }
            Ok(())
        };
        let outcome = runtime.block_on(signals::interruptible(work));
        // The plane's balancer ends tasks of the runtime, also after a signal.
        let _runtime = runtime.enter();
        self.cluster = None;
        outcome?;
        Ok(self.failed)
    }

    /// Returns the control plane; starts a new one for the first case and after a failure.
    async fn cluster(&mut self) -> Result<&mut Cluster> {
        if self.cluster.is_none() {
            let begun = Instant::now();
            let number = STARTED_PLANES.fetch_add(1, Ordering::Relaxed) + 1;
            let folder = ControlPlane::temporary_folder().with_extension(number.to_string());
            let cluster = Cluster::start(&options(), &folder).await?;
            let (version, seconds) =
                (cluster.plane.kubernetes_version().await?, begun.elapsed().as_secs_f64());
            println!("      {seconds:6.1} s  control plane {number} and manager ready, Kubernetes {version}");
            self.cluster = Some(cluster);
        }
        self.cluster.as_mut().context("no control plane")
    }

    async fn run_shared(&mut self, cases: &[(&'static str, SharedCase)]) -> Result<()> {
        let cluster: &Cluster = self.cluster().await?;
        let outcomes = stream::iter(cases).map(async |(name, case)| {
            let fixture = Fixture::new(cluster, name);
            print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await
        });
        let failed: Vec<_> =
            outcomes.buffer_unordered(CASES_PER_PLANE).filter_map(async |failed| failed).collect().await;
        if !failed.is_empty() {
            self.abandon_cluster();
        }
        self.failed.extend(failed);
        Ok(())
    }

    async fn run_exclusive(&mut self, name: &'static str, case: ExclusiveCase) -> Result<()> {
        let cluster = self.cluster().await?;
        let fixture = Fixture::new(cluster, name);
        let failed = print_outcome(name, run_case(&fixture, case(cluster, &fixture))).await;
        if failed.is_some() {
            self.abandon_cluster();
        }
        self.failed.extend(failed);
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

fn options() -> ClusterOptions {
    ClusterOptions {
        load_balanced: true,
        // Short lease, so that a killed leader is replaced within seconds.
        configuration: json!({
            "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
        }),
        nodes: 4,
        ..ClusterOptions::default()
    }
}

/// Prepares the fixture, runs the case and, if it succeeded, deletes what it created.
async fn run_case(fixture: &Fixture, case: LocalBoxFuture<'_, Result<()>>) -> Result<()> {
    fixture.prepare().await?;
    case.await?;
    fixture.clean_up().await
}

/// Runs a case and prints its result; returns its name if it failed.
async fn print_outcome(name: &'static str, case: impl Future<Output = Result<()>>) -> Option<&'static str> {
    let begun = Instant::now();
    let case = CASE_NAME.scope(name, case);
    let outcome = AssertUnwindSafe(case).catch_unwind().await.unwrap_or_else(|_| Err(anyhow!("it panicked")));
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("ok    {seconds:6.1} s  {name}");
            None
        }
        Err(error) => {
            println!("FAIL  {seconds:6.1} s  {name}: {error:#}");
            Some(name)
        }
    }
}
