//! Runs programs; an error contains what the program printed.

use anyhow::{Context as _, Result, ensure};
use std::process::Command;

/// Runs a program and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let result = command.output().with_context(|| format!("cannot run {name}"))?;
    let errors = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{name} failed ({}): {}", result.status, errors.trim());
    String::from_utf8(result.stdout).with_context(|| format!("{name} printed text that is not UTF-8"))
}

/// Runs a program that prints its progress.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}
