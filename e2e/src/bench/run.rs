//! Runs a scenario against a controller on etcd and kube-apiserver only: first the write baseline, then the load.

use super::api_server_baseline::{ApiServerBaseline, control_plane_cpu_seconds};
use super::api_server_only::ApiServerOnly;
use super::load::{Load, LoadOutcome};
use super::report::Report;
use super::scenario::Scenario;
use crate::audit::AuditCursor;
use crate::install::{ACCOUNT, NAMESPACE};
use crate::manager::Manager;
use crate::process::ProcessUsage;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit of the load.
const RUN_TIMEOUT: Duration = Duration::from_mins(40);

/// Runs the scenario on a control plane in `folder`, prints the report and returns the result.
pub async fn run(scenario: &Scenario, controller: Option<PathBuf>, folder: &Path) -> Result<LoadOutcome> {
    let configuration = if scenario.uses_topology {
        json!({"featureGates": {"TASBalancedPlacement": true}})
    } else {
        Value::Null
    };
    let bare = ApiServerOnly::start(controller, folder, configuration).await?;
    let ApiServerOnly { plane, objects, settings } = &bare;
    let webhooks = bare.remove_webhooks().await?;
    scenario.make_queues(objects).await?;
    println!("measuring the CPU time of the server for each write");
    let baseline = ApiServerBaseline::measure(plane, objects, scenario).await?;
    bare.restore_webhooks(webhooks).await?;
    let manager = Manager::start(plane, settings).await?;
    manager.wait_until_ready().await?;
    crate::cluster::wait_for_webhooks(objects).await?;
    println!("{} workloads", scenario.total_workloads());
    let pid = manager.process().identity().pid;
    let mut audit = AuditCursor::from_end(&plane.audit_log())?;
    let (before, server) = (ProcessUsage::of_process(pid)?, control_plane_cpu_seconds(plane)?);
    let outcome = Load::run(scenario, objects, RUN_TIMEOUT).await?;
    let after = ProcessUsage::of_process(pid)?;
    let server = control_plane_cpu_seconds(plane)? - server;
    let writes = audit.new_writes_by(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"))?;
    let report = Report { scenario, baseline, outcome, controller: (before, after), server, writes };
    report.print();
    Ok(report.outcome)
}
