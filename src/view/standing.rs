//! What is configured and not done, as gauges: alerts can tell of it for as long as it stands.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counters::text;
use super::metrics::Labels;
use super::page::gauge;

/// What holds while the process runs.
#[derive(Debug, Default)]
pub struct Standing {
    frameworks: Vec<String>,
    unguarded: AtomicBool,
}

impl Standing {
    /// With these frameworks configured and not managed.
    pub fn new<'a>(frameworks: impl IntoIterator<Item = &'a str>) -> Self {
        let frameworks = frameworks.into_iter().map(str::to_owned).collect();
        Self { frameworks, unguarded: AtomicBool::new(false) }
    }

    /// Whether Jobs without a queue are to be managed while no webhook holds them back when the manager is away. Answers
    /// whether that is news.
    pub fn unguarded(&self, unguarded: bool) -> bool {
        self.unguarded.swap(unguarded, Ordering::AcqRel) != unguarded
    }

    /// As Prometheus' text.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sluice");
        let frameworks = Family::<Labels, Gauge>::default();
        for name in &self.frameworks {
            frameworks.get_or_create(&vec![("framework", name.clone())]).set(1);
        }
        registry.register(
            "unmanaged_framework",
            "Frameworks that are configured and not managed by this version: their objects take no quota",
            frameworks,
        );
        gauge(
            &mut registry,
            "jobs_without_queue_unguarded",
            "Whether Jobs without a queue, which are to be managed, start while no manager answers",
            i64::from(self.unguarded.load(Ordering::Acquire)),
        );
        text(&registry)
    }
}

#[cfg(test)]
mod tests {
    use super::Standing;

    #[test]
    fn what_is_not_done_is_shown() {
        let standing = Standing::new(["pod", "ray.io/rayjob"]);
        let lines = |standing: &Standing| {
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
        assert!(standing.unguarded(true) && !standing.unguarded(true));
        want[2] = "sluice_jobs_without_queue_unguarded 1";
        assert!(lines(&standing).contains(&want[2].to_owned()));
        assert_eq!(lines(&Standing::default()), ["sluice_jobs_without_queue_unguarded 0"]);
    }
}
