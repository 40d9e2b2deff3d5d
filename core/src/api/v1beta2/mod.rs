//! Version v1beta2 of `kueue.x-k8s.io`: one file per kind.
//!
//! Root types keep `spec` and `status` optional in JSON, as Kueue's CRDs do: missing ones decode to empty values.
//! Unknown fields are ignored when decoding. Objects are patched, never written back from these types, so that fields
//! of a newer API version are not lost.

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue;
mod priority_class;
mod provisioning;
mod quota;
mod resource_flavor;
mod topology;
mod topology_assignment;
mod workload;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue::*;
pub use priority_class::*;
pub use provisioning::*;
pub use quota::*;
pub use resource_flavor::*;
pub use topology::*;
pub use topology_assignment::*;
pub use workload::*;

/// Name of the version.
pub const VERSION: &str = "v1beta2";
