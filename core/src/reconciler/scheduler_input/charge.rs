//! The charge of a Workload, computed from its admission.

use super::SchedulerInput;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{Admission, PodSetAssignment};
use crate::cache::kinds::to_amount;
use crate::cache::nodes::placement_of;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::JobView;
use crate::lifecycle::{conditions, reservation};
use crate::quota::FlavorResource;
use crate::resources::{self, Amount};
use crate::scheduler::Charge;
use crate::topology::Occupancy;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl SchedulerInput<'_> {
    /// Returns the charge of a Workload that holds quota, without the usage of pods that will not run again.
    pub(crate) fn charge_from_admission(&self, record: &WorkloadRecord) -> Option<Charge> {
        let usage = self.charged_usage(record)?;
        let admission = record.status.admission.as_ref()?;
        Some(Charge {
            cluster_queue: Arc::from(admission.cluster_queue.as_str()),
            usage,
            uid: record.meta.uid.clone(),
            local_queue: record.queue_name.clone().unwrap_or_else(|| Arc::from("")),
            priority: record.effective_priority(),
            reserved_at: conditions::true_since(&record.status, ConditionType::QuotaReserved),
            evicted: conditions::is_true(&record.status, ConditionType::Evicted),
            deactivated: !record.active,
            queued_since: self.queued_since(record),
            variant: record.annotations.variant.clone(),
            topology: self.occupancies(record, admission),
        })
    }

    /// Returns the amounts that a Workload with quota is charged for. Pods that had succeeded and that its job runs again are
    /// charged before its status shows them.
    pub(crate) fn charged_usage(&self, record: &WorkloadRecord) -> Option<BTreeMap<FlavorResource, Amount>> {
        let running = self.running_job(record);
        self.usage_without(record, |name, reported| {
            let of_job = running.map(|job| {
                let reclaimable = job.status.reclaimable_pods.iter().find(|(known, _)| **known == *name);
                reclaimable.map_or(0, |(_, count)| *count)
            });
            of_job.map_or(reported, |count| reported.min(count))
        })
    }

    /// Returns the running job of an admitted Workload, if its status is about the pods that the Workload requests.
    fn running_job(&self, record: &WorkloadRecord) -> Option<&JobView> {
        let holds = |kind| conditions::is_true(&record.status, kind);
        if record.status.reclaimable_pods.is_empty()
            || !holds(ConditionType::Admitted)
            || holds(ConditionType::Evicted)
        {
            return None;
        }
        let (_, job) = self.cache.job_of(record)?;
        let (has, asks) = (record.pod_sets(), &job.pod_sets);
        let is_same = has.len() == asks.len()
            && has.iter().zip(asks).all(|(has, asks)| has.name == asks.name && has.count == asks.count);
        (is_same && !job.suspended && !job.deleting && job.options.slice.is_none()).then_some(job)
    }

    /// Returns the amounts of the pods of a Workload with quota, without a number of pods of each pod set. The number follows
    /// from the name of the pod set and the reclaimable pods in the status.
    pub(crate) fn usage_without(
        &self,
        record: &WorkloadRecord,
        reclaimed: impl Fn(&str, i32) -> i32,
    ) -> Option<BTreeMap<FlavorResource, Amount>> {
        if !reservation::holds_quota(&record.status) {
            return None;
        }
        self.usage_of_admission(record, reclaimed)
    }

    /// Returns the amounts that a Workload is charged for by its admission, whether or not it still holds quota, without the pods
    /// that its status reports as reclaimable.
    pub(crate) fn admitted_usage(&self, record: &WorkloadRecord) -> Option<BTreeMap<FlavorResource, Amount>> {
        self.usage_of_admission(record, |_, reported| reported)
    }

    fn usage_of_admission(
        &self,
        record: &WorkloadRecord,
        reclaimed: impl Fn(&str, i32) -> i32,
    ) -> Option<BTreeMap<FlavorResource, Amount>> {
        let admission = record.status.admission.as_ref()?;
        let mut usage: BTreeMap<FlavorResource, Amount> = BTreeMap::new();
        for set in &admission.pod_set_assignments {
            let requested = record.pod_sets().iter().find(|p| *p.name == *set.name).map(|p| p.count);
            let count = set.count.or(requested).unwrap_or(0);
            let reported = record.status.reclaimable_pods.iter().find(|r| r.name == set.name);
            let reported = reported.filter(|_| self.settings.gates.reclaimable_pods);
            let reclaimed = reported.map_or(0, |r| reclaimed(&set.name, r.count));
            // Reclaimable pods are subtracted from the requested count: with partial admission, the pods that were not
            // admitted are reclaimed first.
            let left = count.min(resources::without_reclaimable(requested.unwrap_or(count), reclaimed));
            for (resource, flavor) in &set.flavors {
                let Some(total) = set.resource_usage.get(resource) else {
                    continue;
                };
                let amount = scale_to_remaining(to_amount(resource, total), left, count);
                let flavor_resource = FlavorResource {
                    flavor: Arc::from(flavor.as_str()),
                    resource: Arc::from(resource.as_str()),
                };
                let entry = usage.entry(flavor_resource).or_insert(Amount::ZERO);
                *entry = entry.plus(amount);
            }
        }
        Some(usage)
    }

    /// Returns the time by which a Workload is ordered in its queue.
    pub(crate) fn queued_since(&self, record: &WorkloadRecord) -> Timestamp {
        record.queued_since(self.settings.requeue_order())
    }

    /// Returns the usage of topology domains by an admission. An assignment that cannot be decoded uses none.
    pub(crate) fn occupancies(&self, record: &WorkloadRecord, admission: &Admission) -> Vec<Occupancy> {
        let mut all = Vec::new();
        for set in &admission.pod_set_assignments {
            let sets = record.effective_requests.pod_sets.as_deref().unwrap_or_default();
            let pods = sets.iter().find(|known| *known.name == *set.name);
            let (Some(placement), Some(pods)) = (placement_of(set), pods) else {
                continue;
            };
            all.extend(self.topology_flavors(set).into_iter().map(|flavor| Occupancy {
                flavor: Arc::from(flavor),
                pod_set: Arc::clone(&pods.name),
                placement: placement.clone(),
                requests_per_pod: pods.pod_requirements.requests.clone(),
            }));
        }
        all
    }

    fn topology_flavors<'a>(&self, set: &'a PodSetAssignment) -> BTreeSet<&'a str> {
        let flavors = set.flavors.values().map(String::as_str);
        flavors.filter(|flavor| self.cache.has_topology(flavor)).collect()
    }
}

/// Returns the part of `total` that `left` of `count` pods use.
fn scale_to_remaining(total: Amount, left: i32, count: i32) -> Amount {
    if left >= count || count <= 0 {
        return total;
    }
    let exact = i128::from(total.get()) * i128::from(left) / i128::from(count);
    i64::try_from(exact).map_or(total, Amount::new)
}
