//! `kueue.x-k8s.io/v1beta1`, the version that Kueue is ending: names of what differs from v1beta2.
//!
//! It is served for clients that still use it, and never stored. There are no types of it: objects are converted as JSON, and
//! its schemas are made from those of v1beta2.

/// Name of the version.
pub const VERSION: &str = "v1beta1";

/// `spec.priorityClassSource` of a Workload whose priority class is a WorkloadPriorityClass.
pub const WORKLOAD_PRIORITY_CLASS_SOURCE: &str = "kueue.x-k8s.io/workloadpriorityclass";
/// `spec.priorityClassSource` of a Workload whose priority class is the PriorityClass of its pods.
pub const POD_PRIORITY_CLASS_SOURCE: &str = "scheduling.k8s.io/priorityclass";

/// Definitions whose objects a webhook converts. The objects of the other kinds are the same in both versions, but for fields
/// that the API server removes.
pub const CONVERTED: [&str; 5] = [
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];

/// Path of the conversion webhook.
pub const CONVERSION_PATH: &str = "/convert";
