//! Metrics of the history that a replica keeps in memory. None of them exists where nothing is recorded.

use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::exposition::register_gauge;
use super::model::{MetricLabels, Role};
use crate::history::HistoryStats;
use crate::resources::to_f64;

type CounterFamily = Family<MetricLabels, Counter>;
type GaugeFamily = Family<MetricLabels, prometheus_client::metrics::gauge::Gauge>;

/// Registers the metrics of a history.
pub(super) fn register(registry: &mut Registry, stats: &HistoryStats, role: Role) {
    if stats.limit_bytes == 0 {
        return;
    }
    let with_role = || vec![("replica_role", role.as_str().to_owned())];
    let drift = GaugeFamily::default();
    drift.get_or_create(&with_role()).set(gauge(stats.drift));
    registry.register(
        "history_drift",
        "Flavor-resources whose open runs in the history are not the usage in the ledger; must be 0",
        drift,
    );
    let records = CounterFamily::default();
    for (kind, number) in &stats.records {
        records.get_or_create(&vec![("record", (*kind).to_owned())]).inc_by(*number);
    }
    registry.register("history_records", "Records that were made, by kind", records);
    registry.register(
        "history_conflicts",
        "Records that name a known event and say something else; must be 0",
        ConstCounter::new(stats.conflicts),
    );
    registry.register(
        "history_cut",
        "Runs and waits whose end was before their start, and which count as none",
        ConstCounter::new(stats.cut),
    );
    register_gauge(registry, "history_bytes", "Memory of the history", gauge(stats.bytes));
    if let Some(oldest) = stats.oldest_record {
        let seconds = to_f64(oldest.as_second().into());
        register_gauge(
            registry,
            "history_oldest_record_timestamp_seconds",
            "Time of the oldest record",
            seconds,
        );
    }
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
