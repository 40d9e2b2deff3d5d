//! `sluice what-if`: what a change would do to a cluster, from two simulations in this process.
//!
//! Invariants: nothing is written to the cluster; without the kinds on which decisions depend there is no answer.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::SignedDuration;

use super::connection::ConnectionArgs;
use super::failure::{EXIT_PARTIAL, wrong_use};
use super::note;
use super::offline::simulated::{self, SimulatedObjects};
use super::reading::TableArgs;
use crate::api::config;
use crate::cache::Kind;
use crate::cli::files;
use crate::cli::tools::simulate::{borrow, lend, quota, skipped_problem, until};
use crate::people::text_table::printable;
use crate::people::views::{self, Look};
use crate::simulate::{
    Changes, Comparison, Edit, Manifest, Manifests, SimulationOptions, SkippedResource, Start, Until, WhatIf,
};

/// Livelock: only further evictions were happening.
const EXIT_LIVELOCK: u8 = 5;
/// Largest file of `--submit`, in bytes: a larger one is no list of jobs that a user is about to submit.
const MAX_FILE: u64 = 8 << 20;
/// Most objects of one file of `--submit`.
const MAX_OBJECTS: usize = 10_000;
/// Kinds without which a simulation decides otherwise than the cluster.
const DECISIVE: [&str; 5] = ["clusterqueues", "localqueues", "cohorts", "resourceflavors", "workloads"];

/// Arguments of `what-if`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).required(true))]
pub(crate) struct WhatIfArgs {
    #[command(flatten)]
    nodes: NodeChanges,
    /// Set a nominal quota of a ClusterQueue or, with cohort/NAME, of a Cohort; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = quota)]
    quota: Vec<Edit>,
    /// Set a borrowing limit, or remove it with none; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = borrow)]
    borrow: Vec<Edit>,
    /// Set a lending limit, or remove it with none; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = lend)]
    lend: Vec<Edit>,
    #[command(flatten)]
    jobs: JobChanges,
    /// Run time of pods without the sluice.dev/run-for annotation; default: never finish.
    #[arg(long, value_name = "DURATION", value_parser = run_time)]
    run_for: Option<SignedDuration>,
    /// Stop when stable (settled) or after this much simulated time.
    #[arg(long, value_name = "settled|DURATION", value_parser = until, default_value = "settled")]
    until: Until,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Changes of nodes.
#[derive(Debug, clap::Args)]
struct NodeChanges {
    /// Add this number of nodes, each like the one that --like names.
    #[arg(long, value_name = "N", group = "change", requires = "like", allow_negative_numbers = true, value_parser = Edit::node_count)]
    add_nodes: Option<usize>,
    /// Node of which the added ones have the labels, taints and amounts; each has a hostname of its own.
    #[arg(long, value_name = "NODE", requires = "add_nodes")]
    like: Option<String>,
    /// Remove a node, as after it was drained; repeatable.
    #[arg(long, value_name = "NODE", group = "change", value_parser = drain)]
    drain: Vec<Edit>,
}

/// Changes of jobs and queues.
#[derive(Debug, clap::Args)]
struct JobChanges {
    /// Give a workload or a job another priority: the name of a WorkloadPriorityClass or a number, job/train=300; repeatable.
    #[arg(long, value_name = "KIND/NAME=CLASS", group = "change", value_parser = Edit::reprioritized)]
    priority: Vec<Edit>,
    /// Stop a queue and what it runs, a workload or a job: cq/nlp, job/train; repeatable.
    #[arg(long, value_name = "KIND/NAME", group = "change", value_parser = Edit::stopped)]
    stop: Vec<Edit>,
    /// Delete a job, or the job of a workload; repeatable.
    #[arg(long, value_name = "KIND/NAME", group = "change", value_parser = Edit::deleted)]
    delete: Vec<Edit>,
    /// Submit the jobs of a file, or of standard input with -; repeatable.
    #[arg(long, value_name = "FILE", group = "change")]
    submit: Vec<PathBuf>,
}

fn drain(value: &str) -> Result<Edit, String> {
    Edit::drained_node("--drain", value)
}

fn run_time(text: &str) -> Result<SignedDuration, String> {
    config::Duration::parse_length(text)
        .ok_or_else(|| "must be a duration such as 90s, 10m or 1h30m".to_owned())
}

pub(super) async fn run(args: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let session = args.table.connect_to_objects(&args.connection).await?;
    let changes = args.changes(&session.namespace)?;
    let SimulatedObjects { objects, skipped, options, has_default_configuration } =
        simulated::read(&session).await?;
    check_readable(&skipped)?;
    let look = args.table.look(options.start);
    let start = Start {
        options: SimulationOptions { run_for: args.run_for, ..options },
        stored: objects,
        problems: skipped.into_iter().map(skipped_problem).collect(),
        manifests: Manifests::default(),
    };
    let namespace = session.namespace.clone();
    let asked = WhatIf { changes, namespace, until: args.until, watched: Vec::new() };
    let (mut comparison, report) = asked.compare(start, None)?;
    if has_default_configuration {
        let text = "the manager has its built-in configuration, as its own cannot be read";
        comparison.assumptions.push(text.to_owned());
    }
    args.print(&comparison, look)?;
    for problem in &report.problems {
        note(&printable(&format!("note: {problem}")));
    }
    Ok(if report.end.livelocked {
        note("note: livelock: workloads only evict each other; use --until DURATION to continue");
        ExitCode::from(EXIT_LIVELOCK)
    } else if report.problems.is_empty() {
        session.ended(ExitCode::SUCCESS)
    } else {
        ExitCode::from(EXIT_PARTIAL)
    })
}

impl WhatIfArgs {
    /// Returns the changes, with the files of jobs read.
    fn changes(&self, namespace: &str) -> anyhow::Result<Changes> {
        let nodes = &self.nodes;
        let mut edits = Vec::new();
        if let (Some(count), Some(like)) = (nodes.add_nodes, &nodes.like) {
            let edit = Edit::added_nodes(count, like);
            edits.push(edit.map_err(|fault| wrong_use(format!("--like {like}: {fault}")))?);
        }
        let jobs = &self.jobs;
        for more in
            [&nodes.drain, &self.quota, &self.borrow, &self.lend, &jobs.priority, &jobs.stop, &jobs.delete]
        {
            edits.extend(more.iter().cloned());
        }
        let files = jobs.submit.iter().map(|path| submitted(path, namespace));
        Ok(Changes { files: files.collect::<anyhow::Result<_>>()?, edits })
    }

