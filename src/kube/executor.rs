//! The effect executor: sends the writes that the core decided on.
//!
//! Invariants: at most one call per object at a time, except writes that bypass; no write is sent while this replica may not
//! act (checked right before each call), and an unsent one is reported as unavailable; the executor never retries, the core
//! decides again from the results; statuses of queues share one rate limit, oldest first, with a lower rate under load, and
//! only the latest per object is sent: a replaced one gets no result. The newest object is sent before its conflict.
//! `task_queue` decides which write is next while all concurrent calls are in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::{CallError, Caller, Content, Rate, collection_path, object_path};
use super::lease::Fence;
use super::object::{MetadataOnly, Object};
use super::rate_limit::RateLimiter;
use super::refusal_text;
use super::sink::DeltaSink;
use super::task_queue::{NextTask, Task, TaskQueue, TaskTarget};
use super::watch::jitter;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::reconciler::{Delta, Verb, Write, WriteOutcome, WriteResult};

/// The API server's message if etcd rejects an object because of its size.
const TOO_LARGE: &str = "request is too large";
/// The API server's message if its definition does not have a field of a server-side apply.
const NOT_IN_DEFINITION: &str = "failed to create typed patch object";
/// The API server's message if a JSON patch does not apply to the newest object: it changed since the patch was made. An
/// object that is invalid after the patch has another message.
const PATCH_DOES_NOT_APPLY: &str = "the server rejected our request due to an error in our request";

/// Settings of the executor.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorSettings {
    /// Maximum number of concurrent calls.
    pub concurrency: usize,
    /// Statuses of queues per second.
    pub queue_status_rate: f64,
    /// Delay before a call is reported as unavailable. The core retries only after that.
    pub retry_delay: Duration,
}

impl Default for ExecutorSettings {
    fn default() -> Self {
        Self { concurrency: 16, queue_status_rate: 30.0, retry_delay: Duration::from_millis(500) }
    }
}

/// Rejected writes to log.
const REFUSAL_LOG_LIMIT: Rate = Rate { per_second: 1.0, burst: 20.0 };

/// Rate limiter of log messages about rejected writes, because a write may be retried indefinitely.
#[derive(Debug)]
pub struct RefusalLog(Mutex<(RateLimiter, u64)>);

impl Default for RefusalLog {
    fn default() -> Self {
        Self(Mutex::new((
            RateLimiter::new(REFUSAL_LOG_LIMIT.per_second, REFUSAL_LOG_LIMIT.burst, Duration::ZERO),
            0,
        )))
    }
}

impl RefusalLog {
    /// Returns the number of messages skipped since the last logged one, or `None` to skip this one.
    fn try_log(&self, now: Duration) -> Option<u64> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (limiter, skipped) = &mut *inner;
        if limiter.try_acquire(now) {
            return Some(std::mem::take(skipped));
        }
        *skipped = skipped.saturating_add(1);
        None
    }
}

/// Called after each call.
pub type OnCall = Arc<dyn Fn(&Write, &WriteOutcome) + Send + Sync>;

/// The effect executor of one API server.
pub struct Executor<S> {
    /// Makes the calls.
    pub caller: Caller,
    /// Limits of calls.
    pub settings: ExecutorSettings,
    /// Whether this replica may act.
    pub fence: Fence,
    /// Set while at least half of the concurrent calls are in flight.
    pub under_load: Arc<AtomicBool>,
    /// Receives results.
    pub sink: S,
    /// Called after each call, for metrics.
    pub on_call: OnCall,
    /// Limits log messages.
    pub refusal_log: RefusalLog,
}

