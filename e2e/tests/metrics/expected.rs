//! The expected result of each query of the dashboards after the load: known numbers of the script, or values computed from
//! the metrics as the replicas serve them, the process table and the audit log.

use crate::page::{Change, Page};
use crate::prometheus::{JOB, Prometheus, Vector};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sluice_e2e::paths;
use sluice_e2e::process::ProcessUsage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Relative error of `increase` and `rate`, which extrapolate from the samples to the ends of the window.
const RATE_ERROR: f64 = 0.005;
const DAY: f64 = 86_400.0;

/// What is known after the load.
pub(crate) struct Facts {
    /// Metrics of the leader.
    pub(crate) leader: Change,
    /// Metrics of the standby.
    pub(crate) standby: Change,
    /// Names of the targets: leader, standby.
    pub(crate) instances: [String; 2],
    /// Usage of the processes before and after the load.
    pub(crate) usage: [(ProcessUsage, ProcessUsage); 2],
    /// Process ids.
    pub(crate) pids: [u32; 2],
    /// Time between the two readings of CPU times.
    pub(crate) usage_time: Duration,
    /// Time at which queries are evaluated.
    pub(crate) time: f64,
    /// Range of queries.
    pub(crate) window: Duration,
}

/// Lowest and highest allowed value by labels.
type Expected = BTreeMap<String, (f64, f64)>;

fn rows(values: &[(&str, f64)]) -> Expected {
    values.iter().map(|(labels, value)| ((*labels).to_owned(), (*value, *value))).collect()
}

fn one(value: f64) -> Expected {
    rows(&[("", value)])
}

fn within(low: f64, high: f64) -> Expected {
    Expected::from([(String::new(), (low, high))])
}

/// Values computed from increases over the window.
fn counted(values: BTreeMap<String, f64>) -> Expected {
    let bounds = |value: f64| (value * (1.0 - RATE_ERROR), value * (1.0 + RATE_ERROR));
    values.into_iter().map(|(labels, value)| (labels, bounds(value))).collect()
}

fn known(values: &[(&str, f64)]) -> Expected {
    counted(values.iter().map(|(labels, value)| ((*labels).to_owned(), *value)).collect())
}

impl Facts {
    fn by_instance(&self, of: impl Fn(usize) -> Result<(f64, f64)>) -> Result<Expected> {
        let row = |index: usize| Ok((format!("instance={}", self.instances[index]), of(index)?));
        [0, 1].into_iter().map(row).collect()
    }

    /// Expected result of a query of the dashboard for users.
    fn of_queues(&self, title: &str, query: usize) -> Result<Expected> {
        let change = &self.leader;
        let wait = "kueue_admission_wait_time_seconds";
        Ok(match (title, query) {
            ("Pending", 0) => one(3.0),
            ("Admitted", 0) => one(6.0),
            ("Quota without admission" | "Inactive queues" | "Head fits and waits", 0) => one(0.0),
            ("Finished", 0) => one(1.0),
            ("Pending workloads", 0) => rows(&[
                ("cluster_queue=red,status=active", 0.0),
                ("cluster_queue=red,status=inadmissible", 1.0),
                ("cluster_queue=blue,status=active", 0.0),
                ("cluster_queue=blue,status=inadmissible", 2.0),
            ]),
            ("Admitted workloads", 0) => rows(&[("cluster_queue=red", 4.0), ("cluster_queue=blue", 2.0)]),
            ("Why workloads are not admitted", 0) => rows(&[
                ("reason=NoReservation,underlying_cause=Deactivated", 1.0),
                ("reason=NoReservation,underlying_cause=ExceedsMaxQuota", 1.0),
                ("reason=NoReservation,underlying_cause=WaitingForQuota", 2.0),
            ]),
            ("Waiting by LocalQueue", 0) => {
                rows(&[("name=red,namespace=metrics", 2.0), ("name=blue,namespace=metrics", 2.0)])
            }
            ("Admissions", 0) => known(&[("cluster_queue=red", 7.0), ("cluster_queue=blue", 2.0)]),
            ("Workloads that finished", 0) => {
                known(&[("cluster_queue=red", 1.0), ("cluster_queue=blue", 0.0)])
            }
            ("Time from queueing to admission", 0) => counted(change.quantile(0.5, wait, "")),
            ("Time from queueing to admission", 1) => counted(change.quantile(0.95, wait, "")),
            ("Mean time to admission by queue", 0) => counted(change.mean(wait, &["cluster_queue"])),
            ("Mean time admitted", 0) => {
                counted(change.mean("kueue_execution_time_seconds", &["cluster_queue"]))
            }
            ("Mean time of admission checks", 0) => {
                counted(change.mean("kueue_admission_checks_wait_time_seconds", &["cluster_queue"]))
            }
            ("Reserved quota of ClusterQueues" | "Used quota of ClusterQueues", 0) => rows(&[
                ("cluster_queue=red,flavor=any,resource=cpu", 1.0),
                ("cluster_queue=blue,flavor=any,resource=cpu", 2.0 / 3.0),
            ]),
            ("Reserved quota of cohorts", 0) => rows(&[("cohort=org,flavor=any,resource=cpu", 6.0 / 7.0)]),
            ("Requests of pending workloads", 0) => {
                rows(&[("cluster_queue=red,resource=cpu", 1.0), ("cluster_queue=blue,resource=cpu", 11.0)])
            }
            ("Evictions", 0) => known(&[
                ("cluster_queue=red,reason=Preempted", 1.0),
                ("cluster_queue=red,reason=Deactivated", 1.0),
            ]),
            ("Preempted workloads", 0) => {
                known(&[("preempting_cluster_queue=red,reason=InClusterQueue", 1.0)])
            }
            _ => bail!("no expected value"),
        })
    }

