//! `sluice manager`: starts, runs and stops all parts of the controller.
//!
//! Every replica watches and serves; the fence and the core's `Leading` let only one of them write. Shutdown order:
//! stop acting and release the lease, keep serving for the shutdown delay, drain, exit 0. Exits 1 if any task ends
//! without a shutdown signal.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, watch};

use super::args::ManagerArgs;
use super::core_queries::{self, CoreQuery, OwnCore};
use super::history_answers::HistoryShared;
use super::listed_frameworks::ListedFrameworks;
use super::logs::LogLevel;
use super::recording::{self, Recording};
use super::settings::{self, ManagerSettings};
use super::supervise::{SupervisedTasks, shutdown_signal};
use super::threads::Threads;
use super::{gap_filling, listeners, logs, parts, visibility};
use crate::kube::certificates::ServingCertificate;
use crate::kube::client::Clients;
use crate::kube::heartbeat::{Heartbeat, Heartbeats};
use crate::kube::lease::{Fence, LeaseHolder};
use crate::kube::rbac_check::MissingPermissions;
use crate::kube::refused_writes::RefusedWrites;
use crate::kube::server_clock::ServerClock;
use crate::kube::task_queue::Task;
use crate::kube::watch_status::WatchStatuses;
use crate::metrics::ConfigurationGaps;
use crate::metrics::counters::Counters;
use crate::metrics::model::Role;
use crate::metrics::recent::RecentDecisions;
use crate::reconciler::{Delta, Event, Reconciler};
use crate::server::apis::views::AuditCache;
use crate::server::simulations::{Estimates, SimulationSource};
use crate::simulate::SimulationOptions;
use crate::snapshot::Snapshot;

/// Capacity of the channel to the core; watches wait while it is full. Each delta contains a whole object, so a larger
/// channel would raise peak memory during long lists.
const DELTA_CHANNEL_CAPACITY: usize = 256;

pub(crate) fn start(args: ManagerArgs) -> anyhow::Result<()> {
    let log_level = logs::start(&args.log_settings())?;
    if let Some(warning) = args.zap.without_effect() {
        tracing::warn!(warning, "command line");
    }
    args.framework_files.add()?;
    // The default soft limit is low, and webhook clients could exhaust it.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let settings = settings::load(args)?;
    let threads = Threads::start()?;
    let result = threads.api.block_on(run(&settings, &threads, log_level));
    if let Err(error) = &result {
        tracing::error!(error = format!("{error:#}"), "manager exited with an error");
    }
    threads.shutdown();
    result
}

/// State shared by all parts.
pub(super) struct ManagerContext {
    pub(super) clients: Clients,
    pub(super) fence: Fence,
    pub(super) heartbeats: PartHeartbeats,
    pub(super) watch_statuses: WatchStatuses,
    pub(super) serving: Arc<ServingCertificate>,
    pub(super) permissions: Permissions,
    pub(super) refused_writes: Arc<RefusedWrites>,
    pub(super) core: CoreLink,
    pub(super) counters: Arc<Counters>,
    pub(super) configuration_gaps: Arc<ConfigurationGaps>,
    pub(super) listed_frameworks: Arc<ListedFrameworks>,
    pub(super) synced: watch::Receiver<bool>,
    pub(super) leadership: Leadership,
    pub(super) log_level: Arc<LogLevel>,
    pub(super) stop: StopSignals,
}

/// The core as other parts see it: published state, and channels for questions.
pub(super) struct CoreLink {
    /// Channel to the core; weak, so that it does not keep the channel open.
    pub(super) deltas: mpsc::WeakSender<Delta>,
    pub(super) queries: mpsc::Sender<CoreQuery>,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    /// Decisions of the last minutes.
    pub(super) recent: Arc<RecentDecisions>,
    /// Findings of the last minute.
    pub(super) audits: Arc<AuditCache>,
    /// When workloads may be admitted.
    pub(super) estimates: Arc<Estimates>,
    pub(super) history: Arc<HistoryShared>,
    /// The durable record, once its file is open; empty in a process that keeps none.
    pub(super) recording: Arc<OnceLock<Arc<Recording>>>,
}

