//! Arguments of `sluice manager`: path of the configuration, and settings that Kueue's configuration does not have.
//! Renamed flags keep their earlier name as a hidden alias, so that existing manifests remain valid.

use std::path::PathBuf;
use std::time::Duration;

use super::component::Component;
use super::dashboard::DashboardArgs;
use super::listen::{self, BindAddress};
use super::logs::{LogFormat, LogSettings};
use super::record_args::RecordArgs;
use super::zap::{TimeFormat, ZapArgs};
use crate::api::config;
use crate::cli::framework_files::FrameworkFileArgs;
use crate::visibility::access::TenantDetail;

/// Arguments of `sluice manager`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManagerArgs {
    /// Configuration file (config.kueue.x-k8s.io/v1beta2); default: built-in defaults.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Folder in which the ConfigMap of the configuration is mounted as a whole; default: the folder of --config. The log level
    /// and the times of waiting for pods are read again from it, as a file that is mounted by subPath never changes.
    #[arg(long, value_name = "DIR")]
    pub(super) config_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) framework_files: FrameworkFileArgs,
    /// Kubeconfig file; default: the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Part of the manager that this process runs.
    #[arg(long, value_enum, default_value = "all")]
    pub(super) component: Component,
    /// Namespace of Secrets, Lease and webhook Service; default: the configuration's, the pod's, or kueue-system.
    #[arg(long)]
    pub(super) namespace: Option<String>,
    /// Feature gates as NAME=true,…; cannot be combined with featureGates in the configuration.
    #[arg(long, value_name = "LIST")]
    pub(super) feature_gates: Option<String>,
    /// Log format.
    #[arg(long, value_enum, default_value = "json")]
    pub(super) log_format: LogFormat,
    /// Log level, or a list of levels such as info,sluice::kube=debug.
    #[arg(long, default_value = "info")]
    pub(super) log_level: String,
    #[command(flatten)]
    pub(super) zap: ZapArgs,
    /// Identity of this replica in the Lease; must be unique. Default: generated.
    #[arg(long)]
    pub(super) identity: Option<String>,

    /// Webhook address; overrides the configuration.
    #[arg(long, value_name = "ADDRESS", value_parser = listen::bind_address)]
    pub(super) webhook_bind_address: Option<BindAddress>,
    /// Health probe address; overrides the configuration. 0 disables the probes.
    #[arg(long, value_name = "ADDRESS", value_parser = listen::bind_address)]
    pub(super) health_bind_address: Option<BindAddress>,
    /// Metrics address; overrides the configuration. 0 disables the metrics.
    #[arg(long, value_name = "ADDRESS", value_parser = listen::bind_address)]
    pub(super) metrics_bind_address: Option<BindAddress>,
    /// Serve metrics over plain HTTP without authentication.
    #[arg(long)]
    pub(super) metrics_insecure: bool,

    /// Address of the visibility API; overrides the configuration. 0 disables it.
    #[arg(long, value_name = "ADDRESS", value_parser = listen::bind_address)]
    pub(super) visibility_bind_address: Option<BindAddress>,
    /// Name of the Service of the visibility API, which is a SAN of the serving certificate. The CA bundle of the APIServices that
    /// name it is kept.
    #[arg(long, value_name = "NAME", default_value = "kueue-visibility-server")]
    pub(super) visibility_service: String,

    /// What the visibility API shows to users of a namespace of queues that they share with others: `sums`, or `none`: own and
    /// available amounts alone.
    #[arg(long, value_name = "DETAIL", default_value = "sums", value_parser = TenantDetail::parse)]
    pub(super) visibility_tenant_detail: TenantDetail,
    /// Address of the pod, at which other replicas ask this one while it leads; without it they answer from their own state.
    #[arg(long, value_name = "IP", env = "POD_IP")]
    pub(super) pod_ip: Option<String>,
    /// File with the token by which this replica asks the leader, of the audience leader.visibility.sluice.dev.
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/sluice.dev/leader/token")]
    pub(super) leader_token: PathBuf,
    /// Account whose tokens the leader accepts beside those of this process's own account: NAME in this namespace, or
    /// system:serviceaccount:NAMESPACE:NAME; repeatable.
    #[arg(long, value_name = "ACCOUNT")]
    pub(super) leader_caller: Vec<String>,

    #[command(flatten)]
    pub(super) dashboard: DashboardArgs,

    /// Additional DNS name or IP address (SAN) of the serving certificate; repeatable.
    #[arg(long, value_name = "NAME")]
    pub(super) webhook_san: Vec<String>,
    /// Name of the metrics Service, which is a SAN of the serving certificate.
    #[arg(long, value_name = "NAME", default_value = "kueue-controller-manager-metrics-service")]
    pub(super) metrics_service: String,
    /// Name of the Service at which API servers have objects of v1beta1 converted, which is a SAN of the serving certificate.
    /// If set, the CA bundle of the definitions that name it is kept. API servers call it without a client certificate.
    #[arg(long, value_name = "NAME", conflicts_with = "webhook_client_ca")]
    pub(super) conversion_service: Option<String>,
    /// PEM file of CA certificates, reloaded when it changes. If set, webhook clients must present a certificate signed
    /// by one of them.
    #[arg(long, value_name = "FILE")]
    pub(super) webhook_client_ca: Option<PathBuf>,
    /// Accepted common name or DNS name of webhook client certificates; repeatable. Default: any name.
    #[arg(long, value_name = "NAME", requires = "webhook_client_ca")]
    pub(super) webhook_client_name: Vec<String>,
    /// Record the account that creates an object with a queue name in its annotation sluice.dev/submitter, unless a managed object
    /// owns it. Users that may read the object can read the name.
    #[arg(long)]
    pub(super) record_submitter: bool,
    /// Account whose requests may say another submitter than itself, such as a controller that creates jobs for users; repeatable,
    /// or a list with commas.
    #[arg(long, value_name = "ACCOUNT", value_delimiter = ',', requires = "record_submitter", value_parser = account)]
    pub(super) submitter_trusted: Vec<String>,
    /// Name of the MutatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "kueue-mutating-webhook-configuration")]
    pub(super) mutating_webhook_configuration: String,
    /// Name of the ValidatingWebhookConfiguration.
    #[arg(long, value_name = "NAME", default_value = "kueue-validating-webhook-configuration")]
    pub(super) validating_webhook_configuration: String,
    /// Name of the CA Secret; default: name of the serving Secret with suffix -ca.
    #[arg(long, alias = "authority-secret", value_name = "NAME")]
    pub(super) ca_secret: Option<String>,
    /// Certificate that is issued for a process that serves no webhooks, as SECRET=SERVICE: the Secret into which it is written, and the
    /// Service of the process; repeatable.
    #[arg(long, value_name = "SECRET=SERVICE", value_parser = observer_certificate)]
    pub(super) observer_certificate: Vec<(String, String)>,
    /// Secret with the serving certificate of --component=dashboard or history; default: that of the webhooks.
    #[arg(long, value_name = "NAME")]
    pub(super) serving_secret: Option<String>,
    /// Lifetime of a CA certificate.
    #[arg(long, alias = "authority-lifetime", value_parser = duration, default_value = "8760h")]
    pub(super) ca_lifetime: Duration,
    /// Lifetime of a serving certificate.
    #[arg(long, value_parser = duration, default_value = "2160h")]
    pub(super) certificate_lifetime: Duration,
    /// Time for which all webhooks must trust a new CA before it signs serving certificates.
    #[arg(long, value_parser = duration, default_value = "10m")]
    pub(super) certificate_overlap: Duration,
    /// Time for which a new serving certificate must be in use before the old CA is removed.
    #[arg(long, value_parser = duration, default_value = "24h")]
    pub(super) certificate_retirement: Duration,

    /// Whether ProvisioningRequests are read and made. If not, admission checks that need them are inactive.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(super) provisioning_requests: bool,
    /// Memory for the history of the last 24 hours, such as 24MiB: waits, evictions, preemptors and usage. 0 records nothing.
    #[arg(long, value_name = "SIZE", value_parser = memory_size, default_value = "24MiB")]
    pub(super) history_ring: usize,
    #[command(flatten)]
    pub(super) record: RecordArgs,
    /// Maximum number of concurrent writes.
    #[arg(long, default_value_t = 16)]
    pub(super) write_concurrency: usize,
    /// Rate limit for queue status and pending-reason updates (per second).
    #[arg(long, alias = "queue-status-writes-per-second", default_value_t = 30)]
    pub(super) status_writes_per_second: u32,
    /// Rate limit for events (per second); a tenth of it while many writes are in flight.
    #[arg(long, default_value_t = 50.0)]
    pub(super) events_per_second: f64,
    /// Timeout of one API request.
    #[arg(long, alias = "call-timeout", value_parser = duration, default_value = "10s")]
    pub(super) request_timeout: Duration,
    /// Timeout of one lease request.
    #[arg(long, value_parser = duration, default_value = "5s")]
    pub(super) lease_call_timeout: Duration,
    /// Watch timeout; upper bound for an undetected stalled watch.
    #[arg(long, value_parser = duration, default_value = "60s")]
    pub(super) watch_timeout: Duration,
    /// Full relist interval, jittered to 50–100 %; upper bound for recovering from a lost watch event.
    #[arg(long, value_parser = duration, default_value = "1h")]
    pub(super) relist_period: Duration,
    /// Maximum number of objects per page of a list request.
    #[arg(long, default_value_t = 500)]
    pub(super) page_size: u32,
    /// Keep serving webhooks this long after SIGTERM, until endpoints are updated.
    #[arg(long, value_parser = duration, default_value = "5s")]
    pub(super) shutdown_delay: Duration,
    /// Maximum time from SIGTERM to exit.
    #[arg(long, value_parser = duration, default_value = "25s")]
    pub(super) shutdown_timeout: Duration,
}

