//! Gathers the facts that the lifecycle of a Workload depends on.

use super::WorkloadFacts;
use crate::api::ObjectKey;
use crate::api::v1beta2::StopPolicy;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::{Facts, QueueFact, WorkloadInput};
use crate::lifecycle::{checks, eviction, node_failure, reservation};
use crate::reconciler::nodes::health::HostHealth;
use crate::reconciler::nodes::shrunk_slices::admission_after_shrink;
use crate::reconciler::provisioning::Provisioning;
use crate::reconciler::queues::admission_checks::AdmissionChecks;
use crate::reconciler::unit::facts::UnitFacts;
use crate::reconciler::workload::decision_status::preemption_message;
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;
use std::sync::Arc;

impl<'a> WorkloadFacts<'a> {
    /// Returns the fields of the Workload that its lifecycle depends on.
    pub(crate) fn input(self, record: &WorkloadRecord) -> WorkloadInput<'_> {
        WorkloadInput {
            generation: record.meta.generation,
            active: record.active,
            deleting: record.meta.is_deleting(),
            has_finalizer: record.meta.has_finalizer(),
            made_for_job: record.job_uid.is_some() && self.settings.gates.finish_orphaned_workloads,
            is_slice: record.annotations.is_slice && self.settings.gates.elastic_jobs,
            admission_gates: record.annotations.admission_gated_by.as_deref(),
            max_execution_seconds: record.max_execution_seconds,
            status: &record.status,
        }
    }

    /// Returns all state outside the Workload that its lifecycle depends on.
    pub(crate) fn of(self, record: &'a WorkloadRecord, now: Timestamp) -> Facts<'a> {
        let key = &record.meta.key;
        let (cache, settings) = (self.cache, self.settings);
        let hosts = HostHealth { cache, gates: settings.gates.node_failures };
        Facts {
            verdict: self.engine.verdict(key).map(|v| (v.reason, v.to_string())),
            preemption: self.preemption_fact(key),
            own_check_states: [
                Provisioning { cache, settings }.check_states(record, now),
                AdmissionChecks { cache, gates: &settings.gates }.never_set_states(record, now),
            ]
            .concat(),
            node_health: hosts.report(record, now),
            smaller_admission: admission_after_shrink(cache, record),
            resource_requests: self.scheduler_input().requests_left(record),
            ..self.of_membership(record, now)
        }
    }

    /// Returns the facts that queue membership depends on. No message is formatted and no check is evaluated.
    pub(crate) fn of_membership(self, record: &'a WorkloadRecord, now: Timestamp) -> Facts<'a> {
        let local = record.queue_name.as_deref().unwrap_or_default();
        let cluster = self.cache.cluster_queue_name(record).unwrap_or_default();
        let queue = self.cache.cluster_queue(cluster);
        let admission = record.status.admission.as_ref();
        Facts {
            queue_names: (local, cluster),
            local_queue: self.local_queue_fact(record),
            cluster_queue: self.cluster_queue_fact(cluster),
            owner: UnitFacts { units: self.units(), writes: self.writes }.owner_of(record, now),
            checks: queue.map(|q| checks::applicable(&q.object, admission)).unwrap_or_default(),
            misconfigured: record.effective_requests.misconfiguration.clone(),
            verdict: None,
            preemption: None,
            slice_end: self.slice_end(record, now),
            own_check_states: Vec::new(),
            node_health: node_failure::NodeHealthReport::default(),
            smaller_admission: None,
            resource_requests: Arc::default(),
        }
    }

    /// Returns reason and message if the scheduler has chosen the Workload as a preemption victim.
    fn preemption_fact(self, key: &ObjectKey) -> Option<(PreemptionReason, String)> {
        let preemption = self.engine.preemption_of(key)?;
        let preemptor = self.cache.workload(&preemption.preemptor)?;
        Some((preemption.victim.reason, preemption_message(preemptor, &preemption.victim)))
    }

    /// Returns reason and message for a slice of an elastic job that ends: a newer one holds quota in its place, or the job has
    /// others.
    fn slice_end(self, record: &WorkloadRecord, now: Timestamp) -> Option<(&'static str, String)> {
        let replacing =
            self.scheduler_input().replacing(record).find(|newer| reservation::holds_quota(&newer.status));
        if let Some(newer) = replacing {
            let job = newer.job_uid.as_deref().unwrap_or_default();
            let message = eviction::slice_replaced_message(&newer.meta.uid, job);
            return Some((eviction::SLICE_REPLACED, message));
        }
        UnitFacts { units: self.units(), writes: self.writes }.slice_end(record, now)
    }

    fn local_queue_fact(self, record: &WorkloadRecord) -> QueueFact {
        let Some(queue) = record.local_queue().and_then(|key| self.cache.local_queue(&key)) else {
            return QueueFact::Missing;
        };
        let problem = self.cache.unreadable().problem(Kind::LocalQueue, &queue.meta.key);
        match (queue.object.spec.stop_policy.unwrap_or_default(), problem) {
            _ if queue.meta.is_deleting() => QueueFact::Terminating,
            (StopPolicy::None, None) => QueueFact::Active,
            (StopPolicy::None, Some(problem)) => QueueFact::Inactive(format!("it cannot be read: {problem}")),
            (stopped, _) => QueueFact::Stopped(stopped),
        }
    }

    fn cluster_queue_fact(self, name: &str) -> QueueFact {
        let Some(queue) = self.cache.cluster_queue(name) else {
            return QueueFact::Missing;
        };
        match queue.object.spec.stop_policy.unwrap_or_default() {
            _ if queue.meta.is_deleting() => QueueFact::Terminating,
            StopPolicy::None => self
                .engine
                .inactive_reason(name)
                .map_or(QueueFact::Active, |inactive| QueueFact::Inactive(inactive.message.to_string())),
            stopped => QueueFact::Stopped(stopped),
        }
    }
}