impl CoreLink {
    fn new(
        deltas: &mpsc::Sender<Delta>,
        queries: mpsc::Sender<CoreQuery>,
        published: Arc<ArcSwap<Snapshot>>,
        (clock, estimates): (Arc<ServerClock>, Estimates),
    ) -> Self {
        Self {
            deltas: deltas.downgrade(),
            audits: Arc::new(AuditCache::new(Arc::new(OwnCore(queries.clone())))),
            estimates: Arc::new(estimates),
            queries,
            published,
            recent: Arc::new(RecentDecisions::new(std::time::Instant::now())),
            history: Arc::new(HistoryShared::new(clock)),
            recording: Arc::default(),
        }
    }
}

/// State of the leader election.
pub(super) struct Leadership {
    pub(super) leading: watch::Receiver<Option<i32>>,
    /// Metric label of this manager while it leads.
    pub(super) role: Role,
    pub(super) holder: Arc<LeaseHolder>,
}

/// Heartbeats of the parts that must make progress.
pub(super) struct PartHeartbeats {
    /// The core.
    pub(super) core: Heartbeat,
    /// The threads that call the API server.
    pub(super) api: Heartbeat,
    /// Heartbeats on which leadership and liveness depend.
    pub(super) all: Heartbeats,
}

impl PartHeartbeats {
    fn new(fence: &Fence) -> Self {
        let (core, api) = (fence.heartbeat("core"), fence.heartbeat("api"));
        Self { all: Heartbeats::new([core.clone(), api.clone()]), core, api }
    }
}

/// Missing permissions of this process.
#[derive(Default)]
pub(super) struct Permissions {
    pub(super) missing: Arc<MissingPermissions>,
    /// Notified when a call was refused as forbidden.
    pub(super) recheck: Arc<Notify>,
}

/// The two steps of a shutdown; each becomes true once.
pub(super) struct StopSignals {
    /// True once no further write may be sent.
    pub(super) acting: watch::Receiver<bool>,
    /// True once no further request may be answered.
    pub(super) serving: watch::Receiver<bool>,
}

/// Channel ends, each of which is moved into one part.
pub(super) struct ChannelEnds {
    pub(super) deltas: (mpsc::Sender<Delta>, mpsc::Receiver<Delta>),
    pub(super) queries: mpsc::Receiver<CoreQuery>,
    pub(super) tasks: (mpsc::UnboundedSender<Task>, mpsc::UnboundedReceiver<Task>),
    pub(super) events: (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>),
    pub(super) synced: watch::Sender<bool>,
    pub(super) leading: watch::Sender<Option<i32>>,
}

async fn run(settings: &ManagerSettings, threads: &Threads, log_level: LogLevel) -> anyhow::Result<()> {
    let args = &settings.args;
    let renewals = threads.lease.handle();
    let kubeconfig = args.kubeconfig.as_deref();
    let clients = Clients::connect(kubeconfig, settings.timeouts(), settings.rate(), renewals).await?;
    let (act, stop_acting) = watch::channel(false);
    let (serve, stop_serving) = watch::channel(false);
    let stop_signals = StopSignals { acting: stop_acting, serving: stop_serving };
    let core = settings.core();
    let kinds = args.component.kinds(&core);
    let mut state = Reconciler::watching(core, kinds);
    let (shared, ends) = link_parts(settings, clients, &state, log_level, stop_signals);
    let mut servers = listeners::start(settings, &shared, threads).await?;
    if let Some(file) = &settings.args.record.history_record {
        tokio::select! {
            opened = open_record(file, settings, &shared, &mut state) => opened?,
            error = servers.join_next() => return Err(error),
            signal = shutdown_signal() => return signal.map(|signal| tracing::info!(signal, "stopped")),
        }
    }
    let mut parts = parts::start(settings, &shared, threads, ends, state)?;
    let asked = tokio::select! {
        error = parts.join_next() => Err(error),
        error = servers.join_next() => Err(error),
        signal = shutdown_signal() => signal,
    };
    shared.fence.close();
    act.send_replace(true);
    let asked = match asked {
        Ok(signal) => signal,
        Err(error) => {
            // Wait only for the release of the lease.
            parts.shutdown(Duration::from_secs(1)).await;
            return Err(error);
        }
    };
    tracing::info!(signal = asked, "stopping");
    stop(settings, &serve, (servers, parts)).await;
    Ok(())
}

