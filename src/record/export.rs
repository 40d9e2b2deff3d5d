//! Pages of the record: stored runs and segments, or sums by hour and day.
//!
//! Invariants: the first page fixes the period and the commit on which all pages are based, so that later entries change no row:
//! a run that ended after the commit still runs. A page reads its own rows, and passes over a bounded number of rows of other
//! namespaces.

use super::export_rows::{Stretch, sums_row};
use super::periods::{DAY, Group, HOUR, Sums, day_of, hour_of, split};
use super::recorder::Recorder;
use super::rows::{AmountRow, OpenRow, RecordRow, timestamp};
use super::runs::counted_since;
use super::scan::MAX_BEHIND;
use super::store::{KEEP_DAYS, KEEP_HOURS, Reading, StoreError, Times, parsed};
use crate::history::Gap;
use crate::visibility::history::Rollup;
use crate::visibility::history::export::{
    ExportPage, ExportPeriod, ExportPlace, ExportQuery, ExportTopic, expired,
};
use crate::visibility::page::ModelError;
use crate::visibility::views::UsageRecordView;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of rows that a page passes over.
const MAX_SCANNED: usize = if cfg!(test) { 50 } else { 20_000 };
/// Maximum number of segments that may have ended since the first page. A page of running workloads looks at each of them.
const MAX_ENDED: usize = if cfg!(test) { 200 } else { 200_000 };

/// A page that is being made.
struct Page<'a> {
    namespace: Option<&'a str>,
    /// When the record began: as in `usage`, nothing before that counts.
    began: i64,
    limit: usize,
    rows: Vec<UsageRecordView>,
    /// Place behind the last row.
    last: Option<ExportPlace>,
    /// Place where the next page begins, if this one is full or passed over too many rows.
    next: Option<ExportPlace>,
    scanned: usize,
    /// Time of the last row that was passed over.
    scanned_at: i64,
}

impl Recorder {
    /// Returns a page of rows, or why there is no page after this token.
    pub(super) fn read_export(
        &self,
        query: &ExportQuery<'_>,
    ) -> Result<Result<ExportPage, ModelError>, StoreError> {
        let (reading, runs) = self.reading()?;
        let (times, topic) = (reading.times()?, query.topic);
        let (period, place) = match &query.after {
            Some((period, place)) => (*period, place.clone()),
            None => first(topic, &times, query.now.as_millisecond()),
        };
        let dropped = times.records_from.filter(|_| topic.rollup.is_none() && !place.running);
        if query.after.is_some() && dropped.is_some_and(|dropped| dropped > place.time) {
            return Ok(Err(expired("the record has dropped the rows that were next, which are too old")));
        }
        let mut page = Page::new(topic, times.from.unwrap_or(i64::MIN));
        match topic.rollup {
            // No time of the period is committed yet.
            _ if period.until <= period.from => {}
            Some(rollup) => page.add_sums(&reading, &runs, (rollup, period), &place)?,
            None => {
                if !place.running {
                    page.add_segments(&reading, period, &place)?;
                }
                if page.next.is_none() && !page.add_running(&reading, &runs, period, &place)? {
                    return Ok(Err(expired("too much has ended since the first page")));
                }
            }
        }
        let mut gaps = reading.gaps(period.from, period.until)?;
        gaps.extend((period.until < period.wanted).then(|| Gap {
            start: timestamp(period.until),
            end: timestamp(period.wanted),
            ..Gap::default()
        }));
        Ok(Ok(ExportPage {
            rows: page.rows,
            period,
            next: page.next,
            recorded_from: period.recorded.map(timestamp),
            gaps,
        }))
    }
}

/// Returns the period of an export that begins now, and the place of its first row.
fn first(topic: &ExportTopic, times: &Times, now: i64) -> (ExportPeriod, ExportPlace) {
    let asked = topic.until.map_or(now, |until| until.as_millisecond().min(now));
    let from = topic.since.as_millisecond().min(asked);
    let as_of = times.until.map_or(now, |until| until.min(now));
    let mut period = ExportPeriod { from, as_of, begun: now, ..ExportPeriod::default() };
    let kept = match topic.rollup {
        None => {
            period.until = asked.min(as_of).max(from);
            // Without events there is a commit each half minute.
            let is_behind = asked.saturating_sub(period.until) > MAX_BEHIND;
            period.wanted = if is_behind { asked } else { period.until };
            times.records_from
        }
        Some(rollup) => {
            let end = floor(rollup, asked.saturating_add(step(rollup)).saturating_sub(1));
            // An hour that is not closed has neither its sums nor its borrowed parts.
            let closed = times.closed.map_or(from, |closed| floor(rollup, closed.min(as_of)));
            period.until = end.min(closed).max(from);
            period.wanted = end.min(floor(rollup, now.saturating_sub(MAX_BEHIND)));
            // The period does not begin with rows that are about to be dropped.
            let kept_from = match rollup {
                Rollup::Hour => times.hours_from,
                Rollup::Day => times.days_from,
            };
            let kept = now.saturating_sub(kept(rollup)).max(kept_from.unwrap_or(i64::MIN));
            Some(kept.saturating_add(DAY))
        }
    };
    period.recorded = times.from.map(|from| kept.map_or(from, |kept| kept.max(from)));
    let time = match topic.rollup {
        // A segment that ended at the start is before it.
        None => from.saturating_add(1),
        Some(rollup) => floor(rollup, kept.map_or(from, |kept| kept.max(from))),
    };
    (period, ExportPlace { time, ..ExportPlace::default() })
}

