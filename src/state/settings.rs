//! Settings of the core, made from the configuration once at start.

use crate::lifecycle::workload;
use crate::resources::transform::Transform;
use crate::scheduler::EngineSettings;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Settings of the core.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Timeouts and retention of Workloads.
    pub lifecycle: workload::Settings,
    /// Jobs without a queue name are held as well, in the managed namespaces.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs are managed.
    pub managed_namespaces: LabelSelector,
    /// Labels that a job passes to its Workload.
    pub label_keys_to_copy: Vec<String>,
    /// How requests are rewritten before they count against quota.
    pub transform: Transform,
    /// Workloads evicted for unready pods keep their place by creation, not by eviction.
    pub requeue_by_creation: bool,
    /// Settings of the scheduler.
    pub engine: EngineSettings,
    /// Least time between two status writes of one queue.
    pub queue_status_interval: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lifecycle: workload::Settings::default(),
            manage_jobs_without_queue_name: false,
            managed_namespaces: LabelSelector::default(),
            label_keys_to_copy: Vec::new(),
            transform: Transform::default(),
            requeue_by_creation: false,
            engine: EngineSettings::default(),
            queue_status_interval: SignedDuration::from_secs(1),
        }
    }
}
