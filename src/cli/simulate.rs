//! `sluice simulate`: reads what there is, prints what would come of it.

use std::io::{BufRead, BufWriter, Write};

use anyhow::{Context, bail};

use crate::simulate::{Scenario, replay};

/// Arguments of `sluice simulate`.
#[derive(Debug, clap::Args)]
pub(super) struct SimulateArgs {
    /// Read recorded scenarios from standard input, one JSON document per line, and write one outcome per line.
    #[arg(long)]
    jsonl: bool,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    if !args.jsonl {
        bail!("--jsonl is missing");
    }
    replay_lines()
}

/// Recorded scenarios from standard input.
fn replay_lines() -> anyhow::Result<()> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.context("standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("standard input, line {}", number + 1);
        let outcome = Scenario::parse(&line).and_then(|scenario| replay(&scenario)).with_context(place)?;
        serde_json::to_writer(&mut output, &outcome).context("standard output")?;
        output.write_all(b"\n").context("standard output")?;
    }
    output.flush().context("standard output")
}
