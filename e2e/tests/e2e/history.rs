//! Every revision of some kind's objects, as a watch delivers them.
//!
//! An API server that was restarted does not know of revisions before its start: what is stored then is read instead. Nothing
//! is written while it is away, so that a revision can only be missed around its end and its start.

use anyhow::Result;
use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use sluice_e2e::objects::{Kind, ObjectClient, condition_is_true, text};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Before another try at a server that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Records until dropped.
pub(crate) struct History {
    revisions: Arc<Mutex<Vec<(Instant, Value)>>>,
    lost: Arc<Mutex<Option<String>>>,
    /// Whether what was lost may be read again.
    allows_relist: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl History {
    /// Records all changes in a namespace ("" for all) from now on. A gap is an error when it is read.
    pub(crate) async fn start(objects: &ObjectClient, kind: Kind, namespace: &str) -> Result<Self> {
        let api = objects.api(kind, namespace);
        let present = api.list(&ListParams::default()).await?;
        let mut position = present.metadata.resource_version.unwrap_or_default();
        let (revisions, lost) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let (into, gap) = (Arc::clone(&revisions), Arc::clone(&lost));
        let forgiving = Arc::new(AtomicBool::new(false));
        let forgives = Arc::clone(&forgiving);
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
                            WatchEvent::Added(object)
                            | WatchEvent::Modified(object)
                            | WatchEvent::Deleted(object),
                        ) => {
                            position = object.metadata.resource_version.clone().unwrap_or_default();
                            into.lock()
                                .unwrap()
                                .push((Instant::now(), serde_json::to_value(&object).unwrap()));
                        }
                        Ok(WatchEvent::Bookmark(mark)) => position = mark.metadata.resource_version,
                        Ok(WatchEvent::Error(_)) if forgives.load(Ordering::Acquire) => {
                            let Ok(now) = api.list(&ListParams::default()).await else { break };
                            position = now.metadata.resource_version.unwrap_or_default();
                            let seen = now.items.iter().map(|object| serde_json::to_value(object).unwrap());
                            let all = std::iter::once(Value::Null).chain(seen);
                            into.lock().unwrap().extend(all.map(|object| (Instant::now(), object)));
                            break;
                        }
                        Ok(WatchEvent::Error(status)) => {
                            *gap.lock().unwrap() = Some(status.message.clone());
                            return;
                        }
                        // The stream broke: go on from the last revision.
                        Err(_) => break,
                    }
                }
            }
        });
        Ok(Self { revisions, lost, allows_relist: forgiving, task })
    }

    /// The API server is about to be restarted: what it will not know of is read again, after a null in place of an object.
    pub(crate) fn allow_relist(&self) {
        self.allows_relist.store(true, Ordering::Release);
    }

    /// All revisions so far, in the order of the store.
    pub(crate) fn revisions(&self) -> Result<Vec<Value>> {
        Ok(self.timed_revisions()?.into_iter().map(|(_, object)| object).collect())
    }

    /// The same, each with the time at which it was seen here.
    pub(crate) fn timed_revisions(&self) -> Result<Vec<(Instant, Value)>> {
        anyhow::ensure!(self.lost.lock().unwrap().is_none(), "the watch lost revisions: {:?}", self.lost);
        Ok(self.revisions.lock().unwrap().clone())
    }

    /// The position of the first revision in which an object of this name prefix has a condition.
    pub(crate) fn first_index(&self, prefix: &str, condition: &str) -> Result<Option<usize>> {
        Ok(self.revisions()?.iter().position(|object| {
            text(object, "/metadata/name").starts_with(prefix) && condition_is_true(object, condition)
        }))
    }
}

/// The revision of the store that an object was read at: they are of one order over all kinds.
pub(crate) fn revision(object: &Value) -> Result<u64> {
    Ok(text(object, "/metadata/resourceVersion").parse()?)
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}
