//! Faults of single watch events that pass through the proxy: an event is dropped, duplicated, delayed, replaced by 410
//! Gone, or the stream stalls before it.
//!
//! A dropped event is lost for good once a later one passes, because the client resumes from that one's revision.

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

/// What happens to a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFault {
    /// It passes unchanged.
    Pass,
    /// It is dropped.
    Dropped,
    /// It passes twice.
    Duplicated,
    /// It and all later events of this stream pass this much later, after events of other watches.
    Delayed(Duration),
    /// An ERROR event with code 410 (too old resource version) replaces it, and the stream ends.
    Expired,
    /// Neither it nor any later event passes, and the stream stays open.
    Stalled,
}

type FaultPolicy = Box<dyn FnMut(&Call, &Value) -> EventFault + Send>;

/// An injected fault and how many events it affected.
pub(crate) struct WatchFault {
    policy: Mutex<FaultPolicy>,
    injected_faults: AtomicUsize,
}

/// The active watch faults.
#[derive(Default)]
pub(crate) struct WatchFaults(Mutex<Vec<Arc<WatchFault>>>);

impl WatchFaults {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<WatchFault>>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Activates a fault until the returned handle is dropped.
    pub(crate) fn inject(
        self: &Arc<Self>,
        policy: impl FnMut(&Call, &Value) -> EventFault + Send + 'static,
    ) -> ActiveWatchFault {
        let fault = Arc::new(WatchFault {
            policy: Mutex::new(Box::new(policy)),
            injected_faults: AtomicUsize::new(0),
        });
        self.change(|faults| faults.push(Arc::clone(&fault)));
        ActiveWatchFault { fault, faults: Arc::clone(self) }
    }

    /// Returns the result of the first fault that does not let the event pass.
    fn decide(&self, call: &Call, event: &Value) -> EventFault {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for fault in faults.iter() {
            let decision = (fault.policy.lock().unwrap_or_else(PoisonError::into_inner))(call, event);
            if decision != EventFault::Pass {
                fault.injected_faults.fetch_add(1, Ordering::AcqRel);
                return decision;
            }
        }
        EventFault::Pass
    }
}

/// A watch fault that is active until dropped.
pub struct ActiveWatchFault {
    fault: Arc<WatchFault>,
    faults: Arc<WatchFaults>,
}

impl ActiveWatchFault {
    /// Returns how many events it has affected.
    pub fn injected_faults(&self) -> usize {
        self.fault.injected_faults.load(Ordering::Acquire)
    }
}

impl Drop for ActiveWatchFault {
    fn drop(&mut self) {
        self.faults.change(|faults| faults.retain(|fault| !Arc::ptr_eq(fault, &self.fault)));
    }
}

/// Chunks of a response body.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, Error>>;

struct FaultyStream {
    input: Chunks,
    unread: Vec<u8>,
    call: Call,
    faults: Arc<WatchFaults>,
    /// Whether the stream is still in its initial list, whose items are never faulted.
    listing: bool,
    ended: bool,
}

/// Returns the response body unchanged.
pub(crate) fn pass_through(body: Body) -> Chunks {
    body.into_data_stream().map(|chunk| chunk.map_err(Into::into)).boxed()
}

/// Returns the body of a watch response with faults applied to each event.
pub(crate) fn with_faults(call: Call, faults: Arc<WatchFaults>, body: Body) -> Chunks {
    let listing = call.query.contains("sendInitialEvents=true");
    let faulty =
        FaultyStream { input: pass_through(body), unread: Vec::new(), call, faults, listing, ended: false };
    stream::unfold(faulty, async |mut faulty| {
        let chunk = faulty.next().await?;
        Some((chunk, faulty))
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

/// The ERROR event of an API server that has compacted the revision.
fn expired_event() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}
