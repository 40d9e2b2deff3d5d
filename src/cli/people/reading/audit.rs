//! `sluice audit`: findings, as a table or in full.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::Value;

use super::{TableArgs, ViewQuery, note_partial, read, rows, time_of};
use crate::api::similar;
use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::note;
use crate::cli::people::pages::encoded;
use crate::people::views;
use crate::visibility::views::{Check, Finding, Severity};

const CLUSTER_FINDINGS: &str = "clusterfindings";
/// Age of findings from which on it is shown, in seconds.
const STALE_SECONDS: i64 = 5;
/// Exit status if the answer is no and a flag makes that an error.
const EXIT_NO: u8 = 4;

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Only findings of this check, in full; repeatable.
    #[arg(long, value_name = "CODE", hide_possible_values = true, value_parser = Closed::new(checks, check))]
    check: Vec<Check>,
    /// Only findings as bad as this, or worse.
    #[arg(long, value_name = "error|warning|note", hide_possible_values = true, value_parser = Closed::new(|| vec!["error", "warning", "note"], severity))]
    severity: Option<Severity>,
    /// Exit with status 4 if there is a finding as bad as this, or worse.
    #[arg(long, value_name = "error|warning", hide_possible_values = true, value_parser = Closed::new(|| vec!["error", "warning"], severity))]
    fail_on: Option<Severity>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

fn checks() -> Vec<&'static str> {
    Check::ALL.iter().map(|check| check.as_str()).collect()
}

fn check(text: &str) -> Result<Check, String> {
    let known = || Check::ALL.iter().map(|check| check.as_str());
    Check::ALL.iter().find(|check| check.as_str() == text).copied().ok_or_else(|| {
        let like = similar::hint(text, known());
        if like.is_empty() {
            format!("unknown check; known: {}", known().collect::<Vec<_>>().join(", "))
        } else {
            format!("unknown check{like}")
        }
    })
}

fn severity(text: &str) -> Result<Severity, String> {
    [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .find(|severity| severity.as_str() == text)
        .ok_or_else(|| "use error, warning or note".to_owned())
}

pub(crate) async fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let is_csv = args.table.output.is_csv();
    if !is_csv {
        args.table.format()?;
    }
    let session = args.table.connect(&args.connection).await?;
    let mut list = findings(&session, args.connection.namespace.is_some()).await?;
    let all: Vec<Finding> = read(&list.get("items").cloned().unwrap_or_default())?;
    let is_wanted = |finding: &Finding| {
        (args.check.is_empty() || args.check.contains(&finding.check))
            && args.severity.is_none_or(|least| finding.severity <= least)
    };
    let wanted: Vec<Finding> = all.into_iter().filter(is_wanted).collect();
    if let Some(fields) = list.as_object_mut() {
        fields.insert("items".to_owned(), serde_json::to_value(&wanted)?);
    }
    if is_csv {
        print_list(&args.table, &session, &list)?;
    } else {
        args.table.print(&list, |_: Value, look| {
            Ok(if args.check.is_empty() || wanted.is_empty() {
                views::audit(&wanted, look)
            } else {
                views::findings_in_full(&wanted, look)
            })
        })?;
    }
    let fails = args.fail_on.is_some_and(|least| wanted.iter().any(|finding| finding.severity <= least));
    Ok(if fails { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
}

/// Reads the findings: of the cluster, or of the namespace if a flag names it or the user may read nothing else.
pub(super) async fn findings(session: &Session, is_namespace: bool) -> anyhow::Result<Value> {
    let query = ViewQuery::default();
    let in_namespace = format!("namespaces/{}/findings", encoded(&session.namespace));
    let found = if is_namespace {
        rows(session, &in_namespace, &query, "findings").await?
    } else {
        match rows(session, "clusterfindings", &query, CLUSTER_FINDINGS).await {
            Ok(found) => found,
            Err(error) if is_forbidden(&error) => {
                note(&format!(
                    "note: without the right to list {CLUSTER_FINDINGS}: only findings of namespace {}",
                    session.namespace
                ));
                rows(session, &in_namespace, &query, "findings").await?
            }
            Err(error) => return Err(error),
        }
    };
    let list = found.into_list();
    note_partial(&list);
    note_age(&list);
    Ok(list)
}

/// Returns findings without the time of the audit.
pub(super) fn without_time(list: &Value) -> Value {
    let mut list = list.clone();
    if let Some(fields) = list.as_object_mut() {
        fields.shift_remove("checkedAt");
    }
    list
}

/// Prints the age of findings from an earlier audit, which may include findings that have been corrected since.
fn note_age(list: &Value) {
    let checked =
        list.get("checkedAt").and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = checked.map_or(0, |checked| time_of(list).duration_since(checked).as_secs());
    if seconds >= STALE_SECONDS {
        note(&format!("note: checked {seconds}s ago; the manager checks at most once a minute"));
    }
}

/// Prints the output of `sluice list finding`: the table of an audit.
pub(super) fn print_list(table: &TableArgs, session: &Session, list: &Value) -> anyhow::Result<()> {
    let text = |list: Value, look: views::Look| {
        let findings: Vec<Finding> = read(&list.get("items").cloned().unwrap_or_default())?;
        Ok(views::audit(&findings, look))
    };
    if table.output.is_csv() {
        return files::print(&text(list.clone(), table.look(session.now()))?);
    }
    table.print(list, text)
}

/// Whether a right is missing.
fn is_forbidden(error: &anyhow::Error) -> bool {
    error.to_string().contains(&format!("{CLUSTER_FINDINGS}: forbidden"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_checks_name_similar_ones() {
        assert_eq!(check("starved"), Ok(Check::Starved));
        assert_eq!(check("straved"), Err("unknown check; similar: starved".to_owned()));
        assert!(check("x").unwrap_err().starts_with("unknown check; known: workload-never-fits, "));
        assert_eq!(severity("bad"), Err("use error, warning or note".to_owned()));
    }
}
