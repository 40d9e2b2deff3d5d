//! State of every watch, for readiness and metrics.
//!
//! Invariant: activity is a byte that the server sent for the watch: a list, an event, a bookmark. A server sends a bookmark
//! about once a minute, and watches restart as often, so a watch that is silent for much longer has failed, whatever else
//! it reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::kube::Client;
use ::kube::client::Body;
use http::Request;
use http_body_util::BodyExt;

use crate::cache::Kind;

/// State of one watch.
#[derive(Debug)]
pub struct WatchHealth {
    origin: Instant,
    synced: AtomicBool,
    not_served: AtomicBool,
    unread: AtomicBool,
    errors: AtomicU64,
    lists_started: AtomicU64,
    /// Last activity, in milliseconds since `origin`.
    last_activity: AtomicU64,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            synced: AtomicBool::new(false),
            not_served: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            lists_started: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
        }
    }
}

impl WatchHealth {
    /// Returns whether a complete list has been sent to the core.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Returns whether the API server does not serve the kind.
    pub fn not_served(&self) -> bool {
        self.not_served.load(Ordering::Acquire)
    }

    /// Returns the number of errors since the start.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns the number of lists started after the first one.
    pub fn restarts(&self) -> u64 {
        self.lists_started.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Returns the time since the last activity.
    pub fn time_since_activity(&self) -> Duration {
        self.origin
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_activity.load(Ordering::Relaxed)))
    }

    pub(super) fn mark_served(&self) {
        self.not_served.store(false, Ordering::Release);
        self.unread.store(false, Ordering::Release);
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

    /// Marks the kind as not served. Returns whether it already was.
    pub(super) fn mark_not_served(&self) -> bool {
        self.not_served.swap(true, Ordering::AcqRel)
    }

    /// Marks a kind that is not managed as one whose objects cannot be read. Returns whether it already was.
    pub(super) fn mark_unread(&self) -> bool {
        self.unread.swap(true, Ordering::AcqRel)
    }

    /// Returns whether activity is expected.
    fn is_expected(&self) -> bool {
        !self.not_served() && !self.unread.load(Ordering::Acquire)
    }

    fn record_activity(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(millis, Ordering::Relaxed);
    }
}

/// States of all watches.
#[derive(Clone, Debug)]
pub struct WatchStatuses(Arc<BTreeMap<Kind, Arc<WatchHealth>>>);

impl WatchStatuses {
    /// Returns initial states for these kinds.
    pub fn new(kinds: &[Kind]) -> Self {
        Self(Arc::new(kinds.iter().map(|kind| (*kind, Arc::default())).collect()))
    }

    /// Iterates over all kinds and their states.
    pub fn iter(&self) -> impl Iterator<Item = (&Kind, &WatchHealth)> {
        self.0.iter().map(|(kind, health)| (kind, &**health))
    }

    /// Returns the kinds that are not synced.
    pub fn unsynced(&self) -> Vec<&'static str> {
        self.iter().filter(|(_, health)| !health.synced()).map(plural).collect()
    }

    /// Returns the kinds used by webhooks that are not synced.
    pub fn unsynced_for_reviews(&self) -> Vec<&'static str> {
        self.review_watches().filter(|(_, health)| !health.synced()).map(plural).collect()
    }

    /// Returns the kinds used by webhooks without activity for at least `limit`.
    pub fn stale_for_reviews(&self, limit: Duration) -> Vec<&'static str> {
        let is_silent =
            |(_, health): &(_, &WatchHealth)| health.is_expected() && health.time_since_activity() >= limit;
        self.review_watches().filter(is_silent).map(plural).collect()
    }

    fn review_watches(&self) -> impl Iterator<Item = (&Kind, &WatchHealth)> {
        self.iter().filter(|(kind, _)| kind.is_used_by_webhooks())
    }

    /// Returns whether the API server is known not to serve a kind.
    pub(super) fn is_not_served(&self, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|health| health.not_served())
    }

    pub(super) fn health(&self, kind: Kind) -> Arc<WatchHealth> {
        self.0.get(&kind).cloned().unwrap_or_default()
    }

    /// Wraps a client so that each response and each part of its body records activity of `kind`.
    pub(super) fn with_activity_tracking(&self, client: Client, kind: Kind) -> Client {
        let health = self.health(kind);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, health) = (client.clone(), Arc::clone(&health));
            async move {
                let response = client.send(request).await?;
                let is_success = response.status().is_success();
                let record = move || {
                    if is_success {
                        health.record_activity();
                    }
                };
                record();
                let record_frames = |body: Body| {
                    body.map_frame(move |frame| {
                        record();
                        frame
                    })
                };
                Ok::<_, ::kube::Error>(response.map(record_frames))
            }
        });
        Client::new(service, namespace)
    }
}

fn plural((kind, _): (&Kind, &WatchHealth)) -> &'static str {
    kind.resource().plural
}
