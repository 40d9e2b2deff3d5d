//! Counters and histograms: what the core observed, added up since the process began.
//!
//! The page is Prometheus' text format, where a counter's family bears its samples' name: Kueue has a counter
//! `finished_workloads_total` beside a gauge `finished_workloads`, which OpenMetrics could not tell apart.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metrics::{Families, Labels, Role};
use crate::state::{self, Observation};

type CounterFamily = Family<Labels, Counter>;
type HistogramFamily = Family<Labels, Histogram, Buckets>;

/// Bounds of a histogram.
#[derive(Clone, Copy, Debug)]
enum Buckets {
    /// One second, then 2.5 seconds doubling: so many in all.
    Waits(u16),
    /// From 10 milliseconds doubling: so many.
    Latencies(u16),
    /// What client libraries take when nothing is said.
    Standard,
}

/// The bounds of Prometheus' client libraries.
const STANDARD: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        let doubled = |first: f64, number: u16| (0..number).map(move |n| first * 2_f64.powi(i32::from(n)));
        match self {
            Self::Waits(number) => {
                Histogram::new(std::iter::once(1.0).chain(doubled(2.5, number.saturating_sub(1))))
            }
            Self::Latencies(number) => Histogram::new(doubled(0.01, *number)),
            Self::Standard => Histogram::new(STANDARD),
        }
    }
}

/// Buckets of waiting times.
const WAIT: Buckets = Buckets::Waits(14);
/// Buckets of times that may be longer.
const LONG: Buckets = Buckets::Waits(16);

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
    families: Families,
    attempts: CounterFamily,
    attempt_times: HistogramFamily,
    created: HistogramFamily,
    cohort_admitted: CounterFamily,
    reserved: Counts,
    admitted: Counts,
    finished: Counts,
    evicted: Counts,
    evicted_once: CounterFamily,
    preempted: CounterFamily,
    reserved_wait: Waits,
    admission_wait: Waits,
    execution: Waits,
    ready_wait: Waits,
    admitted_until_ready: Waits,
    writes: CounterFamily,
    events_dropped: Counter,
}

impl Counters {
    /// All at zero, for a build for this platform. Families that are not shown are not counted.
    pub fn new(platform: &str, families: Families) -> Self {
        let mut registry = Registry::with_prefix("kueue");
        build_info(&mut registry, platform);
        let mut page = Page { registry: &mut registry, families };
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
        let attempt_times = page.histogram(
            "admission_attempt_duration_seconds",
            "Time of a scheduling cycle",
            Buckets::Standard,
            true,
        );
        let created = page.histogram(
            "workload_creation_latency_seconds",
            "Time from a job's creation to its Workload's",
            Buckets::Latencies(11),
            families.creation_latency,
        );
        let cohort_admitted = page.cohort_counter(
            "cohort_subtree_admitted_workloads",
            "Workloads that were admitted in all queues below",
        );
        let evicted_once = page.counter("evicted_workloads_once", "First evictions of workloads by reason");
        let preempted =
            page.counter("preempted_workloads", "Workloads that made room, by whose queue and why");
        let writes = page.counter("controller_writes", "Writes to the API server by outcome");
        let events_dropped = Counter::default();
        registry.register(
            "controller_events_dropped",
            "Events that were not written",
            events_dropped.clone(),
        );
        Self {
            registry,
            families,
            attempts,
            attempt_times,
            created,
            cohort_admitted,
            reserved,
            admitted,
            finished,
            evicted,
            evicted_once,
            preempted,
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
                for cohort in labels.cohorts.iter().filter(|_| self.families.cohorts) {
                    let name = vec![("cohort", cohort.clone())];
                    self.cohort_admitted.get_or_create(&complete(name, labels, &[], role)).inc();
                }
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
            Observation::Preempted { preempting, reason } => {
                let mut labels = labelled("preempting_cluster_queue", preempting, role);
                labels.insert(1, ("reason", (*reason).to_owned()));
                self.preempted.get_or_create(&labels).inc();
            }
            Observation::WorkloadCreated { job_kind, latency } => {
                let labels = labelled("job_kind", job_kind, role);
                self.created.get_or_create(&labels).observe(latency.as_secs_f64());
            }
            Observation::Attempt { admitted } => {
                self.attempts.get_or_create(&attempt(*admitted, role)).inc();
            }
        }
    }

    /// Adds how long a scheduling cycle took.
    pub fn attempt_took(&self, admitted: bool, time: Duration, role: Role) {
        self.attempt_times.get_or_create(&attempt(admitted, role)).observe(time.as_secs_f64());
    }

