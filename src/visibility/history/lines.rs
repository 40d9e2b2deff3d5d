//! Lines of charts: the series of a ClusterQueue, or of all, as a number of points.

use super::HistorySource;
use super::question::day_before;
use crate::history::{Measure, Point, QueueNumber};
use crate::resources::{to_f64, units_per_whole};
use crate::visibility::access::Access;
use crate::visibility::views::LineView;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Returns the lines of a ClusterQueue, or the sums over all of them, with at most `points` points each over the last 24 hours or
/// since the start. A measure that was 0 all the time has no line; so has everything for a reader who may not see sums. Waits
/// have no sums.
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
    // A point is not narrower than a bucket, which counts where it begins.
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
        // The whole part first: a product with milliseconds may have more digits than a float.
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
