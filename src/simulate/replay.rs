//! Replays one recorded scenario on a core that does not lead.

use super::objects::key_of;
use super::outcome::Outcome;
use super::report::to_grant;
use super::scenario::{Scenario, ScenarioError};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use crate::lifecycle::conditions;
use crate::reconciler::{Delta, Reconciler};
use crate::scheduler::Outcome as Decided;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A core with the objects and statuses of a replayed scenario.
struct ReplayHarness {
    state: Reconciler,
    now: Timestamp,
    objects: BTreeMap<ObjectKey, Value>,
    initial_statuses: BTreeMap<ObjectKey, WorkloadStatus>,
    statuses: BTreeMap<ObjectKey, WorkloadStatus>,
    /// Preemptors of the last cycle, which count as pending and not as inadmissible.
    preempting: BTreeSet<ObjectKey>,
}

/// Runs the scheduling cycles of a scenario and returns their outcome.
pub fn replay(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let mut harness = ReplayHarness::new(scenario)?;
    for cycle in 1..=scenario.cycles {
        let changed = harness.run_cycle();
        let idle = changed.is_empty() && harness.preempting.is_empty();
        if idle && !harness.state.engine().has_work() {
            // Further cycles would nominate no workload.
            break;
        }
        if cycle < scenario.cycles {
            harness.apply_statuses(&changed);
        }
    }
    Ok(harness.outcome())
}

impl ReplayHarness {
    fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let now = scenario.now;
        let mut state = Reconciler::new(scenario.settings()?);
        let (mut objects, mut before) = (BTreeMap::new(), BTreeMap::new());
        for (kind, object) in scenario.known_objects() {
            if kind == Kind::Workload {
                let status = object.get("status").map(WorkloadStatus::deserialize);
                before.insert(key_of(&object), status.and_then(Result::ok).unwrap_or_default());
                if scenario.cycles > 1 {
                    objects.insert(key_of(&object), object.clone());
                }
            }
            state.apply(Delta::Applied { kind, object }, now);
        }
        for kind in Kind::all() {
            state.apply(Delta::Synced { kind }, now);
        }
        state.enqueue_invalid();
        state.enqueue_second_passes();
        before.retain(|key, _| state.knows_workload(key));
        Ok(Self {
            state,
            now,
            objects,
            statuses: before.clone(),
            initial_statuses: before,
            preempting: BTreeSet::new(),
        })
    }

    /// Runs one cycle and returns the workloads whose status it changed.
    fn run_cycle(&mut self) -> Vec<ObjectKey> {
        let decisions = self.state.engine_mut().run_cycle(self.now);
        let mut changed = Vec::new();
        self.preempting.clear();
        for decision in decisions {
            if matches!(decision.outcome, Decided::Preempting(..)) {
                self.preempting.insert(decision.key.clone());
            }
            for (key, status) in self.state.statuses_after(&decision, self.now) {
                self.statuses.insert(key.clone(), status);
                changed.push(key);
            }
        }
        changed
    }

    /// Writes the statuses of a cycle to the objects and delivers these to the core.
    fn apply_statuses(&mut self, keys: &[ObjectKey]) {
        for key in keys {
            let (Some(object), Some(status)) = (self.objects.get_mut(key), self.statuses.get(key)) else {
                continue;
            };
            if let Value::Object(fields) = object {
                fields.insert("status".to_owned(), json!(status));
            }
            let delta = Delta::Applied { kind: Kind::Workload, object: object.clone() };
            self.state.apply(delta, self.now);
        }
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for (key, status) in &self.statuses {
            let before = self.initial_statuses.get(key);
            if let Some(admission) = &status.admission
                && before.and_then(|b| b.admission.as_ref()) != Some(admission)
            {
                outcome.admitted.insert(key.to_string(), to_grant(admission));
            }
            let preempted = |s: &WorkloadStatus| conditions::is_true(s, ConditionType::Preempted);
            if preempted(status) && !before.is_some_and(preempted) {
                let reason = conditions::reason(status, ConditionType::Preempted);
                outcome.preempted.insert(key.to_string(), reason.to_owned());
            }
            let conditions =
                status.conditions.iter().map(|c| (c.type_.clone(), (c.status.clone(), c.reason.clone())));
            outcome.conditions.insert(key.to_string(), conditions.collect());
        }
        self.collect_pending(&mut outcome);
        let unreadable = self.state.unreadable_objects();
        outcome.unreadable = unreadable.map(|(key, reason)| (key.to_string(), reason.to_owned())).collect();
        outcome
    }

    fn collect_pending(&self, outcome: &mut Outcome) {
        let engine = self.state.engine();
        let queues: Vec<Arc<str>> = engine.cluster_queues().cloned().collect();
        for queue in queues {
            for workload in engine.pending_in_order(&queue) {
                let parked = engine.is_parked(&workload.key) && !self.preempting.contains(&workload.key);
                let group = if parked { &mut outcome.inadmissible } else { &mut outcome.pending };
                group.entry(queue.to_string()).or_default().push(workload.key.to_string());
            }
        }
        for (queue, key) in self.state.waiting_workloads(self.now) {
            outcome.inadmissible.entry(queue.to_owned()).or_default().push(key.to_string());
        }
    }
}
