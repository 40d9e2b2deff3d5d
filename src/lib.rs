//! Sluice: an admission gate and quota scheduler for Kubernetes batch workloads that speaks Kueue's API.
//!
//! The crate `sluice-core` decides, `sluice-views` shows; both are pure. This crate is the shell, which performs I/O. Its modules
//! are listed in the order of their dependencies: each may use both crates and the modules above it.

pub use sluice_core::{
    admission, api, cache, conversion, frameworks, history, lifecycle, queue, quota, reconciler, resources,
    scheduler, simulate, snapshot, topology,
};
pub use sluice_views::{dashboard, metrics, people, visibility};

pub mod record;

pub mod kube;

pub mod server;

pub mod cli;
