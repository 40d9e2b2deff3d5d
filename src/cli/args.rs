//! Arguments of `sluice manager`: where the configuration is, and settings that Kueue's configuration does not have.

use std::path::PathBuf;
use std::time::Duration;

use super::logs::LogFormat;
use crate::api::config;

/// Arguments of `sluice manager`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ManagerArgs {
    /// Configuration file (config.kueue.x-k8s.io/v1beta2); defaults apply without it.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Kubeconfig; without it the pod's service account is used.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Namespace of Secrets, lease and webhook service; else the configuration's, the pod's, or kueue-system.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Feature gates as NAME=true,…; not together with featureGates in the configuration.
    #[arg(long, value_name = "LIST")]
    pub(super) feature_gates: Option<String>,
    /// Form of log lines.
    #[arg(long, value_enum, default_value = "json")]
    pub(super) log_format: LogFormat,
    /// Level of log lines: a level, or a list such as info,sluice::kube=debug.
    #[arg(long, default_value = "info")]
    pub(super) log_level: String,
    /// Name of this replica in the lease; must differ between replicas. Made up when absent.
    #[arg(long)]
    pub(super) identity: Option<String>,

    /// Address of the webhooks instead of the configuration's.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) webhook_bind_address: Option<String>,
    /// Address of the probes instead of the configuration's; 0 turns them off.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) health_bind_address: Option<String>,
    /// Address of the metrics instead of the configuration's; 0 turns them off.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics_bind_address: Option<String>,
    /// Serve metrics over plain HTTP to everybody.
    #[arg(long)]
    pub(super) metrics_insecure: bool,

    /// Further name or address that the serving certificate bears; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(super) webhook_san: Vec<String>,
    /// Name of the Service of the metrics, which the serving certificate bears as well.
    #[arg(long, value_name = "NAME", default_value = "kueue-controller-manager-metrics-service")]
    pub(super) metrics_service: String,
    /// PEM file with certificate authorities, read again when it changes. Callers of webhooks must show a client certificate
    /// that one of them signed.
    #[arg(long, value_name = "FILE")]
    pub(super) webhook_client_ca: Option<PathBuf>,
    /// Common or DNS name that the client certificate must bear; may be repeated. Without it every certificate that the
    /// authorities signed is accepted.
    #[arg(long, value_name = "NAME", requires = "webhook_client_ca")]
    pub(super) webhook_client_name: Vec<String>,
    /// Name of the MutatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "kueue-mutating-webhook-configuration")]
    pub(super) mutating_webhook_configuration: String,
    /// Name of the ValidatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "kueue-validating-webhook-configuration")]
    pub(super) validating_webhook_configuration: String,
    /// Secret of the certificate authority; else the serving Secret's name with -ca.
    #[arg(long, value_name = "NAME")]
    pub(super) authority_secret: Option<String>,
    /// How long a certificate authority is valid.
    #[arg(long, value_parser = duration, default_value = "8760h")]
    pub(super) authority_lifetime: Duration,
    /// How long a serving certificate is valid.
    #[arg(long, value_parser = duration, default_value = "2160h")]
    pub(super) certificate_lifetime: Duration,
    /// How long every webhook trusts a new authority before it is used.
    #[arg(long, value_parser = duration, default_value = "10m")]
    pub(super) certificate_overlap: Duration,
    /// How long a new certificate serves before the old authority is no longer trusted.
    #[arg(long, value_parser = duration, default_value = "24h")]
    pub(super) certificate_retirement: Duration,

    /// Writes at a time.
    #[arg(long, default_value_t = 16)]
    pub(super) write_concurrency: usize,
    /// Writes per second that tell and decide nothing: status of queues, and why Workloads wait.
    #[arg(long, default_value_t = 30)]
    pub(super) queue_status_writes_per_second: u32,
    /// Events per second; a tenth of it while many writes are under way.
    #[arg(long, default_value_t = 50.0)]
    pub(super) events_per_second: f64,
    /// Longest time for a read or write.
    #[arg(long, value_parser = duration, default_value = "10s")]
    pub(super) call_timeout: Duration,
    /// Longest time for a renewal of the lease.
    #[arg(long, value_parser = duration, default_value = "5s")]
    pub(super) lease_call_timeout: Duration,
    /// Watches are renewed after this time: the longest that one can be silently dead.
    #[arg(long, value_parser = duration, default_value = "60s")]
    pub(super) watch_timeout: Duration,
    /// Everything is listed anew after half of this time to all of it: the longest that a lost event stays unknown.
    #[arg(long, value_parser = duration, default_value = "1h")]
    pub(super) relist_period: Duration,
    /// Objects per page of a list.
    #[arg(long, default_value_t = 500)]
    pub(super) page_size: u32,
    /// Webhooks are served on for this long after a signal: clients learn late that this replica goes.
    #[arg(long, value_parser = duration, default_value = "5s")]
    pub(super) shutdown_delay: Duration,
    /// Longest time from a signal to the end.
    #[arg(long, value_parser = duration, default_value = "25s")]
    pub(super) shutdown_timeout: Duration,
}

/// A duration as the configuration writes them.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = config::Duration::parse(text).and_then(|parsed| Duration::try_from(parsed.signed()).ok());
    parsed.ok_or_else(|| "must be a duration such as 90s, 10m or 1h30m".to_owned())
}
