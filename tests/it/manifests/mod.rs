//! Shipped manifests, the chart and what watches the manager.

mod applied_twice;
mod chart;
mod crates;
mod crds;
mod framework_file;
mod frameworks;
mod kustomize;
mod monitoring;
mod monitoring_queries;
mod permissions;
mod recipes;
mod recorder;
mod shipped;
mod unreviewed_workloads;
