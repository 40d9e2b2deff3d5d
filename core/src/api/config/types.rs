//! The fields of `Configuration` and their defaults.

use super::gates::FeatureGates;
use super::{Duration, Quantity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration of the manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Group and version of the file.
    pub api_version: String,
    /// `Configuration`.
    pub kind: String,
    /// Namespace of the manager: of its Secrets, its Lease and the Service of the webhooks.
    pub namespace: Option<String>,
    /// Webhook server.
    pub webhook: Webhook,
    /// Health probes.
    pub health: Health,
    /// Metrics server.
    pub metrics: Metrics,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Controllers.
    pub controller: Controller,
    /// TLS of all servers.
    pub tls: Option<Tls>,
    /// Address of the profiler.
    pub pprof_bind_address: String,
    /// Whether jobs without a queue name are suspended too.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// Serving certificates that the manager generates.
    pub internal_cert_management: InternalCertManagement,
    /// Eviction of workloads whose pods do not become ready.
    pub wait_for_pods_ready: WaitForPodsReady,
    /// Limits on requests to the API server.
    pub client_connection: ClientConnection,
    /// Job frameworks.
    pub integrations: Integrations,
    /// Multi-cluster dispatch.
    pub multi_kueue: Option<MultiKueue>,
    /// Fair sharing; disabled when absent.
    pub fair_sharing: Option<FairSharing>,
    /// Fair sharing by past usage; disabled when absent.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// How requests are counted.
    pub resources: Resources,
    /// Feature gates by name, as the file has them.
    pub feature_gates: BTreeMap<String, bool>,
    /// When finished and deactivated Workloads are deleted.
    pub object_retention_policies: Option<ObjectRetentionPolicies>,
    /// Server of the visibility API.
    pub visibility_server: VisibilityServer,
    /// What lists for users read. Kueue has no such section.
    pub visibility: Visibility,
    /// Feature gates with defaults applied.
    #[serde(skip)]
    pub gates: FeatureGates,
    /// Whether a file of v1beta1 leaves the eviction of workloads off whose pods do not become ready.
    #[serde(skip)]
    pub without_pods_ready: bool,
}

impl Configuration {
    /// Returns whether workloads are evicted whose pods do not become ready.
    pub fn waits_for_pods_ready(&self) -> bool {
        !self.without_pods_ready && !self.gates.enabled("DisableWaitForPodsReady")
    }

    /// Returns the directory of the serving certificate, or `None` if it is read from a Secret.
    pub fn certificate_folder(&self) -> Option<&str> {
        let folder = Some(self.webhook.cert_dir.as_str()).filter(|folder| !folder.is_empty());
        folder.filter(|_| !self.internal_cert_management.enable)
    }

    /// Returns the selector of namespaces in which jobs without a queue name are suspended.
    pub fn managed_namespaces(&self, own_namespace: &str) -> LabelSelector {
        self.managed_jobs_namespace_selector.clone().unwrap_or_else(|| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: super::NAMESPACE_NAME_LABEL.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(vec!["kube-system".to_owned(), own_namespace.to_owned()]),
            }]),
            match_labels: None,
        })
    }
}

/// Declares a section: a struct with camelCase fields, whose absent fields get the given defaults.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

section! {
    /// Webhook server.
    Webhook {
        /// Port.
        port: u16 = 9443,
        /// Address; all addresses when empty.
        host: String = String::new(),
        /// Directory with `tls.crt` and `tls.key`, if the manager does not generate them; when absent, their Secret is
        /// read.
        cert_dir: String = String::new(),
    }
}

section! {
    /// Health probes.
    Health {
        /// Address; disabled when `0`.
        health_probe_bind_address: String = ":8081".to_owned(),
        /// Path of the readiness probe.
        readiness_endpoint_name: String = "readyz".to_owned(),
        /// Path of the liveness probe.
        liveness_endpoint_name: String = "healthz".to_owned(),
    }
}

section! {
    /// Metrics server.
    Metrics {
        /// Address; disabled when `0`.
        bind_address: String = ":8443".to_owned(),
        /// Whether quota and usage of ClusterQueues are exported.
        enable_cluster_queue_resources: bool = false,
        /// Metrics by LocalQueue.
        local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics::default(),
        /// Labels and annotations that become metric labels.
        custom_labels: Vec<CustomLabel> = Vec::new(),
    }
}

section! {
    /// Metrics by LocalQueue.
    LocalQueueMetrics {
        /// Whether metrics by LocalQueue are exported.
        enable: bool = true,
        /// LocalQueues whose metrics are exported; all when absent.
        local_queue_selector: Option<LabelSelector> = None,
    }
}

