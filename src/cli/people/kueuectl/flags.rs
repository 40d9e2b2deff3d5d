//! Flags that several verbs of kueuectl have.

use anyhow::bail;
use serde_json::Value;

use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::writing::DryRun;
use crate::people::output::{ObjectFormat, Output, OutputOptions, unknown_format};

/// Objects of a page without `KUEUECTL_LIST_REQUEST_LIMIT`.
const DEFAULT_PAGE: i64 = 100;

/// How objects are printed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PrintArgs {
    /// Output format: json, yaml, name, jsonpath=..., jsonpath-as-json=..., jsonpath-file=...
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<String>,
    /// Template of -o jsonpath.
    #[arg(long)]
    template: Option<String>,
    /// Print managed fields in JSON and YAML.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    show_managed_fields: bool,
    /// Print nothing for fields that an object lacks.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_parser = go_bool, action = clap::ArgAction::Set)]
    allow_missing_template_keys: bool,
}

impl PrintArgs {
    /// Returns the format of objects; `None` for a table, or a line about what was done.
    pub(super) fn format(&self) -> anyhow::Result<Option<ObjectFormat>> {
        match self.parsed()? {
            Output::Default => Ok(None),
            Output::Objects(format) => Ok(Some(format)),
            Output::Wide => bail!(unknown_format("wide")),
            Output::GoTemplate => bail!("templates of Go are not supported: use jsonpath, or kubectl get"),
        }
    }

    /// Returns the format, which may be a wide table.
    pub(super) fn parsed(&self) -> anyhow::Result<Output> {
        if self.output.as_deref() == Some("table") {
            bail!(unknown_format("table"));
        }
        let options = OutputOptions {
            template: self.template.clone(),
            fail_on_missing: !self.allow_missing_template_keys,
            formats: None,
        };
        let read = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| format!("error reading --template {path}, {error}"))
        };
        Output::parse(self.output.as_deref(), &options, read).map_err(anyhow::Error::msg)
    }

    pub(super) fn shows_managed_fields(&self) -> bool {
        self.show_managed_fields
    }

    /// Prints an object, or a line about what was done to it.
    pub(super) fn print(&self, object: &Value, done: &str, dry_run: DryRun) -> anyhow::Result<()> {
        if let Some(format) = self.format()? {
            files::print(&format.text(object, self.show_managed_fields).map_err(anyhow::Error::msg)?)
        } else {
            // The line of a verb without such a word has two blanks before the strategy, as in kueuectl.
            let done = format!("{done}{}", dry_run.suffix());
            let name = crate::people::object_text::name_text(object);
            files::print(&if done.is_empty() { format!("{name}\n") } else { format!("{name} {done}\n") })
        }
    }
}

/// Whether something is written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DryRunArgs {
    /// Must be "none", "server", or "client": client prints the object that would be sent; server sends it, and nothing is stored.
    #[arg(long, global = true, default_value = "none", value_name = "STRATEGY", hide_possible_values = true, value_parser = Closed::words(|| vec!["none", "client", "server"]))]
    dry_run: String,
}

impl DryRunArgs {
    pub(super) fn strategy(&self) -> anyhow::Result<DryRun> {
        DryRun::parse(&self.dry_run).map_err(anyhow::Error::msg)
    }
}

/// The objects of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SelectorArgs {
    /// Label selector; supports '=', '==' and '!='.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
    /// Field selector; supports '=', '==' and '!='.
    #[arg(long, value_name = "SELECTOR")]
    pub(super) field_selector: Option<String>,
    /// Arguments that kueuectl accepts and ignores.
    #[arg(hide = true)]
    ignored: Vec<String>,
}

/// All namespaces.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AllNamespacesArgs {
    /// List the objects of all namespaces; the namespace of the context or of --namespace is ignored.
    #[arg(short = 'A', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = go_bool, action = clap::ArgAction::Set)]
    pub(super) all_namespaces: bool,
}

impl AllNamespacesArgs {
    /// Returns the namespace; `None` for all.
    pub(super) fn namespace<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (!self.all_namespaces).then_some(namespace)
    }

    /// Returns the message for an empty list.
    pub(super) fn nothing(&self, namespace: &str) -> String {
        if self.all_namespaces {
            "No resources found".to_owned()
        } else {
            format!("No resources found in {namespace} namespace.")
        }
    }
}

/// Reads a truth value as Go does.
pub(super) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// Returns the number of objects of a page.
pub(super) fn page_size() -> anyhow::Result<i64> {
    match std::env::var("KUEUECTL_LIST_REQUEST_LIMIT") {
        Ok(text) if !text.is_empty() => {
            text.parse().map_err(|_| anyhow::Error::msg("invalid list request limit"))
        }
        _ => Ok(DEFAULT_PAGE),
    }
}

/// Returns the only argument.
pub(super) fn one_argument(given: &[String]) -> anyhow::Result<&str> {
    match given {
        [name] if name.is_empty() => bail!("name must be specified"),
        [name] => Ok(name),
        _ => bail!("accepts 1 arg(s), received {}", given.len()),
    }
}
