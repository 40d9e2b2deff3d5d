//! Version v1beta2 of `kueue.x-k8s.io`: one file per kind.
//!
//! Root types keep `spec` and `status` optional in JSON, as Kueue's CRDs do: an object without them decodes to empty ones.
//! Unknown fields are ignored on reading; objects are patched, never written back from these types.

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
pub use workload::*;

/// The version's name.
pub const VERSION: &str = "v1beta2";
