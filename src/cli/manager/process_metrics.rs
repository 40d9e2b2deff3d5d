//! Metrics of this process: leadership, refused writes, watches, the channel to the core, heartbeats, missing
//! permissions, and operating system metrics under Prometheus' standard names.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{Sender, WeakSender};

use super::run::ManagerContext;
use crate::kube::heartbeat::Heartbeats;
use crate::kube::lease::Fence;
use crate::kube::rbac_check::Permission;
use crate::kube::refused_writes::RefusedWrites;
use crate::kube::watch_status::WatchStatuses;
use crate::metrics;
use crate::reconciler::Delta;

type MetricLabels = Vec<(&'static str, String)>;
type GaugeFamily = Family<MetricLabels, Gauge>;
type SecondsFamily = Family<MetricLabels, Gauge<f64, AtomicU64>>;
type CounterFamily = Family<MetricLabels, Counter>;

/// Renders the metrics in Prometheus' text format.
pub(super) fn render(shared: &ProcessState) -> String {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("sluice");
    register_leadership(own, &shared.fence);
    register_refused_writes(own, &shared.refused_writes, shared.fence.now());
    register_watches(own, &shared.watch_statuses);
    register_channel(own, &shared.deltas);
    register_progress(own, &shared.heartbeats);
    register_permissions(own, &shared.missing_permissions.list());
    #[cfg(target_os = "linux")]
    process::register(&mut registry);
    metrics::text(&registry).unwrap_or_default()
}

/// State of this process that needs no answer of the core: the source of its metrics and of the debug endpoints.
pub(super) struct ProcessState {
    pub(super) fence: Fence,
    pub(super) refused_writes: std::sync::Arc<RefusedWrites>,
    pub(super) watch_statuses: WatchStatuses,
    pub(super) deltas: WeakSender<Delta>,
    pub(super) heartbeats: Heartbeats,
    pub(super) missing_permissions: std::sync::Arc<crate::kube::rbac_check::MissingPermissions>,
}

impl ProcessState {
    pub(super) fn new(shared: &ManagerContext) -> Self {
        Self {
            fence: shared.fence.clone(),
            refused_writes: std::sync::Arc::clone(&shared.refused_writes),
            watch_statuses: shared.watch_statuses.clone(),
            deltas: shared.core.deltas.clone(),
            heartbeats: shared.heartbeats.all.clone(),
            missing_permissions: std::sync::Arc::clone(&shared.permissions.missing),
        }
    }
}

fn register_leadership(registry: &mut Registry, fence: &Fence) {
    let leader = Gauge::<i64>::default();
    leader.set(i64::from(fence.is_open()));
    registry.register("leader", "1 if this replica schedules and writes, 0 if it is on standby", leader);
}

fn register_refused_writes(registry: &mut Registry, refused: &RefusedWrites, now: Duration) {
    let age = SecondsFamily::default();
    for (((resource, verb), code), time) in refused.ages(now) {
        let labels = vec![("resource", resource), ("verb", verb.to_owned()), ("code", code.to_string())];
        age.get_or_create(&labels).set(time.as_secs_f64());
    }
    let help =
        "Longest time for which the API server has refused a write of one object each time, by HTTP status";
    registry.register("refused_write_age_seconds", help, age);
}

fn register_watches(registry: &mut Registry, watch_statuses: &WatchStatuses) {
    let age = SecondsFamily::default();
    let (synced, served) = (GaugeFamily::default(), GaugeFamily::default());
    let (errors, restarts) = (CounterFamily::default(), CounterFamily::default());
    for (kind, health) in watch_statuses.iter() {
        let resource = kind.resource();
        let labels = vec![("group", resource.group.to_owned()), ("resource", resource.plural.to_owned())];
        age.get_or_create(&labels).set(health.time_since_activity().as_secs_f64());
        synced.get_or_create(&labels).set(i64::from(health.synced()));
        served.get_or_create(&labels).set(i64::from(!health.not_served()));
        errors.get_or_create(&labels).inc_by(health.errors());
        restarts.get_or_create(&labels).inc_by(health.restarts());
    }
    let help = "Time since the last data of this watch from the API server; about a minute is normal";
    registry.register("watch_age_seconds", help, age);
    registry.register("watch_synced", "Whether the initial list is complete", synced);
    registry.register("watch_served", "0 if the API server does not know the kind, otherwise 1", served);
    registry.register("watch_errors", "Errors of this watch", errors);
    registry.register("watch_restarts", "Relists after the initial list", restarts);
}

fn register_channel(registry: &mut Registry, deltas: &WeakSender<Delta>) {
    let (depth, capacity) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    if let Some(sender) = deltas.upgrade() {
        depth.set(to_i64(channel_depth(&sender)));
        capacity.set(to_i64(sender.max_capacity()));
    }
    registry.register("core_channel_depth", "Queued changes for the core", depth);
    registry.register("core_channel_capacity", "Capacity of the queue of changes for the core", capacity);
}

/// Returns the number of changes that wait for the core.
pub(super) fn channel_depth(deltas: &Sender<Delta>) -> usize {
    deltas.max_capacity().saturating_sub(deltas.capacity())
}

fn register_progress(registry: &mut Registry, heartbeats: &Heartbeats) {
    let age = SecondsFamily::default();
    for (part, silent) in heartbeats.ages() {
        age.get_or_create(&vec![("part", part.to_owned())]).set(silent.as_secs_f64());
    }
    let help = "Time since a part last made progress; the process exits when it reaches the lease duration";
    registry.register("progress_age_seconds", help, age);
}

fn register_permissions(registry: &mut Registry, missing: &[Permission]) {
    let family = GaugeFamily::default();
    for right in missing {
        let labels = vec![
            ("group", right.group.clone()),
            ("resource", right.resource.clone()),
            ("name", right.name.clone().unwrap_or_default()),
            ("namespace", right.namespace.clone().unwrap_or_default()),
            ("verb", right.verb.to_owned()),
            ("needed_by", if right.needed_for_reviews { "webhooks" } else { "controller" }.to_owned()),
        ];
        family.get_or_create(&labels).set(1);
    }
    registry.register("missing_permissions", "RBAC permissions that the manager needs and lacks", family);
}

fn to_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(target_os = "linux")]
mod process {
    use super::{AtomicU64, Counter, Gauge, Registry, to_i64};
    use procfs::process::{LimitValue, Process};

