//! What a change does to a cluster: one run without it, one with it, and what differs.
//!
//! Invariants: both runs start with the same objects at the same time; a run that was stopped gives no comparison.

use super::changes::{Changes, Start};
use super::comparison::Comparison;
use super::flavor_amounts::FlavorAmounts;
use super::report::Report;
use super::simulation::{KeepGoing, Simulation, Until};
use super::watched::Watched;
use std::fmt;

/// A change, and how long to follow what comes of it.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// The change.
    pub changes: Changes,
    /// Namespace of objects without one.
    pub namespace: String,
    /// End of both runs.
    pub until: Until,
    /// Workloads that are shown also if they fare alike.
    pub watched: Vec<Watched>,
}

/// Why there is no comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoComparison {
    /// The change cannot be made, or the simulation cannot start; the text says why.
    Refused(String),
    /// The simulation was stopped.
    Stopped,
}

impl fmt::Display for NoComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Stopped => f.write_str("the simulation takes too long"),
        }
    }
}

impl std::error::Error for NoComparison {}

impl WhatIf {
    /// Runs without and with the change. Returns the comparison, and the report of the run with the change.
    ///
    /// # Errors
    /// The change is refused, or the simulation was stopped.
    pub fn compare(
        self,
        start: Start,
        keep_going: Option<&KeepGoing>,
    ) -> Result<(Comparison, Report), NoComparison> {
        let Self { changes, namespace, until, watched } = self;
        let run = |start: Start, changes: Option<Changes>| -> Result<Simulation, NoComparison> {
            let mut simulation = start.simulation(keep_going.cloned()).map_err(NoComparison::Refused)?;
            let changed = changes.map_or(Ok(()), |changes| changes.apply(&mut simulation, &namespace));
            // A change that meets a stopped simulation may be refused for that reason alone.
            check(keep_going)?;
            changed.map_err(NoComparison::Refused)?;
            simulation.run(until);
            check(keep_going)?;
            Ok(simulation)
        };
        let (without, amounts) = outcome(&mut run(start.clone(), None)?);
        let mut simulation = run(start, Some(changes))?;
        let mut keys = Vec::new();
        for watched in &watched {
            keys.extend(simulation.watched(watched, &namespace).map_err(NoComparison::Refused)?);
        }
        let (with, changed_amounts) = outcome(&mut simulation);
        let flavors = amounts.compared(&changed_amounts);
        let comparison = Comparison { flavors, ..Comparison::new(&without, &with, &keys) };
        check(keep_going)?;
        Ok((comparison, with))
    }
}

fn outcome(simulation: &mut Simulation) -> (Report, FlavorAmounts) {
    (simulation.report(), simulation.flavor_amounts())
}

fn check(keep_going: Option<&KeepGoing>) -> Result<(), NoComparison> {
    if keep_going.is_none_or(|may_go_on| may_go_on()) { Ok(()) } else { Err(NoComparison::Stopped) }
}
