//! Replays one recorded scenario: a core decides, and its writes land on a fake API server, from which the outcome is read.
//!
//! The core does not lead, so that it decides and writes nothing but what the cycles of the scenario lead to.

use super::fake_api_server::{FakeApiServer, key_of};
use super::harness::Harness;
use super::outcome::Outcome;
use super::report::to_grant;
use super::scenario::{Scenario, ScenarioError};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::lifecycle::conditions;
use crate::reconciler::{Delta, Effect, Write};
use crate::scheduler::{Decision, Outcome as Decided};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A core with the objects of a replayed scenario.
struct Replay {
    harness: Harness,
    now: Timestamp,
    /// The statuses of all Workloads before the first cycle.
    initial: BTreeMap<ObjectKey, WorkloadStatus>,
    /// The condition Admitted of Workloads before checks were added to them.
    unchecked: BTreeMap<ObjectKey, Option<Condition>>,
    /// The queues after the last cycle.
    queues: Queues,
}

/// Pending and parked Workloads by ClusterQueue.
#[derive(Default)]
struct Queues {
    pending: BTreeMap<String, Vec<String>>,
    inadmissible: BTreeMap<String, Vec<String>>,
}

/// Runs the scheduling cycles of a scenario and returns their outcome.
pub fn replay(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let mut replay = Replay::new(scenario)?;
    for _ in 0..scenario.cycles {
        if replay.run_cycle() == Cycle::Idle {
            // Further cycles would nominate no workload.
            break;
        }
    }
    Ok(replay.outcome())
}

/// Whether a cycle, or the one after it, has anything to decide.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cycle {
    Busy,
    Idle,
}

impl Replay {
    fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let now = scenario.now;
        let mut harness = Harness::new(scenario.settings()?, FakeApiServer::new(false));
        for (kind, object) in scenario.known_objects() {
            harness.server.load(kind, object, now);
        }
        harness.receive();
        let lists = Kind::all().into_iter().map(|kind| Delta::Synced { kind });
        harness.core.apply_all(harness.inbox.drain(..).chain(lists), now);
        harness.core.queue_as_recorded();
        let (initial, unchecked, queues) = Default::default();
        let mut replay = Self { harness, now, initial, unchecked, queues };
        replay.initial = replay.statuses();
        replay.queues = replay.queues(&BTreeSet::new());
        Ok(replay)
    }

    /// Returns the statuses of the Workloads that can be read.
    fn statuses(&self) -> BTreeMap<ObjectKey, WorkloadStatus> {
        let all = self.harness.server.all(Kind::Workload).map(|object| (key_of(object), object));
        let known = all.filter(|(key, _)| self.harness.core.workload(key).is_some());
        known.map(|(key, object)| (key, status_of(object))).collect()
    }

    /// Runs one cycle, executes its writes, and delivers their results.
    fn run_cycle(&mut self) -> Cycle {
        let decisions = self.harness.core.decide_once(self.now);
        // As the cycle leaves them: what its writes change is for the next one.
        let preempts = |decision: &&Decision| matches!(decision.outcome, Decided::Preempting(..));
        self.queues = self.queues(&decisions.iter().filter(preempts).map(|d| &d.key).collect());
        let idle = decisions.is_empty() && !self.harness.core.engine().has_work();
        let effects = self.harness.core.write_decisions(decisions, self.now);
        self.execute(effects);
        let effects = self.harness.core.finish_replaced_slices(self.now);
        self.execute(effects);
        if idle { Cycle::Idle } else { Cycle::Busy }
    }

    fn execute(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Write(write) = effect else { continue };
            self.note_new_checks(&write);
            self.harness.execute(write, self.now);
        }
        self.harness.core.apply_all(self.harness.inbox.drain(..), self.now);
    }

    /// Keeps the condition Admitted of a Workload that gets admission checks with its reservation: in Kueue another
    /// controller adds the checks after the cycle, and until then the condition stays.
    fn note_new_checks(&mut self, write: &Write) {
        let known = self.harness.server.get(write.kind, &write.key).map(status_of).unwrap_or_default();
        let listed = |name: &str| known.admission_checks.iter().any(|check| check.name == name);
        let new = write.status.iter().flat_map(|status| &status.admission_checks);
        if new.into_iter().any(|check| !listed(&check.name)) {
            let admitted = conditions::find(&known, ConditionType::Admitted).cloned();
            self.unchecked.insert(write.key.clone(), admitted);
        }
    }

    fn outcome(self) -> Outcome {
        let mut outcome = Outcome::default();
        for (key, mut status) in self.statuses() {
            if let Some(admitted) = self.unchecked.get(&key) {
                status.conditions.retain(|condition| condition.type_ != ConditionType::Admitted.as_str());
                status.conditions.extend(admitted.clone());
            }
            let before = self.initial.get(&key);
            if let Some(admission) = &status.admission
                && before.and_then(|b| b.admission.as_ref()) != Some(admission)
            {
                outcome.admitted.insert(key.to_string(), to_grant(admission));
            }
            let preempted = |s: &WorkloadStatus| conditions::is_true(s, ConditionType::Preempted);
            if preempted(&status) && !before.is_some_and(preempted) {
                let reason = conditions::reason(&status, ConditionType::Preempted);
                outcome.preempted.insert(key.to_string(), reason.to_owned());
            }
            let conditions = status.conditions.into_iter().map(|c| (c.type_, (c.status, c.reason)));
            outcome.conditions.insert(key.to_string(), conditions.collect());
        }
        let unreadable = self.harness.core.unreadable_objects();
        outcome.unreadable = unreadable.map(|(_, key, reason)| (key.to_string(), reason)).collect();
        Outcome { pending: self.queues.pending, inadmissible: self.queues.inadmissible, ..outcome }
    }

    /// Returns the pending Workloads. Preemptors are not inadmissible.
    fn queues(&self, preemptors: &BTreeSet<&ObjectKey>) -> Queues {
        let mut queues = Queues::default();
        let engine = self.harness.core.engine();
        for queue in engine.cluster_queues() {
            for workload in engine.pending_in_order(queue) {
                let parked = engine.is_parked(&workload.key) && !preemptors.contains(&workload.key);
                let group = if parked { &mut queues.inadmissible } else { &mut queues.pending };
                group.entry(queue.to_string()).or_default().push(workload.key.to_string());
            }
        }
        for (queue, key) in self.harness.core.waiting_workloads(self.now) {
            queues.inadmissible.entry(queue.to_owned()).or_default().push(key.to_string());
        }
        queues
    }
}

/// Returns the status of a stored Workload.
fn status_of(object: &Value) -> WorkloadStatus {
    let status = object.get("status").map(WorkloadStatus::deserialize);
    status.and_then(Result::ok).unwrap_or_default()
}
