//! What workloads used in periods that follow one another: a scan of series and runs, of which sums and courses are made.
//!
//! Invariants: one pass, however many periods there are; each period gets what a scan for it alone would find, cut to the
//! millisecond; amounts of time are units × milliseconds and exact, and the borrowed part of a run is that of its ClusterQueue in
//! that hour, to a millionth.

use super::record::{Amounts, RecordEvent, Subject};
use super::seen::millis;
use super::series::{Bucket, HOUR, Millis};
use super::series_set::Measure;
use super::usage::UsageQuery;
use super::view::HistoryView;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Denominator of borrowed parts.
pub const PARTS: i128 = 1_000_000;

/// Borrowed parts of usage, in millionths, by ClusterQueue, flavor-resource and start of the hour.
pub type BorrowedParts = BTreeMap<Arc<str>, BTreeMap<FlavorResource, BTreeMap<i64, i128>>>;

/// What a resource was used in one step of a period. Amounts of time are units × milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSum {
    /// Used amount of time.
    pub used: i128,
    /// Part of it above the nominal quota.
    pub borrowed: i128,
    /// Part of it that each of the groups asked for used, in their order.
    pub groups: Vec<i128>,
}

impl StepSum {
    /// Adds an amount of time that a group used, to its own part if it is one of the groups asked for: the same ones for all that
    /// a step used.
    pub fn add_used(&mut self, used: i128, group: &str, asked: &[&str]) {
        self.used = self.used.saturating_add(used);
        self.groups.resize(asked.len(), 0);
        let mut parts = asked.iter().zip(&mut self.groups);
        if let Some((_, part)) = parts.find(|(name, _)| **name == group) {
            *part = part.saturating_add(used);
        }
    }
}

/// A time from a start until an end, in milliseconds since the epoch.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from: Millis,
    pub(super) until: Millis,
}

impl Span {
    /// Returns the period between two times; one without length if the second is before the first.
    pub(super) fn new(from: Timestamp, until: Timestamp) -> Self {
        let from = millis(from);
        Self { from, until: millis(until).max(from) }
    }

    const fn length(self) -> Millis {
        self.until.saturating_sub(self.from)
    }

    /// Returns whether an end lies in this time, its bounds included.
    pub(super) const fn has_end(self, end: Millis) -> bool {
        end >= self.from && end <= self.until
    }
}

/// A run in the period.
pub(super) struct CountedRun<'a> {
    pub(super) workload: &'a Subject,
    pub(super) start: Millis,
    pub(super) end: Millis,
    pub(super) amounts: &'a Amounts,
    lost: bool,
}

/// Amounts of time of a flavor-resource.
#[derive(Clone, Copy, Default)]
pub(super) struct Hours {
    pub(super) used: i128,
    pub(super) borrowed: i128,
    pub(super) lost: i128,
}

impl Hours {
    pub(super) fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.borrowed = self.borrowed.saturating_add(other.borrowed);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// What used something.
#[derive(Clone, Copy)]
pub(super) enum UsedBy<'a> {
    /// A ClusterQueue, or the sum of the ClusterQueues without series.
    Queue(Option<&'a str>),
    /// A workload.
    Workload(&'a Subject),
}

/// Hours that a scan found.
pub(super) struct FoundHours<'a> {
    /// Number of the period in which they are.
    pub(super) period: usize,
    pub(super) by: UsedBy<'a>,
    pub(super) fr: &'a FlavorResource,
    pub(super) hours: Hours,
}

impl HistoryView {
    /// Returns what the resource of a query was used in the steps of a period, which follow one another, also by the groups asked for,
    /// each named once; `None` where it was not.
    pub fn course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
    ) -> Vec<Option<StepSum>> {
        let mut sums: Vec<Option<StepSum>> = vec![None; steps.len()];
        if let Some(recorded) = self.from {
            let period = |(from, until): &(Timestamp, Timestamp)| Span::new((*from).max(recorded), *until);
            let periods: Vec<Span> = steps.iter().map(period).collect();
            self.scan(query, &periods, |found| {
                if let Some(sum) = sums.get_mut(found.period) {
                    let sum = sum.get_or_insert_default();
                    let group = query.group_of(found.by, &found.fr.flavor);
                    sum.add_used(found.hours.used, &group, groups);
                    sum.borrowed = sum.borrowed.saturating_add(found.hours.borrowed);
                }
            });
        }
        sums
    }

