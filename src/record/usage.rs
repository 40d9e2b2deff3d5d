//! Usage in periods of any length, from the sums of hours and days and the open runs.
//!
//! Invariants: a period begins and ends at full hours, which the answer names; full days are read as days, so that a month costs
//! as much as thirty days and two days of hours.

use super::periods::{DAY, Exact, Group, HOUR, Sums, day_of, hour_of, split};
use super::recorder::Recorder;
use super::rows::timestamp;
use super::runs::counted_since;
use super::store::{KEEP_DAYS, KEEP_HOURS, StoreError};
use crate::history::{
    BorrowedParts, FlavorHours, Gap, HistoryView, PARTS, RecordedUsage, Usage, UsageGroup, UsageQuery,
    UsageRow,
};
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum time since the last commit, in milliseconds, within which an answer counts runs until now. Without events there is a
/// commit each half minute.
pub(super) const MAX_BEHIND: i64 = 90_000;

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
        let (reading, runs) = self.reading()?;
        let times = reading.times()?;
        let asked_at = now.as_millisecond();
        let behind = times.until.filter(|until| asked_at.saturating_sub(*until) > MAX_BEHIND);
        let now = behind.unwrap_or(asked_at);
        let recorded = times.from.unwrap_or(now).max(asked_at.saturating_sub(KEEP_DAYS));
        let recorded = recorded.max(times.days_from.unwrap_or(i64::MIN));
        let start = query.from.as_millisecond().max(recorded);
        let hours_from = asked_at.saturating_sub(KEEP_HOURS).max(times.hours_from.unwrap_or(i64::MIN));
        let has_hours = |at: i64| at > hours_from.saturating_add(DAY);
        let from = if has_hours(start) { hour_of(start) } else { day_of(start) };
        let end = query.until.as_millisecond().saturating_sub(1);
        let end = if has_hours(end) { hour_of(end) + HOUR } else { day_of(end) + DAY };
        let until = if query.until.as_millisecond() >= now { now } else { end.min(now) };
        let mut summing = Summing { query, groups: BTreeMap::new(), all: Answer::default() };
        // Before the first hour is closed, all hours are read by hour.
        let closed = times.closed.unwrap_or(i64::MIN);
        let parts = history.borrowed_parts(timestamp(now));
        // The hours that are not closed, and their day, are read by hour.
        for (by_day, start, end) in pieces(from, until, closed) {
            reading.sums(by_day, start, end, |at, group, sums| {
                summing.add(&group, sums, (at, closed), &parts);
            })?;
        }
        for run in &runs {
            let key = Group::of(&run.workload);
            let counted = run.counted_until.max(from).max(counted_since(recorded, now));
            if run.start < until {
                summing.count_running(&key);
            }
            for row in run.amounts.iter().filter(|row| row.amount != 0) {
                let key = Group { flavor: &row.flavor, resource: &row.resource, ..key };
                split(counted, until, |hour, time| {
                    let mut sums = Sums::default();
                    sums.used.add_product(row.amount, time);
                    summing.add(&key, sums, (hour, closed), &parts);
                });
            }
        }
        let mut gaps = reading.gaps(from, until)?;
        // Time that is not committed yet is a gap, like time without a recorder.
        gaps.extend(behind.map(|behind| Gap {
            start: timestamp(behind),
            end: timestamp(asked_at),
            unknown_ends: 0,
        }));
        Ok(RecordedUsage {
            usage: summing.usage(timestamp(from.max(recorded))),
            until: timestamp(until),
            recorded_from: times.from.map(|_| timestamp(recorded)),
            gaps,
        })
    }
}

impl Summing<'_, '_> {
    /// Adds the sums of a group in an hour. In hours that are not closed, the borrowed part follows from `parts`.
    fn add(&mut self, group: &Group<'_>, mut sums: Sums, (at, closed): (i64, i64), parts: &BorrowedParts) {
        let query = self.query;
        if query.namespace.is_some_and(|namespace| *namespace != *group.namespace) {
            return;
        }
        let of_workloads = group.resource.is_empty();
        if !of_workloads && query.resource.is_some_and(|resource| *resource != *group.resource) {
            return;
        }
        if of_workloads && query.by == UsageGroup::Flavor {
            self.all.numbers.add(&sums);
            return;
        }
        if at >= closed && !of_workloads {
            let fr = FlavorResource::new(group.flavor, group.resource);
            let hours = parts.get(group.cluster_queue).and_then(|parts| parts.get(&fr));
            let part = hours.and_then(|hours| hours.get(&at)).copied().unwrap_or_default();
            sums.borrowed = Exact(sums.used.0.saturating_mul(part).checked_div(PARTS).unwrap_or(0));
        }
        let name = self.name_of(group);
        for answer in [self.groups.entry(name).or_default(), &mut self.all] {
            if of_workloads {
                answer.numbers.add(&sums);
            } else {
                let flavors = answer.resources.entry(Arc::from(group.resource)).or_default();
                flavors.entry(Arc::from(group.flavor)).or_default().add(&sums);
            }
        }
    }

