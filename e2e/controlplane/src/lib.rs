//! The programs of the control plane: those of the folder that `KUBEBUILDER_ASSETS` names, and those that are built from the Go
//! modules beside this crate, which are kept in the target folder until version, link flags or module files change.
//! `SLUICE_KUBERNETES` selects another version of Kubernetes than the default one; its programs are kept beside the others.
#![expect(clippy::disallowed_methods, reason = "this crate runs programs, for as long as they take")]
#![allow(clippy::print_stdout, reason = "this crate prints progress")]

mod assets;
mod binaries;
pub mod builds;
mod go;
mod modules;
pub mod paths;

pub use binaries::{Binaries, CONTROL_PLANE};
