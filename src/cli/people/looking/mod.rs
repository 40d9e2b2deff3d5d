//! Verbs that look: a request to the aggregated API, its views, and their text.
//!
//! Invariant: the text comes from `people::views` alone; JSON is what the server answers, so that both say the same.

pub(super) mod audit;
pub(super) mod capacity;
pub(super) mod list;
pub(super) mod quota;
pub(super) mod status;
pub(super) mod why;

use std::fmt::Write as _;
use std::io::IsTerminal;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::args::OutputArgs;
use super::connection::Session;
use super::note;
use super::pages::encoded;
use crate::cli::files;
use crate::kube::client::CallError;
use crate::people::output::{ObjectFormat, Output};
use crate::people::views::Look;

/// Path of the group's version.
const GROUP: &str = "/apis/visibility.sluice.dev/v1alpha1";
/// Rows of a page, the most that the server answers.
const PAGE: usize = 500;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;
const UNAVAILABLE: u16 = 503;

/// How tables look.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct TableArgs {
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print no headings.
    #[arg(long, global = true)]
    no_headers: bool,
    /// Colours: auto on a terminal without NO_COLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl TableArgs {
    /// Returns how texts look on this terminal.
    pub(super) fn look(&self) -> Look {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default().to_lowercase();
        let is_plain = variable("NO_COLOR").is_some() || variable("TERM").is_none_or(|name| name == "dumb");
        Look {
            utf8: locale.contains("utf-8") || locale.contains("utf8"),
            color: match self.color {
                ColorChoice::Auto => is_terminal && !is_plain,
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
            width: variable("COLUMNS").filter(|_| is_terminal).and_then(|width| width.parse().ok()),
            headings: !self.no_headers,
            wide: matches!(self.output.parsed(), Ok(Output::Wide)),
            now: Timestamp::now(),
        }
    }

    /// Prints the answer in a format of objects, or the text that `text` makes of it.
    pub(super) fn print<T: DeserializeOwned>(
        &self,
        answer: &Value,
        text: impl FnOnce(T, Look) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        match self.format()? {
            Some(format) => files::print(&format.text(answer, true).map_err(anyhow::Error::msg)?),
            None => files::print(&text(read(answer)?, self.look())?),
        }
    }

    pub(super) fn format(&self) -> anyhow::Result<Option<ObjectFormat>> {
        self.output.format()
    }
}

/// Reads an answer as views.
pub(super) fn read<T: DeserializeOwned>(answer: &Value) -> anyhow::Result<T> {
    serde_path_to_error::deserialize(answer)
        .context("the server's answer cannot be read: it may be of another version")
}

/// Asks the group for a path below its version.
pub(super) async fn ask(session: &Session, path: &str, what: &str) -> anyhow::Result<Value> {
    match session.caller.get(&format!("{GROUP}/{path}")).await {
        Ok(answer) => Ok(answer),
        Err(CallError::Status { code: FORBIDDEN, message, .. }) => Err(anyhow!(
            "cannot read {what}: {message}\nbind ClusterRole sluice-namespace-viewer, or sluice-cluster-viewer for the whole cluster"
        )),
        Err(CallError::Status { code: UNAVAILABLE, message, .. }) => {
            bail!("the visibility API does not answer (503: {message})")
        }
        Err(error) if error.code() == Some(NOT_FOUND) => match session.caller.get(GROUP).await {
            Err(missing) if missing.code() == Some(NOT_FOUND) => {
                bail!(
                    "the cluster does not serve visibility.sluice.dev: the manager is another one, or older, or its APIService is not installed"
                )
            }
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// What of a list is read.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewQuery {
    pub(super) fields: String,
    pub(super) labels: String,
    /// Further parameters, each beginning with `&`.
    pub(super) more: String,
    /// Most rows; `None` for all.
    pub(super) limit: Option<usize>,
}

/// Rows of a list, as they came, and how many are left.
pub(super) struct Rows {
    /// The last page without its items.
    pub(super) head: Value,
    pub(super) items: Vec<Value>,
    pub(super) left: Option<u64>,
}

impl Rows {
    /// Returns one list of all rows.
    pub(super) fn into_list(self) -> Value {
        let mut list = self.head;
        if let Some(fields) = list.as_object_mut() {
            fields.insert("items".to_owned(), Value::Array(self.items));
            if let Some(left) = self.left {
                fields.insert("metadata".to_owned(), json!({"remainingItemCount": left}));
            }
        }
        list
    }
}

/// Reads a list page by page; a row that comes twice, because its order changed between two pages, counts once.
pub(super) async fn rows(
    session: &Session,
    resource: &str,
    query: &ViewQuery,
    what: &str,
) -> anyhow::Result<Rows> {
    let mut found = Rows { head: Value::Null, items: Vec::new(), left: None };
    let mut seen = std::collections::BTreeSet::new();
    let mut token = String::new();
    loop {
        let wanted = query.limit.map_or(PAGE, |limit| limit.saturating_sub(found.items.len()).min(PAGE));
        let mut path = format!("{resource}?limit={wanted}{}", query.more);
        for (name, value) in
            [("fieldSelector", &query.fields), ("labelSelector", &query.labels), ("continue", &token)]
        {
            if !value.is_empty() {
                let _ = write!(path, "&{name}={}", encoded(value));
            }
        }
        let mut page = ask(session, &path, what).await?;
        let items = super::pages::items(&mut page);
        let is_new = |item: &Value| {
            let uid = item.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            uid.is_empty() || seen.insert(uid.to_owned())
        };
        found.items.extend(items.into_iter().filter(is_new));
        let next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
        found.left = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64);
        if let Some(fields) = page.as_object_mut() {
            fields.shift_remove("items");
        }
        found.head = page;
        let is_enough = query.limit.is_some_and(|limit| found.items.len() >= limit);
        if next.is_empty() || is_enough {
            return Ok(found);
        }
        token = next;
    }
}

/// Says that a part of an answer is missing.
pub(super) fn note_partial(answer: &Value) {
    if answer.get("partial").and_then(Value::as_bool) == Some(true) {
        note("note: a part of the answer is missing or may differ from the leader's");
    }
}
