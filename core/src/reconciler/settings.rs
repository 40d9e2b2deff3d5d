//! Settings of the core, built from the configuration at start.

use super::Kind;
use super::failpoints::Failpoints;
use crate::frameworks::{
    CreatedKinds, Framework, JobKind, ManagedKinds, REPLICA_SET, RelatedKind, Role, creates, frameworks,
};
use crate::lifecycle::{node_failure, workload};
use crate::resources::transform::Transform;
use crate::scheduler::{EngineSettings, RequeueOrder};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;

/// Default of the bytes of the history.
pub const HISTORY_BYTES: usize = 24 << 20;

/// Settings of the core.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// Timeouts and retention of Workloads.
    pub lifecycle: workload::LifecycleSettings,
    /// Whether jobs without a queue name are managed as well, in the managed namespaces.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs are managed.
    pub managed_namespaces: LabelSelector,
    /// What a Workload takes over from its job.
    pub copied: CopiedKeys,
    /// Transformations of requests before they count against quota.
    pub transform: Transform,
    /// Whether a Workload that was evicted because its pods were not ready is queued by creation time instead of
    /// eviction time.
    pub requeue_by_creation: bool,
    /// Settings of the scheduler.
    pub engine: EngineSettings,
    /// Configured job frameworks. Objects of other frameworks are not read.
    pub frameworks: BTreeSet<String>,
    /// Kinds that are managed, if their frameworks are configured, although the table has no row of them. Empty except in tests.
    pub added_job_kinds: BTreeSet<JobKind>,
    /// External frameworks, as (group, kind): another controller creates the Workloads of these objects.
    pub external_kinds: BTreeSet<(String, String)>,
    /// Selects the LocalQueues that metrics include; all if absent.
    pub local_queue_metrics_selector: Option<LabelSelector>,
    /// Feature gates.
    pub gates: CoreGates,
    /// Limits of writes.
    pub writes: WriteLimits,
    /// How often parts of the snapshot are rebuilt.
    pub snapshot: SnapshotIntervals,
    /// Failpoints of second passes, in test builds.
    pub failpoints: Failpoints,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            lifecycle: workload::LifecycleSettings::default(),
            manage_jobs_without_queue_name: false,
            managed_namespaces: LabelSelector::default(),
            copied: CopiedKeys::default(),
            transform: Transform::default(),
            requeue_by_creation: false,
            engine: EngineSettings::default(),
            // Pods are read only if the configuration asks for it: there are far more pods than other jobs.
            frameworks: frameworks()
                .filter(|row| row.role == Role::Suspended)
                .map(|row| row.name.to_owned())
                .collect(),
            added_job_kinds: BTreeSet::new(),
            external_kinds: BTreeSet::new(),
            local_queue_metrics_selector: None,
            gates: CoreGates::default(),
            writes: WriteLimits::default(),
            snapshot: SnapshotIntervals::default(),
            failpoints: Failpoints::default(),
        }
    }
}

impl CoreSettings {
    /// Returns what evicted workloads are ordered by in their queue.
    pub const fn requeue_order(&self) -> RequeueOrder {
        RequeueOrder {
            by_creation: self.requeue_by_creation,
            behind_borrowing_preemptor: !self.engine.gates.priority_sorting_within_cohort,
        }
    }

    /// Returns the kinds that the core watches with these settings.
    pub fn kinds(&self) -> Vec<Kind> {
        let watched = |kind: &Kind| match kind {
            Kind::Job(kind) => self.manages_kind(*kind),
            Kind::Related(kind) => self.reads_kind(*kind),
            // Watched even while no flavor has a topology: when one is added later, the usage on its nodes must be
            // known. The stored part of a pod is small.
            Kind::Node => self.engine.gates.topology,
            Kind::Pod => {
                let gates = self.engine.gates.topology || self.gates.elastic_jobs;
                gates || self.manages_pods() || self.needs_end_of_pods()
            }
            Kind::ProvisioningRequest | Kind::PodTemplate => self.gates.provisioning_requests,
            Kind::ReplicaSet => false,
            _ => true,
        };
        let added = self.added_job_kinds.iter().copied().map(Kind::of_job);
        let jobs = added.filter(|kind| *kind != Kind::Pod);
        let related = self.added_job_kinds.iter().flat_map(|kind| kind.related).copied().map(Kind::Related);
        Kind::all().into_iter().chain(jobs).chain(related).filter(watched).collect()
    }

    /// Returns the kinds that a process watches that only serves webhooks. A pod may be above another one.
    pub fn kinds_for_reviews(&self) -> Vec<Kind> {
        let pods = self.manages_kind(JobKind::POD);
        let read = |kind: &Kind| kind.is_used_by_webhooks() || (pods && *kind == Kind::Pod);
        self.kinds().into_iter().filter(read).collect()
    }

