//! `sluice list preemption`: recorded preemptions.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::clock::time_of;
use super::usage::PeriodTime;
use super::{TableArgs, ViewQuery, note_partial, rows};
use crate::cli::files;
use crate::cli::people::connection::Session;
use crate::cli::people::failure::EXIT_PARTIAL;
use crate::cli::people::note;
use crate::cli::people::pages::encoded;
use crate::people::rows_left::RowsLeft;
use crate::people::views;
use crate::visibility::history::csv;
use crate::visibility::views::PreemptionReport;

/// Which preemptions are listed.
#[derive(Debug, clap::Args)]
pub(crate) struct PreemptionFilter {
    /// In all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Those since then: a duration as 24h, or a time. Default: 24h, as far as they are recorded.
    #[arg(long, value_name = "TIME", value_parser = PeriodTime::parse)]
    since: Option<PeriodTime>,
    /// Only those of this victim, or of its job.
    #[arg(long, value_name = "NAME")]
    victim: Option<String>,
    /// Only those by this preemptor.
    #[arg(long, value_name = "NAME")]
    preemptor: Option<String>,
    /// Only those whose victim or preemptor is of this ClusterQueue.
    #[arg(short = 'c', long, value_name = "NAME")]
    clusterqueue: Option<String>,
}

impl PreemptionFilter {
    fn since(&self) -> PeriodTime {
        self.since.clone().unwrap_or_else(PeriodTime::day_ago)
    }

    fn more(&self) -> String {
        let mut more = format!("&since={}", encoded(self.since().text()));
        let fields =
            [("victim", &self.victim), ("preemptor", &self.preemptor), ("clusterQueue", &self.clusterqueue)];
        for (name, value) in fields {
            if let Some(value) = value {
                let _ = write!(more, "&{name}={}", encoded(value));
            }
        }
        more
    }
}

/// Reads the preemptions, the newest first.
pub(super) async fn read(
    session: &Session,
    filter: &PreemptionFilter,
    query: &ViewQuery,
) -> anyhow::Result<Value> {
    let resource = super::list::resource(session, "preemptions", filter.all_namespaces);
    let query = ViewQuery { more: filter.more(), ..query.clone() };
    Ok(rows(session, &resource, &query, "preemptions").await?.into_list())
}

/// Prints the preemptions, and since when they are recorded.
pub(super) fn print(
    session: &Session,
    table: &TableArgs,
    filter: &PreemptionFilter,
    list: &Value,
) -> anyhow::Result<ExitCode> {
    let left = RowsLeft::of(list);
    note_partial(list);
    let report: PreemptionReport = super::read(list)?;
    if table.output.is_csv() {
        files::print(&csv::preemptions(&report))?;
    } else if table.format()?.is_some() || !report.items.is_empty() {
        table.print(list, |report: PreemptionReport, look| {
            Ok(views::preemptions(&report, filter.all_namespaces, look))
        })?;
    } else {
        note(&super::list::nothing(session, filter.all_namespaces));
    }
    if let Some(text) = left.note() {
        note(&text);
    }
    if report.recorded.complete {
        return Ok(ExitCode::SUCCESS);
    }
    let now = time_of(list);
    note(&views::recorded(&report.recorded, filter.since().at(now), table.look(now)));
    // By default the period is as much of a day as is recorded.
    Ok(if filter.since.is_none() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTIAL) })
}
