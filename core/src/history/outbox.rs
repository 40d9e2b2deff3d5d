//! Entries for a durable record: how each run begins, changes and ends, all records, and what each ClusterQueue used and borrowed
//! in each hour.
//!
//! Invariants: entries are in the order of their observation; without a recorder none is stored; a run that was open when the
//! earlier recorder ended is followed as if its process had never stopped, so that the conditions of the object give its end; a
//! time of that process that lies ahead, because its clock did, counts as now.

use super::filling::Filling;
use super::names::Names;
use super::observe::DELETED;
use super::record::{Amounts, FinishEvent, Record, RecordEvent, RecordKey, RecordKind, Run, Subject};
use super::ring::Ring;
use super::seen::millis;
use super::series::{HOUR, Millis};
use super::series_set::Measure;
use super::tracked::{OpenRun, Phase, Sums, Tracked};
use super::usage_scan::{by_hour, hour_of};
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

/// Delay from the end of an hour until it is closed: by then its events have been observed, unless a watch hangs.
const CLOSING_DELAY: Millis = HOUR / 60;

/// Amounts by flavor-resource.
pub type NamedAmounts = Vec<(FlavorResource, i64)>;

/// An entry for a durable record. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The first lists are complete.
    Began {
        /// When.
        at: i64,
        /// Number of runs that had ended before at a time that no object shows.
        unknown_ends: u64,
        /// Start and end of the time without a recorder that the memory of another process covered; `None` without one.
        filled: Option<(i64, i64)>,
    },
    /// A run began.
    Opened(Box<RunState>),
    /// The amounts of a run changed.
    Resized {
        /// UID of its Workload.
        uid: Arc<str>,
        /// When.
        at: i64,
        /// The new amounts.
        amounts: NamedAmounts,
    },
    /// The Workload of a run was evicted; it keeps its quota until its pods have stopped.
    Evicted {
        /// UID of the Workload.
        uid: Arc<str>,
        /// When.
        at: i64,
        /// Reason of the condition.
        reason: Arc<str>,
        /// Whether it was preempted.
        preempted: bool,
    },
    /// A run ended.
    Ended {
        /// UID of its Workload.
        uid: Arc<str>,
        /// When.
        at: i64,
        /// How it ended. An eviction has an entry of its own before.
        end: RunEnd,
        /// Whether the end is known from the memory of another process alone.
        filled: bool,
    },
    /// A record was made, or completed, with the amounts of its run.
    Record(Arc<Record>, NamedAmounts),
    /// A record that fills a time without a recorder. Its run, if it has one, has no other entries.
    Filled(Arc<Record>, NamedAmounts),
    /// An hour ended.
    Hour {
        /// Start of the hour.
        start: i64,
        /// Used and borrowed amounts by ClusterQueue and flavor-resource.
        queues: Vec<QueueHour>,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The Workload finished: the record of its end has the run.
    Finished,
    /// The Workload was deleted: the record of its end has the run.
    Deleted,
    /// The quota of an evicted Workload was released: the record of the eviction has the run.
    Released,
    /// Any other end, such as a slice that takes over: the run gets a record of its own.
    Other,
}

/// A run that has not ended, with all that a later process needs to follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// UID of the Workload.
    pub uid: Arc<str>,
    /// The Workload.
    pub workload: Subject,
    /// When the run began, in milliseconds since the epoch.
    pub start: i64,
    /// When quota was reserved. It is earlier than the start if the Workload was not charged in between.
    pub reserved_at: i64,
    /// Amounts, as the ledger charges them.
    pub amounts: NamedAmounts,
    /// When the Workload was evicted in this run, if it was.
    pub evicted_at: Option<i64>,
    /// Number of evictions.
    pub evictions: u32,
    /// Number of waits since the last eviction.
    pub waits: u32,
    /// Sums over the ended episodes.
    pub sums: Sums,
}

