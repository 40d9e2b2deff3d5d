//! Files that commands write, or print instead.

use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Writes files at paths below a folder, which is created if it is missing.
pub(super) fn write(folder: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    for (file, text) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Writes text to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes()).context("standard output")
}
