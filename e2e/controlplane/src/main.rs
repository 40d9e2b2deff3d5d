//! `sluice-controlplane [COMMAND...]`: builds the control plane with Go and, at the same time, what the command builds with Rust.
#![allow(clippy::print_stdout, reason = "this program prints progress")]

use anyhow::Result;
use sluice_controlplane::builds::Builds;
use sluice_controlplane::{Binaries, CONTROL_PLANE};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    match build(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-controlplane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(command: &[OsString]) -> Result<()> {
    let binaries = Binaries::locate(&CONTROL_PLANE)?;
    for (name, path) in binaries.given(&CONTROL_PLANE) {
        println!("KUBEBUILDER_ASSETS: {name} is {}", path.display());
    }
    let builds = Builds::default();
    let go = |builds: &Builds| binaries.build(&CONTROL_PLANE, builds);
    if command.is_empty() { go(&builds) } else { builds.both(go, |builds| builds.cargo(command)) }
}