    /// Counts one write to the API server.
    pub fn wrote(&self, verb: &str, outcome: &str) {
        self.writes.get_or_create(&vec![("verb", verb.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// Counts events that were not written.
    pub fn dropped_events(&self, number: u64) {
        self.events_dropped.inc_by(number);
    }

    /// As Prometheus' text.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        Ok(named_by_samples(&text))
    }

    fn count(&self, counts: &Counts, labels: &state::Labels, more: &[(&'static str, String)], role: Role) {
        counts.queue.get_or_create(&queue(labels, more, role)).inc();
        if self.families.local_queues && labels.local_queue_shown {
            counts.local_queue.get_or_create(&local_queue(labels, more, role)).inc();
        }
    }

    fn time(&self, waits: &Waits, labels: &state::Labels, time: Duration, role: Role) {
        waits.queue.get_or_create(&queue(labels, &[], role)).observe(time.as_secs_f64());
        if self.families.local_queues && labels.local_queue_shown {
            waits.local_queue.get_or_create(&local_queue(labels, &[], role)).observe(time.as_secs_f64());
        }
    }
}

/// The encoder names the family of a counter without its samples' `_total`; this text format does not.
fn named_by_samples(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    let mut help: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter\n"));
        if let Some(name) = counter {
            let told = help.take().and_then(|line| line.strip_prefix("# HELP ")?.strip_prefix(name));
            let told = told.unwrap_or("\n");
            page.extend(["# HELP ", name, "_total", told, "# TYPE ", name, "_total counter\n"]);
            continue;
        }
        page.push_str(help.take().unwrap_or_default());
        page.push_str(line);
    }
    page
}

fn labelled(name: &'static str, value: &str, role: Role) -> Labels {
    vec![(name, value.to_owned()), ("replica_role", role.as_str().to_owned())]
}

fn attempt(admitted: bool, role: Role) -> Labels {
    labelled("result", if admitted { "success" } else { "inadmissible" }, role)
}

fn queue(labels: &state::Labels, more: &[(&'static str, String)], role: Role) -> Labels {
    complete(vec![("cluster_queue", labels.cluster_queue.clone())], labels, more, role)
}

fn local_queue(labels: &state::Labels, more: &[(&'static str, String)], role: Role) -> Labels {
    complete(
        vec![("name", labels.local_queue.clone()), ("namespace", labels.namespace.clone())],
        labels,
        more,
        role,
    )
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
    families: Families,
}

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str) -> CounterFamily {
        let family = CounterFamily::default();
        self.registry.register(name, help, family.clone());
        family
    }

    fn cohort_counter(&mut self, name: &str, help: &str) -> CounterFamily {
        if self.families.cohorts { self.counter(name, help) } else { CounterFamily::default() }
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: Buckets, shown: bool) -> HistogramFamily {
        let family = HistogramFamily::new_with_constructor(buckets);
        if shown {
            self.registry.register(name, help, family.clone());
        }
        family
    }

    fn counts(&mut self, name: &str, help: &str) -> Counts {
        let counts = Counts { queue: self.counter(name, help), local_queue: CounterFamily::default() };
        if self.families.local_queues {
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
        if self.families.local_queues {
            self.registry.register(format!("local_queue_{name}"), help, waits.local_queue.clone());
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Families =
        Families { cluster_queue_resources: true, local_queues: true, cohorts: true, creation_latency: true };

    fn labels(local_queue_shown: bool) -> state::Labels {
        state::Labels {
            cluster_queue: "cq".into(),
            cohorts: vec!["team".into(), "org".into()],
            local_queue: "lq".into(),
            local_queue_shown,
            namespace: "ns".into(),
            priority_class: "high".into(),
        }
    }

    fn page(families: Families, shown: bool) -> String {
        let counters = Counters::new("linux", families);
        counters.observe(&Observation::Admitted(labels(shown), Duration::from_secs(3)), Role::Standalone);
        counters.observe(&Observation::Finished(labels(shown), Duration::from_secs(3)), Role::Standalone);
        let created = Observation::WorkloadCreated { job_kind: "Job", latency: Duration::from_millis(15) };
        counters.observe(&created, Role::Standalone);
        counters.attempt_took(true, Duration::from_millis(7), Role::Standalone);
        counters.render().unwrap()
    }

    #[test]
    fn what_was_observed_is_on_the_page() {
        let text = page(ALL, true);
        for line in [
            r#"kueue_admitted_workloads_total{cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_local_queue_admitted_workloads_total{name="lq",namespace="ns",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="2.5",cluster_queue="cq",priority_class="high",replica_role="standalone"} 0"#,
            r#"kueue_admission_wait_time_seconds_bucket{le="5.0",cluster_queue="cq",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="org",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="team",priority_class="high",replica_role="standalone"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{le="0.005",result="success",replica_role="standalone"} 0"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{le="0.01",result="success",replica_role="standalone"} 1"#,
            r#"kueue_workload_creation_latency_seconds_bucket{le="0.02",job_kind="Job",replica_role="standalone"} 1"#,
            "# TYPE kueue_finished_workloads_total counter",
            "# HELP kueue_finished_workloads_total Workloads that finished.",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("# TYPE kueue_finished_workloads counter"));
    }

    #[test]
    fn what_is_not_shown_is_not_on_the_page() {
        let few = Families { local_queues: false, cohorts: false, creation_latency: false, ..ALL };
        let text = page(few, true);
        for family in ["kueue_local_queue_", "kueue_cohort_", "kueue_workload_creation_latency"] {
            assert!(!text.contains(family), "{family} is in\n{text}");
        }
        assert!(!page(ALL, false).contains(r#"name="lq""#), "not selected");
    }
}
