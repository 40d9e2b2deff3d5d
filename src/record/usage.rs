//! Usage in periods of any length: sums by group, and the course of a resource.
//!
//! Invariants: rows have what the scan of the record counts; a course reads the period once, however many steps it has, and its steps
//! add up to the usage of the period.

use super::periods::{Group, Sums, day_of};
use super::recorder::Recorder;
use super::rows::timestamp;
use super::store::StoreError;
use crate::history::{
    FlavorHours, HistoryView, RecordedUsage, StepSum, Usage, UsageGroup, UsageQuery, UsageRow,
};
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A group of the answer.
#[derive(Clone, Debug, Default)]
struct Answer {
    /// Numbers of workloads.
    numbers: Sums,
    running: usize,
    resources: BTreeMap<Arc<str>, ByFlavor>,
}

/// Sums of a resource by flavor.
type ByFlavor = BTreeMap<Arc<str>, Sums>;

/// Sums being added up for an answer.
struct Summing<'a, 'q> {
    query: &'a UsageQuery<'q>,
    /// Sums by group of the answer.
    groups: BTreeMap<String, Answer>,
    all: Answer,
}

impl Recorder {
    /// Returns usage in a period. `history` belongs to this process, and knows the borrowed parts of the hours that are not
    /// closed.
    pub(super) fn read_usage(
        &self,
        query: &UsageQuery<'_>,
        history: &HistoryView,
        now: Timestamp,
    ) -> Result<RecordedUsage, StoreError> {
        let scan = self.scan(query, history, now)?;
        let mut summing = Summing { query, groups: BTreeMap::new(), all: Answer::default() };
        scan.sums(true, |_, group, sums| summing.add(group, sums))?;
        for run in scan.running() {
            summing.count_running(&Group::of(&run.workload));
        }
        Ok(RecordedUsage {
            usage: summing.usage(scan.start()),
            until: timestamp(scan.until),
            recorded_from: scan.recorded_from(),
            gaps: scan.gaps()?,
        })
    }

    /// Returns what the resource of a query was used in the steps of its period, which follow one another and begin at full hours, also
    /// by the groups asked for, each named once; `None` where it was not. Where hours are no longer kept, a day counts in the step in
    /// which it begins.
    pub(super) fn read_course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
        (history, now): (&HistoryView, Timestamp),
    ) -> Result<Vec<Option<StepSum>>, StoreError> {
        let starts: Vec<i64> = steps.iter().map(|(from, _)| from.as_millisecond()).collect();
        let by_day = starts.iter().skip(1).all(|start| day_of(*start) == *start);
        let mut all: Vec<Option<(Sums, StepSum)>> = vec![None; steps.len()];
        self.scan(query, history, now)?.sums(by_day, |at, group, sums| {
            // The first hour may begin before the first step.
            let number = starts.partition_point(|start| *start <= at).saturating_sub(1);
            if let Some(step) = all.get_mut(number).filter(|_| !group.is_of_workloads()) {
                let (sum, step) = step.get_or_insert_default();
                sum.add(sums);
                step.add_used(sums.used.0, &name_of(query, group), groups);
            }
        })?;
        let step = |(sums, step): (Sums, StepSum)| {
            (!sums.is_unused()).then(|| StepSum { borrowed: sums.borrowed_of_used(), ..step })
        };
        Ok(all.into_iter().map(|sums| sums.and_then(step)).collect())
    }
}

impl Summing<'_, '_> {
    /// Adds the sums of a group in an hour or a day.
    fn add(&mut self, group: &Group<'_>, sums: &Sums) {
        let of_workloads = group.is_of_workloads();
        if of_workloads && self.query.by == UsageGroup::Flavor {
            self.all.numbers.add(sums);
            return;
        }
        let name = name_of(self.query, group).into_owned();
        for answer in [self.groups.entry(name).or_default(), &mut self.all] {
            if of_workloads {
                answer.numbers.add(sums);
            } else {
                let flavors = answer.resources.entry(Arc::from(group.resource)).or_default();
                flavors.entry(Arc::from(group.flavor)).or_default().add(sums);
            }
        }
    }

    fn count_running(&mut self, group: &Group<'_>) {
        if self.query.namespace.is_some_and(|namespace| *namespace != *group.namespace) {
            return;
        }
        self.all.running = self.all.running.saturating_add(1);
        if self.query.by != UsageGroup::Flavor {
            let answer = self.groups.entry(name_of(self.query, group).into_owned()).or_default();
            answer.running = answer.running.saturating_add(1);
        }
    }

    fn usage(self, from: Timestamp) -> Usage {
        let rows = self.groups.iter().flat_map(|(name, answer)| answer.rows(name)).collect();
        Usage { from: Some(from), rows, sums: self.all.rows("sum") }
    }
}

/// Returns the name of the group of an answer in which a group of the record counts.
fn name_of<'n>(query: &'n UsageQuery<'_>, group: &Group<'n>) -> Cow<'n, str> {
    Cow::Borrowed(match query.by {
        UsageGroup::Queue => group.cluster_queue,
        UsageGroup::Cohort => query.cohorts.get(group.cluster_queue).map_or("", |cohort| &**cohort),
        UsageGroup::Namespace => group.namespace,
        UsageGroup::LocalQueue => return Cow::Owned(format!("{}/{}", group.namespace, group.local_queue)),
        UsageGroup::PriorityClass => group.priority_class,
        UsageGroup::Flavor => group.flavor,
    })
}

impl Answer {
    fn rows(&self, name: &str) -> Vec<UsageRow> {
        let row = |(resource, flavors): (&Arc<str>, &ByFlavor)| {
            let mut sums = Sums::default();
            for one in flavors.values() {
                sums.add(one);
            }
            (!sums.is_unused()).then(|| UsageRow {
                group: name.to_owned(),
                resource: Arc::clone(resource),
                jobs: self.running.saturating_add(usize::try_from(self.numbers.ended).unwrap_or(usize::MAX)),
                used: sums.used.0,
                borrowed: sums.borrowed_of_used(),
                lost: sums.lost.0,
                wait_median: self.numbers.wait(50),
                wait_p99: self.numbers.wait(99),
                flavors: flavors.iter().map(of_flavor).collect(),
            })
        };
        self.resources.iter().filter_map(row).collect()
    }
}

fn of_flavor((flavor, sums): (&Arc<str>, &Sums)) -> FlavorHours {
    FlavorHours {
        flavor: Arc::clone(flavor),
        used: sums.used.0,
        borrowed: sums.borrowed_of_used(),
        lost: sums.lost.0,
    }
}
