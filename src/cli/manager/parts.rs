//! Starts the background parts: watches, executor, events, certificates, permission checks, lease, watchdog and core.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::{mpsc, oneshot, watch};

use super::config_checks;
use super::core::Core;
use super::leadership;
use super::queue_dump;
use super::recording;
use super::reload;
use super::run::{ChannelEnds, ManagerContext};
use super::settings::ManagerSettings;
use super::supervise::SupervisedTasks;
use super::threads::Threads;
use super::visibility;
use super::webhook_configurations;
use crate::cache::Kind;
use crate::history::Entry;
use crate::kube::client::Rate;
use crate::kube::executor::{Executor, OnCall, RefusalLog};
use crate::kube::heartbeat::{Heartbeat, wait_for_stall};
use crate::kube::lease::LeaseSettings;
use crate::kube::rbac_check::{PermissionCheck, PermissionRequirements, WriteRequirements};
use crate::kube::task_queue::Task;
use crate::kube::watch::{Selection, WatchSettings, run_watch};
use crate::kube::{certificates, events, rbac_check};
use crate::reconciler::{Delta, Event, Reconciler, Write, WriteOutcome};

/// Interval between two heartbeats of the threads that call the API server.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Rate limit of access reviews.
const ACCESS_REVIEW_RATE: Rate = Rate { per_second: 5.0, burst: 100.0 };

/// Starts all background parts. The first error or end of one ends the process.
pub(super) fn start(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    threads: &Threads,
    ends: ChannelEnds,
    state: Reconciler,
) -> anyhow::Result<SupervisedTasks> {
    let mut starter = Starter { settings, shared, threads, parts: SupervisedTasks::default() };
    let (deltas, received) = ends.deltas;
    starter.start_watches(state.kinds(), &deltas);
    starter.start_writers(deltas, ends.tasks.1, ends.events.1);
    starter.start_certificates();
    let election = settings.lease()?;
    starter.start_permission_checks(state.kinds(), election.as_ref());
    starter.start_serving("beat", run_heartbeat(shared.heartbeats.api.clone()));
    let ownership = starter.start_lease(election, ends.leading);
    starter.start_config_checks(ownership);
    starter.start_serving("configuration", reload::run(settings, shared));
    starter.start_history_reports();
    starter.start_queue_dumps();
    starter.start_sync_timeout();
    let recorder = starter.start_recording()?;
    let core = Core {
        state,
        deltas: received,
        queries: ends.queries,
        tasks: ends.tasks.0,
        events: ends.events.0,
        published: Arc::clone(&shared.core.published),
        leading: shared.leadership.leading.clone(),
        synced: ends.synced,
        counters: Arc::clone(&shared.counters),
        recent: Arc::clone(&shared.core.recent),
        stop: shared.stop.acting.clone(),
        heartbeat: shared.heartbeats.core.clone(),
        recorder,
        clock: Arc::clone(&shared.clients.clock),
        role: shared.leadership.role,
    };
    starter.start_core(core)?;
    Ok(starter.parts)
}

/// The parts started so far, and the context for starting others.
struct Starter<'a> {
    settings: &'a ManagerSettings,
    shared: &'a ManagerContext,
    threads: &'a Threads,
    parts: SupervisedTasks,
}

