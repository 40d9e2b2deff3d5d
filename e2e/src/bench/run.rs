//! A scenario under a controller: etcd and kube-apiserver only, the floor first, then the load.

use super::bare::Bare;
use super::floor::{Floor, cpu};
use super::load::{Load, Outcome};
use super::report::Report;
use super::scenario::Scenario;
use crate::audit::Audit;
use crate::install::{ACCOUNT, NAMESPACE};
use crate::manager::Manager;
use crate::process::Usage;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a run may take before it is given up.
const PATIENCE: Duration = Duration::from_mins(40);

/// Runs it, in a folder of its own, and prints what was measured.
pub async fn run(scenario: &Scenario, controller: Option<PathBuf>, folder: &Path) -> Result<Outcome> {
    let configuration =
        if scenario.placed { json!({"featureGates": {"TASBalancedPlacement": true}}) } else { Value::Null };
    let bare = Bare::start(controller, folder, configuration).await?;
    let Bare { plane, objects, settings } = &bare;
    let webhooks = bare.take_webhooks().await?;
    scenario.make_queues(objects).await?;
    println!("measuring what the server takes for each write");
    let floor = Floor::measure(plane, objects, scenario).await?;
    bare.put_webhooks(webhooks).await?;
    let manager = Manager::start(plane, settings).await?;
    manager.ready().await?;
    crate::cluster::webhooks_answer(objects).await?;
    println!("{} workloads", scenario.total());
    let pid = manager.process().identity().pid;
    let mut audit = Audit::now(&plane.audit_log())?;
    let (before, server) = (Usage::of(pid)?, cpu(plane)?);
    let outcome = Load::run(scenario, objects, PATIENCE).await?;
    let after = Usage::of(pid)?;
    let server = cpu(plane)? - server;
    let writes = audit.writes_of(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"))?;
    let report = Report { scenario, floor, outcome, controller: (before, after), server, writes };
    report.print();
    Ok(report.outcome)
}
