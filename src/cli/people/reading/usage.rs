//! `sluice usage`: hours by group in a period.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;

use super::clock::time_of;
use super::export::{self, ExportArgs};
use super::{TableArgs, ask, note_partial, read};
use crate::cli::files;
use crate::cli::people::closed::Closed;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::failure::{EXIT_PARTIAL, FORBIDDEN, wrong_use};
use crate::cli::people::note;
use crate::cli::people::pages::encoded;
use crate::cli::people::source::VIEWS;
use crate::history::UsageGroup;
use crate::kube::client::CallError;
use crate::people::views;
use crate::visibility::history::{Bill, Prices, csv, since};
use crate::visibility::views::UsageReport;

/// Default length of the period.
const DEFAULT_PERIOD: &str = "24h";
/// Maximum size of a file of prices, in bytes: it is of a few lines, and a larger file is another one.
const MAX_PRICES: u64 = 1 << 20;

/// Arguments of `usage`.
#[derive(Debug, clap::Args)]
pub(crate) struct UsageArgs {
    /// What the hours are grouped by: queue, cohort, namespace, localqueue, priorityclass or flavor. Default: queue, in one namespace localqueue.
    #[arg(long, value_name = "GROUP", hide_possible_values = true, value_parser = Closed::new(groups, UsageGroup::parse))]
    by: Option<UsageGroup>,
    /// Start of the period: a duration as 24h or 30d, or a time; without a durable record at most the last 24 hours are there. Default: 24h.
    #[arg(long, value_name = "TIME", value_parser = PeriodTime::parse)]
    since: Option<PeriodTime>,
    /// End of the period: a duration before now, or a time. Default: now.
    #[arg(long, value_name = "TIME", value_parser = PeriodTime::parse)]
    until: Option<PeriodTime>,
    /// Only this resource.
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Adds what the hours cost: a YAML file (- for standard input) with the currency and the amount for an hour of each resource, or of its flavors.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    verb: Option<UsageVerb>,
}

#[derive(Debug, clap::Subcommand)]
enum UsageVerb {
    /// Write the rows of the durable record, as lines of JSON or comma-separated values
    Export(ExportArgs),
}

fn groups() -> Vec<&'static str> {
    UsageGroup::ALL.map(UsageGroup::as_str).to_vec()
}

/// A time, or a duration before now. The manager counts the duration: the clock of this machine may differ from that of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeriodTime {
    text: String,
    /// The time; `None` for a duration.
    time: Option<Timestamp>,
}

impl PeriodTime {
    /// Parses a time or a duration. Whether a time is in the future is for the manager to say.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let time: Option<Timestamp> = text.parse().ok();
        if time.is_none() {
            since(text, Timestamp::UNIX_EPOCH)?;
        }
        Ok(Self { text: text.to_owned(), time })
    }

    /// Returns the time a day ago.
    pub(super) fn day_ago() -> Self {
        Self { text: DEFAULT_PERIOD.to_owned(), time: None }
    }

    /// Returns the text, for a question.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the time, at this one.
    pub(super) fn at(&self, now: Timestamp) -> Timestamp {
        match self.time {
            Some(time) => time.min(now),
            None => since(&self.text, now).unwrap_or(now),
        }
    }

    /// Returns whether this time is not after the start of a period, as far as that is known without a clock: a time and a duration are
    /// compared by the manager.
    pub(super) fn is_reversed(&self, start: &Self) -> bool {
        match (self.time, start.time) {
            (Some(end), Some(start)) => end <= start,
            (None, None) => self.at(Timestamp::UNIX_EPOCH) <= start.at(Timestamp::UNIX_EPOCH),
            _ => false,
        }
    }
}

impl UsageArgs {
    fn query(&self, since: &PeriodTime, with_flavors: bool) -> String {
        let mut query = format!("?since={}", encoded(since.text()));
        let until = self.until.as_ref().map(PeriodTime::text);
        let by = self.by.map(UsageGroup::as_str);
        let flavors = with_flavors.then_some("true");
        let resource = self.resource.as_deref();
        for (name, value) in [("until", until), ("by", by), ("resource", resource), ("flavors", flavors)] {
            if let Some(value) = value {
                let _ = write!(query, "&{name}={}", encoded(value));
            }
        }
        query
    }

    /// Returns an error if a flag is given that the rows of the record do not support.
    fn check_no_report(&self) -> anyhow::Result<()> {
        let given = [
            ("--by", self.by.is_some()),
            ("--since before export", self.since.is_some()),
            ("--until before export", self.until.is_some()),
            ("--resource", self.resource.is_some()),
            ("--prices", self.prices.is_some()),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(wrong_use(format!(
                "{flag}: is a flag of the report; export has --since, --until and --rollup of its own"
            )));
        }
        if self.table.output.output.is_some() {
            return Err(wrong_use("-o: export has --format jsonl and --format csv"));
        }
        Ok(())
    }

