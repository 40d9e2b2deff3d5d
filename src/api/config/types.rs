//! The fields of `Configuration`, with their defaults.

use super::Duration;
use super::gates::FeatureGates;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration of the manager.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Group and version of the file.
    pub api_version: String,
    /// `Configuration`.
    pub kind: String,
    /// The manager's namespace; the caller finds it when absent.
    pub namespace: Option<String>,
    /// Webhook server.
    pub webhook: Webhook,
    /// Probes.
    pub health: Health,
    /// Metrics server.
    pub metrics: Metrics,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Controllers.
    pub controller: Controller,
    /// TLS of all servers.
    pub tls: Option<Tls>,
    /// Address of the profiler; off when empty.
    pub pprof_bind_address: String,
    /// Whether jobs without a queue are held back too.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces in which jobs without a queue are held back; `None` stands for all but the system's own.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// Serving certificates made by the manager itself.
    pub internal_cert_management: InternalCertManagement,
    /// Eviction of workloads whose pods do not become ready.
    pub wait_for_pods_ready: WaitForPodsReady,
    /// Limits on requests to the API server.
    pub client_connection: ClientConnection,
    /// Kinds of jobs.
    pub integrations: Integrations,
    /// Multi-cluster dispatch.
    pub multi_kueue: Option<MultiKueue>,
    /// Fair sharing; off when absent.
    pub fair_sharing: Option<FairSharing>,
    /// Fair sharing by past usage; off when absent.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// How requests are counted.
    pub resources: Resources,
    /// Feature gates as written.
    pub feature_gates: BTreeMap<String, bool>,
    /// When finished objects are deleted.
    pub object_retention_policies: Option<ObjectRetentionPolicies>,
    /// Server of the visibility API.
    pub visibility_server: VisibilityServer,
    /// The gates with their defaults.
    #[serde(skip)]
    pub gates: FeatureGates,
}

impl Configuration {
    /// Where the serving certificate is read from, if not from a Secret.
    pub fn certificate_folder(&self) -> Option<&str> {
        let folder = Some(self.webhook.cert_dir.as_str()).filter(|folder| !folder.is_empty());
        folder.filter(|_| !self.internal_cert_management.enable)
    }

    /// Configured frameworks whose objects this version does not manage.
    pub fn unmanaged_frameworks(&self) -> impl Iterator<Item = &str> {
        let names = self.integrations.frameworks.iter().map(String::as_str);
        names.filter(|name| *name != super::BATCH_JOB)
    }

    /// The selector of namespaces in which jobs without a queue are held back.
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

/// Declares a section: a struct read from camelCase whose absent fields take the written defaults.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
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
        /// Address; all when empty.
        host: String = String::new(),
        /// Directory with `tls.crt` and `tls.key`, when the manager does not make them itself; their Secret is read when it is
        /// absent.
        cert_dir: String = String::new(),
    }
}

section! {
    /// Probes.
    Health {
        /// Address; off when empty or `0`.
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
        /// Address; off when `0`.
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
        /// Whether they are exported.
        enable: bool = true,
        /// Which queues; all when absent.
        local_queue_selector: Option<LabelSelector> = None,
    }
}

section! {
    /// A label or annotation that becomes a metric label.
    CustomLabel {
        /// Name of the metric label, without its prefix.
        name: String = String::new(),
        /// The label.
        source_label_key: String = String::new(),
        /// The annotation.
        source_annotation_key: String = String::new(),
        /// Kind of the object that carries it.
        source_kind: String = "ClusterQueue".to_owned(),
        /// Values that are told apart.
        tracked_values: Vec<String> = Vec::new(),
    }
}

section! {
    /// Leader election.
    LeaderElection {
        /// Whether it takes place; the shell's single-replica mode when false.
        leader_elect: bool = true,
        /// How long a lease holds.
        lease_duration: Duration = Duration::from_secs(15),
        /// How long the leader tries to renew before it gives up.
        renew_deadline: Duration = Duration::from_secs(10),
        /// Pause between tries.
        retry_period: Duration = Duration::from_secs(2),
        /// Kind of the lock; only `leases`.
        resource_lock: String = "leases".to_owned(),
        /// Name of the Lease.
        resource_name: String = "c1f6bfd2.kueue.x-k8s.io".to_owned(),
        /// Namespace of the Lease; the manager's own when empty.
        resource_namespace: String = String::new(),
    }
}

section! {
    /// Controllers.
    Controller {
        /// Workers by Kind.group; one task does all of them here.
        group_kind_concurrency: BTreeMap<String, i32> = BTreeMap::new(),
        /// How long the first lists may take: nanoseconds, as Go reads this one field.
        cache_sync_timeout: Option<i64> = None,
    }
}

impl Controller {
    /// How long the first lists may take; no limit when absent or 0.
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
        /// Curves, by name or number.
        curve_preferences: Vec<Value> = Vec::new(),
    }
}

section! {
    /// Serving certificates made by the manager itself.
    InternalCertManagement {
        /// Whether it makes them.
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
        /// How long they may take.
        timeout: Duration = Duration::from_secs(1800),
        /// Whether nothing else is admitted meanwhile.
        block_admission: bool = false,
        /// How long a pod that fails later may be missing; the timeout when absent, no limit when 0.
        recovery_timeout: Option<Duration> = None,
        /// How evicted workloads queue again.
        requeuing_strategy: RequeuingStrategy = RequeuingStrategy::default(),
    }
}

