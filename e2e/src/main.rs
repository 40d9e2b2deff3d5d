//! `sluice-e2e up | down | demo | conformance | draw | switch | third-party | operators | chart-test | bench`.

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use sluice_e2e::cluster::ClusterOptions;
use sluice_e2e::conformance::Recording;
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::objects::ObjectClient;
use sluice_e2e::part::Part;
use sluice_e2e::third_party::{Check, Limits, Manifest};
use sluice_e2e::{
    bench, chart, conformance, demo, draw, kubeconfig, operators, persistent_cluster, signals, switch,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs Sluice on a real control plane on this machine.
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
    /// Stop the cluster that `up` started.
    Down,
    /// Run a checked demonstration: quota, priorities, topology, node failures.
    Demo,
    /// Replay recorded scheduling decisions, API responses and job lifecycles of Kueue.
    Conformance {
        /// Only this recording; default: all.
        #[arg(long)]
        only: Option<Recording>,
        /// Only this suite; default: all.
        #[arg(long)]
        suite: Option<String>,
        /// Folder of cases, instead of the recorded ones.
        #[arg(long)]
        cases: Option<PathBuf>,
        /// Only one part of the suites of lives of jobs, as 1/3; default: all.
        #[arg(long, value_name = "K/N", value_parser = Part::parse)]
        part: Option<Part>,
        /// Number of differences to show per suite.
        #[arg(long, default_value_t = 0)]
        show: u32,
    },
    /// Draw scenarios by seed and print what a program decides, to compare two commits.
    Draw(draw::DrawRequest),
    /// Switch recorded clusters from Kueue in place.
    Switch {
        /// Version of Kueue; default: all.
        #[arg(long)]
        store: Option<String>,
        /// Direction.
        #[arg(long, value_enum, default_value = "to")]
        way: switch::Way,
    },
    /// Check the controller of another project against docs/third-party-workloads.md, on a cluster on which Sluice runs.
    ThirdParty(ThirdPartyArguments),
    /// Run jobs with the real operators of their kinds.
    Operators {
        /// Only kinds whose names contain this word; default: all.
        #[arg(long, default_value = "")]
        kind: String,
    },
    /// Render the Helm chart, and install, upgrade, roll back and uninstall it.
    ChartTest,
    /// Run a benchmark.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
}

#[derive(Args)]
struct ThirdPartyArguments {
    /// Manifest of a job with a queue name, and of what it needs. Its pods must run for some seconds.
    #[arg(long)]
    job: PathBuf,
    /// Kubeconfig of a user who may create namespaces and queues; default: that of `up`.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// A label of nodes on which the pods can run.
    #[arg(long, default_value = "kubernetes.io/os=linux")]
    node_label: String,
    /// Seconds for each reaction of the controller.
    #[arg(long, default_value_t = 30)]
    reaction: u64,
    /// Seconds in which the pods of a job end by themselves.
    #[arg(long, default_value_t = 600)]
    run: u64,
}

