//! Counters that only this project has, under its own prefix, so that they cannot be confused with Kueue's.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::by_queue::QueueCounters;
use super::family::CounterFamily;

/// Families with the prefix `sluice`.
#[derive(Debug)]
pub(super) struct SluiceCounters {
    writes: CounterFamily,
    writes_refused: CounterFamily,
    writes_ineffective: CounterFamily,
    events_dropped: CounterFamily,
    events_queued: Gauge,
    visibility_requests: CounterFamily,
    preemptions: QueueCounters,
}

impl SluiceCounters {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let preemptions = CounterFamily::default();
        let own = Self {
            writes: CounterFamily::default(),
            writes_refused: CounterFamily::default(),
            writes_ineffective: CounterFamily::default(),
            events_dropped: CounterFamily::default(),
            events_queued: Gauge::default(),
            visibility_requests: CounterFamily::default(),
            preemptions: QueueCounters::new(preemptions.clone()),
        };
        registry.register("writes", "Writes to the API server, by verb and outcome", own.writes.clone());
        registry.register(
            "writes_refused",
            "Writes that the API server refused because of their content or a missing permission, by HTTP status",
            own.writes_refused.clone(),
        );
        registry.register(
            "writes_ineffective",
            "Accepted writes of an object that does not say afterwards what was written, from the second in a row",
            own.writes_ineffective.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were dropped, by reason",
            own.events_dropped.clone(),
        );
        registry.register("events_queued", "Events that wait to be written", own.events_queued.clone());
        registry.register(
            "visibility_requests",
            "Requests for resources of aggregated API groups, by group, resource and HTTP status",
            own.visibility_requests.clone(),
        );
        registry.register(
            "preemptions",
            "Preemptions, by the ClusterQueues of preemptor and victim and by reason",
            preemptions,
        );
        own
    }

    pub(super) fn count_preemption(&self, preempting: &str, victim: &str, reason: &str) {
        let labels = vec![
            ("preempting_cluster_queue", preempting.to_owned()),
            ("victim_cluster_queue", victim.to_owned()),
            ("reason", reason.to_owned()),
        ];
        self.preemptions.change(&[preempting, victim], &labels, |counter| _ = counter.inc());
    }

    /// Removes what was counted of a ClusterQueue that is deleted.
    pub(super) fn forget_queue(&self, name: &str) {
        self.preemptions.forget(name);
    }

    pub(super) fn count_visibility_request(&self, group: &str, resource: &str, code: u16) {
        let labels =
            vec![("group", group.to_owned()), ("resource", resource.to_owned()), ("code", code.to_string())];
        self.visibility_requests.get_or_create(&labels).inc();
    }

    pub(super) fn count_write(&self, verb: &str, outcome: &str) {
        self.writes.get_or_create(&vec![("verb", verb.to_owned()), ("outcome", outcome.to_owned())]).inc();
    }

    /// `resource` contains the subresource.
    pub(super) fn count_refused_write(&self, resource: &str, verb: &str, code: u16) {
        let labels =
            vec![("resource", resource.to_owned()), ("verb", verb.to_owned()), ("code", code.to_string())];
        self.writes_refused.get_or_create(&labels).inc();
    }

    /// `resource` contains the subresource.
    pub(super) fn count_ineffective_write(&self, resource: &str, verb: &str) {
        let labels = vec![("resource", resource.to_owned()), ("verb", verb.to_owned())];
        self.writes_ineffective.get_or_create(&labels).inc();
    }

    pub(super) fn count_dropped_events(&self, reason: &str, number: u64) {
        self.events_dropped.get_or_create(&vec![("reason", reason.to_owned())]).inc_by(number);
    }

    pub(super) fn set_queued_events(&self, number: usize) {
        self.events_queued.set(i64::try_from(number).unwrap_or(i64::MAX));
    }
}
