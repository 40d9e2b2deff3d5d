//! Verbs that read: a request to the aggregated API, its views, and their text.
//!
//! Invariant: the text comes from `people::views` alone; JSON is the server's answer, so that both agree.

pub(super) mod audit;
pub(super) mod capacity;
pub(super) mod clock;
pub(super) mod describe;
mod export;
mod export_file;
mod job_tree;
pub(super) mod list;
mod preemptions;
pub(super) mod quota;
mod server_tables;
mod shown_quota;
pub(super) mod status;
pub(super) mod top;
mod topology_levels;
pub(super) mod usage;
mod watched_rows;
mod when;
pub(super) mod why;
mod workload_list;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::clock::time_of;
use super::args::OutputArgs;
use super::connection::{ConnectionArgs, Session};
use super::failure::{FORBIDDEN, NOT_FOUND, UNAVAILABLE, print_error};
use super::note;
use super::pages::encoded;
use super::source::{SourceArgs, VIEWS};
use crate::cli::{files, terminal};
use crate::kube::client::CallError;
use crate::people::output::{ObjectFormat, Output};
use crate::people::rows_left::RowsLeft;
use crate::people::views::Look;

/// Interval between two readings of `-w`.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// Rows of a page: the maximum of the server.
const PAGE: usize = 500;

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
    /// Print times in the local time zone, with its offset of now; default: UTC.
    #[arg(long, global = true)]
    local: bool,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl TableArgs {
    /// Returns a session with the source of answers.
    pub(super) async fn connect(&self, connection: &ConnectionArgs) -> anyhow::Result<Session> {
        self.source.connect(connection).await
    }

    /// Returns the layout of texts on this terminal, at a time.
    pub(super) fn look(&self, now: Timestamp) -> Look {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_plain = variable("NO_COLOR").is_some() || variable("TERM").is_none_or(|name| name == "dumb");
        Look {
            utf8: terminal::is_utf8(),
            color: match self.color {
                ColorChoice::Auto => std::io::stdout().is_terminal() && !is_plain,
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
            width: terminal::width(),
            headings: !self.no_headers,
            wide: self.is_wide(),
            labels: false,
            csv: self.output.is_csv(),
            now,
            offset: if self.local { TimeZone::system().to_offset(now) } else { Offset::UTC },
        }
    }

    /// Returns the width to which tables are fitted; `None` without a terminal, and for tables with all columns.
    fn width(&self) -> Option<usize> {
        terminal::width().filter(|_| !self.is_wide())
    }

    /// Returns whether tables have all columns.
    fn is_wide(&self) -> bool {
        self.output.is_csv() || matches!(self.output.parsed(), Ok(Output::Wide))
    }

    /// Prints the answer in a format of objects, or the text that `text` makes of it.
    pub(super) fn print<T: DeserializeOwned>(
        &self,
        answer: &Value,
        text: impl FnOnce(T, Look) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        self.print_at(answer, time_of(answer), text)
    }

    /// Prints a part of an answer, with ages counted to a time.
    fn print_at<T: DeserializeOwned>(
        &self,
        answer: &Value,
        now: Timestamp,
        text: impl FnOnce(T, Look) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        match self.format()? {
            Some(format) => files::print(&format.text(answer, true).map_err(anyhow::Error::msg)?),
            None => files::print(&text(read(answer)?, self.look(now))?),
        }
    }

    /// Returns the time to which the ages of objects count that the manager has not made (see `clock::of_manager`).
    pub(super) async fn now(&self, session: &Session, path: &str) -> Timestamp {
        if self.source.allows_manager() { clock::of_manager(session, path).await } else { session.now() }
    }

    /// Returns a session with the source of objects: the cluster, or a file.
    pub(super) async fn connect_to_objects(&self, connection: &ConnectionArgs) -> anyhow::Result<Session> {
        self.source.connect_to_objects(connection).await
    }

    /// Returns an error if a flag selects another source than the cluster, because `what` is only there.
    fn check_cluster(&self, what: &str) -> anyhow::Result<()> {
        self.source.check_cluster(what)
    }

    /// Returns an error if a flag excludes the manager, because only the manager has `what`.
    pub(super) fn check_manager(&self, what: &str) -> anyhow::Result<()> {
        self.source.check_manager(what)
    }

    pub(super) fn format(&self) -> anyhow::Result<Option<ObjectFormat>> {
        self.output.format()
    }
}

/// Whether a verb reads again until it is interrupted.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct WatchArgs {
    /// Read again every 2 s, and print what changed.
    #[arg(short, long, global = true)]
    pub(super) watch: bool,
}

