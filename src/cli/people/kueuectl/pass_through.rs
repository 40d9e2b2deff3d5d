//! Verbs of kubectl, with the same arguments.

use std::ffi::OsString;

use crate::cli::people::kubectl::become_kubectl;

/// A kind, and arguments of kubectl.
#[derive(Debug, clap::Args)]
pub(super) struct KindArgs {
    #[command(subcommand)]
    _kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Passed to kubectl
    #[command(aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(RestArgs),
    /// Passed to kubectl
    #[command(alias = "cq")]
    Clusterqueue(RestArgs),
    /// Passed to kubectl
    #[command(alias = "lq")]
    Localqueue(RestArgs),
    /// Passed to kubectl
    #[command(alias = "rf")]
    Resourceflavor(RestArgs),
}

/// Arguments that only kubectl reads.
#[derive(Debug, clap::Args)]
pub(super) struct RestArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

/// Runs kubectl with the arguments of this process; returns only if that fails.
pub(super) fn run(args: &[OsString]) -> anyhow::Result<()> {
    become_kubectl(args.iter().skip(1))
}