#[derive(Subcommand)]
enum Bench {
    /// Removing the gates of pods, compared with as many bare patches.
    Ungating {
        /// Number of pod groups.
        #[arg(long, default_value_t = 100)]
        groups: usize,
        /// Pods of a group.
        #[arg(long, default_value_t = 30)]
        size: usize,
        /// Jobs of a JobSet whose pods have a topology.
        #[arg(long, default_value_t = 30)]
        jobs: usize,
        /// Pods of each.
        #[arg(long, default_value_t = 100)]
        job_size: usize,
        /// `clientConnection.qps` of the manager; negative: no limit. Default: that of the shipped configuration.
        #[arg(long, allow_negative_numbers = true)]
        qps: Option<f64>,
        /// Controller binary; default: a release build of sluice.
        #[arg(long)]
        controller: Option<PathBuf>,
    },
    /// A burst of Jobs, compared with the API server alone.
    Burst {
        /// Number of Jobs.
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
    },
    /// Memory and startup time with 15,000 pending Workloads.
    Pending {
        /// Divide the number of Workloads by this.
        #[arg(long, default_value_t = 1)]
        divided: usize,
    },
    /// Startup time and memory in a cluster with many nodes and pods.
    Start {
        /// Number of nodes.
        #[arg(long, default_value_t = 4_000)]
        nodes: usize,
        /// Number of pods on them, without owner or queue.
        #[arg(long, default_value_t = 40_000)]
        pods: usize,
        /// Controller binary; default: a release build of sluice.
        #[arg(long)]
        controller: Option<PathBuf>,
    },
    /// Memory, CPU and start by number of Jobs and queues.
    Sizing {
        /// Numbers of pending Jobs, ascending.
        #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
        jobs: Vec<usize>,
        /// Numbers of queues.
        #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000])]
        queues: Vec<usize>,
    },
    /// Pages of the dashboard with many viewers, and what open pages cost; or what users cost who click what is simulated.
    Viewers {
        /// Number of pending Jobs; default: 100000, with `--clickers` 5000. At most 20000 are simulated for a page.
        #[arg(long)]
        jobs: Option<usize>,
        /// Number of queues; default: 1000, with `--clickers` 100.
        #[arg(long)]
        queues: Option<usize>,
        /// Number of viewers.
        #[arg(long, default_value_t = 50)]
        viewers: usize,
        /// Instead of viewers, so many users that ask when workloads start and what changes do, without pause.
        #[arg(long, default_value_t = 0)]
        clickers: usize,
        /// Pairs of phases without and with clickers, at least 3.
        #[arg(long, default_value_t = 3)]
        pairs: usize,
    },
    /// Latency of the webhooks.
    Webhooks {
        /// Reviews per second.
        #[arg(long, default_value_t = 1000)]
        rate: u32,
        /// Duration of the measurement in seconds.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// A load of Workloads that works with any Kueue-compatible controller.
    Load {
        /// baseline, large or tas.
        #[arg(long, default_value = "baseline")]
        scenario: String,
        /// Controller binary; default: a release build of sluice.
        #[arg(long)]
        controller: Option<PathBuf>,
        /// Divide the number of workloads by this.
        #[arg(long, default_value_t = 1)]
        divided: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    // On a signal the future is dropped, which stops every process it started.
    match signals::interruptible(run_command(Arguments::parse().command)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_command(command: Command) -> Result<()> {
    match command {
        Command::Up => persistent_cluster::up(&ClusterOptions::shown()).await,
        Command::Down => persistent_cluster::down(),
        Command::Demo => demo::run().await,
        Command::Conformance { only, suite, cases, part, show } => {
            let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
            let request = conformance::ConformanceRequest {
                only,
                suite: non_empty(suite),
                cases: non_empty_path(cases),
                part,
                show,
            };
            conformance::run(&request).await
        }
        Command::Draw(request) => draw::run(&request).await,
        Command::Switch { store, way } => {
            switch::run(store.as_deref().filter(|store| !store.is_empty()), way).await
        }
        Command::ThirdParty(arguments) => check_third_party(arguments).await,
        Command::Operators { kind } => operators::run(&kind).await,
        Command::ChartTest => chart::run().await,
        Command::Bench { what } => run_bench(what).await,
    }
}

async fn check_third_party(arguments: ThirdPartyArguments) -> Result<()> {
    let path = non_empty_path(arguments.kubeconfig).unwrap_or_else(persistent_cluster::kubeconfig);
    let client = kubeconfig::client(&path).await.with_context(|| path.display().to_string())?;
    let file = arguments.job.display().to_string();
    let manifest = std::fs::read_to_string(&arguments.job).with_context(|| file.clone())?;
    let (label, value) = arguments.node_label.split_once('=').context("--node-label needs KEY=VALUE")?;
    let check = Check {
        objects: ObjectClient::new(client),
        name: format!("third-party-{}", std::process::id()),
        manifest: Manifest::parse(&manifest).with_context(|| file.clone())?,
        node_label: (label.to_owned(), value.to_owned()),
        limits: Limits {
            reaction: Duration::from_secs(arguments.reaction),
            run: Duration::from_secs(arguments.run),
            quiet: Duration::from_secs(5),
        },
    };
    check.run().await
}

async fn run_bench(what: Bench) -> Result<()> {
    match what {
        Bench::Ungating { groups, size, jobs, job_size, qps, controller } => {
            let amounts = bench::ungating::Amounts { groups, size, jobs, job_size, qps };
            let folder = ControlPlane::temporary_folder();
            bench::ungating::run(&amounts, non_empty_path(controller), &folder).await.map(drop)
        }
        Bench::Burst { jobs } => bench::burst::run(jobs).await,
        Bench::Pending { divided } => bench::pending::run(divided).await,
        Bench::Start { nodes, pods, controller } => {
            bench::start::run(nodes, pods, non_empty_path(controller)).await
        }
        Bench::Sizing { jobs, queues } => bench::sizing::run(&jobs, &queues).await,
        Bench::Viewers { jobs, queues, viewers, clickers: 0, .. } => {
            bench::viewers::run(jobs.unwrap_or(100_000), queues.unwrap_or(1_000), viewers).await
        }
        Bench::Viewers { jobs, queues, clickers, pairs, .. } => {
            let (jobs, queues) = (jobs.unwrap_or(5_000), queues.unwrap_or(100));
            Box::pin(bench::clickers::run(&bench::clickers::Amounts { jobs, queues, clickers, pairs })).await
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

/// Treats an empty path (an unset make variable) as absent.
fn non_empty_path(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}
