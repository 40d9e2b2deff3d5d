//! Usage in a period: hours by group with their borrowed and lost parts, and waits.
//!
//! Invariants: hours are amount × milliseconds and exact; sums by ClusterQueue come from the series, all others from the runs,
//! cut to the period. A workload borrowed the same part of its usage as its ClusterQueue in that hour, to a millionth.

use super::record::{Amounts, Record, RecordEvent, Subject, WaitResult};
use super::seen::millis;
use super::series::{Bucket, HOUR, Millis};
use super::series_set::Measure;
use super::view::HistoryView;
use crate::api::ObjectKey;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Denominator of borrowed parts.
pub const PARTS: i128 = 1_000_000;

/// What usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageGroup {
    /// ClusterQueues.
    Queue,
    /// The cohorts right above the ClusterQueues.
    Cohort,
    /// Namespaces.
    Namespace,
    /// LocalQueues, as `NAMESPACE/NAME`.
    LocalQueue,
    /// Priority classes.
    PriorityClass,
    /// Flavors.
    Flavor,
}

impl UsageGroup {
    /// All groups.
    pub const ALL: [Self; 6] =
        [Self::Queue, Self::Cohort, Self::Namespace, Self::LocalQueue, Self::PriorityClass, Self::Flavor];

    /// Returns the name, as in flags and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Cohort => "cohort",
            Self::Namespace => "namespace",
            Self::LocalQueue => "localqueue",
            Self::PriorityClass => "priorityclass",
            Self::Flavor => "flavor",
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// If there is no group of the name; the text lists them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|group| group.as_str() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown group {text:?}: use {names}")
        })
    }

    /// Returns whether the groups are sums of shared queues, which belong to no namespace.
    const fn is_of_queues(self) -> bool {
        matches!(self, Self::Queue | Self::Cohort | Self::Flavor)
    }
}

/// A query for usage.
#[derive(Clone, Debug)]
pub struct UsageQuery<'a> {
    /// The groups.
    pub by: UsageGroup,
    /// Start of the period.
    pub from: Timestamp,
    /// End of the period: the time of the history, or earlier.
    pub until: Timestamp,
    /// The resource; all if absent.
    pub resource: Option<&'a str>,
    /// The namespace whose workloads count; all if absent.
    pub namespace: Option<&'a str>,
    /// The cohort right above each ClusterQueue that has one.
    pub cohorts: &'a BTreeMap<Arc<str>, Arc<str>>,
}

/// Usage of a resource by a group. Amounts of time are units × milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// Name of the group; empty for usage that belongs to none.
    pub group: String,
    /// The resource.
    pub resource: Arc<str>,
    /// Number of workloads that had quota in the period.
    pub jobs: usize,
    /// Used amount of time.
    pub used: i128,
    /// Part of it above the nominal quota.
    pub borrowed: i128,
    /// Part of it in runs that a preemption ended in the period.
    pub lost: i128,
    /// Median of the waits that ended in the period with a reservation, in milliseconds.
    pub wait_median: Option<i64>,
    /// 99th percentile of these waits.
    pub wait_p99: Option<i64>,
    /// The same hours by flavor, of the flavors that have any.
    pub flavors: Vec<FlavorHours>,
}

/// Hours of a resource in one flavor. Amounts of time are units × milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorHours {
    /// The flavor.
    pub flavor: Arc<str>,
    /// Used amount of time.
    pub used: i128,
    /// Part of it above the nominal quota.
    pub borrowed: i128,
    /// Part of it in runs that a preemption ended in the period.
    pub lost: i128,
}

/// Usage in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Start of the recorded time: the start of the period or later; `None` if nothing is recorded.
    pub from: Option<Timestamp>,
    /// Rows by group and resource.
    pub rows: Vec<UsageRow>,
    /// Sums over all groups, by resource.
    pub sums: Vec<UsageRow>,
}

/// A time from a start until an end, in milliseconds since the epoch.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from: Millis,
    pub(super) until: Millis,
}

impl Span {
    const fn length(self) -> Millis {
        self.until.saturating_sub(self.from)
    }

