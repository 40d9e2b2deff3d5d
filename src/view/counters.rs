//! Counters and histograms: what the core observed, added up since the process began.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metrics::{Labels, Role};
use crate::state::{self, Observation};

type CounterFamily = Family<Labels, Counter>;
type HistogramFamily = Family<Labels, Histogram, Buckets>;

/// One second, then 2.5 seconds doubling: so many bounds in all.
#[derive(Clone, Copy, Debug)]
struct Buckets(u16);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        let doubled = (0..self.0.saturating_sub(1)).map(|power| 2.5 * 2_f64.powi(i32::from(power)));
        Histogram::new(std::iter::once(1.0).chain(doubled))
    }
}

/// Buckets of waiting times.
const WAIT: Buckets = Buckets(14);
/// Buckets of times that may be longer.
const LONG: Buckets = Buckets(16);

/// A count with a waiting time, by ClusterQueue and by LocalQueue.
#[derive(Debug)]
struct Waits {
    queue: HistogramFamily,
    local_queue: HistogramFamily,
}

/// A count by ClusterQueue and by LocalQueue.
#[derive(Debug, Default)]
struct Counts {
    queue: CounterFamily,
    local_queue: CounterFamily,
}

/// All counters of this process.
#[derive(Debug)]
pub struct Counters {
    registry: Registry,
    local_queues: bool,
    attempts: CounterFamily,
    reserved: Counts,
    admitted: Counts,
    finished: Counts,
    evicted: Counts,
    evicted_once: CounterFamily,
    reserved_wait: Waits,
    admission_wait: Waits,
    execution: Waits,
    ready_wait: Waits,
    admitted_until_ready: Waits,
    writes: CounterFamily,
    events_dropped: Counter,
}

impl Counters {
    /// All at zero, for a build for this platform. Without `local_queues` nothing is counted by LocalQueue.
    pub fn new(platform: &str, local_queues: bool) -> Self {
        let mut registry = Registry::with_prefix("kueue");
        build_info(&mut registry, platform);
        let mut page = Page { registry: &mut registry, local_queues };
        let reserved = page.counts("quota_reserved_workloads", "Workloads that got quota");
        let admitted = page.counts("admitted_workloads", "Workloads that were admitted");
        let finished = page.counts("finished_workloads", "Workloads that finished");
        let evicted = page.counts("evicted_workloads", "Evictions");
        let reserved_wait =
            page.waits("quota_reserved_wait_time_seconds", "Time from queueing to quota", WAIT);
        let admission_wait =
            page.waits("admission_wait_time_seconds", "Time from queueing to admission", LONG);
        let execution = page.waits("execution_time_seconds", "Time from admission to the end", LONG);
        let ready_wait = page.waits("ready_wait_time_seconds", "Time from creation to ready pods", WAIT);
        let admitted_until_ready =
            page.waits("admitted_until_ready_wait_time_seconds", "Time from admission to ready pods", WAIT);
        let attempts = page.counter("admission_attempts", "Scheduling cycles that tried to admit");
        let evicted_once = page.counter("evicted_workloads_once", "First evictions of workloads by reason");
        let writes = page.counter("controller_writes", "Writes to the API server by outcome");
        let events_dropped = Counter::default();
        registry.register(
            "controller_events_dropped",
            "Events that were not written",
            events_dropped.clone(),
        );
        Self {
            registry,
            local_queues,
            attempts,
            reserved,
            admitted,
            finished,
            evicted,
            evicted_once,
            reserved_wait,
            admission_wait,
            execution,
            ready_wait,
            admitted_until_ready,
            writes,
            events_dropped,
        }
    }

    /// Adds what the core observed.
    pub fn observe(&self, observation: &Observation, role: Role) {
        match observation {
            Observation::QuotaReserved(labels, wait) => {
                self.count(&self.reserved, labels, &[], role);
                self.time(&self.reserved_wait, labels, *wait, role);
            }
            Observation::Admitted(labels, wait) => {
                self.count(&self.admitted, labels, &[], role);
                self.time(&self.admission_wait, labels, *wait, role);
            }
            Observation::PodsReady(labels, since_admission, since_creation) => {
                self.time(&self.admitted_until_ready, labels, *since_admission, role);
                self.time(&self.ready_wait, labels, *since_creation, role);
            }
            Observation::Finished(labels, execution) => {
                self.count(&self.finished, labels, &[], role);
                self.time(&self.execution, labels, *execution, role);
            }
            Observation::Evicted { labels, reason, underlying_cause, first } => {
                let more = [("reason", reason.clone()), ("underlying_cause", underlying_cause.clone())];
                self.count(&self.evicted, labels, &more, role);
                if *first {
                    self.evicted_once.get_or_create(&queue(labels, &more, role)).inc();
                }
            }
            Observation::Attempt { admitted } => {
                let result = if *admitted { "success" } else { "inadmissible" };
                let labels = vec![("result", result.to_owned()), ("replica_role", role.as_str().to_owned())];
                self.attempts.get_or_create(&labels).inc();
            }
        }
    }

