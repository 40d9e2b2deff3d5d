//! Simulations on request, for pages and for users that may not list the cluster: what a change would do, and when a workload may be
//! admitted.
//!
//! Invariants: the objects are read with the account of this process, and an answer has only what its reader may see; questions of both
//! kinds count together, for each user and in all; the memory for objects is bounded while they are read; nothing is kept but answers.

mod estimates;
mod objects;
mod what_if;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::Value;
use tokio::sync::mpsc;

pub use self::estimates::Estimates;
use self::objects::{FinishedWorkloads, MAX_MEBIBYTES, read_all, received_objects};
pub use self::what_if::WhatIfAnswers;
use super::bounded_work::{BoundedWork, NoWork, WorkLimits, WorkTime};
use crate::cache::Kind;
use crate::kube::client::{Caller, Rate};
use crate::kube::server_clock::ServerClock;
use crate::lifecycle::pods_ready::PodsReadyLimits;
use crate::simulate::SimulationOptions;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;

/// Most pending workloads of a cluster that is simulated.
const MAX_PENDING: usize = 20_000;
/// Rate of the lists of all questions.
const LIST_RATE: Rate = Rate { per_second: 20.0, burst: 100.0 };

/// What simulations depend on.
pub struct SimulationSource {
    /// Reads the objects with the account of this process.
    pub caller: Caller,
    /// Says when a simulation begins.
    pub clock: Arc<ServerClock>,
    /// The state with the number of pending workloads.
    pub published: Arc<ArcSwap<Snapshot>>,
    /// Options, of which each question has its own start, and the timeouts of waiting for pods that are then in force.
    pub options: SimulationOptions,
}

/// Why nothing was simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NoSimulation {
    #[error("{0} workloads are pending, and at most {max} are simulated on request", max = MAX_PENDING)]
    TooManyPending(usize),
    #[error("the objects to simulate need more than the {max} MiB that a simulation on request may use", max = MAX_MEBIBYTES)]
    TooLarge,
    #[error("the simulation takes too long to be made on request")]
    TooLong,
    #[error(transparent)]
    NoWork(#[from] NoWork),
    #[error("the objects of the cluster cannot be read at present")]
    Unread,
    #[error("an object of the cluster cannot be read: {0}")]
    Invalid(String),
}

impl NoSimulation {
    /// Returns the reason, with what the reader can do about it if it is a bound of simulations on request. A command that lists the
    /// whole cluster is no advice for readers of namespaces: it refuses them.
    fn with_advice(&self, advice: Advice, access: &Access) -> String {
        let command = advice.command;
        match self {
            Self::NoWork(NoWork::Failed) | Self::Unread | Self::Invalid(_) => self.to_string(),
            _ if access.sees_everything() => format!("{self}: {}", advice.text),
            Self::NoWork(_) => format!("{self}: ask again in a moment"),
            _ => format!(
                "{self}: ask an administrator, because {command} needs an account that may list the whole cluster"
            ),
        }
    }
}

/// What to do beyond the bounds of simulations on request.
#[derive(Clone, Copy)]
struct Advice {
    /// For readers of the whole cluster.
    text: &'static str,
    /// The command that answers without these bounds.
    command: &'static str,
}

/// Simulates the cluster for questions with answers of a type.
struct Simulator<A> {
    cluster: Arc<Cluster>,
    work: BoundedWork<Result<A, NoSimulation>>,
}

/// The cluster as all simulators read it.
struct Cluster {
    source: SimulationSource,
    /// Kinds on which decisions depend, Workloads last.
    kinds: Vec<Kind>,
    /// The timeouts of waiting for pods in force; `None` if pods are not waited for.
    pods_ready: ArcSwapOption<PodsReadyLimits>,
}

impl<A: Clone + Send + 'static> Simulator<A> {
    fn new(source: SimulationSource) -> Self {
        let mut kinds = source.options.core.kinds();
        kinds.sort_by_key(|kind| *kind == Kind::Workload);
        let caller = source.caller.clone().with_rate(Some(LIST_RATE));
        let pods_ready = ArcSwapOption::from_pointee(source.options.core.lifecycle.pods_ready.clone());
        let cluster = Cluster { source: SimulationSource { caller, ..source }, kinds, pods_ready };
        Self { cluster: Arc::new(cluster), work: BoundedWork::new(WorkLimits::default()) }
    }

    /// Returns a simulator with answers of another type whose work counts with that of this one.
    fn sharing<B: Clone + Send + 'static>(&self) -> Simulator<B> {
        Simulator { cluster: Arc::clone(&self.cluster), work: self.work.sharing() }
    }

    /// Returns the options of a simulation that begins now.
    fn options(&self) -> SimulationOptions {
        let source = &self.cluster.source;
        let mut options = SimulationOptions { start: source.clock.now(), ..source.options.clone() };
        options.core.lifecycle.pods_ready = self.cluster.pods_ready.load().as_deref().cloned();
        options
    }

    /// Returns the kept answer to a question of a user, or reads the objects and simulates. `asked` differs for each question;
    /// `simulate` runs on the thread of the work.
    async fn answer(
        &self,
        (access, user): (&Access, &str),
        asked: &str,
        finished: FinishedWorkloads,
        simulate: impl FnOnce(Vec<(Kind, Value)>, WorkTime) -> Result<A, NoSimulation> + Send + 'static,
    ) -> Result<A, NoSimulation> {
        let pending = self.cluster.pending();
        if pending > MAX_PENDING {
            return Err(NoSimulation::TooManyPending(pending));
        }
        // Serializing an access does not fail; if it did, its debug form would be as distinct.
        let reader = serde_json::to_string(access).unwrap_or_else(|_| format!("{access:?}"));
        self.work.kept(format!("{reader} {asked}"), self.simulated(user, finished, simulate)).await?
    }

    /// Reads the objects and simulates. The inner result is kept, also if a bound is reached; the outer error is not, because the same
    /// question may soon be answered.
    async fn simulated(
        &self,
        user: &str,
        finished: FinishedWorkloads,
        simulate: impl FnOnce(Vec<(Kind, Value)>, WorkTime) -> Result<A, NoSimulation> + Send + 'static,
    ) -> Result<Result<A, NoSimulation>, NoSimulation> {
        let turn = self.work.begin(user)?;
        let (pages, received) = mpsc::channel(1);
        let computing = turn.run(move |time| {
            let objects = received_objects(received, finished, *time)?;
            simulate(objects, *time)
        });
        let reading = read_all(&self.cluster.source.caller, &self.cluster.kinds, pages);
        let (read, computed) = tokio::join!(reading, computing);
        if let Err(error) = read {
            tracing::warn!(%error, "the objects for a simulation cannot be read");
            return Err(NoSimulation::Unread);
        }
        computed.map_err(NoSimulation::from)
    }
}

