//! I/O of the lease state machine: reads and writes the Lease, opens and closes the fence that guards writes.
//!
//! Invariant: the fence is open only while the state machine says that this replica leads (I16), and it closes by itself at
//! the deadline, whether or not this task gets to run: a process that was paused finds it closed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::client::{CallError, Caller};
use super::heartbeat::{Heartbeat, Heartbeats};
use super::watch::jitter;
use crate::lifecycle::lease::{ElectionSettings, Elector, LeaseAction, LeaseRecord, LeaseResponse};

/// Monotonic deadline until which this replica may act. Shared by all tasks that act.
#[derive(Clone, Debug)]
pub struct Fence {
    origin: Instant,
    until: Arc<AtomicU64>,
}

impl Default for Fence {
    fn default() -> Self {
        Self { origin: Instant::now(), until: Arc::new(AtomicU64::new(0)) }
    }
}

impl Fence {
    /// Returns the time since the process began.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns a heartbeat with the same time origin.
    pub fn heartbeat(&self, part: &'static str) -> Heartbeat {
        Heartbeat::new(part, self.origin)
    }

    /// Returns whether this replica may act now.
    pub fn is_open(&self) -> bool {
        nanos(self.now()) < self.until.load(Ordering::Acquire)
    }

    /// Opens the fence permanently, for running without leader election.
    pub fn open_forever(&self) {
        self.until.store(u64::MAX, Ordering::Release);
    }

    /// Closes the fence until it is opened again.
    pub fn close(&self) {
        self.until.store(0, Ordering::Release);
    }

    fn open_until(&self, until: Duration) {
        self.until.store(nanos(until), Ordering::Release);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Location of the Lease, and election settings.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Identity and durations.
    pub election: ElectionSettings,
    /// Address at which this replica answers other processes while it leads.
    pub address: Option<String>,
}

/// Annotation with the address of the holder, and the holder that wrote it, because another controller that takes the Lease
/// over may keep the annotation.
pub const ADDRESS_ANNOTATION: &str = "sluice.dev/leader-address";

/// The holder of the lease, the time at which this replica first saw it, and its address.
#[derive(Debug, Default)]
pub struct LeaseHolder {
    seen: Mutex<Option<(String, Timestamp)>>,
    address: Mutex<Option<String>>,
    /// Whether the Lease never had another holder.
    is_first: AtomicBool,
}

impl LeaseHolder {
    /// Returns the identity of the holder; `None` before the first answer, and without an election.
    pub fn get(&self) -> Option<(String, Timestamp)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the address of the holder, if it wrote one.
    pub fn address(&self) -> Option<String> {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the Lease never had another holder than the present one.
    pub fn is_first(&self) -> bool {
        self.is_first.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, holder: &str) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((holder.to_owned(), Timestamp::now()));
    }

    /// Reads the address of the holder from a Lease, and whether there was an earlier holder.
    pub fn read_address(&self, lease: &Value) {
        let transitions = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64);
        self.is_first.store(transitions == Some(0), Ordering::Relaxed);
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = leader_address(lease);
    }
}

/// Returns the address that the holder of a Lease wrote; `None` if it wrote none, or if another replica wrote it.
fn leader_address(lease: &Value) -> Option<String> {
    let text = lease.pointer("/metadata/annotations")?.get(ADDRESS_ANNOTATION)?.as_str()?;
    let written: Value = serde_json::from_str(text).ok()?;
    let holder = lease.pointer("/spec/holderIdentity")?.as_str().filter(|holder| !holder.is_empty())?;
    let address = written.get("address")?.as_str()?;
    (written.get("holder")?.as_str()? == holder).then(|| address.to_owned())
}