impl Starter<'_> {
    /// Starts a part on the threads that call the API server. It ends when the process no longer acts.
    fn start_acting(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shared.stop.acting.clone();
        self.parts.start(&self.threads.api, name, run_until(stop, task));
    }

    /// Starts a part on the threads that call the API server. It ends when the process no longer serves.
    fn start_serving(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shared.stop.serving.clone();
        self.parts.start(&self.threads.api, name, run_until(stop, task));
    }

    /// Starts a watch of each kind.
    fn start_watches(&mut self, kinds: &[Kind], deltas: &mpsc::Sender<Delta>) {
        let passing = self.settings.core().passing_kinds();
        for kind in kinds.iter().copied() {
            let watch = run_watch(
                self.shared.clients.watch.clone(),
                Selection { kind, labels: None },
                WatchSettings { metadata_only: passing.contains(&kind), ..self.settings.watch() },
                self.shared.watch_statuses.clone(),
                deltas.clone(),
            );
            self.start_acting("watch", watch);
        }
    }

    /// Starts the executor, which ends with the channel of tasks, and the task that writes events.
    fn start_writers(
        &mut self,
        deltas: mpsc::Sender<Delta>,
        tasks: mpsc::UnboundedReceiver<Task>,
        events: mpsc::UnboundedReceiver<Event>,
    ) {
        let (settings, shared, api) = (self.settings, self.shared, &self.threads.api);
        let under_load = Arc::new(AtomicBool::new(false));
        let executor = executor(settings, shared, Arc::clone(&under_load), deltas);
        self.parts.start(api, "executor", async move {
            executor.run(tasks).await;
            Ok(())
        });
        let emitter = event_task(settings, shared, under_load);
        self.parts.start(api, "events", emit_events(emitter, events, shared.stop.acting.clone()));
    }

    fn start_certificates(&mut self) {
        let (settings, shared) = (self.settings, self.shared);
        let certificates = certificates::CertificateTask {
            client: shared.clients.watch.clone(),
            caller: shared.clients.call.clone(),
            settings: settings.certificates(),
            watch: settings.watch(),
            serving: Arc::clone(&shared.serving),
            clock: Arc::clone(&shared.clients.clock),
        };
        self.start_serving("certificates", certificates.run());
    }

    fn start_permission_checks(&mut self, kinds: &[Kind], lease: Option<&LeaseSettings>) {
        let check = permission_check(self.settings, self.shared, kinds, lease);
        self.start_serving("access", rbac_check::run_permission_checks(check));
    }

    /// Starts the election, if this process may lead, and the watchdog. Returns the channel by which the election receives the
    /// webhook configurations of other managers.
    fn start_lease(
        &mut self,
        election: Option<LeaseSettings>,
        leading: watch::Sender<Option<i32>>,
    ) -> Option<watch::Sender<leadership::Ownership>> {
        let (settings, shared, threads) = (self.settings, self.shared, &self.threads.lease);
        let mut sends_ownership = None;
        if settings.args.component.reconciles() {
            let (sender, ownership) = watch::channel(None);
            sends_ownership = Some(sender);
            let handover = settings.stall_limit();
            let lead = leadership::lead(election, handover, shared, leading, ownership);
            self.parts.start(threads, "lease", lead);
        } else {
            // The sender is kept, because the core ends with it.
            let idle = leadership::never_lead(shared.stop.acting.clone(), leading);
            self.parts.start(threads, "lease", idle);
        }
        self.parts.start(threads, "watchdog", watchdog(settings, shared));
        sends_ownership
    }

    /// Starts the checks that the cluster has the objects that the configuration and this version need.
    fn start_config_checks(&mut self, ownership: Option<watch::Sender<leadership::Ownership>>) {
        let (settings, shared) = (self.settings, self.shared);
        let configurations = webhook_configurations::watch(
            settings,
            shared.clients.watch.clone(),
            Arc::clone(&shared.listed_frameworks),
            Arc::clone(&shared.configuration_gaps),
            ownership,
        );
        self.start_serving("webhook configurations", configurations);
        let definitions = config_checks::check_definitions(
            shared.clients.call.clone().with_rate(None),
            Arc::clone(&shared.configuration_gaps),
        );
        self.start_serving("definitions", definitions);
    }

    /// Starts the reports to the leader about the start of this replica's history.
    fn start_history_reports(&mut self) {
        let (settings, shared) = (self.settings, self.shared);
        if let Some(address) = settings.leader_address().filter(|_| settings.args.component.reconciles()) {
            self.start_acting("history", visibility::history(settings, shared).report_start(address));
        }
    }

    fn start_queue_dumps(&mut self) {
        let dumps = queue_dump::run(self.shared.core.queries.clone());
        let stop = self.shared.stop.serving.clone();
        self.parts.start(&self.threads.api, "queue dump", try_run_until(stop, dumps));
    }

    /// Starts the task that ends the process if the first lists take longer than configured.
    fn start_sync_timeout(&mut self) {
        let shared = self.shared;
        let watch_statuses = shared.watch_statuses.clone();
        let unsynced = move || watch_statuses.unsynced();
        let limit = self.settings.sync_timeout();
        let listed = config_checks::enforce_sync_timeout(limit, shared.synced.clone(), unsynced);
        let stop = shared.stop.acting.clone();
        self.parts.start(&self.threads.api, "first lists", try_run_until(stop, listed));
    }

    /// Starts the thread that commits to the durable record, if this process keeps it. Returns the channel for the core's
    /// entries.
    fn start_recording(&mut self) -> anyhow::Result<Option<std::sync::mpsc::Sender<Vec<Entry>>>> {
        let shared = self.shared;
        let Some(recording) = shared.core.recording.get() else { return Ok(None) };
        let (entries, end) = Arc::clone(recording).start(shared.watch_statuses.clone()).context("record")?;
        // Awaited at the end, because it commits the core's last entries.
        self.parts.start(&self.threads.api, "record", recording::ended(end));
        Ok(Some(entries))
    }

    fn start_core(&mut self, core: Core) -> anyhow::Result<()> {
        let end = core.start().context("core")?;
        self.parts.start(&self.threads.api, "core", core_exited(end));
        Ok(())
    }
}

/// Sends events until the process stops.
async fn emit_events(
    emitter: events::EventTask,
    events: mpsc::UnboundedReceiver<Event>,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let stopped = async { stop.wait_for(|stop| *stop).await.map_or((), drop) };
    emitter.run(events, stopped).await;
    Ok(())
}

