//! Sluice: an admission gate and quota scheduler for Kubernetes batch workloads that speaks Kueue's API.
//!
//! Modules stand in the order of their dependencies: each may use those before it. Down to `view` they are pure: no
//! clock, no environment, no network, no task. `kube`, `server` and `cli` are the shell that waits and talks.

pub mod resources;

pub mod api;

pub mod topology;

pub mod quota;

pub mod queue;

pub mod scheduler;

pub mod lifecycle;

pub mod jobs;

pub mod state;

pub mod admission;

pub mod simulate;

pub mod view;

pub mod kube;

pub mod server;

pub mod cli;
