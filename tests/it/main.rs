//! Integration tests.

mod crds;
mod manifests;
mod pod_template;
mod shared;
mod sim;
