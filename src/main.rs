//! The `sluice` program.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// jemalloc, because objects consist of many small allocations that one thread makes and another thread frees.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    sluice::cli::main()
}
