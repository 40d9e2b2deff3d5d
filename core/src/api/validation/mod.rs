//! Validation rules that schemas cannot express, by kind. Each validator reads the raw object and returns all errors.
//!
//! Invariants: validators are total (a value of an unexpected type is an error that names its field), read only the
//! given objects, and report path and kind of an error as the API server's own checks would.

mod cluster_queue;
mod cursor;
mod equality;
mod error;
mod errors;
mod flavor;
pub mod gated_by;
mod gates;
mod quota;
mod slices;
pub mod syntax;
mod workload;
mod workload_status;
mod workload_update;

pub use cluster_queue::{cluster_queue, cohort};
pub use cursor::{FieldCursor, child_path, key_path};
pub(crate) use equality::equal as semantically_equal;
pub use error::{ErrorKind, FieldError, aggregate};
pub use errors::Errors;
pub use flavor::resource_flavor;
pub use gates::{Gate, Gates};
pub use slices::incomplete_slices;
pub use workload::{workload, workload_written};