    /// Returns whether an end lies in this time, its bounds included.
    const fn has_end(self, end: Millis) -> bool {
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

#[derive(Default)]
struct Group<'a> {
    jobs: BTreeSet<&'a ObjectKey>,
    waits: Vec<Millis>,
    resources: BTreeMap<Arc<str>, ByFlavor>,
}

/// Hours of a resource by flavor.
type ByFlavor = BTreeMap<Arc<str>, Hours>;

#[derive(Clone, Copy, Default)]
struct Hours {
    used: i128,
    borrowed: i128,
    lost: i128,
}

type Groups<'a> = BTreeMap<String, Group<'a>>;
/// Borrowed parts of usage, in millionths, by ClusterQueue, flavor-resource and start of the hour.
pub type BorrowedParts = BTreeMap<Arc<str>, BTreeMap<FlavorResource, BTreeMap<i64, i128>>>;

impl HistoryView {
    /// Returns usage in a period.
    pub fn usage(&self, query: &UsageQuery<'_>) -> Usage {
        let Some(recorded) = self.from else { return Usage::default() };
        let from = query.from.max(recorded);
        let period = Span { from: millis(from), until: millis(query.until).max(millis(from)) };
        let mut groups = Groups::new();
        let by_series = query.by.is_of_queues() && query.namespace.is_none();
        if by_series {
            self.add_series(query, period, &mut groups);
        }
        self.add_runs(query, period, by_series, &mut groups);
        self.add_waits(query, period, &mut groups);
        let mut rows = Vec::new();
        let mut sum = Group::default();
        for (name, mut group) in groups {
            sum.jobs.extend(&group.jobs);
            sum.waits.extend(&group.waits);
            for (resource, flavors) in &group.resources {
                let sums = sum.resources.entry(Arc::clone(resource)).or_default();
                for (flavor, hours) in flavors {
                    sums.entry(Arc::clone(flavor)).or_default().add(*hours);
                }
            }
            rows.extend(group.rows(&name));
        }
        Usage { from: Some(from), rows, sums: sum.rows("sum") }
    }

    pub(super) fn named(&self, fr: u32) -> Option<&FlavorResource> {
        self.flavor_resources.get(usize::try_from(fr).ok()?)
    }

