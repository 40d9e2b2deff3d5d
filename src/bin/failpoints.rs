//! The `sluice` program with failpoints, for end-to-end tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice::cli::main()
}
