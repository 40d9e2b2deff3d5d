//! What a cluster would do, without one: the same core fed from manifests or recorded scenarios, in virtual time.
//!
//! `replay` answers for one recorded scenario: its objects go into a core that does not lead, through the same door as on a
//! cluster; then the scheduler is driven by hand, and the statuses are those that a leader would write.
//! Invariant: nothing here decides; what comes out is a function of what went in, byte by byte.

mod cluster;
mod manifest;
mod outcome;
mod replay;
mod scenario;
mod schema;
pub mod server;

pub use manifest::{Manifest, Manifests, Place, Problem};
pub use outcome::{Grant, Outcome, PodSetGrant};
pub use replay::replay;
pub use scenario::{Scenario, ScenarioError};