/// What a ClusterQueue used of a flavor-resource in an hour, in units × milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueHour {
    /// The ClusterQueue.
    pub cluster_queue: Arc<str>,
    /// The flavor-resource.
    pub flavor_resource: FlavorResource,
    /// Used.
    pub used: i128,
    /// Used above the nominal quota.
    pub borrowed: i128,
}

/// Entries for the recorder, and the runs of an earlier process.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    pub(super) on: bool,
    /// Whether the first lists are complete.
    begun: bool,
    entries: Vec<Entry>,
    /// Runs that an earlier process left open, until the first observation.
    pub(super) left: Vec<RunState>,
    /// UIDs of the runs that an earlier process left open.
    restored: BTreeSet<Arc<str>>,
    /// Restored runs whose object has not been observed yet.
    unseen: BTreeMap<Arc<str>, Subject>,
    /// Until when the earlier process recorded.
    pub(super) until: Millis,
    /// What fills the time since then, until the first lists are complete.
    pub(super) filling: Filling,
    /// Start of the last hour that was closed.
    closed: Option<Millis>,
}

impl Outbox {
    /// Records that the object of a Workload was observed.
    pub(super) fn see(&mut self, uid: &str) {
        if !self.unseen.is_empty() {
            self.unseen.remove(uid);
        }
    }

    /// Returns whether an earlier process left a run of this Workload: changes in the first lists then happened while nothing was
    /// recorded.
    pub(super) fn follows(&self, uid: &str) -> bool {
        !self.restored.is_empty() && self.restored.contains(uid)
    }

    /// Returns from when on a run of the first lists counts. A run that an earlier process did not leave open was not charged
    /// before that process ended.
    pub(super) fn counted_from(&self, uid: &str, start: Millis) -> Millis {
        let listing = self.on && !self.begun && !self.follows(uid);
        if listing { start.max(self.until) } else { start }
    }

    /// Adds an entry, if there is a recorder.
    pub(super) fn add(&mut self, entry: impl FnOnce() -> Entry) {
        if self.on {
            self.entries.push(entry());
        }
    }
}

impl Ring {
    /// Begins to keep entries, with the runs that an earlier process left open and the time until which it recorded. It must be
    /// called before anything is observed.
    pub fn record(&mut self, left: Vec<RunState>, until: Option<Timestamp>) {
        if !self.is_enabled() {
            return;
        }
        self.outbox.on = true;
        self.outbox.until = until.map_or(Millis::MIN, millis);
        self.outbox.left = left;
    }

    /// Takes over what an earlier process left, at the first time that is known.
    pub(super) fn restore_left(&mut self) {
        if !self.outbox.begun {
            self.outbox.until = self.outbox.until.min(self.now);
        }
        self.fill_from_memory();
        for run in mem::take(&mut self.outbox.left) {
            self.restore(run);
        }
    }

    fn restore(&mut self, left: RunState) {
        let queue = self.names.queue(&left.workload.cluster_queue);
        let amounts = self.numbered(left.amounts.iter().map(|(fr, amount)| (fr, *amount)));
        self.usage.add(queue, &amounts, 1, (&mut self.series, self.now));
        self.outbox.restored.insert(Arc::clone(&left.uid));
        self.outbox.unseen.insert(Arc::clone(&left.uid), left.workload.clone());
        let tracked = Tracked {
            key: left.workload.key.clone(),
            queue,
            priority: left.workload.priority,
            evictions: left.evictions,
            waits: left.waits,
            reserved_at: left.reserved_at,
            evicted_at: left.evicted_at.unwrap_or(Millis::MIN),
            phase: Phase::Running(Arc::new(OpenRun {
                workload: left.workload,
                start: left.start.min(self.now),
                amounts,
                evicted: left.evicted_at.is_some(),
            })),
            sums: (left.sums != Sums::default()).then(|| Box::new(left.sums)),
        };
        self.put(&left.uid, tracked);
    }

