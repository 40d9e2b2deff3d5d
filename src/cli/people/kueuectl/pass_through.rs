//! Verbs that kubectl does: this process becomes it, with the same arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::bail;

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
    let error = Command::new("kubectl").args(args.iter().skip(1)).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let path = std::env::var("PATH").unwrap_or_default();
        bail!(
            "pass-through command are not available: exec: \"kubectl\": executable file not found in $PATH, PATH={path:?}"
        );
    }
    bail!("kubectl: {error}")
}
