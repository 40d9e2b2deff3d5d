//! Comparisons with recordings of Kueue that are outside the repository (`tests/recorded/lib.rs` says where). A comparison whose recording
//! this machine does not have is an ignored test, and the last line of each run is the number of recordings that were not compared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a comparison fails by panicking, and this harness prints"
)]

mod committed;
mod definitions;
mod feature_gates;
mod job_kinds;
mod tables;
mod takeovers;

use libtest_mimic::{Arguments, Trial};
use std::path::Path;
use std::process::ExitCode;

/// Name, recording, and what compares it.
type Comparison = (&'static str, &'static str, fn(&Path));

// `.ci/run` expects this number of them where no recording is outside.
const COMPARISONS: [Comparison; 10] = [
    ("quantities", "tables/quantity.jsonl.gz", tables::quantities_match),
    ("names_of_workloads", "tables/workload-name.jsonl.gz", tables::workload_names_match),
    ("requests_of_pods", "tables/pod-requests.jsonl.gz", tables::pod_requests_match),
    ("definitions", "spec/crds", definitions::match_kueue),
    ("feature_gates", "spec/features.md", feature_gates::match_inventory),
    ("job_kinds", "spec/integrations.md", job_kinds::match_rows),
    ("takeover_from_v0.17.8", "switch/v0.17.8", takeovers::keep_every_workload),
    ("takeover_from_v0.18.6", "switch/v0.18.6", takeovers::keep_every_workload),
    ("takeover_from_v0.19.2", "switch/v0.19.2", takeovers::keep_every_workload),
    ("takeover_from_ff69552", "switch/ff69552", takeovers::keep_every_workload),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let comparisons = COMPARISONS.map(|(name, recording, compare)| {
        let found = sluice_recorded::find(recording);
        let ignored = found.is_none();
        Trial::test(name, move || {
            let path = found.ok_or_else(|| format!("this machine has no {recording}"))?;
            compare(&path);
            Ok(())
        })
        .with_ignored_flag(ignored)
    });
    // Where nothing is outside, nothing can differ from it.
    let copies = sluice_recorded::find_outside("cases").map(|_| {
        Trial::test("committed_recordings", || {
            committed::equal_those_outside();
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, comparisons.into_iter().chain(copies).collect());
    if !arguments.list {
        let left_out = conclusion.num_ignored + conclusion.num_filtered_out;
        println!("{left_out} of Kueue's recordings not compared");
    }
    conclusion.exit_code()
}