    /// Returns amounts with the numbers of flavor-resources.
    pub(super) fn numbered<'a>(
        &mut self,
        amounts: impl IntoIterator<Item = (&'a FlavorResource, i64)>,
    ) -> Amounts {
        let number = |(fr, amount)| (self.names.flavor_resource(fr), amount);
        let mut amounts: Vec<(u32, i64)> = amounts.into_iter().map(number).collect();
        amounts.sort_unstable();
        Arc::from(amounts)
    }

    /// Ends the runs of an earlier process whose objects no longer exist. The time of their end is unknown: they count until the
    /// earlier process recorded last.
    pub(super) fn end_unseen(&mut self) {
        let unseen = mem::take(&mut self.outbox.unseen);
        let (filled, unknown_ends) = mem::take(&mut self.outbox.filling).result();
        let unknown_ends = unknown_ends.saturating_add(u64::try_from(unseen.len()).unwrap_or(u64::MAX));
        for (uid, subject) in unseen {
            self.end_lost(&uid, subject);
        }
        self.outbox.restored.clear();
        self.outbox.begun = true;
        let at = self.now;
        self.outbox.add(|| Entry::Began { at, unknown_ends, filled });
    }

    fn end_lost(&mut self, uid: &Arc<str>, workload: Subject) {
        let Some(mut tracked) = self.take(uid) else { return };
        let Phase::Running(run) = mem::take(&mut tracked.phase) else { return };
        self.usage.add(tracked.queue, &run.amounts, -1, (&mut self.series, self.now));
        let at = self.outbox.until.max(run.start);
        let sums = tracked.sums.as_deref().copied().unwrap_or_default();
        self.outbox.add(|| Entry::Ended { uid: Arc::clone(uid), at, end: RunEnd::Deleted, filled: false });
        let event = RecordEvent::Finish(FinishEvent {
            at,
            result: self.names.text(DELETED),
            attempts: sums.runs.saturating_add(1).max(tracked.evictions),
            waited: sums.waited,
            ran: sums.ran.saturating_add(at.saturating_sub(run.start)),
            lost: sums.lost,
            run: Some(Run { start: run.start, amounts: Arc::clone(&run.amounts) }),
        });
        let key =
            RecordKey { uid: Arc::clone(uid), kind: RecordKind::Finish, attempt: tracked.evictions, part: 0 };
        self.keep(Record { key, seeded: false, filled: false, workload, event });
    }

    /// Adds a record to the log, and to the entries.
    pub(super) fn keep(&mut self, record: Record) {
        if self.outbox.on {
            let record = Arc::new(record.clone());
            let amounts = self.names.named(amounts_of(&record));
            self.outbox.entries.push(Entry::Record(record, amounts));
        }
        self.log.add(record);
    }

    /// Adds an entry for a record that was completed.
    pub(super) fn add_completed(&mut self, key: &RecordKey) {
        if self.outbox.on
            && let Some(record) = self.log.get(key).cloned()
        {
            let amounts = self.names.named(amounts_of(&record));
            self.outbox.entries.push(Entry::Record(Arc::new(record), amounts));
        }
    }

    /// Adds an entry for a run that began.
    pub(super) fn add_opened(&mut self, uid: &Arc<str>, tracked: &Tracked, run: &OpenRun) {
        let Self { names, outbox, .. } = self;
        outbox.add(|| {
            Entry::Opened(Box::new(RunState {
                uid: Arc::clone(uid),
                workload: run.workload.clone(),
                start: run.start,
                reserved_at: tracked.reserved_at,
                amounts: names.named(&run.amounts),
                evicted_at: None,
                evictions: tracked.evictions,
                waits: tracked.waits,
                sums: tracked.sums.as_deref().copied().unwrap_or_default(),
            }))
        });
    }