    /// Counts one write to the API server.
    pub fn wrote(&self, verb: &str, outcome: &str) {
        self.writes.get_or_create(&vec![("verb", verb.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Counts events that were not written.
    pub fn dropped_events(&self, number: u64) {
        self.events_dropped.inc_by(number);
    }

    /// As OpenMetrics text, without the end mark.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        Ok(text)
    }

    fn count(&self, counts: &Counts, labels: &state::Labels, more: &[(&'static str, String)], role: Role) {
        counts.queue.get_or_create(&queue(labels, more, role)).inc();
        if self.local_queues {
            counts.local_queue.get_or_create(&local_queue(labels, more, role)).inc();
        }
    }

    fn time(&self, waits: &Waits, labels: &state::Labels, time: Duration, role: Role) {
        waits.queue.get_or_create(&queue(labels, &[], role)).observe(time.as_secs_f64());
        if self.local_queues {
            waits.local_queue.get_or_create(&local_queue(labels, &[], role)).observe(time.as_secs_f64());
        }
    }
}

fn queue(labels: &state::Labels, more: &[(&'static str, String)], role: Role) -> Labels {
    complete(vec![("cluster_queue", labels.cluster_queue.clone())], labels, more, role)
}

fn local_queue(labels: &state::Labels, more: &[(&'static str, String)], role: Role) -> Labels {
    let name = labels.local_queue.rsplit('/').next().unwrap_or_default().to_owned();
    complete(vec![("name", name), ("namespace", labels.namespace.clone())], labels, more, role)
}

fn complete(mut to: Labels, labels: &state::Labels, more: &[(&'static str, String)], role: Role) -> Labels {
    to.extend(more.iter().cloned());
    to.push(("priority_class", labels.priority_class.clone()));
    to.push(("replica_role", role.as_str().to_owned()));
    to
}

fn build_info(registry: &mut Registry, platform: &str) {
    let labels = [
        ("git_version", concat!("v", env!("CARGO_PKG_VERSION"))),
        ("git_commit", option_env!("SLUICE_GIT_COMMIT").unwrap_or_default()),
        ("build_date", option_env!("SLUICE_BUILD_DATE").unwrap_or_default()),
        ("go_version", ""),
        ("compiler", "rustc"),
        ("platform", platform),
    ];
    let family = Family::<Labels, prometheus_client::metrics::gauge::Gauge>::default();
    family.get_or_create(&labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()).set(1);
    registry.register("build_info", "This build", family);
}

struct Page<'a> {
    registry: &'a mut Registry,
    local_queues: bool,
}

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str) -> CounterFamily {
        let family = CounterFamily::default();
        self.registry.register(name, help, family.clone());
        family
    }

    fn counts(&mut self, name: &str, help: &str) -> Counts {
        let counts = Counts { queue: self.counter(name, help), local_queue: CounterFamily::default() };
        if self.local_queues {
            self.registry.register(format!("local_queue_{name}"), help, counts.local_queue.clone());
        }
        counts
    }

    fn waits(&mut self, name: &str, help: &str, buckets: Buckets) -> Waits {
        let waits = Waits {
            queue: HistogramFamily::new_with_constructor(buckets),
            local_queue: HistogramFamily::new_with_constructor(WAIT),
        };
        self.registry.register(name, help, waits.queue.clone());
        if self.local_queues {
            self.registry.register(format!("local_queue_{name}"), help, waits.local_queue.clone());
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_is_counted_by_both_queues() {
        let counters = Counters::new("linux", true);
        let labels = state::Labels {
            cluster_queue: "cq".into(),
            local_queue: "ns/lq".into(),
            namespace: "ns".into(),
            priority_class: "high".into(),
        };
        counters.observe(&Observation::Admitted(labels, Duration::from_secs(3)), Role::Standalone);
        let text = counters.render().unwrap();
        for line in [
            r#"kueue_admitted_workloads_total{cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_local_queue_admitted_workloads_total{name="lq",namespace="ns",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="2.5",cluster_queue="cq",priority_class="high",replica_role="standalone"} 0"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="5.0",cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
    }
}
