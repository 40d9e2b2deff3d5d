//! Writes reports to standard output.

use std::io::{BufWriter, Write};

use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde::Serialize;

use super::{Output, SimulateArgs};
use crate::cli::terminal;
use crate::people::views::{self, Look};
use crate::simulate::{Comparison, Report};

/// Prints a whole report.
pub(super) fn print(report: &Report, args: &SimulateArgs) -> anyhow::Result<()> {
    write(report, args.output, || report.tables(history(args)))
}

/// Prints a report of the watched workloads.
pub(super) fn print_watched(report: &Report, args: &SimulateArgs) -> anyhow::Result<()> {
    write(report, args.output, || report.lines_of_workloads(history(args)))
}

/// Prints the differences between two runs.
pub(super) fn print_comparison(comparison: &Comparison, args: &SimulateArgs) -> anyhow::Result<()> {
    write(comparison, args.output, || views::what_if(comparison, look()))
}

/// Returns the layout of the comparison, which has no times of day, on this terminal.
fn look() -> Look {
    Look {
        utf8: terminal::is_utf8(),
        color: false,
        width: terminal::width(),
        headings: true,
        wide: false,
        labels: false,
        csv: false,
        now: Timestamp::UNIX_EPOCH,
        offset: Offset::UTC,
    }
}

const fn history(args: &SimulateArgs) -> usize {
    if args.history == 0 { usize::MAX } else { args.history }
}

fn write(value: &impl Serialize, format: Output, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    match format {
        Output::Table => output.write_all(table().as_bytes()),
        Output::Json => {
            serde_json::to_writer_pretty(&mut output, value).context("standard output")?;
            output.write_all(b"\n")
        }
        Output::Yaml => {
            let text = serde_saphyr::to_string(value).context("standard output")?;
            output.write_all(text.as_bytes())
        }
    }
    .and_then(|()| output.flush())
    .context("standard output")
}
