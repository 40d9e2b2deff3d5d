//! The servers of webhooks, probes, metrics and the visibility API, and the responses of probes and metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use jiff::Timestamp;
use tokio::runtime::Runtime;

use super::parts::run_until;
use super::process_metrics::{self, ProcessState};
use super::run::ManagerContext;
use super::settings::ManagerSettings;
use super::supervise::SupervisedTasks;
use super::threads::Threads;
use super::{dashboard, debug, visibility};
use crate::admission::{self, ReviewContext};
use crate::kube::lease_follower::LeaseFollower;
use crate::metrics::{self, model::Role};
use crate::server::apis;
use crate::server::authorizer::{self, Authorizer};
use crate::server::client_verifier::WebhookClientVerifier;
use crate::server::debug as server_debug;
use crate::server::health::{self, NotReadyReasons};
use crate::server::listener::{Listener, ListenerLimits, ListenerStop};
use crate::server::metrics::{self as metrics_server, Render};
use crate::server::tls;
use crate::server::webhooks::{self, Review};

/// Minimum time without activity after which a watch makes the replica not ready.
const MAX_WATCH_SILENCE: Duration = Duration::from_mins(5);

/// Binds the ports and starts the servers. Probes have their own threads.
pub(super) async fn start(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    threads: &Threads,
) -> anyhow::Result<SupervisedTasks> {
    let (args, configuration) = (&settings.args, &settings.configuration);
    let limits = ListenerLimits { drain_timeout: args.shutdown_timeout, ..ListenerLimits::default() };
    let tls = tls::server_config(Arc::clone(&shared.serving), configuration.tls.as_ref()).context("tls")?;
    let mut servers = SupervisedTasks::default();
    if let Some(addresses) = settings.listen.webhook.map(|address| address.candidates()) {
        let router = webhooks::router(review_fn(settings, shared), shared.counters.reviews());
        let tls = match &args.webhook_client_ca {
            Some(path) => {
                let callers = WebhookClientVerifier::read(path, args.webhook_client_name.clone())?;
                let following = run_until(shared.stop.serving.clone(), Arc::clone(&callers).watch_file());
                servers.start(&threads.serve, "client-ca", following);
                let serving = Arc::clone(&shared.serving);
                tls::server_config_with_clients(serving, configuration.tls.as_ref(), Some(callers))
                    .context("tls")?
            }
            None => Arc::clone(&tls),
        };
        let listener = Listener::bind("webhooks", addresses, Some(tls), router, limits);
        let listener = bind_on(&threads.serve, listener).await.context("webhooks")?;
        serve(&mut servers, &threads.serve, "webhooks", listener, shared);
    }
    if let Some(addresses) = settings.listen.health.map(|address| address.candidates()) {
        let names = &configuration.health;
        let router = health::router(
            &names.readiness_endpoint_name,
            &names.liveness_endpoint_name,
            readiness(settings, shared),
            liveness(shared, settings.stall_limit()),
        );
        let listener = Listener::bind("health", addresses, None, router, limits.for_low_traffic());
        let listener = bind_on(&threads.probes, listener).await.context("health")?;
        serve(&mut servers, &threads.probes, "health", listener, shared);
    }
    if let Some(addresses) = settings.listen.visibility.map(|address| address.candidates()) {
        let tls = tls::server_config_with_any_client(Arc::clone(&shared.serving), configuration.tls.as_ref());
        let (server, front_proxy) = visibility::server(settings, shared);
        if settings.serves_users() {
            let following = front_proxy.watch(shared.clients.watch.clone(), settings.watch());
            servers.start(&threads.api, "front proxy", run_until(shared.stop.serving.clone(), following));
        }
        let tls = tls.context("tls")?;
        let router = apis::router(server);
        let listener = Listener::bind("visibility", addresses, Some(tls), router, limits.for_low_traffic());
        let listener = bind_on(&threads.serve, listener).await.context("visibility")?;
        serve(&mut servers, &threads.serve, "visibility", listener, shared);
    }
    if let Some(addresses) = settings.listen.dashboard.map(|address| address.candidates()) {
        let follower = Arc::<LeaseFollower>::default();
        if let Some(lease) = settings.lease()? {
            // A process that takes part in the election gets the holder from it and needs no follower.
            let holder = Arc::clone(&shared.leadership.holder);
            let holder = (!args.component.reconciles()).then_some(holder);
            let following = Arc::clone(&follower).follow(shared.clients.call.clone(), lease.path(), holder);
            servers.start(&threads.api, "lease follower", run_until(shared.stop.serving.clone(), following));
        }
        let router = dashboard::router(settings, shared, follower);
        let listener = Listener::bind("dashboard", addresses, Some(Arc::clone(&tls)), router, limits);
        let listener = bind_on(&threads.dashboard, listener).await.context("dashboard")?;
        serve(&mut servers, &threads.dashboard, "dashboard", listener, shared);
    }
    if let Some(addresses) = settings.listen.metrics.map(|address| address.candidates()) {
        let router = metrics_router(settings, shared, &addresses);
        let tls = (!args.metrics_insecure).then_some(tls);
        let listener = Listener::bind("metrics", addresses, tls, router, limits.for_low_traffic());
        let listener = bind_on(&threads.serve, listener).await.context("metrics")?;
        serve(&mut servers, &threads.serve, "metrics", listener, shared);
    }
    Ok(servers)
}

