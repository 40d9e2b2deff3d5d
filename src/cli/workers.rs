//! The parts that talk to the API server and decide: watches, executor, events, certificates, rights, lease, core.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::{oneshot, watch};

use super::core::Core;
use super::manager::{Ends, Shared};
use super::settings::Settings;
use super::standing;
use super::supervise::Supervised;
use super::threads::Threads;
use crate::kube::access::{Asking, Uses};
use crate::kube::client::Rate;
use crate::kube::execute::{Executor, OnCall, Refusals};
use crate::kube::lease::{self, LeaseSettings};
use crate::kube::pulse::{Pulse, watch_over};
use crate::kube::watch::follow;
use crate::kube::{access, certificates, events};
use crate::state::{Kind, State, Verb, WriteOutcome};

/// Between two stamps of the threads that talk to the API server.
const BEAT: Duration = Duration::from_millis(250);
/// Questions about rights.
const QUESTIONS: Rate = Rate { per_second: 5.0, burst: 100.0 };

pub(super) fn start(
    settings: &Settings,
    shared: &Shared,
    threads: &Threads,
    ends: Ends,
    state: State,
) -> anyhow::Result<Supervised> {
    let (mut workers, api) = (Supervised::default(), &threads.api);
    let (deltas, received) = ends.deltas;
    for kind in state.kinds().iter().copied() {
        let watch = follow(
            shared.clients.watch.clone(),
            kind,
            settings.watch(),
            shared.board.clone(),
            deltas.clone(),
        );
        workers.start(api, "watch", until(shared.stop_acting.clone(), watch));
    }
    let counters = Arc::clone(&shared.counters);
    let suspicion = Arc::clone(&shared.suspicion);
    let on_call: OnCall = Arc::new(move |verb, outcome| {
        counters.wrote(verb_word(verb), outcome_word(outcome));
        if matches!(outcome, WriteOutcome::Rejected { code: 403, .. }) {
            suspicion.notify_one();
        }
    });
    let crowded = Arc::new(AtomicBool::new(false));
    let executor = Executor {
        caller: shared.clients.call.clone(),
        settings: settings.executor(),
        fence: shared.fence.clone(),
        crowded: Arc::clone(&crowded),
        deltas,
        on_call,
        refusals: Refusals::default(),
    };
    let tasks = ends.tasks.1;
    workers.start(api, "executor", async move {
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
    workers.start(api, "events", until(shared.stop_acting.clone(), emitter));
    let certificates = certificates::run(
        shared.clients.watch.clone(),
        shared.clients.call.clone(),
        settings.certificates(),
        settings.watch(),
        Arc::clone(&shared.serving),
        Arc::clone(&shared.clients.clock),
    );
    workers.start(api, "certificates", until(shared.stop_serving.clone(), certificates));
    let election = settings.lease()?;
    let asking = access::check(asking(settings, shared, state.kinds(), election.as_ref()));
    workers.start(api, "access", until(shared.stop_serving.clone(), asking));
    workers.start(api, "beat", until(shared.stop_serving.clone(), beat(shared.api.clone())));
    workers.start(&threads.lease, "lease", lead(election, shared, ends.leading));
    workers.start(&threads.lease, "watchdog", watchdog(settings, shared));
    let guard = standing::guard(settings, shared.clients.watch.clone(), Arc::clone(&shared.standing));
    workers.start(api, "guard", until(shared.stop_serving.clone(), guard));
    let board = shared.board.clone();
    let listed =
        standing::listed_in_time(settings.sync_timeout(), shared.synced.clone(), move || board.unsynced());
    workers.start(api, "first lists", until_done(shared.stop_acting.clone(), listed));
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
        pulse: shared.core.clone(),
        role: shared.role,
    };
    let end = core.start().context("core")?;
    workers.start(api, "core", ended(end));
    Ok(workers)
}

fn asking(settings: &Settings, shared: &Shared, kinds: &[Kind], lease: Option<&LeaseSettings>) -> Asking {
    let rights = access::needed(&Uses {
        kinds,
        certificates: &settings.certificates(),
        lease,
        guarded: settings.guards_metrics(),
        deletes_jobs: settings.deletes_jobs(),
    });
    Asking {
        caller: shared.clients.call.clone().limited(Some(QUESTIONS)),
        rights,
        board: shared.board.clone(),
        missing: Arc::clone(&shared.missing),
        suspicion: Arc::clone(&shared.suspicion),
    }
}

async fn ended(end: oneshot::Receiver<()>) -> anyhow::Result<()> {
    end.await.context("panicked")
}

/// Runs a task until it is told to stop.
pub(super) async fn until(
    mut stop: watch::Receiver<bool>,
    task: impl Future<Output = ()>,
) -> anyhow::Result<()> {
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

async fn beat(pulse: Pulse) {
    loop {
        pulse.beat();
        tokio::time::sleep(BEAT).await;
    }
}

/// Ends the process when a part hangs: a standby has no lease to lose, and neither has a manager without an election.
fn watchdog(settings: &Settings, shared: &Shared) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let (limit, pulses) = (settings.stall_limit(), shared.pulses.clone());
    let mut stop = shared.stop_acting.clone();
    async move {
        tokio::select! {
            part = watch_over(pulses, limit) => Err(anyhow!("{part} has made no progress for {limit:?}")),
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        }
    }
}

/// Competes for the lease once everything has been listed: a replica that knows nothing must not hold up others.
fn lead(
    election: Option<LeaseSettings>,
    shared: &Shared,
    leading: watch::Sender<Option<i32>>,
) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let (caller, fence, pulses) = (shared.clients.lease.clone(), shared.fence.clone(), shared.pulses.clone());
    let (mut synced, mut stop) = (shared.synced.clone(), shared.stop_acting.clone());
    async move {
        tokio::select! {
            ready = synced.wait_for(|synced| *synced) => { ready.context("the core ended")?; }
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        let Some(election) = election else {
            fence.open_forever();
            leading.send_replace(Some(0));
            // The error says that the sender is gone: stopped as well.
            let _ = stop.wait_for(|stop| *stop).await;
            return Ok(());
        };
        lease::compete(caller, election, fence, pulses, leading, stop).await?;
        Ok(())
    }
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
