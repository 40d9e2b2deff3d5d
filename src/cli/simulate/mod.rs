//! `sluice simulate`: reads what there is, prints what would come of it.
//!
//! Exit codes: 0 done; 1 nothing could be simulated; 2 the command line is wrong; 3 done, but objects were left out; 4 done,
//! but with --fail-pending somebody waits.

mod cluster;
mod inputs;

use std::io::{BufRead, BufWriter, Write};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::args::duration;
use super::{config_mapping, settings};
use crate::api::config;
use crate::simulate::{Manifests, Report, Scenario, Simulation, SimulationOptions, Until, replay};

/// Objects were left out.
const EXIT_SKIPPED: u8 = 3;
/// Somebody waits, and must not.
const EXIT_PENDING: u8 = 4;
/// What happens would never end.
const EXIT_LIVELOCK: u8 = 5;
/// The time at the start when nothing else says one: with it, the same files give the same output.
const DEFAULT_START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Arguments of `sluice simulate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 done; 1 nothing could be simulated; 2 wrong command line; 3 done, but objects were \
left out (standard error says which and why); 4 done, but somebody is pending (--fail-pending); 5 given up, because \
nothing but evictions was to be expected (without --until DURATION).\n\
Annotations of objects: sluice.dev/run-for: 10m, sluice.dev/exit-code: \"1\", sluice.dev/ready-after: 1m, \
sluice.dev/terminate-after: 30s, sluice.dev/arrives-after: 1h."
)]
pub(super) struct SimulateArgs {
    /// Manifests in YAML or JSON: files, folders, or - for standard input.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Begin with what a cluster holds: read only, with the user's own kubeconfig.
    #[arg(long)]
    from_cluster: bool,
    /// Kubeconfig of that cluster; else those that kubectl reads.
    #[arg(long, value_name = "FILE", requires = "from_cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME", requires = "from_cluster")]
    context: Option<String>,
    /// Manifests to apply on top when everything has settled; may be repeated. Fields that they leave out stay.
    #[arg(long, value_name = "PATH")]
    then: Vec<PathBuf>,
    /// How long pods run that carry no annotation sluice.dev/run-for; for ever when absent.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    run_for: Option<Duration>,
    /// When to end: settled, or after a duration.
    #[arg(long, value_name = "settled|DURATION", value_parser = until, default_value = "settled")]
    until: Until,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Lines of history in tables; 0 shows all.
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    history: usize,
    /// Exit with 4 when somebody is pending in the end.
    #[arg(long)]
    fail_pending: bool,
    /// The manager's configuration file; defaults apply without it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Feature gates as NAME=true,…; not together with featureGates in the configuration.
    #[arg(long, value_name = "LIST")]
    feature_gates: Option<String>,
    /// Namespace of objects that do not name one.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// The time at the start; else now for a cluster, for files the newest creation time in them, or 2026-01-01.
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Read recorded scenarios from standard input, one JSON document per line, and write one outcome per line: for a bad
    /// scenario an `error`.
    #[arg(long, conflicts_with_all = ["paths", "from_cluster", "then"])]
    jsonl: bool,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Tables for people.
    Table,
    /// One JSON document.
    Json,
    /// The same as YAML.
    Yaml,
}

fn until(text: &str) -> Result<Until, String> {
    if text == "settled" {
        return Ok(Until::Settled);
    }
    let length = config::Duration::parse(text).map(config::Duration::signed);
    let length = length.filter(|length| !length.is_negative()).map(Until::After);
    length.ok_or_else(|| "must be settled, or a duration such as 90s, 10m or 1h30m".to_owned())
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if args.jsonl {
        let all = replay_lines()?;
        return Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SKIPPED) });
    }
    if args.paths.is_empty() && !args.from_cluster {
        bail!("nothing to simulate: name files, folders or - for standard input, or give --from-cluster");
    }
    let report = simulate(args)?;
    print(&report, args)?;
    for problem in &report.problems {
        super::print_error(problem);
    }
    if report.end.livelocked {
        super::print_error(
            &"nothing but evictions is to be expected: --until DURATION says how long to go on",
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

/// Everything between the arguments and the report.
fn simulate(args: &SimulateArgs) -> anyhow::Result<Report> {
    let loaded = settings::configuration(args.config.as_deref(), args.feature_gates.as_deref())?;
    for warning in &loaded.warnings {
        super::print_error(&format_args!("configuration: {warning}"));
    }
    let configuration = loaded.configuration;
    let own = configuration.namespace.clone().unwrap_or_else(|| settings::DEFAULT_NAMESPACE.to_owned());
    let core = config_mapping::core_settings(&configuration, &own);
    let mut manifests = Manifests::default();
    for path in &args.paths {
        inputs::read(path, &args.namespace, &mut manifests)?;
    }
    let mut changes = Vec::new();
    for path in &args.then {
        let mut change = Manifests::default();
        inputs::read(path, &args.namespace, &mut change)?;
        changes.push((path.display().to_string(), change));
    }
    let found = if args.from_cluster {
        Some(cluster::read(args.kubeconfig.as_deref(), args.context.as_deref(), &core.kinds())?)
    } else {
        None
    };
    let today = || found.as_ref().map(|_| Timestamp::now());
    let options = SimulationOptions {
        start: args.now.or_else(today).or_else(|| manifests.newest_creation_time()).unwrap_or(DEFAULT_START),
        run_for: args.run_for.map(|length| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX)),
        admission: config_mapping::admission_settings(&configuration, &own),
        core,
    };
    // The process ends soon: taking thousands of objects apart before is for nothing.
    let mut simulation = ManuallyDrop::new(Simulation::new(options).map_err(anyhow::Error::msg)?);
    if let Some(found) = found {
        found.problems.into_iter().for_each(|problem| simulation.add_problem(problem));
        // Workloads after the jobs that own them.
        found.objects.into_iter().for_each(|(kind, object)| simulation.load_stored(kind, object));
    }
    simulation.apply_all(manifests);
    for (what, change) in changes {
        simulation.run_until_stable();
        simulation.apply_change(&what, change);
    }
    simulation.run(args.until);
    Ok(simulation.report())
}

fn print(report: &Report, args: &SimulateArgs) -> anyhow::Result<()> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let history = if args.history == 0 { usize::MAX } else { args.history };
    match args.output {
        Output::Table => output.write_all(report.tables(history).as_bytes()),
        Output::Json => {
            serde_json::to_writer_pretty(&mut output, report).context("standard output")?;
            output.write_all(b"\n")
        }
        Output::Yaml => {
            let text = serde_saphyr::to_string(report).context("standard output")?;
            output.write_all(text.as_bytes())
        }
    }
    .and_then(|()| output.flush())
    .context("standard output")
}

/// Recorded scenarios from standard input; answers whether all of them could be replayed. One that cannot be has an outcome
/// with the reason in its place, and those after it are replayed like any others.
fn replay_lines() -> anyhow::Result<bool> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let mut all = true;
    for (number, line) in std::io::stdin().lock().split(b'\n').enumerate() {
        let line = line.context("standard input")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        match Scenario::parse(&line).and_then(|scenario| replay(&scenario)) {
            Ok(outcome) => serde_json::to_writer(&mut output, &outcome),
            Err(error) => {
                all = false;
                super::print_error(&format_args!("standard input, line {}: {error}", number + 1));
                serde_json::to_writer(&mut output, &json!({"error": error.to_string()}))
            }
        }
        .map_err(std::io::Error::from)
        .and_then(|()| output.write_all(b"\n"))
        .context("standard output")?;
    }
    output.flush().context("standard output")?;
    Ok(all)
}
