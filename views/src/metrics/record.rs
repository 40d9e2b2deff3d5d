//! Metrics of the durable record. None of them exists in a process that does not write it.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::exposition::register_gauge;
use crate::resources::to_f64;

/// Numbers about a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordStats {
    /// Size of the file.
    pub bytes: u64,
    /// Records with a known key and other content.
    pub conflicts: u64,
    /// Milliseconds in which nothing was recorded, before the start of the process.
    pub gap_milliseconds: u64,
    /// Age of the oldest entry that is not committed, in milliseconds.
    pub lag_milliseconds: u64,
}

/// Returns the metrics as text.
///
/// # Errors
/// A metric cannot be written.
pub fn render(stats: &RecordStats) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("sluice");
    let seconds = |milliseconds: u64| to_f64(milliseconds.into()) / 1_000.0;
    register_gauge(
        &mut registry,
        "history_lag_seconds",
        "Age of the oldest entry of the durable record that is not committed; 0 if all are",
        seconds(stats.lag_milliseconds),
    );
    register_gauge(
        &mut registry,
        "history_store_bytes",
        "Size of the file of the durable record",
        i64::try_from(stats.bytes).unwrap_or(i64::MAX),
    );
    registry.register(
        "history_gap_seconds",
        "Time before the start of this process in which nothing was recorded",
        ConstCounter::new(seconds(stats.gap_milliseconds)),
    );
    registry.register(
        "history_store_conflicts",
        "Records that name a known event of the durable record and say something else; must be 0",
        ConstCounter::new(stats.conflicts),
    );
    super::counters::text(&registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_and_units() {
        let stats = RecordStats { bytes: 7, conflicts: 2, gap_milliseconds: 1_500, lag_milliseconds: 250 };
        let text = render(&stats).unwrap();
        for line in [
            "sluice_history_lag_seconds 0.25",
            "sluice_history_store_bytes 7",
            "sluice_history_gap_seconds_total 1.5",
            "sluice_history_store_conflicts_total 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
