//! Reviews in numbers: how long they take, how many are under way, and why which were refused.
//!
//! Invariant: labels are words of this program, so that no client can make families grow.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::super::metrics::Labels;
use crate::admission::PATHS;

/// From a millisecond doubling to four seconds: the API server waits for three.
const BOUNDS: [f64; 13] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096];

/// Counters of reviews; clones count together.
#[derive(Clone, Debug)]
pub struct Reviews {
    times: Family<Labels, Histogram, fn() -> Histogram>,
    under_way: Gauge,
    refused: Family<Labels, Counter>,
}

impl Default for Reviews {
    /// On no page.
    fn default() -> Self {
        Self::new(&mut Registry::default())
    }
}

impl Reviews {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let times: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BOUNDS));
        let (under_way, refused) = (Gauge::default(), Family::<Labels, Counter>::default());
        registry.register(
            "review_duration_seconds",
            "Time from the head of a review to its answer",
            times.clone(),
        );
        registry.register("reviews_in_flight", "Reviews that are not answered yet", under_way.clone());
        registry.register("reviews_refused", "Reviews that were not judged, by reason", refused.clone());
        Self { times, under_way, refused }
    }
}

/// A review that is under way until this is dropped.
#[derive(Debug)]
pub struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Reviews {
    /// Counts a review as under way.
    pub fn begin(&self) -> UnderWay {
        self.under_way.inc();
        UnderWay(self.under_way.clone())
    }

    /// Counts an answer on this path.
    pub fn answered(&self, path: &str, time: Duration) {
        let path = PATHS.iter().find(|known| **known == path).map_or("other", |known| *known);
        self.times.get_or_create(&vec![("path", path.to_owned())]).observe(time.as_secs_f64());
    }

    /// Counts a review that was not judged.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&vec![("reason", reason.to_owned())]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    #[test]
    fn reviews_are_on_the_page() {
        let mut registry = Registry::default();
        let reviews = Reviews::new(registry.sub_registry_with_prefix("sluice"));
        let page = || {
            let mut text = String::new();
            encode_registry(&mut text, &registry).unwrap();
            text
        };
        let first = reviews.begin();
        let second = reviews.begin();
        drop(first);
        reviews.answered("/mutate-batch-v1-job", Duration::from_millis(3));
        reviews.answered("/of-a-stranger", Duration::from_millis(3));
        reviews.refused("busy");
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
