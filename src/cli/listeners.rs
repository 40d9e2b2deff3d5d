//! What clients call: webhooks, probes, metrics; and what they are told.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;

use super::address;
use super::manager::ManagerContext;
use super::process_metrics::{self, ProcessMetrics};
use super::settings::ManagerSettings;
use super::supervise::SupervisedTasks;
use super::threads::Threads;
use super::workers::run_until;
use crate::admission::{self, ReviewContext};
use crate::server::client_verifier::WebhookClientVerifier;
use crate::server::health::{self, NotReadyReasons};
use crate::server::listener::{Listener, ListenerLimits};
use crate::server::metrics::{self, MetricsAuthorizer, Render};
use crate::server::tls;
use crate::server::webhooks::{self, Review};
use crate::view;
use crate::view::metrics::Role;

/// Shortest silence of a watch that takes a replica out of the webhooks' Service.
const MAX_WATCH_SILENCE: Duration = Duration::from_mins(5);

/// Binds the ports and serves on them, each kind of client on threads of its own.
pub(super) async fn start(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    threads: &Threads,
) -> anyhow::Result<SupervisedTasks> {
    let (args, configuration) = (&settings.args, &settings.configuration);
    let limits = ListenerLimits { drain_timeout: args.shutdown_timeout, ..ListenerLimits::default() };
    let tls = tls::server_config(Arc::clone(&shared.serving), configuration.tls.as_ref()).context("tls")?;
    let webhook = address::join(&configuration.webhook.host, configuration.webhook.port);
    let webhook = args.webhook_bind_address.clone().unwrap_or(webhook);
    let health = &configuration.health.health_probe_bind_address;
    let health = args.health_bind_address.as_ref().unwrap_or(health);
    let metrics_at = &configuration.metrics.bind_address;
    let metrics_at = args.metrics_bind_address.as_ref().unwrap_or(metrics_at);
    let mut servers = SupervisedTasks::default();
    if let Some(at) = address::parse("webhook address", &webhook).await? {
        let router = webhooks::router(review_fn(settings, shared), shared.counters.reviews());
        let tls = match &args.webhook_client_ca {
            Some(path) => {
                let callers = WebhookClientVerifier::read(path, args.webhook_client_name.clone())?;
                let following = run_until(shared.stop_serving.clone(), Arc::clone(&callers).watch_file());
                servers.start(&threads.serve, "client-ca", following);
                let serving = Arc::clone(&shared.serving);
                tls::server_config_with_clients(serving, configuration.tls.as_ref(), Some(callers))
                    .context("tls")?
            }
            None => Arc::clone(&tls),
        };
        let listener = Listener::bind("webhooks", at, Some(tls), router, limits);
        let listener =
            bind_on(&threads.serve, listener).await.with_context(|| format!("webhooks: {webhook}"))?;
        serve(&mut servers, &threads.serve, "webhooks", listener, shared);
    }
    if let Some(at) = address::parse("health address", health).await? {
        let names = &configuration.health;
        let router = health::router(
            &names.readiness_endpoint_name,
            &names.liveness_endpoint_name,
            readiness(settings, shared),
            liveness(shared, settings.stall_limit()),
        );
        let listener = Listener::bind("health", at, None, router, limits.for_low_traffic());
        let listener =
            bind_on(&threads.probes, listener).await.with_context(|| format!("health: {health}"))?;
        serve(&mut servers, &threads.probes, "health", listener, shared);
    }
    if let Some(at) = address::parse("metrics address", metrics_at).await? {
        let guard = (!args.metrics_insecure).then(|| MetricsAuthorizer::new(&shared.clients.call));
        let tls = (!args.metrics_insecure).then_some(tls);
        let router = metrics::router(renderer(settings, shared), guard);
        let listener = Listener::bind("metrics", at, tls, router, limits.for_low_traffic());
        let listener =
            bind_on(&threads.serve, listener).await.with_context(|| format!("metrics: {metrics_at}"))?;
        serve(&mut servers, &threads.serve, "metrics", listener, shared);
    }
    Ok(servers)
}

