//! Metrics as the replicas serve them, read without Prometheus, and the values that queries must have by them.

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use kube::client::Body;
use sluice_e2e::kubeconfig;
use std::collections::BTreeMap;

/// Labels and value.
type Sample = (BTreeMap<String, String>, f64);

/// All samples of one replica by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Page(BTreeMap<String, Vec<Sample>>);

/// Reads a path of a metrics port with a token.
pub(crate) async fn read_text(port: u16, path: &str, ca: &str, token: &str) -> Result<String> {
    let client = kubeconfig::anonymous(&format!("https://127.0.0.1:{port}"), ca)?;
    let request = http::Request::get(path).header("authorization", format!("Bearer {token}"));
    let response = client.send(request.body(Body::empty())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    ensure!(status.is_success(), "{status}: {text}");
    Ok(text)
}

impl Page {
    /// Reads the metrics at a port with a token.
    pub(crate) async fn read(port: u16, ca: &str, token: &str) -> Result<Self> {
        Self::parse(&read_text(port, "/metrics", ca, token).await?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, value) = line.rsplit_once(' ').context("no value")?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .filter_map(|label| label.split_once("=\""))
                .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()))
                .collect();
            let value = value.replace("Inf", "inf").parse().with_context(|| line.to_owned())?;
            all.entry(name.to_owned()).or_default().push((labels, value));
        }
        Ok(Self(all))
    }

    /// Sums of a family by these labels, as `a=b,c=d`.
    pub(crate) fn sum_by(&self, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (found, value) in self.0.get(name).into_iter().flatten() {
            *sums.entry(key(found, labels)).or_default() += value;
        }
        sums
    }

    /// Counters that a load changes; all others change at rest as well.
    pub(crate) fn load_counters(&self) -> Vec<BTreeMap<String, f64>> {
        ["sluice_writes_total", "kueue_admission_attempts_total", "kueue_finished_workloads_total"]
            .map(|name| self.sum_by(name, &["verb", "outcome", "result", "cluster_queue"]))
            .to_vec()
    }
}

fn key(found: &BTreeMap<String, String>, labels: &[&str]) -> String {
    let mut sorted = labels.to_vec();
    sorted.sort_unstable();
    let named =
        sorted.iter().filter_map(|label| Some((label, found.get(*label).filter(|value| !value.is_empty())?)));
    named.map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(",")
}

/// The leader's metrics before and after a load.
pub(crate) struct Change {
    pub(crate) before: Page,
    pub(crate) after: Page,
}

impl Change {
    /// Increase of a family by these labels.
    pub(crate) fn increase(&self, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
        let before = self.before.sum_by(name, labels);
        let after = self.after.sum_by(name, labels);
        after
            .into_iter()
            .map(|(key, value)| (key.clone(), value - before.get(&key).unwrap_or(&0.0)))
            .collect()
    }

    /// Mean of a histogram's new observations by these labels; NaN without any.
    pub(crate) fn mean(&self, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
        let counts = self.increase(&format!("{name}_count"), labels);
        let sums = self.increase(&format!("{name}_sum"), labels);
        sums.into_iter().map(|(key, sum)| (key.clone(), sum / counts.get(&key).unwrap_or(&0.0))).collect()
    }

    /// Quantile of a histogram's new observations by a label ("" for all together), by linear interpolation within a
    /// bucket; NaN without any.
    pub(crate) fn quantile(&self, quantile: f64, name: &str, label: &str) -> BTreeMap<String, f64> {
        let by: Vec<&str> = ["le", label].into_iter().filter(|label| !label.is_empty()).collect();
        let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (key, count) in self.increase(&format!("{name}_bucket"), &by) {
            let (mut bound, mut rest) = (f64::INFINITY, Vec::new());
            for part in key.split(',') {
                match part.strip_prefix("le=") {
                    Some(le) => bound = le.replace("Inf", "inf").parse().unwrap_or(f64::INFINITY),
                    None => rest.push(part),
                }
            }
            buckets.entry(rest.join(",")).or_default().push((bound, count));
        }
        buckets.into_iter().map(|(key, buckets)| (key, quantile_of(quantile, buckets))).collect()
    }
}

fn quantile_of(quantile: f64, mut buckets: Vec<(f64, f64)>) -> f64 {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets.last().map_or(0.0, |last| last.1);
    let rank = quantile * total;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if total > 0.0 && count >= rank {
            // No bound above: the last finite one.
            let part = (rank - below) / (count - below);
            return if bound.is_infinite() { lower } else { lower + (bound - lower) * part };
        }
        (lower, below) = (bound, count);
    }
    f64::NAN
}
