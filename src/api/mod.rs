//! The Kubernetes shapes that Sluice speaks: Kueue's API group by version, and the words (labels, annotations,
//! condition types, reasons) that objects carry.
//!
//! Invariant: nothing here decides; types, names, schemas, defaults and validation only.

pub mod config;
pub mod crd;
pub mod key;
pub mod names;
pub mod partial;
pub mod reason;
pub mod selector;
pub mod v1beta2;
pub mod validation;

pub use key::{ByKey, ObjectKey};

/// The API group of every kind of ours.
pub const GROUP: &str = "kueue.x-k8s.io";
