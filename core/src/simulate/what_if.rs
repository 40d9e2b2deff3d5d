//! What a change does to a cluster: one run without it, one with it, and what differs.
//!
//! Invariants: both runs start with the same objects at the same time; a run that was stopped gives no comparison; a change whose names
//! do not exist is refused before the first run.

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
        let load = |start: Start| start.simulation(keep_going).map_err(NoComparison::Refused);
        let run = |start: Simulation, changes: Option<Changes>| -> Result<Simulation, NoComparison> {
            let mut simulation = start;
            let changed = changes.map_or(Ok(()), |changes| changes.apply(&mut simulation, &namespace));
            // A change that meets a stopped simulation may be refused for that reason alone.
            check(keep_going)?;
            changed.map_err(NoComparison::Refused)?;
            simulation.run(until);
            check(keep_going)?;
            Ok(simulation)
        };
        let first = load(start.clone())?;
        let checked = changes.check(&first, &namespace, &watched);
        // A simulation that was stopped while it was loaded lacks objects.
        check(keep_going)?;
        checked.map_err(NoComparison::Refused)?;
        let (without, amounts) = outcome(&mut run(first, None)?);
        let mut simulation = run(load(start)?, Some(changes))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionSettings;
    use crate::cache::Kind;
    use crate::reconciler::CoreSettings;
    use crate::simulate::{Edit, Manifests, SimulationOptions};
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn job(name: &str) -> Value {
        let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
        let spec = json!({"suspend": true, "parallelism": 1, "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"namespace": "ns", "name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": spec})
    }

    fn start() -> Start {
        let options = SimulationOptions {
            core: CoreSettings::default(),
            admission: AdmissionSettings::default(),
            start: Timestamp::UNIX_EPOCH,
            run_for: None,
            recorded: None,
        };
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
        let queue =
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}});
        let stored = vec![
            (Kind::Namespace, json!({"metadata": {"name": "ns"}})),
            (Kind::Node, json!({"metadata": {"name": "n1"}})),
            (Kind::ClusterQueue, queue),
            (Kind::from_group_kind("batch", "Job").unwrap(), job("stored")),
        ];
        Start { options, stored, problems: Vec::new(), manifests: Manifests::default() }
    }

    /// Returns the answer, and how often it was asked whether the simulation may go on.
    fn ask(
        edits: Vec<Edit>,
        watched: &[&str],
        file: Option<Value>,
    ) -> (Result<Comparison, NoComparison>, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let keep_going: KeepGoing = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            true
        });
        let files = file.map(|object| {
            let mut manifests = Manifests::default();
            manifests.parse("file", &object.to_string(), "ns");
            ("file".to_owned(), manifests)
        });
        let changes = Changes { files: files.into_iter().collect(), edits };
        let watched = watched.iter().map(|name| Watched::parse(name).unwrap()).collect();
        let what_if = WhatIf { changes, namespace: "ns".to_owned(), until: Until::Settled, watched };
        let found = what_if.compare(start(), Some(&keep_going)).map(|(comparison, _)| comparison);
        (found, asked.load(Ordering::Relaxed))
    }

    #[test]
    fn a_misspelt_name_costs_no_simulation() {
        let amount = |value: &str| Edit::amount("--quota", "nominalQuota", value).unwrap();
        for (edit, refused) in [
            (Edit::drained_node("--drain", "nosuch").unwrap(), "--drain nosuch: Node nosuch not found"),
            (Edit::added_nodes(1, "nosuch").unwrap(), "--add-nodes 1 --like nosuch: Node nosuch not found"),
            (amount("nosuch:f:cpu=1"), "--quota nosuch:f:cpu=1: ClusterQueue nosuch not found"),
            (amount("cohort/nosuch:f:cpu=1"), "--quota cohort/nosuch:f:cpu=1: Cohort nosuch not found"),
            (amount("cq:g:cpu=1"), "--quota cq:g:cpu=1: ClusterQueue cq has no quota for cpu in flavor g"),
            (
                Edit::reprioritized("job/stored=high").unwrap(),
                "--priority job/stored=high: WorkloadPriorityClass high not found",
            ),
            (Edit::stopped("job/nosuch").unwrap(), "--stop job/nosuch: Job ns/nosuch not found"),
            (
                Edit::deleted("workload/job-nosuch-12345").unwrap(),
                "--delete workload/job-nosuch-12345: Workload ns/job-nosuch-12345 not found",
            ),
            (Edit::set("spec.x=1", "cq/cq").unwrap(), "--set spec.x=1 cq/cq: spec.x: "),
        ] {
            // A change before it does not hide the name.
            let edits = vec![Edit::deleted("job/stored").unwrap(), edit];
            let (found, asked) = ask(edits, &[], None);
            let Err(NoComparison::Refused(why)) = found else { panic!("{refused}: {found:?}") };
            assert!(why.starts_with(refused), "{why}");
            assert_eq!(asked, 1, "{refused}: nothing was simulated");
        }
        let (found, asked) = ask(vec![Edit::deleted("job/stored").unwrap()], &["job/nosuch"], None);
        let expected = Err(NoComparison::Refused("Job ns/nosuch not found".to_owned()));
        assert_eq!((found, asked), (expected, 1));
    }

    #[test]
    fn what_a_change_makes_itself_can_be_changed() {
        let named = vec![Edit::reprioritized("job/new=5").unwrap()];
        let unnamed = vec![Edit::deleted("job/new-00001").unwrap()];
        let mut generated = job("");
        generated["metadata"] = json!({"namespace": "ns", "generateName": "new-"});
        for (edits, file) in [(named, job("new")), (unnamed, generated)] {
            let (found, asked) = ask(edits.clone(), &[], Some(file));
            assert!(found.is_ok() && asked > 1, "{edits:?}: {found:?}");
        }
        let nodes = [Edit::added_nodes(1, "n1"), Edit::drained_node("--drain", "added-1")];
        let (found, _) = ask(nodes.into_iter().map(Result::unwrap).collect(), &[], None);
        assert!(found.is_ok(), "{found:?}");
    }
}
