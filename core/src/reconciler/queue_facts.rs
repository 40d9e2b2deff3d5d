//! Publishing: facts about the objects of queues, for lists.

use super::CoreSettings;
use super::queues::activity::preemption_of;
use crate::api::v1beta2::{AdmissionMode, FairSharing, ResourceGroup};
use crate::cache::Cache;
use crate::cache::records::{ClusterQueueRecord, CohortRecord, Meta};
use crate::quota::{FlavorResource, NodeRef, QuotaUnits};
use crate::scheduler::{FairStrategy, PreemptionPolicy};
use crate::snapshot::{ClusterQueueFacts, CohortFacts, ObjectFacts, QueueFacts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the facts that follow from the specs of queues and cohorts, and from the settings.
pub(super) fn queue_facts(cache: &Cache, settings: &CoreSettings) -> QueueFacts {
    let mut units = QuotaUnits::default();
    for (name, record) in cache.cluster_queues() {
        add_units(&mut units, &NodeRef::ClusterQueue(Arc::clone(name)), record.object.quota_groups());
    }
    for (name, record) in cache.cohorts() {
        add_units(&mut units, &NodeRef::Cohort(Arc::clone(name)), record.object.quota_groups());
    }
    let admission_fair_sharing = settings.engine.admission_fair_sharing.is_some();
    let cluster_queues: BTreeMap<Arc<str>, ClusterQueueFacts> = cache
        .cluster_queues()
        .map(|(name, record)| {
            let facts = cluster_queue_facts(record, settings);
            let orders_by_past_usage = facts.orders_by_past_usage && admission_fair_sharing;
            (Arc::clone(name), ClusterQueueFacts { orders_by_past_usage, ..facts })
        })
        .collect();
    let cohort = |(name, record): (&Arc<str>, &CohortRecord)| {
        let weight = weight_text(record.object.spec.fair_sharing.as_ref());
        (Arc::clone(name), CohortFacts { object: object_facts(&record.meta), weight })
    };
    let strategies = settings.engine.fair_sharing.as_ref();
    QueueFacts {
        orders_by_past_usage: cluster_queues.values().any(|facts| facts.orders_by_past_usage),
        cluster_queues,
        cohorts: cache.cohorts().map(cohort).collect(),
        local_queues: cache
            .local_queues()
            .map(|(key, record)| (key.clone(), object_facts(&record.meta)))
            .collect(),
        flavors: cache
            .flavors()
            .map(|(name, record)| (Arc::clone(name), object_facts(&record.meta)))
            .collect(),
        units,
        preempts_within_nominal: settings.engine.gates.preempt_within_nominal,
        fair_sharing: strategies.map(|all| all.iter().map(|one| strategy_name(*one)).collect()),
        requeue_order: settings.requeue_order(),
    }
}

fn object_facts(meta: &Meta) -> ObjectFacts {
    ObjectFacts { uid: Arc::clone(&meta.uid), created: meta.created }
}

fn cluster_queue_facts(record: &ClusterQueueRecord, settings: &CoreSettings) -> ClusterQueueFacts {
    let spec = &record.object.spec;
    let cohort = spec.cohort_name.as_deref();
    let usage_based = |mode| mode == AdmissionMode::UsageBasedAdmissionFairSharing;
    ClusterQueueFacts {
        object: object_facts(&record.meta),
        strategy: spec.queueing_strategy,
        preemption: PreemptionPolicy::of(&preemption_of(spec), cohort, &settings.engine),
        weight: weight_text(spec.fair_sharing.as_ref()),
        order: record
            .object
            .quota_groups()
            .iter()
            .flat_map(|group| &group.flavors)
            .flat_map(|flavor| {
                flavor.resources.iter().map(|quota| FlavorResource::new(&flavor.name, &quota.name))
            })
            .collect(),
        orders_by_past_usage: spec
            .admission_scope
            .as_ref()
            .is_some_and(|scope| usage_based(scope.admission_mode)),
        namespace_selector: spec.namespace_selector.clone(),
    }
}

fn add_units(units: &mut QuotaUnits, node: &NodeRef, groups: &[ResourceGroup]) {
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            units.add(node, FlavorResource::new(&flavor.name, &quota.name), &quota.nominal_quota.0);
        }
    }
}

fn weight_text(fair_sharing: Option<&FairSharing>) -> String {
    let weight = fair_sharing.and_then(|sharing| sharing.weight.as_ref());
    weight.map_or_else(|| "1".to_owned(), |weight| weight.0.clone())
}

const fn strategy_name(strategy: FairStrategy) -> &'static str {
    match strategy {
        FairStrategy::LessThanOrEqualToFinalShare => "LessThanOrEqualToFinalShare",
        FairStrategy::LessThanInitialShare => "LessThanInitialShare",
    }
}
