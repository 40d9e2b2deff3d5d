//! Gauges of configuration gaps, for alerts: settings that are configured but not effective, and definitions in the cluster
//! that lack fields of this version.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::counters::text;
use super::exposition::register_gauge;
use super::model::MetricLabels;
use crate::api::crd::served::MissingFields;

/// Configuration gaps of this process.
#[derive(Debug, Default)]
pub struct ConfigurationGaps {
    jobs_unguarded: AtomicBool,
    missing_fields: Mutex<MissingFields>,
    foreign_webhooks: Mutex<Vec<String>>,
    unknown_gates: Vec<String>,
}

impl ConfigurationGaps {
    /// Creates the gaps of a process whose configuration has these names in its feature gates that are no gates.
    pub fn with_unknown_gates(names: Vec<String>) -> Self {
        Self { unknown_gates: names, ..Self::default() }
    }

    /// Sets whether Jobs without a queue name, which must be managed, can start while no manager answers, because no
    /// webhook fails closed for them. Returns whether the value changed.
    pub fn set_jobs_unguarded(&self, unguarded: bool) -> bool {
        self.jobs_unguarded.swap(unguarded, Ordering::AcqRel) != unguarded
    }

    /// Sets the fields of this version that the definitions in the cluster lack, by resource. Returns whether they changed.
    pub fn set_missing_fields(&self, missing: &MissingFields) -> bool {
        let mut known = self.missing_fields.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *known != *missing;
        known.clone_from(missing);
        changed
    }

    /// Sets the webhook configurations that belong to another manager. Returns whether they changed.
    pub fn set_foreign_webhooks(&self, names: Vec<String>) -> bool {
        let mut known = self.foreign_webhooks.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *known != names;
        *known = names;
        changed
    }

    /// Renders the metrics in Prometheus' text format.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("sluice");
        register_gauge(
            &mut registry,
            "jobs_without_queue_unguarded",
            "Whether managed Jobs without a queue name start while no manager responds",
            i64::from(self.jobs_unguarded.load(Ordering::Acquire)),
        );
        let missing_fields = Family::<MetricLabels, Gauge>::default();
        for (resource, fields) in &*self.missing_fields.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = vec![("resource", (*resource).to_owned())];
            missing_fields.get_or_create(&labels).set(i64::try_from(fields.len()).unwrap_or(i64::MAX));
        }
        registry.register(
            "definition_missing_fields",
            "Fields of this version that the definition in the cluster lacks; the log names them",
            missing_fields,
        );
        let foreign = Family::<MetricLabels, Gauge>::default();
        for name in &*self.foreign_webhooks.lock().unwrap_or_else(PoisonError::into_inner) {
            foreign.get_or_create(&vec![("configuration", name.clone())]).set(1);
        }
        registry.register(
            "foreign_webhook_configuration",
            "Webhook configurations that belong to another manager; this one does not act",
            foreign,
        );
        let unknown = Family::<MetricLabels, Gauge>::default();
        for name in &self.unknown_gates {
            unknown.get_or_create(&vec![("gate", name.clone())]).set(1);
        }
        registry.register(
            "unknown_feature_gate",
            "Names in the configured feature gates that are no gates and have no effect",
            unknown,
        );
        text(&registry)
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfigurationGaps, MissingFields};

    #[test]
    fn unguarded_jobs_are_exported() {
        let gaps = ConfigurationGaps::default();
        let shown = |gaps: &ConfigurationGaps, value: u8| {
            let line = format!("sluice_jobs_without_queue_unguarded {value}");
            gaps.render().unwrap().lines().any(|shown| shown == line)
        };
        assert!(shown(&gaps, 0));
        assert!(gaps.set_jobs_unguarded(true) && !gaps.set_jobs_unguarded(true));
        assert!(shown(&gaps, 1));
    }

    #[test]
    fn foreign_webhooks_are_exported_while_they_exist() {
        let gaps = ConfigurationGaps::default();
        let names = vec!["a".to_owned()];
        assert!(gaps.set_foreign_webhooks(names.clone()) && !gaps.set_foreign_webhooks(names));
        let line = "sluice_foreign_webhook_configuration{configuration=\"a\"} 1";
        assert!(gaps.render().unwrap().lines().any(|shown| shown == line));
        assert!(gaps.set_foreign_webhooks(Vec::new()));
        assert!(!gaps.render().unwrap().contains("sluice_foreign_webhook_configuration{"));
    }

    #[test]
    fn unknown_gates_are_exported() {
        let line = "sluice_unknown_feature_gate{gate=\"Wonder\"} 1";
        let gaps = ConfigurationGaps::with_unknown_gates(vec!["Wonder".to_owned()]);
        assert!(gaps.render().unwrap().lines().any(|shown| shown == line));
        assert!(!ConfigurationGaps::default().render().unwrap().contains("sluice_unknown_feature_gate{"));
    }

    #[test]
    fn missing_fields_are_counted_by_resource() {
        let gaps = ConfigurationGaps::default();
        let missing = MissingFields::from([("workloads", vec!["spec.a".to_owned(), "status.b".to_owned()])]);
        assert!(gaps.set_missing_fields(&missing) && !gaps.set_missing_fields(&missing));
        let line = "sluice_definition_missing_fields{resource=\"workloads\"} 2";
        assert!(gaps.render().unwrap().lines().any(|shown| shown == line));
        assert!(gaps.set_missing_fields(&MissingFields::new()));
        assert!(!gaps.render().unwrap().contains("sluice_definition_missing_fields{"));
    }
}
