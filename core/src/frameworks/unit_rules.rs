//! Which rules the units of a kind follow: its row says how pods are held back, and each way has rules of its own.
//!
//! Invariant: the row names no rules, so that these may read it.

use super::pod_group::PodRules;
use super::row::{Framework, Role};
use super::set_of_pods::SetsOfPods;
use super::suspended::SuspendedJobs;
use super::unit::UnitRules;

impl Framework {
    /// Returns the rules of its units; `None` if its objects have no Workload.
    pub fn unit_rules(&self) -> Option<&'static dyn UnitRules> {
        match self.role {
            Role::Suspended => Some(&SuspendedJobs),
            Role::Pods => Some(&PodRules),
            Role::PodsOfOwner => Some(&SetsOfPods),
            Role::PassThrough => None,
        }
    }
}
