//! `sluice crds`: prints or writes the CustomResourceDefinitions of this build.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use crate::api::crd;

/// Arguments of `sluice crds`.
#[derive(Debug, clap::Args)]
pub(super) struct CrdsArgs {
    /// Write one file per definition into this directory instead of printing them.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

pub(super) fn run(args: &CrdsArgs) -> anyhow::Result<()> {
    let files = crd::all()?;
    let Some(folder) = &args.write else {
        let definitions = files.iter().filter(|(name, _)| name != "kustomization.yaml");
        let documents: Vec<&str> = definitions.map(|(_, text)| text.as_str()).collect();
        return print(&documents.join("---\n"));
    };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, text) in &files {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Writes text to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes()).context("standard output")
}
