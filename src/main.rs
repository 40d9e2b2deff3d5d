//! The `sluice` program.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// Objects of a few kilobytes made of many small pieces come and go all the time, read by one thread, kept by another.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    sluice::cli::main()
}
