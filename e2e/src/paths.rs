//! Paths in the repository.

pub use sluice_controlplane::paths::{controlplane, root, target};
