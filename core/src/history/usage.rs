//! Usage in a period: hours by group with their borrowed and lost parts, and waits.
//!
//! Invariants: hours are amount × milliseconds and exact; sums by ClusterQueue come from the series, all others from the runs,
//! cut to the period. A workload borrowed the same part of its usage as its ClusterQueue in that hour, to a millionth.

use super::record::{Record, RecordEvent, Subject, WaitResult};
use super::seen::millis;
use super::series::Millis;
use super::usage_scan::{Hours, Span, UsedBy};
use super::view::HistoryView;
use crate::api::ObjectKey;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    pub(super) const fn is_of_queues(self) -> bool {
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

#[derive(Default)]
struct Group<'a> {
    jobs: BTreeSet<&'a ObjectKey>,
    waits: Vec<Millis>,
    resources: BTreeMap<Arc<str>, ByFlavor>,
}

/// Hours of a resource by flavor.
type ByFlavor = BTreeMap<Arc<str>, Hours>;

type Groups<'a> = BTreeMap<String, Group<'a>>;

impl HistoryView {
    /// Returns usage in a period.
    pub fn usage(&self, query: &UsageQuery<'_>) -> Usage {
        let Some(recorded) = self.from else { return Usage::default() };
        let from = query.from.max(recorded);
        let period = Span::new(from, query.until);
        let mut groups = Groups::new();
        self.scan(query, &[period], |found| {
            let name = query.group_of(found.by, &found.fr.flavor).into_owned();
            let group = groups.entry(name).or_default();
            if let UsedBy::Workload(workload) = found.by {
                group.jobs.insert(&workload.key);
            }
            group.hours(found.fr).add(found.hours);
        });
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

    fn add_waits<'a>(&'a self, query: &UsageQuery<'_>, period: Span, groups: &mut Groups<'a>) {
        let counted = self.ended_waits(period).filter(|(record, _)| query.counts(&record.workload));
        for (record, waited) in counted.filter(|_| query.by != UsageGroup::Flavor) {
            let name = query.group_of_workload(&record.workload, "").into_owned();
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
    pub(super) fn counts(&self, workload: &Subject) -> bool {
        self.namespace.is_none_or(|namespace| *workload.key.namespace == *namespace)
    }

    pub(super) fn counts_resource(&self, fr: &FlavorResource) -> bool {
        self.resource.is_none_or(|resource| *fr.resource == *resource)
    }

    /// Returns the name of the group in which hours count.
    pub(super) fn group_of<'n>(&'n self, by: UsedBy<'n>, flavor: &'n str) -> Cow<'n, str> {
        match by {
            UsedBy::Queue(queue) => Cow::Borrowed(self.group_of_queue(queue, flavor)),
            UsedBy::Workload(workload) => self.group_of_workload(workload, flavor),
        }
    }

    /// Returns the group of a ClusterQueue, or of the sum of ClusterQueues without series.
    fn group_of_queue<'n>(&'n self, queue: Option<&'n str>, flavor: &'n str) -> &'n str {
        match (self.by, queue) {
            (UsageGroup::Flavor, _) => flavor,
            (_, None) => OTHERS,
            (UsageGroup::Cohort, Some(queue)) => self.cohorts.get(queue).map_or("", |cohort| &**cohort),
            (_, Some(queue)) => queue,
        }
    }

    fn group_of_workload<'n>(&'n self, workload: &'n Subject, flavor: &'n str) -> Cow<'n, str> {
        match self.by {
            UsageGroup::Namespace => Cow::Borrowed(&*workload.key.namespace),
            UsageGroup::LocalQueue => {
                Cow::Owned(format!("{}/{}", workload.key.namespace, workload.local_queue))
            }
            UsageGroup::PriorityClass => Cow::Borrowed(&*workload.priority_class),
            _ => Cow::Borrowed(self.group_of_queue(Some(&workload.cluster_queue), flavor)),
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
                flavors: flavors.iter().map(|(flavor, hours)| of_flavor(flavor, *hours)).collect(),
            }
        };
        self.resources.iter().map(row).collect()
    }
}

fn of_flavor(flavor: &Arc<str>, hours: Hours) -> FlavorHours {
    let Hours { used, borrowed, lost } = hours;
    FlavorHours { flavor: Arc::clone(flavor), used, borrowed, lost }
}

/// Returns the value at a percentile of sorted values: the least value such that at most the rest of the percentage exceeds it.
fn quantile(sorted: &[Millis], percent: usize) -> Option<Millis> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100).max(1);
    sorted.get(rank.saturating_sub(1)).copied()
}
