//! Kueue's labels, annotations, finalizers, scheduling gates and field managers.

/// Label: the LocalQueue of a job.
pub const QUEUE_NAME_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Label: the WorkloadPriorityClass of a job.
pub const PRIORITY_CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// Label or annotation: the existing Workload that a job uses, so that none is created for it.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Label on a Workload: the UID of its job.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";
/// Label on a job: maximum execution time in seconds.
pub const MAX_EXEC_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Label on managed pods, and the pod finalizer.
pub const MANAGED_LABEL: &str = "kueue.x-k8s.io/managed";
/// Label on pod templates of started jobs: the pod set's name.
pub const POD_SET_LABEL: &str = "kueue.x-k8s.io/podset";
/// Label on pod templates of started jobs: the ClusterQueue.
pub const CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";
/// Label on pod templates of started jobs: the LocalQueue.
pub const LOCAL_QUEUE_LABEL: &str = "kueue.x-k8s.io/local-queue-name";
/// Annotation: comma-separated gates that keep a job or Workload out of the queue.
pub const ADMISSION_GATED_BY_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";
/// Annotation and scheduling gate: the job may be resized while it runs.
pub const ELASTIC_JOB_ANNOTATION: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation on an elastic RayJob or RayService: generation of its RayCluster.
pub const RAY_CLUSTER_GENERATION_ANNOTATION: &str = "kueue.x-k8s.io/raycluster-generation";
/// Annotation of KubeRay on the RayCluster of a RayService: the hash of what it is a copy of.
pub const RAY_CLUSTER_HASH_ANNOTATION: &str = "ray.io/hash-without-replicas-and-workers-to-delete";
/// Annotation on a Workload: the slice that it replaces.
pub const SLICE_REPLACEMENT_FOR_ANNOTATION: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Annotation on a Workload of an elastic job, and on its pods: the first slice of those that take over from one another.
pub const SLICE_NAME_ANNOTATION: &str = "kueue.x-k8s.io/workload-slice-name";
/// Annotation on a variant: comma-separated flavors that it may use.
pub const ALLOWED_FLAVORS_ANNOTATION: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Annotation on pod templates of started jobs: the Workload.
pub const WORKLOAD_ANNOTATION: &str = "kueue.x-k8s.io/workload";
/// Annotation on a Workload: a signed integer added to its priority.
pub const PRIORITY_BOOST_ANNOTATION: &str = "kueue.x-k8s.io/priority-boost";
/// Annotation on a batch/v1 Job: minimum parallelism for partial admission.
pub const JOB_MIN_PARALLELISM_ANNOTATION: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation on a batch/v1 Job: completions are set to the parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: &str =
    "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Annotation on a batch/v1 Job that is being suspended.
pub const STOPPING_ANNOTATION: &str = "kueue.x-k8s.io/stopping";
/// Annotation or label on a pod: the group that it belongs to, which is also the name of the Workload.
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation on a pod: number of pods of its group.
pub const POD_GROUP_TOTAL_COUNT_ANNOTATION: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation on a pod: the Workload of its group is made from the first pod.
pub const POD_GROUP_FAST_ADMISSION_ANNOTATION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// Annotation on a pod: its group never finishes.
pub const POD_GROUP_SERVING_ANNOTATION: &str = "kueue.x-k8s.io/pod-group-serving";
/// Annotation on a pod: the label that has its index in the group.
pub const POD_GROUP_INDEX_LABEL_ANNOTATION: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Label on a pod: its index in the group.
pub const POD_GROUP_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// Annotation on a pod: `false` if failed pods of its group are not replaced.
pub const RETRIABLE_IN_GROUP_ANNOTATION: &str = "kueue.x-k8s.io/retriable-in-group";
/// Annotation on a pod: the pod set that it belongs to.
pub const ROLE_HASH_ANNOTATION: &str = "kueue.x-k8s.io/role-hash";
/// Annotation on a pod: the framework that holds it back.
pub const SUSPENDING_PARENT_ANNOTATION: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Annotation on a Workload: it belongs to a pod group.
pub const GROUP_WORKLOAD_ANNOTATION: &str = "kueue.x-k8s.io/is-group-workload";
/// Prefix of annotations that are copied from a job to its ProvisioningRequest.
pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";

/// Finalizer on ClusterQueues, ResourceFlavors, AdmissionChecks, Topologies and Workloads.
pub const RESOURCE_IN_USE_FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
/// Annotation on pod templates: the pods may be placed on any domain with capacity.
pub const UNCONSTRAINED_TOPOLOGY_ANNOTATION: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Annotation on pods: the offset of their index.
pub const POD_INDEX_OFFSET_ANNOTATION: &str = "kueue.x-k8s.io/pod-index-offset";
/// Scheduling gate of pods whose topology is not assigned yet.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// Scheduling gate of pods that wait for admission.
pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";

/// Name of the default LocalQueue and WorkloadPriorityClass, used for jobs that name none.
pub const DEFAULT_NAME: &str = "default";
/// Controller name of the MultiKueue admission check; also the value of `spec.managedBy`.
pub const MULTIKUEUE_CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// Controller name of the ProvisioningRequest admission check.
pub const PROVISIONING_REQUEST_CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// Field manager of all status writes to Workloads.
pub const FIELD_MANAGER: &str = "kueue-admission";

/// Resource that counts pods if a ClusterQueue covers it.
pub const PODS_RESOURCE: &str = "pods";
/// Annotation of a Workload: group, version and kind of the object whose pods it is for.
pub const JOB_OWNER_GVK_ANNOTATION: &str = "kueue.x-k8s.io/job-owner-gvk";
/// Annotation of a Workload: index of the replica whose pods it is for.
pub const COMPONENT_INDEX_ANNOTATION: &str = "kueue.x-k8s.io/component-workload-index";
/// Annotation of a Workload: name of the object whose pods it is for.
pub const JOB_OWNER_NAME_ANNOTATION: &str = "kueue.x-k8s.io/job-owner-name";

/// Annotation of a job or a Workload: how long its run is expected to take, such as `2h30m`. Only estimates of admission read it; no
/// decision depends on it.
pub const EXPECTED_RUN_TIME_ANNOTATION: &str = "sluice.dev/expected-run-time";
/// Annotation of an object below a job, whose pods have no room beside those of its siblings on the quota of the job.
pub const WAITS_FOR_ROOM_ANNOTATION: &str = "sluice.dev/waits-for-room";
/// Annotation of an object that was suspended because the job above it may not run, where the operator of that job does not resume it.
pub const STOPPED_BELOW_ANNOTATION: &str = "sluice.dev/stopped-below";
/// Annotation of a queued object with the name of the user that submitted it, and of its Workload.
pub const SUBMITTER_ANNOTATION: &str = "sluice.dev/submitter";
/// Longest name of a submitter, in bytes. A longer one is neither recorded nor read, so that no object grows by it.
pub const MAX_SUBMITTER_BYTES: usize = 1_024;
/// What a Workload takes over from the one that its job had before: the UID of that one, and fields of its status.
pub const CARRIED_ANNOTATION: &str = "sluice.dev/carried-status";
/// Annotations of this project that objects of a cluster may have: no run of a simulation follows from them.
pub const OWN_ANNOTATIONS: [&str; 5] = [
    EXPECTED_RUN_TIME_ANNOTATION,
    WAITS_FOR_ROOM_ANNOTATION,
    STOPPED_BELOW_ANNOTATION,
    SUBMITTER_ANNOTATION,
    CARRIED_ANNOTATION,
];