impl Cluster {
    /// Follows a change of the timeouts as the core does: whether pods are waited for needs a restart.
    fn set_pods_ready_limits(&self, limits: PodsReadyLimits) {
        if self.pods_ready.load().is_some() {
            self.pods_ready.store(Some(Arc::new(limits)));
        }
    }

    /// Returns the number of pending workloads.
    fn pending(&self) -> usize {
        let snapshot = self.source.published.load();
        snapshot.queues.cluster_queues.values().map(|queue| queue.pending.total()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionSettings;
    use crate::reconciler::CoreSettings;
    use crate::visibility::access::TenantDetail;
    use jiff::{SignedDuration, Timestamp};
    use std::convert::Infallible;
    use std::time::Duration;

    /// Estimates of a cluster whose API server never answers, with these timeouts.
    fn estimates(pods_ready: Option<PodsReadyLimits>) -> Estimates {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let mut core = CoreSettings::default();
        core.lifecycle.pods_ready = pods_ready;
        let (admission, start) = (AdmissionSettings::default(), Timestamp::UNIX_EPOCH);
        Estimates::new(SimulationSource {
            caller: Caller::new(kube::Client::new(never, "default"), Duration::from_secs(1)),
            clock: Arc::new(ServerClock::starting_at(start)),
            published: Arc::new(ArcSwap::from_pointee(Snapshot::default())),
            options: SimulationOptions { core, admission, start, run_for: None, recorded: None },
        })
    }

    #[tokio::test]
    async fn simulations_have_the_timeouts_in_force() {
        let limits = |seconds: i64| PodsReadyLimits {
            timeout: SignedDuration::from_secs(seconds),
            recovery_timeout: None,
            max_requeues: None,
            backoff_base: SignedDuration::from_secs(60),
            backoff_max: SignedDuration::from_hours(1),
        };
        for (at_start, expected) in [(Some(limits(300)), Some(limits(90))), (None, None)] {
            let estimates = estimates(at_start.clone());
            let what_if = estimates.simulator.sharing::<u32>();
            let in_force = || {
                let all = [estimates.simulator.options(), what_if.options()];
                all.map(|options| options.core.lifecycle.pods_ready)
            };
            assert_eq!(in_force(), [at_start.clone(), at_start]);
            estimates.set_pods_ready_limits(limits(90));
            assert_eq!(in_force(), [expected.clone(), expected], "after the configuration was read again");
        }
    }

    #[test]
    fn bounds_are_as_documented() {
        let WorkLimits { total, cpu, time, kept } = WorkLimits::default();
        assert_eq!((total, MAX_PENDING), (2, 20_000));
        let documented = format!(
            "for each user one at a time and two in all, {} s of CPU and {} s, {MAX_MEBIBYTES} MiB, at most 20,000 pending workloads.",
            cpu.as_secs(),
            time.as_secs()
        );
        assert_eq!((cpu.as_secs(), time.as_secs(), kept.as_secs(), MAX_MEBIBYTES), (3, 20, 30, 64));
        let docs = include_str!("../../../docs/dashboard.md").replace('\n', " ");
        assert!(docs.contains(&documented), "{documented}");
        assert!(docs.contains(&format!("An answer is kept for {} s", kept.as_secs())));
    }

    #[test]
    fn a_bound_has_advice_and_a_failure_has_none() {
        let advice = Advice { text: "ask in a terminal", command: "sluice what-if" };
        let text = |none: NoSimulation| none.with_advice(advice, &Access::everything());
        assert_eq!(
            text(NoSimulation::TooManyPending(20_001)),
            "20001 workloads are pending, and at most 20000 are simulated on request: ask in a terminal"
        );
        assert_eq!(
            text(NoWork::UserBusy.into()),
            "your last question is still being computed: ask in a terminal"
        );
        assert_eq!(text(NoWork::Failed.into()), "the answer could not be computed");
        assert_eq!(text(NoSimulation::Unread), "the objects of the cluster cannot be read at present");
        // The command refuses a reader of namespaces.
        let tenant = Access::to_namespace("ns", TenantDetail::None);
        for (none, expected) in [
            (
                NoSimulation::TooLong,
                "the simulation takes too long to be made on request: ask an administrator, because sluice what-if needs an account that may list the whole cluster",
            ),
            (NoWork::UserBusy.into(), "your last question is still being computed: ask again in a moment"),
            (NoSimulation::Unread, "the objects of the cluster cannot be read at present"),
        ] {
            assert_eq!(none.with_advice(advice, &tenant), expected);
        }
    }
}