    /// Calls `each` with what was used in periods, which follow one another: by ClusterQueue from the series, or by workload from the
    /// runs. Sums from series have the lost parts of the runs beside them.
    pub(super) fn scan<'a>(
        &'a self,
        query: &UsageQuery<'_>,
        periods: &[Span],
        mut each: impl FnMut(FoundHours<'a>),
    ) {
        let by_series = query.by.is_of_queues() && query.namespace.is_none();
        if by_series {
            self.scan_series(query, periods, &mut each);
        }
        self.scan_runs(query, periods, by_series, &mut each);
    }

    pub(super) fn named(&self, fr: u32) -> Option<&FlavorResource> {
        self.flavor_resources.get(usize::try_from(fr).ok()?)
    }

    fn scan_series<'a>(
        &'a self,
        query: &UsageQuery<'_>,
        periods: &[Span],
        each: &mut impl FnMut(FoundHours<'a>),
    ) {
        for (queue, measure) in self.series() {
            let (Measure::Usage(number) | Measure::Borrowed(number)) = measure else { continue };
            let Some(fr) = self.named(number).filter(|fr| query.counts_resource(fr)) else { continue };
            let by = UsedBy::Queue(self.queue_name(queue).map(AsRef::as_ref));
            let values = parts_in(&self.buckets(queue, measure, query.until), periods);
            for (period, value) in values.into_iter().enumerate().filter(|(_, value)| *value != 0) {
                let hours = if let Measure::Usage(_) = measure {
                    Hours { used: value, ..Hours::default() }
                } else {
                    Hours { borrowed: value, ..Hours::default() }
                };
                each(FoundHours { period, by, fr, hours });
            }
        }
    }

    pub(super) fn counted_runs(&self, until: Millis) -> impl Iterator<Item = CountedRun<'_>> {
        let ended = self.records.iter().filter_map(|record| {
            let (run, end, lost) = match &record.event {
                RecordEvent::Eviction(e) => (e.run.as_ref()?, e.released?, e.preemption.is_some()),
                RecordEvent::Finish(finish) => (finish.run.as_ref()?, finish.at, false),
                RecordEvent::Segment { run, end } => (run, *end, false),
                RecordEvent::Wait(_) => return None,
            };
            let workload = &record.workload;
            Some(CountedRun { workload, start: run.start, end, amounts: &run.amounts, lost })
        });
        let open = self.runs.iter().map(move |run| CountedRun {
            workload: &run.workload,
            start: run.start,
            end: until,
            amounts: &run.amounts,
            lost: false,
        });
        ended.chain(open)
    }

    fn scan_runs<'a>(
        &'a self,
        query: &UsageQuery<'_>,
        periods: &[Span],
        by_series: bool,
        each: &mut impl FnMut(FoundHours<'a>),
    ) {
        let Some(last) = periods.last() else { return };
        let parts = if by_series { BorrowedParts::new() } else { self.borrowed_parts(query.until) };
        for run in self.counted_runs(last.until).filter(|run| query.counts(run.workload)) {
            for (period, span) in overlapping(periods, Span { from: run.start, until: run.end }) {
                let time = Span { from: run.start.max(span.from), until: run.end.min(span.until) };
                let is_lost = run.lost && span.has_end(run.end);
                for (number, amount) in run.amounts.iter().filter(|(_, amount)| *amount != 0) {
                    let Some(fr) = self.named(*number).filter(|fr| query.counts_resource(fr)) else {
                        continue;
                    };
                    let amount = i128::from(*amount);
                    let used = amount.saturating_mul(i128::from(time.length()));
                    let mut hours = Hours { lost: if is_lost { used } else { 0 }, ..Hours::default() };
                    if !by_series {
                        let parts = parts.get(&run.workload.cluster_queue).and_then(|parts| parts.get(fr));
                        hours.used = used;
                        hours.borrowed = parts.map_or(0, |parts| borrowed_of(amount, time, parts));
                    }
                    each(FoundHours { period, by: UsedBy::Workload(run.workload), fr, hours });
                }
            }
        }
    }

    /// Returns the borrowed part of the usage of each ClusterQueue, by hour.
    pub fn borrowed_parts(&self, until: Timestamp) -> BorrowedParts {
        let mut parts = BorrowedParts::new();
        for (queue, measure) in self.series() {
            let Measure::Borrowed(fr) = measure else { continue };
            let (Some(name), Some(named)) = (self.queue_name(queue), self.named(fr)) else { continue };
            let used = by_hour(&self.buckets(queue, Measure::Usage(fr), until));
            let borrowed = by_hour(&self.buckets(queue, measure, until));
            let part = |(hour, borrowed): (Millis, i128)| {
                let used = used.get(&hour).copied().filter(|used| *used > 0)?;
                (borrowed > 0).then(|| (hour, borrowed.saturating_mul(PARTS).checked_div(used).unwrap_or(0)))
            };
            let borrowed = borrowed.into_iter().filter_map(part).collect();
            parts.entry(Arc::clone(name)).or_default().insert(named.clone(), borrowed);
        }
        parts
    }
}