/// Why the election ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The renew deadline passed, or another replica took over.
    #[error("lease {namespace}/{name} lost")]
    Lost {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

/// The task that takes part in the election.
pub struct ElectionTask {
    /// Client for the Lease.
    pub caller: Caller,
    /// Location of the Lease, and election settings.
    pub settings: LeaseSettings,
    /// Opened while this replica leads.
    pub fence: Fence,
    /// A renewal counts from the oldest of these, so that a hanging task loses the lease.
    pub heartbeats: Heartbeats,
    /// Receives the epoch when this replica is elected.
    pub leading: watch::Sender<Option<i32>>,
    /// Set when the holder changes.
    pub holder: Arc<LeaseHolder>,
}

/// Runs the election until `stop`, then releases the lease.
pub async fn run_election(task: ElectionTask, mut stop: watch::Receiver<bool>) -> Result<(), LeaseError> {
    let ElectionTask { caller, settings, fence, heartbeats, leading, holder: seen_holder } = task;
    let mut elector = Elector::new(settings.election.clone());
    let mut acquire_time = String::new();
    let mut logged_holder = LoggedHolder::default();
    while !*stop.borrow() {
        let (now, oldest_beat) = (fence.now(), heartbeats.oldest_beat());
        let outcome = match elector.next_action(now, oldest_beat) {
            LeaseAction::Lost => None,
            LeaseAction::Wait(until) => {
                let delay = until.saturating_sub(now);
                tokio::select! {
                    () = tokio::time::sleep(delay + jitter(delay / 10)) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                Some(None)
            }
            LeaseAction::Read => Some(Some(read(&caller, &settings, &seen_holder).await)),
            LeaseAction::Write(record) => {
                let wall_clock = wall_time();
                if elector.leading_epoch(now).is_none() {
                    acquire_time.clone_from(&wall_clock);
                }
                let times = (&*acquire_time, &*wall_clock);
                Some(Some(write(&caller, &settings, (record, &seen_holder), times).await))
            }
        };
        let Some(response) = outcome else {
            fence.close();
            leading.send_replace(None);
            if let Some((part, silent)) = heartbeats.stalled(settings.election.renew_deadline) {
                tracing::error!(part, ?silent, "made no progress: the lease is not renewed");
            }
            return Err(LeaseError::Lost { namespace: settings.namespace, name: settings.name });
        };
        if let Some(response) = response {
            if let Some(holder) = logged_holder.update(&response) {
                seen_holder.set(holder);
                log_holder(holder, &settings.election.identity);
            }
            elector.handle_response(response, now.min(oldest_beat), fence.now());
        }
        match (elector.leading_epoch(fence.now()), elector.acts_until()) {
            // A stop may have closed the fence while the last call was in flight.
            (Some(epoch), Some(until)) if !*stop.borrow() => {
                fence.open_until(until);
                leading.send_if_modified(|current| {
                    let changed = *current != Some(epoch);
                    *current = Some(epoch);
                    changed
                });
            }
            _ => fence.close(),
        }
    }
    fence.close();
    if let Some(record) = elector.release()
        && matches!(
            write(&caller, &settings, (record, &seen_holder), (&acquire_time, &wall_time())).await,
            LeaseResponse::Written(_)
        )
    {
        tracing::info!("lease released");
    }
    Ok(())
}

/// The holder of the lease that was logged last. Each holder is logged once, so that the log of a waiting manager names the
/// leader.
#[derive(Debug, Default)]
struct LoggedHolder(String);

impl LoggedHolder {
    /// Returns the holder if it has changed.
    fn update<'a>(&mut self, response: &'a LeaseResponse) -> Option<&'a str> {
        let (LeaseResponse::Found(record) | LeaseResponse::Written(record)) = response else { return None };
        let changed = !record.holder.is_empty() && record.holder != self.0;
        changed.then(|| {
            self.0.clone_from(&record.holder);
            record.holder.as_str()
        })
    }
}

fn log_holder(holder: &str, identity: &str) {
    if holder == identity {
        tracing::info!("lease acquired");
    } else {
        tracing::info!(holder, "lease held by another manager, waiting");
    }
}

