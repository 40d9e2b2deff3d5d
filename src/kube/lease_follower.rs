//! Reads the Lease of the election without taking part: which replica leads, its address, and whether any replica leads at all.
//!
//! Invariants: the Lease is only read; "no replica leads" is reported only while the Lease itself can be read, because an API
//! server that does not answer proves nothing about the leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::Caller;
use super::lease::LeaseHolder;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(3);
/// Time after the end of a Lease from which on no replica leads: a change of the leader takes a few seconds.
const HANDOVER: Duration = Duration::from_secs(10);
/// Age of the last read from which on the state is unknown.
const MAX_AGE: Duration = Duration::from_secs(10);

/// State of the Lease at the last read.
#[derive(Debug, Default)]
pub struct LeaseFollower(Mutex<Option<Seen>>);

#[derive(Debug)]
struct Seen {
    holder: String,
    renewed: String,
    /// Duration of a renewal, from the Lease.
    duration: Duration,
    /// Time of the last observed renewal, or of the first read.
    last_change: Instant,
    read_at: Instant,
}

impl LeaseFollower {
    /// Returns whether no replica leads; false if it is not known.
    pub fn is_leaderless(&self) -> bool {
        self.is_leaderless_at(Instant::now())
    }

    fn is_leaderless_at(&self, now: Instant) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().is_some_and(|seen| {
            let is_current = now.saturating_duration_since(seen.read_at) < MAX_AGE;
            is_current && now.saturating_duration_since(seen.last_change) > seen.duration + HANDOVER
        })
    }

    /// Stores the result of a read; `None` if there is no Lease. Returns the holder if it has changed.
    fn store(&self, lease: Option<&Value>, now: Instant) -> Option<String> {
        let text = |pointer: &str| {
            let found = lease.and_then(|lease| lease.pointer(pointer));
            found.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (holder, renewed) = (text("/spec/holderIdentity"), text("/spec/renewTime"));
        let seconds = lease.and_then(|lease| lease.pointer("/spec/leaseDurationSeconds"));
        let duration = Duration::from_secs(seconds.and_then(Value::as_u64).unwrap_or(15));
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.as_ref();
        // The clock of the holder may differ: only a change of the renew time proves that it is alive.
        let is_renewed = !holder.is_empty() && before.is_none_or(|before| before.renewed != renewed);
        let last_change = before.filter(|_| !is_renewed).map_or(now, |before| before.last_change);
        let has_changed = !holder.is_empty() && before.is_none_or(|before| before.holder != holder);
        let changed = has_changed.then(|| holder.clone());
        *seen = Some(Seen { holder, renewed, duration, last_change, read_at: now });
        changed
    }

    /// Reads the Lease at this path periodically, and stores its holder and address in `holder`, if given. Never returns.
    pub async fn follow(self: Arc<Self>, caller: Caller, path: String, holder: Option<Arc<LeaseHolder>>) {
        loop {
            let read = match caller.get(&path).await {
                Ok(lease) => Some(Some(lease)),
                Err(error) if error.code() == Some(404) => Some(None),
                Err(error) => {
                    tracing::debug!(%error, path, "the Lease cannot be read");
                    None
                }
            };
            if let Some(lease) = read {
                let changed = self.store(lease.as_ref(), Instant::now());
                if let Some(holder) = &holder {
                    if let Some(name) = changed {
                        tracing::info!(holder = name, "another replica leads");
                        holder.set(&name);
                    }
                    holder.read_address(&lease.unwrap_or_default());
                }
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unrenewed_lease_has_no_leader() {
        let (follower, start) = (LeaseFollower::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let lease = |holder: &str, renewed: &str| json!({"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}});
        assert!(!follower.is_leaderless_at(start), "nothing is known yet");
        assert_eq!(follower.store(Some(&lease("a", "1")), start).as_deref(), Some("a"));
        assert_eq!(follower.store(Some(&lease("a", "2")), after(20)), None);
        assert!(!follower.is_leaderless_at(after(20)));
        follower.store(Some(&lease("a", "2")), after(44));
        assert!(!follower.is_leaderless_at(after(44)), "it may still be taken over");
        follower.store(Some(&lease("a", "2")), after(47));
        assert!(follower.is_leaderless_at(after(47)));
        assert!(!follower.is_leaderless_at(after(58)), "the API server does not answer: nothing is known");
        assert_eq!(follower.store(Some(&lease("b", "3")), after(60)).as_deref(), Some("b"));
        assert!(!follower.is_leaderless_at(after(60)));
    }

    #[test]
    fn released_or_deleted_lease_has_no_leader_after_handover() {
        let (follower, start) = (LeaseFollower::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let released = json!({"spec": {"holderIdentity": "", "renewTime": "1", "leaseDurationSeconds": 1}});
        for lease in [Some(&released), None] {
            let follower = LeaseFollower::default();
            assert_eq!(follower.store(lease, start), None);
            follower.store(lease, after(26));
            assert!(follower.is_leaderless_at(after(26)));
        }
        follower.store(None, start);
        assert!(!follower.is_leaderless_at(after(5)));
    }
}
