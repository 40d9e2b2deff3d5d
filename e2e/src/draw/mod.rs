//! Scenarios drawn by seed, to compare what two commits decide.
//!
//! A scenario is a cluster in the style of one of the suites of recorded decisions (`suite`), as `simulate --jsonl` reads it.
//! Invariants: the same seed draws the same scenarios on every machine; a scenario does not depend on how many there are.

mod cluster;
mod life;
mod random;
mod suite;
#[cfg(test)]
mod tests;
mod workload;

use anyhow::{Context as _, Result};
use life::Life;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// What is drawn.
#[derive(Debug, clap::Args)]
pub struct DrawRequest {
    /// Number of scenarios.
    #[arg(long, default_value_t = 20_000)]
    pub count: u64,
    /// Seed; the same one draws the same scenarios.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File for the lines; default: standard output.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Draws scenarios and writes a line for each, in their order.
///
/// # Errors
/// The file cannot be written.
pub fn run(request: &DrawRequest) -> Result<()> {
    let out: Box<dyn Write> = match &request.out {
        Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
        None => Box::new(io::stdout()),
    };
    let mut out = BufWriter::new(out);
    for number in 0..request.count {
        writeln!(out, "{}", Life::draw(request.seed, number).scenario()?)?;
    }
    Ok(out.flush()?)
}