/// Returns the wall clock in the format of a Lease.
fn wall_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl LeaseSettings {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Returns the path of the Lease.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

async fn read(caller: &Caller, settings: &LeaseSettings, seen: &LeaseHolder) -> LeaseResponse {
    match caller.get(&settings.path()).await {
        Ok(lease) => {
            seen.read_address(&lease);
            LeaseResponse::Found(decode(&lease))
        }
        Err(error) if error.code() == Some(404) => LeaseResponse::NotFound,
        Err(error) => log_failure(settings, &error),
    }
}

async fn write(
    caller: &Caller,
    settings: &LeaseSettings,
    (record, seen): (LeaseRecord, &LeaseHolder),
    (acquire_time, renew_time): (&str, &str),
) -> LeaseResponse {
    let collection = settings.collection();
    let body = encode(settings, &record, acquire_time, renew_time);
    let response = if record.resource_version.is_some() {
        caller.put(&format!("{collection}/{}", settings.name), &body).await
    } else {
        caller.post(&collection, &body).await
    };
    match response {
        Ok(lease) => {
            seen.read_address(&lease);
            LeaseResponse::Written(decode(&lease))
        }
        Err(error) if matches!(error.code(), Some(404 | 409)) => LeaseResponse::Conflict,
        Err(error) => log_failure(settings, &error),
    }
}

fn log_failure(settings: &LeaseSettings, error: &CallError) -> LeaseResponse {
    tracing::warn!(namespace = settings.namespace, name = settings.name, %error, "lease request failed");
    LeaseResponse::Failed
}

fn decode(lease: &Value) -> LeaseRecord {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    let spec = |field: &str| lease.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
    LeaseRecord {
        holder: text(&spec("holderIdentity")),
        duration_secs: number(&spec("leaseDurationSeconds")),
        transitions: number(&spec("leaseTransitions")),
        renew_time: text(&spec("renewTime")),
        resource_version: lease
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

fn encode(settings: &LeaseSettings, record: &LeaseRecord, acquire_time: &str, renew_time: &str) -> Value {
    let mut metadata = json!({"namespace": settings.namespace, "name": settings.name});
    if let (Some(version), Value::Object(fields)) = (&record.resource_version, &mut metadata) {
        fields.insert("resourceVersion".into(), version.as_str().into());
    }
    let own = settings.address.as_ref().filter(|_| record.holder == settings.election.identity);
    if let (Some(address), Value::Object(fields)) = (own, &mut metadata) {
        let written = json!({"holder": record.holder, "address": address}).to_string();
        fields.insert("annotations".into(), json!({ADDRESS_ANNOTATION: written}));
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_secs,
            "leaseTransitions": record.transitions,
            "acquireTime": acquire_time,
            "renewTime": renew_time,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_counts_only_if_the_holder_wrote_it() {
        let lease = |holder: &str, written: &str| json!({"metadata": {"annotations": {ADDRESS_ANNOTATION: written}}, "spec": {"holderIdentity": holder}});
        let of_a = json!({"holder": "a", "address": "10.0.0.1:8082"}).to_string();
        assert_eq!(leader_address(&lease("a", &of_a)).as_deref(), Some("10.0.0.1:8082"));
        for (holder, written) in [("b", &*of_a), ("", &*of_a), ("a", "10.0.0.1:8082"), ("a", "{}"), ("a", "")]
        {
            assert_eq!(leader_address(&lease(holder, written)), None, "{holder} {written}");
        }
        assert_eq!(leader_address(&json!({"spec": {"holderIdentity": "a"}})), None);
    }

    #[test]
    fn each_holder_is_logged_once() {
        let response = |holder: &str, written: bool| {
            let record = decode(&json!({"spec": {"holderIdentity": holder}}));
            if written { LeaseResponse::Written(record) } else { LeaseResponse::Found(record) }
        };
        let mut logged = LoggedHolder::default();
        let mut changes = Vec::new();
        for (holder, written) in
            [("other", false), ("other", false), ("", false), ("other", false), ("own", true), ("own", true)]
        {
            changes.extend(logged.update(&response(holder, written)).map(str::to_owned));
            changes.extend(logged.update(&LeaseResponse::Failed).map(str::to_owned));
        }
        assert_eq!(changes, ["other", "own"]);
    }
}
