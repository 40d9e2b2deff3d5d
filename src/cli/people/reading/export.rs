//! `sluice usage export`: the durable record, page by page.
//!
//! Invariants: at most a page is in memory; all pages are of one period, which the first one fixes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::Value;

use super::export_file::{ExportFile, Parameters, Progress};
use super::usage::PeriodTime;
use super::{PAGE, TableArgs, ask, read, time_of};
use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::failure::{EXIT_PARTIAL, FORBIDDEN, GONE, TOO_MANY, wrong_use};
use crate::cli::people::note;
use crate::cli::people::pages::{encoded, items};
use crate::cli::people::source::VIEWS;
use crate::kube::client::CallError;
use crate::people::views;
use crate::visibility::history::{Rollup, csv};
use crate::visibility::views::UsageRecordReport;

/// Maximum number of retries of a page, after pauses of 1, 2, 4 ... seconds.
const RETRIES: u32 = 5;

/// Arguments of `usage export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Start of the period: a duration as 24h or 30d, or a time.
    #[arg(long, value_name = "TIME", value_parser = PeriodTime::parse)]
    since: PeriodTime,
    /// End of the period: a duration before now, or a time. Default: now, or with --rollup the last hour or day that has ended.
    #[arg(long, value_name = "TIME", value_parser = PeriodTime::parse)]
    until: Option<PeriodTime>,
    /// Lines of JSON, or comma-separated values (RFC 4180) with a header.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: ExportFormat,
    /// Write to this file, which must not exist yet. If that is interrupted, the same command goes on.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Sums by hour or day that has ended, instead of workloads: hour or day.
    #[arg(long, value_name = "PERIOD", hide_possible_values = true, value_parser = Closed::new(|| vec!["hour", "day"], Rollup::parse))]
    rollup: Option<Rollup>,
    /// In all namespaces, which is the default where you may read them.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    Jsonl,
    Csv,
}

/// Destination of the rows.
enum Sink {
    Output,
    File(ExportFile),
}

impl ExportArgs {
    fn check(&self, connection: &ConnectionArgs) -> anyhow::Result<()> {
        if self.until.as_ref().is_some_and(|until| until.is_reversed(&self.since)) {
            return Err(wrong_use("--until: the end of the period is not after its start"));
        }
        if self.all_namespaces && connection.namespace.is_some() {
            return Err(wrong_use("-A and -n: name one namespace, or all"));
        }
        Ok(())
    }

