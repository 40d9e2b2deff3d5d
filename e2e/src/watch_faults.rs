//! Harm to single events of the watches that pass through the proxy: an event is kept back, told twice, late, answered
//! with 410 Gone in its stead, or the last that ever comes on its stream.
//!
//! What is kept back is gone for good as soon as a later event passes: the client goes on from that one's revision.

use crate::proxy::Call;
use anyhow::Error;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What happens to an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFault {
    /// It passes.
    Pass,
    /// It is kept back.
    Dropped,
    /// It passes twice.
    Duplicated,
    /// It passes so much later, and all behind it: what other watches tell has come before.
    Delayed(Duration),
    /// The server is made to say that the revision is too old, and the stream ends.
    Expired,
    /// Neither it nor anything after it passes, and the stream does not end.
    Stalled,
}

type FaultPolicy = Box<dyn FnMut(&Call, &Value) -> EventFault + Send>;

/// A tap's judgement and what came of it.
pub(crate) struct WatchFault {
    policy: Mutex<FaultPolicy>,
    injected_faults: AtomicUsize,
}

/// The taps in force.
#[derive(Default)]
pub(crate) struct WatchFaults(Mutex<Vec<Arc<WatchFault>>>);

impl WatchFaults {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<WatchFault>>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts a tap in force until the result is dropped.
    pub(crate) fn inject(
        self: &Arc<Self>,
        judge: impl FnMut(&Call, &Value) -> EventFault + Send + 'static,
    ) -> ActiveWatchFault {
        let tap = Arc::new(WatchFault {
            policy: Mutex::new(Box::new(judge)),
            injected_faults: AtomicUsize::new(0),
        });
        self.change(|taps| taps.push(Arc::clone(&tap)));
        ActiveWatchFault { fault: tap, faults: Arc::clone(self) }
    }

    /// What the first tap says that does not let the event pass.
    fn decide(&self, call: &Call, event: &Value) -> EventFault {
        let taps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tap in taps.iter() {
            let passing = (tap.policy.lock().unwrap_or_else(PoisonError::into_inner))(call, event);
            if passing != EventFault::Pass {
                tap.injected_faults.fetch_add(1, Ordering::AcqRel);
                return passing;
            }
        }
        EventFault::Pass
    }
}

/// A tap in force until dropped.
pub struct ActiveWatchFault {
    fault: Arc<WatchFault>,
    faults: Arc<WatchFaults>,
}

impl ActiveWatchFault {
    /// How many events it has harmed.
    pub fn injected_faults(&self) -> usize {
        self.fault.injected_faults.load(Ordering::Acquire)
    }
}

impl Drop for ActiveWatchFault {
    fn drop(&mut self) {
        self.faults.change(|taps| taps.retain(|tap| !Arc::ptr_eq(tap, &self.fault)));
    }
}

/// Chunks of an answer.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, Error>>;

struct FaultyStream {
    input: Chunks,
    unread: Vec<u8>,
    call: Call,
    faults: Arc<WatchFaults>,
    /// The list that some watches begin with is no event.
    listing: bool,
    ended: bool,
}

/// An answer as it is.
pub(crate) fn pass_through(body: Body) -> Chunks {
    body.into_data_stream().map(|chunk| chunk.map_err(Into::into)).boxed()
}

/// The answer to a watch, event by event past the taps.
pub(crate) fn with_faults(call: Call, taps: Arc<WatchFaults>, body: Body) -> Chunks {
    let listing = call.query.contains("sendInitialEvents=true");
    let tapped = FaultyStream {
        input: pass_through(body),
        unread: Vec::new(),
        call,
        faults: taps,
        listing,
        ended: false,
    };
    stream::unfold(tapped, async |mut tapped| {
        let chunk = tapped.next().await?;
        Some((chunk, tapped))
    })
    .boxed()
}

impl FaultyStream {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        while !self.ended {
            let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') else {
                match self.input.next().await? {
                    Ok(chunk) => self.unread.extend_from_slice(&chunk),
                    Err(error) => return Some(Err(error)),
                }
                continue;
            };
            let rest = self.unread.split_off(end + 1);
            let line = std::mem::replace(&mut self.unread, rest);
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            if self.listing {
                self.listing =
                    !event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_string();
                return Some(Ok(line.into()));
            }
            match self.faults.decide(&self.call, &event) {
                EventFault::Pass => return Some(Ok(line.into())),
                EventFault::Delayed(time) => {
                    tokio::time::sleep(time).await;
                    return Some(Ok(line.into()));
                }
                EventFault::Dropped => {}
                EventFault::Duplicated => return Some(Ok([line.clone(), line].concat().into())),
                EventFault::Expired => {
                    self.ended = true;
                    return Some(Ok(expired_event().into()));
                }
                EventFault::Stalled => std::future::pending().await,
            }
        }
        None
    }
}

/// What an API server says that has forgotten the revision.
fn expired_event() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}
