//! Upgrades of Sluice: what a build has stored, as files, and what another build does with it. `make upgrade-dump` writes the files from
//! a control plane on which this version has brought jobs of every kind, and Workloads, into every state; `e2e/upgrades` keeps them.
//!
//! Invariants: a dump has no Secret, no Lease, no key and no name of a machine, and at most two megabytes; a control plane that begins
//! with it has the same UIDs, owners, field managers and statuses, with all times moved by the age of the dump.

mod changes;
mod dump;
mod fields;
mod kinds;

pub use changes::Records;
pub use dump::{Dump, folders};
pub use fields::unfit_objects;
