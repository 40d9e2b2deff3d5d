//! A real control plane on one machine for Sluice's demo, conformance run, cluster benchmark and end-to-end tests.
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK are built from their Go modules, run on free
//! loopback ports, and end with the program that started them, however that ends.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate is shell through and through: it waits and runs programs"
)]
#![expect(clippy::indexing_slicing, reason = "a JSON value indexed by a key that it lacks is null")]
#![allow(clippy::print_stdout, reason = "progress and tables are its output")]

pub mod audit;
pub mod balancer;
pub mod bench;
pub mod binaries;
pub mod certs;
pub mod cluster;
pub mod conformance;
pub mod control_plane;
pub mod decisions;
pub mod definitions;
pub mod demo;
mod demo_racks;
pub mod install;
pub mod kubeconfig;
pub mod kubectl;
pub mod limit;
pub mod manager;
pub mod objects;
pub mod paths;
pub mod persistent_cluster;
pub mod process;
pub mod proxy;
pub mod signals;
pub mod stale_lists;
pub mod wait;
pub mod watch_faults;
