//! Memory per pending workload.

use super::world::{settle, workload, world};
use criterion::Criterion;
use sluice::scheduler::Workload;

/// Resident memory of the process in bytes, or 0 where the system does not report it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// Prints the memory per pending workload; workloads of one job template share their pod sets.
pub(crate) fn memory(_: &mut Criterion) {
    // Criterion does not filter this function, so that a filter for another benchmark is read here.
    if std::env::args()
        .skip(1)
        .any(|arg| !arg.starts_with('-') && arg.parse::<f64>().is_err() && arg != "memory")
    {
        return;
    }
    let number = 100_000;
    let shared: Vec<_> = (0..20).map(|n| workload(n).pod_sets).collect();
    let variants: [(&str, &dyn Fn(usize) -> Workload); 2] = [
        ("shared pod sets", &|n| {
            let pod_sets = shared.get(n % shared.len()).cloned().unwrap_or_default();
            Workload { pod_sets, ..workload(n) }
        }),
        ("pod sets of their own", &workload),
    ];
    let mut engines = Vec::new();
    for (name, make) in variants {
        let mut engine = world(0, 0);
        let before = resident();
        for n in 0..number {
            engine.enqueue(make(n));
        }
        settle(&mut engine);
        let each = resident().saturating_sub(before) / number;
        eprintln!("memory, {number} pending, {name}: {each} bytes per workload");
        engines.push(engine);
    }
}
