//! Writes that the API server refuses again and again, for an alert.
//!
//! A single refusal is normal: the rules of a Job depend on what its controller has done by then. Invariant: the number of
//! entries is bounded, and an entry ends when a write of the same kind succeeds, when its object is deleted, or when it is no
//! longer repeated.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::api::ObjectKey;
use crate::reconciler::WriteOutcome;

/// Maximum number of entries; further refusals are counted, but their age is not known.
const MAX_ENTRIES: usize = 1_000;
/// A refused write is repeated at least once a minute, so one that was not repeated for longer was given up.
const MAX_SILENCE: Duration = Duration::from_mins(3);

/// A kind of writes: resource with subresource, and verb.
pub type WriteKind = (String, &'static str);

/// Refused writes by kind and object.
#[derive(Debug, Default)]
pub struct RefusedWrites(Mutex<BTreeMap<(WriteKind, ObjectKey), Refusal>>);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    code: u16,
    first: Duration,
    last: Duration,
}

impl RefusedWrites {
    /// Records the outcome of a write at a time since the process began.
    pub fn record(&self, kind: WriteKind, object: &ObjectKey, outcome: &WriteOutcome, now: Duration) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, object.clone());
        match outcome {
            WriteOutcome::Done(_) | WriteOutcome::NotFound => drop(entries.remove(&key)),
            WriteOutcome::Rejected { code, .. } => {
                entries.retain(|_, refusal| !has_ended(refusal, now));
                let first = entries.get(&key).map(|refusal| refusal.first);
                if first.is_some() || entries.len() < MAX_ENTRIES {
                    let refusal = Refusal { code: *code, first: first.unwrap_or(now), last: now };
                    entries.insert(key, refusal);
                }
            }
            WriteOutcome::Conflict | WriteOutcome::Unavailable { .. } => {}
        }
    }

    /// Returns by kind of write and HTTP status how long the oldest refusal has lasted.
    pub fn ages(&self, now: Duration) -> BTreeMap<(WriteKind, u16), Duration> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ages: BTreeMap<(WriteKind, u16), Duration> = BTreeMap::new();
        for ((kind, _), refusal) in entries.iter().filter(|(_, refusal)| !has_ended(refusal, now)) {
            let age = ages.entry((kind.clone(), refusal.code)).or_default();
            *age = (*age).max(now.saturating_sub(refusal.first));
        }
        ages
    }
}

fn has_ended(refusal: &Refusal, now: Duration) -> bool {
    now.saturating_sub(refusal.last) > MAX_SILENCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn refused(code: u16) -> WriteOutcome {
        WriteOutcome::Rejected { code, message: String::new() }
    }

    fn kind() -> WriteKind {
        ("jobs".to_owned(), "merge")
    }

    #[test]
    fn age_counts_from_first_refusal_until_success() {
        let (writes, job) = (RefusedWrites::default(), ObjectKey::new("ns", "a"));
        let at = Duration::from_secs;
        let record = |outcome: &WriteOutcome, second| writes.record(kind(), &job, outcome, at(second));
        let age = |second, code| writes.ages(at(second)).get(&(kind(), code)).copied();
        record(&refused(422), 10);
        record(&WriteOutcome::Conflict, 20);
        record(&WriteOutcome::Unavailable { message: String::new() }, 30);
        record(&refused(403), 40);
        assert_eq!((age(50, 403), age(50, 422)), (Some(at(40)), None), "the status is the latest");
        writes.record(("jobs".to_owned(), "apply"), &job, &WriteOutcome::Done(Value::Null), at(50));
        assert_eq!(age(50, 403), Some(at(40)), "another kind of write has succeeded");
        record(&WriteOutcome::Done(Value::Null), 60);
        assert_eq!(writes.ages(at(60)).len(), 0);
        record(&refused(403), 70);
        assert_eq!(age(75, 403), Some(at(5)));
        record(&WriteOutcome::NotFound, 80);
        assert_eq!(writes.ages(at(80)).len(), 0);
    }

    #[test]
    fn refusal_that_is_not_repeated_ends() {
        let (writes, job) = (RefusedWrites::default(), ObjectKey::new("ns", "a"));
        writes.record(kind(), &job, &refused(403), Duration::ZERO);
        assert_eq!(writes.ages(MAX_SILENCE).len(), 1);
        assert_eq!(writes.ages(MAX_SILENCE + Duration::from_secs(1)).len(), 0);
        // A later refusal begins again.
        let later = 2 * MAX_SILENCE;
        writes.record(kind(), &job, &refused(403), later);
        assert_eq!(writes.ages(later).get(&(kind(), 403)), Some(&Duration::ZERO));
    }

    #[test]
    fn number_of_entries_is_bounded() {
        let writes = RefusedWrites::default();
        for number in 0..2 * MAX_ENTRIES {
            writes.record(kind(), &ObjectKey::new("ns", &number.to_string()), &refused(403), Duration::ZERO);
        }
        assert_eq!(writes.0.lock().unwrap().len(), MAX_ENTRIES);
        // Known ones are still updated.
        writes.record(kind(), &ObjectKey::new("ns", "0"), &refused(422), Duration::from_secs(1));
        assert_eq!(writes.ages(Duration::from_secs(1)).len(), 2);
    }
}