    fn count_running(&mut self, group: &Group<'_>) {
        if self.query.namespace.is_some_and(|namespace| *namespace != *group.namespace) {
            return;
        }
        self.all.running = self.all.running.saturating_add(1);
        if self.query.by != UsageGroup::Flavor {
            let answer = self.groups.entry(self.name_of(group)).or_default();
            answer.running = answer.running.saturating_add(1);
        }
    }

    fn name_of(&self, group: &Group<'_>) -> String {
        match self.query.by {
            UsageGroup::Queue => group.cluster_queue.to_owned(),
            UsageGroup::Cohort => {
                self.query.cohorts.get(group.cluster_queue).map(ToString::to_string).unwrap_or_default()
            }
            UsageGroup::Namespace => group.namespace.to_owned(),
            UsageGroup::LocalQueue => format!("{}/{}", group.namespace, group.local_queue),
            UsageGroup::PriorityClass => group.priority_class.to_owned(),
            UsageGroup::Flavor => group.flavor.to_owned(),
        }
    }

    fn usage(self, from: Timestamp) -> Usage {
        let rows = self.groups.iter().flat_map(|(name, answer)| answer.rows(name)).collect();
        Usage { from: Some(from), rows, sums: self.all.rows("sum") }
    }
}

impl Answer {
    fn rows(&self, name: &str) -> Vec<UsageRow> {
        let row = |(resource, flavors): (&Arc<str>, &ByFlavor)| {
            let mut sums = Sums::default();
            for one in flavors.values() {
                sums.add(one);
            }
            (sums.used.0 != 0 || sums.lost.0 != 0).then(|| UsageRow {
                group: name.to_owned(),
                resource: Arc::clone(resource),
                jobs: self.running.saturating_add(usize::try_from(self.numbers.ended).unwrap_or(usize::MAX)),
                used: sums.used.0,
                // An end that was observed late reduces the used amount only, not its borrowed part.
                borrowed: sums.borrowed.0.min(sums.used.0),
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
        borrowed: sums.borrowed.0.min(sums.used.0),
        lost: sums.lost.0,
    }
}

/// Returns the pieces of a period: full days in the middle, hours before and after. The day of the end is read by hour.
fn pieces(from: i64, until: i64, closed: i64) -> Vec<(bool, i64, i64)> {
    let first = if day_of(from) == from { from } else { day_of(from).saturating_add(DAY) };
    let last = day_of(until.min(closed));
    if first >= last {
        return vec![(false, from, until)];
    }
    let all = [(false, from, first), (true, first, last), (false, last, until)];
    all.into_iter().filter(|(_, start, end)| start < end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_days_are_read_as_days() {
        let at = |days: i64, hours: i64| days * DAY + hours * HOUR;
        assert_eq!(pieces(at(1, 5), at(1, 9), at(9, 0)), [(false, at(1, 5), at(1, 9))]);
        assert_eq!(pieces(at(1, 5), at(2, 9), at(9, 0)), [(false, at(1, 5), at(2, 9))]);
        assert_eq!(
            pieces(at(1, 5), at(4, 9), at(9, 0)),
            [(false, at(1, 5), at(2, 0)), (true, at(2, 0), at(4, 0)), (false, at(4, 0), at(4, 9))]
        );
        assert_eq!(pieces(at(1, 0), at(3, 0), at(9, 0)), [(true, at(1, 0), at(3, 0))]);
        // The last hour of the day is not closed.
        assert_eq!(
            pieces(at(1, 0), at(3, 0), at(2, 23)),
            [(true, at(1, 0), at(2, 0)), (false, at(2, 0), at(3, 0))]
        );
    }
}