/// Creates the task that writes events.
fn event_task(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    under_load: Arc<AtomicBool>,
) -> events::EventTask {
    let counters = Arc::clone(&shared.counters);
    let on_dropped: events::OnDropped =
        Arc::new(move |reason, number| counters.count_dropped_events(reason.as_str(), number));
    let counters = Arc::clone(&shared.counters);
    let on_queued: events::OnQueued = Arc::new(move |number| counters.set_queued_events(number));
    events::EventTask {
        caller: shared.clients.call.clone(),
        settings: settings.events(),
        fence: shared.fence.clone(),
        under_load,
        on_dropped,
        on_queued,
    }
}

/// Creates the executor of writes. A forbidden write triggers a permission check.
fn executor(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    under_load: Arc<AtomicBool>,
    deltas: mpsc::Sender<Delta>,
) -> Executor<mpsc::Sender<Delta>> {
    let counters = Arc::clone(&shared.counters);
    let recent = Arc::clone(&shared.core.recent);
    let recheck = Arc::clone(&shared.permissions.recheck);
    let (refused, fence) = (Arc::clone(&shared.refused_writes), shared.fence.clone());
    let on_call: OnCall = Arc::new(move |write, outcome| {
        let (verb, resource) = (write.verb.as_str(), resource_label(write));
        counters.count_write(verb, outcome_label(outcome));
        if matches!(outcome, WriteOutcome::Conflict) {
            recent.count_conflict(std::time::Instant::now());
        }
        if let WriteOutcome::Rejected { code, .. } = outcome {
            counters.count_refused_write(&resource, verb, *code);
            if *code == 403 {
                recheck.notify_one();
            }
        }
        refused.record((resource, verb), &write.key, outcome, fence.now());
    });
    Executor {
        caller: shared.clients.call.clone(),
        settings: settings.executor(),
        fence: shared.fence.clone(),
        under_load,
        sink: deltas,
        on_call,
        refusal_log: RefusalLog::default(),
    }
}

fn permission_check(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    kinds: &[Kind],
    lease: Option<&LeaseSettings>,
) -> PermissionCheck {
    let core = settings.core();
    let passing = core.passing_kinds();
    let managed: Vec<Kind> = kinds.iter().copied().filter(|kind| !passing.contains(kind)).collect();
    let permissions = rbac_check::required_permissions(&PermissionRequirements {
        kinds: &managed,
        passing: &passing,
        certificates: &settings.certificates(),
        lease,
        authorizes_metrics: settings.guards_metrics(),
        serves_visibility: settings.serves_users(),
        writes: settings.args.component.reconciles().then(|| WriteRequirements {
            deletes_jobs: settings.deletes_jobs(),
            pods_are_jobs: core.manages_pods(),
        }),
    });
    PermissionCheck {
        caller: shared.clients.call.clone().with_rate(Some(ACCESS_REVIEW_RATE)),
        permissions,
        watch_statuses: shared.watch_statuses.clone(),
        missing_permissions: Arc::clone(&shared.permissions.missing),
        recheck: Arc::clone(&shared.permissions.recheck),
    }
}

async fn core_exited(end: oneshot::Receiver<()>) -> anyhow::Result<()> {
    end.await.context("panicked")
}

/// Runs a task until it ends or `stop` is set.
pub(super) async fn run_until(
    stop: watch::Receiver<bool>,
    task: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let infallible = async {
        task.await;
        Ok(())
    };
    try_run_until(stop, infallible).await
}

/// Runs a task that may fail until it ends or `stop` is set.
async fn try_run_until(
    mut stop: watch::Receiver<bool>,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        ended = task => ended,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    }
}

async fn run_heartbeat(heartbeat: Heartbeat) {
    loop {
        heartbeat.beat();
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Returns an error if a part hangs, which ends the process. The lease does not cover standby replicas and managers
/// without leader election.
fn watchdog(
    settings: &ManagerSettings,
    shared: &ManagerContext,
) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let (limit, heartbeats) = (settings.stall_limit(), shared.heartbeats.all.clone());
    let stalled = async move {
        let part = wait_for_stall(heartbeats, limit).await;
        Err(anyhow!("{part} has made no progress for {limit:?}"))
    };
    try_run_until(shared.stop.acting.clone(), stalled)
}

/// Returns the resource as in an RBAC rule, such as `workloads/status`.
fn resource_label(write: &Write) -> String {
    let plural = write.kind.resource().plural;
    write.subresource.map_or_else(|| plural.to_owned(), |part| format!("{plural}/{part}"))
}

fn outcome_label(outcome: &WriteOutcome) -> &'static str {
    match outcome {
        WriteOutcome::Done(_) => "done",
        WriteOutcome::Conflict => "conflict",
        WriteOutcome::NotFound => "not_found",
        WriteOutcome::Rejected { .. } => "rejected",
        WriteOutcome::Unavailable { .. } => "unavailable",
    }
}
