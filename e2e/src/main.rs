//! `sluice-e2e up | down | demo | conformance | bench`.

use anyhow::Result;
use clap::{Parser, Subcommand};
use sluice_e2e::cluster::Options;
use sluice_e2e::conformance::Recording;
use sluice_e2e::plane::Plane;
use sluice_e2e::{bench, conformance, demo, signals, standing};
use std::path::PathBuf;
use std::process::ExitCode;

/// A real control plane on this machine with Sluice on it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
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
    match signals::interruptible(act(Arguments::parse().verb)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn act(verb: Verb) -> Result<()> {
    match verb {
        Verb::Up => standing::up(&Options::default()).await,
        Verb::Down => standing::down(),
        Verb::Demo => demo::run().await,
        Verb::Conformance { only, suite, cases, show } => {
            let some = |text: Option<String>| text.filter(|text| !text.is_empty());
            let request = conformance::Request { only, suite: some(suite), cases: some_path(cases), show };
            conformance::run(&request).await
        }
        Verb::Bench { what } => measure(what).await,
    }
}

async fn measure(what: Bench) -> Result<()> {
    match what {
        Bench::Burst { jobs } => bench::burst::run(jobs).await,
        Bench::Pending { divided } => bench::pending::run(divided).await,
        Bench::Start { nodes, pods, controller } => {
            bench::start::run(nodes, pods, some_path(controller)).await
        }
        Bench::Webhooks { rate, seconds } => bench::webhooks::run(rate, seconds).await,
        Bench::Load { scenario, controller, divided } => {
            let scenario = bench::scenario::Scenario::named(&scenario)?.divided(divided);
            bench::run::run(&scenario, some_path(controller), &Plane::own_folder()).await.map(drop)
        }
    }
}

/// A path that says something.
fn some_path(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}
