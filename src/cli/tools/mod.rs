//! Commands for planning and operating a cluster: configuration, definitions, dumps, simulation, imports and switches.

pub(super) mod cluster_objects;
pub(super) mod config;
pub(super) mod crds;
pub(super) mod dump;
pub(super) mod framework;
pub(super) mod import;
pub(super) mod migrate;
pub(super) mod recorded_runs;
pub(super) mod simulate;