    /// Returns the parameters in which a continued run must equal the former one.
    async fn parameters(&self, connection: &ConnectionArgs) -> anyhow::Result<Parameters> {
        let text = |time: Option<&PeriodTime>| time.map(PeriodTime::text).unwrap_or_default().to_owned();
        let format = match self.format {
            ExportFormat::Jsonl => "jsonl",
            ExportFormat::Csv => "csv",
        };
        let all = [
            ("--since", text(Some(&self.since))),
            ("--until", text(self.until.as_ref())),
            ("--format", format.to_owned()),
            ("--rollup", self.rollup.map(Rollup::as_str).unwrap_or_default().to_owned()),
            ("--namespace", connection.namespace.clone().unwrap_or_default()),
            ("--all-namespaces", if self.all_namespaces { "true" } else { "" }.to_owned()),
            ("API server", connection.address().await?),
        ];
        Ok(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn query(&self, progress: &Progress) -> String {
        let rollup = self.rollup.map(Rollup::as_str);
        let next = Some(progress.next.as_str()).filter(|token| !token.is_empty());
        // The manager counts durations. After the first page, the token contains the period.
        let since = next.map_or_else(|| self.since.text().to_owned(), |_| progress.since.to_string());
        let mut query = format!("?limit={PAGE}&since={}", encoded(&since));
        let until = self.until.as_ref().map(PeriodTime::text).filter(|_| next.is_none());
        for (name, value) in [("until", until), ("rollup", rollup), ("continue", next)] {
            if let Some(value) = value {
                let _ = write!(query, "&{name}={}", encoded(value));
            }
        }
        query
    }

    /// Reads the next page. The first one decides whether it is of all namespaces.
    async fn page(
        &self,
        session: &Session,
        connection: &ConnectionArgs,
        progress: &mut Progress,
    ) -> anyhow::Result<Value> {
        const ALL: &str = "clusterusagerecords";
        let own = format!("namespaces/{}/usagerecords", encoded(&session.namespace));
        let query = self.query(progress);
        if progress.resource.is_empty() {
            progress.resource = if connection.namespace.is_some() { own.clone() } else { ALL.to_owned() };
            if connection.namespace.is_none() && !self.all_namespaces {
                let all = session.caller.get(&format!("{VIEWS}/{ALL}{query}")).await;
                match all {
                    Ok(page) => return Ok(page),
                    Err(CallError::Status { code: FORBIDDEN, .. }) => {
                        let namespace = &session.namespace;
                        note(&format!(
                            "note: records of namespace {namespace} alone: the whole cluster is for its readers"
                        ));
                        progress.resource = own;
                    }
                    Err(_) => {}
                }
            }
        }
        let path = format!("{}{query}", progress.resource);
        read_page(session, &path, !progress.next.is_empty()).await
    }

    fn text(&self, page: &mut Value, is_first: bool) -> anyhow::Result<String> {
        if self.format == ExportFormat::Csv {
            let header = if is_first { csv::records_header(self.rollup) } else { String::new() };
            return Ok(header + &csv::records(&read::<UsageRecordReport>(page)?.items));
        }
        let mut text = String::new();
        for mut item in items(page) {
            if let Some(fields) = item.as_object_mut() {
                // Fields of every object of the API, which are no columns of a row.
                for name in ["apiVersion", "kind", "metadata"] {
                    fields.shift_remove(name);
                }
            }
            text.push_str(&item.to_string());
            text.push('\n');
        }
        Ok(text)
    }
}

/// Reads a page; retried for later pages, because the record may be unavailable for a short time.
async fn read_page(session: &Session, path: &str, is_later: bool) -> anyhow::Result<Value> {
    let mut retries = 0;
    loop {
        match session.caller.get(&format!("{VIEWS}/{path}")).await {
            Ok(page) => return Ok(page),
            Err(CallError::Status { code: GONE, message, .. }) => return Err(Expired(message).into()),
            Err(error)
                if retries < RETRIES && error.is_outage() && (is_later || error.code() == Some(TOO_MANY)) =>
            {
                tokio::time::sleep(Duration::from_secs(1 << retries)).await;
                retries += 1;
            }
            Err(_) => {
                let what =
                    if path.starts_with("namespaces/") { "usagerecords" } else { "clusterusagerecords" };
                return ask(session, path, what).await;
            }
        }
    }
}

/// The record no longer has the rows with which the next page begins.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Expired(String);

impl Sink {
    fn write(&mut self, page: &str, progress: &Progress) -> anyhow::Result<()> {
        match self {
            Self::Output => files::print(page),
            Self::File(file) => file.write(page, progress),
        }
    }

    /// Prints which files a failed export left, and how to continue it.
    fn failed(self, error: anyhow::Error, progress: &Progress) -> anyhow::Error {
        let Self::File(file) = self else { return error };
        let (part, state) = file.left();
        if progress.next.is_empty() && !progress.is_done {
            file.discard();
            return error;
        }
        match error.downcast::<Expired>() {
            Ok(expired) => anyhow!("{expired}: delete {part} and {state}, and begin again"),
            Err(error) => {
                note(&format!("note: {part} has {} rows; the same command goes on with it", progress.rows));
                error
            }
        }
    }
}

pub(super) async fn run(
    args: &ExportArgs,
    connection: &ConnectionArgs,
    table: &TableArgs,
) -> anyhow::Result<ExitCode> {
    args.check(connection)?;
    table.check_manager("the durable record")?;
    let session = connection.connect().await?;
    let (mut progress, mut now) = (Progress::default(), session.now());
    let mut sink = Sink::Output;
    // `-` is standard output, as for other commands.
    let file = args.file.as_ref().filter(|path| path.as_os_str() != "-");
    if let Some(path) = file {
        let parameters = args.parameters(connection).await?;
        let (file, known) = ExportFile::open(path, parameters, progress)?;
        (sink, progress) = (Sink::File(file), known);
        if progress.rows > 0 {
            note(&format!("note: going on after {} rows", progress.rows));
        }
    }
    while !progress.is_done {
        match add_page(args, (&session, connection), &mut sink, &mut progress).await {
            Ok(time) => now = time,
            Err(error) => return Err(sink.failed(error, &progress)),
        }
    }
    if let (Sink::File(written), Some(path)) = (sink, file) {
        written.finish()?;
        note(&format!("{} rows in {}", progress.rows, path.display()));
    }
    let recorded = &progress.recorded;
    let look = table.look(now);
    note(&format!("{}{}.", views::recorded(recorded, progress.since, look), views::conservation(recorded)));
    Ok(if recorded.complete { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTIAL) })
}

/// Reads the next page and writes it. Returns the time by the manager's clock.
async fn add_page(
    args: &ExportArgs,
    (session, connection): (&Session, &ConnectionArgs),
    sink: &mut Sink,
    progress: &mut Progress,
) -> anyhow::Result<Timestamp> {
    let mut after = progress.clone();
    let mut page = args.page(session, connection, &mut after).await?;
    let UsageRecordReport { metadata, items, recorded } = read(&page)?;
    if !metadata.continue_token.is_empty() && metadata.continue_token == progress.next {
        bail!("the server's answer does not go on after {} rows", progress.rows);
    }
    let (is_first, now) = (progress.next.is_empty(), time_of(&page));
    if is_first {
        after.since = args.since.at(now);
    }
    let text = args.text(&mut page, is_first)?;
    after.is_done = metadata.continue_token.is_empty();
    after.next = metadata.continue_token;
    after.rows += u64::try_from(items.len())?;
    after.bytes += u64::try_from(text.len())?;
    after.recorded = recorded;
    sink.write(&text, &after)?;
    *progress = after;
    Ok(now)
}
