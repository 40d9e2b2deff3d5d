//! What Sluice shows: metrics, the views of the visibility API, texts for the terminal and pages of the dashboard.
//!
//! Modules are listed in the order of their dependencies: each may use the core and the modules above it. All are pure: no clock,
//! environment, network or task; they read what the core publishes, and change nothing.

use sluice_core::{
    admission, api, cache, frameworks, history, lifecycle, queue, quota, reconciler, resources, scheduler,
    simulate, snapshot, topology,
};

pub mod metrics;

pub mod visibility;

pub mod people;

pub mod dashboard;