    fn add_series<'a>(&'a self, query: &UsageQuery<'_>, period: Span, groups: &mut Groups<'a>) {
        for (queue, measure) in self.series() {
            let (Measure::Usage(number) | Measure::Borrowed(number)) = measure else { continue };
            let Some(fr) = self.named(number) else { continue };
            if query.resource.is_some_and(|resource| *fr.resource != *resource) {
                continue;
            }
            let buckets = self.buckets(queue, measure, query.until);
            let value = buckets.iter().map(|bucket| part_in(bucket, period)).fold(0, i128::saturating_add);
            if value == 0 {
                continue;
            }
            let name = self.queue_name(queue).map(AsRef::as_ref);
            let group = groups.entry(query.group_of(name, &fr.flavor)).or_default();
            let hours = group.hours(fr);
            if let Measure::Usage(_) = measure {
                hours.used = hours.used.saturating_add(value);
            } else {
                hours.borrowed = hours.borrowed.saturating_add(value);
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

    fn add_runs<'a>(
        &'a self,
        query: &UsageQuery<'_>,
        period: Span,
        by_series: bool,
        groups: &mut Groups<'a>,
    ) {
        let parts = if by_series { BorrowedParts::new() } else { self.borrowed_parts(query.until) };
        for run in self.counted_runs(period.until).filter(|run| query.counts(run.workload)) {
            let time = Span { from: run.start.max(period.from), until: run.end.min(period.until) };
            if time.from >= time.until {
                continue;
            }
            for (number, amount) in run.amounts.iter().filter(|(_, amount)| *amount != 0) {
                let Some(fr) = self.named(*number) else { continue };
                if query.resource.is_some_and(|resource| *fr.resource != *resource) {
                    continue;
                }
                let name = query.group_of_workload(run.workload, &fr.flavor);
                let group = groups.entry(name).or_default();
                group.jobs.insert(&run.workload.key);
                let hours = group.hours(fr);
                let amount = i128::from(*amount);
                let used = amount.saturating_mul(i128::from(time.length()));
                if run.lost && period.has_end(run.end) {
                    hours.lost = hours.lost.saturating_add(used);
                }
                if !by_series {
                    hours.used = hours.used.saturating_add(used);
                    let parts = parts.get(&run.workload.cluster_queue).and_then(|parts| parts.get(fr));
                    let borrowed = parts.map_or(0, |parts| borrowed_of(amount, time, parts));
                    hours.borrowed = hours.borrowed.saturating_add(borrowed);
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

    fn add_waits<'a>(&'a self, query: &UsageQuery<'_>, period: Span, groups: &mut Groups<'a>) {
        let counted = self.ended_waits(period).filter(|(record, _)| query.counts(&record.workload));
        for (record, waited) in counted.filter(|_| query.by != UsageGroup::Flavor) {
            let name = query.group_of_workload(&record.workload, "");
            groups.entry(name).or_default().waits.push(waited);
        }
    }

    /// Returns the waits that ended in a period with a reservation.
    fn ended_waits(&self, period: Span) -> impl Iterator<Item = (&Record, Millis)> {
        self.records.iter().filter_map(move |record| {
            let RecordEvent::Wait(wait) = &record.event else { return None };
            let counts = wait.result == WaitResult::Reserved && period.has_end(wait.end);
            counts.then(|| (&**record, wait.end.saturating_sub(wait.start)))
        })
    }

    /// Returns median and 99th percentile of the waits that ended in a period with a reservation, in milliseconds.
    pub fn waits(&self, from: Timestamp, until: Timestamp) -> (Option<i64>, Option<i64>) {
        let ended = self.ended_waits(Span { from: millis(from), until: millis(until) });
        let mut waits: Vec<Millis> = ended.map(|(_, waited)| waited).collect();
        waits.sort_unstable();
        (quantile(&waits, 50), quantile(&waits, 99))
    }
}

impl UsageQuery<'_> {
    fn counts(&self, workload: &Subject) -> bool {
        self.namespace.is_none_or(|namespace| *workload.key.namespace == *namespace)
    }

    /// Returns the group of a ClusterQueue, or of the sum of ClusterQueues without series.
    fn group_of(&self, queue: Option<&str>, flavor: &str) -> String {
        match (self.by, queue) {
            (UsageGroup::Flavor, _) => flavor.to_owned(),
            (_, None) => OTHERS.to_owned(),
            (UsageGroup::Cohort, Some(queue)) => {
                self.cohorts.get(queue).map(ToString::to_string).unwrap_or_default()
            }
            (_, Some(queue)) => queue.to_owned(),
        }
    }

    fn group_of_workload(&self, workload: &Subject, flavor: &str) -> String {
        match self.by {
            UsageGroup::Namespace => workload.key.namespace.to_string(),
            UsageGroup::LocalQueue => format!("{}/{}", workload.key.namespace, workload.local_queue),
            UsageGroup::PriorityClass => workload.priority_class.to_string(),
            _ => self.group_of(Some(&workload.cluster_queue), flavor),
        }
    }
}

/// Group of the ClusterQueues without series of their own. No ClusterQueue can have the name.
pub const OTHERS: &str = "(others)";

impl Group<'_> {
    /// Returns the hours of a flavor-resource, to be added to.
    fn hours(&mut self, fr: &FlavorResource) -> &mut Hours {
        let flavors = self.resources.entry(Arc::clone(&fr.resource)).or_default();
        flavors.entry(Arc::clone(&fr.flavor)).or_default()
    }

    fn rows(&mut self, name: &str) -> Vec<UsageRow> {
        self.waits.sort_unstable();
        let (jobs, median, p99) = (self.jobs.len(), quantile(&self.waits, 50), quantile(&self.waits, 99));
        let row = |(resource, flavors): (&Arc<str>, &ByFlavor)| {
            let mut sum = Hours::default();
            for hours in flavors.values() {
                sum.add(*hours);
            }
            UsageRow {
                group: name.to_owned(),
                resource: Arc::clone(resource),
                jobs,
                used: sum.used,
                borrowed: sum.borrowed,
                lost: sum.lost,
                wait_median: median,
                wait_p99: p99,
                flavors: flavors.iter().map(|(flavor, hours)| hours.of_flavor(flavor)).collect(),
            }
        };
        self.resources.iter().map(row).collect()
    }
}

impl Hours {
    fn of_flavor(self, flavor: &Arc<str>) -> FlavorHours {
        let Self { used, borrowed, lost } = self;
        FlavorHours { flavor: Arc::clone(flavor), used, borrowed, lost }
    }

    fn add(&mut self, other: Self) {
        self.used = self.used.saturating_add(other.used);
        self.borrowed = self.borrowed.saturating_add(other.borrowed);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// Returns the value at a percentile of sorted values: the least value such that at most the rest of the percentage exceeds it.
fn quantile(sorted: &[Millis], percent: usize) -> Option<Millis> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100).max(1);
    sorted.get(rank.saturating_sub(1)).copied()
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
