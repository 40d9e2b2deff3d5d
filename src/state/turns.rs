//! Workloads whose next write waits for room among those under way: what it says is decided only when its turn comes,
//! on the newest object, so that no write is overtaken while it waits.
//!
//! The order: first what admits or evicts, then what ends, since quota that is free already is worth more than quota that
//! will be; then what is left to do of those that have ended; last those in the queue, who can only be told why they wait.
//! Of one sort the more important Workload comes first, then whoever asked first.

use super::State;
use super::interface::Kind;
use super::records::WorkloadRecord;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::conditions;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a write is for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    /// It admits, evicts, or lets go of quota for somebody else.
    Moves,
    /// Its job has ended, and its quota is to be given back.
    Ends,
    /// It has ended.
    Ended,
    /// It can only be told why it waits.
    Waits,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    sort: Sort,
    priority: Reverse<i64>,
    number: u64,
}

/// The line.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    next: u64,
    line: BTreeMap<Rank, ObjectKey>,
    places: BTreeMap<ObjectKey, Rank>,
    /// Those of them of whom the scheduler has decided that they are admitted or evicted.
    decided: BTreeSet<ObjectKey>,
}

impl Turns {
    /// Lines a Workload up. One that stands there already keeps its time, wherever it belongs by now.
    fn push(&mut self, key: &ObjectKey, sort: Sort, priority: i64, decided: bool) {
        if decided {
            self.decided.insert(key.clone());
        } else {
            self.decided.remove(key);
        }
        let known = self.places.get(key).copied();
        let number = known.map_or(self.next, |rank| rank.number);
        let rank = Rank { sort, priority: Reverse(priority), number };
        if known == Some(rank) {
            return;
        }
        match known {
            Some(old) => drop(self.line.remove(&old)),
            None => self.next = self.next.saturating_add(1),
        }
        self.places.insert(key.clone(), rank);
        self.line.insert(rank, key.clone());
    }

    /// The first in the line.
    fn pop(&mut self) -> Option<ObjectKey> {
        let (_, key) = self.line.pop_first()?;
        self.places.remove(&key);
        self.decided.remove(&key);
        Some(key)
    }

    /// The first of those who can only be told why they wait.
    fn waiting(&self) -> Option<&ObjectKey> {
        let first = Rank { sort: Sort::Waits, priority: Reverse(i64::MAX), number: 0 };
        self.line.range(first..).next().map(|(_, key)| key)
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(rank) = self.places.remove(key) {
            self.line.remove(&rank);
            self.decided.remove(key);
        }
    }

    /// Whether somebody stands in line who can only be told why it waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// Nobody stands in line any more.
    pub(super) fn clear(&mut self) {
        self.line.clear();
        self.places.clear();
        self.decided.clear();
    }
}

impl State {
    /// Lines a Workload up for its next write.
    pub(super) fn line_up(&mut self, key: &ObjectKey) {
        let own = || self.workloads.get(key).map_or(0, |record| i64::from(record.priority));
        let preemption = self.engine.preemption_of(key);
        let decided = preemption.is_some() || self.assumed.contains_key(key);
        // A victim goes for the sake of another.
        let preemptor = preemption.and_then(|found| {
            let record = self.workloads.get(&found.preemptor)?;
            Some(i64::from(record.priority))
        });
        self.turns.push(key, self.sort(key), preemptor.unwrap_or_else(own), decided);
    }

    fn sort(&self, key: &ObjectKey) -> Sort {
        if self.assumed.contains_key(key) {
            return Sort::Moves;
        }
        if self.engine.workload(key).is_some() {
            return Sort::Waits;
        }
        match self.workloads.get(key) {
            Some(record) if conditions::is_true(&record.status, ConditionType::Finished) => Sort::Ended,
            Some(record) if self.job_is_over(record) => Sort::Ends,
            _ => Sort::Moves,
        }
    }

    fn job_is_over(&self, record: &WorkloadRecord) -> bool {
        let id = record.owner.as_ref().and_then(|owner| self.job_by_uid.get(&owner.uid));
        id.and_then(|id| self.jobs.get(id)).is_some_and(|job| job.status.finished.is_some())
    }

    /// How many more decisions there will soon be room to write: none while more than half of what may be under way at a time
    /// stands in line decided, and else as many as fill the line up to that.
    pub(super) fn decisions_wanted(&self) -> usize {
        let Some(limit) = self.settings.status_writes_at_once else { return usize::MAX };
        let line = self.turns.decided.len();
        if line > limit / 2 { 0 } else { limit.saturating_sub(line) }
    }

    /// Takes the next steps of Workloads as long as there is room for their writes. One explanation may be under way
    /// besides: however much there is to write, those who wait are told why in the end.
    pub(super) fn take_turns(&mut self, now: Timestamp) {
        while self.writes.room(self.settings.status_writes_at_once) > 0 {
            let Some(key) = self.turns.pop() else { return };
            self.take_turn(&key, now);
        }
        while self.writes.explanations() == 0 {
            let Some(key) = self.turns.waiting().cloned() else { return };
            self.turns.remove(&key);
            self.take_turn(&key, now);
        }
    }

    fn take_turn(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.writes.may_write(Kind::Workload, key, now) {
            self.step_workload(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_admits_comes_first_those_who_wait_last_and_nobody_loses_time_by_asking_again() {
        let mut turns = Turns::default();
        let key = |name: &str| ObjectKey::new("ns", name);
        for (name, sort, priority) in [
            ("told", Sort::Waits, 9),
            ("ended", Sort::Ended, 9),
            ("ends", Sort::Ends, 9),
            ("a", Sort::Moves, 0),
            ("b", Sort::Moves, 0),
            ("high", Sort::Moves, 5),
        ] {
            turns.push(&key(name), sort, priority, false);
        }
        turns.push(&key("a"), Sort::Moves, 0, true);
        turns.push(&key("told"), Sort::Moves, 0, false);
        turns.push(&key("last"), Sort::Waits, 9, true);
        assert_eq!(turns.waiting(), Some(&key("last")));
        turns.remove(&key("last"));
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["high", "told", "a", "b", "ends", "ended"]);
        assert!(turns.places.is_empty() && turns.decided.is_empty());
    }
}