    /// Expected result of a query of the dashboard for operators.
    fn of_operations(&self, title: &str, query: usize) -> Result<Expected> {
        let leader = &self.leader;
        let cycles = "kueue_admission_attempt_duration_seconds";
        Ok(match (title, query) {
            ("Leaders" | "Certificate trusted", 0) => one(1.0),
            ("Replicas", 0) => one(2.0),
            // Issued a moment ago, and a little earlier valid, for clocks that differ.
            ("Serving certificate ends in", 0) => within(90.0 * DAY - 7200.0, 90.0 * DAY),
            ("CA certificate ends in", 0) => within(365.0 * DAY - 7200.0, 365.0 * DAY),
            ("Ledger drift" | "Missing permissions" | "Unmanaged frameworks" | "Jobs unguarded", 0) => {
                one(0.0)
            }
            // The API server's Date header has whole seconds.
            ("Clock skew", 0) => within(0.0, 1.5),
            ("Duration of scheduling cycles", 0) => counted(leader.quantile(0.5, cycles, "")),
            ("Duration of scheduling cycles", 1) => counted(leader.quantile(0.99, cycles, "")),
            ("Scheduling cycles", 0) => {
                counted(leader.increase("kueue_admission_attempts_total", &["result"]))
            }
            ("Changes waiting for the core", 0) => self.by_instance(|_| Ok((0.0, 2.0)))?,
            ("Changes waiting for the core", 1) => one(256.0),
            ("Time without progress", 0) => {
                let part = |instance: &String| {
                    ["api", "core"].map(|part| (format!("instance={instance},part={part}"), (0.0, 1.0)))
                };
                self.instances.iter().flat_map(part).collect()
            }
            ("Writes", 0) => counted(leader.increase("sluice_writes_total", &["verb", "outcome"])),
            // A write may have been refused in the warm-up, when a Job was just suspended.
            ("Refused writes", 0) => {
                counted(leader.increase("sluice_writes_refused_total", &["resource", "verb", "code"]))
            }
            ("Age of refusals" | "Incomplete lists" | "Refused reviews", 0) => Expected::new(),
            ("Age of watches", 0) => self.watch_ages(),
            ("Errors and restarts of watches", 0) => self.watch_changes("sluice_watch_errors_total"),
            ("Errors and restarts of watches", 1) => self.watch_changes("sluice_watch_restarts_total"),
            ("Dropped events", 0) => one(0.0),
            ("Reviews", 0) => {
                let per_second = |(path, count): (String, f64)| (path, count / self.window.as_secs_f64());
                counted(
                    self.both_increased("sluice_review_duration_seconds_count", &["path"])
                        .into_iter()
                        .map(per_second)
                        .collect(),
                )
            }
            // The standby reviews nothing.
            ("Duration of reviews", 0) => {
                counted(leader.quantile(0.99, "sluice_review_duration_seconds", "path"))
            }
            ("Reviews in flight", 0) => self.by_instance(|_| Ok((0.0, 0.0)))?,
            ("Memory", 0) => self.by_instance(|index| {
                let bytes = f64::from(u32::try_from(self.usage[index].1.resident_mib)?) * 1_048_576.0;
                Ok((bytes * 0.9, bytes * 1.1 + 1_048_576.0))
            })?,
            ("CPU", 0) => self.by_instance(|index| {
                let (before, after) = self.usage[index];
                let cores =
                    after.cpu.saturating_sub(before.cpu).as_secs_f64() / self.usage_time.as_secs_f64();
                Ok((cores * 0.8 - 0.01, cores * 1.2 + 0.01))
            })?,
            ("Open files", 0) => self.by_instance(|index| {
                let open = fs::read_dir(format!("/proc/{}/fd", self.pids[index]))?.count();
                let open = f64::from(u32::try_from(open)?);
                Ok((open - 10.0, open + 10.0))
            })?,
            ("Open files", 1) => self.by_instance(|index| {
                let limits = fs::read_to_string(format!("/proc/{}/limits", self.pids[index]))?;
                let line = limits
                    .lines()
                    .find_map(|line| line.strip_prefix("Max open files"))
                    .context("no limit")?;
                let limit: f64 = line.split_whitespace().next().context("no limit")?.parse()?;
                Ok((limit, limit))
            })?,
            ("Uptime", 0) => self.by_instance(|index| {
                let started = fs::metadata(format!("/proc/{}", self.pids[index]))?.modified()?;
                let started = started.duration_since(std::time::SystemTime::UNIX_EPOCH)?.as_secs_f64();
                Ok((self.time - started - 3.0, self.time - started + 3.0))
            })?,
            _ => bail!("no expected value"),
        })
    }

