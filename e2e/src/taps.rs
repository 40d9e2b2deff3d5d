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
pub enum Passing {
    /// It passes.
    On,
    /// It is kept back.
    Dropped,
    /// It passes twice.
    Doubled,
    /// It passes so much later, and all behind it: what other watches tell has come before.
    Late(Duration),
    /// The server is made to say that the revision is too old, and the stream ends.
    Gone,
    /// Neither it nor anything after it passes, and the stream does not end.
    Stalled,
}

type Judge = Box<dyn FnMut(&Call, &Value) -> Passing + Send>;

/// A tap's judgement and what came of it.
pub(crate) struct Tap {
    judge: Mutex<Judge>,
    harmed: AtomicUsize,
}

/// The taps in force.
#[derive(Default)]
pub(crate) struct Taps(Mutex<Vec<Arc<Tap>>>);

impl Taps {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Tap>>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts a tap in force until the result is dropped.
    pub(crate) fn open(
        self: &Arc<Self>,
        judge: impl FnMut(&Call, &Value) -> Passing + Send + 'static,
    ) -> OpenTap {
        let tap = Arc::new(Tap { judge: Mutex::new(Box::new(judge)), harmed: AtomicUsize::new(0) });
        self.change(|taps| taps.push(Arc::clone(&tap)));
        OpenTap { tap, taps: Arc::clone(self) }
    }

    /// What the first tap says that does not let the event pass.
    fn judge(&self, call: &Call, event: &Value) -> Passing {
        let taps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tap in taps.iter() {
            let passing = (tap.judge.lock().unwrap_or_else(PoisonError::into_inner))(call, event);
            if passing != Passing::On {
                tap.harmed.fetch_add(1, Ordering::AcqRel);
                return passing;
            }
        }
        Passing::On
    }
}

/// A tap in force until dropped.
pub struct OpenTap {
    tap: Arc<Tap>,
    taps: Arc<Taps>,
}

impl OpenTap {
    /// How many events it has harmed.
    pub fn harmed(&self) -> usize {
        self.tap.harmed.load(Ordering::Acquire)
    }
}

impl Drop for OpenTap {
    fn drop(&mut self) {
        self.taps.change(|taps| taps.retain(|tap| !Arc::ptr_eq(tap, &self.tap)));
    }
}

/// Chunks of an answer.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, Error>>;

struct Tapped {
    input: Chunks,
    unread: Vec<u8>,
    call: Call,
    taps: Arc<Taps>,
    /// The list that some watches begin with is no event.
    listing: bool,
    over: bool,
}

/// An answer as it is.
pub(crate) fn untouched(body: Body) -> Chunks {
    body.into_data_stream().map(|chunk| chunk.map_err(Into::into)).boxed()
}

/// The answer to a watch, event by event past the taps.
pub(crate) fn tapped(call: Call, taps: Arc<Taps>, body: Body) -> Chunks {
    let listing = call.query.contains("sendInitialEvents=true");
    let tapped = Tapped { input: untouched(body), unread: Vec::new(), call, taps, listing, over: false };
    stream::unfold(tapped, async |mut tapped| {
        let chunk = tapped.next().await?;
        Some((chunk, tapped))
    })
    .boxed()
}

impl Tapped {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        while !self.over {
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
            match self.taps.judge(&self.call, &event) {
                Passing::On => return Some(Ok(line.into())),
                Passing::Late(time) => {
                    tokio::time::sleep(time).await;
                    return Some(Ok(line.into()));
                }
                Passing::Dropped => {}
                Passing::Doubled => return Some(Ok([line.clone(), line].concat().into())),
                Passing::Gone => {
                    self.over = true;
                    return Some(Ok(gone().into()));
                }
                Passing::Stalled => std::future::pending().await,
            }
        }
        None
    }
}

/// What an API server says that has forgotten the revision.
fn gone() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}
