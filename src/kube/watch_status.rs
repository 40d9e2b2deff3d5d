//! What is known of every watch, for readiness and metrics.
//!
//! Invariant: a sign of life is a byte that the server sent for the watch: a list, an event, a bookmark. A server sends a
//! bookmark about once a minute, and a watch is begun again as often, so that one that is silent for long has failed,
//! whatever it reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::kube::Client;
use ::kube::client::Body;
use http::Request;
use http_body_util::BodyExt;

use crate::state::Kind;

/// What is known of one watch.
#[derive(Debug)]
pub struct WatchHealth {
    origin: Instant,
    synced: AtomicBool,
    not_served: AtomicBool,
    errors: AtomicU64,
    lists_started: AtomicU64,
    /// The last sign of life, in milliseconds since `origin`.
    last_activity: AtomicU64,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            synced: AtomicBool::new(false),
            not_served: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            lists_started: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
        }
    }
}

impl WatchHealth {
    /// Whether a whole list has been told.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether the API server does not serve the kind.
    pub fn not_served(&self) -> bool {
        self.not_served.load(Ordering::Acquire)
    }

    /// Errors so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// How often a list was begun after the first one.
    pub fn restarts(&self) -> u64 {
        self.lists_started.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Time since the last sign of life.
    pub fn time_since_activity(&self) -> Duration {
        self.origin
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_activity.load(Ordering::Relaxed)))
    }

    pub(super) fn mark_served(&self) {
        self.not_served.store(false, Ordering::Release);
    }

    pub(super) fn list_started(&self) {
        self.lists_started.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn mark_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    pub(super) fn record_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The server does not serve the kind; whether that was known.
    pub(super) fn mark_not_served(&self) -> bool {
        self.not_served.swap(true, Ordering::AcqRel)
    }

    fn record_activity(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(millis, Ordering::Relaxed);
    }
}

/// What is known of every watch.
#[derive(Clone, Debug)]
pub struct WatchStatuses(Arc<BTreeMap<Kind, Arc<WatchHealth>>>);

impl WatchStatuses {
    /// A board for these kinds.
    pub fn new(kinds: &[Kind]) -> Self {
        Self(Arc::new(kinds.iter().map(|kind| (*kind, Arc::default())).collect()))
    }

    /// Every kind with its health.
    pub fn iter(&self) -> impl Iterator<Item = (&Kind, &WatchHealth)> {
        self.0.iter().map(|(kind, health)| (kind, &**health))
    }

    /// Kinds that are not synced yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        self.iter().filter(|(_, health)| !health.synced()).map(plural).collect()
    }

    /// Kinds that webhooks answer from and that are not synced yet.
    pub fn unsynced_for_reviews(&self) -> Vec<&'static str> {
        self.review_watches().filter(|(_, health)| !health.synced()).map(plural).collect()
    }

    /// Kinds that webhooks answer from and of which nothing was heard for this long.
    pub fn stale_for_reviews(&self, limit: Duration) -> Vec<&'static str> {
        let silent =
            |(_, health): &(_, &WatchHealth)| !health.not_served() && health.time_since_activity() >= limit;
        self.review_watches().filter(silent).map(plural).collect()
    }

    fn review_watches(&self) -> impl Iterator<Item = (&Kind, &WatchHealth)> {
        self.iter().filter(|(kind, _)| kind.is_used_by_webhooks())
    }

    /// Whether the API server is known not to serve a kind.
    pub(super) fn is_not_served(&self, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|health| health.not_served())
    }

    pub(super) fn health(&self, kind: Kind) -> Arc<WatchHealth> {
        self.0.get(&kind).cloned().unwrap_or_default()
    }

    /// The client, noting each sign of life that the server gives by it.
    pub(super) fn with_activity_tracking(&self, client: Client, kind: Kind) -> Client {
        let health = self.health(kind);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, health) = (client.clone(), Arc::clone(&health));
            async move {
                let answer = client.send(request).await?;
                let good = answer.status().is_success();
                let hear = move || {
                    if good {
                        health.record_activity();
                    }
                };
                hear();
                let hearing = |body: Body| {
                    body.map_frame(move |frame| {
                        hear();
                        frame
                    })
                };
                Ok::<_, ::kube::Error>(answer.map(hearing))
            }
        });
        Client::new(service, namespace)
    }
}

fn plural((kind, _): (&Kind, &WatchHealth)) -> &'static str {
    kind.resource().plural
}
