//! What the objects say: records of each, enough to decide and no more. Decides nothing.

pub(crate) mod interned_templates;
pub(crate) mod interner;
pub(crate) mod kinds;
pub(crate) mod records;
pub(crate) mod tombstones;
pub(crate) mod workload_object;

pub use kinds::{ApiResourceInfo, Kind};
pub use workload_object::WorkloadObject;
