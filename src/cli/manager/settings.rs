//! Converts configuration and arguments to the settings of each part of the manager.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::args::ManagerArgs;
use super::component::Component;
use super::config_mapping;
use super::listen::ListenAddresses;
use super::zap;
use crate::admission::{AdmissionSettings, SubmitterSettings};
use crate::api::config::{self, Configuration, LoadedConfiguration};
use crate::api::names;
use crate::frameworks::known_frameworks;
use crate::kube::certificates::{CertificateMode, CertificateSettings, ObserverCertificate};
use crate::kube::client::{Rate, Timeouts};
use crate::kube::events::EventSettings;
use crate::kube::executor::ExecutorSettings;
use crate::kube::lease::LeaseSettings;
use crate::kube::watch::WatchSettings;
use crate::kube::webhook_ownership::ServiceName;
use crate::lifecycle::{certificates, lease};
use crate::metrics::model::MetricFamilies;
use crate::reconciler;
use crate::visibility::access::TenantDetail;

/// File with the namespace of the pod.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
pub(crate) const DEFAULT_NAMESPACE: &str = "kueue-system";

/// All settings that are known before the first connection.
pub(super) struct ManagerSettings {
    pub(super) args: ManagerArgs,
    pub(super) configuration: Configuration,
    pub(super) listen: ListenAddresses,
    /// Configured feature gates with unknown names.
    pub(super) unknown_gates: Vec<String>,
    pub(super) namespace: String,
    pub(super) identity: String,
}

/// Reads the configuration; an error lists every reason why it is refused.
pub(super) fn load(args: ManagerArgs) -> anyhow::Result<ManagerSettings> {
    let loaded = configuration(args.config.as_deref(), args.feature_gates.as_deref())?;
    for warning in &loaded.warnings {
        tracing::warn!(warning, "configuration");
    }
    args.record.check(args.component, args.history_ring)?;
    let settings = from_configuration(args, loaded.configuration)?;
    ensure!(
        settings.args.serving_secret.is_none() || settings.observer_service().is_some(),
        "--serving-secret is for --component=dashboard with --dashboard-service, and for --component=history with --history-service"
    );
    Ok(ManagerSettings { unknown_gates: loaded.unknown_gates, ..settings })
}

/// Returns the settings of a configuration, with namespace and identity from arguments and environment.
fn from_configuration(args: ManagerArgs, configuration: Configuration) -> anyhow::Result<ManagerSettings> {
    let listen = ListenAddresses::of(&args, &configuration)?;
    let namespace = args
        .namespace
        .clone()
        .or_else(|| configuration.namespace.clone())
        .or_else(|| std::fs::read_to_string(POD_NAMESPACE).ok().map(|text| text.trim().to_owned()))
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let identity = args.identity.clone().unwrap_or_else(default_identity);
    Ok(ManagerSettings { args, configuration, listen, unknown_gates: Vec::new(), namespace, identity })
}

/// Loads the configuration from a file, or the defaults, with the feature gates of the command line.
pub(crate) fn configuration(path: Option<&Path>, gates: Option<&str>) -> anyhow::Result<LoadedConfiguration> {
    let what = path.map_or_else(String::new, |path| format!(" {}", path.display()));
    checked(&format!("configuration{what}"), document(path, gates)?)
}

/// Reads a configuration file without checks, or the defaults, with the feature gates of the command line.
pub(crate) fn document(path: Option<&Path>, gates: Option<&str>) -> anyhow::Result<Value> {
    let Some(path) = path else { return with_gates(config::defaults(), gates) };
    let text = std::fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
    document_of(&text, &format!("configuration {}", path.display()), gates)
}

/// Reads the text of a configuration file without checks, with the feature gates of the command line.
pub(crate) fn document_of(text: &str, what: &str, gates: Option<&str>) -> anyhow::Result<Value> {
    with_gates(config::read(text).with_context(|| what.to_owned())?, gates)
}

