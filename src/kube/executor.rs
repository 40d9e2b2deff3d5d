//! The effect executor: writes what the core decided.
//!
//! Invariants: one call per object at a time, but for one that overtakes; nothing is sent while this replica may not act
//! (checked right before each call), and what is not sent is answered as unavailable; nothing is sent twice, the core
//! decides again on what is fed back; background writes share one budget, oldest first, fewer while much else is under way,
//! and only the latest of an object is sent: one that a newer replaced gets no answer. Before a conflict is told, the newest
//! object is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::{CallError, Caller, Content, collection_path, object_path};
use super::lease::Fence;
use super::object::{MetadataOnly, Object};
use super::rate_limit::TokenBucket;
use super::task_queue::{NextTask, Task, TaskQueue, TaskTarget};
use super::watch::jitter;
use crate::api::{ObjectKey, names};
use crate::state::{Delta, Kind, Verb, Write, WriteOutcome, WriteResult};

/// How the API server words that its store does not take an object of this size.
const TOO_LARGE: &str = "request is too large";

/// How the executor runs.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorSettings {
    /// Calls at a time.
    pub concurrency: usize,
    /// Background writes per second.
    pub background_rate: f64,
    /// Pause before a call is answered as unavailable: the core's next try comes after it.
    pub retry_delay: Duration,
}

impl Default for ExecutorSettings {
    fn default() -> Self {
        Self { concurrency: 16, background_rate: 30.0, retry_delay: Duration::from_millis(500) }
    }
}

/// Refused writes that are logged in a second, and at once after a quiet time.
const REFUSAL_LOG_LIMIT: (f64, f64) = (1.0, 20.0);

/// Which refused writes are logged: a write that is tried again and again must not fill the log.
#[derive(Debug)]
pub struct RefusalLog(Mutex<(TokenBucket, u64)>);

impl Default for RefusalLog {
    fn default() -> Self {
        Self(Mutex::new((TokenBucket::new(REFUSAL_LOG_LIMIT.0, REFUSAL_LOG_LIMIT.1, Duration::ZERO), 0)))
    }
}

impl RefusalLog {
    /// How many were left out since the last one that was logged; nothing when this one is left out too.
    fn try_log(&self, now: Duration) -> Option<u64> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (budget, untold) = &mut *inner;
        if budget.try_acquire(now) {
            return Some(std::mem::take(untold));
        }
        *untold = untold.saturating_add(1);
        None
    }
}

/// Told about each call that was made.
pub type OnCall = Arc<dyn Fn(Verb, &WriteOutcome) + Send + Sync>;

/// What the executor needs.
pub struct Executor {
    /// Makes the calls.
    pub caller: Caller,
    /// How to run.
    pub settings: ExecutorSettings,
    /// Whether this replica may act.
    pub fence: Fence,
    /// Set while much is under way.
    pub under_load: Arc<AtomicBool>,
    /// Where results go.
    pub deltas: mpsc::Sender<Delta>,
    /// Counts calls.
    pub on_call: OnCall,
    /// Says which refused writes are logged.
    pub refusal_log: RefusalLog,
}