    /// Reads the report of the cluster, or of the namespace if a flag selects it or the user may read nothing else.
    async fn read(&self, session: &Session, since: &PeriodTime, with_flavors: bool) -> anyhow::Result<Value> {
        let query = self.query(since, with_flavors);
        let own = format!("namespaces/{}/usagereports{query}", encoded(&session.namespace));
        if self.connection.namespace.is_some() {
            return ask(session, &own, "usagereports").await;
        }
        let all = format!("clusterusagereports{query}");
        match session.caller.get(&format!("{VIEWS}/{all}")).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Status { code: FORBIDDEN, .. }) => {
                let answer = ask(session, &own, "usagereports").await?;
                note(&format!(
                    "note: usage of namespace {} alone: the whole cluster is for its readers",
                    session.namespace
                ));
                Ok(answer)
            }
            Err(_) => ask(session, &all, "clusterusagereports").await,
        }
    }
}

/// Reads a file of prices, or standard input for `-`.
fn read_prices(path: &Path) -> anyhow::Result<Prices> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let file: Box<dyn Read> = if is_input {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).with_context(|| format!("--prices {name}"))?)
    };
    let mut text = String::new();
    // One more byte than is allowed, to see that there is more.
    let mut part = file.take(MAX_PRICES.saturating_add(1));
    part.read_to_string(&mut text).with_context(|| format!("--prices {name}"))?;
    if part.limit() == 0 {
        return Err(wrong_use(format!("--prices {name}: the file is larger than {MAX_PRICES} bytes")));
    }
    Prices::read(text.trim_start_matches('\u{feff}'), &name)
        .map_err(|error| wrong_use(format!("--prices {error}")))
}

pub(crate) async fn run(args: &UsageArgs) -> anyhow::Result<ExitCode> {
    if let Some(UsageVerb::Export(export)) = &args.verb {
        args.check_no_report()?;
        return export::run(export, &args.connection, &args.table).await;
    }
    let is_csv = args.table.output.is_csv();
    if !is_csv {
        args.table.format()?;
    }
    let since = args.since.clone().unwrap_or_else(PeriodTime::day_ago);
    if args.until.as_ref().is_some_and(|until| until.is_reversed(&since)) {
        return Err(wrong_use("--until: the end of the period is not after its start"));
    }
    args.table.check_manager("the history")?;
    let prices = args.prices.as_deref().map(read_prices).transpose()?;
    let with_flavors = prices.as_ref().is_some_and(Prices::depend_on_flavors);
    let session = args.connection.connect().await?;
    let mut answer = args.read(&session, &since, with_flavors).await?;
    note_partial(&answer);
    let report: UsageReport = read(&answer)?;
    let bill = prices.map(|prices| prices.bill(&report)).transpose().map_err(anyhow::Error::msg)?;
    if let Some(bill) = &bill {
        bill.add_to(&mut answer);
    }
    print(args, &answer, bill.as_ref(), since.at(time_of(&answer)))?;
    if !report.attribution.is_empty() && !is_csv && args.table.format()?.is_none() {
        note(&report.attribution);
    }
    // The default period is as much of a day as is recorded.
    let is_enough = report.recorded.complete || args.since.is_none();
    Ok(if is_enough { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTIAL) })
}

/// Prints the report, with what it costs if there are prices.
fn print(args: &UsageArgs, answer: &Value, bill: Option<&Bill>, since: Timestamp) -> anyhow::Result<()> {
    if args.table.output.is_csv() {
        let report: UsageReport = read(answer)?;
        return files::print(&match bill {
            Some(bill) => csv::priced_usage(&report, bill),
            None => csv::usage(&report),
        });
    }
    args.table.print(answer, |report: UsageReport, look| {
        Ok(match bill {
            Some(bill) => views::priced_usage(&report, bill, since, look),
            None => views::usage(&report, since, look),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        usage: UsageArgs,
    }

    #[test]
    fn durations_are_counted_by_the_clock_of_the_manager() {
        for (words, query) in [
            (vec![], "?since=24h"),
            (vec!["--since", "10m"], "?since=10m"),
            (vec!["--since", "7d", "--until", "1d"], "?since=7d&until=1d"),
            (vec!["--since", "2026-01-01T00:00:00Z"], "?since=2026-01-01T00%3A00%3A00Z"),
        ] {
            let args = Line::try_parse_from(["usage"].into_iter().chain(words)).unwrap().usage;
            let since = args.since.clone().unwrap_or_else(PeriodTime::day_ago);
            assert_eq!(args.query(&since, false), query);
        }
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(PeriodTime::parse("10m").unwrap().at(now).to_string(), "2026-01-01T00:00:00Z");
        assert!(PeriodTime::parse("yesterday").is_err());
        // The clock of this machine may be behind: what it takes for the future is no error.
        let ahead = PeriodTime::parse("2999-01-01T00:00:00Z").unwrap();
        assert_eq!((ahead.text(), ahead.at(now)), ("2999-01-01T00:00:00Z", now));
        for (end, start, expected) in [
            ("2h", "1h", true),
            ("1h", "1h", true),
            ("1h", "2h", false),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", true),
            ("2999-01-01T00:00:01Z", "2999-01-01T00:00:00Z", false),
            ("2026-01-01T00:00:00Z", "1h", false),
            ("1h", "2999-01-01T00:00:00Z", false),
        ] {
            let parse = |text: &str| PeriodTime::parse(text).unwrap();
            assert_eq!(parse(end).is_reversed(&parse(start)), expected, "{start} {end}");
        }
    }
}
