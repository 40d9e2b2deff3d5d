//! Pages of the dashboard.

mod job_without_workload;
mod missing;
mod objects;
mod registers;
mod rendered;
mod role;
mod style;
