//! `sluice manager`: puts the parts together, runs them, takes them down.
//!
//! Every replica watches and serves; the fence and the core's `Leading` let one of them write. Order of the end: stop
//! acting and give the lease back, serve on for a moment, drain, exit 0. An end that nobody asked for is exit 1.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};

use super::args::ManagerArgs;
use super::core::Core;
use super::settings::{self, Settings};
use super::supervise::{Supervised, asked_to_stop};
use super::{address, logs, standing};
use crate::admission::{self, Context as ReviewContext};
use crate::kube::access::{self, Missing};
use crate::kube::certificates::{self, Serving};
use crate::kube::client::Clients;
use crate::kube::events;
use crate::kube::execute::{Executor, OnCall};
use crate::kube::lease::{self, Fence};
use crate::kube::queue::Task;
use crate::kube::watch::{WatchBoard, follow};
use crate::server::accept::{Limits, Listener};
use crate::server::callers::Callers;
use crate::server::health::{self, Obstacles};
use crate::server::metrics::{self, Gatekeeper, Render};
use crate::server::tls;
use crate::server::webhooks::{self, Review};
use crate::state::{Delta, Event, Snapshot, State, Verb, WriteOutcome};
use crate::view;
use crate::view::counters::Counters;
use crate::view::metrics::Role;

/// Deltas on their way to the core: watches wait when it is full. Each holds a whole object, so that a long list would
/// leave its mark on the memory of the process.
const DELTAS: usize = 256;
/// Threads that talk to the server and answer reviews, beside the core's. What comes is over in microseconds: several
/// threads spend more on waking each other than they share.
const IO_THREADS: usize = 1;