impl ManagerArgs {
    /// Returns the settings of logs.
    pub(super) fn log_settings(&self) -> LogSettings {
        self.zap.apply(LogSettings {
            format: self.log_format,
            level: self.log_level.clone(),
            time: TimeFormat::default(),
        })
    }
}

/// Parses a duration in the notation of the configuration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = config::Duration::parse(text).and_then(|parsed| Duration::try_from(parsed.signed()).ok());
    parsed.ok_or_else(|| "must be a duration such as 90s, 10m or 1h30m".to_owned())
}

/// Parses the Secret and the Service of a process that serves no webhooks.
fn observer_certificate(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(secret, service)| !secret.is_empty() && !service.is_empty());
    let (secret, service) = parts.ok_or_else(|| "must be SECRET=SERVICE".to_owned())?;
    Ok((secret.to_owned(), service.to_owned()))
}

/// Parses the name of an account.
fn account(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() { Err("must be the name of an account".to_owned()) } else { Ok(name.to_owned()) }
}

/// Parses a size of memory in bytes: a whole number with Ki, Mi or Gi, also written KiB, MiB and GiB.
fn memory_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.strip_prefix(digits).unwrap_or_default();
    let shift = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => Some(0),
        "Ki" => Some(10),
        "Mi" => Some(20),
        "Gi" => Some(30),
        _ => None,
    };
    let number = digits.parse::<usize>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let size = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    size.ok_or_else(|| "must be a size such as 24MiB, or 0".to_owned())
}