/// Checks a configuration.
pub(crate) fn checked(what: &str, document: Value) -> anyhow::Result<LoadedConfiguration> {
    config::load(document, &known_frameworks()).with_context(|| what.to_owned())
}

/// Returns a configuration with the feature gates of the command line.
pub(crate) fn with_gates(mut document: Value, gates: Option<&str>) -> anyhow::Result<Value> {
    let Some(gates) = gates else { return Ok(document) };
    let mut parsed = BTreeMap::new();
    for gate in gates.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
        let Some((name, value)) = gate.split_once('=') else {
            bail!("--feature-gates: {gate:?} must be NAME=true or NAME=false");
        };
        let value = zap::go_bool(value.trim());
        let value = value.map_err(|reason| anyhow!("--feature-gates: {gate:?}: {reason}"))?;
        let name = name.trim();
        ensure!(!name.is_empty(), "--feature-gates: {gate:?} has no name");
        parsed.insert(name.to_owned(), value);
    }
    if let Value::Object(fields) = &mut document {
        let named =
            fields.get("featureGates").and_then(Value::as_object).is_some_and(|gates| !gates.is_empty());
        if named && !parsed.is_empty() {
            bail!("feature gates are given by --feature-gates and by the configuration's featureGates");
        }
        fields.insert("featureGates".into(), json!(parsed));
    }
    Ok(document)
}

/// Returns an identity that is unique among replicas and across restarts.
fn default_identity() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "sluice" } else { host };
    let now = jiff::Timestamp::now().as_microsecond();
    format!("{host}_{}-{now:x}", std::process::id())
}

impl ManagerSettings {
    pub(super) fn core(&self) -> reconciler::CoreSettings {
        let mut core = config_mapping::core_settings(&self.configuration, &self.namespace);
        core.writes = reconciler::WriteLimits {
            status_writes_per_second: Some(self.args.status_writes_per_second),
            max_in_flight_status_writes: Some(self.args.write_concurrency.max(1)),
            ..reconciler::WriteLimits::default()
        };
        core.gates.provisioning_requests = self.args.provisioning_requests;
        // The dashboard asks the leader, because a history of its own would begin at its own start.
        let records = self.args.component != Component::Dashboard;
        core.gates.history_bytes = if records { self.args.history_ring } else { 0 };
        if self.args.record_submitter {
            core.copied.submitter.get_or_insert_with(|| names::SUBMITTER_ANNOTATION.to_owned());
        }
        core.failpoints = super::failpoints::from_env();
        core
    }

    pub(super) fn admission(&self) -> AdmissionSettings {
        let submitters = || SubmitterSettings {
            trusted: self.args.submitter_trusted.iter().cloned().collect(),
            namespace: self.namespace.clone(),
        };
        AdmissionSettings {
            submitter: self.args.record_submitter.then(submitters),
            ..config_mapping::admission_settings(&self.configuration, &self.namespace)
        }
    }

    /// Returns whether metrics clients must be authorized.
    pub(super) const fn guards_metrics(&self) -> bool {
        !self.args.metrics_insecure && self.listen.metrics.is_some()
    }

    /// Returns whether API servers pass on requests of users to this process. The recorder of history answers only the manager,
    /// on the same port.
    pub(super) fn serves_users(&self) -> bool {
        self.args.component.reconciles() && self.listen.visibility.is_some()
    }

