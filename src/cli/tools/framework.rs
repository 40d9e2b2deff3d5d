//! Kinds of jobs that files describe: the flag that adds them to a process, and `sluice framework manifests`, which writes the
//! manifests that they need in a cluster.
//!
//! Invariant: files are read before anything else, so that no part of the process uses a table without them.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::files;
use crate::frameworks::{Framework, add_frameworks, components, framework_from_file};

/// The flag of each command that reads jobs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct FrameworkFileArgs {
    /// File that describes a further kind of jobs, which is then enabled; repeatable.
    #[arg(long, value_name = "FILE")]
    framework_file: Vec<PathBuf>,
}

impl FrameworkFileArgs {
    /// Adds the kinds to the table of the process.
    ///
    /// # Errors
    /// A file cannot be read or is refused, or its kind is known.
    pub(super) fn add(&self) -> anyhow::Result<()> {
        if self.framework_file.is_empty() {
            return Ok(());
        }
        let rows = self.framework_file.iter().map(|path| read(path).map(|(row, _)| row));
        add_frameworks(rows.collect::<anyhow::Result<_>>()?).context("--framework-file")
    }
}

fn read(path: &Path) -> anyhow::Result<(Framework, String)> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let row = framework_from_file(&text).with_context(|| path.display().to_string())?;
    Ok((row, text))
}

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
