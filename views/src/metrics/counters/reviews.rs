//! Metrics of reviews of admissions and conversions: duration, number in flight, and refusals by reason.
//!
//! Invariant: label values are constants of this program, so that no client can increase the number of series.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::super::model::MetricLabels;
use crate::admission;
use crate::api::v1beta1::CONVERSION_PATH;

/// Buckets in seconds: one millisecond, doubling, to four seconds. The API server waits for three.
const BOUNDS: [f64; 13] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096];

/// Metrics of reviews; clones share the counters.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    times: Family<MetricLabels, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    refused: Family<MetricLabels, Counter>,
}

impl Default for ReviewMetrics {
    /// Creates metrics that are not exported.
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl ReviewMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let times: Family<MetricLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BOUNDS));
        let (in_flight, refused) = (Gauge::default(), Family::<MetricLabels, Counter>::default());
        registry.register("review_duration_seconds", "Duration of a review", times.clone());
        registry.register("reviews_in_flight", "Reviews in flight", in_flight.clone());
        registry.register(
            "reviews_refused",
            "Reviews rejected without evaluation, by reason",
            refused.clone(),
        );
        Self { times, in_flight, refused }
    }
}

/// A review that is in flight until this guard is dropped.
#[derive(Debug)]
pub struct InFlightGuard(Gauge);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ReviewMetrics {
    /// Counts a review as in flight until the guard is dropped.
    pub fn begin(&self) -> InFlightGuard {
        self.in_flight.inc();
        InFlightGuard(self.in_flight.clone())
    }

    /// Records the duration of a review on this path.
    pub fn observe_duration(&self, path: &str, time: Duration) {
        let mut paths = admission::paths().chain([CONVERSION_PATH]);
        let path = paths.find(|known| *known == path).unwrap_or("other");
        self.times.get_or_create(&vec![("path", path.to_owned())]).observe(time.as_secs_f64());
    }

    /// Counts a review that was refused without evaluation.
    pub fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    #[test]
    fn review_metrics_are_exported() {
        let mut registry = Registry::default();
        let reviews = ReviewMetrics::new(registry.sub_registry_with_prefix("sluice"));
        let page = || {
            let mut text = String::new();
            encode_registry(&mut text, &registry).unwrap();
            text
        };
        let first = reviews.begin();
        let second = reviews.begin();
        drop(first);
        reviews.observe_duration("/mutate-batch-v1-job", Duration::from_millis(3));
        reviews.observe_duration("/of-a-stranger", Duration::from_millis(3));
        reviews.count_refused("busy");
        let shown = page();
        for line in [
            r#"sluice_review_duration_seconds_bucket{le="0.002",path="/mutate-batch-v1-job"} 0"#,
            r#"sluice_review_duration_seconds_bucket{le="0.004",path="/mutate-batch-v1-job"} 1"#,
            r#"sluice_review_duration_seconds_count{path="other"} 1"#,
            "sluice_reviews_in_flight 1",
            r#"sluice_reviews_refused_total{reason="busy"} 1"#,
        ] {
            assert!(shown.lines().any(|have| have == line), "{line} is missing in\n{shown}");
        }
        drop(second);
        assert!(page().contains("sluice_reviews_in_flight 0"));
    }
}
