//! `sluice simulate`: reads manifests and cluster objects, simulates them, and prints the report.
//!
//! Exit codes: 0 success; 1 the simulation failed; 2 invalid command line; 3 objects were skipped; 4 with
//! --fail-pending, a workload is still pending; 5 livelock.

mod changes;
mod inputs;
mod output;
mod run_times;

use std::io::{BufRead, BufWriter, Write};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::json;

use super::cluster_objects::{self, ClusterObjects, ClusterReader};
use crate::api::config::{self, LoadedConfiguration};
use crate::cache::Kind;
use crate::cli::framework_files::FrameworkFileArgs;
use crate::cli::manager::config_mapping;
use crate::cli::manager::settings;
use crate::simulate::{
    Changes, Dump, Edit, Manifests, Problem, Report, Scenario, SimulationOptions, SkippedResource,
    SourceLocation, Start, Until, Watched, WhatIf, replay,
};
use changes::ChangeArgs;
use run_times::RunTimeArgs;

/// Objects were skipped.
const EXIT_SKIPPED: u8 = 3;
/// A workload is still pending, with --fail-pending.
const EXIT_PENDING: u8 = 4;
/// Livelock: only further evictions were happening.
const EXIT_LIVELOCK: u8 = 5;
/// Default start time. Constant, so that the same files give the same output.
const DEFAULT_START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Arguments of `sluice simulate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0: success; 1: error, nothing was simulated; 2: invalid command line; 3: objects were \
skipped (listed with reasons on standard error); 4: a workload is still pending (with --fail-pending); 5: livelock, \
only further evictions were happening (without --until DURATION).\n\
Annotations of objects: sluice.dev/run-for: 10m, sluice.dev/exit-code: \"1\", sluice.dev/ready-after: 1m, \
sluice.dev/terminate-after: 30s, sluice.dev/arrives-after: 1h."
)]
pub(crate) struct SimulateArgs {
    /// Manifests in YAML or JSON: files, directories, or - for standard input. A file of `sluice dump` also has the
    /// start time and the configuration.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Start with the objects of a cluster, read with the user's kubeconfig; never writes to the cluster.
    #[arg(long)]
    from_cluster: bool,
    /// Kubeconfig file of the cluster; default: the files that kubectl reads.
    #[arg(long, value_name = "FILE", requires = "from_cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME", requires = "from_cluster")]
    context: Option<String>,
    #[command(flatten)]
    changes: ChangeArgs,
    /// Print only what happens to this workload or job, such as job/train; repeatable.
    #[arg(long, value_name = "KIND/NAME", value_parser = Watched::parse)]
    watch_for: Vec<Watched>,
    #[command(flatten)]
    run_times: RunTimeArgs,
    /// Stop when stable (settled) or after this much simulated time.
    #[arg(long, value_name = "settled|DURATION", value_parser = until, default_value = "settled")]
    until: Until,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Maximum number of history lines in tables; 0 shows all.
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    history: usize,
    /// Exit with status 4 if any workload is still pending.
    #[arg(long)]
    fail_pending: bool,
    #[command(flatten)]
    manager: SimulatedManagerArgs,
    /// Namespace of objects without a namespace.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// Start time; default: now at the API server of a cluster, the newest creation time for files, else 2026-01-01.
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Read recorded scenarios from standard input, one JSON document per line, and write one outcome per line; an
    /// invalid scenario yields an `error`.
    #[arg(long, conflicts_with_all = ["paths", "from_cluster", "change", "watch_for", "run_times"])]
    jsonl: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Human-readable tables.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Parses the end of a simulation: `settled` or a duration.
pub(in crate::cli) fn until(text: &str) -> Result<Until, String> {
    if text == "settled" {
        return Ok(Until::Settled);
    }
    let length = config::Duration::parse_length(text).map(Until::After);
    length.ok_or_else(|| "must be settled, or a duration such as 90s, 10m or 1h30m".to_owned())
}

/// Settings of the manager that is simulated.
#[derive(Debug, clap::Args)]
struct SimulatedManagerArgs {
    /// Configuration file of the manager; default: built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    framework_files: FrameworkFileArgs,
    /// Feature gates as NAME=true,…; cannot be combined with featureGates in the configuration.
    #[arg(long, value_name = "LIST")]
    feature_gates: Option<String>,
}

pub(in crate::cli) use changes::{borrow, lend, quota};
pub(in crate::cli) use inputs::read as read_manifests;

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    args.manager.framework_files.add()?;
    if args.jsonl {
        let all_replayed = replay_lines()?;
        return Ok(if all_replayed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SKIPPED) });
    }
    if args.paths.is_empty() && !args.from_cluster {
        bail!("nothing to simulate: pass files, directories, - for standard input, or --from-cluster");
    }
    // The parser checks the values of a flag one by one, so it cannot refuse a pair.
    let refuse =
        |fault| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{fault}\n")).exit();
    let edits = args.changes.edits().unwrap_or_else(refuse);
    let report = simulate(args, edits)?;
    for problem in &report.problems {
        crate::cli::print_error(problem);
    }
    if report.end.livelocked {
        crate::cli::print_error(
            &"livelock detected: workloads only evict each other; use --until DURATION to continue",
        );
    }
    Ok(if report.end.livelocked {
        ExitCode::from(EXIT_LIVELOCK)
    } else if !report.problems.is_empty() {
        ExitCode::from(EXIT_SKIPPED)
    } else if args.fail_pending && !report.pending.is_empty() {
        ExitCode::from(EXIT_PENDING)
    } else {
        ExitCode::SUCCESS
    })
}

/// Reads the inputs, runs the simulation and returns the report.
fn simulate(args: &SimulateArgs, edits: Vec<Edit>) -> anyhow::Result<Report> {
    let mut manifests = Manifests::default();
    for path in &args.paths {
        inputs::read(path, &args.namespace, &mut manifests)?;
    }
    let dump = manifests.dump.take();
    if dump.is_some() && args.from_cluster {
        bail!("--from-cluster: a dump is the state of a cluster too; pass one of the two");
    }
    args.run_times.check(args.from_cluster)?;
    let loaded = load_configuration(args, dump.as_ref())?;
    for warning in &loaded.warnings {
        crate::cli::print_error(&format_args!("configuration: {warning}"));
    }
    let configuration = loaded.configuration;
    let own_namespace =
        configuration.namespace.clone().unwrap_or_else(|| settings::DEFAULT_NAMESPACE.to_owned());
    let core = config_mapping::core_settings(&configuration, &own_namespace);
    let changes = args.changes.read(&args.namespace, edits)?;
    let cluster_objects = if args.from_cluster { Some(read_cluster(args, &core.kinds())?) } else { None };
    let connect = async || cluster_objects::caller(args.kubeconfig.as_deref(), args.context.as_deref()).await;
    let recorded = args.run_times.read(connect)?;
    let current_time = || cluster_objects.as_ref().map(|(_, time)| *time);
    let options = SimulationOptions {
        start: args
            .now
            .or_else(current_time)
            .or_else(|| dump.map(|dump| dump.time))
            .or_else(|| manifests.newest_creation_time())
            .unwrap_or(DEFAULT_START),
        run_for: args.run_times.default_length(),
        recorded,
        admission: config_mapping::admission_settings(&configuration, &own_namespace),
        core,
    };
    let (stored, skipped) =
        cluster_objects.map(|(cluster, _)| (cluster.objects, cluster.skipped)).unwrap_or_default();
    let problems = skipped.into_iter().map(skipped_problem).collect();
    report(args, Start { options, stored, problems, manifests }, changes)
}

/// Returns the problem of a kind that could not be read.
pub(in crate::cli) fn skipped_problem(skipped: SkippedResource) -> Problem {
    Problem {
        location: SourceLocation { file: Arc::from("cluster"), line: 0 },
        subject: skipped.resource,
        reason: format!("skipped: {}", skipped.reason),
    }
}

/// Runs the simulation, prints what the command line asks for, and returns the report.
fn report(args: &SimulateArgs, start: Start, changes: Changes) -> anyhow::Result<Report> {
    if args.changes.compare {
        let (namespace, watched) = (args.namespace.clone(), args.watch_for.clone());
        let asked = WhatIf { changes, namespace, until: args.until, watched };
        let (comparison, report) = asked.compare(start, None)?;
        output::print_comparison(&comparison, args)?;
        return Ok(report);
    }
    // Not dropped: the process exits soon, and freeing thousands of objects takes time.
    let mut simulation = ManuallyDrop::new(start.simulation(None).map_err(anyhow::Error::msg)?);
    changes.check(&simulation, &args.namespace, &args.watch_for).map_err(anyhow::Error::msg)?;
    changes.apply(&mut simulation, &args.namespace).map_err(anyhow::Error::msg)?;
    simulation.run(args.until);
    let watched = args.watch_for.iter().map(|watched| simulation.watched(watched, &args.namespace));
    let watched: Vec<String> =
        watched.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::msg)?.into_iter().flatten().collect();
    let report = simulation.report();
    if args.watch_for.is_empty() {
        output::print(&report, args)?;
    } else {
        output::print_watched(&report.only(&watched), args)?;
    }
    Ok(report)
}

/// Loads the configuration of the command line, else that of the dump, else the defaults.
fn load_configuration(args: &SimulateArgs, dump: Option<&Dump>) -> anyhow::Result<LoadedConfiguration> {
    let gates = args.manager.feature_gates.as_deref();
    let dumped = dump.and_then(|dump| dump.configuration.clone()).filter(|_| args.manager.config.is_none());
    match dumped {
        Some(document) => {
            settings::checked("configuration of the dump", settings::with_gates(document, gates)?)
        }
        None => settings::configuration(args.manager.config.as_deref(), gates),
    }
}

/// Reads the objects of the cluster, and then the time there.
fn read_cluster(args: &SimulateArgs, kinds: &[Kind]) -> anyhow::Result<(ClusterObjects, Timestamp)> {
    let read = async {
        let cluster = ClusterReader::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let objects = cluster.objects(kinds).await?;
        anyhow::Ok((objects, cluster.time().await))
    };
    cluster_objects::block_on(read).context("--from-cluster")
}

/// Replays recorded scenarios from standard input; returns whether all succeeded. The outcome of a failed scenario is
/// an error with the reason; the following scenarios are still replayed.
fn replay_lines() -> anyhow::Result<bool> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let mut all_replayed = true;
    for (number, line) in std::io::stdin().lock().split(b'\n').enumerate() {
        let line = line.context("standard input")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match Scenario::parse(&line).and_then(|scenario| replay(&scenario)) {
            Ok(outcome) => serde_json::to_writer(&mut output, &outcome),
            Err(error) => {
                all_replayed = false;
                crate::cli::print_error(&format_args!("standard input, line {}: {error}", number + 1));
                serde_json::to_writer(&mut output, &json!({"error": error.to_string()}))
            }
        }
        .map_err(std::io::Error::from)
        .and_then(|()| output.write_all(b"\n"))
        .context("standard output")?;
    }
    output.flush().context("standard output")?;
    Ok(all_replayed)
}