    /// Returns the address at which other replicas ask this one while it leads: the pod's address with the port of the
    /// visibility API. `None` if either is not known.
    pub(super) fn leader_address(&self) -> Option<String> {
        let port = self.listen.visibility?.port();
        let ip = self.args.pod_ip.as_ref()?.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(ip, port).to_string())
    }

    /// Returns the details of shared queues that users of namespaces may see.
    pub(super) const fn tenant_detail(&self) -> TenantDetail {
        self.args.visibility_tenant_detail
    }

    /// Returns the name of this replica in answers: the name of its pod, or else its identity.
    pub(super) fn replica(&self) -> String {
        std::env::var("HOSTNAME")
            .ok()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| self.identity.clone())
    }

    /// Returns whether Jobs of deactivated Workloads are deleted after a retention period.
    pub(super) fn deletes_jobs(&self) -> bool {
        config_mapping::core_settings(&self.configuration, &self.namespace)
            .lifecycle
            .retain_deactivated
            .is_some()
    }

    pub(super) fn families(&self) -> MetricFamilies {
        config_mapping::metric_families(&self.configuration)
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts { call: self.args.request_timeout, lease: self.args.lease_call_timeout }
    }

    /// Returns the client rate limit; `None` means no limit. As with Kueue's client, 0 means 5 calls per second and a
    /// burst of 10.
    pub(super) fn rate(&self) -> Option<Rate> {
        let connection = &self.configuration.client_connection;
        let per_second = if connection.qps == 0.0 { 5.0 } else { f64::from(connection.qps) };
        let burst = if connection.burst == 0 { 10 } else { connection.burst };
        (per_second > 0.0).then(|| Rate { per_second, burst: f64::from(burst) })
    }

    pub(super) fn watch(&self) -> WatchSettings {
        WatchSettings {
            page_size: self.args.page_size.max(1),
            streaming_lists: true,
            timeout: self.args.watch_timeout.max(Duration::from_secs(1)),
            relist_interval: self.args.relist_period.max(Duration::from_secs(1)),
            pods_are_jobs: self.core().manages_pods(),
            ..WatchSettings::default()
        }
    }

    /// Returns the timeout of the initial lists, if there is one.
    pub(super) fn sync_timeout(&self) -> Option<Duration> {
        let limit = self.configuration.controller.sync_timeout();
        limit.and_then(|limit| Duration::try_from(limit.signed()).ok())
    }

    pub(super) fn executor(&self) -> ExecutorSettings {
        ExecutorSettings {
            concurrency: self.args.write_concurrency,
            queue_status_rate: f64::from(self.args.status_writes_per_second),
            ..ExecutorSettings::default()
        }
    }

    pub(super) fn events(&self) -> EventSettings {
        EventSettings {
            rate: self.args.events_per_second,
            burst: self.args.events_per_second * 2.0,
            queue_capacity: 8192,
            max_age: Duration::from_mins(5),
            aggregation_window: Duration::from_mins(10),
            controller: "kueue.x-k8s.io/sluice".to_owned(),
            instance: self.identity.clone(),
        }
    }

    /// Returns the time without progress of a part after which the process ends: the lease duration, at least 2
    /// seconds.
    pub(super) fn stall_limit(&self) -> Duration {
        let duration = Duration::try_from(self.configuration.leader_election.lease_duration.signed());
        duration.unwrap_or_default().max(Duration::from_secs(2))
    }

    /// Returns the lease settings, or `None` without leader election, or if this process neither leads nor needs the holder.
    pub(super) fn lease(&self) -> anyhow::Result<Option<LeaseSettings>> {
        let election = &self.configuration.leader_election;
        let follows = !matches!(self.args.component, Component::Webhooks | Component::History);
        if !election.leader_elect || !follows {
            return Ok(None);
        }
        let settings = lease::ElectionSettings {
            identity: self.identity.clone(),
            lease_duration: non_negative_duration("leaderElection.leaseDuration", election.lease_duration)?,
            renew_deadline: non_negative_duration("leaderElection.renewDeadline", election.renew_deadline)?,
            retry_period: non_negative_duration("leaderElection.retryPeriod", election.retry_period)?,
        };
        if settings.lease_duration <= settings.renew_deadline {
            bail!("leaderElection: leaseDuration must be greater than renewDeadline");
        }
        if settings.renew_deadline <= settings.retry_period {
            bail!("leaderElection: renewDeadline must be greater than retryPeriod");
        }
        let namespace = &election.resource_namespace;
        let namespace = if namespace.is_empty() { &self.namespace } else { namespace };
        Ok(Some(LeaseSettings {
            namespace: namespace.clone(),
            name: election.resource_name.clone(),
            election: settings,
            address: self.leader_address(),
        }))
    }

    /// Returns the Service of a process that no API server calls, whose certificate may have names of its own.
    const fn observer_service(&self) -> Option<&String> {
        match self.args.component {
            Component::Dashboard => self.args.dashboard.dashboard_service.as_ref(),
            Component::History => self.args.record.history_service.as_ref(),
            Component::All | Component::Webhooks | Component::Controller => None,
        }
    }

    pub(super) fn certificates(&self) -> CertificateSettings {
        let args = &self.args;
        let internal = &self.configuration.internal_cert_management;
        let dns_names = |service: &String| {
            let name = format!("{service}.{}.svc", self.namespace);
            [name.clone(), format!("{name}.cluster.local")]
        };
        // The metrics of all processes are scraped by one name.
        let of_observer = |service: &String| -> Vec<String> {
            let own = format!("{service}.");
            let more = args.webhook_san.iter().filter(|name| name.starts_with(&own)).cloned();
            [service, &args.metrics_service].into_iter().flat_map(dns_names).chain(more).collect()
        };
        let observers = args.observer_certificate.iter().map(|(secret, service)| ObserverCertificate {
            secret: secret.clone(),
            names: of_observer(service),
        });
        let observed = args.serving_secret.as_ref().zip(self.observer_service());
        // The webhooks' Service comes first: its name is the certificate's common name.
        let services = [&internal.webhook_service_name, &args.metrics_service];
        let visibility = self.listen.visibility.map(|_| &args.visibility_service);
        let services = services.into_iter().chain(visibility).chain(&args.conversion_service);
        let services = services.chain(&args.dashboard.dashboard_service);
        let mut names: Vec<String> = services.flat_map(dns_names).collect();
        names.extend(args.webhook_san.iter().cloned());
        if let Some((_, service)) = observed {
            names = of_observer(service);
        }
        let secret = &internal.webhook_secret_name;
        let service = |name: &String| ServiceName { namespace: self.namespace.clone(), name: name.clone() };
        CertificateSettings {
            namespace: self.namespace.clone(),
            serving_secret: observed.map_or(secret, |(own, _)| own).clone(),
            ca_secret: args.ca_secret.clone().unwrap_or_else(|| format!("{secret}-ca")),
            ca_config_map: format!("{secret}-ca-bundle"),
            mutating: args.mutating_webhook_configuration.clone(),
            validating: args.validating_webhook_configuration.clone(),
            service: service(&internal.webhook_service_name),
            conversion: args.conversion_service.as_ref().map(service),
            visibility: visibility.map(service),
            names,
            observers: observers.collect(),
            is_observer: observed.is_some(),
            // The folder has the certificate of the webhooks.
            folder: self.configuration.certificate_folder().filter(|_| observed.is_none()).map(Into::into),
            mode: if internal.enable && args.component.reconciles() {
                CertificateMode::SelfManaged
            } else {
                CertificateMode::External
            },
            rotation: certificates::RotationSettings {
                ca_lifetime: args.ca_lifetime,
                leaf_lifetime: args.certificate_lifetime,
                overlap: args.certificate_overlap,
                retirement: args.certificate_retirement,
            },
        }
    }
}

