//! Workloads in the scheduler's terms: what each asks for, and what each is charged for.

mod charge;
mod pending;
