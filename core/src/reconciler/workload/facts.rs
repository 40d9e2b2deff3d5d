//! Gathers the facts that the lifecycle of a Workload depends on.

use super::WorkloadFacts;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::StopPolicy;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::{Facts, QueueFact, RestartedPods, WorkloadInput, WorkloadOwner};
use crate::lifecycle::{checks, conditions, eviction, node_failure, reservation};
use crate::reconciler::nodes::health::HostHealth;
use crate::reconciler::nodes::shrunk_slices::admission_after_shrink;
use crate::reconciler::provisioning::Provisioning;
use crate::reconciler::queues::admission_checks::AdmissionChecks;
use crate::reconciler::unit::facts::UnitFacts;
use crate::reconciler::workload::decision_status::preemption_message;
use crate::resources::Amount;
use crate::scheduler::{Charge, PreemptionReason};
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
            made_for_job: record.is_made_for_objects() && self.settings.gates.finish_orphaned_workloads,
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
        let membership = self.of_membership(record, now);
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
            restarted: self.restarted_pods(record, &membership.owner),
            reclaims_from: self.writes.restarts.reclaims_from(key),
            resource_requests: self.scheduler_input().requests_left(record),
            ..membership
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
            restarted: RestartedPods::None,
            reclaims_from: None,
            resource_requests: Arc::default(),
        }
    }

    /// Returns the charge of a Workload that was removed with quota, while pods may run on it and no other Workload of its name
    /// has quota: nothing is evicted, because the pods end by themselves, and they are charged on their own nodes.
    pub(crate) fn charge_of_vanished(self, key: &ObjectKey, now: Timestamp) -> Option<Charge> {
        let vanished = self.cache.vanished(key)?;
        let next = self.cache.workload(key);
        let units = UnitFacts { units: self.units(), writes: self.writes };
        if next.is_some_and(|next| reservation::holds_quota(&next.status)) || !units.outlives(vanished, now) {
            return None;
        }
        let charge = self.scheduler_input().charge_from_admission(vanished)?;
        Some(Charge { evicted: true, deactivated: true, topology: Vec::new(), ..charge })
    }

    /// Returns reason and message if the scheduler has chosen the Workload as a preemption victim.
    fn preemption_fact(self, key: &ObjectKey) -> Option<(PreemptionReason, String)> {
        let preemption = self.engine.preemption_of(key)?;
        let preemptor = self.cache.workload(&preemption.preemptor)?;
        Some((preemption.victim.reason, preemption_message(preemptor, &preemption.victim)))
    }

    /// Returns reason and message for a slice of an elastic job that ends: a newer slice holds quota in its place, or the job has
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

    /// Returns whether there is quota for pods that a job runs again after they had succeeded. The pods of a group wait behind
    /// their gate.
    fn restarted_pods(self, record: &WorkloadRecord, owner: &WorkloadOwner) -> RestartedPods {
        let holds = |kind| conditions::is_true(&record.status, kind);
        let WorkloadOwner::Job(job) = owner else { return RestartedPods::None };
        let (known, admission) = (&record.status.reclaimable_pods, &record.status.admission);
        let runs = holds(ConditionType::Admitted) && !holds(ConditionType::Evicted);
        let Some(admission) = admission.as_ref().filter(|_| runs && job.takes_back(known)) else {
            return RestartedPods::None;
        };
        let needed = |name: &str, reported: i32| reported.min(job.reclaimable_of(name));
        let usage = self.scheduler_input().usage_without(record, needed).unwrap_or_default();
        let charged = self.engine.charge_of(&record.meta.key).map(|charge| &charge.usage);
        let reported =
            self.scheduler_input().usage_without(record, |_, reported| reported).unwrap_or_default();
        let lacking = usage.iter().filter(|(fr, amount)| {
            let more =
                amount.minus(charged.and_then(|usage| usage.get(*fr)).copied().unwrap_or(Amount::ZERO));
            reported.get(*fr) != Some(*amount) && !self.engine.has_room(&admission.cluster_queue, fr, more)
        });
        let lacking: Vec<String> =
            lacking.map(|(fr, _)| format!("{} in flavor {}", fr.resource, fr.flavor)).collect();
        if lacking.is_empty() {
            return RestartedPods::Fit;
        }
        if record.annotations.is_pod_group {
            return RestartedPods::Wait;
        }
        RestartedPods::Exceed(format!(
            "Pods that had succeeded run again, and ClusterQueue {} has given their quota to others: {}",
            admission.cluster_queue,
            lacking.join(", ")
        ))
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
