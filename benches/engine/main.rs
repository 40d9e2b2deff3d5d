//! Benchmarks of the engine: memory per pending workload, one cycle of a busy cluster, one event and the time from an event to
//! its decision by number of pending workloads, the search for victims, recorded scenarios, and readers of
//! the pending order.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod cycle;
mod event;
mod memory;
mod preemption;
mod replay;
mod visibility;
mod world;

use criterion::{criterion_group, criterion_main};
use tikv_jemallocator::Jemalloc;

// The same allocator as in the program.
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
    replay::scenarios,
    visibility::visibility
);
criterion_main!(benches);
