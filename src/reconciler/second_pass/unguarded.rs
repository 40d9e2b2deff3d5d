//! Second passes as they must not be, for tests that have to be able to fail: the object is captured when the pass is armed,
//! nobody looks at it again, and the write carries no version. In a build with the feature `failpoints` alone, and there for
//! those Workloads alone that a test names.

use crate::api::ObjectKey;
use crate::api::v1beta2::CheckState;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use crate::reconciler::messages::{Effect, Write};
use crate::reconciler::second_pass::eligibility;
use crate::reconciler::second_pass::failpoints::Failpoint;
use crate::reconciler::second_pass::queue::FAILPOINT_POLL_INTERVAL;
use crate::reconciler::workload::decision_status::second_pass_status;
use crate::reconciler::workload::step::{apply_identity, retain_owned_conditions};
use crate::reconciler::{ReconcileKey, Reconciler, Verb};
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
    Submitted,
    /// Places were found.
    Assigned(Assignment),
    /// They were written.
    Written,
}

/// Objects as they were captured.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleObjects(BTreeMap<ObjectKey, (Arc<WorkloadRecord>, Stage)>);

impl Reconciler {
    /// Moves the pass of a Workload without guards on.
    pub(crate) fn step_unguarded_pass(&mut self, key: &ObjectKey, now: Timestamp) {
        if !self.settings.failpoints.is_unguarded(key) {
            return;
        }
        self.capture_stale_object(key, now);
        let Some((captured, stage)) = self.second_passes.stale_objects.0.get(key).cloned() else { return };
        let halts = |points: &[Failpoint]| points.iter().any(|m| self.settings.failpoints.halts(key, *m));
        match stage {
            Stage::Unarmed | Stage::Written => return,
            Stage::Armed(at) if at <= now && !halts(&[Failpoint::Armed, Failpoint::Due]) => {
                self.with_stale_object(key, &captured, |state| {
                    let charge =
                        state.cache.workload(key).and_then(|record| state.charge_from_admission(record));
                    if let (Some(charge), Some(again)) = (charge, state.to_second_pass_request(key)) {
                        state.engine.release(key);
                        state.engine.charge(key, charge);
                        state.engine.request_second_pass(again);
                    }
                });
                self.set_stage(key, Stage::Submitted);
            }
            Stage::Assigned(assignment) if !halts(&[Failpoint::ObjectRead, Failpoint::Decided]) => {
                let mut status = second_pass_status(&captured, &assignment, now);
                retain_owned_conditions(&mut status);
                let mut body = apply_identity(&captured);
                if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.shift_remove("resourceVersion");
                }
                self.writes.emit(Effect::Write(Write {
                    id: 0,
                    kind: Kind::Workload,
                    key: key.clone(),
                    verb: Verb::Apply,
                    subresource: Some("status"),
                    body,
                    status: Some(Arc::new(status)),
                    response_metadata_only: false,
                    background: false,
                    bypasses_in_flight: true,
                }));
                self.set_stage(key, Stage::Written);
                return;
            }
            Stage::Armed(_) | Stage::Assigned(_) | Stage::Submitted => {}
        }
        self.work_queue
            .add_at(ReconcileKey::Workload(key.clone()), backoff::after(now, FAILPOINT_POLL_INTERVAL));
    }

    /// Takes places that were found for one without guards; whether it is one.
    pub(crate) fn record_unguarded_result(&mut self, key: &ObjectKey, assignment: &Assignment) -> bool {
        let unguarded = self.second_passes.stale_objects.0.contains_key(key);
        if unguarded {
            self.set_stage(key, Stage::Assigned(assignment.clone()));
        }
        unguarded
    }

    /// Captures the object while it may have a pass; once it may not, only what asks for one is looked at.
    fn capture_stale_object(&mut self, key: &ObjectKey, now: Timestamp) {
        let known = self.second_passes.stale_objects.0.get(key);
        if known.is_some_and(|(_, stage)| !matches!(stage, Stage::Unarmed)) {
            return;
        }
        let Some(record) = self.cache.workload(key) else { return };
        let captured = match known {
            _ if eligibility::is_second_pass_eligible(record) && !self.is_draining(record) => {
                Arc::clone(record)
            }
            Some((before, _)) => Arc::new(with_current_trigger(before, record)),
            None => return,
        };
        let armed = eligibility::needs_second_pass(&captured);
        let stage = if armed {
            Stage::Armed(backoff::after(now, SignedDuration::from_secs(1)))
        } else {
            Stage::Unarmed
        };
        self.second_passes.stale_objects.0.insert(key.clone(), (captured, stage));
    }

    fn set_stage(&mut self, key: &ObjectKey, stage: Stage) {
        if let Some((_, known)) = self.second_passes.stale_objects.0.get_mut(key) {
            *known = stage;
        }
    }

    /// Does something as if the object were still what it was.
    fn with_stale_object(
        &mut self,
        key: &ObjectKey,
        captured: &Arc<WorkloadRecord>,
        act: impl FnOnce(&mut Self),
    ) {
        let current = self.cache.replace_workload(key, Some(Arc::clone(captured)));
        act(self);
        drop(self.cache.replace_workload(key, current));
    }
}

/// What an object was, with what asks for a pass now.
fn with_current_trigger(before: &WorkloadRecord, now: &WorkloadRecord) -> WorkloadRecord {
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
