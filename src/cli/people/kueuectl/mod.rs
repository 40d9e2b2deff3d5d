//! The command line of kueuectl: its verbs, flags, columns, texts and exit status.
//!
//! Exit codes: 0 success; 1 error. Differences are the corrections that docs/kueuectl.md lists.
//! Invariant: every write goes through `Writer`, so that `--dry-run` holds for every verb and kind.

mod activate;
pub(super) mod create;
mod delete;
mod errors;
mod flags;
mod list;
mod list_pods;
mod list_workloads;
mod pass_through;
mod queue_positions;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::connection::ConnectionArgs;
use crate::cli::tools::cluster_objects::block_on;

/// Controls Kueue queueing manager
#[derive(Debug, Parser)]
#[command(
    name = "kueuectl",
    disable_version_flag = true,
    disable_help_subcommand = true,
    args_override_self = true
)]
#[command(after_help = "Errors are printed as \"Error: ...\", and end with exit status 1.")]
pub(crate) struct Kueuectl {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a resource
    Create(create::CreateArgs),
    /// Resume the resource
    Resume(activate::ResumeArgs),
    /// Stop the resource
    Stop(activate::StopArgs),
    /// Display resources
    List(list::ListArgs),
    /// Display a resource
    Get(pass_through::KindArgs),
    /// Delete a resource
    Delete(delete::DeleteArgs),
    /// Edit a resource on the server
    Edit(pass_through::KindArgs),
    /// Show details of a resource
    Describe(pass_through::KindArgs),
    /// Update fields of a resource
    Patch(pass_through::KindArgs),
    /// Prints the client version and the kueue controller manager image, if installed
    Version(version::VersionArgs),
    /// Generate the autocompletion script for the specified shell
    Completion(super::completion::CompletionArgs),
}

/// Returns the command line, for completion.
pub(crate) fn command() -> clap::Command {
    Kueuectl::command()
}

/// Runs the command line.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let line = match Kueuectl::try_parse_from(args) {
        Ok(line) => line,
        Err(error) => return errors::print(&error, args),
    };
    let outcome = match line.verb {
        Verb::Get(_) | Verb::Edit(_) | Verb::Describe(_) | Verb::Patch(_) => pass_through::run(args),
        Verb::Delete(delete::DeleteArgs { kind }) => match kind {
            delete::DeleteKind::Workload(kind) => block_on(delete::run(&line.connection, &kind)),
            delete::DeleteKind::Clusterqueue(_)
            | delete::DeleteKind::Localqueue(_)
            | delete::DeleteKind::Resourceflavor(_) => pass_through::run(args),
        },
        Verb::Create(kind) => block_on(create::run(&line.connection, &kind)),
        Verb::Stop(kind) => block_on(activate::stop(&line.connection, &kind)),
        Verb::Resume(kind) => block_on(activate::resume(&line.connection, &kind)),
        Verb::List(kind) => block_on(list::run(&line.connection, kind.kind)),
        Verb::Version(version) => block_on(version::run(&line.connection, &version)),
        Verb::Completion(completion) => completion.print("kueuectl"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errors::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Kueuectl::command().debug_assert();
    }
}
