//! Threads of the manager.
//!
//! Invariants: work for clients (handshakes, reviews, scrapes) runs on threads of its own, so that no client delays a watch, a
//! write or a renewal of the lease; the lease has a thread that nothing else uses, so that neither a long list nor a burst of
//! writes delays a renewal; probes have one too, so that a flood of reviews does not look like a process that hangs. The core
//! starts its own thread.

use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

/// Threads for watches and calls. Tasks take microseconds: waking further threads would cost more than they gain.
const API_THREADS: usize = 1;
/// Threads that serve webhooks and metrics.
const SERVE_THREADS: usize = 2;
/// Threads that render pages of the dashboard.
const DASHBOARD_THREADS: usize = 2;

/// One runtime for each kind of work.
pub(super) struct Threads {
    /// Watches, writes, events, certificates.
    pub(super) api: Runtime,
    /// Webhooks and metrics.
    pub(super) serve: Runtime,
    /// The dashboard, so that browsers delay no webhook.
    pub(super) dashboard: Runtime,
    /// Liveness and readiness.
    pub(super) probes: Runtime,
    /// The lease, and the watchdog.
    pub(super) lease: Runtime,
}

impl Threads {
    pub(super) fn start() -> anyhow::Result<Self> {
        Ok(Self {
            api: runtime("api", API_THREADS)?,
            serve: runtime("serve", SERVE_THREADS)?,
            dashboard: runtime("dashboard", DASHBOARD_THREADS)?,
            probes: runtime("probes", 1)?,
            lease: runtime("lease", 1)?,
        })
    }

    /// Stops all threads. Tasks must have been ended or aborted before.
    pub(super) fn shutdown(self) {
        for runtime in [self.serve, self.dashboard, self.probes, self.lease, self.api] {
            runtime.shutdown_timeout(Duration::from_millis(50));
        }
    }
}

fn runtime(name: &'static str, threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build();
    runtime.with_context(|| format!("threads of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::client::Caller;
    use crate::kube::heartbeat::Heartbeats;
    use crate::kube::lease::{ElectionTask, Fence, LeaseSettings, run_election};
    use crate::lifecycle::lease::ElectionSettings;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};
    use tokio::sync::watch;

    /// Returns a client of a fake API server that stores one Lease and counts its writes.
    fn server(writes: &Arc<AtomicU64>) -> kube::Client {
        let (writes, stored) = (Arc::clone(writes), Arc::new(Mutex::new(None::<Value>)));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (writes, stored) = (Arc::clone(&writes), Arc::clone(&stored));
            async move {
                let (parts, body) = request.into_parts();
                let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
                let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
                if parts.method != http::Method::GET {
                    let mut lease: Value = serde_json::from_slice(&bytes)?;
                    let version = writes.fetch_add(1, Ordering::SeqCst) + 1;
                    lease["metadata"]["resourceVersion"] = json!(version.to_string());
                    *stored = Some(lease);
                }
                let missing =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                let code = if stored.is_some() { 200 } else { 404 };
                let body = serde_json::to_vec(stored.as_ref().unwrap_or(&missing))?;
                let response = http::Response::builder().status(code).body(Body::from(body))?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    #[test]
    fn lease_is_renewed_when_other_threads_block() {
        let threads = Threads::start().unwrap();
        // Locked for the whole test, so that each task blocks a thread.
        let gate = Arc::new(Mutex::new(()));
        let gate_guard = gate.lock().unwrap();
        for (runtime, number) in [
            (&threads.serve, SERVE_THREADS),
            (&threads.dashboard, DASHBOARD_THREADS),
            (&threads.probes, 1),
            (&threads.api, API_THREADS),
        ] {
            for _ in 0..number {
                let gate = Arc::clone(&gate);
                runtime.spawn(async move { drop(gate.lock()) });
            }
        }
        let writes = Arc::new(AtomicU64::new(0));
        let client = {
            let _runtime = threads.lease.enter();
            server(&writes)
        };
        let election = ElectionSettings {
            identity: "a".to_owned(),
            lease_duration: Duration::from_mins(2),
            renew_deadline: Duration::from_mins(1),
            retry_period: Duration::from_millis(20),
        };
        let settings =
            LeaseSettings { namespace: "ns".to_owned(), name: "lease".to_owned(), election, address: None };
        let (fence, (leading, _led), (_stop, stopped)) =
            (Fence::default(), watch::channel(None), watch::channel(false));
        let core = fence.heartbeat("core");
        let heartbeats = Heartbeats::new([core.clone()]);
        let caller = Caller::new(client, Duration::from_secs(30));
        let task = ElectionTask {
            caller,
            settings,
            fence: fence.clone(),
            heartbeats,
            leading,
            holder: Arc::default(),
        };
        let task = run_election(task, stopped);
        let watching = async {
            while writes.load(Ordering::SeqCst) < 5 {
                core.beat();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        threads.lease.block_on(async {
            tokio::select! {
                ended = task => panic!("the election ended: {ended:?}"),
                renewed = tokio::time::timeout(Duration::from_mins(1), watching) => renewed.expect("renewals"),
            }
        });
        assert!(fence.is_open());
        drop(gate_guard);
        threads.shutdown();
    }
}