    /// Registers operating system metrics; omits metrics that cannot be read.
    pub(super) fn register(registry: &mut Registry) {
        let Ok(own) = Process::myself() else { return };
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = Gauge::<i64>::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        if let Ok(number) = own.fd_count() {
            gauge("process_open_fds", "Open file descriptors", to_i64(number));
        }
        if let Ok(limits) = own.limits()
            && let LimitValue::Value(max_open_files) = limits.max_open_files.soft_limit
        {
            gauge("process_max_fds", "Maximum number of open file descriptors", signed(max_open_files));
        }
        let Ok(stat) = own.stat() else { return };
        let resident = stat.rss.saturating_mul(procfs::page_size());
        gauge("process_resident_memory_bytes", "Resident memory", signed(resident));
        gauge("process_virtual_memory_bytes", "Virtual memory", signed(stat.vsize));
        gauge("process_threads", "Threads", stat.num_threads);
        let ticks = procfs::ticks_per_second();
        if let Ok(boot) = procfs::boot_time_secs() {
            let began = boot.saturating_add(stat.starttime / ticks.max(1));
            gauge(
                "process_start_time_seconds",
                "Start time of the process since the Unix epoch",
                signed(began),
            );
        }
        let used = std::time::Duration::from_millis(
            stat.utime.saturating_add(stat.stime).saturating_mul(1000) / ticks.max(1),
        );
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(used.as_secs_f64());
        registry.register("process_cpu_seconds", "CPU time of user and system", cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Kind;
    use std::collections::{BTreeMap, BTreeSet};

    fn text(fill: impl FnOnce(&mut Registry)) -> String {
        let mut registry = Registry::default();
        fill(registry.sub_registry_with_prefix("sluice"));
        metrics::text(&registry).unwrap()
    }

    #[test]
    fn watch_metrics_cover_every_kind() {
        let kinds = Kind::all();
        let page = text(|registry| register_watches(registry, &WatchStatuses::new(&kinds)));
        for kind in &kinds {
            let (group, resource) = (kind.resource().group, kind.resource().plural);
            let labels = format!("{{group=\"{group}\",resource=\"{resource}\"}}");
            for name in [
                "watch_age_seconds",
                "watch_synced",
                "watch_served",
                "watch_errors_total",
                "watch_restarts_total",
            ] {
                assert!(page.contains(&format!("\nsluice_{name}{labels} ")), "{name}{labels} in\n{page}");
            }
        }
    }

    #[test]
    fn leadership_follows_fence() {
        let fence = Fence::default();
        let leads = || text(|registry| register_leadership(registry, &fence)).contains("\nsluice_leader 1\n");
        assert!(!leads());
        fence.open_forever();
        assert!(leads());
        fence.close();
        assert!(!leads());
    }

    #[tokio::test]
    async fn channel_metrics_do_not_keep_channel_open() {
        let (sender, receiver) = tokio::sync::mpsc::channel(8);
        sender.send(Delta::Tick).await.unwrap();
        let weak = sender.downgrade();
        let page = text(|registry| register_channel(registry, &weak));
        assert!(page.contains("\nsluice_core_channel_depth 1\n"), "{page}");
        assert!(page.contains("\nsluice_core_channel_capacity 8\n"), "{page}");
        drop(sender);
        assert!(receiver.is_closed(), "the metrics must not keep the channel open");
    }

    /// Name, type and labels of all families in Prometheus' text format.
    fn families(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
        let mut all = BTreeMap::new();
        for line in page.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                all.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
                let name = name.strip_suffix("_bucket").unwrap_or(name);
                let known: &mut (String, BTreeSet<String>) = all.get_mut(name).unwrap();
                let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
                known.1.extend(labels.map(|(label, _)| label.to_owned()).filter(|label| label != "le"));
            }
        }
        all
    }

