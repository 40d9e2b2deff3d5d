//! Jobs that run although the object above them must stop, and since when that is known.
//!
//! Invariant: a job is waited for only from a time at which an object above it was not suspended. Its operator may not know the
//! newer state then, and would resume the job: a pod would start that is not charged.

use crate::lifecycle::backoff;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time within which an operator suspends what it has made, once the object itself is suspended.
const OPERATOR_TIME: SignedDuration = SignedDuration::from_secs(5);

/// The jobs by UID, with the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningChildren(BTreeMap<Arc<str>, Timestamp>);

impl RunningChildren {
    /// Returns how long a job is left to the operator above it, if it is. `above_runs` says whether an object above it is not
    /// suspended.
    pub(crate) fn left_until(
        &mut self,
        uid: &Arc<str>,
        above_runs: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if above_runs {
            self.0.entry(Arc::clone(uid)).or_insert(now);
        }
        let until = backoff::after(*self.0.get(uid)?, OPERATOR_TIME);
        (now < until).then_some(until)
    }

    /// Forgets a job that is suspended, may run, or is gone.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}