impl<S: DeltaSink> Executor<S> {
    /// Runs until the channel of tasks is closed and the calls in flight have finished.
    pub async fn run(self, mut tasks: mpsc::UnboundedReceiver<Task>) {
        let executor = Arc::new(self);
        let fence = &executor.fence;
        let mut queue = TaskQueue::new(executor.settings.queue_status_rate, fence.now());
        let mut running = JoinSet::new();
        let mut open = true;
        while open || !running.is_empty() {
            let mut delay = None;
            // The most urgent task may be the last one in the channel.
            while let Ok(task) = tasks.try_recv() {
                queue.push(task);
            }
            while open && running.len() < executor.settings.concurrency.max(1) {
                let under_load = running.len().saturating_mul(2) >= executor.settings.concurrency;
                executor.under_load.store(under_load, Ordering::Relaxed);
                match queue.next(fence.now(), under_load) {
                    NextTask::Start(task) => {
                        running.spawn(Arc::clone(&executor).execute_task(task));
                    }
                    NextTask::Wait(time) => {
                        delay = Some(time);
                        break;
                    }
                    NextTask::Idle => break,
                }
            }
            tokio::select! {
                task = tasks.recv(), if open => match task {
                    Some(task) => queue.push(task),
                    None => open = false,
                },
                Some(finished) = running.join_next() => match finished {
                    Ok(target) => queue.task_finished(&target),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                () = tokio::time::sleep(delay.unwrap_or_default()), if delay.is_some() => {}
            }
        }
    }

    async fn execute_task(self: Arc<Self>, task: Task) -> TaskTarget {
        let target = task.target();
        let deltas = match task {
            Task::Write(write) if self.fence.is_open() => self.execute_write(write).await,
            // A late lease renewal opens the fence again. Without this result the core would wait for this write forever.
            Task::Write(write) => {
                let message = "not the leader (fence closed); write not sent".to_owned();
                vec![write_result(write, WriteOutcome::Unavailable { message })]
            }
            Task::Refetch { kind, key } => self.fetch(kind, &key).await.ok().into_iter().collect(),
        };
        for delta in deltas {
            // The receiver is dropped, so no result matters: the process is shutting down.
            if self.sink.deliver(delta).await.is_err() {
                break;
            }
        }
        target
    }

    async fn execute_write(&self, write: Write) -> Vec<Delta> {
        let outcome = write_outcome(write.verb, self.send(&write).await);
        (self.on_call)(&write, &outcome);
        let mut deltas = Vec::new();
        match &outcome {
            WriteOutcome::Done(_) | WriteOutcome::NotFound => {}
            WriteOutcome::Rejected { code, message } => {
                if let Some(suppressed) = self.refusal_log.try_log(self.fence.now()) {
                    let (kind, verb) = (write.kind.resource().kind, write.verb);
                    tracing::warn!(kind, key = %write.key, ?verb, code, message, suppressed, "write refused");
                }
            }
            WriteOutcome::Conflict => deltas.extend(self.fetch(write.kind, &write.key).await.ok()),
            WriteOutcome::Unavailable { message } => {
                let kind = write.kind.resource().kind;
                tracing::warn!(kind, key = %write.key, message, "write failed, outcome unknown");
                tokio::time::sleep(jitter(self.settings.retry_delay)).await;
                deltas.extend(self.fetch(write.kind, &write.key).await.ok());
            }
        }
        deltas.push(write_result(write, outcome));
        deltas
    }

    async fn send(&self, write: &Write) -> Result<Object, CallError> {
        let resource = &write.kind.resource();
        let manager = names::FIELD_MANAGER;
        let object = object_path(resource, &write.key);
        let object =
            write.subresource.map_or(object.clone(), |subresource| format!("{object}/{subresource}"));
        let (method, path, content) = match write.verb {
            Verb::Create => {
                let collection = collection_path(resource, &write.key.namespace);
                (Method::POST, format!("{collection}?fieldManager={manager}"), Content::Json)
            }
            Verb::Apply => {
                (Method::PATCH, format!("{object}?fieldManager={manager}&force=true"), Content::Apply)
            }
            Verb::Merge => (Method::PATCH, format!("{object}?fieldManager={manager}"), Content::Merge),
            Verb::JsonPatch => {
                let strict = strictness(write);
                (Method::PATCH, format!("{object}?fieldManager={manager}{strict}"), Content::JsonPatch)
            }
            Verb::Delete => (Method::DELETE, object, Content::Json),
        };
        let payload = Some(&write.payload());
        if write.response_metadata_only {
            self.caller.call_as::<MetadataOnly>(method, &path, content, payload).await.map(Object::from)
        } else {
            self.caller.call_as(method, &path, content, payload).await
        }
    }

    /// Reads an object.
    async fn fetch(&self, kind: Kind, key: &ObjectKey) -> Result<Delta, CallError> {
        match self
            .caller
            .call_as::<Object>(
                Method::GET,
                &object_path(&kind.resource(), key),
                Content::Json,
                None::<&Value>,
            )
            .await
        {
            Ok(object) => Ok(Delta::Read { kind, key: key.clone(), object: Some(object.into_value()) }),
            Err(error) if error.code() == Some(404) => {
                Ok(Delta::Read { kind, key: key.clone(), object: None })
            }
            Err(error) => {
                tracing::warn!(kind = kind.resource().kind, %key, %error, "failed to read object");
                Err(error)
            }
        }
    }
}

/// Returns the query parameter that makes the server refuse a patch of a job, naming the field, if the installed definition
/// lacks a field of the patch. Without it the server drops the field, and a job starts without its gates, node labels and
/// tolerations.
fn strictness(write: &Write) -> &'static str {
    let of_job = matches!(write.kind, Kind::Job(_)) && write.subresource.is_none();
    if of_job { "&fieldValidation=Strict" } else { "" }
}

fn write_result(write: Write, outcome: WriteOutcome) -> Delta {
    let Write { id, kind, key, .. } = write;
    Delta::Written(WriteResult { id, kind, key, outcome })
}

fn write_outcome(verb: Verb, response: Result<Object, CallError>) -> WriteOutcome {
    match response {
        Ok(object) => WriteOutcome::Done(object.into_value()),
        Err(CallError::Status { code, message, .. }) => match code {
            404 | 410 => WriteOutcome::NotFound,
            409 => WriteOutcome::Conflict,
            422 if verb == Verb::JsonPatch && message.starts_with(PATCH_DOES_NOT_APPLY) => {
                WriteOutcome::Conflict
            }
            // Neither etcd nor an older definition will ever accept it, despite the status code.
            500 if message.contains(TOO_LARGE) || message.starts_with(NOT_IN_DEFINITION) => {
                WriteOutcome::Rejected { code, message: refusal_text::brief(&message) }
            }
            408 | 429 | 500.. => WriteOutcome::Unavailable { message: refusal_text::brief(&message) },
            _ => WriteOutcome::Rejected { code, message: refusal_text::brief(&message) },
        },
        Err(CallError::Request(message)) => {
            WriteOutcome::Rejected { code: 400, message: refusal_text::brief(&message) }
        }
        Err(error @ (CallError::Timeout(_) | CallError::Transport(_))) => {
            WriteOutcome::Unavailable { message: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_logs_are_rate_limited_and_counted() {
        let refusals = RefusalLog::default();
        let time_of = |number: u64| Duration::from_millis(number * 10);
        let skipped_before: Vec<u64> =
            (0..10_000).filter_map(|number| refusals.try_log(time_of(number))).collect();
        assert!((110..=121).contains(&skipped_before.len()), "{} messages in 100 s", skipped_before.len());
        let skipped_at_end = refusals.try_log(time_of(20_000)).unwrap();
        let total = u64::try_from(skipped_before.len()).unwrap()
            + skipped_before.iter().sum::<u64>()
            + skipped_at_end;
        assert_eq!(total, 10_000, "every rejection is logged or counted");
    }
}
