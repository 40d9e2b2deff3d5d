//! Settings of the core, made from the configuration once at start.

use super::Kind;
use crate::frameworks::{FRAMEWORKS, ManagedKinds, served};
use crate::lifecycle::{node_failure, workload};
use crate::reconciler::second_pass::failpoints::Failpoints;
use crate::resources::transform::Transform;
use crate::scheduler::EngineSettings;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;

/// Settings of the core.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// Timeouts and retention of Workloads.
    pub lifecycle: workload::LifecycleSettings,
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
    /// Job kinds that are configured, by framework; objects of the others, and of kinds that are not built, are not read.
    pub frameworks: BTreeSet<String>,
    /// Kinds, as (group, kind), whose objects another controller queues for us.
    pub external_kinds: BTreeSet<(String, String)>,
    /// LocalQueues that metrics tell of, by their labels; all when absent.
    pub local_queue_metrics_selector: Option<LabelSelector>,
    /// Features that can be turned off.
    pub gates: CoreGates,
    /// Writes a second that tell and decide nothing: status of queues, and why Workloads wait. No limit when absent.
    pub status_writes_per_second: Option<u32>,
    /// Status writes of Workloads that are under way at a time; others wait for their turn. No limit when absent.
    pub max_in_flight_status_writes: Option<usize>,
    /// Least time between two status writes of one queue. None are written when absent.
    pub queue_status_interval: Option<SignedDuration>,
    /// Least time between two pictures of the queues for metrics and other readers.
    pub snapshot_interval: SignedDuration,
    /// Least time between two comparisons of the ledger with all objects.
    pub drift_check_interval: SignedDuration,
    /// Where second passes halt, in test builds.
    pub failpoints: Failpoints,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            lifecycle: workload::LifecycleSettings::default(),
            manage_jobs_without_queue_name: false,
            managed_namespaces: LabelSelector::default(),
            label_keys_to_copy: Vec::new(),
            transform: Transform::default(),
            requeue_by_creation: false,
            engine: EngineSettings::default(),
            frameworks: served().map(|(_, row)| row.name.to_owned()).collect(),
            external_kinds: BTreeSet::new(),
            local_queue_metrics_selector: None,
            gates: CoreGates::default(),
            status_writes_per_second: Some(30),
            max_in_flight_status_writes: None,
            queue_status_interval: Some(SignedDuration::from_secs(1)),
            snapshot_interval: SignedDuration::from_millis(250),
            drift_check_interval: SignedDuration::from_secs(60),
            failpoints: Failpoints::default(),
        }
    }
}

impl CoreSettings {
    /// The kinds that the core follows with these settings.
    pub fn kinds(&self) -> Vec<Kind> {
        let followed = |kind: &Kind| match kind {
            Kind::Job(index) => FRAMEWORKS.get(*index).is_some_and(|kind| self.serves_framework(kind.name)),
            // Followed whether a flavor has a topology or not: one that comes later must find all that stands on its nodes,
            // and what a pod is kept as is small.
            Kind::Node | Kind::Pod => self.engine.gates.topology,
            _ => true,
        };
        Kind::all().into_iter().filter(followed).collect()
    }

    /// Whether jobs of a framework are looked after.
    pub(in crate::reconciler) fn serves_framework(&self, framework: &str) -> bool {
        self.frameworks.contains(framework)
    }

    /// Which kinds are queued.
    pub(in crate::reconciler) const fn managed(&self) -> ManagedKinds<'_> {
        ManagedKinds { frameworks: &self.frameworks, external: &self.external_kinds }
    }

    /// Whether another controller queues objects of a kind for us.
    pub(in crate::reconciler) fn is_external(&self, group: &str, kind: &str) -> bool {
        self.external_kinds.iter().any(|(g, k)| g == group && k == kind)
    }
}

/// Features that can be turned off, by Kueue's gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGates {
    /// `AdmissionGatedBy`: an annotation holds jobs and Workloads back.
    pub admission_gated_by: bool,
    /// `AssignQueueLabelsForPods`: pods carry the names of their queues.
    pub queue_labels_on_pods: bool,
    /// `FinishOrphanedWorkloads`: a Workload that lost its owner is finished.
    pub finish_orphaned_workloads: bool,
    /// `CleanupProvisioningRequestsOnEviction`: ProvisioningRequests of an evicted Workload go at once.
    pub cleanup_provisioning_requests_on_eviction: bool,
    /// `ReclaimablePods`: pods that will not run again give their quota back.
    pub reclaimable_pods: bool,
    /// `WorkloadIdentifierAnnotations`: an annotation may name the prebuilt Workload, not a label alone.
    pub identifier_annotations: bool,
    /// `ElasticJobsViaWorkloadSlices`: an annotation asks for a job to be resized while it runs.
    pub elastic_jobs: bool,
    /// `TASFailedNodeReplacement`, and when a node counts as failed.
    pub node_failures: Option<node_failure::NodeFailureGates>,
}

impl Default for CoreGates {
    fn default() -> Self {
        Self {
            admission_gated_by: true,
            queue_labels_on_pods: true,
            finish_orphaned_workloads: true,
            cleanup_provisioning_requests_on_eviction: true,
            reclaimable_pods: true,
            identifier_annotations: true,
            elastic_jobs: true,
            node_failures: Some(node_failure::NodeFailureGates::default()),
        }
    }
}
