//! What is configured and not done, as gauges: alerts can tell of it for as long as it stands.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counters::text;
use super::metrics::MetricLabels;
use super::page::register_gauge;

/// What holds while the process runs.
#[derive(Debug, Default)]
pub struct ConfigurationGaps {
    frameworks: Vec<String>,
    jobs_unguarded: AtomicBool,
}

impl ConfigurationGaps {
    /// With these frameworks configured and not managed.
    pub fn new<'a>(frameworks: impl IntoIterator<Item = &'a str>) -> Self {
        let frameworks = frameworks.into_iter().map(str::to_owned).collect();
        Self { frameworks, jobs_unguarded: AtomicBool::new(false) }
    }

    /// Whether Jobs without a queue are to be managed while no webhook holds them back when the manager is away. Answers
    /// whether that is news.
    pub fn set_jobs_unguarded(&self, unguarded: bool) -> bool {
        self.jobs_unguarded.swap(unguarded, Ordering::AcqRel) != unguarded
    }

    /// As Prometheus' text.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sluice");
        let frameworks = Family::<MetricLabels, Gauge>::default();
        for name in &self.frameworks {
            frameworks.get_or_create(&vec![("framework", name.clone())]).set(1);
        }
        registry.register(
            "unmanaged_framework",
            "Frameworks that are configured and not managed by this version: their objects take no quota",
            frameworks,
        );
        register_gauge(
            &mut registry,
            "jobs_without_queue_unguarded",
            "Whether Jobs without a queue, which are to be managed, start while no manager answers",
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
        let standing = ConfigurationGaps::new(["pod", "ray.io/rayjob"]);
        let lines = |standing: &ConfigurationGaps| {
            let text = standing.render().unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut want = vec![
            "sluice_unmanaged_framework{framework=\"pod\"} 1",
            "sluice_unmanaged_framework{framework=\"ray.io/rayjob\"} 1",
            "sluice_jobs_without_queue_unguarded 0",
        ];
        let mut found = lines(&standing);
        found.sort_by_key(|line| want.iter().position(|wanted| wanted == line));
        assert_eq!(found, want);
        assert!(standing.set_jobs_unguarded(true) && !standing.set_jobs_unguarded(true));
        want[2] = "sluice_jobs_without_queue_unguarded 1";
        assert!(lines(&standing).contains(&want[2].to_owned()));
        assert_eq!(lines(&ConfigurationGaps::default()), ["sluice_jobs_without_queue_unguarded 0"]);
    }
}
