//! `sluice crds`: prints or writes the CustomResourceDefinitions of this build.

use std::path::PathBuf;

use crate::api::crd;
use crate::cli::files;

/// Arguments of `sluice crds`.
#[derive(Debug, clap::Args)]
pub(crate) struct CrdsArgs {
    /// Write one file per definition into this directory instead of printing them.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Write the patches that add version v1beta1 to them instead.
    #[arg(long, requires = "write")]
    v1beta1: bool,
}

pub(crate) fn run(args: &CrdsArgs) -> anyhow::Result<()> {
    let all = if args.v1beta1 { crd::v1beta1::patches()? } else { crd::all()? };
    let Some(folder) = &args.write else {
        let definitions = all.iter().filter(|(name, _)| name != "kustomization.yaml");
        let documents: Vec<&str> = definitions.map(|(_, text)| text.as_str()).collect();
        return files::print(&documents.join("---\n"));
    };
    files::write(folder, &all)
}
