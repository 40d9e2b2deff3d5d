//! `sluice-e2e up | down | demo | conformance | bench`.

use anyhow::Result;
use clap::{Parser, Subcommand};
use sluice_e2e::cluster::ClusterOptions;
use sluice_e2e::conformance::Recording;
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::{bench, conformance, demo, persistent_cluster, signals};
use std::path::PathBuf;
use std::process::ExitCode;

/// A real control plane on this machine with Sluice on it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster and leave it running.
    Up,
    /// Stop the cluster that `up` left.
    Down,
    /// Show the main job, and check it.
    Demo,
    /// Replay recorded decisions, API answers and lives of jobs.
    Conformance {
        /// One of the three.
        #[arg(long)]
        only: Option<Recording>,
        /// One suite instead of all.
        #[arg(long)]
        suite: Option<String>,
        /// Another folder of cases.
        #[arg(long)]
        cases: Option<PathBuf>,
        /// Differences to show per suite.
        #[arg(long, default_value_t = 0)]
        show: u32,
    },
    /// Measure.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// A burst of Jobs, and the API server alone.
    Burst {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
    },
    /// Memory and start with 15,000 pending Workloads.
    Pending {
        /// So many times fewer Workloads.
        #[arg(long, default_value_t = 1)]
        divided: usize,
    },
    /// Start in a cluster of many nodes and pods.
    Start {
        /// Nodes.
        #[arg(long, default_value_t = 4_000)]
        nodes: usize,
        /// Pods on them, of nobody.
        #[arg(long, default_value_t = 40_000)]
        pods: usize,
        /// The controller's binary; ours, built for it, otherwise.
        #[arg(long)]
        controller: Option<PathBuf>,
    },
    /// Latency of the webhooks.
    Webhooks {
        /// Reviews a second.
        #[arg(long, default_value_t = 1000)]
        rate: u32,
        /// For how long.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// A load that any controller can be put under.
    Load {
        /// baseline or large.
        #[arg(long, default_value = "baseline")]
        scenario: String,
        /// The controller's binary; ours, built for it, otherwise.
        #[arg(long)]
        controller: Option<PathBuf>,
        /// So many times fewer workloads.
        #[arg(long, default_value_t = 1)]
        divided: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    // What runs is dropped, and with it every process, whether it ends or is interrupted.
    match signals::interruptible(run_command(Arguments::parse().command)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_command(verb: Command) -> Result<()> {
    match verb {
        Command::Up => persistent_cluster::up(&ClusterOptions::default()).await,
        Command::Down => persistent_cluster::down(),
        Command::Demo => demo::run().await,
        Command::Conformance { only, suite, cases, show } => {
            let some = |text: Option<String>| text.filter(|text| !text.is_empty());
            let request = conformance::ConformanceRequest {
                only,
                suite: some(suite),
                cases: non_empty_path(cases),
                show,
            };
            conformance::run(&request).await
        }
        Command::Bench { what } => run_bench(what).await,
    }
}

async fn run_bench(what: Bench) -> Result<()> {
    match what {
        Bench::Burst { jobs } => bench::burst::run(jobs).await,
        Bench::Pending { divided } => bench::pending::run(divided).await,
        Bench::Start { nodes, pods, controller } => {
            bench::start::run(nodes, pods, non_empty_path(controller)).await
        }
        Bench::Webhooks { rate, seconds } => bench::webhooks::run(rate, seconds).await,
        Bench::Load { scenario, controller, divided } => {
            let scenario = bench::scenario::Scenario::by_name(&scenario)?.scaled_down(divided);
            bench::run::run(&scenario, non_empty_path(controller), &ControlPlane::temporary_folder())
                .await
                .map(drop)
        }
    }
}

/// A path that says something.
fn non_empty_path(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}