    /// Sum of the increases on both replicas.
    fn both_increased(&self, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
        let mut sums = self.leader.increase(name, labels);
        for (key, value) in self.standby.increase(name, labels) {
            *sums.entry(key).or_default() += value;
        }
        sums
    }

    /// Kinds that the API server serves, with the ages that watches of five seconds may have.
    fn watch_ages(&self) -> Expected {
        let served = self.leader.after.sum_by("sluice_watch_served", &["group", "resource"]);
        served.into_iter().filter(|(_, value)| *value > 0.0).map(|(labels, _)| (labels, (0.0, 8.0))).collect()
    }

    /// Kinds whose counters changed. They may change again between the page and the evaluation.
    fn watch_changes(&self, name: &str) -> Expected {
        let changed = self.both_increased(name, &["resource"]).into_iter().filter(|(_, value)| *value > 0.0);
        changed.map(|(labels, value)| (labels, (value - 3.0, value + 3.0))).collect()
    }
}

/// Compares each query of both dashboards; an error lists all differences.
pub(crate) async fn check_dashboards(prometheus: &Prometheus, facts: &Facts) -> Result<usize> {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in ["queues", "operations"] {
        let path = paths::root().join(format!("dashboards/{file}.json"));
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        for panel in dashboard["panels"].as_array().context("no panels")? {
            let title = panel["title"].as_str().context("no title")?;
            for (index, target) in panel["targets"].as_array().into_iter().flatten().enumerate() {
                let expression = substituted(target["expr"].as_str().context("no query")?, facts.window)?;
                let expected = match file {
                    "queues" => facts.of_queues(title, index),
                    _ => facts.of_operations(title, index),
                };
                let expected = expected.with_context(|| format!("{file}: {title} {index}"))?;
                let found = prometheus.query(&expression, facts.time).await?;
                count += 1;
                if let Some(difference) = difference(&found, &expected) {
                    wrong.push(format!("{file}: {title} {index}: {difference}\n  {expression}"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {count} queries differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(count)
}

/// Replaces the variables of a dashboard: both queues, all cohorts.
fn substituted(expression: &str, window: Duration) -> Result<String> {
    let replaced = expression
        .replace("$cluster_queue", "blue|red")
        .replace("$cohort", ".*")
        .replace("$job", JOB)
        .replace("$__rate_interval", &format!("{}ms", window.as_millis()));
    ensure!(!replaced.contains('$'), "unknown variable in {replaced}");
    Ok(replaced)
}

fn difference(found: &Vector, expected: &Expected) -> Option<String> {
    let fits = |value: f64, (low, high): (f64, f64)| {
        let error = 1e-9 * high.abs();
        (value.is_nan() && low.is_nan()) || (value >= low - error && value <= high + error)
    };
    let labels: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let wrong: Vec<String> = labels
        .into_iter()
        .filter(|labels| match (found.get(*labels), expected.get(*labels)) {
            (Some(value), Some(bounds)) => !fits(*value, *bounds),
            _ => true,
        })
        .map(|labels| format!("{{{labels}}} is {:?}, expected {:?}", found.get(labels), expected.get(labels)))
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Checks that the series of the leader and of the standby are told apart: the standby exports the same queues.
pub(crate) fn check_standby_exports_queues(standby: &Page) -> Result<()> {
    let pending = standby.sum_by("kueue_pending_workloads", &["replica_role"]);
    ensure!(pending.contains_key("replica_role=follower"), "the standby exports {pending:?}");
    Ok(())
}