fn non_negative_duration(what: &str, duration: config::Duration) -> anyhow::Result<Duration> {
    Duration::try_from(duration.signed()).with_context(|| format!("{what} must not be negative"))
}

#[cfg(test)]
mod setting_coverage;

#[cfg(test)]
mod setting_values;

#[cfg(test)]
mod tests {
    use super::*;

    /// The certificates of the manager and of cert-manager have the same names, all shipped Services among them, so that a scraper
    /// can verify the certificate of the metrics Service.
    #[test]
    fn certificate_names_cover_the_services() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| -> Vec<Value> {
            serde_saphyr::from_multiple(&std::fs::read_to_string(root.join(file)).unwrap()).unwrap()
        };
        let certificates = read("webhook-certs/cert-manager/certificate.yaml");
        let names_in = |secret: &str| {
            let of_secret = |object: &&Value| object["spec"]["secretName"] == *secret;
            certificates.iter().find(of_secret).unwrap_or_else(|| panic!("{secret}"))["spec"]["dnsNames"]
                .clone()
        };
        let flags = |component: &str, more: &[&str]| {
            let component = format!("--component={component}");
            let flags = ["--namespace=kueue-system", &component];
            load(ManagerArgs::parse_line(flags.iter().chain(more)).unwrap())
        };
        let service = |folder: &str| {
            let service = read(&format!("config/{folder}/service.yaml")).pop().unwrap();
            format!("{}.kueue-system.svc", service["metadata"]["name"].as_str().unwrap())
        };
        let issued = [
            "--observer-certificate=kueue-dashboard-server-cert=kueue-dashboard",
            "--observer-certificate=kueue-history-server-cert=kueue-history",
        ];
        let manager = flags("all", &issued).unwrap().certificates();
        assert_eq!(names_in("kueue-webhook-server-cert"), json!(manager.names));
        for folder in ["webhooks", "metrics", "visibility"] {
            assert!(manager.names.contains(&service(folder)), "{folder}");
        }
        let record = "--history-record=/history.redb";
        for (component, more, issued) in [
            ("dashboard", vec!["--dashboard-service=kueue-dashboard"], &manager.observers[0]),
            ("history", vec!["--history-service=kueue-history", record], &manager.observers[1]),
        ] {
            let secret = format!("--serving-secret={}", issued.secret);
            let own =
                flags(component, &[more.as_slice(), &[secret.as_str()]].concat()).unwrap().certificates();
            assert_eq!((&own.serving_secret, &own.names), (&issued.secret, &issued.names));
            assert!(own.is_observer && own.names.contains(&service(component)), "{:?}", own.names);
            assert!(!own.names.contains(&service("webhooks")), "{:?}", own.names);
            assert_eq!(names_in(&issued.secret), json!(issued.names));
        }
        for component in ["all", "webhooks", "dashboard"] {
            assert!(flags(component, &["--serving-secret=a"]).is_err(), "{component}");
        }
    }

    /// The recorder needs only the rights of its shipped role: it reads no Lease, and no API server calls it.
    #[test]
    fn the_recorder_follows_no_lease_and_serves_no_users() {
        let of = |component: &str| {
            let record = (component == "history").then_some("--history-record=/history.redb");
            let component = format!("--component={component}");
            load(ManagerArgs::parse_line([component.as_str()].into_iter().chain(record)).unwrap()).unwrap()
        };
        let (recorder, controller) = (of("history"), of("controller"));
        assert!(recorder.lease().unwrap().is_none() && !recorder.serves_users());
        assert!(controller.lease().unwrap().is_some() && controller.serves_users());
        assert!(of("dashboard").lease().unwrap().is_some(), "the dashboard says which replica leads");
    }

    /// Renamed flags are accepted under both names.
    #[test]
    fn renamed_flags_keep_earlier_names() {
        let cases = [
            ("--authority-secret", "--ca-secret", "other"),
            ("--authority-lifetime", "--ca-lifetime", "1h"),
            ("--call-timeout", "--request-timeout", "7s"),
            ("--queue-status-writes-per-second", "--status-writes-per-second", "3"),
        ];
        let parse = |flag: &str, value: &str| {
            let args = ManagerArgs::parse_line([flag, value]).unwrap();
            format!("{args:?}")
        };
        let defaults = format!("{:?}", ManagerArgs::parse_line([""; 0]).unwrap());
        for (earlier, current, value) in cases {
            assert_eq!(parse(earlier, value), parse(current, value), "{earlier}");
            assert_ne!(parse(current, value), defaults, "{current}");
        }
    }

    /// Client names without a client CA are a command line error.
    #[test]
    fn client_names_require_client_ca() {
        assert!(ManagerArgs::parse_line(["--webhook-client-name=a"]).is_err());
        assert!(ManagerArgs::parse_line(["--webhook-client-name=a", "--webhook-client-ca=f"]).is_ok());
    }
}
