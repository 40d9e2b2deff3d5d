//! The `sluice` program as end-to-end tests build it: second passes halt where a test says.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice::cli::main()
}
