//! What a simulation starts with, and what changes it after it has reached a stable state.
//!
//! Invariant: Workloads are loaded after the jobs that own them, by whose UIDs they are known.

use super::edit::{Edit, MadeLater};
use super::manifest::{Manifest, Manifests, Problem};
use super::simulation::{KeepGoing, Simulation, SimulationOptions};
use super::watched::Watched;
use crate::cache::Kind;
use serde_json::Value;

/// Inputs of a simulation.
#[derive(Clone, Debug)]
pub struct Start {
    /// Time and settings.
    pub options: SimulationOptions,
    /// Objects as a server has stored them, Workloads last.
    pub stored: Vec<(Kind, Value)>,
    /// Problems with what was read.
    pub problems: Vec<Problem>,
    /// Manifests to create.
    pub manifests: Manifests,
}

impl Start {
    /// Creates the simulation. `keep_going` limits it from the first object on.
    ///
    /// # Errors
    /// The schemas of this build cannot be generated, which is a bug.
    pub fn simulation(self, keep_going: Option<&KeepGoing>) -> Result<Simulation, String> {
        let mut simulation = Simulation::new(self.options)?;
        simulation.limit(keep_going);
        self.problems.into_iter().for_each(|problem| simulation.add_problem(problem));
        self.stored.into_iter().for_each(|(kind, object)| simulation.load_stored(kind, object));
        simulation.apply_all(self.manifests);
        Ok(simulation)
    }
}

/// Changes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Manifests to apply one after the other, each with its name in the timeline.
    pub files: Vec<(String, Manifests)>,
    /// Changes of single objects, which are made together.
    pub edits: Vec<Edit>,
}

impl Changes {
    /// Checks the names of the changes, and of the workloads that are asked for, in a simulation that has not run yet: a misspelt name
    /// costs no simulation.
    ///
    /// # Errors
    /// An object does not exist, and none of the files makes it, or a change of it is invalid; the error begins with the text of the change.
    pub fn check(&self, simulation: &Simulation, namespace: &str, watched: &[Watched]) -> Result<(), String> {
        let of_files = self.files.iter().flat_map(|(_, manifests)| &manifests.objects);
        let manifests: Vec<&Manifest> = of_files.collect();
        for (at, edit) in self.edits.iter().enumerate() {
            let edits = self.edits.get(..at).unwrap_or_default();
            simulation.check_edit(edit, MadeLater { manifests: &manifests, edits, namespace })?;
        }
        let later = MadeLater { manifests: &manifests, edits: &self.edits, namespace };
        watched.iter().try_for_each(|watched| simulation.check_watched(watched, later))
    }

    /// Makes the changes, each file after the simulation has settled, then the edits together; objects without a namespace are
    /// those of `namespace`.
    ///
    /// # Errors
    /// A change is refused; the error begins with its text.
    pub fn apply(self, simulation: &mut Simulation, namespace: &str) -> Result<(), String> {
        for (what, change) in self.files {
            simulation.run_until_stable();
            simulation.apply_change(&what, change);
        }
        if !self.edits.is_empty() {
            simulation.run_until_stable();
        }
        // A change that is named twice is one: the second would not find what the first removed.
        let is_first =
            |(index, edit): &(usize, &Edit)| !self.edits.iter().take(*index).any(|one| one == *edit);
        let mut edits = self.edits.iter().enumerate().filter(is_first);
        edits.try_for_each(|(_, edit)| simulation.apply_edit(edit, namespace))
    }
}
