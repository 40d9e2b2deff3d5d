//! The facts around a Workload, gathered for its life cycle.

use crate::api::ObjectKey;
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{PodSetRequest, StopPolicy};
use crate::cache::Kind;
use crate::cache::kinds::to_amount;
use crate::cache::records::{EffectiveRequests, WorkloadRecord};
use crate::frameworks::{FRAMEWORKS, JobView, served_framework};
use crate::lifecycle::workload::{Facts, JobFacts, QueueFact, WorkloadInput, WorkloadOwner};
use crate::lifecycle::{checks, conditions, eviction, node_failure, reservation};
use crate::quota::FlavorResource;
use crate::reconciler::Reconciler;
use crate::reconciler::workload::decision_status::preemption_message;
use crate::resources::{self, Amount, Requests, apply_overhead, limit_range, pod_quantities, to_requests};
use crate::scheduler::{Charge, PodSet, PreemptionReason};
use crate::topology::PodRequirements;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodResourceClaim, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Reconciler {
    /// What the Workload says of itself.
    pub(in crate::reconciler) fn workload_input<'a>(&self, record: &'a WorkloadRecord) -> WorkloadInput<'a> {
        WorkloadInput {
            generation: record.meta.generation,
            active: record.active,
            deleting: record.meta.deleting,
            has_finalizer: record.meta.has_finalizer(),
            made_for_job: record.job_uid.is_some() && self.settings.gates.finish_orphaned_workloads,
            admission_gates: record.admission_gated_by.as_deref().filter(|_| record.has_admission_gates),
            max_execution_seconds: record.max_execution_seconds,
            status: &record.status,
        }
    }

    /// Everything around it that its life cycle depends on.
    pub(in crate::reconciler) fn workload_facts<'a>(
        &'a self,
        key: &ObjectKey,
        record: &'a WorkloadRecord,
        now: Timestamp,
    ) -> Facts<'a> {
        Facts {
            verdict: self.engine.verdict(key).map(|v| (v.reason, v.to_string())),
            preemption: self.preemption_fact(key),
            own_check_states: [
                self.provisioning_check_states(record, now),
                self.multikueue_check_states(record, now),
            ]
            .concat(),
            node_health: self.node_health_report(key, record, now),
            resource_requests: Arc::clone(&record.effective_requests.status_requests),
            ..self.membership_facts(record)
        }
    }

    /// The part of them that says where it belongs: nothing is worded, and no check is judged.
    pub(in crate::reconciler) fn membership_facts<'a>(&'a self, record: &'a WorkloadRecord) -> Facts<'a> {
        let local = record.queue_name.as_deref().unwrap_or_default();
        let cluster = self.cluster_queue_name(record).unwrap_or_default();
        let queue = self.cluster_queues.get(cluster);
        let admission = record.status.admission.as_ref();
        Facts {
            queue_names: (local, cluster),
            local_queue: self.local_queue_fact(record),
            cluster_queue: self.cluster_queue_fact(cluster),
            owner: self.workload_owner(record),
            checks: queue.map(|q| checks::applicable(&q.object.spec, admission)).unwrap_or_default(),
            misconfigured: record.effective_requests.misconfiguration.clone(),
            verdict: None,
            preemption: None,
            slice_replaced_message: self.slice_replaced_message(&record.meta.key, record),
            own_check_states: Vec::new(),
            node_health: node_failure::NodeHealthReport::default(),
            resource_requests: Arc::default(),
        }
    }

    /// Why a Workload that holds quota must go, by a decision of the scheduler that stands.
    fn preemption_fact(&self, key: &ObjectKey) -> Option<(PreemptionReason, String)> {
        let preemption = self.engine.preemption_of(key)?;
        let preemptor = self.workloads.get(&preemption.preemptor)?;
        Some((preemption.victim.reason, preemption_message(preemptor, &preemption.victim)))
    }

    /// Words for the slice that has taken over from a Workload: it holds quota, and names the one that it replaces.
    fn slice_replaced_message(&self, key: &ObjectKey, record: &WorkloadRecord) -> Option<String> {
        let siblings = self.workloads_by_owner.get(&record.owner.as_ref()?.uid)?;
        let newer = siblings.iter().filter(|sibling| *sibling != key).filter_map(|s| self.workloads.get(s));
        let mut over = newer.filter(|newer| {
            self.replaced_slice(newer) == Some(key) && reservation::holds_quota(&newer.status)
        });
        over.next().map(|newer| {
            eviction::slice_replaced_message(&newer.meta.uid, newer.job_uid.as_deref().unwrap_or_default())
        })
    }

    /// The ClusterQueue that holds its reservation, or else that its LocalQueue leads to.
    pub(in crate::reconciler) fn cluster_queue_name<'a>(
        &'a self,
        record: &'a WorkloadRecord,
    ) -> Option<&'a str> {
        match &record.status.admission {
            Some(admission) if conditions::is_true(&record.status, ConditionType::QuotaReserved) => {
                Some(&admission.cluster_queue)
            }
            _ => self.local_queues.get(&record.local_queue()?)?.object.spec.cluster_queue.as_deref(),
        }
    }

    fn local_queue_fact(&self, record: &WorkloadRecord) -> QueueFact {
        let Some(queue) = record.local_queue().and_then(|key| self.local_queues.get(&key)) else {
            return QueueFact::Missing;
        };
        match queue.object.spec.stop_policy.unwrap_or_default() {
            _ if queue.meta.deleting => QueueFact::Terminating,
            StopPolicy::None => QueueFact::Active,
            stopped => QueueFact::Stopped(stopped),
        }
    }

    fn cluster_queue_fact(&self, name: &str) -> QueueFact {
        let Some(queue) = self.cluster_queues.get(name) else {
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

    fn workload_owner(&self, record: &WorkloadRecord) -> WorkloadOwner {
        let Some(owner) = &record.owner else {
            return WorkloadOwner::None;
        };
        let served = served_framework(owner.group(), &owner.kind)
            .is_some_and(|k| self.settings.serves_framework(k.name));
        if !served {
            return WorkloadOwner::External;
        }
        self.job_by_uid
            .get(&owner.uid)
            .and_then(|id| self.jobs.get(id))
            .map_or(WorkloadOwner::Missing, |job| WorkloadOwner::Job(self.job_facts(record, job)))
    }

    fn job_facts(&self, record: &WorkloadRecord, job: &JobView) -> JobFacts {
        let kind = self.job_by_uid.get(&job.uid).and_then(|(index, _)| FRAMEWORKS.get(*index));
        // What the job was before a write that is under way says nothing of what it is now.
        let unsure = self
            .job_by_uid
            .get(&job.uid)
            .is_none_or(|(index, key)| self.in_flight_writes.is_in_flight(Kind::Job(*index), key));
        let restored = kind.is_some_and(|k| k.stop_patches(job, record.originals()).is_empty());
        let finished = job.status.finished.as_ref().map(|f| (f.success, f.message.clone()));
        let started = conditions::is_true(&record.status, ConditionType::Admitted) && job.suspended;
        let start_failed = started
            .then(|| self.start_patches(record, job).err())
            .flatten()
            .filter(|_| finished.is_none() && !conditions::is_true(&record.status, ConditionType::Evicted));
        JobFacts {
            deleting: job.deleting,
            stopped: !unsure && job.suspended && job.status.active_pods == 0 && restored,
            finished,
            pods_ready: job.status.pods_ready && !job.suspended,
            reclaimable: if job.suspended || !self.settings.gates.reclaimable_pods {
                Vec::new()
            } else {
                job.reclaimable_pods
                    .iter()
                    .filter(|(_, n)| *n > 0)
                    .map(|(name, n)| (name.to_string(), *n))
                    .collect()
            },
            out_of_sync: job.prebuilt_workload.is_some()
                && job.suspended
                && !crate::reconciler::job::start::is_equivalent_to_job(record, job),
            start_failed: start_failed.map(|e| e.to_string()),
        }
    }

    /// The same for all of the same pods in the same namespace.
    pub(in crate::reconciler) fn interned_requests(
        &mut self,
        record: &WorkloadRecord,
    ) -> Arc<EffectiveRequests> {
        let namespace = &record.meta.key.namespace;
        self.interned.find_requests(namespace, &record.pods).unwrap_or_else(|| {
            let effective = self.compute_effective_requests(record);
            self.interned.insert_requests(namespace, &record.pods, effective)
        })
    }

    /// Requests of a Workload after defaults, limits, overhead and transformations.
    fn compute_effective_requests(&self, record: &WorkloadRecord) -> EffectiveRequests {
        let limits = self.limit_range_summaries.get(&record.meta.key.namespace);
        let mut pod_sets = Vec::new();
        let mut problems = Vec::new();
        for (at, set) in record.pod_sets().iter().enumerate() {
            let mut spec = (*set.spec).clone();
            apply_overhead(&mut spec, |class| self.runtime_classes.get(class).cloned());
            let path = format!("podSets[{at}].template.spec");
            if let Some(limits) = limits {
                limits.apply(&mut spec);
                problems.extend(limits.check(&spec, &path));
            }
            problems.extend(limit_range::requests_above_limits(&spec, &path));
            problems.extend(unsupported_claims(&spec, &path, &set.name));
            let asked = pod_quantities(&spec);
            let request = set.topology.as_deref().filter(|request| request.is_explicit()).cloned();
            pod_sets.push(PodSet {
                name: set.name.clone(),
                count: set.count,
                min_count: set.min_count,
                pod_requirements: Arc::new(PodRequirements::new(&spec, to_requests(&asked), request)),
                requests: to_requests(&self.settings.transform.apply(asked)),
                group: set.topology.as_ref().and_then(|t| t.pod_set_group_name.as_deref()).map(Arc::from),
            });
        }
        let misconfigured = (!problems.is_empty()).then(|| problems.join("; "));
        let shown = to_status_requests(&pod_sets).into();
        EffectiveRequests {
            pod_sets: Some(Arc::from(pod_sets)),
            status_requests: shown,
            misconfiguration: misconfigured,
        }
    }

    /// What a Workload holds, from its admission; pods that will not run again give back their part.
    pub(in crate::reconciler) fn charge_from_admission(&self, record: &WorkloadRecord) -> Option<Charge> {
        if !reservation::holds_quota(&record.status) {
            return None;
        }
        let admission = record.status.admission.as_ref()?;
        let mut usage: BTreeMap<FlavorResource, Amount> = BTreeMap::new();
        for set in &admission.pod_set_assignments {
            let asked = record.pod_sets().iter().find(|p| *p.name == *set.name).map(|p| p.count);
            let count = set.count.or(asked).unwrap_or(0);
            let reclaimed = record.status.reclaimable_pods.iter().find(|r| r.name == set.name);
            let gone = reclaimed.filter(|_| self.settings.gates.reclaimable_pods).map_or(0, |r| r.count);
            // Reclaimable pods count from all that the Workload asks for: where fewer were admitted, those that are not
            // needed any more are first the ones that never ran.
            let left = count.min(resources::without_reclaimable(asked.unwrap_or(count), gone));
            for (resource, flavor) in &set.flavors {
                let Some(total) = set.resource_usage.get(resource) else {
                    continue;
                };
                let amount = scale_to_remaining(to_amount(resource, total), left, count);
                let cell = FlavorResource {
                    flavor: Arc::from(flavor.as_str()),
                    resource: Arc::from(resource.as_str()),
                };
                let entry = usage.entry(cell).or_insert(Amount::ZERO);
                *entry = entry.plus(amount);
            }
        }
        Some(Charge {
            cluster_queue: Arc::from(admission.cluster_queue.as_str()),
            usage,
            uid: record.meta.uid.clone(),
            local_queue: record.queue_name.clone().unwrap_or_else(|| Arc::from("")),
            priority: i64::from(record.priority),
            reserved_at: conditions::true_since(&record.status, ConditionType::QuotaReserved),
            evicted: conditions::is_true(&record.status, ConditionType::Evicted),
            deactivated: !record.active,
            queued_since: self.queued_since(record),
            variant: record.variant.clone(),
            topology: self.occupancies(record, admission),
        })
    }

    /// The time that counts for its place in the queue.
    pub(in crate::reconciler) fn queued_since(&self, record: &WorkloadRecord) -> Timestamp {
        let evicted = conditions::true_since(&record.status, ConditionType::Evicted);
        match (evicted, conditions::reason(&record.status, ConditionType::Evicted)) {
            (Some(at), "PodsReadyTimeout") if !self.settings.requeue_by_creation => at,
            (Some(at), "AdmissionCheck") => at,
            _ => record.meta.created,
        }
    }

    /// Whether the namespace is one whose jobs are managed.
    pub(in crate::reconciler) fn manages_namespace(&self, namespace: &str) -> bool {
        let labels = self.namespaces.get(namespace);
        labels.is_some_and(|labels| crate::api::selector::matches(&self.settings.managed_namespaces, labels))
    }

    /// Whether a job is ours to look after.
    pub(in crate::reconciler) fn manages_job(&self, job: &JobView) -> bool {
        let named = job.queue_name.is_some() || self.settings.manage_jobs_without_queue_name;
        named && !Self::is_managed_by_other_controller(job) && self.manages_namespace(&job.key.namespace)
    }

    /// Whether the job says that a controller which has nothing to do with us runs it.
    pub(in crate::reconciler) fn is_managed_by_other_controller(job: &JobView) -> bool {
        let by = job.managed_by.as_deref();
        by.is_some_and(|by| by != "kubernetes.io/job-controller" && by != names::MULTIKUEUE_CONTROLLER)
    }
}

/// The part of a total that is left when `left` of `count` pods count.
fn scale_to_remaining(total: Amount, left: i32, count: i32) -> Amount {
    if left >= count || count <= 0 {
        return total;
    }
    let exact = i128::from(total.get()) * i128::from(left) / i128::from(count);
    i64::try_from(exact).map_or(total, Amount::new)
}

/// Devices that pods claim have no quota yet: without this their pods would run and be charged nothing for them.
fn unsupported_claims(spec: &PodSpec, path: &str, pod_set: &str) -> Vec<String> {
    let claims = spec.resource_claims.iter().flatten().enumerate();
    let problem = |(at, claim): (usize, &PodResourceClaim)| match &claim.resource_claim_template_name {
        Some(template) => format!(
            "{path}.resourceClaims[{at}].resourceClaimTemplateName: Not found: \"the DeviceClasses of \
             ResourceClaimTemplate {template} are not mapped in DRA configuration for podset {pod_set}\""
        ),
        None => format!(
            "{path}.resourceClaims[{at}]: KueueDRAIntegration feature does not support use of resource claims"
        ),
    };
    claims.map(problem).collect()
}

/// Totals by pod set, as `status.resourceRequests` shows them.
fn to_status_requests(pod_sets: &[PodSet]) -> Vec<PodSetRequest> {
    let total = |requests: &Requests, count: i32| {
        requests
            .iter()
            .map(|(r, a)| (r.to_string(), Quantity(resources::format_quantity(r, a.times(i64::from(count))))))
            .collect()
    };
    pod_sets
        .iter()
        .map(|set| PodSetRequest { name: set.name.to_string(), resources: total(&set.requests, set.count) })
        .collect()
}
