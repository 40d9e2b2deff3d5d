//! Deliberately broken second pass, used to prove that the tests detect the bug: the object is captured when the pass
//! is scheduled and not read again, and the write carries no resourceVersion. Only with debug assertions, and only for
//! Workloads that a test names.

use super::eligibility::{is_draining, is_second_pass_eligible, needs_second_pass, to_second_pass_request};
use super::passes::SecondPasses;
use super::scripted::drop_version;
use crate::api::ObjectKey;
use crate::api::v1beta2::CheckState;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use crate::reconciler::failpoints::Failpoint;
use crate::reconciler::messages::{Effect, Verb, Write, WriteClass};
use crate::reconciler::workload::decision_status::second_pass_status;
use crate::reconciler::workload::status_write::{apply_identity, retain_owned_conditions};
use crate::scheduler::Assignment;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Progress of a pass without guards.
#[derive(Clone, Debug)]
enum Stage {
    /// Not needed yet; the captured object is its last eligible version.
    Unarmed,
    /// Due at this time.
    Armed(Timestamp),
    /// The scheduler has the request.
    Submitted,
    /// The scheduler has returned a topology assignment.
    Assigned(Assignment),
    /// The assignment was written.
    Written,
}

/// Captured objects with the progress of their passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleObjects(BTreeMap<ObjectKey, (Arc<WorkloadRecord>, Stage)>);

impl SecondPasses<'_> {
    /// Advances the pass of a Workload without guards.
    pub(super) fn step_unguarded(&mut self, key: &ObjectKey, now: Timestamp) {
        self.capture_stale_object(key, now);
        let Some((captured, stage)) = self.queue.scripted.stale_objects.0.get(key).cloned() else { return };
        let halts = |points: &[Failpoint]| points.iter().any(|m| self.settings.failpoints.halts(key, *m));
        match stage {
            Stage::Unarmed | Stage::Written => return,
            Stage::Armed(at) if at <= now && !halts(&[Failpoint::Armed, Failpoint::Due]) => {
                let input = self.scheduler_input();
                let charge = input.charge_from_admission(&captured);
                if let Some((charge, request)) = charge.zip(to_second_pass_request(input, &captured)) {
                    self.engine.release(key);
                    self.engine.charge(key, charge);
                    self.engine.request_second_pass(request);
                }
                self.set_stage(key, Stage::Submitted);
            }
            Stage::Assigned(assignment) if !halts(&[Failpoint::ObjectRead, Failpoint::Decided]) => {
                let mut status = second_pass_status(&captured, &assignment, now);
                retain_owned_conditions(&mut status);
                let mut body = apply_identity(&captured);
                drop_version(&mut body);
                self.writes.emit(Effect::Write(Write {
                    id: 0,
                    kind: Kind::Workload,
                    key: key.clone(),
                    verb: Verb::Apply,
                    subresource: Some("status"),
                    body,
                    status: Some(Arc::new(status)),
                    response_metadata_only: false,
                    class: WriteClass::Quota,
                    bypasses_in_flight: true,
                }));
                self.set_stage(key, Stage::Written);
                return;
            }
            Stage::Armed(_) | Stage::Assigned(_) | Stage::Submitted => {}
        }
        self.poll(key, now);
    }

    /// Records the topology assignment of a pass without guards. Returns false if the pass has guards.
    pub(crate) fn record_unguarded_result(&mut self, key: &ObjectKey, assignment: &Assignment) -> bool {
        let unguarded = self.queue.scripted.stale_objects.0.contains_key(key);
        if unguarded {
            self.set_stage(key, Stage::Assigned(assignment.clone()));
        }
        unguarded
    }

    /// Captures the object while it is eligible for a pass. After that the captured version is kept, and only the
    /// trigger of a pass is copied from the current object.
    fn capture_stale_object(&mut self, key: &ObjectKey, now: Timestamp) {
        let known = self.queue.scripted.stale_objects.0.get(key);
        if known.is_some_and(|(_, stage)| !matches!(stage, Stage::Unarmed)) {
            return;
        }
        let Some(record) = self.cache.workload(key) else { return };
        let captured = match known {
            _ if is_second_pass_eligible(record) && !is_draining(self.cache, record) => Arc::clone(record),
            Some((old, _)) => Arc::new(with_current_trigger(old, record)),
            None => return,
        };
        let armed = needs_second_pass(&captured);
        let stage = if armed {
            Stage::Armed(backoff::after(now, SignedDuration::from_secs(1)))
        } else {
            Stage::Unarmed
        };
        self.queue.scripted.stale_objects.0.insert(key.clone(), (captured, stage));
    }

    fn set_stage(&mut self, key: &ObjectKey, stage: Stage) {
        if let Some((_, known)) = self.queue.scripted.stale_objects.0.get_mut(key) {
            *known = stage;
        }
    }
}

/// Returns a captured object with the trigger of a pass (unhealthy nodes and ready checks) of the current object.
fn with_current_trigger(captured: &WorkloadRecord, new: &WorkloadRecord) -> WorkloadRecord {
    let mut record = captured.clone();
    let status = Arc::make_mut(&mut record.status);
    status.unhealthy_nodes.clone_from(&new.status.unhealthy_nodes);
    for check in &mut status.admission_checks {
        if new.status.admission_checks.iter().any(|c| c.name == check.name && c.state == CheckState::Ready) {
            check.state = CheckState::Ready;
        }
    }
    record
}
