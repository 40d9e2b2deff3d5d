//! Recorded scenarios as `sluice simulate --jsonl` processes them: read, decide, write. The suites lie beside the repository
//! (`../shared` or `SLUICE_SHARED`); without them, nothing is measured.

use criterion::Criterion;
use flate2::read::GzDecoder;
use sluice::simulate::{Scenario, replay};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

fn lines(path: &Path) -> Option<Vec<String>> {
    let mut text = String::new();
    GzDecoder::new(File::open(path).ok()?).read_to_string(&mut text).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// Replays one line. Returns the output line, or `None` if it is no scenario of the scheduler.
fn answer(line: &str) -> Option<String> {
    let outcome = replay(&Scenario::parse(line.as_bytes()).ok()?).ok()?;
    serde_json::to_string(&outcome).ok()
}

pub(crate) fn scenarios(c: &mut Criterion) {
    let base = std::env::var("SLUICE_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(base).join("conformance/cases");
    let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.to_string_lossy().ends_with(".jsonl.gz")).collect();
    files.sort();
    let mut group = c.benchmark_group("recorded scenarios");
    group.sample_size(10);
    for path in files {
        let lines = lines(&path).unwrap_or_default();
        let known: Vec<String> = lines.into_iter().filter(|line| answer(line).is_some()).collect();
        if known.is_empty() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().replace(".jsonl.gz", "");
        group.bench_function(format!("{name}, {} of them", known.len()), |b| {
            b.iter(|| known.iter().filter_map(|line| answer(line)).map(|text| text.len()).sum::<usize>());
        });
    }
    group.finish();
}
