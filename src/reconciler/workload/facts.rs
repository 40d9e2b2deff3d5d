//! Gathers the facts that the lifecycle of a Workload depends on.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::StopPolicy;
use crate::cache::records::WorkloadRecord;
use crate::cache::{JobId, Kind};
use crate::frameworks::{JobKind, JobView, framework};
use crate::lifecycle::workload::{Facts, JobFacts, QueueFact, WorkloadInput, WorkloadOwner};
use crate::lifecycle::{checks, conditions, eviction, node_failure, reservation};
use crate::reconciler::Reconciler;
use crate::reconciler::job::belonging::starting_workload;
use crate::reconciler::job::start::{grants_match_job, is_out_of_sync, pod_sets_to_restore};
use crate::reconciler::job_unit::facts::UnitFacts;
use crate::reconciler::workload::decision_status::preemption_message;
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;
use std::sync::Arc;

impl Reconciler {
    /// Returns the fields of the Workload that its lifecycle depends on.
    pub(crate) fn workload_input<'a>(&self, record: &'a WorkloadRecord) -> WorkloadInput<'a> {
        WorkloadInput {
            generation: record.meta.generation,
            active: record.active,
            deleting: record.meta.deleting,
            has_finalizer: record.meta.has_finalizer(),
            made_for_job: record.job_uid.is_some() && self.settings.gates.finish_orphaned_workloads,
            admission_gates: record.annotations.admission_gated_by.as_deref(),
            max_execution_seconds: record.max_execution_seconds,
            status: &record.status,
        }
    }

    /// Returns all state outside the Workload that its lifecycle depends on.
    pub(crate) fn workload_facts<'a>(
        &'a self,
        key: &ObjectKey,
        record: &'a WorkloadRecord,
        now: Timestamp,
    ) -> Facts<'a> {
        Facts {
            verdict: self.engine.verdict(key).map(|v| (v.reason, v.to_string())),
            preemption: self.preemption_fact(key),
            own_check_states: [
                self.provisioning().check_states(record, now),
                self.admission_checks().never_set_states(record, now),
            ]
            .concat(),
            node_health: self.host_health().report(record, now),
            resource_requests: self.scheduler_input().requests_left(record),
            ..self.membership_facts(record, now)
        }
    }

    /// Returns the facts that queue membership depends on. No message is formatted and no check is evaluated.
    pub(crate) fn membership_facts<'a>(&'a self, record: &'a WorkloadRecord, now: Timestamp) -> Facts<'a> {
        let local = record.queue_name.as_deref().unwrap_or_default();
        let cluster = self.cache.cluster_queue_name(record).unwrap_or_default();
        let queue = self.cache.cluster_queue(cluster);
        let admission = record.status.admission.as_ref();
        Facts {
            queue_names: (local, cluster),
            local_queue: self.local_queue_fact(record),
            cluster_queue: self.cluster_queue_fact(cluster),
            owner: self.workload_owner(record, now),
            checks: queue.map(|q| checks::applicable(&q.object, admission)).unwrap_or_default(),
            misconfigured: record.effective_requests.misconfiguration.clone(),
            verdict: None,
            preemption: None,
            slice_replaced_message: self.slice_replaced_message(&record.meta.key, record),
            own_check_states: Vec::new(),
            node_health: node_failure::NodeHealthReport::default(),
            resource_requests: Arc::default(),
        }
    }

    /// Returns reason and message if the scheduler has chosen the Workload as a preemption victim.
    fn preemption_fact(&self, key: &ObjectKey) -> Option<(PreemptionReason, String)> {
        let preemption = self.engine.preemption_of(key)?;
        let preemptor = self.cache.workload(&preemption.preemptor)?;
        Some((preemption.victim.reason, preemption_message(preemptor, &preemption.victim)))
    }

    /// Returns the message for a Workload that a newer workload slice has replaced: the newer slice holds quota and
    /// names this Workload as replaced.
    fn slice_replaced_message(&self, key: &ObjectKey, record: &WorkloadRecord) -> Option<String> {
        let siblings = self.cache.workloads_owned_by(&record.owner.as_ref()?.uid);
        let newer = siblings.iter().filter(|sibling| *sibling != key).filter_map(|s| self.cache.workload(s));
        let mut replacing = newer.filter(|newer| {
            self.scheduler_input().replaced_slice(newer) == Some(key)
                && reservation::holds_quota(&newer.status)
        });
        replacing.next().map(|newer| {
            eviction::slice_replaced_message(&newer.meta.uid, newer.job_uid.as_deref().unwrap_or_default())
        })
    }

    fn local_queue_fact(&self, record: &WorkloadRecord) -> QueueFact {
        let Some(queue) = record.local_queue().and_then(|key| self.cache.local_queue(&key)) else {
            return QueueFact::Missing;
        };
        match queue.object.spec.stop_policy.unwrap_or_default() {
            _ if queue.meta.deleting => QueueFact::Terminating,
            StopPolicy::None => QueueFact::Active,
            stopped => QueueFact::Stopped(stopped),
        }
    }

    fn cluster_queue_fact(&self, name: &str) -> QueueFact {
        let Some(queue) = self.cache.cluster_queue(name) else {
            return QueueFact::Missing;
        };
        match queue.object.spec.stop_policy.unwrap_or_default() {
            _ if queue.meta.deleting => QueueFact::Terminating,
            StopPolicy::None => self
                .engine
                .inactive_reason(name)
                .map_or(QueueFact::Active, |inactive| QueueFact::Inactive(inactive.message.to_string())),
            stopped => QueueFact::Stopped(stopped),
        }
    }

    fn workload_owner(&self, record: &WorkloadRecord, now: Timestamp) -> WorkloadOwner {
        if let Some(unit) = self.cache.unit_of_workload(record) {
            let facts = UnitFacts { cache: &self.cache, settings: &self.settings, writes: &self.writes };
            return facts.unit_owner(record, &unit, now);
        }
        if let Some((id, job)) = self.job_lookup().job_of_workload(record) {
            return WorkloadOwner::Job(self.job_facts(record, id, job));
        }
        let Some(owner) = &record.owner else {
            return self.former_job(record).map_or(WorkloadOwner::None, WorkloadOwner::Job);
        };
        let managed = framework(owner.group(), &owner.kind)
            .is_some_and(|row| self.settings.manages_kind(JobKind::new(row)));
        if managed {
            WorkloadOwner::Missing
        } else if record.job_uid.as_ref().is_some_and(|uid| *uid != owner.uid) {
            // The garbage collector removed the job's reference; what is left is any object that a client added.
            self.former_job(record).map_or(WorkloadOwner::None, WorkloadOwner::Job)
        } else {
            WorkloadOwner::External
        }
    }

    /// Returns the job that a Workload with quota was made for, if the Workload has lost its owner and the job has neither
    /// finished nor stopped: the quota stays with the Workload until the pods are gone.
    fn former_job(&self, record: &WorkloadRecord) -> Option<JobFacts> {
        let uid = record.job_uid.as_ref().filter(|_| reservation::holds_quota(&record.status))?;
        let id = self.cache.job_id(uid)?;
        let job = self.cache.job(id)?;
        // Without its Workload it is suspended, but its pod templates are not restored.
        let may_run = !job.suspended && !job.deleting;
        let runs = may_run || job.status.active_pods > 0 || self.writes.is_in_flight(Kind::Job(id.0), &id.1);
        let facts = JobFacts { stopped: false, start_failed: None, ..self.job_facts(record, id, job) };
        (facts.finished.is_none() && runs).then_some(facts)
    }

    fn job_facts(&self, record: &WorkloadRecord, id: &JobId, job: &JobView) -> JobFacts {
        let (kind, key) = id;
        // While a write of the job is in flight, the cached version does not show whether the job has stopped.
        let write_in_flight = self.writes.is_in_flight(Kind::Job(*kind), key);
        let restored = kind.stop_patches(job, &pod_sets_to_restore(record, job)).is_empty();
        let finished = job.status.finished.as_ref().map(|f| (f.success, f.message.clone()));
        let superfluous = self.job_lookup().is_superfluous(record, id, job);
        let starting =
            conditions::is_true(&record.status, ConditionType::Admitted) && job.suspended && !superfluous;
        let start_failed = starting
            .then(|| self.job_lookup().start_patches(record, job).err())
            .flatten()
            .filter(|_| finished.is_none() && !conditions::is_true(&record.status, ConditionType::Evicted));
        // No pod is created for a job that is being deleted; its last ones run until then. It exists until its Workload is
        // gone, because the Workload blocks a deletion in the foreground.
        let idle = job.deleting || (job.suspended && restored);
        // The pods of a job that another Workload started do not run on its quota.
        let left = superfluous && starting_workload(job).is_some_and(|name| *name != *record.meta.key.name);
        let stopped = !write_in_flight && (left || (job.status.active_pods == 0 && idle));
        JobFacts {
            stopped,
            finished,
            pods_ready: job.status.pods_ready && !job.suspended,
            reclaimable: self.reclaimable_pods_of_job(record, job),
            // Once it is finished, it holds no quota and cannot be restored.
            out_of_sync: stopped && (superfluous || is_out_of_sync(record, job)),
            start_failed: start_failed.map(|e| e.to_string()),
            absent_pods: None,
        }
    }

    /// Returns the reclaimable pods of a job. Those of a job that was resized since its Workload got quota stay as they
    /// are until the Workload is replaced: more than it has pods would be refused.
    fn reclaimable_pods_of_job(&self, record: &WorkloadRecord, job: &JobView) -> Vec<(String, i32)> {
        if !self.settings.gates.reclaimable_pods {
            return Vec::new();
        }
        if reservation::holds_quota(&record.status) && !grants_match_job(record, job) {
            let known = &record.status.reclaimable_pods;
            return known.iter().map(|pods| (pods.name.clone(), pods.count)).collect();
        }
        let pods = job.status.reclaimable_pods.iter().filter(|(_, count)| *count > 0);
        pods.map(|(name, count)| (name.to_string(), *count)).collect()
    }
}