section! {
    /// A label or annotation that becomes a metric label.
    CustomLabel {
        /// Name of the metric label, without its prefix.
        name: String = String::new(),
        /// Key of the source label.
        source_label_key: String = String::new(),
        /// Key of the source annotation.
        source_annotation_key: String = String::new(),
        /// Kind of the object with the label or annotation.
        source_kind: String = "ClusterQueue".to_owned(),
        /// Values that are exported individually.
        tracked_values: Vec<String> = Vec::new(),
    }
}

section! {
    /// Leader election.
    LeaderElection {
        /// Whether leader election is enabled; if false, the manager must be the only replica.
        leader_elect: bool = true,
        /// How long a lease is valid without renewal.
        lease_duration: Duration = Duration::from_secs(15),
        /// How long the leader tries to renew the lease before it steps down.
        renew_deadline: Duration = Duration::from_secs(10),
        /// Interval between attempts.
        retry_period: Duration = Duration::from_secs(2),
        /// Kind of the lock.
        resource_lock: String = "leases".to_owned(),
        /// Name of the Lease.
        resource_name: String = "c1f6bfd2.kueue.x-k8s.io".to_owned(),
        /// Namespace of the Lease.
        resource_namespace: String = String::new(),
    }
}

section! {
    /// Controllers.
    Controller {
        /// Workers by Kind.group.
        group_kind_concurrency: BTreeMap<String, i32> = BTreeMap::new(),
        /// Timeout of the initial lists in nanoseconds, as Go decodes this field.
        cache_sync_timeout: Option<i64> = None,
    }
}

impl Controller {
    /// Returns the timeout of the initial lists; `None` (no limit) when absent or 0.
    pub fn sync_timeout(&self) -> Option<Duration> {
        self.cache_sync_timeout.filter(|nanos| *nanos != 0).map(Duration::from_nanos)
    }
}

section! {
    /// TLS of all servers.
    Tls {
        /// `VersionTLS12` or `VersionTLS13`.
        min_version: String = String::new(),
        /// Names of cipher suites.
        cipher_suites: Vec<String> = Vec::new(),
        /// Curves by name or number.
        curve_preferences: Vec<Value> = Vec::new(),
    }
}

section! {
    /// Serving certificates that the manager generates.
    InternalCertManagement {
    /// Whether the manager generates them.
        enable: bool = true,
        /// Service of the webhooks.
        webhook_service_name: String = "kueue-webhook-service".to_owned(),
        /// Secret with the certificates.
        webhook_secret_name: String = "kueue-webhook-server-cert".to_owned(),
    }
}

section! {
    /// Eviction of workloads whose pods do not become ready.
    WaitForPodsReady {
        /// How long the pods may take to become ready.
        timeout: Duration = Duration::from_secs(1800),
        /// Whether admission of other workloads is blocked until the pods are ready.
        block_admission: bool = false,
        /// How long a pod that fails after all were ready may take to recover; `timeout` when absent, no limit when 0.
        recovery_timeout: Option<Duration> = None,
        /// How evicted workloads are requeued.
        requeuing_strategy: RequeuingStrategy = RequeuingStrategy::default(),
    }
}

impl WaitForPodsReady {
    /// Returns the recovery timeout; `None` means no limit.
    pub fn recovery(&self) -> Option<Duration> {
        let timeout = self.recovery_timeout.unwrap_or(self.timeout);
        (timeout > Duration::default()).then_some(timeout)
    }
}

section! {
    /// How workloads are requeued after a PodsReady timeout.
    RequeuingStrategy {
        /// Time by which requeued workloads are ordered.
        timestamp: RequeuingTimestamp = RequeuingTimestamp::Eviction,
        /// Maximum number of requeues; no limit when absent.
        backoff_limit_count: Option<i32> = None,
        /// Backoff before the first requeue, in seconds.
        backoff_base_seconds: i32 = 60,
        /// Maximum backoff, in seconds.
        backoff_max_seconds: i32 = 3600,
    }
}

/// Time by which workloads are ordered after a PodsReady timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RequeuingTimestamp {
    /// Time of the eviction.
    Eviction,
    /// Creation time of the workload.
    Creation,
}

section! {
    /// Limits on requests to the API server.
    ClientConnection {
        /// Requests per second; no limit when negative.
        qps: f32 = 300.0,
        /// Maximum burst of requests.
        burst: i32 = 500,
    }
}

section! {
    /// Job frameworks.
    Integrations {
        /// Enabled frameworks. Where a configuration does not list them, those that are so by default.
        frameworks: Vec<String> = Vec::new(),
        /// Kinds that external controllers manage, as Kind.version.group.
        external_frameworks: Vec<String> = Vec::new(),
        /// Job labels that are copied to Workloads.
        label_keys_to_copy: Vec<String> = Vec::new(),
    }
}

