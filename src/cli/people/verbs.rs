//! The verbs for people.

use std::ffi::OsString;
use std::process::ExitCode;

use super::completion::CompletionArgs;
use super::kubectl::{self, KubectlArgs};
use super::{activate, create, delete, failure, history, move_workload, reading, reprioritize, what_if};
use crate::cli::tools::cluster_objects::block_on;

/// A verb.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PeopleVerb {
    /// List Workloads, queues, cohorts or flavors
    List(Box<reading::list::ListArgs>),
    /// Say why a Workload waits, and what would change that
    #[command(alias = "explain")]
    Why(Box<reading::why::WhyArgs>),
    /// Show the tree of cohorts with quota and usage
    Tree(Box<reading::quota::TreeArgs>),
    /// Show the shares by which fair sharing decides
    Share(Box<reading::quota::ShareArgs>),
    /// Show what is free, and the largest gang that fits
    Capacity(Box<reading::capacity::CapacityArgs>),
    /// Show hours of quota by queue, namespace or other groups
    Usage(Box<reading::usage::UsageArgs>),
    /// Find configurations that cannot do what they say
    Audit(Box<reading::audit::AuditArgs>),
    /// Show the state of the manager
    Status(Box<reading::status::StatusArgs>),
    /// Show Workloads or queues on the whole terminal, read again and again
    Top(Box<reading::top::TopArgs>),
    /// Show an object: its spec, why it waits or its quota, conditions and events; other kinds by kubectl
    #[command(disable_help_flag = true)]
    Describe(KubectlArgs),
    /// Print objects, by kubectl
    #[command(disable_help_flag = true)]
    Get(KubectlArgs),
    /// Edit an object, by kubectl
    #[command(disable_help_flag = true)]
    Edit(KubectlArgs),
    /// Change fields of an object, by kubectl
    #[command(disable_help_flag = true)]
    Patch(KubectlArgs),
    /// Create a ClusterQueue, LocalQueue or ResourceFlavor
    Create(Box<create::CreateArgs>),
    /// Stop queues or Workloads
    Stop(Box<activate::StopArgs>),
    /// Resume queues or Workloads
    Resume(Box<activate::ResumeArgs>),
    /// Give Workloads another LocalQueue
    Move(Box<move_workload::MoveArgs>),
    /// Give Workloads another priority class
    Reprioritize(Box<reprioritize::ReprioritizeArgs>),
    /// Delete the jobs of Workloads
    Delete(Box<delete::DeleteArgs>),
    /// Purge the durable record
    History(Box<history::HistoryArgs>),
    /// Say what a change would do: what starts earlier or later, is evicted, or stays stuck
    WhatIf(Box<what_if::WhatIfArgs>),
    /// Print the completion script of a shell
    Completion(CompletionArgs),
    /// Print the manual page of a verb, or write all
    Man(super::manual::ManArgs),
    /// List the flags for the cluster and the user, which most verbs have
    Options,
    /// Print candidates for the last word
    #[command(name = super::completion::ASK, hide = true, disable_help_flag = true)]
    Complete {
        /// Words after the name of the program.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

/// Runs a verb. `command` is the whole command line, for completion.
pub(crate) fn run(verb: PeopleVerb, command: impl FnOnce() -> clap::Command) -> ExitCode {
    let outcome = match verb {
        PeopleVerb::List(args) => block_on(reading::list::run(&args)),
        PeopleVerb::Why(args) => block_on(reading::why::run(&args)),
        PeopleVerb::Tree(args) => block_on(reading::quota::tree(&args)),
        PeopleVerb::Share(args) => block_on(reading::quota::share(&args)),
        PeopleVerb::Capacity(args) => block_on(reading::capacity::run(&args)),
        PeopleVerb::Usage(args) => block_on(reading::usage::run(&args)),
        PeopleVerb::Audit(args) => block_on(reading::audit::run(&args)),
        PeopleVerb::Status(args) => block_on(reading::status::run(&args)),
        PeopleVerb::Top(args) => block_on(reading::top::run(&args)),
        PeopleVerb::Describe(args) => reading::describe::run(&args),
        PeopleVerb::Get(args) => kubectl::hand_over("get", &args),
        PeopleVerb::Edit(args) => kubectl::hand_over("edit", &args),
        PeopleVerb::Patch(args) => kubectl::hand_over("patch", &args),
        PeopleVerb::Create(args) => block_on(create::run(&args)),
        PeopleVerb::Stop(args) => block_on(activate::stop(&args)),
        PeopleVerb::Resume(args) => block_on(activate::resume(&args)),
        PeopleVerb::Move(args) => block_on(move_workload::run(&args)),
        PeopleVerb::Reprioritize(args) => block_on(reprioritize::run(&args)),
        PeopleVerb::Delete(args) => block_on(delete::run(&args)),
        PeopleVerb::History(args) => block_on(history::run(&args)),
        PeopleVerb::WhatIf(args) => block_on(what_if::run(&args)),
        PeopleVerb::Completion(args) => args.print("sluice").map(|()| ExitCode::SUCCESS),
        PeopleVerb::Man(args) => super::manual::run(&args, command()),
        PeopleVerb::Options => super::help::print_options().map(|()| ExitCode::SUCCESS),
        PeopleVerb::Complete { words } => return super::complete(command(), Some(&words)),
    };
    outcome.unwrap_or_else(|error| failure::print_error(&error))
}