impl WaitForPodsReady {
    /// The recovery timeout; none when it is off.
    pub fn recovery(&self) -> Option<Duration> {
        let timeout = self.recovery_timeout.unwrap_or(self.timeout);
        (timeout > Duration::default()).then_some(timeout)
    }
}

section! {
    /// How workloads queue again after a pods-ready timeout.
    RequeuingStrategy {
        /// The time that orders them.
        timestamp: RequeuingTimestamp = RequeuingTimestamp::Eviction,
        /// Most times; no limit when absent.
        backoff_limit_count: Option<i32> = None,
        /// First wait in seconds.
        backoff_base_seconds: i32 = 60,
        /// Longest wait in seconds.
        backoff_max_seconds: i32 = 3600,
    }
}

/// The time that orders workloads after a pods-ready timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum RequeuingTimestamp {
    /// When the workload was evicted.
    Eviction,
    /// When the workload was made.
    Creation,
}

section! {
    /// Limits on requests to the API server.
    ClientConnection {
        /// Requests per second; no limit when negative.
        qps: f32 = 300.0,
        /// Requests at once.
        burst: i32 = 500,
    }
}

section! {
    /// Kinds of jobs.
    Integrations {
        /// Frameworks that are on.
        frameworks: Vec<String> = vec![super::BATCH_JOB.to_owned()],
        /// Kinds that other controllers manage, as Kind.version.group.
        external_frameworks: Vec<String> = Vec::new(),
        /// Job labels that Workloads get.
        label_keys_to_copy: Vec<String> = Vec::new(),
    }
}

section! {
    /// Multi-cluster dispatch.
    MultiKueue {
        /// Pause between clean-ups; off when 0.
        gc_interval: Duration = Duration::from_secs(60),
        /// Label value of what this manager makes on workers.
        origin: String = "multikueue".to_owned(),
        /// How long a lost worker keeps its workloads.
        worker_lost_timeout: Duration = Duration::from_secs(900),
        /// Who chooses workers.
        dispatcher_name: String = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once".to_owned(),
        /// Settings of the incremental dispatcher.
        incremental_dispatcher_config: Option<IncrementalDispatcher> = None,
        /// Further kinds.
        external_frameworks: Vec<ExternalFramework> = Vec::new(),
        /// Access by ClusterProfile.
        cluster_profile: Option<Value> = None,
    }
}

section! {
    /// Settings of the incremental dispatcher.
    IncrementalDispatcher {
        /// Workers that are added at a time.
        step_size: i32 = 3,
    }
}

section! {
    /// A kind that MultiKueue sends.
    ExternalFramework {
        /// Kind.version.group.
        name: String = String::new(),
    }
}

section! {
    /// Fair sharing.
    FairSharing {
        /// Rules by which workloads are preempted.
        preemption_strategies: Vec<String> = Vec::new(),
    }
}

section! {
    /// Fair sharing by past usage.
    AdmissionFairSharing {
        /// Time in which usage loses half its weight.
        usage_half_life_time: Duration = Duration::default(),
        /// Pause between samples.
        usage_sampling_interval: Duration = Duration::from_secs(300),
        /// Weight by resource.
        resource_weights: BTreeMap<String, f64> = BTreeMap::new(),
    }
}

section! {
    /// How requests are counted.
    Resources {
        /// Resources that are not counted, by prefix of their name.
        exclude_resource_prefixes: Vec<String> = Vec::new(),
        /// What becomes of resources that no queue declares.
        quota_check_strategy: QuotaCheckStrategy = QuotaCheckStrategy::BlockUndeclared,
        /// Resources that count as others.
        transformations: Vec<ResourceTransformation> = Vec::new(),
        /// Devices that count as resources.
        device_class_mappings: Vec<Value> = Vec::new(),
    }
}

/// What becomes of a workload that asks for resources which its queue does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum QuotaCheckStrategy {
    /// It waits.
    BlockUndeclared,
    /// They are not counted.
    IgnoreUndeclared,
}

section! {
    /// A resource that counts as others.
    ResourceTransformation {
        /// The resource.
        input: String = String::new(),
        /// Whether it still counts itself.
        strategy: TransformationStrategy = TransformationStrategy::Retain,
        /// Resource whose amount multiplies the outputs.
        multiply_by: String = String::new(),
        /// Amount of other resources for one unit of the input, as quantities.
        outputs: BTreeMap<String, Value> = BTreeMap::new(),
    }
}

/// Whether a transformed resource still counts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum TransformationStrategy {
    /// It does.
    Retain,
    /// It does not.
    Replace,
}

section! {
    /// When objects are deleted.
    ObjectRetentionPolicies {
        /// Of Workloads.
        workloads: Option<WorkloadRetention> = None,
    }
}

section! {
    /// When Workloads are deleted.
    WorkloadRetention {
        /// After they finished.
        after_finished: Option<Duration> = None,
        /// After they were deactivated by the manager, with their job.
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
