//! Lines of charts: points of equal width, from the buckets of a series.
//!
//! Invariants: a level is a mean over its point, counts are sums, and of waits a point has the greatest.

use super::seen::millis;
use super::series_set::{Measure, QueueNumber};
use super::usage_scan::{Span, part_in};
use super::view::HistoryView;
use jiff::Timestamp;

/// A point of a line of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Start, in milliseconds since the epoch.
    pub start: i64,
    /// Value of the point: the mean of a level, the sum of counts, or the greatest wait in seconds.
    pub value: i128,
    /// Milliseconds by which the value is divided for a mean; 1 otherwise.
    pub divisor: i64,
}

impl HistoryView {
    /// Returns a line of at most `number` points of equal width over a period, the newest last.
    pub fn line(
        &self,
        (queue, measure): (QueueNumber, Measure),
        (from, until): (Timestamp, Timestamp),
        number: i64,
    ) -> Vec<Point> {
        let from = millis(from.max(self.from.unwrap_or(until)));
        let end = millis(until);
        let width = end.saturating_sub(from).max(1).div_euclid(number.max(1)).saturating_add(1);
        let level = matches!(measure, Measure::Usage(_) | Measure::Borrowed(_) | Measure::Pending(_));
        let latest = matches!(measure, Measure::WaitMedian | Measure::WaitP99);
        let buckets = self.buckets(queue, measure, until);
        let mut points = Vec::new();
        let mut start = from;
        while start < end {
            let to = start.saturating_add(width).min(end);
            let period = Span { from: start, until: to };
            let inside = buckets.iter().filter(|bucket| bucket.end > start && bucket.start < to);
            let value = if level {
                inside.map(|bucket| part_in(bucket, period)).fold(0, i128::saturating_add)
            } else {
                // Events in a bucket count at its start.
                let mine = inside.filter(|bucket| bucket.start >= start || start == from);
                let values = mine.map(|bucket| bucket.value);
                if latest { values.max().unwrap_or(0) } else { values.fold(0, i128::saturating_add) }
            };
            points.push(Point { start, value, divisor: if level { to.saturating_sub(start) } else { 1 } });
            start = to;
        }
        points
    }
}
