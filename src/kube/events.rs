//! Events about objects: best effort, within a budget of their own.
//!
//! Invariants: the same thing about the same object (reason and note) within a window is one Event with a count; the
//! queue is bounded, and what does not fit or cannot be written is dropped and counted, never waited for. While many writes
//! are under way few events are sent: they would take the server's time from what they tell of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::client::{CallError, Caller, Content};
use super::lease::Fence;
use super::rate_limit::AdaptiveRateLimiter;
use super::watch::api_version;
use crate::state::Event;

/// Limits of the API server.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 200;

/// How events are written.
#[derive(Clone, Debug)]
pub struct EventSettings {
    /// Events per second.
    pub rate: f64,
    /// Events in a burst.
    pub burst: f64,
    /// Events that wait.
    pub queue_capacity: usize,
    /// Within it the same event is counted instead of written again.
    pub aggregation_window: Duration,
    /// Who reports.
    pub controller: String,
    /// Which replica.
    pub instance: String,
}

/// Told how many events were dropped.
pub type OnDropped = Arc<dyn Fn(u64) + Send + Sync>;

/// What makes two events the same: a digest of object, reason and note.
type EventKey = [u8; 16];

/// When an event was made first, and how often.
#[derive(Clone, Debug)]
struct EventSeries {
    first_seen: Timestamp,
    count: u32,
}

/// Events on their way.
struct EventRecorder {
    queue: VecDeque<(Event, Timestamp)>,
    series: BTreeMap<EventKey, EventSeries>,
    /// The same in the order in which they are forgotten.
    expirations: VecDeque<(Duration, EventKey)>,
    settings: EventSettings,
}

/// Writes events until the channel closes.
pub async fn run(
    caller: Caller,
    settings: EventSettings,
    fence: Fence,
    crowded: Arc<AtomicBool>,
    dropped: OnDropped,
    mut events: mpsc::UnboundedReceiver<Event>,
) {
    let mut throttle = AdaptiveRateLimiter::new(settings.rate, settings.burst, fence.now());
    let mut desk = EventRecorder {
        queue: VecDeque::new(),
        series: BTreeMap::new(),
        expirations: VecDeque::new(),
        settings,
    };
    loop {
        let ready = !desk.queue.is_empty();
        let crowded = crowded.load(Ordering::Relaxed);
        let pause = if ready { throttle.time_until_available(crowded) } else { Duration::ZERO };
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(event) if desk.queue.len() < desk.settings.queue_capacity => {
                    desk.queue.push_back((event, Timestamp::now()));
                    continue;
                }
                Some(_) => {
                    dropped(1);
                    continue;
                }
                None => return,
            },
            () = tokio::time::sleep(pause), if ready => {}
        }
        if !throttle.try_acquire(fence.now(), crowded) {
            continue;
        }
        let Some((event, at)) = desk.queue.pop_front() else {
            continue;
        };
        if !fence.is_open() {
            continue;
        }
        if let Err(error) = desk.record(&caller, &event, at, fence.now()).await {
            tracing::debug!(reason = event.reason, %error, "event dropped");
            dropped(1);
        }
    }
}

impl EventRecorder {
    async fn record(
        &mut self,
        caller: &Caller,
        event: &Event,
        at: Timestamp,
        now: Duration,
    ) -> Result<(), CallError> {
        self.drop_expired(now);
        let namespace = namespace(event);
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let same = event_key(event);
        if let Some(known) = self.series.get_mut(&same) {
            known.count = known.count.saturating_add(1);
            let path = format!("{collection}/{}", name(event, known.first_seen));
            let series = json!({"series": {"count": known.count, "lastObservedTime": format_micro_time(at)}});
            return caller.send_discarding_body(http::Method::PATCH, &path, Content::Merge, &series).await;
        }
        let name = name(event, at);
        let body = self.body(event, namespace, &name, at);
        caller.send_discarding_body(http::Method::POST, &collection, Content::Json, &body).await?;
        if self.series.len() < self.settings.queue_capacity {
            self.series.insert(same, EventSeries { first_seen: at, count: 1 });
            self.expirations.push_back((now, same));
        }
        Ok(())
    }

    /// Forgets what was first told so long ago that it counts as new.
    fn drop_expired(&mut self, now: Duration) {
        let window = self.settings.aggregation_window;
        while self.expirations.front().is_some_and(|(first, _)| now.saturating_sub(*first) >= window) {
            if let Some((_, same)) = self.expirations.pop_front() {
                self.series.remove(&same);
            }
        }
    }

    fn body(&self, event: &Event, namespace: &str, name: &str, at: Timestamp) -> Value {
        let resource = &event.kind.resource();
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": format_micro_time(at),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "action": event.reason,
            "note": truncate(&event.note, MAX_NOTE_BYTES),
            "reportingController": self.settings.controller,
            "reportingInstance": truncate(&self.settings.instance, 128),
            "regarding": {
                "apiVersion": api_version(resource),
                "kind": resource.kind,
                "namespace": &*event.key.namespace,
                "name": &*event.key.name,
                "uid": event.uid,
            },
        })
    }
}

/// Events about cluster-scoped objects live in `default`, where `kubectl describe` looks for them.
fn namespace(event: &Event) -> &str {
    if event.key.namespace.is_empty() { "default" } else { &event.key.namespace }
}

fn event_key(event: &Event) -> EventKey {
    let mut digest = Sha256::new();
    for part in [&event.uid, &*event.key.namespace, &*event.key.name, &event.reason, &event.note] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    <[u8; 32]>::from(digest.finalize()).first_chunk().copied().unwrap_or_default()
}

/// The same event at the same time has the same name: a repeated POST is a conflict, not a second event.
fn name(event: &Event, at: Timestamp) -> String {
    let mut digest = Sha256::new();
    for part in [event.uid.as_str(), event.kind.resource().kind, &event.reason, &event.note] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    digest.update(at.as_microsecond().to_be_bytes());
    let hash = format!("{:x}", digest.finalize());
    let hash = truncate(&hash, 16);
    let base = truncate(&event.key.name, MAX_NAME_BYTES).trim_end_matches(['.', '-']);
    format!("{base}.{hash}")
}

fn format_micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// At most this many bytes, whole characters.
fn truncate(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}
