//! A Prometheus with the shipped alerts that scrapes the replicas as the ServiceMonitor says.
//!
//! The program is the one on the PATH, or else Debian's package, unpacked below the target folder.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_e2e::manager::get;
use sluice_e2e::paths;
use sluice_e2e::process::{Process, ProcessGuard, free_ports};
use sluice_e2e::wait::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Name of the scrape job.
pub(crate) const JOB: &str = "sluice";
/// All times of the alerts are divided by this.
const ACCELERATION: u64 = 20;
/// Longest time for which a condition must hold before its alert fires.
const MAX_FOR_SECONDS: u64 = 30;

/// Result of a query: value by labels, written as `a=b,c=d` without the name and the job.
pub(crate) type Vector = BTreeMap<String, f64>;

/// A running Prometheus.
pub(crate) struct Prometheus {
    // Dropped first: the guard must outlive it.
    process: Process,
    _guard: ProcessGuard,
    port: u16,
    /// Name and expression of each loaded alert.
    pub(crate) rules: Vec<(String, String)>,
}

/// Where and how the metrics are scraped.
pub(crate) struct ScrapeTargets<'a> {
    pub(crate) ports: &'a [u16],
    pub(crate) token: &'a str,
    pub(crate) ca: &'a str,
}

impl Prometheus {
    /// Starts it in this folder and returns when it answers.
    pub(crate) async fn start(folder: &Path, targets: &ScrapeTargets<'_>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let monitor = manifest("service_monitor.yaml")?;
        let endpoint = &monitor["spec"]["endpoints"][0];
        let addresses: Vec<String> = targets.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": JOB,
                "scheme": endpoint["scheme"],
                "metrics_path": endpoint["path"],
                "honor_labels": endpoint["honorLabels"],
                "authorization": {"credentials_file": "token"},
                "tls_config": {"ca_file": "ca.crt", "server_name": endpoint["tlsConfig"]["serverName"]},
                "static_configs": [{"targets": addresses}],
            }],
        });
        let rules = accelerated(&manifest("rules.yaml")?["spec"])?;
        let names =
            rules["groups"].as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let loaded = names.flatten().map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect();
        // JSON is YAML.
        fs::write(folder.join("rules.yaml"), rules.to_string())?;
        fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        fs::write(folder.join("token"), targets.token)?;
        fs::write(folder.join("ca.crt"), targets.ca)?;
        let port = free_ports(1)?.first().copied().context("no port")?;
        let mut command = Command::new(program()?);
        command.current_dir(folder).args([
            "--config.file=prometheus.yaml",
            "--storage.tsdb.path=data",
            "--log.level=warn",
            &format!("--web.listen-address=127.0.0.1:{port}"),
        ]);
        let guard = ProcessGuard::start()?;
        let process = Process::start("prometheus", &mut command, &folder.join("prometheus.log"), &guard)?;
        let prometheus = Self { process, _guard: guard, port, rules: loaded };
        eventually("Prometheus answers", async || {
            prometheus.process.check()?;
            prometheus.query("vector(1)", now()).await.map(drop)
        })
        .await?;
        Ok(prometheus)
    }

    /// Evaluates an expression at a time.
    pub(crate) async fn query(&self, expression: &str, time: f64) -> Result<Vector> {
        let path = format!("/api/v1/query?time={time}&query={}", percent_encoded(expression));
        let data = self.get(&path).await.with_context(|| expression.to_owned())?;
        let mut vector = Vector::new();
        for row in data["result"].as_array().into_iter().flatten() {
            let value = row["value"][1].as_str().context("no value")?.replace("Inf", "inf").parse()?;
            ensure!(vector.insert(key(&row["metric"]), value).is_none(), "two equal rows: {row}");
        }
        Ok(vector)
    }

    /// Returns the names and labels of the firing alerts.
    pub(crate) async fn firing(&self) -> Result<BTreeSet<String>> {
        let data = self.get("/api/v1/alerts").await?;
        let alerts = data["alerts"].as_array().into_iter().flatten();
        Ok(alerts.filter(|alert| alert["state"] == "firing").map(|alert| key(&alert["labels"])).collect())
    }

    /// Returns the names of the alerts that fired since a time.
    pub(crate) async fn fired_since(&self, begin: f64) -> Result<BTreeSet<String>> {
        let end = now();
        let query = format!(
            r#"count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{:.0}ms]))"#,
            (end - begin) * 1000.0
        );
        let found = self.query(&query, end).await?;
        Ok(found.keys().map(|key| key.trim_start_matches("alertname=").to_owned()).collect())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let (code, body) = get(self.port, path).await?;
        ensure!(code == 200, "{code}: {body}");
        let response: Value = serde_json::from_str(&body)?;
        ensure!(response["status"] == "success", "{body}");
        Ok(response["data"].clone())
    }
}