    /// Without the sample lines `_sum` and `_count`, which have the labels of their histogram.
    fn without_sums(page: &str) -> String {
        let kept = page.lines().filter(|line| !line.contains("_sum{") && !line.contains("_count{"));
        kept.collect::<Vec<_>>().join("\n")
    }

    /// The page of the metrics of this project lists exactly what is exported.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn documented_metrics_equal_exported_ones() {
        use crate::api::ObjectKey;
        use crate::metrics::model::{ClusterQueueGauges, Gauges, MetricFamilies, Role};
        use crate::reconciler::{Observation, WriteOutcome};
        let mut registry = Registry::default();
        let own = registry.sub_registry_with_prefix("sluice");
        register_leadership(own, &Fence::default());
        let (refused, rejection) =
            (RefusedWrites::default(), WriteOutcome::Rejected { code: 403, message: String::new() });
        refused.record(("jobs".to_owned(), "merge"), &ObjectKey::new("ns", "a"), &rejection, Duration::ZERO);
        register_refused_writes(own, &refused, Duration::ZERO);
        register_watches(own, &WatchStatuses::new(&Kind::all()));
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        register_channel(own, &sender.downgrade());
        register_progress(own, &Heartbeats::new([Fence::default().heartbeat("core")]));
        let permission = Permission {
            group: "batch".to_owned(),
            resource: "jobs".to_owned(),
            name: None,
            namespace: None,
            verb: "patch",
            needed_for_reviews: false,
            framework: None,
            only_if_served: None,
        };
        register_permissions(own, &[permission]);
        process::register(&mut registry);
        let families_of_kueue = MetricFamilies {
            cluster_queue_resources: true,
            local_queues: true,
            cohorts: true,
            creation_latency: true,
        };
        let counters = metrics::counters::Counters::new("linux", families_of_kueue);
        counters.count_write("apply", "done");
        counters.count_refused_write("jobs", "merge", 403);
        let (resource, verb) = ("jobs".to_owned(), "merge");
        counters.observe(&Observation::IneffectiveWrite { resource, verb }, Role::Leader);
        let (preempting_cluster_queue, victim_cluster_queue, reason) = ("a".into(), "b".into(), "r");
        counters.observe(
            &Observation::Preempted { preempting_cluster_queue, victim_cluster_queue, reason },
            Role::Leader,
        );
        counters.count_dropped_events("full", 1);
        counters.count_visibility_request("g", "r", 200);
        counters.reviews().observe_duration("/", Duration::ZERO);
        counters.reviews().count_refused("busy");
        let at = Some(jiff::Timestamp::UNIX_EPOCH);
        let certificates = metrics::certificates::CertificateStatus {
            serving_until: at,
            ca_until: at,
            ..Default::default()
        };
        let history = crate::history::HistoryStats {
            limit_bytes: 1,
            oldest_record: at,
            records: BTreeMap::from([("wait", 1)]),
            ..Default::default()
        };
        let gauges = Gauges {
            cluster_queues: vec![ClusterQueueGauges::default()],
            history: std::sync::Arc::new(history),
            ..Gauges::default()
        };
        let gaps = metrics::ConfigurationGaps::with_unknown_gates(vec!["g".to_owned()]);
        gaps.set_foreign_webhooks(vec!["m".to_owned()]);
        gaps.set_missing_fields(&BTreeMap::from([("workloads", vec!["status".to_owned()])]));
        let page = [
            metrics::text(&registry).unwrap(),
            counters.render().unwrap(),
            metrics::certificates::render(&certificates, Some(jiff::SignedDuration::ZERO)).unwrap(),
            metrics::render(&gauges, families_of_kueue, Role::Leader).unwrap(),
            gaps.render().unwrap(),
            metrics::record::render(&metrics::record::RecordStats::default()).unwrap(),
        ];
        let mut exported = families(&without_sums(&page.concat()));
        exported.retain(|name, _| !name.starts_with("kueue_"));
        let mut documented = BTreeMap::new();
        for row in
            include_str!("../../../docs/metrics.md").lines().filter_map(|line| line.strip_prefix("| `"))
        {
            let (name, row) = row.split_once("` | ").unwrap();
            let mut columns = row.split('|').map(str::trim);
            let kind = columns.next().unwrap().to_owned();
            let labels = columns.next().unwrap().split(", ").filter(|label| !label.is_empty());
            documented.insert(
                name.to_owned(),
                (kind, labels.map(|label| label.trim_matches('`').to_owned()).collect()),
            );
        }
        assert_eq!(exported, documented);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_metrics_use_standard_names() {
        let mut registry = Registry::default();
        process::register(&mut registry);
        let page = metrics::text(&registry).unwrap();
        for name in [
            "process_open_fds",
            "process_max_fds",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_threads",
            "process_start_time_seconds",
            "process_cpu_seconds_total",
        ] {
            let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
            let value: f64 =
                line.unwrap_or_else(|| panic!("{name} in\n{page}"))[name.len()..].trim().parse().unwrap();
            assert!(value >= 0.0, "{name} is {value}");
        }
    }
}
