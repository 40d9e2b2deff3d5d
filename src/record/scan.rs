//! What an answer about a period reads: the sums of its hours and days, and the open runs.
//!
//! Invariants: file and runs are as of one commit; a period begins and ends at full hours, which the answer names; full days are read
//! as days, so that a month costs as much as thirty days and two days of hours; hours that are not closed are read by hour, and their
//! borrowed part follows from the history of this process.

use super::periods::{DAY, Exact, Group, HOUR, Sums, day_of, hour_of, split};
use super::recorder::Recorder;
use super::rows::{OpenRow, timestamp};
use super::runs::counted_since;
use super::store::{KEEP_DAYS, KEEP_HOURS, Reading, StoreError};
use crate::history::{BorrowedParts, Gap, HistoryView, PARTS, UsageQuery};
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::sync::Arc;

/// Maximum time since the last commit, in milliseconds, within which an answer counts runs until now. Without events there is a
/// commit each half minute.
pub(super) const MAX_BEHIND: i64 = 90_000;

/// A period of the record, for a query. Times are milliseconds since the epoch.
pub(super) struct Scan<'a, 'q> {
    query: &'a UsageQuery<'q>,
    reading: Reading,
    runs: Vec<Arc<OpenRow>>,
    /// When it was asked.
    asked_at: i64,
    /// Time of the last commit, if later time is not committed yet.
    behind: Option<i64>,
    /// From when on the record has sums, or would have them if it had begun.
    recorded: i64,
    has_begun: bool,
    /// Start of the period, at a full hour or day; it may be before `recorded`.
    pub(super) from: i64,
    pub(super) until: i64,
    /// Whether sums by hour are kept for all of the period.
    has_hours: bool,
    /// End of the last hour whose borrowed parts the record has.
    closed: i64,
    parts: BorrowedParts,
}

impl Recorder {
    /// Returns the period of a query as the record has it. `history` belongs to this process.
    pub(super) fn scan<'a, 'q>(
        &self,
        query: &'a UsageQuery<'q>,
        history: &HistoryView,
        now: Timestamp,
    ) -> Result<Scan<'a, 'q>, StoreError> {
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
        Ok(Scan {
            query,
            asked_at,
            behind,
            recorded,
            has_begun: times.from.is_some(),
            from,
            until: if query.until.as_millisecond() >= now { now } else { end.min(now) },
            has_hours: has_hours(start),
            // Before the first hour is closed, all hours are read by hour.
            closed: times.closed.unwrap_or(i64::MIN),
            parts: history.borrowed_parts(timestamp(now)),
            reading,
            runs,
        })
    }
}

impl Scan<'_, '_> {
    /// Returns the start of the time of the period for which there are sums.
    pub(super) fn start(&self) -> Timestamp {
        timestamp(self.from.max(self.recorded))
    }

    /// Returns from when on the record has sums; `None` if it has not begun.
    pub(super) fn recorded_from(&self) -> Option<Timestamp> {
        self.has_begun.then(|| timestamp(self.recorded))
    }

    /// Returns the runs that have not ended and began in the period or before it.
    pub(super) fn running(&self) -> impl Iterator<Item = &OpenRow> {
        self.runs.iter().map(|run| &**run).filter(|run| run.start < self.until)
    }

    /// Returns the times of the period in which nothing was recorded. Time that is not committed yet is one of them.
    pub(super) fn gaps(&self) -> Result<Vec<Gap>, StoreError> {
        let mut gaps = self.reading.gaps(self.from, self.until)?;
        gaps.extend(self.behind.map(|behind| Gap {
            start: timestamp(behind),
            end: timestamp(self.asked_at),
            ..Gap::default()
        }));
        Ok(gaps)
    }

    /// Calls `each` with the start of an hour or a day, a group and its sums then, if the query counts the group. Days are used where
    /// they are closed, and `by_day` allows them or hours are no longer kept.
    pub(super) fn sums(
        &self,
        by_day: bool,
        mut each: impl FnMut(i64, &Group<'_>, &Sums),
    ) -> Result<(), StoreError> {
        let pieces = if by_day || !self.has_hours {
            pieces(self.from, self.until, self.closed)
        } else {
            vec![(false, self.from, self.until)]
        };
        for (by_day, start, end) in pieces {
            self.reading.sums(by_day, start, end, |at, group, sums| {
                self.count((at, &group), sums, &mut each);
            })?;
        }
        let since = counted_since(self.recorded, self.behind.unwrap_or(self.asked_at));
        for run in &self.runs {
            let key = Group::of(&run.workload);
            let counted = run.counted_until.max(self.from).max(since);
            for row in run.amounts.iter().filter(|row| row.amount != 0) {
                let key = Group { flavor: &row.flavor, resource: &row.resource, ..key };
                split(counted, self.until, |hour, time| {
                    let mut sums = Sums::default();
                    sums.used.add_product(row.amount, time);
                    self.count((hour, &key), sums, &mut each);
                });
            }
        }
        Ok(())
    }

    /// Calls `each` if the query counts the group.
    fn count(
        &self,
        (at, group): (i64, &Group<'_>),
        mut sums: Sums,
        each: &mut impl FnMut(i64, &Group<'_>, &Sums),
    ) {
        if self.query.namespace.is_some_and(|namespace| *namespace != *group.namespace) {
            return;
        }
        if !group.is_of_workloads() {
            if self.query.resource.is_some_and(|resource| *resource != *group.resource) {
                return;
            }
            if at >= self.closed {
                let fr = FlavorResource::new(group.flavor, group.resource);
                let hours = self.parts.get(group.cluster_queue).and_then(|parts| parts.get(&fr));
                let part = hours.and_then(|hours| hours.get(&at)).copied().unwrap_or_default();
                sums.borrowed = Exact(sums.used.0.saturating_mul(part).checked_div(PARTS).unwrap_or(0));
            }
        }
        each(at, group, &sums);
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