/// Returns the routes of the metrics port. Without authentication the debug endpoints are served on loopback addresses only.
fn metrics_router(settings: &ManagerSettings, shared: &ManagerContext, addresses: &[SocketAddr]) -> Router {
    let metrics = metrics_server::router(renderer(settings, shared));
    let debug = || server_debug::router(debug::sources(settings, shared));
    if !settings.args.metrics_insecure {
        return authorizer::guarded(metrics.merge(debug()), Authorizer::new(&shared.clients.call));
    }
    let is_loopback = addresses.iter().all(|address| address.ip().is_loopback());
    if is_loopback { metrics.merge(debug()) } else { metrics }
}

/// Binds a socket on the threads that serve it, because a socket is registered with the runtime on which it was bound.
async fn bind_on<T: Send + 'static>(
    threads: &Runtime,
    binding: impl Future<Output = std::io::Result<T>> + Send + 'static,
) -> std::io::Result<T> {
    threads.spawn(binding).await?
}

fn serve(
    servers: &mut SupervisedTasks,
    threads: &Runtime,
    name: &'static str,
    listener: Listener,
    shared: &ManagerContext,
) {
    let stop = ListenerStop { retiring: shared.stop.acting.clone(), stop: shared.stop.serving.clone() };
    servers.start(threads, name, async move {
        listener.run(stop).await;
        Ok(())
    });
}

fn review_fn(settings: &ManagerSettings, shared: &ManagerContext) -> Review {
    let (published, settings) = (Arc::clone(&shared.core.published), settings.admission());
    Arc::new(move |path, request| {
        let snapshot = published.load();
        admission::review(path, request, &ReviewContext { objects: &**snapshot, settings: &settings })
    })
}

/// Returns the readiness check: a replica is ready if it can answer webhooks, or has processed the first lists if it
/// serves none. It need not lead or be able to write. A
/// watch on which reviews depend and which stalls for several minutes makes it not ready, since other replicas may be
/// up to date.
fn readiness(settings: &ManagerSettings, shared: &ManagerContext) -> NotReadyReasons {
    let (serving, watch_statuses) = (Arc::clone(&shared.serving), shared.watch_statuses.clone());
    let (published, stop) = (Arc::clone(&shared.core.published), shared.stop.acting.clone());
    let (missing, listed) = (Arc::clone(&shared.permissions.missing), Arc::clone(&shared.listed_frameworks));
    let serves_webhooks = settings.args.component.serves_webhooks();
    let silence = (settings.watch().timeout * 5).max(MAX_WATCH_SILENCE);
    let (records, recording) =
        (settings.args.record.history_record.is_some(), Arc::clone(&shared.core.recording));
    Arc::new(move || {
        let permissions = missing.list();
        let needed = permissions.iter().filter(|permission| permission.needed_for_reviews);
        let mut reasons: Vec<String> =
            needed.map(|permission| format!("missing permission: {permission}")).collect();
        reasons.extend(listed.not_ready_reasons(&missing));
        if *stop.borrow() {
            reasons.push("stopping".to_owned());
        }
        if serves_webhooks {
            reasons.extend(serving.not_ready_reason().map(|reason| reason.to_string()));
        }
        match recording.get() {
            None if records => reasons.push("the record of history is not open yet".to_owned()),
            Some(recording) if !recording.has_begun() => {
                reasons.push("the first lists are not in the record of history yet".to_owned());
            }
            _ => {}
        }
        let unsynced = watch_statuses.unsynced_for_reviews();
        if !unsynced.is_empty() {
            reasons.push(format!("waiting for initial list of {}", unsynced.join(", ")));
        } else if !published.load().reviews_synced {
            reasons.push("initial lists not processed yet".to_owned());
        }
        let silent = watch_statuses.stale_for_reviews(silence);
        if !silent.is_empty() {
            reasons.push(format!("no watch events for {silence:?}: {}", silent.join(", ")));
        }
        reasons
    })
}

/// Returns the liveness check: every part must make progress. The watchdog normally ends a hanging process; this check
/// covers a process in which the watchdog hangs too.
fn liveness(shared: &ManagerContext, limit: Duration) -> NotReadyReasons {
    let (heartbeats, stop) = (shared.heartbeats.all.clone(), shared.stop.acting.clone());
    Arc::new(move || {
        // A stopping core no longer stamps its heartbeat.
        let stalled = if *stop.borrow() { None } else { heartbeats.stalled(limit) };
        let words = |(part, silent): (_, Duration)| format!("{part} has made no progress for {silent:.0?}");
        stalled.map(words).into_iter().collect()
    })
}

fn renderer(settings: &ManagerSettings, shared: &ManagerContext) -> Render {
    let (counters, published) = (Arc::clone(&shared.counters), Arc::clone(&shared.core.published));
    let (families, standalone) = (settings.families(), shared.leadership.role == Role::Standalone);
    let (serving, clock) = (Arc::clone(&shared.serving), Arc::clone(&shared.clients.clock));
    let (process, gaps) = (ProcessState::new(shared), Arc::clone(&shared.configuration_gaps));
    let recording = Arc::clone(&shared.core.recording);
    Arc::new(move || {
        let snapshot = published.load();
        let role = match (standalone, snapshot.leading) {
            (true, _) => Role::Standalone,
            (false, true) => Role::Leader,
            (false, false) => Role::Follower,
        };
        let mut text = counters.render().unwrap_or_default();
        text.push_str(&metrics::certificates::render(&serving.status(), clock.ahead()).unwrap_or_default());
        let gauges = metrics::gauges(&snapshot, Timestamp::now());
        text.push_str(&metrics::render(&gauges, families, role).unwrap_or_default());
        text.push_str(&process_metrics::render(&process));
        text.push_str(&gaps.render().unwrap_or_default());
        if let Some(recording) = recording.get() {
            text.push_str(&metrics::record::render(&recording.stats()).unwrap_or_default());
        }
        text
    })
}