/// Returns the periods that have a part of a time, with their numbers. The periods follow one another.
fn overlapping(periods: &[Span], time: Span) -> impl Iterator<Item = (usize, Span)> {
    let first = periods.partition_point(|period| period.until <= time.from);
    let from_first = periods.iter().copied().enumerate().skip(first);
    let has_part =
        move |(_, period): &(usize, Span)| time.from.max(period.from) < time.until.min(period.until);
    from_first.take_while(move |(_, period)| period.from < time.until).filter(has_part)
}

/// Returns the values of buckets in periods that follow one another.
fn parts_in(buckets: &[Bucket], periods: &[Span]) -> Vec<i128> {
    let mut values = vec![0_i128; periods.len()];
    for bucket in buckets {
        for (number, period) in overlapping(periods, Span { from: bucket.start, until: bucket.end }) {
            if let Some(value) = values.get_mut(number) {
                *value = value.saturating_add(part_in(bucket, period));
            }
        }
    }
    values
}

/// Returns the part of a bucket that is in a period; a bucket that is cut counts in proportion.
pub(super) fn part_in(bucket: &Bucket, period: Span) -> i128 {
    let whole = Span { from: bucket.start, until: bucket.end }.length();
    let part = Span { from: bucket.start.max(period.from), until: bucket.end.min(period.until) }.length();
    if part <= 0 || whole <= 0 {
        0
    } else if part == whole {
        bucket.value
    } else {
        bucket.value.saturating_mul(i128::from(part)).checked_div(i128::from(whole)).unwrap_or_default()
    }
}

pub(super) fn by_hour(buckets: &[Bucket]) -> BTreeMap<Millis, i128> {
    let mut hours: BTreeMap<Millis, i128> = BTreeMap::new();
    for bucket in buckets {
        let hour = hours.entry(hour_of(bucket.start)).or_default();
        *hour = hour.saturating_add(bucket.value);
    }
    hours
}

/// Returns the start of the hour of a time.
pub const fn hour_of(time: Millis) -> Millis {
    time.saturating_sub(time.rem_euclid(HOUR))
}

/// Returns the borrowed part of an amount in a time, by the parts of each hour.
fn borrowed_of(amount: i128, time: Span, parts: &BTreeMap<Millis, i128>) -> i128 {
    let hours = parts.range(hour_of(time.from)..time.until);
    let borrowed = |(hour, part): (&Millis, &i128)| {
        let in_hour = Span { from: time.from.max(*hour), until: time.until.min(hour.saturating_add(HOUR)) };
        let length = i128::from(in_hour.length().max(0));
        amount.saturating_mul(length).saturating_mul(*part).checked_div(PARTS).unwrap_or_default()
    };
    hours.map(borrowed).fold(0, i128::saturating_add)
}
