//! Events about objects: best effort, with a rate limit of their own.
//!
//! Invariants: events with the same object, reason and note within a window are one Event with a count, and an event without
//! repetitions is an Event without a count; the queue is bounded, and an event that does not fit, gets too old or cannot be
//! written is dropped and counted, never waited for. Under load few events are sent, because they would slow down the writes
//! that they report. `event_queue` decides which event is next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::client::{CallError, Caller, Content};
use super::event_queue::{DropReason, EventQueue};
use super::lease::Fence;
use super::rate_limit::AdaptiveRateLimiter;
use super::watch::api_version;
use crate::reconciler::Event;

/// Limits of the API server.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 200;

/// Settings of event recording.
#[derive(Clone, Debug)]
pub struct EventSettings {
    /// Events per second.
    pub rate: f64,
    /// Events in a burst.
    pub burst: f64,
    /// Maximum number of queued events, and of series remembered.
    pub queue_capacity: usize,
    /// Maximum age in the queue; an older event is dropped.
    pub max_age: Duration,
    /// Within this time after the first one, an equal event increases a count instead of creating an Event.
    pub aggregation_window: Duration,
    /// `reportingController`.
    pub controller: String,
    /// `reportingInstance`: the replica.
    pub instance: String,
}

/// Called with the number of dropped events.
pub type OnDropped = Arc<dyn Fn(DropReason, u64) + Send + Sync>;

/// Called with the number of queued events when it has changed.
pub type OnQueued = Arc<dyn Fn(usize) + Send + Sync>;

/// Digest of object, reason and note. Events with the same key form a series.
type EventKey = [u8; 16];

/// Time of the first event of a series, and the number of events.
#[derive(Clone, Debug)]
struct EventSeries {
    first_seen: Timestamp,
    count: u32,
}

/// Series of events.
struct EventRecorder {
    series: BTreeMap<EventKey, EventSeries>,
    /// Keys of `series` with their start, oldest first.
    expirations: VecDeque<(Duration, EventKey)>,
    settings: EventSettings,
}

/// The task that writes events.
pub struct EventTask {
    /// Client for the Events.
    pub caller: Caller,
    /// Limits and identity.
    pub settings: EventSettings,
    /// Events are written only while it is open.
    pub fence: Fence,
    /// Whether the API server is busy with writes; the rate is lower then.
    pub under_load: Arc<AtomicBool>,
    /// Called when events are dropped.
    pub on_dropped: OnDropped,
    /// Called when the length of the queue has changed.
    pub on_queued: OnQueued,
}

impl EventTask {
    /// Writes events until the channel closes or `stopped` ends. What is queued then is dropped and counted.
    pub async fn run(self, mut events: mpsc::UnboundedReceiver<Event>, stopped: impl Future<Output = ()>) {
        let Self { caller, settings, fence, under_load, on_dropped, on_queued } = self;
        let mut limiter = AdaptiveRateLimiter::new(settings.rate, settings.burst, fence.now());
        let mut queue = EventQueue::new(settings.queue_capacity, settings.max_age);
        let mut recorder = EventRecorder { series: BTreeMap::new(), expirations: VecDeque::new(), settings };
        let mut stopped = std::pin::pin!(stopped);
        loop {
            on_queued(queue.len());
            let under_load = under_load.load(Ordering::Relaxed);
            let delay =
                if queue.is_empty() { Duration::ZERO } else { limiter.time_until_available(under_load) };
            tokio::select! {
                biased;
                () = &mut stopped => break,
                event = events.recv() => match event {
                    Some(event) => {
                        if queue.push(event, Timestamp::now(), fence.now()) {
                            on_dropped(DropReason::Full, 1);
                        }
                        continue;
                    }
                    None => break,
                },
                () = tokio::time::sleep(delay), if !queue.is_empty() => {}
            }
            if !limiter.try_acquire(fence.now(), under_load) {
                continue;
            }
            let (next, expired) = queue.pop(fence.now());
            if expired > 0 {
                on_dropped(DropReason::Expired, expired);
            }
            let Some((event, time)) = next else {
                continue;
            };
            if !fence.is_open() {
                on_dropped(DropReason::Stopped, 1);
                continue;
            }
            if let Err(error) = recorder.record(&caller, &event, time, fence.now()).await {
                tracing::debug!(reason = event.reason, %error, "event dropped");
                on_dropped(DropReason::Refused, 1);
            }
        }
        let left = u64::try_from(queue.len().saturating_add(events.len())).unwrap_or(u64::MAX);
        if left > 0 {
            on_dropped(DropReason::Stopped, left);
            tracing::info!(events = left, "stopped with events that were not written");
        }
    }
}

impl EventRecorder {
    async fn record(
        &mut self,
        caller: &Caller,
        event: &Event,
        time: Timestamp,
        now: Duration,
    ) -> Result<(), CallError> {
        self.drop_expired(now);
        let namespace = namespace(event);
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let key = event_key(event);
        if event.once {
            let name = name(event, None);
            let body = self.body(event, namespace, &name, time);
            let written =
                caller.send_discarding_body(http::Method::POST, &collection, Content::Json, &body).await;
            return if written.as_ref().is_err_and(|error| error.code() == Some(409)) {
                Ok(())
            } else {
                written
            };
        }
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            let path = format!("{collection}/{}", name(event, Some(series.first_seen)));
            let patch =
                json!({"series": {"count": series.count, "lastObservedTime": format_micro_time(time)}});
            return caller.send_discarding_body(http::Method::PATCH, &path, Content::Merge, &patch).await;
        }
        let name = name(event, Some(time));
        let body = self.body(event, namespace, &name, time);
        caller.send_discarding_body(http::Method::POST, &collection, Content::Json, &body).await?;
        if self.series.len() < self.settings.queue_capacity {
            self.series.insert(key, EventSeries { first_seen: time, count: 1 });
            self.expirations.push_back((now, key));
        }
        Ok(())
    }

    /// Removes series that started more than the aggregation window ago.
    fn drop_expired(&mut self, now: Duration) {
        let window = self.settings.aggregation_window;
        while self
            .expirations
            .front()
            .is_some_and(|(first_seen, _)| now.saturating_sub(*first_seen) >= window)
        {
            if let Some((_, key)) = self.expirations.pop_front() {
                self.series.remove(&key);
            }
        }
    }

    fn body(&self, event: &Event, namespace: &str, name: &str, time: Timestamp) -> Value {
        let resource = &event.kind.resource();
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": format_micro_time(time),
            "type": event.event_type.as_str(),
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

/// Returns the namespace of an Event: `default` for cluster-scoped objects, where `kubectl describe` looks for them.
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

/// Returns the same name for the same event at the same time, or at any time if it has none, so that a repeated POST is a
/// conflict, not a second Event.
fn name(event: &Event, time: Option<Timestamp>) -> String {
    let mut digest = Sha256::new();
    for part in [event.uid.as_str(), event.kind.resource().kind, &event.reason, &event.note] {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    if let Some(time) = time {
        digest.update(time.as_microsecond().to_be_bytes());
    }
    let hash = format!("{:x}", digest.finalize());
    let hash = truncate(&hash, 16);
    let base = truncate(&event.key.name, MAX_NAME_BYTES).trim_end_matches(['.', '-']);
    format!("{base}.{hash}")
}

fn format_micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Truncates to at most `bytes` bytes, at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}
