//! Integration tests of the library, in one binary.

mod admission;
mod contracts;
mod crds;
mod laws;
mod manifests;
mod pod_template;
mod shared;
mod shell_certificates;
mod shell_executor;
mod shell_lease;
mod shell_server;
mod sim;
mod tables;