/// Creates the shared state of the parts, and the ends of their channels.
fn link_parts(
    settings: &ManagerSettings,
    clients: Clients,
    state: &Reconciler,
    log_level: LogLevel,
    stop: StopSignals,
) -> (ManagerContext, ChannelEnds) {
    let (synced_sender, synced) = watch::channel(false);
    let (leading_sender, leading) = watch::channel(None);
    let deltas = mpsc::channel(DELTA_CHANNEL_CAPACITY);
    let (queries, received_queries) = mpsc::channel(core_queries::CAPACITY);
    let reconciles = settings.args.component.reconciles();
    // A process that never leads is a follower, whatever the configuration has about elections.
    let elects = settings.configuration.leader_election.leader_elect || !reconciles;
    let fence = Fence::default();
    let published = Arc::new(ArcSwap::from_pointee(state.snapshot()));
    let estimates = Estimates::new(simulation_source(settings, &clients, &published));
    let shared = ManagerContext {
        heartbeats: PartHeartbeats::new(&fence),
        fence,
        watch_statuses: WatchStatuses::new(state.kinds()),
        serving: Arc::new(ServingCertificate::default()),
        permissions: Permissions::default(),
        refused_writes: Arc::default(),
        core: CoreLink::new(&deltas.0, queries, published, (Arc::clone(&clients.clock), estimates)),
        clients,
        counters: Arc::new(Counters::new(std::env::consts::OS, settings.families())),
        configuration_gaps: Arc::new(ConfigurationGaps::with_unknown_gates(settings.unknown_gates.clone())),
        listed_frameworks: Arc::new(ListedFrameworks::new(settings.core().needed_frameworks())),
        synced,
        leadership: Leadership {
            leading,
            role: if elects { Role::Leader } else { Role::Standalone },
            holder: Arc::default(),
        },
        log_level: Arc::new(log_level),
        stop,
    };
    let ends = ChannelEnds {
        deltas,
        queries: received_queries,
        tasks: mpsc::unbounded_channel(),
        events: mpsc::unbounded_channel(),
        synced: synced_sender,
        leading: leading_sender,
    };
    (shared, ends)
}

/// Returns what simulations on request depend on: the configuration of this manager, and the cluster as its account reads it.
fn simulation_source(
    settings: &ManagerSettings,
    clients: &Clients,
    published: &Arc<ArcSwap<Snapshot>>,
) -> SimulationSource {
    let mut core = settings.core();
    // Nothing asks a simulation what happened.
    core.gates.history_bytes = 0;
    let start = Timestamp::UNIX_EPOCH;
    SimulationSource {
        caller: clients.call.clone(),
        clock: Arc::clone(&clients.clock),
        published: Arc::clone(published),
        options: SimulationOptions {
            core,
            admission: settings.admission(),
            start,
            run_for: None,
            recorded: None,
        },
    }
}

/// Serves for the shutdown delay, then ends listeners and background parts.
async fn stop(
    settings: &ManagerSettings,
    serve: &watch::Sender<bool>,
    (servers, parts): (SupervisedTasks, SupervisedTasks),
) {
    let args = &settings.args;
    let began = tokio::time::Instant::now();
    let time_left = || args.shutdown_timeout.saturating_sub(began.elapsed());
    tokio::time::sleep(args.shutdown_delay.min(time_left())).await;
    serve.send_replace(true);
    servers.shutdown(time_left()).await;
    parts.shutdown(time_left().min(Duration::from_secs(5))).await;
    tracing::info!("stopped");
}

/// Opens the durable record, and asks a manager for what happened since its end. Probes are answered already: another process may hold
/// the file for a while.
async fn open_record(
    file: &Path,
    settings: &ManagerSettings,
    shared: &ManagerContext,
    state: &mut Reconciler,
) -> anyhow::Result<()> {
    let beat = || {
        shared.heartbeats.core.beat();
        shared.heartbeats.api.beat();
    };
    let clock = Arc::clone(&shared.clients.clock);
    let (recording, left) = recording::open(file, clock, beat).await?;
    let managers = Arc::new(visibility::replica_call(settings, shared));
    let asking = gap_filling::remembered(&managers, &settings.args.record.history_source, left.until);
    let mut asking = std::pin::pin!(asking);
    let remembered = loop {
        tokio::select! {
            remembered = &mut asking => break remembered,
            () = tokio::time::sleep(recording::HEARTBEAT_INTERVAL) => beat(),
        }
    };
    state.history().record(left.runs, left.until);
    if let Some(remembered) = remembered {
        state.history().fill(remembered);
    }
    let _ = shared.core.recording.set(recording);
    Ok(())
}
