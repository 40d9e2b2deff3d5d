//! The command line interface: subcommands `manager`, `config`, `crds`, `simulate`, `dump`, `framework`, `import`,
//! `migrate` and `version`.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks, starts tasks and waits")]

mod entry;
mod files;
mod framework_files;
pub mod manager;
mod names;
mod people;
mod query;
mod terminal;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::kube::cryptography;
use crate::metrics::build;
use entry::FlagsBefore;
use names::Grammar;

pub use names::links;

/// Kueue-compatible quota scheduler for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "sluice", version = build::describe(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller and its webhooks.
    Manager(Box<manager::args::ManagerArgs>),
    /// Work with configuration files of the manager.
    Config(tools::config::ConfigArgs),
    /// Print the CustomResourceDefinitions, or write one file for each.
    Crds(tools::crds::CrdsArgs),
    /// Simulate scheduling of manifests, or of a change to a cluster, without modifying anything.
    Simulate(Box<tools::simulate::SimulateArgs>),
    /// Write the state of a cluster as manifests that `simulate` loads; never writes to the cluster.
    Dump(tools::dump::DumpArgs),
    /// Work with kinds of jobs that files describe.
    Framework(tools::framework::FrameworkArgs),
    /// Give pods that run without a Workload one that is admitted.
    Import(tools::import::ImportArgs),
    /// Change a cluster from Kueue to Sluice, or back, and report what a change would meet.
    Migrate(tools::migrate::MigrateArgs),
    /// Print version, commit and date.
    Version,
    #[command(flatten)]
    People(people::PeopleVerb),
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Must come first: the TLS stack reads the provider at its first use, and panics if it is missing.
    cryptography::install();
    let args: Vec<OsString> = std::env::args_os().collect();
    let grammar = Grammar::of(args.first().map(OsString::as_os_str));
    match grammar {
        Grammar::Kueuectl => return people::run_kueuectl(&args),
        Grammar::CompleteKueuectl => return people::complete(people::kueuectl::command(), args.get(1..)),
        Grammar::CompletePlugin => return people::complete(Cli::command(), args.get(1..)),
        Grammar::Sluice | Grammar::Plugin | Grammar::Manager => {}
    }
    let is_subcommand = |word: &str| Cli::command().find_subcommand(word).is_some();
    let before = |word: &str| FlagsBefore::of(&Cli::command(), word);
    let line = match grammar {
        Grammar::Manager => args,
        _ => entry::flags_last(args, &people::connection_flags(), before),
    };
    let line = match grammar {
        Grammar::Plugin => line,
        _ => entry::command_line(line, is_subcommand),
    };
    let result = match parsed(grammar, &line).command {
        Command::Manager(args) => manager::run::start(*args).map(success),
        Command::Config(args) => tools::config::run(&args),
        Command::Crds(args) => tools::crds::run(&args).map(success),
        Command::Simulate(args) => tools::simulate::run(&args),
        Command::Dump(args) => tools::dump::run(&args),
        Command::Framework(args) => tools::framework::run(&args).map(success),
        Command::Import(args) => tools::import::run(&args),
        Command::Migrate(args) => tools::migrate::run(&args),
        Command::People(verb) => return people::run(verb, Cli::command),
        Command::Version => files::print(&format!("sluice {}\n", build::describe())).map(success),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            print_error(&people::error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// Parses the command line. As a plugin of kubectl the program has the name that users type, and no verb for the manager.
fn parsed(grammar: Grammar, line: &[OsString]) -> Cli {
    let mut command = Cli::command();
    if grammar == Grammar::Plugin {
        command = command
            .name("kubectl sluice")
            .bin_name("kubectl sluice")
            .mut_subcommand("manager", |manager| manager.hide(true));
    }
    let command = people::help::add(command);
    let matches = command.clone().try_get_matches_from(line);
    let matches = matches.unwrap_or_else(|error| {
        let error = people::suggestions::with_suggestion(error, command.find_subcommand("list"), line);
        people::help::wrapped(error).exit()
    });
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn success(_: ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// Prints an error to standard error, because logs may not be set up yet.
fn print_error(what: &dyn std::fmt::Display) {
    use std::io::Write;
    // If standard error is closed, the error cannot be reported.
    let _ = writeln!(std::io::stderr(), "sluice: {what}");
}
