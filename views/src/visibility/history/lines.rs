//! Lines of charts: the series of a ClusterQueue, or of all, as a number of points.

use super::HistorySource;
use super::question::day_before;
use crate::history::{Measure, Point, QueueNumber, RecordEvent};
use crate::resources::{to_f64, units_per_whole};
use crate::visibility::access::Access;
use crate::visibility::views::{DayReport, LineView, ReasonCount};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Returns the lines of a ClusterQueue, or the sums over all of them, with at most `points` points each over the last 24 hours or
/// since the start. A measure that was always 0 has no line; a reader that may not see sums gets no lines. Waits have no sums.
pub fn lines(
    source: &HistorySource<'_>,
    cluster_queue: Option<&str>,
    points: i64,
    access: &Access,
) -> Vec<LineView> {
    let history = source.history;
    let visible = if cluster_queue.is_some() { access.sees_sums() } else { access.cluster };
    let from = day_before(source.now);
    let Some(recorded) = history.from.filter(|_| visible && points > 0) else { return Vec::new() };
    let period = (from.max(recorded), source.now);
    // A point is not narrower than a bucket, whose value counts at its start.
    let buckets = period.1.duration_since(period.0).as_millis() / i128::from(history.width().millis());
    let points = i64::try_from(buckets).unwrap_or(points).clamp(1, points);
    let number = cluster_queue.map(|name| history.queue(name));
    let wanted = |queue: QueueNumber, measure: Measure| match number {
        Some(number) => number == Some(queue),
        None => !matches!(measure, Measure::WaitMedian | Measure::WaitP99),
    };
    let mut by_measure: BTreeMap<Measure, Vec<Point>> = BTreeMap::new();
    for (queue, measure) in history.series().filter(|(queue, measure)| wanted(*queue, *measure)) {
        let line = history.line((queue, measure), period, points);
        let sum = by_measure.entry(measure).or_default();
        if sum.is_empty() {
            *sum = line;
        } else {
            for (sum, point) in sum.iter_mut().zip(line) {
                sum.value = sum.value.saturating_add(point.value);
            }
        }
    }
    by_measure.into_iter().map(|(measure, points)| line_view(source, measure, &points)).collect()
}

/// Returns the sums of the last 24 hours, or since the start; `None` for a reader that may not see the whole cluster.
pub(super) fn day(source: &HistorySource<'_>, access: &Access) -> Option<DayReport> {
    let recorded = source.history.records_from().filter(|_| access.cluster)?;
    let (from, until) = (day_before(source.now).max(recorded), source.now);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for record in source.history.records.iter().filter(|record| !record.seeded) {
        if let RecordEvent::Eviction(eviction) = &record.event
            && eviction.at >= from.as_millisecond()
        {
            let count = reasons.entry(&eviction.reason).or_default();
            *count = count.saturating_add(1);
        }
    }
    let (median, p99) = source.history.waits(from, until);
    let mut by_reason: Vec<ReasonCount> =
        reasons.into_iter().map(|(reason, count)| ReasonCount { reason: reason.to_owned(), count }).collect();
    by_reason.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    let seconds = |wait: i64| wait.div_euclid(1_000);
    Some(DayReport {
        from: Some(from),
        wait_p50_seconds: median.map(seconds),
        wait_p99_seconds: p99.map(seconds),
        evictions: by_reason.iter().map(|row| row.count).sum(),
        evictions_by_reason: by_reason,
    })
}

fn line_view(source: &HistorySource<'_>, measure: Measure, points: &[Point]) -> LineView {
    let (name, fr) = match measure {
        Measure::Usage(fr) => ("usage", source.named(fr)),
        Measure::Borrowed(fr) => ("borrowed", source.named(fr)),
        Measure::Pending(_) => ("pending", None),
        Measure::Admissions => ("admissions", None),
        Measure::Evictions => ("evictions", None),
        Measure::WaitMedian => ("waitP50", None),
        Measure::WaitP99 => ("waitP99", None),
    };
    let whole = fr.map_or(1, |fr| units_per_whole(&fr.resource));
    let value = |point: &Point| {
        let divisor = i128::from(point.divisor.max(1)).saturating_mul(i128::from(whole)).max(1);
        // The whole part is converted apart: a product with milliseconds may have more digits than a float.
        to_f64(point.value.div_euclid(divisor)) + to_f64(point.value.rem_euclid(divisor)) / to_f64(divisor)
    };
    let start = |point: &Point| Timestamp::from_millisecond(point.start).ok();
    let step =
        points.first().zip(points.get(1)).map(|(first, second)| second.start.saturating_sub(first.start));
    LineView {
        measure: name.to_owned(),
        flavor: fr.map(|fr| fr.flavor.to_string()).unwrap_or_default(),
        resource: fr.map(|fr| fr.resource.to_string()).unwrap_or_default(),
        reason: match measure {
            Measure::Pending(reason) => reason.as_str().to_owned(),
            _ => String::new(),
        },
        from: points.first().and_then(start),
        step_milliseconds: step.unwrap_or_default(),
        values: points.iter().map(value).collect(),
    }
}
