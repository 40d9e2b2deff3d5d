//! `sluice config check`: prints the effective settings of a configuration file before the manager reads it.
//!
//! Invariant: the manager starts with each file that it accepts; both load it by `settings`, and use the same words. It refuses
//! what the manager refuses, and also unknown names of feature gates, of which the manager only warns: before a file is used,
//! such a name can be corrected.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;

use crate::api::config::{self, ConfigError, InForce, LoadedConfiguration};
use crate::cli::files;
use crate::cli::framework_files::FrameworkFileArgs;
use crate::cli::manager::settings;
use crate::frameworks::known_frameworks;

/// Widest value that determines the width of its column; wider values, such as long lists, shift the rest of the line.
const MAX_COLUMN: usize = 48;
/// Origin of a setting that the file has.
const FILE: &str = "file";

/// Arguments of `sluice config`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print errors and warnings of a file, and each setting and feature gate in force; exits with 1 if the file is refused.
    Check(CheckArgs),
}

/// Arguments of `sluice config check`.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Configuration file; - for standard input.
    file: PathBuf,
    /// Feature gates as NAME=true,…, as given to the manager.
    #[arg(long, value_name = "LIST")]
    feature_gates: Option<String>,
    #[command(flatten)]
    framework_files: FrameworkFileArgs,
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Check(args) = &args.command;
    args.framework_files.add()?;
    let is_input = args.file == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { args.file.display().to_string() };
    let text = read(&args.file).with_context(|| name.clone())?;
    let (report, accepted) = match check(&text, args.feature_gates.as_deref())? {
        Ok((_, loaded)) if !loaded.unknown_gates.is_empty() => {
            (refused(&name, &ConfigError::of_unknown_gates(loaded)), ExitCode::FAILURE)
        }
        Ok((document, loaded)) => {
            let gates_from = if args.feature_gates.is_some() { "flag" } else { FILE };
            (accepted(&name, &document, &loaded, gates_from), ExitCode::SUCCESS)
        }
        Err(error) => (refused(&name, &error), ExitCode::FAILURE),
    };
    files::print(&report)?;
    Ok(accepted)
}

fn read(file: &Path) -> std::io::Result<String> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

/// Loads a file as the manager does. The outer error is one of the command line.
fn check(
    text: &str,
    gates: Option<&str>,
) -> anyhow::Result<Result<(Value, LoadedConfiguration), ConfigError>> {
    let document = match config::read(text) {
        Ok(document) => settings::with_gates(document, gates)?,
        Err(error) => return Ok(Err(error)),
    };
    Ok(config::load(document.clone(), &known_frameworks()).map(|loaded| (document, loaded)))
}

fn refused(name: &str, error: &ConfigError) -> String {
    let errors = error.reasons().iter().map(|reason| format!("error: {reason}\n"));
    let found = problems(errors, error.warnings());
    let (errors, warnings) = (count(error.reasons(), "error"), count(error.warnings(), "warning"));
    format!("{found}{name} is refused: {errors}, {warnings}\n")
}

/// `gates_from` is the origin of feature gates that are set.
fn accepted(name: &str, document: &Value, loaded: &LoadedConfiguration, gates_from: &str) -> String {
    let settings = config::settings_in_force(document, &loaded.configuration);
    let gates = config::gates_in_force(&loaded.configuration);
    format!(
        "{}{}\n{}\n{name} is valid: {}\n",
        problems(std::iter::empty(), &loaded.warnings),
        table("SETTING", &settings, FILE),
        table("FEATURE GATE", &gates, gates_from),
        count(&loaded.warnings, "warning")
    )
}

fn problems(errors: impl Iterator<Item = String>, warnings: &[String]) -> String {
    let lines: String =
        errors.chain(warnings.iter().map(|warning| format!("warning: {warning}\n"))).collect();
    if lines.is_empty() { lines } else { format!("{lines}\n") }
}

fn count(problems: &[String], word: &str) -> String {
    let plural = if problems.len() == 1 { "" } else { "s" };
    format!("{} {word}{plural}", problems.len())
}

fn table(head: &str, rows: &[InForce], set_by: &str) -> String {
    let origin = |row: &InForce| if row.is_set { set_by } else { "default" };
    let cells = rows.iter().map(|row| [row.name, row.value.as_str(), origin(row), row.remark.as_str()]);
    let all: Vec<[&str; 4]> = std::iter::once([head, "VALUE", "FROM", "REMARK"]).chain(cells).collect();
    let widths = |column: usize| all.iter().filter_map(move |row| row.get(column)).map(|c| c.chars().count());
    let name = widths(0).max().unwrap_or_default();
    let value = widths(1).filter(|width| *width <= MAX_COLUMN).max().unwrap_or_default();
    let line = |[first, second, from, remark]: &[&str; 4]| {
        let line = format!("{first:name$}  {second:value$}  {from:7}  {remark}");
        format!("{}\n", line.trim_end())
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