pub(super) fn start(args: ManagerArgs) -> anyhow::Result<()> {
    logs::start(args.log_format, &args.log_level)?;
    // Programs are started with few, for the sake of others; a client could use them up.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let settings = settings::load(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(IO_THREADS).enable_all().build();
    let runtime = runtime.context("runtime")?;
    let result = runtime.block_on(run(&settings));
    if let Err(error) = &result {
        tracing::error!(error = format!("{error:#}"), "the end");
    }
    // What still runs is a task that was cut off already.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

/// What the parts share.
struct Shared {
    clients: Clients,
    fence: Fence,
    board: WatchBoard,
    serving: Arc<Serving>,
    missing: Arc<Missing>,
    published: Arc<ArcSwap<Snapshot>>,
    counters: Arc<Counters>,
    standing: Arc<view::Standing>,
    synced: watch::Receiver<bool>,
    leading: watch::Receiver<Option<i32>>,
    role: Role,
    stop_acting: watch::Receiver<bool>,
    stop_serving: watch::Receiver<bool>,
}

/// Ends of channels that one part each takes.
struct Ends {
    deltas: (mpsc::Sender<Delta>, mpsc::Receiver<Delta>),
    tasks: (mpsc::UnboundedSender<Task>, mpsc::UnboundedReceiver<Task>),
    events: (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>),
    synced: watch::Sender<bool>,
    leading: watch::Sender<Option<i32>>,
}

async fn run(settings: &Settings) -> anyhow::Result<()> {
    let kubeconfig = settings.args.kubeconfig.as_deref();
    let clients = Clients::connect(kubeconfig, settings.timeouts(), settings.rate()).await?;
    let (act, stop_acting) = watch::channel(false);
    let (serve, stop_serving) = watch::channel(false);
    let (synced_sender, synced) = watch::channel(false);
    let (leading_sender, leading) = watch::channel(None);
    let elects = settings.configuration.leader_election.leader_elect;
    let core = settings.core();
    let kinds = core.kinds();
    let state = State::new(core);
    let shared = Shared {
        clients,
        fence: Fence::default(),
        board: WatchBoard::new(&kinds),
        serving: Arc::new(Serving::default()),
        missing: Arc::new(Missing::default()),
        published: Arc::new(ArcSwap::from_pointee(state.snapshot())),
        counters: Arc::new(Counters::new(std::env::consts::OS, settings.families())),
        standing: Arc::new(view::Standing::new(settings.configuration.unmanaged_frameworks())),
        synced,
        leading,
        role: if elects { Role::Leader } else { Role::Standalone },
        stop_acting,
        stop_serving,
    };
    let ends = Ends {
        deltas: mpsc::channel(DELTAS),
        tasks: mpsc::unbounded_channel(),
        events: mpsc::unbounded_channel(),
        synced: synced_sender,
        leading: leading_sender,
    };
    let mut servers = listeners(settings, &shared).await?;
    let mut workers = Supervised::default();
    start_workers(settings, &shared, ends, state, &mut workers)?;
    let asked = tokio::select! {
        error = workers.first_end() => Err(error),
        error = servers.first_end() => Err(error),
        signal = asked_to_stop() => signal,
    };
    shared.fence.shut();
    act.send_replace(true);
    let asked = match asked {
        Ok(signal) => signal,
        Err(error) => {
            // The lease is given back where it is still held; nothing else is waited for.
            workers.all_ended(Duration::from_secs(1)).await;
            return Err(error);
        }
    };
    tracing::info!(signal = asked, "stopping");
    let args = &settings.args;
    let began = tokio::time::Instant::now();
    let left = || args.shutdown_timeout.saturating_sub(began.elapsed());
    tokio::time::sleep(args.shutdown_delay.min(left())).await;
    serve.send_replace(true);
    servers.all_ended(left()).await;
    workers.all_ended(left().min(Duration::from_secs(5))).await;
    tracing::info!("stopped");
    Ok(())
}

fn start_workers(
    settings: &Settings,
    shared: &Shared,
    ends: Ends,
    state: State,
    workers: &mut Supervised,
) -> anyhow::Result<()> {
    let (deltas, received) = ends.deltas;
    for kind in state.kinds().iter().copied() {
        let watch = follow(
            shared.clients.watch.clone(),
            kind,
            settings.watch(),
            shared.board.clone(),
            deltas.clone(),
        );
        workers.start("watch", until(shared.stop_acting.clone(), watch));
    }
    let counters = Arc::clone(&shared.counters);
    let on_call: OnCall =
        Arc::new(move |verb, outcome| counters.wrote(verb_word(verb), outcome_word(outcome)));
    let crowded = Arc::new(AtomicBool::new(false));
    let executor = Executor {
        caller: shared.clients.call.clone(),
        settings: settings.executor(),
        fence: shared.fence.clone(),
        crowded: Arc::clone(&crowded),
        deltas,
        on_call,
    };
    let tasks = ends.tasks.1;
    workers.start("executor", async move {
        executor.run(tasks).await;
        Ok(())
    });
    let counters = Arc::clone(&shared.counters);
    let dropped: events::OnDropped = Arc::new(move |number| counters.dropped_events(number));
    let emitter = events::run(
        shared.clients.call.clone(),
        settings.events(),
        shared.fence.clone(),
        crowded,
        dropped,
        ends.events.1,
    );
    workers.start("events", until(shared.stop_acting.clone(), emitter));
    let certificates = certificates::run(
        shared.clients.watch.clone(),
        shared.clients.call.clone(),
        settings.certificates(),
        settings.watch(),
        Arc::clone(&shared.serving),
        Arc::clone(&shared.clients.clock),
    );
    workers.start("certificates", until(shared.stop_serving.clone(), certificates));
    let lease = settings.lease()?;
    let rights =
        access::needed(state.kinds(), &settings.certificates(), lease.as_ref(), settings.guards_metrics());
    let asking = access::check(shared.clients.call.clone(), rights, Arc::clone(&shared.missing));
    workers.start("access", until(shared.stop_serving.clone(), asking));
    workers.start("lease", lead(lease, shared, ends.leading));
    let guard = standing::guard(settings, shared.clients.watch.clone(), Arc::clone(&shared.standing));
    workers.start("guard", until(shared.stop_serving.clone(), guard));
    let board = shared.board.clone();
    let unlisted = move || board.unsynced().iter().map(ToString::to_string).collect::<Vec<_>>();
    let listed = standing::listed_in_time(settings.sync_timeout(), shared.synced.clone(), unlisted);
    workers.start("first lists", until_done(shared.stop_acting.clone(), listed));
    let core = Core {
        state,
        deltas: received,
        tasks: ends.tasks.0,
        events: ends.events.0,
        published: Arc::clone(&shared.published),
        leading: shared.leading.clone(),
        synced: ends.synced,
        counters: Arc::clone(&shared.counters),
        stop: shared.stop_acting.clone(),
        role: shared.role,
    };
    let end = core.start().context("core")?;
    workers.start("core", ended(end));
    Ok(())
}

async fn ended(end: oneshot::Receiver<()>) -> anyhow::Result<()> {
    end.await.context("panicked")
}

/// Runs a task until it is told to stop.
async fn until(mut stop: watch::Receiver<bool>, task: impl Future<Output = ()>) -> anyhow::Result<()> {
    tokio::select! {
        () = task => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    Ok(())
}

/// The same of a task that may fail.
async fn until_done(
    mut stop: watch::Receiver<bool>,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = task => ended,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    }
}

/// Competes for the lease once everything has been listed: a replica that knows nothing must not hold up others.
fn lead(
    lease: Option<lease::LeaseSettings>,
    shared: &Shared,
    leading: watch::Sender<Option<i32>>,
) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let (caller, fence) = (shared.clients.lease.clone(), shared.fence.clone());
    let (mut synced, mut stop) = (shared.synced.clone(), shared.stop_acting.clone());
    async move {
        tokio::select! {
            ready = synced.wait_for(|synced| *synced) => { ready.context("the core ended")?; }
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        let Some(lease) = lease else {
            fence.open_forever();
            leading.send_replace(Some(0));
            // The error says that the sender is gone: stopped as well.
            let _ = stop.wait_for(|stop| *stop).await;
            return Ok(());
        };
        lease::compete(caller, lease, fence, leading, stop).await?;
        Ok(())
    }
}

async fn listeners(settings: &Settings, shared: &Shared) -> anyhow::Result<Supervised> {
    let (args, configuration) = (&settings.args, &settings.configuration);
    let limits = Limits { drain: args.shutdown_timeout, ..Limits::default() };
    let tls = tls::config(Arc::clone(&shared.serving), configuration.tls.as_ref()).context("tls")?;
    let webhook = address::join(&configuration.webhook.host, configuration.webhook.port);
    let webhook = args.webhook_bind_address.clone().unwrap_or(webhook);
    let health = &configuration.health.health_probe_bind_address;
    let health = args.health_bind_address.as_ref().unwrap_or(health);
    let metrics_at = &configuration.metrics.bind_address;
    let metrics_at = args.metrics_bind_address.as_ref().unwrap_or(metrics_at);
    let mut servers = Supervised::default();
    if let Some(at) = address::parse("webhook address", &webhook).await? {
        let router = webhooks::router(reviewer(settings, shared), shared.counters.reviews());
        let tls = match &args.webhook_client_ca {
            Some(path) => {
                let callers = Callers::read(path, args.webhook_client_name.clone())?;
                let following = until(shared.stop_serving.clone(), Arc::clone(&callers).follow());
                servers.start("client-ca", following);
                let serving = Arc::clone(&shared.serving);
                tls::config_for(serving, configuration.tls.as_ref(), Some(callers)).context("tls")?
            }
            None => Arc::clone(&tls),
        };
        let listener = Listener::bind("webhooks", at, Some(tls), router, limits).await;
        serve(&mut servers, "webhooks", listener.with_context(|| format!("webhooks: {webhook}"))?, shared);
    }
    if let Some(at) = address::parse("health address", health).await? {
        let names = &configuration.health;
        let router = health::router(
            &names.readiness_endpoint_name,
            &names.liveness_endpoint_name,
            readiness(shared),
            liveness(),
        );
        let listener = Listener::bind("health", at, None, router, limits.few()).await;
        serve(&mut servers, "health", listener.with_context(|| format!("health: {health}"))?, shared);
    }
    if let Some(at) = address::parse("metrics address", metrics_at).await? {
        let guard = (!args.metrics_insecure).then(|| Gatekeeper::new(shared.clients.call.clone()));
        let tls = (!args.metrics_insecure).then_some(tls);
        let router = metrics::router(renderer(settings, shared), guard);
        let listener = Listener::bind("metrics", at, tls, router, limits.few()).await;
        serve(&mut servers, "metrics", listener.with_context(|| format!("metrics: {metrics_at}"))?, shared);
    }
    Ok(servers)
}

fn serve(servers: &mut Supervised, name: &'static str, listener: Listener, shared: &Shared) {
    let stop = shared.stop_serving.clone();
    servers.start(name, async move {
        listener.run(stop).await;
        Ok(())
    });
}

fn reviewer(settings: &Settings, shared: &Shared) -> Review {
    let (published, settings) = (Arc::clone(&shared.published), settings.admission());
    Arc::new(move |path, request| {
        let snapshot = published.load();
        admission::review(path, request, &ReviewContext { objects: &**snapshot, settings: &settings })
    })
}

/// Ready is who can answer webhooks: leadership does not matter.
fn readiness(shared: &Shared) -> Obstacles {
    let (serving, board) = (Arc::clone(&shared.serving), shared.board.clone());
    let (synced, stop) = (shared.synced.clone(), shared.stop_acting.clone());
    let missing = Arc::clone(&shared.missing);
    Arc::new(move || {
        let mut obstacles: Vec<String> =
            missing.list().iter().map(|right| format!("not allowed: {right}")).collect();
        if *stop.borrow() {
            obstacles.push("stopping".to_owned());
        }
        obstacles.extend(serving.obstacle().map(|obstacle| obstacle.to_string()));
        let unsynced = board.unsynced();
        if !unsynced.is_empty() {
            obstacles.push(format!("not listed yet: {}", unsynced.join(", ")));
        } else if !*synced.borrow() {
            obstacles.push("lists not taken in yet".to_owned());
        }
        obstacles
    })
}

/// The process ends by itself when a part ends: who answers is alive.
fn liveness() -> Obstacles {
    Arc::new(Vec::new)
}

fn renderer(settings: &Settings, shared: &Shared) -> Render {
    let (counters, published) = (Arc::clone(&shared.counters), Arc::clone(&shared.published));
    let (families, alone) = (settings.families(), shared.role == Role::Standalone);
    let (serving, clock) = (Arc::clone(&shared.serving), Arc::clone(&shared.clients.clock));
    let standing = Arc::clone(&shared.standing);
    Arc::new(move || {
        let snapshot = published.load();
        let role = match (alone, snapshot.leading) {
            (true, _) => Role::Standalone,
            (false, true) => Role::Leader,
            (false, false) => Role::Follower,
        };
        let mut text = counters.render().unwrap_or_default();
        text.push_str(&view::certificates::render(&serving.shown(), clock.ahead()).unwrap_or_default());
        text.push_str(&view::render(&view::gauges(&snapshot), families, role).unwrap_or_default());
        text.push_str(&standing.render().unwrap_or_default());
        text
    })
}

fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Apply => "apply",
        Verb::Merge => "merge",
        Verb::Delete => "delete",
    }
}

fn outcome_word(outcome: &WriteOutcome) -> &'static str {
    match outcome {
        WriteOutcome::Done(_) => "done",
        WriteOutcome::Conflict => "conflict",
        WriteOutcome::NotFound => "not_found",
        WriteOutcome::Rejected { .. } => "rejected",
        WriteOutcome::Unavailable { .. } => "unavailable",
    }
}
