//! Recorded scenarios as `sluice simulate --jsonl` processes them: read, decide, write.

use criterion::Criterion;
use sluice::simulate::{Scenario, replay};

/// Replays one line. Returns the output line, or `None` if it is no scenario of the scheduler.
fn answer(line: &str) -> Option<String> {
    let outcome = replay(&Scenario::parse(line.as_bytes()).ok()?).ok()?;
    serde_json::to_string(&outcome).ok()
}

pub(crate) fn scenarios(c: &mut Criterion) {
    let mut group = c.benchmark_group("recorded scenarios");
    group.sample_size(10);
    for path in sluice_recorded::files("cases") {
        let lines = sluice_recorded::lines(&path).unwrap_or_default();
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