impl Executor {
    /// Runs until the channel of tasks is closed; then lets the calls under way finish.
    pub async fn run(self, mut tasks: mpsc::UnboundedReceiver<Task>) {
        let executor = Arc::new(self);
        let fence = &executor.fence;
        let mut queue = TaskQueue::new(executor.settings.background_rate, fence.now());
        let mut running = JoinSet::new();
        let mut open = true;
        while open || !running.is_empty() {
            let mut wait = None;
            while open && running.len() < executor.settings.concurrency.max(1) {
                let crowded = running.len().saturating_mul(2) >= executor.settings.concurrency;
                executor.under_load.store(crowded, Ordering::Relaxed);
                match queue.next(fence.now(), crowded) {
                    NextTask::Start(task) => {
                        running.spawn(Arc::clone(&executor).execute_task(task));
                    }
                    NextTask::Wait(time) => {
                        wait = Some(time);
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
                Some(done) = running.join_next() => match done {
                    Ok(target) => queue.task_finished(&target),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    async fn execute_task(self: Arc<Self>, task: Task) -> TaskTarget {
        let target = task.target();
        let deltas = match task {
            Task::Write(write) if self.fence.is_open() => self.execute_write(write).await,
            // A lease that is renewed late opens the fence again: without an answer the core would wait for one for ever.
            Task::Write(write) => {
                let message = "this replica may not act at present".to_owned();
                vec![write_result(write, WriteOutcome::Unavailable { message })]
            }
            Task::Refetch { kind, key } => self.fetch(kind, &key).await.ok().into_iter().collect(),
        };
        for delta in deltas {
            // Nobody listens any more: the process is about to end.
            if self.deltas.send(delta).await.is_err() {
                break;
            }
        }
        target
    }

    async fn execute_write(&self, write: Write) -> Vec<Delta> {
        let outcome = write_outcome(self.send(&write).await);
        (self.on_call)(write.verb, &outcome);
        let mut deltas = Vec::new();
        match &outcome {
            WriteOutcome::Done(_) | WriteOutcome::NotFound => {}
            WriteOutcome::Rejected { code, message } => {
                if let Some(untold) = self.refusal_log.try_log(self.fence.now()) {
                    let (kind, verb) = (write.kind.resource().kind, write.verb);
                    let message = redact_value(message);
                    tracing::warn!(kind, key = %write.key, ?verb, code, message, untold, "write refused");
                }
            }
            WriteOutcome::Conflict => deltas.extend(self.fetch(write.kind, &write.key).await.ok()),
            WriteOutcome::Unavailable { message } => {
                let (kind, message) = (write.kind.resource().kind, redact_value(message));
                tracing::warn!(kind, key = %write.key, message, "write unanswered");
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
            Verb::Delete => (Method::DELETE, object, Content::Json),
        };
        let payload = Some(&write.payload());
        if write.response_metadata_only {
            self.caller.call_as::<MetadataOnly>(method, &path, content, payload).await.map(Object::from)
        } else {
            self.caller.call_as(method, &path, content, payload).await
        }
    }

    /// The object as it is now, or that it is gone.
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
            Ok(object) => Ok(Delta::Applied { kind, object: object.into_value() }),
            Err(error) if error.code() == Some(404) => {
                Ok(Delta::Deleted { kind, key: key.clone(), uid: String::new() })
            }
            Err(error) => {
                tracing::warn!(kind = kind.resource().kind, %key, %error, "read");
                Err(error)
            }
        }
    }
}

fn write_result(write: Write, outcome: WriteOutcome) -> Delta {
    let Write { id, kind, key, .. } = write;
    Delta::Written(WriteResult { id, kind, key, outcome })
}

/// The message without the rejected value: the API server quotes a whole pod template, with its environment variables.
fn redact_value(message: &str) -> &str {
    message.find("Invalid value: {").and_then(|at| message.get(..at)).unwrap_or(message)
}

fn write_outcome(answer: Result<Object, CallError>) -> WriteOutcome {
    match answer {
        Ok(object) => WriteOutcome::Done(object.into_value()),
        Err(CallError::Status { code, message, .. }) => match code {
            404 | 410 => WriteOutcome::NotFound,
            409 => WriteOutcome::Conflict,
            // The store will never take it, whatever the code says.
            500 if message.contains(TOO_LARGE) => WriteOutcome::Rejected { code, message },
            408 | 429 | 500.. => WriteOutcome::Unavailable { message },
            _ => WriteOutcome::Rejected { code, message },
        },
        Err(CallError::Request(message)) => WriteOutcome::Rejected { code: 400, message },
        Err(error @ (CallError::Timeout(_) | CallError::Transport(_))) => {
            WriteOutcome::Unavailable { message: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_template_is_not_logged() {
        let message =
            r#"Job.batch "x" is invalid: spec.template: Invalid value: {"Env":"secret"}: field is immutable"#;
        assert_eq!(redact_value(message), r#"Job.batch "x" is invalid: spec.template: "#);
        assert_eq!(redact_value("spec.count: Invalid value: -1"), "spec.count: Invalid value: -1");
    }

    #[test]
    fn refusal_logs_are_rate_limited_and_counted() {
        let refusals = RefusalLog::default();
        let at = |number: u64| Duration::from_millis(number * 10);
        let told: Vec<u64> = (0..10_000).filter_map(|number| refusals.try_log(at(number))).collect();
        assert!((110..=121).contains(&told.len()), "{} in a hundred seconds", told.len());
        let left = refusals.try_log(at(20_000)).unwrap();
        let all = u64::try_from(told.len()).unwrap() + told.iter().sum::<u64>() + left;
        assert_eq!(all, 10_000, "each is logged or counted");
    }
}