impl WatchArgs {
    /// With `--watch`, prints an answer whenever it changes, not counting its origin; otherwise prints it once. `read` reads
    /// it, `print` prints it and returns the exit status.
    pub(super) async fn run<T>(
        self,
        read: impl AsyncFn() -> anyhow::Result<T>,
        compared: impl Fn(&T) -> Value,
        print: impl Fn(&T) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let first = read().await?;
        let code = print(&first)?;
        let mut seen = without_origin(compared(&first));
        if !self.watch {
            return Ok(code);
        }
        let mut failures = Failures::default();
        loop {
            wait_to_read_again().await;
            match read().await {
                Ok(answer) => {
                    failures.end();
                    let now = without_origin(compared(&answer));
                    if now != seen {
                        files::print("\n")?;
                        print(&answer)?;
                        seen = now;
                    }
                }
                Err(error) => failures.print(&error),
            }
        }
    }
}

/// Errors of a verb that reads repeatedly. A temporary error is printed once, and the verb waits for its end.
#[derive(Debug, Default)]
struct Failures {
    last: Option<String>,
}

impl Failures {
    fn print(&mut self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        if self.last.as_ref() != Some(&text) {
            print_error(error);
            self.last = Some(text);
        }
    }

    fn end(&mut self) {
        if self.last.take().is_some() {
            note("note: answers come again");
        }
    }
}

/// Drops the fields that change with every answer.
fn without_origin(mut answer: Value) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        fields.shift_remove("source");
    }
    answer
}

/// Waits between two readings.
async fn wait_to_read_again() {
    tokio::time::sleep(READ_AGAIN).await;
}

/// Reads an answer as views.
pub(super) fn read<T: DeserializeOwned>(answer: &Value) -> anyhow::Result<T> {
    serde_path_to_error::deserialize(answer)
        .context("the server's answer cannot be read: it may be of another version")
}

