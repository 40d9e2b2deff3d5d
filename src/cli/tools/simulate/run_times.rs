//! Run times of a simulation from recorded runs: of a cluster, or of a file that `sluice usage export` wrote.
//!
//! Invariant: a file with a line that is no run is refused, because a part of the runs would look like all.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};

use super::cluster_objects::block_on;
use crate::cli::manager::args::duration;
use crate::cli::tools::recorded_runs::read_runs;
use crate::kube::client::Caller;
use crate::simulate::estimate::{RecordedLengths, RecordedRun};
use crate::visibility::history::ended_runs;
use crate::visibility::views::UsageRecordView;

/// Value that stands for the record of the cluster.
const HISTORY: &str = "history";
/// Maximum size of a file, in bytes: some 500,000 runs, of which the last 200 of each kind count.
const MAX_BYTES: u64 = 256 << 20;

/// Where run times come from.
#[derive(Debug, clap::Args)]
pub(super) struct RunTimeArgs {
    /// Run time of pods without the sluice.dev/run-for annotation; default: never finish.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    run_for: Option<Duration>,
    /// Take run times of jobs without the sluice.dev/run-for annotation from ended runs of the same LocalQueue with the same
    /// amounts, of which at least 20 are needed: history for the durable record of the cluster, or a file of
    /// `sluice usage export`. Others run as --run-for says.
    #[arg(long, value_name = "history|FILE")]
    run_times: Option<PathBuf>,
    /// How many of a hundred of these runs took at most the time that is taken: 25, 50 or 90.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "50", requires = "run_times")]
    percentile: usize,
}

fn percent(text: &str) -> Result<usize, String> {
    match text {
        "25" => Ok(25),
        "50" => Ok(50),
        "90" => Ok(90),
        _ => Err("must be 25, 50 or 90".to_owned()),
    }
}

impl RunTimeArgs {
    /// Returns the run time of pods of which nothing else says it.
    pub(super) fn default_length(&self) -> Option<SignedDuration> {
        self.run_for.map(|length| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX))
    }

    /// Whether the record of the cluster is asked.
    pub(super) fn is_of_cluster(&self) -> bool {
        self.run_times.as_deref() == Some(Path::new(HISTORY))
    }

    /// Returns an error if the flags of a simulation do not say which cluster has the record.
    pub(super) fn check(&self, from_cluster: bool) -> anyhow::Result<()> {
        if self.is_of_cluster() && !from_cluster {
            bail!(
                "--run-times history: is the record of a cluster, and needs --from-cluster; for other objects pass a file of `sluice usage export`"
            );
        }
        Ok(())
    }

    /// Returns the run times; `None` without the flag. `connect` connects to the cluster.
    pub(super) fn read(
        &self,
        connect: impl AsyncFnOnce() -> anyhow::Result<Caller>,
    ) -> anyhow::Result<Option<RecordedLengths>> {
        let Some(path) = &self.run_times else { return Ok(None) };
        let runs = if self.is_of_cluster() {
            let read = async {
                let caller = connect().await?;
                anyhow::Ok(read_runs(&caller, Timestamp::now()).await?)
            };
            block_on(read).context("--run-times history: the durable record cannot be read")?
        } else {
            read_file(path).with_context(|| format!("--run-times {}", path.display()))?
        };
        Ok(Some(RecordedLengths::new(runs, self.percentile)))
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<RecordedRun>> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.len() > MAX_BYTES {
        bail!("the file is larger than {MAX_BYTES} bytes: export a shorter period");
    }
    runs_of(BufReader::new(file.take(MAX_BYTES)))
}

/// Reads the lines of an export without a roll-up.
fn runs_of(lines: impl BufRead) -> anyhow::Result<Vec<RecordedRun>> {
    let mut rows = Vec::new();
    for (number, line) in (1_u64..).zip(lines.split(b'\n')) {
        let line = line.with_context(|| format!("line {number}"))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let row: UsageRecordView = serde_json::from_slice(&line)
            .with_context(|| format!("line {number}: not a row of an export"))?;
        let Some(run) = &row.run else {
            bail!("line {number}: the row has no run: export workloads, without --rollup");
        };
        if run.uid.is_empty() || row.start.is_none() {
            bail!("line {number}: the row lacks run.uid or start");
        }
        rows.push(row);
    }
    Ok(ended_runs(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(result: &str) -> String {
        json!({"namespace": "ns", "localQueue": "q", "flavor": "f", "resource": "cpu",
            "start": "2026-11-26T13:00:00Z", "end": "2026-11-26T13:10:00Z",
            "run": {"uid": "u", "attempt": 0, "part": 0, "result": result, "units": "1000"}})
        .to_string()
    }

    #[test]
    fn ended_runs_of_an_export_are_read() {
        let text = format!("{}\n\n{}\n", line("Finished"), line("evicted:Preempted"));
        let runs = runs_of(text.as_bytes()).unwrap();
        assert_eq!(runs.iter().map(|run| run.run.length.as_mins()).collect::<Vec<_>>(), [10]);
        assert!(runs_of(&b""[..]).unwrap().is_empty());
    }

    #[test]
    fn lines_that_are_no_runs_are_refused_by_number() {
        let good = line("Finished");
        for (bad, part) in [
            ("{", "line 2: not a row of an export"),
            ("[]", "line 2: the row has no run"),
            ("7", "line 2: not a row of an export"),
            ("{}", "line 2: the row has no run"),
            (r#"{"sums": {"ended": 1}}"#, "export workloads, without --rollup"),
            (
                r#"{"run": {"uid": ""}, "start": "2026-11-26T13:00:00Z"}"#,
                "line 2: the row lacks run.uid or start",
            ),
            (r#"{"run": {"uid": "u"}}"#, "line 2: the row lacks run.uid or start"),
            (r#"{"run": {"uid": "u"}, "start": "soon"}"#, "line 2: not a row of an export"),
        ] {
            let error = format!("{:#}", runs_of(format!("{good}\n{bad}\n").as_bytes()).unwrap_err());
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[test]
    fn percentiles_are_read() {
        assert_eq!([percent("25"), percent("50"), percent("90")], [Ok(25), Ok(50), Ok(90)]);
        for text in ["", "0", "75", "-25", "50%", "nan"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
