//! Feeds the history with the objects, and compares its open runs with the ledger.
//!
//! Invariant: assumed admissions are left out, because their writes have not landed, and so are Workloads that were removed with
//! quota; the comparison adds both again.

use super::scheduler_input::SchedulerInput;
use super::settings::CoreSettings;
use super::usage_sums::UsageSums;
use super::writes::assumed::AssumedAdmissions;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Cache;
use crate::cache::records::WorkloadRecord;
use crate::history::{Ring, SeenWorkload};
use crate::lifecycle::conditions;
use crate::lifecycle::eviction::SLICE_REPLACED;
use crate::quota::FlavorResource;
use crate::resources::Amount;
use crate::scheduler::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The input of the history.
pub(super) struct HistoryFeed<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a CoreSettings,
    pub(super) engine: &'a Engine,
    pub(super) assumed: &'a AssumedAdmissions,
    pub(super) ring: &'a mut Ring,
}

impl HistoryFeed<'_> {
    /// Records a stored Workload. `before` is its previous record.
    pub(super) fn follow(&mut self, key: &ObjectKey, before: Option<&WorkloadRecord>) {
        let Some(record) = self.cache.workload(key).filter(|_| self.ring.is_enabled()) else { return };
        if let Some(before) = before {
            if before.meta.uid != record.meta.uid {
                self.ring.delete(before);
            } else if is_finished(before) && is_finished(record) {
                return;
            }
        }
        self.observe(record);
    }

    /// Records a Workload again if another object has changed its ClusterQueue or its charge.
    pub(super) fn follow_changed_surroundings(&mut self, key: &ObjectKey) {
        let Some(record) = self.cache.workload(key).filter(|_| self.ring.is_enabled()) else { return };
        let queue = self.cache.cluster_queue_name(record).unwrap_or_default();
        let charged = conditions::is_true(&record.status, ConditionType::QuotaReserved)
            && !self.is_charged_to_replacing(record);
        if !is_finished(record) && !self.ring.is_current(&record.meta.uid, queue, charged) {
            self.observe(record);
        }
    }

    fn observe(&mut self, record: &WorkloadRecord) {
        let queue = self.cache.cluster_queue_name(record).unwrap_or_default();
        let input = SchedulerInput { cache: self.cache, settings: self.settings };
        let charge = input.charged_usage(record).filter(|_| !self.is_charged_to_replacing(record));
        let cluster_queue = self.cache.interned_cluster_queue_name(queue);
        let last_charge = self.last_charge(&input, record);
        self.ring.observe(&SeenWorkload { record, cluster_queue, charge, last_charge });
    }

    /// Returns the amounts of the last run of a finished Workload, while a time without a recorder is filled. Slices are left out:
    /// one was charged for the other, and nothing shows since when.
    fn last_charge(
        &self,
        input: &SchedulerInput<'_>,
        record: &WorkloadRecord,
    ) -> Option<BTreeMap<FlavorResource, Amount>> {
        if !self.ring.fills() || !is_finished(record) || record.annotations.replaces.is_some() {
            return None;
        }
        let is_replaced = conditions::reason(&record.status, ConditionType::Finished) == SLICE_REPLACED;
        input.admitted_usage(record).filter(|_| !is_replaced)
    }

    fn is_charged_to_replacing(&self, record: &WorkloadRecord) -> bool {
        let input = SchedulerInput { cache: self.cache, settings: self.settings };
        input.is_charged_to_replacing(record, &AssumedAdmissions::default())
    }

    /// Records the nominal quotas above which a ClusterQueue borrows, or its deletion. Without a cohort it does not borrow.
    pub(super) fn follow_quota(&mut self, name: &Arc<str>) {
        let record = self.cache.cluster_queue(name);
        let record = record.filter(|record| record.object.spec.cohort_name.is_some());
        let groups = record.map(|record| record.object.quota_groups()).unwrap_or_default();
        let quotas =
            crate::cache::kinds::to_resource_groups(groups).into_iter().flat_map(|group| group.flavors);
        let quotas = quotas.flat_map(|flavor| {
            let name = flavor.name;
            flavor.limits.into_iter().map(move |(resource, limits)| {
                (FlavorResource { flavor: Arc::clone(&name), resource }, limits.nominal.to_i128())
            })
        });
        self.ring.set_nominal(name, quotas);
    }

    /// Returns the number of flavor-resources of ClusterQueues whose open runs, together with assumed admissions, differ from the
    /// usage in the ledger. It must be 0 at each instant after the first lists.
    pub(super) fn drift(&self) -> usize {
        if !self.ring.is_enabled() {
            return 0;
        }
        let mut sums = UsageSums(self.ring.open_usage());
        for key in self.assumed.workloads() {
            self.add_assumed(key, &mut sums);
        }
        // The runs of Workloads that were removed while pods ran on their quota have ended.
        let input = SchedulerInput { cache: self.cache, settings: self.settings };
        let vanished = self.cache.vanished_workloads();
        sums.add_charges(vanished.filter_map(|record| input.charge_from_admission(record)));
        sums.drift(self.cache, self.engine)
    }

    /// Adds the charge of an assumed admission, and subtracts the run of the slice that it replaces.
    fn add_assumed(&self, key: &ObjectKey, sums: &mut UsageSums) {
        let input = SchedulerInput { cache: self.cache, settings: self.settings };
        let Some(record) = self.cache.workload(key) else { return };
        let Some(charge) = self.engine.charge_of(key).filter(|_| input.charged_usage(record).is_none())
        else {
            return;
        };
        sums.add_charges([charge.clone()]);
        let replaced = record.annotations.replaces.as_deref().and_then(|key| self.cache.workload(key));
        let takes_over = |old: &&Arc<WorkloadRecord>| input.is_charged_to_replacing(old, self.assumed);
        if let Some(old) = replaced.filter(takes_over)
            && let Some(queue) = self.cache.cluster_queue_name(old)
        {
            let run = self.ring.open_run(&old.meta.uid).into_iter();
            sums.add(Arc::from(queue), run.map(|(fr, amount)| (fr, amount.saturating_neg())));
        }
    }
}

fn is_finished(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Finished)
}
