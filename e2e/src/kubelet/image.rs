//! The root folder of an image with one program.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Writes a program and the libraries that it needs to `root`, as `/sluice`, with a link `/manager`.
pub fn write_root(program: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root)?;
    fs::copy(program, root.join("sluice")).with_context(|| program.display().to_string())?;
    symlink("/sluice", root.join("manager"))?;
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    ensure!(output.status.success(), "ldd {}", program.display());
    for line in String::from_utf8(output.stdout)?.lines() {
        let library = line.split_whitespace().find(|word| word.starts_with('/'));
        if let Some(library) = library {
            let target = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(target.parent().context("no folder")?)?;
            fs::copy(library, &target).with_context(|| library.to_owned())?;
        }
    }
    Ok(())
}
