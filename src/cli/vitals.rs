//! What this process tells of itself: watches, the way to the core, progress of its parts, missing rights, and what the
//! kernel knows of it under Prometheus' standard names.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::WeakSender;

use super::manager::Shared;
use crate::kube::access::Right;
use crate::kube::board::WatchBoard;
use crate::kube::pulse::Pulses;
use crate::state::Delta;
use crate::view;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;
type Seconds = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter>;

/// All of it as Prometheus' text.
pub(super) fn render(shared: &Vitals) -> String {
    let mut registry = Registry::default();
    let own = registry.sub_registry_with_prefix("sluice");
    watches(own, &shared.board);
    channel(own, &shared.deltas);
    progress(own, &shared.pulses);
    permissions(own, &shared.missing.list());
    #[cfg(target_os = "linux")]
    process::register(&mut registry);
    view::text(&registry).unwrap_or_default()
}

/// Where it is read from.
pub(super) struct Vitals {
    board: WatchBoard,
    deltas: WeakSender<Delta>,
    pulses: Pulses,
    missing: std::sync::Arc<crate::kube::access::Missing>,
}

impl Vitals {
    pub(super) fn of(shared: &Shared) -> Self {
        Self {
            board: shared.board.clone(),
            deltas: shared.deltas.clone(),
            pulses: shared.pulses.clone(),
            missing: std::sync::Arc::clone(&shared.missing),
        }
    }
}

fn watches(registry: &mut Registry, board: &WatchBoard) {
    let (age, synced) = (Seconds::default(), Gauges::default());
    let (errors, restarts) = (Counters::default(), Counters::default());
    for (kind, health) in board.iter() {
        let resource = kind.resource();
        let labels = vec![("group", resource.group.to_owned()), ("resource", resource.plural.to_owned())];
        age.get_or_create(&labels).set(health.silent().as_secs_f64());
        synced.get_or_create(&labels).set(i64::from(health.synced()));
        errors.get_or_create(&labels).inc_by(health.errors());
        restarts.get_or_create(&labels).inc_by(health.restarts());
    }
    let help = "Time since the API server last sent anything for this watch; about a minute is normal";
    registry.register("watch_age_seconds", help, age);
    registry.register("watch_synced", "Whether a whole list of this kind was read", synced);
    registry.register("watch_errors", "Errors of this watch", errors);
    registry.register("watch_restarts", "Lists that were begun after the first one", restarts);
}

fn channel(registry: &mut Registry, deltas: &WeakSender<Delta>) {
    let (depth, capacity) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    if let Some(sender) = deltas.upgrade() {
        depth.set(whole(sender.max_capacity().saturating_sub(sender.capacity())));
        capacity.set(whole(sender.max_capacity()));
    }
    registry.register("core_channel_depth", "Changes that wait for the core", depth);
    registry.register("core_channel_capacity", "Changes for which there is room", capacity);
}

fn progress(registry: &mut Registry, pulses: &Pulses) {
    let age = Seconds::default();
    for (part, silent) in pulses.ages() {
        age.get_or_create(&vec![("part", part.to_owned())]).set(silent.as_secs_f64());
    }
    let help = "Time since a part last made progress; the process ends when it is as long as a lease";
    registry.register("progress_age_seconds", help, age);
}

fn permissions(registry: &mut Registry, missing: &[Right]) {
    let family = Gauges::default();
    for right in missing {
        let labels = vec![
            ("group", right.group.clone()),
            ("resource", right.resource.clone()),
            ("name", right.name.clone().unwrap_or_default()),
            ("namespace", right.namespace.clone().unwrap_or_default()),
            ("verb", right.verb.to_owned()),
            ("needed_by", if right.for_reviews { "webhooks" } else { "controller" }.to_owned()),
        ];
        family.get_or_create(&labels).set(1);
    }
    registry.register("missing_permissions", "Rights that the manager needs and does not have", family);
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(target_os = "linux")]
mod process {
    use super::{AtomicU64, Counter, Gauge, Registry, whole};
    use procfs::process::{LimitValue, Process};

    /// What cannot be read is left out.
    pub(super) fn register(registry: &mut Registry) {
        let Ok(own) = Process::myself() else { return };
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = Gauge::<i64>::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        if let Ok(number) = own.fd_count() {
            gauge("process_open_fds", "Open file descriptors", whole(number));
        }
        if let Ok(limits) = own.limits()
            && let LimitValue::Value(most) = limits.max_open_files.soft_limit
        {
            gauge("process_max_fds", "Most file descriptors that may be open", signed(most));
        }
        let Ok(stat) = own.stat() else { return };
        let resident = stat.rss.saturating_mul(procfs::page_size());
        gauge("process_resident_memory_bytes", "Resident memory", signed(resident));
        gauge("process_virtual_memory_bytes", "Virtual memory", signed(stat.vsize));
        gauge("process_threads", "Threads", stat.num_threads);
        let ticks = procfs::ticks_per_second();
        if let Ok(boot) = procfs::boot_time_secs() {
            let began = boot.saturating_add(stat.starttime / ticks.max(1));
            gauge("process_start_time_seconds", "Start of the process since the epoch", signed(began));
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
    use crate::state::Kind;

    fn text(fill: impl FnOnce(&mut Registry)) -> String {
        let mut registry = Registry::default();
        fill(registry.sub_registry_with_prefix("sluice"));
        view::text(&registry).unwrap()
    }

    #[test]
    fn watches_of_every_kind_are_on_the_page() {
        let kinds = Kind::all();
        let page = text(|registry| watches(registry, &WatchBoard::new(&kinds)));
        for kind in &kinds {
            let (group, resource) = (kind.resource().group, kind.resource().plural);
            let labels = format!("{{group=\"{group}\",resource=\"{resource}\"}}");
            for name in ["watch_age_seconds", "watch_synced", "watch_errors_total", "watch_restarts_total"] {
                assert!(page.contains(&format!("\nsluice_{name}{labels} ")), "{name}{labels} in\n{page}");
            }
        }
    }

    #[tokio::test]
    async fn the_channel_shows_what_waits_and_is_not_kept_open() {
        let (sender, receiver) = tokio::sync::mpsc::channel(8);
        sender.send(Delta::Tick).await.unwrap();
        let weak = sender.downgrade();
        let page = text(|registry| channel(registry, &weak));
        assert!(page.contains("\nsluice_core_channel_depth 1\n"), "{page}");
        assert!(page.contains("\nsluice_core_channel_capacity 8\n"), "{page}");
        drop(sender);
        assert!(receiver.is_closed(), "the last sender is gone");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_told_of_under_the_standard_names() {
        let mut registry = Registry::default();
        process::register(&mut registry);
        let page = view::text(&registry).unwrap();
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
