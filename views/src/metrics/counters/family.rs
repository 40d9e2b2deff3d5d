//! Building blocks of metric families: buckets, labels, and registration.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::by_queue::{QueueCounters, QueueHistograms};
use crate::metrics::model::{MetricFamilies, MetricLabels, Role};
use crate::reconciler;

pub(super) type CounterFamily = Family<MetricLabels, Counter>;
pub(super) type HistogramFamily = Family<MetricLabels, Histogram, Buckets>;

/// Buckets of a histogram.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buckets {
    /// This many buckets: one second, then 2.5 seconds, doubling.
    WaitTimes(u16),
    /// This many buckets: 10 milliseconds, doubling.
    Latencies(u16),
    /// The default buckets of Prometheus' client libraries.
    Standard,
}

/// The default buckets of Prometheus' client libraries, in seconds.
const STANDARD: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        let doubled = |first: f64, number: u16| (0..number).map(move |n| first * 2_f64.powi(i32::from(n)));
        match self {
            Self::WaitTimes(number) => {
                Histogram::new(std::iter::once(1.0).chain(doubled(2.5, number.saturating_sub(1))))
            }
            Self::Latencies(number) => Histogram::new(doubled(0.01, *number)),
            Self::Standard => Histogram::new(STANDARD),
        }
    }
}

/// Buckets of wait times.
pub(super) const WAIT_BUCKETS: Buckets = Buckets::WaitTimes(14);
/// Buckets of longer times.
pub(super) const LONG_WAIT_BUCKETS: Buckets = Buckets::WaitTimes(16);

/// A histogram by ClusterQueue and by LocalQueue.
#[derive(Debug)]
pub(super) struct HistogramSet {
    pub(super) queue: QueueHistograms,
    pub(super) local_queue: QueueHistograms,
}

/// A counter by ClusterQueue and by LocalQueue.
#[derive(Debug, Default)]
pub(super) struct CounterSet {
    pub(super) queue: QueueCounters,
    pub(super) local_queue: QueueCounters,
}

pub(super) struct FamilyRegistry<'a> {
    pub(super) registry: &'a mut Registry,
    pub(super) families: MetricFamilies,
}

impl FamilyRegistry<'_> {
    pub(super) fn counter(&mut self, name: &str, help: &str) -> CounterFamily {
        let family = CounterFamily::default();
        self.registry.register(name, help, family.clone());
        family
    }

    pub(super) fn queue_counter(&mut self, name: &str, help: &str) -> QueueCounters {
        QueueCounters::new(self.counter(name, help))
    }

    pub(super) fn queue_histogram(&mut self, name: &str, help: &str, buckets: Buckets) -> QueueHistograms {
        QueueHistograms::new(self.histogram(name, help, buckets))
    }

    pub(super) fn cohort_counter(&mut self, name: &str, help: &str) -> QueueCounters {
        if self.families.cohorts { self.queue_counter(name, help) } else { QueueCounters::default() }
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, buckets: Buckets) -> HistogramFamily {
        self.histogram_if(true, name, help, buckets)
    }

    pub(super) fn histogram_if(
        &mut self,
        shown: bool,
        name: &str,
        help: &str,
        buckets: Buckets,
    ) -> HistogramFamily {
        let family = HistogramFamily::new_with_constructor(buckets);
        if shown {
            self.registry.register(name, help, family.clone());
        }
        family
    }

    pub(super) fn counter_set(&mut self, name: &str, help: &str) -> CounterSet {
        let local_queue = CounterFamily::default();
        if self.families.local_queues {
            self.registry.register(format!("local_queue_{name}"), help, local_queue.clone());
        }
        CounterSet { queue: self.queue_counter(name, help), local_queue: QueueCounters::new(local_queue) }
    }

    pub(super) fn histogram_set(&mut self, name: &str, help: &str) -> HistogramSet {
        self.histogram_set_of(name, help, (WAIT_BUCKETS, WAIT_BUCKETS))
    }

    /// Registers a histogram set with different buckets for ClusterQueues and LocalQueues.
    pub(super) fn histogram_set_of(
        &mut self,
        name: &str,
        help: &str,
        (queue, local_queue): (Buckets, Buckets),
    ) -> HistogramSet {
        let local_queue = HistogramFamily::new_with_constructor(local_queue);
        if self.families.local_queues {
            self.registry.register(format!("local_queue_{name}"), help, local_queue.clone());
        }
        let queue = self.queue_histogram(name, help, queue);
        HistogramSet { queue, local_queue: QueueHistograms::new(local_queue) }
    }
}

pub(super) fn labels_with_role(name: &'static str, value: &str, role: Role) -> MetricLabels {
    vec![(name, value.to_owned()), ("replica_role", role.as_str().to_owned())]
}

pub(super) fn attempt_labels(admitted: bool, role: Role) -> MetricLabels {
    labels_with_role("result", if admitted { "success" } else { "inadmissible" }, role)
}

pub(super) fn cluster_queue_labels(
    labels: &reconciler::ObservationLabels,
    more: &[(&'static str, String)],
    role: Role,
) -> MetricLabels {
    with_common_labels(vec![("cluster_queue", labels.cluster_queue.clone())], labels, more, role)
}

pub(super) fn local_queue_labels(
    labels: &reconciler::ObservationLabels,
    more: &[(&'static str, String)],
    role: Role,
) -> MetricLabels {
    with_common_labels(
        vec![("name", labels.local_queue.clone()), ("namespace", labels.namespace.clone())],
        labels,
        more,
        role,
    )
}

pub(super) fn with_common_labels(
    mut to: MetricLabels,
    labels: &reconciler::ObservationLabels,
    more: &[(&'static str, String)],
    role: Role,
) -> MetricLabels {
    to.extend(more.iter().cloned());
    to.push(("priority_class", labels.priority_class.clone()));
    to.push(("replica_role", role.as_str().to_owned()));
    to
}