const fn step(rollup: Rollup) -> i64 {
    match rollup {
        Rollup::Hour => HOUR,
        Rollup::Day => DAY,
    }
}

const fn kept(rollup: Rollup) -> i64 {
    match rollup {
        Rollup::Hour => KEEP_HOURS,
        Rollup::Day => KEEP_DAYS,
    }
}

/// Returns the start of the hour or day of a time.
const fn floor(rollup: Rollup, time: i64) -> i64 {
    match rollup {
        Rollup::Hour => hour_of(time),
        Rollup::Day => day_of(time),
    }
}

impl<'a> Page<'a> {
    fn new(topic: &'a ExportTopic, began: i64) -> Self {
        Self {
            namespace: topic.namespace.as_deref(),
            began,
            limit: topic.page.limit.max(1),
            rows: Vec::new(),
            last: None,
            next: None,
            scanned: 0,
            scanned_at: i64::MIN,
        }
    }

    /// Returns whether a row of a namespace is asked for.
    fn wants(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace)
    }

    /// Counts a row that is read. Returns false if the page must end before the row. It ends between two times only, because the
    /// key of this row may belong to a namespace that the reader does not see.
    fn scan(&mut self, time: i64) -> bool {
        if self.scanned >= MAX_SCANNED && time > self.scanned_at {
            self.next = Some(ExportPlace { time, ..ExportPlace::default() });
            return false;
        }
        (self.scanned, self.scanned_at) = (self.scanned.saturating_add(1), time);
        true
    }

    /// Adds a row; `place` is behind it. Returns false if the page is full.
    fn push(&mut self, row: UsageRecordView, place: ExportPlace) -> bool {
        if self.rows.len() >= self.limit {
            self.next = self.last.take();
            return false;
        }
        self.rows.push(row);
        self.last = Some(place);
        true
    }

    /// Adds the rows of a part behind a place. Returns false if the page is full.
    fn push_part(
        &mut self,
        part: &Stretch<'_>,
        as_of: i64,
        place: &ExportPlace,
        after: &ExportPlace,
    ) -> bool {
        let is_same = (place.running, place.time, &place.key) == (after.running, after.time, &after.key);
        let done = if is_same { after.done } else { 0 };
        part.amounts.iter().enumerate().skip(done).all(|(number, amount)| {
            let place = ExportPlace { done: number.saturating_add(1), ..place.clone() };
            self.push(part.row(amount, (self.began, as_of)), place)
        })
    }

    /// Adds segments, in the order of their ends.
    fn add_segments(
        &mut self,
        reading: &Reading,
        period: ExportPeriod,
        after: &ExportPlace,
    ) -> Result<(), StoreError> {
        reading.segments((after.time, &after.key), period.as_of, |time, key, content| {
            if !self.scan(time) {
                return false;
            }
            let Some(row) = parsed::<RecordRow>(content) else { return true };
            let part = Stretch::of_segment(&row, Some(time));
            if part.start >= period.until || !self.wants(&row.workload.namespace) {
                return true;
            }
            let place = ExportPlace { time, key: key.to_owned(), ..ExportPlace::default() };
            self.push_part(&part, period.as_of, &place, after)
        })
    }

    /// Adds the workloads that ran when the first page was made, in the order of their UIDs: open runs, and segments that ended
    /// since. Returns false if there are too many of these segments.
    fn add_running(
        &mut self,
        reading: &Reading,
        runs: &[Arc<OpenRow>],
        period: ExportPeriod,
        after: &ExportPlace,
    ) -> Result<bool, StoreError> {
        let start = if after.running { after.key.as_str() } else { "" };
        let mut all: BTreeMap<String, Running> = BTreeMap::new();
        let most = self.limit.saturating_sub(self.rows.len()).saturating_add(2);
        let mut add = |key: &str, running: &dyn Fn() -> Option<Running>| {
            let is_beyond =
                all.len() >= most && all.last_key_value().is_some_and(|(last, _)| key > last.as_str());
            if key < start || is_beyond {
                return;
            }
            if let Some(running) = running() {
                all.insert(key.to_owned(), running);
            }
            if all.len() > most {
                all.pop_last();
            }
        };
        for run in runs.iter().filter(|run| run.since < period.until && self.wants(&run.workload.namespace)) {
            add(&key_of(run), &|| Some(Running::Open(Arc::clone(run))));
        }
        let mut ended = 0_usize;
        reading.segments((period.as_of, ""), i64::MAX, |_, key, content| {
            ended = ended.saturating_add(1);
            add(key, &|| {
                let row = parsed::<RecordRow>(content)?;
                let began = row.start.unwrap_or(row.time).as_millisecond();
                let wanted = began < period.until && self.wants(&row.workload.namespace);
                wanted.then(|| Running::Ended(Box::new(row)))
            });
            ended <= MAX_ENDED
        })?;
        if ended > MAX_ENDED {
            return Ok(false);
        }
        for (key, running) in all {
            let part = match &running {
                Running::Open(run) => Stretch::of_run(run),
                Running::Ended(row) => Stretch::of_segment(row, None),
            };
            let place = ExportPlace { running: true, key, ..ExportPlace::default() };
            if !self.push_part(&part, period.as_of, &place, after) {
                break;
            }
        }
        Ok(true)
    }

    /// Adds sums by hour or day that ended, with what open runs add to them.
    fn add_sums(
        &mut self,
        reading: &Reading,
        runs: &[Arc<OpenRow>],
        (rollup, period): (Rollup, ExportPeriod),
        after: &ExportPlace,
    ) -> Result<(), StoreError> {
        let end = floor(rollup, period.until);
        let since = counted_since(period.recorded.unwrap_or(i64::MIN), end).max(after.time);
        let mut uncounted = uncounted(runs, (rollup, after), (since, end));
        let mut is_full = false;
        reading.sums_in_order(
            rollup == Rollup::Day,
            (after.time, &after.key),
            end,
            |time, key, content| {
                let Some(mut sums) = parsed::<Sums>(content) else { return true };
                while let Some(first) = uncounted
                    .first_entry()
                    .filter(|first| (first.key().0, first.key().1.as_str()) < (time, key))
                {
                    let ((time, key), sums) = first.remove_entry();
                    if !self.push_sums(rollup, (time, &key), &sums, after) {
                        is_full = true;
                        return false;
                    }
                }
                if let Some(more) = uncounted.remove(&(time, key.to_owned())) {
                    sums.add(&more);
                }
                is_full = !self.scan(time) || !self.push_sums(rollup, (time, key), &sums, after);
                !is_full
            },
        )?;
        if !is_full {
            // After the last row that is stored.
            uncounted.iter().all(|((time, key), sums)| self.push_sums(rollup, (*time, key), sums, after));
        }
        Ok(())
    }

    fn push_sums(
        &mut self,
        rollup: Rollup,
        (time, key): (i64, &str),
        sums: &Sums,
        after: &ExportPlace,
    ) -> bool {
        let is_done = after.done > 0 && (after.time, after.key.as_str()) == (time, key);
        let group = Group::parse(key).filter(|group| self.wants(group.namespace));
        match group.filter(|_| !is_done && *sums != Sums::default()) {
            Some(group) => {
                let place = ExportPlace { time, key: key.to_owned(), done: 1, running: false };
                self.push(sums_row(&group, (time, time.saturating_add(step(rollup))), sums), place)
            }
            None => true,
        }
    }
}

/// A workload that ran when the first page was made.
enum Running {
    Open(Arc<OpenRow>),
    Ended(Box<RecordRow>),
}

/// Returns the key that the segment of an open run will have.
fn key_of(run: &OpenRow) -> String {
    format!("{}/segment/{}/{}", run.workload.uid, run.since, run.resizes)
}

/// Returns the additions of open runs to the stored sums, from a place on: time before an hour was closed that was observed
/// later.
fn uncounted(
    runs: &[Arc<OpenRow>],
    (rollup, after): (Rollup, &ExportPlace),
    (since, end): (i64, i64),
) -> BTreeMap<(i64, String), Sums> {
    let mut all: BTreeMap<(i64, String), Sums> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.counted_until < end) {
        for AmountRow { flavor, resource, amount } in run.amounts.iter().filter(|row| row.amount != 0) {
            let key = Group { flavor, resource, ..Group::of(&run.workload) }.key();
            split(run.counted_until.max(since), end, |hour, time| {
                let place = (floor(rollup, hour), key.as_str());
                if place >= (after.time, after.key.as_str()) {
                    all.entry((place.0, key.clone())).or_default().used.add_product(*amount, time);
                }
            });
        }
    }
    all
}