    /// Returns the kinds whose objects may stand between an object of a managed kind and the pods and jobs below it. They are not
    /// managed themselves, and are read by their metadata alone.
    pub fn passing_kinds(&self) -> Vec<Kind> {
        let passing = self.passing();
        let rows = self.job_kinds().filter(|row| !row.is_pod() && !self.manages_kind(*row)).map(Kind::of_job);
        let kinds = rows.chain([Kind::ReplicaSet]);
        kinds.filter(|kind| passing.contains(&(kind.resource().group, kind.resource().kind))).collect()
    }

    /// Returns these kinds, as (group, kind).
    pub fn passing(&self) -> BTreeSet<(&'static str, &'static str)> {
        let rows: Vec<JobKind> = self.job_kinds().collect();
        let row = |id: (&str, &str)| rows.iter().find(|row| (row.gvk.group, row.gvk.kind) == id).copied();
        let has_workloads =
            |row: &JobKind| self.manages_kind(*row) && row.role != Role::PassThrough && !row.is_pod();
        let all: Vec<(&'static str, &'static str)> =
            rows.iter().map(|row| (row.gvk.group, row.gvk.kind)).chain([REPLICA_SET]).collect();
        let made_by = |id: (&str, &str)| -> Vec<(&'static str, &'static str)> {
            all.iter().filter(|made| creates(id, **made)).copied().collect()
        };
        let is_managed = |id: &(&'static str, &'static str)| row(*id).is_some_and(|row| has_workloads(&row));
        let tops = all.iter().filter(|id| is_managed(id)).copied().collect();
        let below = reachable(tops, made_by);
        let needed = |id: &(&'static str, &'static str)| {
            let made = reachable(made_by(*id), made_by);
            made.iter().any(is_managed) || (self.manages_pods() && made.contains(&("", "Pod")))
        };
        let managed = |id: &(&'static str, &'static str)| row(*id).is_some_and(|row| self.manages_kind(row));
        below.into_iter().filter(|id| *id != ("", "Pod") && !managed(id)).filter(needed).collect()
    }

    /// Returns whether jobs of a kind are managed.
    pub(crate) fn manages_kind(&self, kind: JobKind) -> bool {
        self.frameworks.contains(kind.name)
    }

    /// Returns the managed kinds whose pods may be made by objects that are not watched, below an object of the kind.
    pub(crate) fn open_kinds(&self) -> BTreeSet<JobKind> {
        self.job_kinds().filter(|kind| self.manages_kind(*kind) && self.makes_unwatched(*kind)).collect()
    }

    fn makes_unwatched(&self, kind: JobKind) -> bool {
        let (mut seen, mut rest) = (BTreeSet::from([kind]), vec![kind]);
        while let Some(kind) = rest.pop() {
            let CreatedKinds::Only(created) = kind.creates else { return true };
            for made in created.iter().filter(|made| **made != ("", "Pod")) {
                let known = self.job_kinds().find(|kind| (kind.gvk.group, kind.gvk.kind) == *made);
                let Some(known) = known.filter(|kind| self.manages_kind(*kind)) else { return true };
                if seen.insert(known) {
                    rest.push(known);
                }
            }
        }
        false
    }

    /// Returns whether the end of some managed jobs is known from their pods alone.
    fn needs_end_of_pods(&self) -> bool {
        self.job_kinds().any(|kind| self.manages_kind(kind) && !kind.tells_end_of_pods())
    }

    /// Returns whether jobs of a managed kind read objects of a kind.
    fn reads_kind(&self, kind: RelatedKind) -> bool {
        self.job_kinds().any(|row| row.related.contains(&kind) && self.manages_kind(row))
    }

    /// Returns all kinds of jobs that have rules.
    fn job_kinds(&self) -> impl Iterator<Item = JobKind> {
        frameworks().map(JobKind::new).chain(self.added_job_kinds.iter().copied())
    }

    /// Returns the built-in kinds whose webhooks and permissions are needed: managed kinds, and pods where a managed kind holds
    /// them.
    pub fn needed_frameworks(&self) -> Vec<&'static Framework> {
        let holds_pods = |row: &Framework| row.is_pod() && self.manages_pods();
        frameworks().filter(|row| self.manages_kind(JobKind::new(row)) || holds_pods(row)).collect()
    }

    /// Returns whether pods are jobs, on their own, in groups, or as pods of kinds that pass through.
    pub fn manages_pods(&self) -> bool {
        let gated = |kind: &JobKind| kind.role != Role::Suspended;
        frameworks().map(JobKind::new).filter(gated).any(|kind| self.manages_kind(kind))
    }

    /// Returns the kinds that are queued.
    pub(crate) const fn managed(&self) -> ManagedKinds<'_> {
        ManagedKinds { frameworks: &self.frameworks, external: &self.external_kinds }
    }

    /// Returns whether a kind is an external framework.
    pub(crate) fn is_external(&self, group: &str, kind: &str) -> bool {
        self.external_kinds.iter().any(|(g, k)| g == group && k == kind)
    }
}

