//! Scenarios drawn by seed, to compare what two commits decide.
//!
//! A scenario is a cluster in the style of one of the suites of recorded decisions (`suite`), which lives for eight cycles. Each is
//! given to a program's `simulate --jsonl`, the answer is written to the objects, and then Workloads are created, finish and are
//! evicted, quotas change and nodes fail (`life`). Each scenario has one line, with a digest of all answers.
//! Invariants: the same seed draws the same scenarios on every machine, for every program, until an answer differs; a scenario does
//! not depend on how many there are.

mod cluster;
mod life;
mod random;
mod suite;
#[cfg(test)]
mod tests;
mod workload;

use crate::binaries::{self, Build};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use life::{CYCLES, Life, Totals};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::available_parallelism;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Scenarios that one process of the program decides in turn: its start then costs little, and their lines take few MB.
const BATCH: usize = 250;

/// What is drawn, and which program decides.
#[derive(Debug, clap::Args)]
pub struct DrawRequest {
    /// Number of scenarios, each of eight cycles.
    #[arg(long, default_value_t = 20_000)]
    pub count: u64,
    /// Seed; the same one draws the same scenarios.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Program that decides, by `simulate --jsonl`; default: a release build of sluice.
    #[arg(long)]
    pub program: Option<PathBuf>,
    /// File for the lines; default: standard output.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Print only this scenario: each cycle as the program gets it, and its answer.
    #[arg(long, value_name = "NUMBER")]
    pub only: Option<u64>,
}

/// Draws scenarios and writes a line for each, in their order, and the totals of all.
///
/// # Errors
/// The program cannot be built or run, or refuses a scenario; the file cannot be written.
pub async fn run(request: &DrawRequest) -> Result<()> {
    let program = match &request.program {
        Some(program) => program.clone(),
        None => binaries::sluice(Build::Release)?,
    };
    let out: Box<dyn Write> = match &request.out {
        Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
        None => Box::new(io::stdout()),
    };
    let mut out = BufWriter::new(out);
    match request.only {
        Some(number) => show(&program, Life::draw(request.seed, number), &mut out).await?,
        None => play_all(request, &program, &mut out).await?,
    }
    Ok(out.flush()?)
}

/// Plays all scenarios, on all cores.
async fn play_all(request: &DrawRequest, program: &Path, out: &mut impl Write) -> Result<()> {
    let seed = request.seed;
    let numbers: Vec<u64> = (0..request.count).collect();
    let batches = numbers.chunks(BATCH).map(|numbers| {
        let (program, numbers) = (program.to_owned(), numbers.to_vec());
        tokio::spawn(async move {
            let lives = numbers.into_iter().map(|number| Life::draw(seed, number)).collect();
            play(&program, lives).await
        })
    });
    let mut played = stream::iter(batches).buffered(available_parallelism()?.get());
    let mut totals = Totals::default();
    while let Some(lives) = played.next().await {
        for life in lives?? {
            totals.add_all(life.totals());
            writeln!(out, "{}", life.summary())?;
        }
    }
    writeln!(out, "{} scenarios of seed {seed}: {totals}", request.count)?;
    Ok(())
}

/// Plays all cycles of these scenarios.
async fn play(program: &Path, mut lives: Vec<Life>) -> Result<Vec<Life>> {
    for _ in 0..CYCLES {
        let mut scenarios = String::new();
        for life in &lives {
            scenarios.push_str(&life.scenario()?);
            scenarios.push('\n');
        }
        let answers = answers(program, &scenarios, lives.len()).await?;
        for (life, answer) in lives.iter_mut().zip(answers.lines()) {
            life.go_on(answer)?;
        }
    }
    Ok(lives)
}

/// Plays one scenario, and writes what the program gets and what it answers.
async fn show(program: &Path, mut life: Life, out: &mut impl Write) -> Result<()> {
    for _ in 0..CYCLES {
        let scenario = life.scenario()?;
        let answer = answers(program, &scenario, 1).await?;
        let answer = answer.trim_end();
        writeln!(out, "{scenario}\n{answer}")?;
        life.go_on(answer)?;
    }
    writeln!(out, "{}", life.summary())?;
    Ok(())
}

/// Gives lines to the program, and returns its answers, a line for each.
async fn answers(program: &Path, scenarios: &str, count: usize) -> Result<String> {
    let name = format!("{} simulate --jsonl", program.display());
    let mut command = Command::new(program);
    command.args(["simulate", "--jsonl"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().with_context(|| name.clone())?;
    let mut input = process.stdin.take().context("the program has no standard input")?;
    // Both at once: neither waits for the other while a pipe is full. The input ends when it is dropped.
    let writing = async move { input.write_all(scenarios.as_bytes()).await };
    let (written, ended) = tokio::join!(writing, process.wait_with_output());
    let output = ended.with_context(|| name.clone())?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    let answers = String::from_utf8(output.stdout).with_context(|| name.clone())?;
    let answered = answers.lines().count();
    ensure!(answered == count, "{name}: {answered} answers to {count} scenarios");
    // Last: a program that ends early closes its input, and what it says explains more.
    written.with_context(|| name.clone())?;
    Ok(answers)
}