section! {
    /// Multi-cluster dispatch.
    MultiKueue {
        /// Interval of garbage collection; disabled when 0.
        gc_interval: Duration = Duration::from_secs(60),
        /// Label value of objects that this manager creates in worker clusters.
        origin: String = "multikueue".to_owned(),
        /// How long workloads stay assigned to a disconnected worker cluster.
        worker_lost_timeout: Duration = Duration::from_secs(900),
        /// Name of the dispatcher that selects worker clusters.
        dispatcher_name: String = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once".to_owned(),
        /// Settings of the incremental dispatcher.
        incremental_dispatcher_config: Option<IncrementalDispatcher> = None,
        /// Further kinds that are dispatched.
        external_frameworks: Vec<ExternalFramework> = Vec::new(),
        /// Access to worker clusters by ClusterProfile.
        cluster_profile: Option<ClusterProfile> = None,
    }
}

section! {
    /// Access to worker clusters by ClusterProfile.
    ClusterProfile {
        /// Programs that provide credentials.
        access_providers: Vec<AccessProvider> = Vec::new(),
        /// Earlier name of `accessProviders`.
        credentials_providers: Vec<AccessProvider> = Vec::new(),
    }
}

section! {
    /// A program that provides credentials.
    AccessProvider {
        /// Name.
        name: String = String::new(),
        /// How the program is run, as in a kubeconfig.
        exec_config: Value = Value::Null,
    }
}

section! {
    /// Settings of the incremental dispatcher.
    IncrementalDispatcher {
        /// Number of worker clusters nominated in each step.
        step_size: i32 = 3,
    }
}

section! {
    /// A further kind that MultiKueue dispatches.
    ExternalFramework {
        /// Kind.version.group.
        name: String = String::new(),
    }
}

section! {
    /// Fair sharing.
    FairSharing {
        /// Preemption strategies, in the order in which they are tried.
        preemption_strategies: Vec<String> = Vec::new(),
    }
}

section! {
    /// Fair sharing by past usage.
    AdmissionFairSharing {
        /// Half-life of past usage.
        usage_half_life_time: Duration = Duration::default(),
        /// Interval between usage samples.
        usage_sampling_interval: Duration = Duration::from_secs(300),
        /// Weight by resource.
        resource_weights: BTreeMap<String, f64> = BTreeMap::new(),
    }
}

section! {
    /// How requests are counted.
    Resources {
        /// Name prefixes of resources that are not counted.
        exclude_resource_prefixes: Vec<String> = Vec::new(),
        /// How resources that the ClusterQueue does not cover are handled.
        quota_check_strategy: QuotaCheckStrategy = QuotaCheckStrategy::BlockUndeclared,
        /// Resources that are counted as other resources.
        transformations: Vec<ResourceTransformation> = Vec::new(),
        /// Device classes that are counted as resources.
        device_class_mappings: Vec<Value> = Vec::new(),
    }
}

/// How resources that the ClusterQueue does not cover are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QuotaCheckStrategy {
    /// A workload that requests them stays pending.
    BlockUndeclared,
    /// They are ignored.
    IgnoreUndeclared,
}

section! {
    /// A resource that is counted as other resources.
    ResourceTransformation {
        /// Name of the resource.
        input: String = String::new(),
        /// Whether the input resource is still counted.
        strategy: TransformationStrategy = TransformationStrategy::Retain,
        /// Resource whose amount multiplies the outputs.
        multiply_by: String = String::new(),
        /// Quantity of each output resource per unit of the input.
        outputs: BTreeMap<String, Quantity> = BTreeMap::new(),
    }
}

/// Whether the input resource of a transformation is still counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TransformationStrategy {
    /// The input is counted too.
    Retain,
    /// Only the outputs are counted.
    Replace,
}

section! {
    /// Retention of objects.
    ObjectRetentionPolicies {
    /// Retention of Workloads.
        workloads: Option<WorkloadRetention> = None,
    }
}

section! {
    /// Retention of Workloads.
    WorkloadRetention {
    /// How long finished Workloads are kept.
        after_finished: Option<Duration> = None,
        /// How long Workloads that the manager deactivated are kept; their jobs are deleted too.
        after_deactivated_by_kueue: Option<Duration> = None,
    }
}

section! {
    /// Server of the visibility API.
    VisibilityServer {
        /// Address.
        bind_address: String = "0.0.0.0".to_owned(),
        /// Port.
        bind_port: i32 = 8082,
    }
}

section! {
    /// What lists for users read.
    Visibility {
        /// Key of the label or annotation of a job or Workload that names its submitter; `--mine` and the page `/mine` compare it with the user name of the viewer. Not a setting of Kueue, which refuses a file with it.
        user_label: String = String::new(),
    }
}

impl VisibilityServer {
    /// Returns the host to listen at. The default means all addresses of both families, as Kueue's does.
    pub fn host(&self) -> &str {
        Some(self.bind_address.as_str()).filter(|host| *host != "0.0.0.0").unwrap_or_default()
    }
}
