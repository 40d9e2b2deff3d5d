//! `sluice framework manifests`: writes the manifests that a kind of jobs needs in a cluster if a file describes it.

use std::path::PathBuf;

use anyhow::Context;

use crate::cli::files;
use crate::cli::framework_files::read;
use crate::frameworks::{add_frameworks, components};

/// Arguments of `sluice framework`.
#[derive(Debug, clap::Args)]
pub(crate) struct FrameworkArgs {
    #[command(subcommand)]
    command: FrameworkCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FrameworkCommand {
    /// Print the webhooks and permissions of a kind of jobs that a file describes, or write them as a Kustomize component.
    Manifests(ManifestsArgs),
}

/// Arguments of `sluice framework manifests`.
#[derive(Debug, clap::Args)]
struct ManifestsArgs {
    /// File that describes the kind.
    file: PathBuf,
    /// Write the component into this directory instead of printing its files.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

pub(crate) fn run(args: &FrameworkArgs) -> anyhow::Result<()> {
    let FrameworkCommand::Manifests(args) = &args.command;
    let (row, text) = read(&args.file)?;
    let component = components::files_of(&row, &text);
    // Refuses a built-in kind, whose manifests are shipped already.
    add_frameworks(vec![row]).with_context(|| args.file.display().to_string())?;
    let Some(folder) = &args.write else {
        let texts: Vec<String> =
            component.iter().map(|(file, text)| format!("# File {file}\n{text}")).collect();
        return files::print(&texts.join("---\n"));
    };
    files::write(folder, &component)
}