/// A socket belongs to the threads on which it was bound.
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
    let stop = shared.stop_serving.clone();
    servers.start(threads, name, async move {
        listener.run(stop).await;
        Ok(())
    });
}

fn review_fn(settings: &ManagerSettings, shared: &ManagerContext) -> Review {
    let (published, settings) = (Arc::clone(&shared.published), settings.admission());
    Arc::new(move |path, request| {
        let snapshot = published.load();
        admission::review(path, request, &ReviewContext { objects: &**snapshot, settings: &settings })
    })
}

/// Ready is a replica that can answer webhooks: it need not lead, and need not be able to write. A watch that webhooks
/// answer from and that fails for several minutes counts, since another replica may still hear of changes.
fn readiness(settings: &ManagerSettings, shared: &ManagerContext) -> NotReadyReasons {
    let (serving, board) = (Arc::clone(&shared.serving), shared.watch_statuses.clone());
    let (published, stop) = (Arc::clone(&shared.published), shared.stop_acting.clone());
    let missing = Arc::clone(&shared.missing_permissions);
    let silence = (settings.watch().timeout * 5).max(MAX_WATCH_SILENCE);
    Arc::new(move || {
        let rights = missing.list();
        let needed = rights.iter().filter(|right| right.needed_for_reviews);
        let mut obstacles: Vec<String> = needed.map(|right| format!("not allowed: {right}")).collect();
        if *stop.borrow() {
            obstacles.push("stopping".to_owned());
        }
        obstacles.extend(serving.not_ready_reason().map(|obstacle| obstacle.to_string()));
        let unsynced = board.unsynced_for_reviews();
        if !unsynced.is_empty() {
            obstacles.push(format!("not listed yet: {}", unsynced.join(", ")));
        } else if !published.load().reviews_synced {
            obstacles.push("lists not taken in yet".to_owned());
        }
        let silent = board.stale_for_reviews(silence);
        if !silent.is_empty() {
            obstacles.push(format!("not heard of for {silence:?}: {}", silent.join(", ")));
        }
        obstacles
    })
}

/// Alive is a process whose parts make progress: one that hangs ends by itself, unless it cannot even do that.
fn liveness(shared: &ManagerContext, limit: Duration) -> NotReadyReasons {
    let (pulses, stop) = (shared.heartbeats.clone(), shared.stop_acting.clone());
    Arc::new(move || {
        // A core that was told to stop stamps no more.
        let stalled = if *stop.borrow() { None } else { pulses.stalled(limit) };
        let words = |(part, silent): (_, Duration)| format!("{part} has made no progress for {silent:.0?}");
        stalled.map(words).into_iter().collect()
    })
}

fn renderer(settings: &ManagerSettings, shared: &ManagerContext) -> Render {
    let (counters, published) = (Arc::clone(&shared.counters), Arc::clone(&shared.published));
    let (families, alone) = (settings.families(), shared.role == Role::Standalone);
    let (serving, clock) = (Arc::clone(&shared.serving), Arc::clone(&shared.clients.clock));
    let (vitals, standing) = (ProcessMetrics::new(shared), Arc::clone(&shared.configuration_gaps));
    Arc::new(move || {
        let snapshot = published.load();
        let role = match (alone, snapshot.leading) {
            (true, _) => Role::Standalone,
            (false, true) => Role::Leader,
            (false, false) => Role::Follower,
        };
        let mut text = counters.render().unwrap_or_default();
        text.push_str(&view::certificates::render(&serving.status(), clock.ahead()).unwrap_or_default());
        text.push_str(&view::render(&view::gauges(&snapshot), families, role).unwrap_or_default());
        text.push_str(&process_metrics::render(&vitals));
        text.push_str(&standing.render().unwrap_or_default());
        text
    })
}
