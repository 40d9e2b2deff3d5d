//! Gauges of configuration gaps: settings that are configured but not effective, for alerts.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counters::text;
use super::exposition::register_gauge;
use super::model::MetricLabels;

/// Configuration gaps of this process.
#[derive(Debug, Default)]
pub struct ConfigurationGaps {
    frameworks: Vec<String>,
    jobs_unguarded: AtomicBool,
}

impl ConfigurationGaps {
    /// Creates the gaps with the frameworks that are configured but not managed.
    pub fn new<'a>(frameworks: impl IntoIterator<Item = &'a str>) -> Self {
        let frameworks = frameworks.into_iter().map(str::to_owned).collect();
        Self { frameworks, jobs_unguarded: AtomicBool::new(false) }
    }

    /// Sets whether Jobs without a queue name, which must be managed, can start while no manager answers, because no
    /// webhook fails closed for them. Returns whether the value changed.
    pub fn set_jobs_unguarded(&self, unguarded: bool) -> bool {
        self.jobs_unguarded.swap(unguarded, Ordering::AcqRel) != unguarded
    }

    /// Renders the metrics in Prometheus' text format.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sluice");
        let frameworks = Family::<MetricLabels, Gauge>::default();
        for name in &self.frameworks {
            frameworks.get_or_create(&vec![("framework", name.clone())]).set(1);
        }
        registry.register(
            "unmanaged_framework",
            "Frameworks that are configured but not supported by this version; their objects use no quota",
            frameworks,
        );
        register_gauge(
            &mut registry,
            "jobs_without_queue_unguarded",
            "Whether managed Jobs without a queue name start while no manager responds",
            i64::from(self.jobs_unguarded.load(Ordering::Acquire)),
        );
        text(&registry)
    }
}

#[cfg(test)]
mod tests {
    use super::ConfigurationGaps;

    #[test]
    fn unmanaged_frameworks_are_exported() {
        let gaps = ConfigurationGaps::new(["pod", "ray.io/rayjob"]);
        let lines = |gaps: &ConfigurationGaps| {
            let text = gaps.render().unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut expected = vec![
            "sluice_unmanaged_framework{framework=\"pod\"} 1",
            "sluice_unmanaged_framework{framework=\"ray.io/rayjob\"} 1",
            "sluice_jobs_without_queue_unguarded 0",
        ];
        let mut actual = lines(&gaps);
        actual.sort_by_key(|line| expected.iter().position(|wanted| wanted == line));
        assert_eq!(actual, expected);
        assert!(gaps.set_jobs_unguarded(true) && !gaps.set_jobs_unguarded(true));
        expected[2] = "sluice_jobs_without_queue_unguarded 1";
        assert!(lines(&gaps).contains(&expected[2].to_owned()));
        assert_eq!(lines(&ConfigurationGaps::default()), ["sluice_jobs_without_queue_unguarded 0"]);
    }
}