#[cfg(test)]
impl ManagerArgs {
    /// Parses the arguments after `sluice manager`.
    pub(super) fn parse_line<T: Into<std::ffi::OsString> + Clone>(
        arguments: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        use clap::{Args as _, FromArgMatches as _};
        let command = Self::augment_args(clap::Command::new("manager").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(arguments)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_memory_are_whole_numbers_of_bytes() {
        for (text, size) in
            [("0", 0), ("24MiB", 24 << 20), ("24Mi", 24 << 20), ("512KiB", 512 << 10), ("1Gi", 1 << 30)]
        {
            assert_eq!(memory_size(text), Ok(size), "{text}");
        }
        for text in
            ["", "MiB", "-1", "+1", "1.5Mi", "24MB", "24 MiB", "99999999999999999999", "99999999999999Gi"]
        {
            assert!(memory_size(text).is_err(), "{text}");
        }
    }
    use std::fmt::Write as _;

    #[test]
    fn trusted_accounts_are_a_list_of_names() {
        let trusted =
            |arguments: &[&str]| ManagerArgs::parse_line(arguments).map(|args| args.submitter_trusted);
        let accounts = [
            "--record-submitter",
            "--submitter-trusted=a,system:serviceaccount:ns:b",
            "--submitter-trusted=c",
        ];
        assert_eq!(trusted(&accounts).unwrap(), ["a", "system:serviceaccount:ns:b", "c"]);
        assert!(trusted(&["--submitter-trusted=a"]).is_err(), "nothing is recorded");
        assert!(trusted(&["--record-submitter", "--submitter-trusted=a,,b"]).is_err());
    }

    /// Returns docs/flags.md.
    fn page() -> String {
        let mut text = "# Flags of the manager\n\nThe arguments of `sluice manager`, which `make flags` writes from the program. \
            Kueue's command line is accepted as well.\n\n| Flag | Default | Meaning |\n|---|---|---|\n"
            .to_owned();
        let command = <ManagerArgs as clap::Args>::augment_args(clap::Command::new("manager"));
        for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let value = flag.get_num_args().is_none_or(|number| number.takes_values());
            let named = flag.get_value_names().filter(|_| value).and_then(|names| names.first());
            let name = named.map_or_else(String::new, |name| format!("={name}"));
            let defaults: Vec<_> =
                flag.get_default_values().iter().map(|default| default.to_string_lossy()).collect();
            let default =
                if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
            let long = flag.get_long().unwrap();
            writeln!(text, "| `--{long}{name}` | {default} | {help} |").unwrap();
        }
        text
    }

    /// docs/flags.md lists the flags with their defaults.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "set by the developer who runs the test")]
    fn generated_page_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/flags.md");
        if std::env::var("SLUICE_WRITE").is_ok() {
            std::fs::write(&path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page(), "make generate writes it");
    }
}
