//! A real control plane on one machine for Sluice's demo, conformance run, cluster benchmark and end-to-end tests.
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK are built from their Go modules, run on free
//! loopback ports, and stop when the program that started them ends, even if it is killed.
#![expect(clippy::disallowed_methods, reason = "this crate waits and runs programs")]
#![expect(clippy::indexing_slicing, reason = "indexing a JSON value by a missing key returns null")]
#![allow(clippy::print_stdout, reason = "this crate prints progress and tables")]

pub mod audit;
pub mod balancer;
pub mod bench;
pub mod binaries;
pub mod browser;
pub mod certs;
pub mod cgroup;
pub mod chart;
pub mod cluster;
pub mod conformance;
pub mod container;
pub mod control_plane;
pub mod dashboard;
pub mod decisions;
pub mod definitions;
pub mod demo;
mod demo_group;
mod demo_racks;
pub mod documented;
pub mod draw;
mod etcd_writer;
pub mod history;
pub mod install;
pub mod installed_manifests;
pub mod kubeconfig;
pub mod kubectl;
pub mod kubelet;
pub mod limit;
mod lives;
pub mod manager;
pub mod objects;
pub mod operators;
pub mod part;
pub mod paths;
pub mod persistent_cluster;
pub mod process;
pub mod proxy;
pub mod recorder;
pub mod rights;
pub mod samples;
pub mod signals;
pub mod stale_lists;
pub mod switch;
pub mod third_party;
pub mod upgrades;
mod visibility_endpoint;
pub mod wait;
pub mod watch_faults;
