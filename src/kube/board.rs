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
    absent: AtomicBool,
    errors: AtomicU64,
    lists: AtomicU64,
    /// The last sign of life, in milliseconds since `origin`.
    heard: AtomicU64,
}

impl Default for WatchHealth {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            synced: AtomicBool::new(false),
            absent: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }
}

impl WatchHealth {
    /// Whether a whole list has been told.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether the API server does not serve the kind.
    pub fn absent(&self) -> bool {
        self.absent.load(Ordering::Acquire)
    }

    /// Errors so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// How often a list was begun after the first one.
    pub fn restarts(&self) -> u64 {
        self.lists.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Time since the last sign of life.
    pub fn silent(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.heard.load(Ordering::Relaxed)))
    }

    pub(super) fn answered(&self) {
        self.absent.store(false, Ordering::Release);
    }

    pub(super) fn begun(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn listed(&self) {
        self.synced.store(true, Ordering::Release);
    }

    pub(super) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The server does not serve the kind; whether that was known.
    pub(super) fn not_served(&self) -> bool {
        self.absent.swap(true, Ordering::AcqRel)
    }

    fn hear(&self) {
        let millis = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(millis, Ordering::Relaxed);
    }
}

/// What is known of every watch.
#[derive(Clone, Debug)]
pub struct WatchBoard(Arc<BTreeMap<Kind, Arc<WatchHealth>>>);

impl WatchBoard {
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
        self.for_reviews().filter(|(_, health)| !health.synced()).map(plural).collect()
    }

    /// Kinds that webhooks answer from and of which nothing was heard for this long.
    pub fn silent_for_reviews(&self, limit: Duration) -> Vec<&'static str> {
        let silent = |(_, health): &(_, &WatchHealth)| !health.absent() && health.silent() >= limit;
        self.for_reviews().filter(silent).map(plural).collect()
    }

    fn for_reviews(&self) -> impl Iterator<Item = (&Kind, &WatchHealth)> {
        self.iter().filter(|(kind, _)| kind.serves_reviews())
    }

    /// Whether the API server is known not to serve a kind.
    pub(super) fn is_absent(&self, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|health| health.absent())
    }

    pub(super) fn health(&self, kind: Kind) -> Arc<WatchHealth> {
        self.0.get(&kind).cloned().unwrap_or_default()
    }

    /// The client, noting each sign of life that the server gives by it.
    pub(super) fn listening(&self, client: Client, kind: Kind) -> Client {
        let health = self.health(kind);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, health) = (client.clone(), Arc::clone(&health));
            async move {
                let answer = client.send(request).await?;
                let good = answer.status().is_success();
                let hear = move || {
                    if good {
                        health.hear();
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