/// Returns what can be reached from some kinds, these included.
fn reachable(
    mut rest: Vec<(&'static str, &'static str)>,
    next: impl Fn((&str, &str)) -> Vec<(&'static str, &'static str)>,
) -> BTreeSet<(&'static str, &'static str)> {
    let mut seen = BTreeSet::new();
    while let Some(id) = rest.pop() {
        if seen.insert(id) {
            rest.extend(next(id));
        }
    }
    seen
}

/// Keys of what a Workload takes over from its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedKeys {
    /// Keys of labels that are copied.
    pub labels: Vec<String>,
    /// Key of the label or annotation that names the submitter of a job or Workload. The Workload of a job has the name in its
    /// annotation `sluice.dev/submitter`. `None` if no submitter is read.
    pub submitter: Option<String>,
}

/// Limits of writes. `None` means no limit unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLimits {
    /// Maximum number of low-priority status writes per second: queue statuses and pending reasons of Workloads.
    pub status_writes_per_second: Option<u32>,
    /// Maximum number of Workload status writes in flight; further ones wait.
    pub max_in_flight_status_writes: Option<usize>,
    /// Minimum interval between two status writes of one queue. If absent, no queue status is written.
    pub queue_status_interval: Option<SignedDuration>,
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self {
            status_writes_per_second: Some(30),
            max_in_flight_status_writes: None,
            queue_status_interval: Some(SignedDuration::from_secs(1)),
        }
    }
}

/// Minimum intervals between two rebuilds of parts of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotIntervals {
    /// The view of the queues.
    pub queues: SignedDuration,
    /// The comparison of the ledger with all objects, which counts ledger drift.
    pub drift_check: SignedDuration,
    /// The check for heads that fit and are not admitted.
    pub head_check: SignedDuration,
}

impl Default for SnapshotIntervals {
    fn default() -> Self {
        Self {
            queues: SignedDuration::from_millis(250),
            drift_check: SignedDuration::from_secs(60),
            head_check: SignedDuration::from_secs(60),
        }
    }
}

/// Feature gates, each equivalent to Kueue's gate of the given name, and ProvisioningRequests, which a flag switches off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGates {
    /// `AdmissionGatedBy`: an annotation gates the admission of jobs and Workloads.
    pub admission_gated_by: bool,
    /// `PriorityBoost`: an annotation adds to the priority of a Workload.
    pub priority_boost: bool,
    /// `AssignQueueLabelsForPods`: pods carry the names of their queues.
    pub queue_labels_on_pods: bool,
    /// `FinishOrphanedWorkloads`: a Workload whose owner was deleted is finished.
    pub finish_orphaned_workloads: bool,
    /// `CleanupProvisioningRequestsOnEviction`: ProvisioningRequests of an evicted Workload are deleted immediately.
    pub cleanup_provisioning_requests_on_eviction: bool,
    /// ProvisioningRequests are read and created.
    pub provisioning_requests: bool,
    /// `ReclaimablePods`: the quota of pods that will not run again is released.
    pub reclaimable_pods: bool,
    /// `WorkloadIdentifierAnnotations`: the prebuilt Workload may be named by an annotation, not only by a label.
    pub identifier_annotations: bool,
    /// `ElasticJobsViaWorkloadSlices`: a job with an annotation can be resized while it runs.
    pub elastic_jobs: bool,
    /// Bytes of the history of the last 24 hours; 0 records none. A flag sets it.
    pub history_bytes: usize,
    /// `TASFailedNodeReplacement`: failed nodes are replaced; the value says when a node counts as failed.
    pub node_failures: Option<node_failure::NodeFailureGates>,
}

impl Default for CoreGates {
    fn default() -> Self {
        Self {
            admission_gated_by: true,
            priority_boost: false,
            queue_labels_on_pods: true,
            finish_orphaned_workloads: true,
            cleanup_provisioning_requests_on_eviction: true,
            provisioning_requests: true,
            reclaimable_pods: true,
            identifier_annotations: true,
            elastic_jobs: true,
            history_bytes: HISTORY_BYTES,
            node_failures: Some(node_failure::NodeFailureGates::default()),
        }
    }
}
