//! Flags that several verbs have.

use std::io::{IsTerminal, Write};

use anyhow::bail;
use serde_json::Value;

use super::failure::wrong_use;
use super::writing::DryRun;
use crate::cli::files;
use crate::people::object_text::name_text;
use crate::people::output::{ObjectFormat, Output, OutputOptions};

/// Formats of `-o` in the error about an unknown one.
const FORMATS: &str = "table, wide, csv (list, usage and audit), json, yaml, name, jsonpath=..., jsonpath-as-json=..., jsonpath-file=...";

/// How objects are printed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OutputArgs {
    /// Output format: table, wide, json, yaml, name, jsonpath=..., jsonpath-as-json=...
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub(crate) output: Option<String>,
    /// Print managed fields in JSON and YAML.
    #[arg(long, global = true)]
    pub(crate) show_managed_fields: bool,
}

impl OutputArgs {
    /// Whether the format is comma-separated values, which only lists, `usage` and `audit` print.
    pub(crate) fn is_csv(&self) -> bool {
        self.output.as_deref().is_some_and(|format| format.eq_ignore_ascii_case("csv"))
    }

    pub(crate) fn parsed(&self) -> anyhow::Result<Output> {
        if self.is_csv() {
            return Err(wrong_use("-o csv is a format of list, usage and audit"));
        }
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let options = OutputOptions { formats: Some(FORMATS), ..OutputOptions::default() };
        Output::parse(self.output.as_deref(), &options, read).map_err(wrong_use)
    }

    /// Returns the format of objects; `None` for lines about what was done.
    pub(crate) fn format(&self) -> anyhow::Result<Option<ObjectFormat>> {
        match self.parsed()? {
            Output::Default | Output::Wide => Ok(None),
            Output::Objects(format) => Ok(Some(format)),
            Output::GoTemplate => {
                Err(wrong_use("templates of Go are not supported: use -o jsonpath=... or -o json"))
            }
        }
    }
}

/// How a verb writes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WriteArgs {
    /// Write nothing: client sends nothing, server lets the server check; without a value client.
    #[arg(long, global = true, value_name = "none|client|server", num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none", hide_possible_values = true, value_parser = DryRun::parser())]
    pub(crate) dry_run: DryRun,
    /// Do not ask.
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl WriteArgs {
    /// Prints an object, or a line about what was done to it.
    pub(crate) fn print(&self, object: &Value, done: &str) -> anyhow::Result<()> {
        match self.output.format()? {
            Some(format) => files::print(
                &format.text(object, self.output.show_managed_fields).map_err(anyhow::Error::msg)?,
            ),
            None => files::print(&format!("{} {done}{}\n", name_text(object), self.dry_run.suffix())),
        }
    }

    /// Asks for confirmation, except in a dry run or with `--yes`. `what` is as in `delete 3 jobs`.
    pub(crate) fn confirm(&self, what: &str) -> anyhow::Result<bool> {
        if self.yes || self.dry_run != DryRun::None {
            return Ok(true);
        }
        if !std::io::stdin().is_terminal() {
            bail!("refusing to {what} without confirmation: use --yes");
        }
        let mut question = what.to_owned();
        if let Some(first) = question.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        // Not on standard output, which holds data only.
        write!(std::io::stderr(), "{question}? (y/n) ")?;
        Ok(answer()?.eq_ignore_ascii_case("y"))
    }
}

/// Reads the first word of a line.
pub(crate) fn answer() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Which Workloads a verb acts on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Workloads, or jobs as TYPE[.GROUP]/NAME.
    #[arg(value_name = "NAME|TYPE/NAME")]
    pub(crate) names: Vec<String>,
    /// All Workloads whose labels match.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "names")]
    pub(crate) selector: Option<String>,
    /// All Workloads of the namespace.
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// In all namespaces.
    #[arg(short = 'A', long, conflicts_with = "names")]
    pub(crate) all_namespaces: bool,
}

impl WorkloadArgs {
    /// Returns whether the flags may select several Workloads, so that the verb has to ask.
    pub(crate) fn is_bulk(&self) -> bool {
        self.names.len() != 1
    }
}
