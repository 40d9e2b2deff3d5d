//! Findings as lists, computed at most once a minute.
//!
//! Invariant: readers who do not see the cluster get findings that were made for such readers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::findings;
use crate::visibility::page::ModelError;
use crate::visibility::views::Finding;

/// How long findings are used.
const FINDINGS_TTL: Duration = Duration::from_mins(1);

/// The findings of the last audit.
#[derive(Clone)]
pub struct Audit {
    /// When they were made.
    pub checked_at: Timestamp,
    /// All of them.
    pub findings: Arc<[Finding]>,
}

/// The last audits: for readers of the cluster, and for others.
#[derive(Default)]
pub struct AuditCache(Mutex<[Option<(Instant, Audit)>; 2]>);

impl AuditCache {
    /// Returns the findings for readers like this one, not yet those that it may see.
    ///
    /// # Errors
    /// The lists are not complete.
    pub fn get(&self, snapshot: &Snapshot, sees_cluster: bool) -> Result<Audit, ModelError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [cluster, others] = &mut *kept;
        let slot = if sees_cluster { cluster } else { others };
        if let Some((_, audit)) = slot.as_ref().filter(|(made, _)| made.elapsed() < FINDINGS_TTL) {
            return Ok(audit.clone());
        }
        let access = Access { cluster: sees_cluster, all_namespaces: true, ..Access::default() };
        let found = findings::findings(snapshot, &access, None)?;
        let audit = Audit { checked_at: Timestamp::now(), findings: found.into() };
        *slot = Some((Instant::now(), audit.clone()));
        Ok(audit)
    }
}