    fn print(&self, comparison: &Comparison, look: Look) -> anyhow::Result<()> {
        if let Some(format) = self.table.format()? {
            let value = serde_json::to_value(comparison)?;
            return files::print(&format.text(&value, true).map_err(anyhow::Error::msg)?);
        }
        files::print(&views::what_if(comparison, look))
    }
}

/// Returns an error if kinds could not be read on which every decision depends.
fn check_readable(skipped: &[SkippedResource]) -> anyhow::Result<()> {
    let decisive = skipped.iter().filter(|skipped| DECISIVE.contains(&skipped.resource.as_str()));
    let decisive: Vec<&SkippedResource> = decisive.collect();
    let Some(first) = decisive.first() else { return Ok(()) };
    let names: Vec<&str> = decisive.iter().map(|skipped| skipped.resource.as_str()).collect();
    bail!(
        "cannot list {} in the whole cluster, which what-if simulates: {}\nthe command is for accounts that may list {} of all namespaces: ask an administrator\nothers may ask the page /what-if of the dashboard about the jobs of a namespace, within its bounds",
        names.join(", "),
        first.reason,
        DECISIVE.join(", ")
    )
}

/// Reads the jobs of a file. Returns its name and its manifests.
fn submitted(path: &Path, namespace: &str) -> anyhow::Result<(String, Manifests)> {
    let flag = format!("--submit {}", path.display());
    let refused = |fault: String| Err(wrong_use(format!("{flag}: {fault}")));
    let mut bytes = Vec::new();
    let limit = MAX_FILE.saturating_add(1);
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.with_context(|| flag.clone())?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE {
        return refused(format!("the file is larger than {} MiB", MAX_FILE >> 20));
    }
    let Ok(text) = String::from_utf8(bytes) else { return refused("the file is not UTF-8".to_owned()) };
    let mut manifests = Manifests::default();
    manifests.parse(&path.display().to_string(), text.trim_start_matches('\u{feff}'), namespace);
    let objects = manifests.objects.len();
    if objects > MAX_OBJECTS {
        return refused(format!("{objects} objects are too many: at most {MAX_OBJECTS} are simulated"));
    }
    if manifests.dump.is_some() {
        return refused("a dump is a state to start with, not a change: use --source".to_owned());
    }
    let is_job = |manifest: &Manifest| matches!(manifest.kind, Kind::Workload | Kind::Job(_) | Kind::Pod);
    if manifests.problems.is_empty() && !manifests.objects.iter().any(is_job) {
        let others = manifests.not_managed.iter().map(|why| format!("; {why}"));
        return refused(format!("the file has no job{}", others.collect::<String>()));
    }
    for why in &manifests.not_managed {
        note(&printable(&format!("note: {flag}: {why}")));
    }
    Ok((flag, manifests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        what_if: WhatIfArgs,
    }

    fn parsed(line: &str) -> Result<WhatIfArgs, String> {
        let words = ["what-if"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.what_if).map_err(|error| error.to_string())
    }

    #[test]
    fn bad_values_are_named_with_their_flags() {
        for (line, named) in [
            ("", "--add-nodes <N>"),
            ("--like h1", "--add-nodes <N>"),
            ("--add-nodes 2", "--like <NODE>"),
            ("--add-nodes 0 --like h1", "'0' for '--add-nodes <N>': a number from 1 to 5000 is expected"),
            ("--add-nodes -1 --like h1", "'-1' for '--add-nodes <N>': a number from 1 to 5000 is expected"),
            ("--add-nodes 1000000 --like h1", "'1000000' for '--add-nodes <N>': a number from 1 to 5000"),
            ("--drain cq/nlp", "'cq/nlp' for '--drain <NODE>'"),
            ("--drain H1", "'H1' for '--drain <NODE>': \"H1\" is no name"),
            ("--quota q:f=1", "'q:f=1' for '--quota <QUEUE:FLAVOR:RESOURCE=QUANTITY>'"),
            ("--delete cq/nlp", "'cq/nlp' for '--delete <KIND/NAME>'"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn an_account_without_a_decisive_right_learns_which_one_may_ask() {
        let skipped = |resource: &str| SkippedResource {
            resource: resource.to_owned(),
            reason: format!("{resource} is forbidden"),
        };
        let error = check_readable(&[skipped("nodes"), skipped("workloads")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot list workloads in the whole cluster, which what-if simulates: workloads is forbidden\n\
             the command is for accounts that may list clusterqueues, localqueues, cohorts, resourceflavors, workloads of all \
             namespaces: ask an administrator\n\
             others may ask the page /what-if of the dashboard about the jobs of a namespace, within its bounds"
        );
        assert!(check_readable(&[skipped("nodes")]).is_ok());
    }

    #[test]
    fn changes_are_made_in_the_order_of_the_help() {
        let args = parsed("--delete job/a --drain h1 --quota q:f:cpu=1 --add-nodes 2 --like h2").unwrap();
        let changes = args.changes("ns").unwrap();
        let texts: Vec<&str> = changes.edits.iter().map(Edit::text).collect();
        assert_eq!(texts, ["--add-nodes 2 --like h2", "--drain h1", "--quota q:f:cpu=1", "--delete job/a"]);
    }

    #[test]
    fn files_that_are_too_large_or_have_no_job_are_refused() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("sluice-submit-{}.yaml", std::process::id()));
        let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n---\n";
        for (text, named) in [
            (job.repeat(10_001), "10001 objects are too many"),
            ("#".repeat(10 << 20), "the file is larger than 8 MiB"),
            (
                "apiVersion: sluice.dev/v1\nkind: Dump\ntime: 2026-11-26T14:00:00Z\nversion: x\n".to_owned(),
                "use --source",
            ),
            ("\n".to_owned(), "the file has no job"),
            ("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n".to_owned(), "the file has no job"),
            (
                "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x, labels: {kueue.x-k8s.io/queue-name: q}}\n"
                    .to_owned(),
                "the file has no job; CronJob ns/x: ",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = submitted(&path, "ns").unwrap_err().to_string();
            assert!(error.starts_with(&format!("--submit {}: ", path.display())), "{error}");
            assert!(error.contains(named), "{error}");
        }
        std::fs::write(&path, job).unwrap();
        assert_eq!(submitted(&path, "ns").unwrap().1.objects.len(), 1);
        std::fs::remove_file(&path).unwrap();
        let missing = submitted(&path, "ns").unwrap_err();
        assert!(
            format!("{missing:#}").contains("--submit") && format!("{missing:#}").contains("No such file")
        );
    }
}
