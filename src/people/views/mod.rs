//! The views of people as text.
//!
//! Invariants: a text says only what its view holds; what a view does not hold is `-`, never a zero; lines that have no content are
//! absent.

mod amount;
mod audit;
mod capacity;
mod cluster_queues;
mod cohort_tree;
mod comparison;
mod local_queues;
mod quota_bar;
mod share;
mod status;
mod time;
mod why;
mod workloads;

pub use amount::ResourceNames;
pub use audit::{audit, finding};
pub use capacity::capacity;
pub use cluster_queues::{cluster_queues, default_flavor_resource};
pub use cohort_tree::{Forest, cohort_tree};
pub use comparison::comparison;
pub use local_queues::local_queues;
pub use share::share;
pub use status::status;
pub use why::why;
pub use workloads::workloads;

use jiff::Timestamp;

/// How a text looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether characters beyond ASCII may be used.
    pub utf8: bool,
    /// Whether colours may be used.
    pub color: bool,
    /// Width of the terminal; `None` if there is none.
    pub width: Option<usize>,
    /// Whether tables have headings.
    pub headings: bool,
    /// Whether tables have more columns.
    pub wide: bool,
    /// The time that ages count to.
    pub now: Timestamp,
}

/// A flavor and a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorResource {
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
}