/// The current Unix time.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Labels as text, in order, without the name of the metric, the job, the severity and empty values.
fn key(labels: &Value) -> String {
    let labels: BTreeMap<&String, &str> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str().filter(|value| !value.is_empty())?)))
        .filter(|(name, _)| !["__name__", "job", "severity"].contains(&name.as_str()))
        .collect();
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Reads one of the shipped manifests.
pub(crate) fn manifest(name: &str) -> Result<Value> {
    let path = paths::root().join("config/prometheus").join(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the rules with all times divided, so that a fault takes seconds: the range of each query, how long a condition
/// must hold, and ages of watches, refusals and heads.
fn accelerated(spec: &Value) -> Result<Value> {
    let mut spec = spec.clone();
    let groups = spec["groups"].as_array_mut().context("no groups")?;
    for rule in groups.iter_mut().flat_map(|group| group["rules"].as_array_mut().into_iter().flatten()) {
        let name = rule["alert"].as_str().context("no name")?.to_owned();
        let seconds = seconds(rule["for"].as_str().context("no time")?)? / ACCELERATION;
        rule["for"] = format!("{}s", seconds.min(MAX_FOR_SECONDS)).into();
        let mut expression = rule["expr"].as_str().context("no expression")?.to_owned();
        let range = format!("[{}s]", 300 / ACCELERATION);
        expression = expression.replace("[5m]", &range);
        for limit in [300, 600] {
            expression = expression.replace(&format!("> {limit}"), &format!("> {}", limit / ACCELERATION));
        }
        let slow = ["[5m]", "[1h]", "[10m]", "> 300", "> 600"].iter().any(|part| expression.contains(part));
        ensure!(!slow, "{name} has a time that is not divided");
        let changed = rule["expr"].as_str() != Some(&expression);
        let timed = ["Waits", "WritesRefused", "Stale", "ReviewsSlow", "ReviewsRefused"];
        ensure!(
            changed == timed.iter().any(|part| name.contains(part)),
            "{name} has other times than expected"
        );
        rule["expr"] = expression.into();
    }
    Ok(spec)
}

fn seconds(time: &str) -> Result<u64> {
    let (number, unit) = time.split_at(time.len() - 1);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("unknown unit in {time}"),
    };
    Ok(number.parse::<u64>()? * factor)
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Returns the path of the program; fetches Debian's package if there is none.
fn program() -> Result<PathBuf> {
    let version = Command::new("prometheus").arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return Ok("prometheus".into());
    }
    let folder = paths::target().join("prometheus");
    let program = folder.join("usr/bin/prometheus");
    if !program.is_file() {
        println!("no prometheus on the PATH: unpacking Debian's package in {}", folder.display());
        fs::create_dir_all(&folder)?;
        run(Command::new("apt-get").args(["download", "prometheus"]).current_dir(&folder))?;
        let packages = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let package = packages
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .max()
            .context("apt-get downloaded no package")?;
        run(Command::new("dpkg").arg("-x").arg(package).arg(&folder))?;
    }
    Ok(program)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Time that Prometheus needs to have scraped and evaluated everything once more.
pub(crate) const SCRAPE: Duration = Duration::from_millis(2_500);
