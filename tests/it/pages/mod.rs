//! Pages of the dashboard.

mod job_without_workload;
mod missing;
mod objects;
pub(crate) mod registers;
mod rendered;
mod role;
mod style;
pub(crate) mod tenants;
