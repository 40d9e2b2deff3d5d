//! A scenario under a controller: etcd and kube-apiserver only, the floor first, then the load.

use super::floor::{Floor, cpu};
use super::load::{Load, Outcome};
use super::report::Report;
use super::scenario::Scenario;
use crate::audit::Audit;
use crate::binaries;
use crate::install::{ACCOUNT, NAMESPACE, install, take_webhooks};
use crate::kubectl::Kubectl;
use crate::manager::{Manager, Settings};
use crate::objects::Objects;
use crate::plane::{Extent, Plane};
use crate::process::{Usage, free_ports};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a run may take before it is given up.
const PATIENCE: Duration = Duration::from_mins(40);

/// Runs it, in a folder of its own, and prints what was measured.
pub async fn run(scenario: &Scenario, controller: Option<PathBuf>, folder: &Path) -> Result<Outcome> {
    let program = match controller {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => binaries::sluice(true)?,
    };
    let plane = Plane::start(Extent::Api, folder).await?;
    let objects = Objects::new(plane.admin().await?);
    let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
    let port = free_ports(1)?.first().copied().context("no port")?;
    install(&kubectl, &objects, port).await?;
    let webhooks = take_webhooks(&objects).await?;
    scenario.make_queues(&objects).await?;
    println!("measuring what the server takes for each write");
    let floor = Floor::measure(&plane, &objects, scenario).await?;
    for (kind, object) in webhooks {
        objects.create(kind, &object).await?;
    }
    let settings = Settings {
        name: "controller".to_owned(),
        program,
        webhook_port: port,
        configuration: if scenario.placed {
            json!({"featureGates": {"TASBalancedPlacement": true}})
        } else {
            Value::Null
        },
        flags: Vec::new(),
        server: None,
    };
    let manager = Manager::start(&plane, &settings).await?;
    manager.ready().await?;
    crate::cluster::webhooks_answer(&objects).await?;
    println!("{} workloads", scenario.total());
    let pid = manager.process().identity().pid;
    let mut audit = Audit::now(&plane.audit_log())?;
    let (before, server) = (Usage::of(pid)?, cpu(&plane)?);
    let outcome = Load::run(scenario, &objects, PATIENCE).await?;
    let after = Usage::of(pid)?;
    let server = cpu(&plane)? - server;
    let writes = audit.writes_of(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"))?;
    let report = Report { scenario, floor, outcome, controller: (before, after), server, writes };
    report.print();
    Ok(report.outcome)
}
