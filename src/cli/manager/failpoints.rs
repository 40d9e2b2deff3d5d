//! The failpoint script of tests: files in a directory define where second passes halt and which guards are
//! disabled.
//!
//! `NAMESPACE.NAME.FAILPOINT` halts the second pass of a Workload; the file `NAMESPACE.NAME.FAILPOINT.reached` is created when
//! it halts. `NAMESPACE.NAME.unguarded` disables all guards, `NAMESPACE.NAME.without-GUARD` one of them. `core.PID.hangs` makes
//! the core of that process hang, `core.PID.drifts` makes it publish ledger drift, `core.PID.history-drifts` drift of its
//! history, and `core.PID.drops-wakeups` makes parked workloads miss their wake-ups. Invariant: without debug assertions, which
//! no released build has, nothing is read.

use crate::api::ObjectKey;
use crate::history::HistoryStats;
use crate::reconciler::failpoints::{Failpoint, FailpointScript, Failpoints, SecondPassGuard};
use crate::snapshot::Snapshot;
use std::path::PathBuf;
use std::sync::Arc;

/// Path of the directory.
const DIR_ENV_VAR: &str = "SLUICE_FAILPOINTS";

/// Returns the directory of the script; `None` in a released build.
fn folder() -> Option<PathBuf> {
    if cfg!(debug_assertions) { std::env::var_os(DIR_ENV_VAR).map(PathBuf::from) } else { None }
}

#[derive(Debug)]
struct FailpointDir(PathBuf);

impl FailpointDir {
    fn file(&self, workload: &ObjectKey, what: &str) -> PathBuf {
        self.0.join(format!("{}.{}.{what}", workload.namespace, workload.name))
    }
}

impl FailpointScript for FailpointDir {
    fn halts(&self, workload: &ObjectKey, failpoint: Failpoint) -> bool {
        let halts = self.file(workload, failpoint.as_str()).exists();
        if halts {
            let reached = self.file(workload, &format!("{}.reached", failpoint.as_str()));
            // If the write fails, the waiting test fails.
            let _ = std::fs::write(reached, "");
        }
        halts
    }

    fn is_unguarded(&self, workload: &ObjectKey) -> bool {
        self.file(workload, "unguarded").exists()
    }

    fn is_guard_disabled(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool {
        self.file(workload, &format!("without-{}", guard.as_str())).exists()
    }
}

/// Returns whether the directory contains the file `core.PID.WHAT`.
fn is_core_requested(what: &str) -> bool {
    folder().is_some_and(|folder| folder.join(format!("core.{}.{what}", std::process::id())).exists())
}

/// Blocks forever, like a deadlock, if the directory contains a file `core.PID.hangs`.
pub(super) fn hang_if_requested() {
    if is_core_requested("hangs") {
        tracing::warn!("failpoint: the core blocks forever");
        loop {
            std::thread::park();
        }
    }
}

/// Returns the snapshot to publish: with ledger drift if the directory contains a file `core.PID.drifts`, and with drift of the
/// history if it contains a file `core.PID.history-drifts`.
pub(super) fn with_requested_drift(mut snapshot: Snapshot) -> Snapshot {
    if is_core_requested("drifts") {
        snapshot.ledger_drift = 1;
    }
    if is_core_requested("history-drifts") {
        snapshot.history = Arc::new(HistoryStats { drift: 1, ..(*snapshot.history).clone() });
    }
    snapshot
}

/// Returns whether parked workloads miss their wake-ups: while the directory contains a file `core.PID.drops-wakeups`.
pub(super) fn wakeups_are_dropped() -> bool {
    is_core_requested("drops-wakeups")
}

/// Returns the script of the directory in the environment variable, if it is set.
pub(super) fn from_env() -> Failpoints {
    Failpoints(folder().map(|folder| -> Arc<dyn FailpointScript> { Arc::new(FailpointDir(folder)) }))
}
