//! The `sluice` program.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// Objects of a few kilobytes made of many small pieces come and go all the time, read by one thread, kept by another.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    sluice::cli::main()
}
