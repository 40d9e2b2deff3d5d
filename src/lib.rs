//! Sluice: an admission gate and quota scheduler for Kubernetes batch workloads that speaks Kueue's API.
//!
//! The crate `sluice-core` decides. Modules are listed in the order of their dependencies: each may use the core and the modules
//! above it. The modules up to `dashboard` are pure: no clock, environment, network or task. `record`, `kube`, `server` and `cli`
//! are the shell, which performs I/O.

pub use sluice_core::{
    admission, api, cache, conversion, frameworks, history, lifecycle, queue, quota, reconciler, resources, scheduler,
    simulate, snapshot, topology,
};

pub mod metrics;

pub mod visibility;

pub mod people;

pub mod dashboard;

pub mod record;

pub mod kube;

pub mod server;

pub mod cli;
