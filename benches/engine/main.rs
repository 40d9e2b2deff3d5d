//! Figures of the engine: memory of a pending workload, one cycle of a busy cluster, one event and the time from an event
//! to its decision at growing numbers of pending workloads, the search for victims, and recorded scenarios.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod cycle;
mod event;
mod memory;
mod preemption;
mod replay;
mod world;

use criterion::{criterion_group, criterion_main};
use tikv_jemallocator::Jemalloc;

// The allocator of the program.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

criterion_group!(
    benches,
    memory::memory,
    cycle::cycle,
    event::event,
    event::decision,
    preemption::preemption,
    preemption::crowded,
    replay::scenarios
);
criterion_main!(benches);