    /// Adds an entry for new amounts of a run. If they changed while nothing was recorded, the time is unknown: the lesser
    /// amounts count in between, so that no sum exceeds the truth.
    pub(super) fn add_resized(&mut self, uid: &Arc<str>, before: &Amounts, amounts: &Amounts) {
        let Self { names, outbox, now, from, .. } = self;
        if from.is_none() && outbox.follows(uid) {
            let at = outbox.until;
            let least = least(before, amounts);
            outbox.add(|| Entry::Resized { uid: Arc::clone(uid), at, amounts: names.named(&least) });
            if *least == **amounts {
                return;
            }
        }
        outbox.add(|| Entry::Resized { uid: Arc::clone(uid), at: *now, amounts: names.named(amounts) });
    }

    /// Returns the entries since the last call, and closes the hours that have ended.
    pub fn take_entries(&mut self, now: Timestamp) -> Vec<Entry> {
        if !self.outbox.on {
            return Vec::new();
        }
        self.close_hour(millis(now));
        mem::take(&mut self.outbox.entries)
    }

    fn close_hour(&mut self, now: Millis) {
        let Some(from) = self.from else { return };
        let start = hour_of(now.saturating_sub(CLOSING_DELAY)).saturating_sub(HOUR);
        let is_new = self.outbox.closed.is_none_or(|closed| closed < start);
        if !is_new || start.saturating_add(HOUR) <= from {
            return;
        }
        self.outbox.closed = Some(start);
        let mut queues: BTreeMap<(Arc<str>, u32), (i128, i128)> = BTreeMap::new();
        for (queue, measure) in self.series.keys() {
            let (Measure::Usage(fr) | Measure::Borrowed(fr)) = measure else { continue };
            let super::QueueNumber::Own(number) = queue else { continue };
            let hours = by_hour(&self.series.buckets(queue, measure, now));
            let Some(value) = hours.get(&start).copied().filter(|value| *value > 0) else { continue };
            let sums = queues.entry((self.names.queue_name(number), fr)).or_default();
            match measure {
                Measure::Usage(_) => sums.0 = value,
                _ => sums.1 = value,
            }
        }
        let named = |((cluster_queue, fr), (used, borrowed)): ((Arc<str>, u32), (i128, i128))| {
            let flavor_resource = self.names.flavor_resources().get(usize::try_from(fr).ok()?)?.clone();
            Some(QueueHour { cluster_queue, flavor_resource, used, borrowed })
        };
        let queues = queues.into_iter().filter_map(named).collect();
        self.outbox.entries.push(Entry::Hour { start, queues });
    }
}

/// Returns the lesser of two amounts of each flavor-resource, in the order of their numbers, without zeros.
pub(super) fn least(a: &[(u32, i64)], b: &[(u32, i64)]) -> Vec<(u32, i64)> {
    let other = |fr: u32| b.iter().find(|(known, _)| *known == fr).map_or(0, |(_, amount)| *amount);
    let both = a.iter().map(|(fr, amount)| (*fr, (*amount).min(other(*fr))));
    both.filter(|(_, amount)| *amount != 0).collect()
}

/// Returns the amounts of the run of a record.
pub(super) fn amounts_of(record: &Record) -> &[(u32, i64)] {
    match &record.event {
        RecordEvent::Wait(_) => &[],
        RecordEvent::Eviction(eviction) => eviction.run.as_ref().map_or(&[], |run| &run.amounts),
        RecordEvent::Finish(finish) => finish.run.as_ref().map_or(&[], |run| &run.amounts),
        RecordEvent::Segment { run, .. } => &run.amounts,
    }
}

impl Names {
    /// Returns amounts with names.
    pub(super) fn named(&self, amounts: &[(u32, i64)]) -> NamedAmounts {
        let all = self.flavor_resources();
        let named = |(fr, amount): &(u32, i64)| Some((all.get(usize::try_from(*fr).ok()?)?.clone(), *amount));
        amounts.iter().filter_map(named).collect()
    }
}
