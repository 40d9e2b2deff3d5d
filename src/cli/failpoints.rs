//! The script of a test build: files in a folder say where passes halt and whose guards are taken away.
//!
//! `NAMESPACE.NAME.MOMENT` halts a pass, and gets `NAMESPACE.NAME.MOMENT.reached` beside it when it does;
//! `NAMESPACE.NAME.unguarded` takes the guards away, `NAMESPACE.NAME.without-GUARD` one of them; `core.PID.hangs` lets the
//! core of that process hang. Never in a build that ships.

use crate::api::ObjectKey;
use crate::state::moments::{Failpoint, FailpointScript, Moments, SecondPassGuard};
use std::path::PathBuf;
use std::sync::Arc;

/// Names the folder.
const DIR_ENV_VAR: &str = "SLUICE_MOMENTS";

#[derive(Debug)]
struct FailpointDir(PathBuf);

impl FailpointDir {
    fn file(&self, workload: &ObjectKey, what: &str) -> PathBuf {
        self.0.join(format!("{}.{}.{what}", workload.namespace, workload.name))
    }
}

impl FailpointScript for FailpointDir {
    fn halts(&self, workload: &ObjectKey, moment: Failpoint) -> bool {
        let halts = self.file(workload, moment.as_str()).exists();
        if halts {
            let reached = self.file(workload, &format!("{}.reached", moment.as_str()));
            // A test that does not see it fails by itself.
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

/// Hangs for good where the folder has a file `core.PID.hangs`: as a deadlock would.
pub(super) fn hang_if_requested() {
    let Some(folder) = std::env::var_os(DIR_ENV_VAR) else { return };
    if PathBuf::from(folder).join(format!("core.{}.hangs", std::process::id())).exists() {
        tracing::warn!("the core hangs, as it was told");
        loop {
            std::thread::park();
        }
    }
}

/// What the folder says, if one is named.
pub(super) fn from_env() -> Moments {
    let folder = std::env::var_os(DIR_ENV_VAR);
    Moments(folder.map(|folder| -> Arc<dyn FailpointScript> { Arc::new(FailpointDir(folder.into())) }))
}
