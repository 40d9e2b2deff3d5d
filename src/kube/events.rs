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

use super::budget::Throttle;
use super::client::{CallError, Caller, Content};
use super::lease::Fence;
use super::watch::api_version;
use crate::state::Event;

/// Limits of the API server.
const NOTE_BYTES: usize = 1024;
const NAME_BYTES: usize = 200;

/// How events are written.
#[derive(Clone, Debug)]
pub struct EventSettings {
    /// Events per second.
    pub rate: f64,
    /// Events in a burst.
    pub burst: f64,
    /// Events that wait.
    pub queue: usize,
    /// Within it the same event is counted instead of written again.
    pub window: Duration,
    /// Who reports.
    pub controller: String,
    /// Which replica.
    pub instance: String,
}

/// Told how many events were dropped.
pub type OnDropped = Arc<dyn Fn(u64) + Send + Sync>;

/// What makes two events the same: a digest of object, reason and note.
type Sameness = [u8; 16];

/// When an event was made first, and how often.
#[derive(Clone, Debug)]
struct Known {
    at: Timestamp,
    count: u32,
}

/// Events on their way.
struct Desk {
    waiting: VecDeque<(Event, Timestamp)>,
    known: BTreeMap<Sameness, Known>,
    /// The same in the order in which they are forgotten.
    oldest: VecDeque<(Duration, Sameness)>,
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
    let mut throttle = Throttle::new(settings.rate, settings.burst, fence.now());
    let mut desk =
        Desk { waiting: VecDeque::new(), known: BTreeMap::new(), oldest: VecDeque::new(), settings };
    loop {
        let ready = !desk.waiting.is_empty();
        let crowded = crowded.load(Ordering::Relaxed);
        let pause = if ready { throttle.wait(crowded) } else { Duration::ZERO };
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(event) if desk.waiting.len() < desk.settings.queue => {
                    desk.waiting.push_back((event, Timestamp::now()));
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
        if !throttle.take(fence.now(), crowded) {
            continue;
        }
        let Some((event, at)) = desk.waiting.pop_front() else {
            continue;
        };
        if !fence.open() {
            continue;
        }
        if let Err(error) = desk.send(&caller, &event, at, fence.now()).await {
            tracing::debug!(reason = event.reason, %error, "event dropped");
            dropped(1);
        }
    }
}

impl Desk {
    async fn send(
        &mut self,
        caller: &Caller,
        event: &Event,
        at: Timestamp,
        now: Duration,
    ) -> Result<(), CallError> {
        self.forget(now);
        let namespace = namespace(event);
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let same = sameness(event);
        if let Some(known) = self.known.get_mut(&same) {
            known.count = known.count.saturating_add(1);
            let path = format!("{collection}/{}", name(event, known.at));
            let series = json!({"series": {"count": known.count, "lastObservedTime": micro(at)}});
            return caller.tell(http::Method::PATCH, &path, Content::Merge, &series).await;
        }
        let name = name(event, at);
        let body = self.body(event, namespace, &name, at);
        caller.tell(http::Method::POST, &collection, Content::Json, &body).await?;
        if self.known.len() < self.settings.queue {
            self.known.insert(same, Known { at, count: 1 });
            self.oldest.push_back((now, same));
        }
        Ok(())
    }

    /// Forgets what was first told so long ago that it counts as new.
    fn forget(&mut self, now: Duration) {
        let window = self.settings.window;
        while self.oldest.front().is_some_and(|(first, _)| now.saturating_sub(*first) >= window) {
            if let Some((_, same)) = self.oldest.pop_front() {
                self.known.remove(&same);
            }
        }
    }

    fn body(&self, event: &Event, namespace: &str, name: &str, at: Timestamp) -> Value {
        let resource = &event.kind.resource();
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": micro(at),
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "action": event.reason,
            "note": cut(&event.note, NOTE_BYTES),
            "reportingController": self.settings.controller,
            "reportingInstance": cut(&self.settings.instance, 128),
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

fn sameness(event: &Event) -> Sameness {
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
    let hash = cut(&hash, 16);
    let base = cut(&event.key.name, NAME_BYTES).trim_end_matches(['.', '-']);
    format!("{base}.{hash}")
}

fn micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// At most this many bytes, whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}
