//! `sluice migrate`: what a cluster that Kueue runs has, and the steps from Kueue to Sluice and back.
//!
//! Each step says from the cluster alone whether it is done, so that a run that was killed is repeated. Nothing is installed or
//! uninstalled: the command is printed for the owner of the installation, and the run waits for its effect.
//!
//! Exit codes: 0 done, or nothing stands in the way; 1 error; 2 invalid command line; 4 something stands in the way, or a step is not
//! done yet.
//! Invariant: no step deletes a definition, or an object of a kind that a definition defines.

mod inventory;
mod leftovers;
mod owner;
mod report;
mod schema;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use super::cluster_objects::block_on;
use super::files;
use crate::kube::client::{Caller, caller_from_kubeconfig};
use inventory::Inventory;
use steps::{Change, Direction, State};

/// Something stands in the way, or a step is not done.
const EXIT_NOT_READY: u8 = 4;
/// Timeout of one call; a list of all Workloads takes longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at the cluster while a command of the user takes effect.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A step that is done so often and is not done has another writer against it.
const MAX_ATTEMPTS: usize = 5;

/// Arguments of `sluice migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct MigrateArgs {
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
    #[arg(short, long, value_name = "NAME", default_value = super::settings::DEFAULT_NAMESPACE)]
    namespace: String,
}

#[derive(Debug, clap::Args)]
struct StepArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Print the steps that are due; never writes to the cluster.
    #[arg(long, conflicts_with = "yes", required_unless_present = "yes")]
    dry_run: bool,
    /// Do the steps.
    #[arg(long)]
    yes: bool,
    /// Seconds to wait for the effect of a command that is printed.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    timeout: u64,
}

pub(super) fn run(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MigrateCommand::Check(cluster) => block_on(check(cluster)),
        MigrateCommand::ToSluice(steps) => block_on(walk(Direction::ToSluice, steps)),
        MigrateCommand::ToKueue(steps) => block_on(walk(Direction::ToKueue, steps)),
    }
}

async fn connect(args: &ClusterArgs) -> anyhow::Result<Caller> {
    Ok(caller_from_kubeconfig(args.kubeconfig.as_deref(), args.context.as_deref(), CALL_TIMEOUT).await?)
}

async fn check(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    let caller = connect(args).await?;
    let inventory = Inventory::read(&caller, &args.namespace).await?;
    let obstacles = steps::obstacles(&inventory);
    files::print(&report::text(&inventory, &obstacles))?;
    Ok(if obstacles.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_READY) })
}

async fn walk(direction: Direction, args: &StepArgs) -> anyhow::Result<ExitCode> {
    let caller = connect(&args.cluster).await?;
    let steps = steps::of(direction);
    let (mut done, count) = (true, steps.len());
    for (position, step) in steps.iter().enumerate() {
        let title = format!("step {} of {count}, {}", position + 1, step.title);
        if args.dry_run {
            let inventory = Inventory::read(&caller, &args.cluster.namespace).await?;
            let state = (step.state)(&inventory);
            done &= matches!(state, State::Done);
            print_state(&title, &state)?;
            if matches!(state, State::Refused(_)) {
                break;
            }
        } else {
            take(&caller, args, &title, step.state).await?;
        }
    }
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_READY) })
}

/// Does one step, or waits until a user has.
async fn take(
    caller: &Caller,
    args: &StepArgs,
    title: &str,
    state: fn(&Inventory) -> State,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(args.timeout);
    let (mut attempts, mut asked) = (0, false);
    loop {
        let inventory = Inventory::read(caller, &args.cluster.namespace).await?;
        let state = state(&inventory);
        match &state {
            State::Done => return print_state(title, &state),
            State::Refused(_) => {
                print_state(title, &state)?;
                bail!("{title}: refused");
            }
            State::Changes(changes) => {
                if attempts == MAX_ATTEMPTS {
                    bail!(
                        "{title}: still due after {attempts} attempts: something else writes the same objects"
                    );
                }
                print_state(title, &state)?;
                for change in changes {
                    make(caller, change).await.with_context(|| format!("{title}: {}", change.what))?;
                }
                attempts += 1;
            }
            State::Command { waits_for, .. } => {
                if !asked {
                    print_state(title, &state)?;
                    asked = true;
                }
                if tokio::time::Instant::now() > deadline {
                    bail!("{title}: after {} s still waiting for {waits_for}", args.timeout);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Makes one change. What is gone already needs none.
async fn make(caller: &Caller, change: &Change) -> anyhow::Result<()> {
    match caller.call(change.verb.clone(), &change.path, change.content, change.body.as_ref()).await {
        Err(error) if error.code() == Some(inventory::NOT_FOUND) => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

fn print_state(title: &str, state: &State) -> anyhow::Result<()> {
    let text = match state {
        State::Done => format!("{title}: done\n"),
        State::Refused(reasons) => format!("{title}: refused\n{}", indented(reasons)),
        State::Changes(changes) => {
            let lines: Vec<String> = changes.iter().map(|change| change.what.clone()).collect();
            format!("{title}\n{}", indented(&lines))
        }
        State::Command { lines, waits_for } => {
            format!("{title}: run this\n{}  waiting for {waits_for}\n", indented(lines))
        }
    };
    files::print(&text)
}

fn indented(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + "  " + line + "\n")
}