/// Asks the group for a path below its version.
pub(super) async fn ask(session: &Session, path: &str, what: &str) -> anyhow::Result<Value> {
    match session.caller.get(&format!("{VIEWS}/{path}")).await {
        Ok(answer) => Ok(answer),
        Err(CallError::Status { code: FORBIDDEN, message, .. }) => Err(forbidden(path, what, &message)),
        Err(CallError::Status { code: UNAVAILABLE, message, .. }) => {
            bail!("the visibility API does not answer (503: {message}){}", other_source(what, "; try"))
        }
        Err(CallError::Timeout(time)) => {
            bail!("the visibility API does not answer within {time:?}{}", other_source(what, "; try"))
        }
        Err(error) if error.code() == Some(NOT_FOUND) => match session.caller.get(VIEWS).await {
            Err(missing) if missing.code() == Some(NOT_FOUND) => {
                bail!(
                    "the cluster does not serve visibility.sluice.dev: the manager is another one, or older, or its APIService is not installed{}",
                    other_source(what, "; try")
                )
            }
            Ok(group) if !serves(&group, what) => {
                bail!(
                    "the manager of this cluster does not serve {what}: it is older{}",
                    other_source(what, "; try")
                )
            }
            _ => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Resources that only a manager has.
const OF_MANAGER: [&str; 6] = [
    "managerviews",
    "preemptions",
    "usagereports",
    "clusterusagereports",
    "usagerecords",
    "clusterusagerecords",
];

/// Returns the advice to use the cluster's objects instead, if they can give the answer.
fn other_source(what: &str, before: &str) -> String {
    if OF_MANAGER.contains(&what) { String::new() } else { format!("{before} --source cluster") }
}

/// Whether a version has a resource; true if the list of resources cannot be read.
fn serves(group: &Value, what: &str) -> bool {
    let resources = group.get("resources").and_then(Value::as_array);
    let named = |resource: &Value| resource.get("name").and_then(Value::as_str) == Some(what);
    resources.is_none_or(|resources| resources.iter().any(named))
}

/// Returns the error about a missing right: the resource, the user, and the role that grants it.
pub(super) fn forbidden(path: &str, what: &str, message: &str) -> anyhow::Error {
    let quoted = |before: &str| message.split_once(before)?.1.split_once('"').map(|(text, _)| text);
    let verb = message
        .split_once(" cannot ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .map_or("get", |(verb, _)| verb);
    let Some(user) = quoted("User \"") else { return anyhow!("cannot read {what}: {message}") };
    let in_namespace = path.starts_with("namespaces/");
    let place = quoted("in the namespace \"").map(|name| format!(" in namespace {name}")).unwrap_or_default();
    let role = if in_namespace { "sluice-namespace-viewer" } else { "sluice-cluster-viewer" };
    let other = other_source(what, ", or use");
    anyhow!("cannot {verb} {what}{place}: forbidden for user {user:?}\nbind ClusterRole {role}{other}")
}

/// The part of a list that is read.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewQuery {
    pub(super) fields: String,
    pub(super) labels: String,
    /// Further parameters, each beginning with `&`.
    pub(super) more: String,
    /// Most rows; `None` for all.
    pub(super) limit: Option<usize>,
}

/// Rows of a list in the server's order, and the number of the others.
pub(super) struct Rows {
    /// The last page without its items.
    pub(super) head: Value,
    pub(super) items: Vec<Value>,
    pub(super) left: RowsLeft,
}

impl Rows {
    /// Returns one list of all rows.
    pub(super) fn into_list(self) -> Value {
        let mut list = self.head;
        if let Some(fields) = list.as_object_mut() {
            fields.insert("items".to_owned(), Value::Array(self.items));
            if let RowsLeft::Number(left) = self.left {
                fields.insert("metadata".to_owned(), json!({"remainingItemCount": left}));
            }
        }
        list
    }
}

/// Reads a list page by page; a row that occurs twice, because the order changed between two pages, counts once.
pub(super) async fn rows(
    session: &Session,
    resource: &str,
    query: &ViewQuery,
    what: &str,
) -> anyhow::Result<Rows> {
    let mut found = Rows { head: Value::Null, items: Vec::new(), left: RowsLeft::None };
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
        found.left = RowsLeft::of(&page);
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

/// Prints a note if a part of an answer is missing.
pub(super) fn note_partial(answer: &Value) {
    if answer.get("partial").and_then(Value::as_bool) == Some(true) {
        note("note: a part of the answer is missing or may differ from the leader's");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_names_user_place_and_role() {
        let message = |place: &str| {
            format!(
                "workloadviews.visibility.sluice.dev is forbidden: User \"nlp-user\" cannot list resource \"workloadviews\" in API group \"visibility.sluice.dev\" {place}"
            )
        };
        let text = |path: &str, message: &str| forbidden(path, "workloadviews", message).to_string();
        assert_eq!(
            text("namespaces/nlp-train/workloadviews?limit=500", &message("in the namespace \"nlp-train\"")),
            "cannot list workloadviews in namespace nlp-train: forbidden for user \"nlp-user\"\nbind ClusterRole sluice-namespace-viewer, or use --source cluster"
        );
        assert_eq!(
            text("workloadviews?limit=500", &message("at the cluster scope")),
            "cannot list workloadviews: forbidden for user \"nlp-user\"\nbind ClusterRole sluice-cluster-viewer, or use --source cluster"
        );
        assert_eq!(text("workloadviews", "no"), "cannot read workloadviews: no");
        // No other source has what only a manager has.
        let manager = forbidden("managerviews?limit=500", "managerviews", &message("at the cluster scope"));
        assert_eq!(
            manager.to_string(),
            "cannot list managerviews: forbidden for user \"nlp-user\"\nbind ClusterRole sluice-cluster-viewer"
        );
    }

    #[test]
    fn an_answer_is_the_same_whatever_its_origin() {
        let answer = |version: u64| json!({"items": [1], "source": {"stateVersion": version}});
        assert_eq!(without_origin(answer(1)), without_origin(answer(2)));
    }
}
