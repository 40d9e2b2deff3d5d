//! Kinds of jobs that files describe: the flag that adds them to a process.
//!
//! Invariant: files are read before anything else, so that no part of the process uses a table without them.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::frameworks::{Framework, add_frameworks, framework_from_file};

/// The flag of each command that reads jobs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FrameworkFileArgs {
    /// File that describes a further kind of jobs, which is then enabled; repeatable.
    #[arg(long, value_name = "FILE")]
    framework_file: Vec<PathBuf>,
}

impl FrameworkFileArgs {
    /// Adds the kinds to the table of the process.
    ///
    /// # Errors
    /// A file cannot be read or is refused, or its kind is known.
    pub(crate) fn add(&self) -> anyhow::Result<()> {
        if self.framework_file.is_empty() {
            return Ok(());
        }
        let rows = self.framework_file.iter().map(|path| read(path).map(|(row, _)| row));
        add_frameworks(rows.collect::<anyhow::Result<_>>()?).context("--framework-file")
    }
}

/// Reads a file. Returns the row of its kind, and the text.
pub(crate) fn read(path: &Path) -> anyhow::Result<(Framework, String)> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let row = framework_from_file(&text).with_context(|| path.display().to_string())?;
    Ok((row, text))
}
