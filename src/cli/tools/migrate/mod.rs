//! `sluice migrate`: checks a cluster that Kueue runs, and takes the steps from Kueue to Sluice and back.
//!
//! Whether a step is done follows from the cluster alone, so that a killed run can be repeated. Nothing is installed or
//! uninstalled: the command is printed for the owner of the installation, and the run waits for its effect.
//!
//! Exit codes: 0 done, or no obstacle; 1 error; 2 invalid command line; 4 an obstacle, or a step that is not done yet.
//! Invariant: no step deletes a definition, or an object of a kind that a definition defines.

#[cfg(test)]
mod fake_cluster;
mod inventory;
mod leftovers;
mod managers;
mod obstacles;
mod owner;
mod report;
mod rights;
mod schema;
mod steps;
#[cfg(test)]
mod tests;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::cluster_objects::block_on;
use crate::cli::files;
use crate::kube::client::{CallError, Caller, caller_from_kubeconfig};
use inventory::Inventory;
use rights::Access;
use steps::Direction;
use walk::Walk;

/// There is an obstacle, or a step is not done.
const EXIT_NOT_READY: u8 = 4;
/// Timeout of one call; a list of all Workloads takes the longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `sluice migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MigrateCommand {
    /// Report what a change to Sluice would meet; never writes to the cluster.
    Check(ClusterArgs),
    /// Change from Kueue to Sluice, step by step.
    ToSluice(StepArgs),
    /// Change from Sluice back to Kueue, step by step.
    ToKueue(StepArgs),
}

#[derive(Debug, clap::Args)]
struct ClusterArgs {
    /// Kubeconfig file of the cluster; default: the files that kubectl reads.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the manager.
    #[arg(short, long, value_name = "NAME", default_value = crate::cli::manager::settings::DEFAULT_NAMESPACE)]
    namespace: String,
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("mode").required(true).args(["dry_run", "yes"])))]
struct StepArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Print the steps that are due; never writes to the cluster.
    #[arg(long)]
    dry_run: bool,
    /// Do the steps.
    #[arg(long)]
    yes: bool,
    /// Seconds to wait for the effect of a command that is printed, and for an API server that does not answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
}

/// Returns whether a Deployment runs a manager, of either installation.
pub(super) fn runs_manager(deployment: &Value) -> bool {
    managers::installation_of_deployment(deployment).is_some()
}

pub(crate) fn run(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MigrateCommand::Check(cluster) => block_on(check(cluster)),
        MigrateCommand::ToSluice(steps) => block_on(walk(Direction::ToSluice, steps)),
        MigrateCommand::ToKueue(steps) => block_on(walk(Direction::ToKueue, steps)),
    }
}

async fn connect(args: &ClusterArgs) -> anyhow::Result<Caller> {
    let caller =
        caller_from_kubeconfig(args.kubeconfig.as_deref(), args.context.as_deref(), CALL_TIMEOUT).await;
    // Its text includes its causes.
    let caller = caller.map_err(|error| anyhow!("{error}; --kubeconfig and --context name the cluster"))?;
    match caller.get("/version").await {
        Ok(_) => Ok(caller),
        Err(error @ (CallError::Transport(_) | CallError::Timeout(_))) => {
            Err(error).context("no API server answers; --kubeconfig and --context name the cluster")
        }
        Err(error) => {
            Err(error).context("the API server refuses this user; --kubeconfig and --context name another")
        }
    }
}

/// Fails if the user lacks a right. The error names the rights and the commands that grant them.
async fn require_rights(caller: &Caller, namespace: &str, access: Access) -> anyhow::Result<()> {
    let missing =
        rights::missing(caller, namespace, access).await.context("cannot read this user's rights")?;
    if missing.is_empty() {
        return Ok(());
    }
    let report = rights::report(&missing, &rights::user(caller).await);
    bail!("rights are missing; nothing was changed\n  {}", report.join("\n  "))
}

async fn check(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    let caller = connect(args).await?;
    require_rights(&caller, &args.namespace, Access::Read).await?;
    let inventory = Inventory::read(&caller, &args.namespace).await?;
    let obstacles = obstacles::obstacles(&inventory);
    files::print(&report::text(&inventory, &obstacles))?;
    Ok(if obstacles.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_READY) })
}

async fn walk(direction: Direction, args: &StepArgs) -> anyhow::Result<ExitCode> {
    let caller = connect(&args.cluster).await?;
    let walk = Walk {
        caller: &caller,
        namespace: &args.cluster.namespace,
        timeout: Duration::from_secs(args.timeout),
        print: &files::print,
    };
    if args.dry_run {
        require_rights(&caller, walk.namespace, Access::Read).await?;
        let done = walk.preview(direction).await?;
        return Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_READY) });
    }
    require_rights(&caller, walk.namespace, Access::Change).await?;
    walk.take(direction).await?;
    Ok(ExitCode::SUCCESS)
}
