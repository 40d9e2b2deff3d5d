//! Hours of the history against the integral of Kueue's own metric, as Prometheus scraped it.

use crate::page::read_text;
use crate::prometheus::{SCRAPE, now};
use crate::setup::{SCRAPER, Setup};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::objects::Kind;

const BINDING: Kind =
    Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");

/// For each ClusterQueue the hours since the start are the integral of `kueue_cluster_queue_resource_usage`, but for what changed between
/// two scrapes: at both ends of each run at most the largest usage for one interval.
pub(crate) async fn are_the_integral(setup: &Setup) -> Result<()> {
    let binding = json!({
        "metadata": {"name": "scraper-debug"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-debug"},
        "subjects": [{"kind": "ServiceAccount", "name": SCRAPER, "namespace": NAMESPACE}],
    });
    setup.cluster.objects.create(BINDING, &binding).await?;
    let history = sluice_e2e::wait::eventually("the scraper may read the history", async || {
        let text = read_text(setup.ports[0], "/debug/history", &setup.ca, &setup.token).await?;
        Ok(serde_json::from_str::<Value>(&text)?)
    })
    .await?;
    let instance = &setup.instances()[0];
    let metric = format!("kueue_cluster_queue_resource_usage{{resource=\"cpu\",instance=\"{instance}\"}}");
    let integral = format!("sum by (cluster_queue) (sum_over_time({metric}[1h])) * {}", SCRAPE.as_secs_f64());
    let integrals = setup.prometheus.query(&integral, now()).await?;
    let largest = format!("max by (cluster_queue) (max_over_time({metric}[1h]))");
    let largest = setup.prometheus.query(&largest, now()).await?;
    let rows = history["usageByQueue"]["items"].as_array().context("no usage")?;
    let mut compared = 0;
    for row in rows.iter().filter(|row| row["resource"] == "cpu") {
        let queue = row["group"].as_str().context("no group")?;
        let key = format!("cluster_queue={queue}");
        let hours = row["used"]["hours"].as_f64().context("no hours")?;
        let expected = integrals.get(&key).copied().unwrap_or_default() / 3_600.0;
        let jobs = row["jobs"].as_f64().context("no jobs")?;
        let most = largest.get(&key).copied().unwrap_or_default();
        let tolerance = jobs * 2.0 * most * SCRAPE.as_secs_f64() / 3_600.0;
        println!("{queue}: {hours:.4} CPU hours, by Prometheus {expected:.4} (at most {tolerance:.4} apart)");
        ensure!((hours - expected).abs() <= tolerance, "{queue}: {row}, expected {expected} hours");
        compared += usize::from(expected > 0.0);
    }
    ensure!(compared > 0, "nothing was compared: {history}");
    Ok(())
}
