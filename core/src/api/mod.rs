//! Kubernetes API types: Kueue's API group by version, its labels, annotations, condition types and reasons, and the
//! manager's configuration file.
//!
//! Invariant: this module makes no scheduling decision; it contains types, names, schemas, defaults and validation
//! only.

pub mod config;
pub mod crd;
pub mod decoding;
pub mod key;
pub mod names;
mod owner;
pub mod partial;
pub mod reason;
pub mod selector;
pub mod similar;
pub mod time;
pub mod v1beta1;
pub mod v1beta2;
pub mod validation;
pub mod visibility;
pub mod yaml;

pub use key::{ByKey, ObjectKey};
pub use owner::OwnerRecord;

/// API group of Kueue's kinds.
pub const GROUP: &str = "kueue.x-k8s.io";
