//! What Sluice decides: an admission gate and quota scheduler for Kubernetes batch workloads that speaks Kueue's API.
//!
//! Modules are listed in the order of their dependencies: each may use only the modules above it. All are pure: no clock,
//! environment, network or task; time is an argument. One function uses threads, and its result does not depend on their number
//! (`simulate::manifest`).

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
