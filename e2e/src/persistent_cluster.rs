//! `up` and `down`: a cluster that outlives the program that started it. A state file lists its processes.

use crate::binaries;
use crate::cluster::{Cluster, ClusterOptions};
use crate::install::NAMESPACE;
use crate::paths;
use crate::process::ProcessIdentity;
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

/// Account of `up` that sees the whole cluster in the dashboard.
const VIEWER: &str = "dashboard-viewer";

#[derive(Serialize, Deserialize)]
struct State {
    /// Folder that contains kubectl.
    tools: PathBuf,
    /// Port of the dashboard.
    dashboard: u16,
    /// In the order in which `down` stops them.
    processes: Vec<ProcessIdentity>,
}

fn folder() -> PathBuf {
    paths::controlplane().join("up")
}

fn state_file() -> PathBuf {
    paths::controlplane().join("up.json")
}

fn read() -> Result<Option<State>> {
    match fs::read_to_string(state_file()) {
        Ok(text) => {
            Ok(Some(serde_json::from_str(&text).with_context(|| state_file().display().to_string())?))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| state_file().display().to_string()),
    }
}

/// Returns the path of its administrator's kubeconfig.
pub fn kubeconfig() -> PathBuf {
    folder().join("admin.kubeconfig")
}

/// Starts a cluster and leaves it running.
pub async fn up(options: &ClusterOptions) -> Result<()> {
    if let Some(state) = read()?
        && state.processes.iter().any(ProcessIdentity::is_running)
    {
        link_commands(options)?;
        println!("A cluster is already running (`make down` stops it).\n");
        print_usage(&state);
        return Ok(());
    }
    let mut cluster = Cluster::start(options, &folder()).await?;
    let mut processes = vec![cluster.manager()?.process().identity().clone()];
    processes.extend(cluster.plane.identities());
    let kubectl = cluster.plane.binaries.path("kubectl");
    let tools = kubectl.parent().context("kubectl has no folder")?.to_owned();
    let dashboard = cluster.manager()?.dashboard_port();
    write_dashboard_access(&cluster)?;
    let state = State { tools, dashboard, processes };
    // Written before the processes are detached, so that no process can outlive this program unrecorded.
    fs::write(state_file(), serde_json::to_string_pretty(&state)?)?;
    cluster.detach()?;
    link_commands(options)?;
    println!("The cluster is running; `make down` stops it.\n");
    print_usage(&state);
    Ok(())
}

/// Writes the authority of the dashboard's certificate to a file, and makes an account that sees the cluster.
fn write_dashboard_access(cluster: &Cluster) -> Result<()> {
    let ca = cluster.kubectl.run(&[
        "get",
        "secret",
        "-n",
        NAMESPACE,
        "kueue-webhook-server-cert",
        "-o",
        "jsonpath={.data.ca\\.crt}",
    ])?;
    fs::write(dashboard_ca(), STANDARD.decode(ca.trim())?)?;
    cluster.kubectl.run(&["create", "serviceaccount", "-n", "default", VIEWER])?;
    let account = format!("--serviceaccount=default:{VIEWER}");
    cluster.kubectl.run(&[
        "create",
        "clusterrolebinding",
        VIEWER,
        "--clusterrole=sluice-cluster-viewer",
        &account,
    ])?;
    Ok(())
}

fn dashboard_ca() -> PathBuf {
    folder().join("dashboard-ca.crt")
}

/// Folder of the program's links.
fn commands() -> PathBuf {
    folder().join("bin")
}

/// Links the program by each name of its command line, so that a folder on PATH is enough to call it alone and as a plugin.
fn link_commands(options: &ClusterOptions) -> Result<()> {
    let program = options.program.clone().map_or_else(|| binaries::sluice(options.build), Ok)?;
    let program = std::path::absolute(program)?;
    fs::create_dir_all(commands())?;
    for name in sluice::cli::links().filter(|name| *name != "manager").chain(["sluice"]) {
        let link = commands().join(name);
        // Another `up` may have left a link to another build.
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(&program, &link)?;
    }
    Ok(())
}

fn print_usage(state: &State) {
    println!("    export KUBECONFIG={}", kubeconfig().display());
    println!(
        "    export PATH={}:{}:$PATH    # sluice, its plugins, and a kubectl of the same version",
        commands().display(),
        state.tools.display()
    );
    println!("\nThe command line, alone and as a plugin of kubectl:\n");
    println!("    sluice list clusterqueue");
    println!("    kubectl sluice list clusterqueue");
    println!(
        "\nDashboard: https://127.0.0.1:{} (CA: {}). A token for it:\n",
        state.dashboard,
        dashboard_ca().display()
    );
    println!("    kubectl create token {VIEWER} --namespace=default --audience=sluice-dashboard");
}

/// Stops the cluster that `up` started and deletes its folder.
pub fn down() -> Result<()> {
    let Some(state) = read()? else {
        println!("No cluster is running.");
        return Ok(());
    };
    for process in &state.processes {
        process.stop(Duration::from_secs(10));
    }
    if let Some(process) = state.processes.iter().find(|process| process.is_running()) {
        bail!("{} (pid {}) does not stop", process.name, process.pid);
    }
    if folder().exists() {
        fs::remove_dir_all(folder())?;
    }
    fs::remove_file(state_file())?;
    println!("Stopped.");
    Ok(())
}
