//! The command line: the manager, the definitions, the simulation, the version.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks, starts tasks and waits")]

mod address;
mod args;
mod batch_pacing;
mod config_checks;
mod config_mapping;
mod core;
mod crds;
#[cfg(feature = "moments")]
mod failpoints;
mod listeners;
mod logs;
mod manager;
mod process_metrics;
mod settings;
mod simulate;
mod supervise;
mod threads;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Kueue-compatible quota scheduler for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller and its webhooks.
    Manager(Box<args::ManagerArgs>),
    /// Print the custom resource definitions, or write one file for each.
    Crds(crds::CrdsArgs),
    /// Say what a cluster would do with these manifests, or with a change, without touching any.
    Simulate(Box<simulate::SimulateArgs>),
    /// Print the version.
    Version,
}

/// Runs the program.
pub fn main() -> ExitCode {
    // First of all: the TLS stack asks for the provider at its first use, and its absence shows at run time only.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        print_error(&"a cryptography provider is installed already");
        return ExitCode::FAILURE;
    }
    let result = match Cli::parse().command {
        Command::Manager(args) => manager::start(*args).map(success),
        Command::Crds(args) => crds::run(&args).map(success),
        Command::Simulate(args) => simulate::run(&args),
        Command::Version => crds::print(&format!("sluice {}\n", env!("CARGO_PKG_VERSION"))).map(success),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            print_error(&format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn success(_: ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// Tells why the program ends. Logs may not be set up yet.
fn print_error(what: &dyn std::fmt::Display) {
    use std::io::Write;
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "sluice: {what}");
}
