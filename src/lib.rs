//! Sluice: an admission gate and quota scheduler for Kubernetes batch workloads that speaks Kueue's API.
//!
//! Modules are listed in the order of their dependencies: each may use only the modules above it. The modules up to
//! `dashboard` are pure: no clock, environment, network or task. `record`, `kube`, `server` and `cli` are the shell, which performs
//! I/O.

pub mod resources;

pub mod api;

pub mod topology;

pub mod conversion;

pub mod quota;

pub mod queue;

pub mod scheduler;

pub mod lifecycle;

pub mod frameworks;

pub mod cache;

pub mod history;

pub mod snapshot;

pub mod reconciler;

pub mod admission;

pub mod simulate;

pub mod metrics;

pub mod visibility;

pub mod people;

pub mod dashboard;

pub mod record;

pub mod kube;

pub mod server;

pub mod cli;
