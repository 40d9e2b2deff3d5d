//! Second passes as they must not be, for tests that have to be able to fail: the object is captured when the pass is armed,
//! nobody looks at it again, and the write carries no version. In a build with the feature `moments` alone, and there for
//! those Workloads alone that a test names.

use super::interface::{Effect, Kind, Write};
use super::moments::Moment;
use super::outlook::placed;
use super::passes::PAUSE;
use super::records::WorkloadRecord;
use super::second_pass;
use super::workload_step::{identity_of, keep_ours};
use super::{Item, State, Verb};
use crate::api::ObjectKey;
use crate::api::v1beta2::CheckState;
use crate::lifecycle::backoff;
use crate::scheduler::Assignment;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a pass without guards is.
#[derive(Clone, Debug)]
enum Stage {
    /// It is not needed yet: the last version of the object that could have had one.
    Unarmed,
    /// It is due at this time.
    Armed(Timestamp),
    /// The scheduler has it.
    Judged,
    /// Places were found.
    Found(Assignment),
    /// They were written.
    Over,
}

/// Objects as they were captured.
#[derive(Clone, Debug, Default)]
pub(super) struct Captured(BTreeMap<ObjectKey, (Arc<WorkloadRecord>, Stage)>);

impl State {
    /// Moves the pass of a Workload without guards on.
    pub(super) fn pass_unguarded(&mut self, key: &ObjectKey, now: Timestamp) {
        if !self.settings.moments.is_unguarded(key) {
            return;
        }
        self.capture(key, now);
        let Some((captured, stage)) = self.captured.0.get(key).cloned() else { return };
        let halts = |moments: &[Moment]| moments.iter().any(|m| self.settings.moments.halts(key, *m));
        match stage {
            Stage::Unarmed | Stage::Over => return,
            Stage::Armed(at) if at <= now && !halts(&[Moment::Armed, Moment::Due]) => {
                self.as_captured(key, &captured, |state| {
                    let charge = state.workloads.get(key).and_then(|record| state.charge(record));
                    if let (Some(charge), Some(again)) = (charge, state.as_again(key)) {
                        state.engine.release(key);
                        state.engine.charge(key, charge);
                        state.engine.second_pass(again);
                    }
                });
                self.set_stage(key, Stage::Judged);
            }
            Stage::Found(assignment) if !halts(&[Moment::Taken, Moment::Decided]) => {
                let mut status = placed(&captured, &assignment, now);
                keep_ours(&mut status);
                let mut body = identity_of(&captured);
                if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.shift_remove("resourceVersion");
                }
                self.effects.push(Effect::Write(Write {
                    id: 0,
                    kind: Kind::Workload,
                    key: key.clone(),
                    verb: Verb::Apply,
                    subresource: Some("status"),
                    body,
                    status: Some(Arc::new(status)),
                    foretold: false,
                    background: false,
                    overtakes: true,
                }));
                self.set_stage(key, Stage::Over);
                return;
            }
            Stage::Armed(_) | Stage::Found(_) | Stage::Judged => {}
        }
        self.timers.wake(Item::Workload(key.clone()), backoff::after(now, PAUSE));
    }

    /// Takes places that were found for one without guards; whether it is one.
    pub(super) fn take_unguarded(&mut self, key: &ObjectKey, assignment: &Assignment) -> bool {
        let unguarded = self.captured.0.contains_key(key);
        if unguarded {
            self.set_stage(key, Stage::Found(assignment.clone()));
        }
        unguarded
    }

    /// Captures the object while it may have a pass; once it may not, only what asks for one is looked at.
    fn capture(&mut self, key: &ObjectKey, now: Timestamp) {
        let known = self.captured.0.get(key);
        if known.is_some_and(|(_, stage)| !matches!(stage, Stage::Unarmed)) {
            return;
        }
        let Some(record) = self.workloads.get(key) else { return };
        let captured = match known {
            _ if second_pass::may_be_taken(record) && !self.is_draining(record) => Arc::clone(record),
            Some((before, _)) => Arc::new(with_cause(before, record)),
            None => return,
        };
        let armed = second_pass::wants(&captured);
        let stage = if armed {
            Stage::Armed(backoff::after(now, SignedDuration::from_secs(1)))
        } else {
            Stage::Unarmed
        };
        self.captured.0.insert(key.clone(), (captured, stage));
    }

    fn set_stage(&mut self, key: &ObjectKey, stage: Stage) {
        if let Some((_, known)) = self.captured.0.get_mut(key) {
            *known = stage;
        }
    }

    /// Does something as if the object were still what it was.
    fn as_captured(&mut self, key: &ObjectKey, captured: &Arc<WorkloadRecord>, act: impl FnOnce(&mut Self)) {
        let now = self.workloads.insert(key.clone(), Arc::clone(captured));
        act(self);
        match now {
            Some(record) => drop(self.workloads.insert(key.clone(), record)),
            None => drop(self.workloads.swap_remove(key)),
        }
    }
}

/// What an object was, with what asks for a pass now.
fn with_cause(before: &WorkloadRecord, now: &WorkloadRecord) -> WorkloadRecord {
    let mut record = before.clone();
    let status = Arc::make_mut(&mut record.status);
    status.unhealthy_nodes.clone_from(&now.status.unhealthy_nodes);
    for check in &mut status.admission_checks {
        if now.status.admission_checks.iter().any(|c| c.name == check.name && c.state == CheckState::Ready) {
            check.state = CheckState::Ready;
        }
    }
    record
}
