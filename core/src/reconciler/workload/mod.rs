//! Workloads: gathers the facts for their lifecycle, and sends the next write with the events that follow it.

pub(super) mod decision_status;
pub(super) mod events;
mod facts;
pub(super) mod status_write;
pub(super) mod step;

use super::CoreSettings;
use super::scheduler_input::SchedulerInput;
use super::unit::units::Units;
use super::writes::in_flight::Writes;
use crate::cache::Cache;
use crate::scheduler::Engine;

/// The input of a Workload's lifecycle: objects, verdicts of the scheduler, and writes without a result.
#[derive(Clone, Copy)]
pub(super) struct WorkloadFacts<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a CoreSettings,
    pub(super) engine: &'a Engine,
    pub(super) writes: &'a Writes,
}

impl<'a> WorkloadFacts<'a> {
    const fn units(self) -> Units<'a> {
        Units { cache: self.cache, settings: self.settings }
    }

    const fn scheduler_input(self) -> SchedulerInput<'a> {
        SchedulerInput { cache: self.cache, settings: self.settings }
    }
}
