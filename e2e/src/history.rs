//! Records every revision of the objects of one kind, as a watch delivers them.
//!
//! A restarted API server cannot serve revisions before its start; after a relist the stored objects are recorded
//! instead. No writes happen while it is down, so a revision can only be missed around its stop and start.

use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use anyhow::Result;
use futures::StreamExt as _;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Field of the metadata in the last revision of an object that is gone.
const DELETED: &str = "deleted";
/// Delay before the watch is retried when the server does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A recording that runs until dropped.
pub struct History {
    /// What was there when the recording began.
    present: Vec<Value>,
    revisions: Arc<Mutex<Vec<(Instant, Value)>>>,
    lost: Arc<Mutex<Option<String>>>,
    /// Whether lost revisions may be replaced by a relist.
    allows_relist: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl History {
    /// Starts recording all changes in a namespace ("" for all). Reading a recording with a gap is an error.
    pub async fn start(objects: &ObjectClient, kind: Kind, namespace: &str) -> Result<Self> {
        let api = objects.api(kind, namespace);
        let present = api.list(&ListParams::default()).await?;
        let mut position = present.metadata.resource_version.unwrap_or_default();
        let present = present.items.iter().map(to_value).collect();
        let (revisions, lost) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let (sink, gap) = (Arc::clone(&revisions), Arc::clone(&lost));
        let allows_relist = Arc::new(AtomicBool::new(false));
        let may_relist = Arc::clone(&allows_relist);
        let task = tokio::spawn(async move {
            loop {
                let Ok(stream) = api.watch(&WatchParams::default(), &position).await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let mut stream = Box::pin(stream);
                while let Some(event) = stream.next().await {
                    match event {
                        Ok(
                            event @ (WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)),
                        ) => {
                            let (object, is_deleted) = match event {
                                WatchEvent::Deleted(object) => (object, true),
                                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                                _ => continue,
                            };
                            position = object.metadata.resource_version.clone().unwrap_or_default();
                            let mut object = to_value(&object);
                            if is_deleted {
                                object["metadata"][DELETED] = Value::Bool(true);
                            }
                            lock(&sink).push((Instant::now(), object));
                        }
                        Ok(WatchEvent::Bookmark(mark)) => position = mark.metadata.resource_version,
                        Ok(WatchEvent::Error(_)) if may_relist.load(Ordering::Acquire) => {
                            let Ok(list) = api.list(&ListParams::default()).await else { break };
                            position = list.metadata.resource_version.unwrap_or_default();
                            let listed = list.items.iter().map(to_value);
                            let all = std::iter::once(Value::Null).chain(listed);
                            lock(&sink).extend(all.map(|object| (Instant::now(), object)));
                            break;
                        }
                        Ok(WatchEvent::Error(status)) => {
                            *lock(&gap) = Some(status.message.clone());
                            return;
                        }
                        // The stream broke: watch again from the last revision.
                        Err(_) => break,
                    }
                }
            }
        });
        Ok(Self { present, revisions, lost, allows_relist, task })
    }

    /// Allows a relist, for a test that restarts the API server. A relist is recorded as a null, then the listed
    /// objects.
    pub fn allow_relist(&self) {
        self.allows_relist.store(true, Ordering::Release);
    }

    /// Returns the objects that were there when the recording began.
    pub fn present(&self) -> &[Value] {
        &self.present
    }

    /// Returns all revisions so far, in store order.
    pub fn revisions(&self) -> Result<Vec<Value>> {
        Ok(self.timed_revisions()?.into_iter().map(|(_, object)| object).collect())
    }

    /// Like `revisions`, each with the time at which it was received.
    pub fn timed_revisions(&self) -> Result<Vec<(Instant, Value)>> {
        let lost = lock(&self.lost).clone();
        anyhow::ensure!(lost.is_none(), "the watch lost revisions: {lost:?}");
        Ok(lock(&self.revisions).clone())
    }

    /// Returns the index of the first revision in which an object with this name prefix has this condition.
    pub fn first_index(&self, prefix: &str, condition: &str) -> Result<Option<usize>> {
        Ok(self.revisions()?.iter().position(|object| {
            text(object, "/metadata/name").starts_with(prefix) && condition_is_true(object, condition)
        }))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recorded null would be taken for a relist, so an object that has no JSON form is an empty one, which fails any check of it.
fn to_value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_else(|_| Value::Object(serde_json::Map::new()))
}

/// Returns the resourceVersion of an object; these are ordered across all kinds.
pub fn revision(object: &Value) -> Result<u64> {
    Ok(text(object, "/metadata/resourceVersion").parse()?)
}

/// Returns revisions of several kinds in store order, each with its resourceVersion.
pub fn in_store_order<'a>(kinds: &[&'a [Value]]) -> Result<Vec<(u64, &'a Value)>> {
    let all = kinds.iter().flat_map(|revisions| revisions.iter());
    let mut all: Vec<_> = all.map(|object| Ok((revision(object)?, object))).collect::<Result<_>>()?;
    all.sort_by_key(|(revision, _)| *revision);
    Ok(all)
}

/// Returns whether a revision is the last one of an object that is gone.
pub fn is_deleted(object: &Value) -> bool {
    object["metadata"][DELETED] == true
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}
