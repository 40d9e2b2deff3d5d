//! Facts about the objects of queues that lists show beside counts and usage.
//!
//! Invariant: the facts follow from specs and settings alone. They are rebuilt only when one of these changes.

use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::{FlavorResource, QuotaUnits};
use crate::scheduler::{PreemptionPolicy, RequeueOrder};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about queues and cohorts.
#[derive(Clone, Debug, Default)]
pub struct QueueFacts {
    /// ClusterQueues by name.
    pub cluster_queues: BTreeMap<Arc<str>, ClusterQueueFacts>,
    /// Cohort objects by name.
    pub cohorts: BTreeMap<Arc<str>, CohortFacts>,
    /// LocalQueues by key.
    pub local_queues: BTreeMap<ObjectKey, ObjectFacts>,
    /// ResourceFlavors by name.
    pub flavors: BTreeMap<Arc<str>, ObjectFacts>,
    /// Units of all quotas.
    pub units: QuotaUnits,
    /// Names of the preemption strategies of fair sharing; absent if it is off.
    pub fair_sharing: Option<Vec<&'static str>>,
    /// Whether, under fair sharing, a ClusterQueue within its nominal quota preempts whatever its share is.
    pub preempts_within_nominal: bool,
    /// Whether LocalQueues are ordered by past usage in some ClusterQueue.
    pub orders_by_past_usage: bool,
    /// Time by which evicted workloads are ordered in their queue.
    pub requeue_order: RequeueOrder,
}

/// Facts about any object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    /// UID.
    pub uid: Arc<str>,
    /// When it was created.
    pub created: Timestamp,
}

/// Facts about a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueueFacts {
    /// The object.
    pub object: ObjectFacts,
    /// Queueing strategy.
    pub strategy: QueueingStrategy,
    /// Which workloads its heads may evict.
    pub preemption: PreemptionPolicy,
    /// Fair-sharing weight, as a quantity.
    pub weight: String,
    /// Flavor-resources in the order of the spec.
    pub order: Vec<FlavorResource>,
    /// Whether the LocalQueues are ordered by past usage.
    pub orders_by_past_usage: bool,
    /// Selector of namespaces; absent for a ClusterQueue that selects none.
    pub namespace_selector: Option<LabelSelector>,
}

/// Facts about a Cohort object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CohortFacts {
    /// The object.
    pub object: ObjectFacts,
    /// Fair-sharing weight, as a quantity.
    pub weight: String,
}
