//! Results of writes. The next step follows from the objects after the write.

use super::events::{event_on, workload_warning};
use super::messages::{Effect, EventType, Observation, Verb, WriteOutcome, WriteResult};
use super::workload::status_write::{keep_foreign_conditions, leaves_out};
use super::writes::in_flight::InFlightWrite;
use super::writes::request::WritePurpose;
use super::{ReconcileKey, Reconciler};
use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::Kind;
use jiff::Timestamp;
use serde_json::Value;

/// HTTP status of an object that would be invalid.
const INVALID: u16 = 422;
/// Number of consecutive writes without the intended effect after which they are reported: a single one may be due to another
/// client that wrote at the same time.
const REPORTED_INEFFECTIVE_WRITES: u32 = 2;

impl Reconciler {
    pub(super) fn handle_write_result(&mut self, result: WriteResult, now: Timestamp) {
        let WriteResult { id, kind, key, outcome } = result;
        let key = &key;
        let Some(mut write) = self.writes.finish(kind, key, id) else { return };
        let on_behalf_of = write.on_behalf_of.take();
        self.work_queue.add_all(on_behalf_of.clone());
        match outcome {
            WriteOutcome::Done(object) => {
                let effective = self.writes.record_landed(&(kind, key.clone()), &mut write, &object, now);
                if !effective {
                    // The decision would be repeated immediately, and its events sent each time.
                    write.effects.clear();
                }
                if write.purpose == WritePurpose::SecondPass {
                    self.second_passes().discard_result(key);
                }
                if object.pointer("/metadata/name").is_some() {
                    self.ingest(kind, object, write.expected_status.clone());
                } else if write.verb == Verb::Delete {
                    // Nothing kept it: a step before the watch event of the deletion would delete it again.
                    let uid = object.pointer("/details/uid").and_then(Value::as_str);
                    self.record_deletion(kind, key, uid);
                }
                if kind == Kind::Workload {
                    self.writes.confirm_workload(key, &mut self.work_queue);
                }
                self.writes.emit_all(std::mem::take(&mut write.effects));
                if self.follow_incomplete_apply(kind, key, &write) && effective {
                    self.remove_left_out(key, &write, now);
                }
                if !effective {
                    self.report_ineffective(kind, key, &write);
                }
                self.mark_written(kind, key);
            }
            WriteOutcome::Conflict => {
                // The executor has sent the newest object before this result.
                self.writes.record_conflict(kind, key, now);
                self.report_if_landed(kind, key, &mut write);
                self.handle_failed_write(kind, key, &write);
            }
            WriteOutcome::NotFound => {
                self.handle_failed_write(kind, key, &write);
                if write.verb == Verb::Create {
                    // The object could not be created: its CRD is missing, or the namespace is being deleted.
                    self.writes.record_failure(kind, key, now);
                    self.report_not_created(kind, key, on_behalf_of, "not found");
                } else {
                    self.record_deletion(kind, key, None);
                }
            }
            WriteOutcome::Rejected { code: INVALID, .. }
                if self.follow_incomplete_apply(kind, key, &write) =>
            {
                self.handle_failed_write(kind, key, &write);
            }
            WriteOutcome::Rejected { code, message } => {
                self.writes.record_failure(kind, key, now);
                self.handle_failed_write(kind, key, &write);
                match on_behalf_of {
                    // The Workload of the report may not exist.
                    Some(ReconcileKey::Unit(unit)) if kind == Kind::Workload => {
                        if let Some((kind, object)) = self.units().subject_of(&unit) {
                            self.report_rejected(kind, &object, code, &message);
                        }
                    }
                    Some(ReconcileKey::Object(Kind::Workload, _)) if write.verb == Verb::Create => {
                        self.report_not_created(kind, key, on_behalf_of, &message);
                    }
                    _ => self.report_rejected(kind, key, code, &message),
                }
            }
            WriteOutcome::Unavailable { .. } => {
                // The write may have landed: the admission stays assumed, and is written again based on the newest
                // object.
                self.report_if_landed(kind, key, &mut write);
                self.writes.record_failure(kind, key, now);
                self.mark_written(kind, key);
            }
        }
        if kind == Kind::Workload {
            self.compact_finished_status(key);
        }
    }

    /// Reduces the status of a finished Workload, unless a write of it is in flight: if the response is lost, the full
    /// status shows whether the write has landed.
    pub(super) fn compact_finished_status(&mut self, key: &ObjectKey) {
        if !self.writes.is_in_flight(Kind::Workload, key) {
            self.cache.compact_finished_status(key);
        }
    }

    /// Emits the effects of a write whose response was lost if it has landed, that is, if the newest object has the
    /// admission and the conditions of the write, times included.
    fn report_if_landed(&mut self, kind: Kind, key: &ObjectKey, write: &mut InFlightWrite) {
        let Some(record) = self.cache.workload(key).filter(|_| kind == Kind::Workload) else { return };
        let expected = write.expected_status.take().filter(|_| !write.effects.is_empty());
        let landed = expected.is_some_and(|expected| {
            expected.admission == record.status.admission
                && expected.conditions.iter().all(|c| record.status.conditions.contains(c))
        });
        if landed {
            self.writes.emit_all(std::mem::take(&mut write.effects));
        }
    }

    /// Makes the next status write of a Workload a merge patch if an apply was refused or has landed, and the status still
    /// contains what it left out: another field manager owns it. Returns whether it did.
    fn follow_incomplete_apply(&mut self, kind: Kind, key: &ObjectKey, write: &InFlightWrite) -> bool {
        let Some(applied) = write.expected_status.as_ref().filter(|_| write.applies_status()) else {
            return false;
        };
        let Some(record) = self.cache.workload(key).filter(|_| kind == Kind::Workload) else { return false };
        leaves_out(&record.status, applied) && self.writes.use_merge_patch(key)
    }

    /// Removes the parts of a Workload's status that a landed apply left out and that are still there. The next plan may not know
    /// that they must be removed.
    fn remove_left_out(&mut self, key: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        let (Some(applied), Some(record)) = (&write.expected_status, self.cache.workload(key)) else {
            return;
        };
        if !write.returned(&record.meta.resource_version) || !self.writes.may_write(Kind::Workload, key, now)
        {
            return;
        }
        let mut status = Box::new(WorkloadStatus::clone(applied));
        keep_foreign_conditions(&record.status, &mut status);
        let request = self.workload_facts().status_write(record, status, WritePurpose::Other);
        self.writes.start(request, now);
    }

    /// Reports an object that is written again and again without the intended effect.
    fn report_ineffective(&mut self, kind: Kind, key: &ObjectKey, write: &InFlightWrite) {
        if self.writes.failures(kind, key).errors < REPORTED_INEFFECTIVE_WRITES {
            return;
        }
        let resource = match write.subresource {
            Some(subresource) => format!("{}/{subresource}", kind.resource().plural),
            None => kind.resource().plural.to_owned(),
        };
        let verb = write.verb.as_str();
        self.writes.emit(Effect::Observe(Observation::IneffectiveWrite { resource, verb }));
        let note = format!(
            "a write ({verb}) was accepted, but the object does not say what was written; it is repeated with back-off: \
             see whether the definition in crds/ is outdated, or whether another client or webhook reverts it"
        );
        self.warn(kind, key, "WriteIneffective", note);
    }

    /// Handles a write that did not land: releases an assumed admission, and gives the object another step.
    fn handle_failed_write(&mut self, kind: Kind, key: &ObjectKey, write: &InFlightWrite) {
        if write.purpose == WritePurpose::Admit {
            self.membership.assumed.release(key, &self.cache, &mut self.engine);
        }
        if write.purpose == WritePurpose::SecondPass {
            self.second_passes().discard_result(key);
        }
        self.mark_written(kind, key);
    }

    /// Emits a warning on a pod whose group cannot be read. A replica that does not lead keeps it for a later event.
    pub(super) fn report_unit_pod(&mut self, key: &ObjectKey, problem: Option<String>) {
        if !self.leading {
            return;
        }
        let Some(note) = problem.filter(|note| self.warnings.record(Kind::Pod, key, note)) else { return };
        self.emit_warning(Kind::Pod, key, "Unreadable", note);
    }

    fn report_rejected(&mut self, kind: Kind, key: &ObjectKey, code: u16, message: &str) {
        let note = format!("the API server refused a write ({code}): {message}");
        self.warn(kind, key, "WriteRejected", note);
    }

    /// Emits a warning about an object, unless its last warning was the same.
    pub(super) fn warn(&mut self, kind: Kind, key: &ObjectKey, reason: &str, note: String) {
        if self.warnings.record_as(kind, key, reason, &note) {
            self.emit_warning(kind, key, reason, note);
        }
    }

    fn emit_warning(&mut self, kind: Kind, key: &ObjectKey, reason: &str, note: String) {
        let uid = self.cache.known_version(kind, key).map(|(uid, _)| uid).unwrap_or_default();
        let event = event_on((kind, key, uid), EventType::Warning, reason, note);
        self.writes.emit(Effect::Event(event));
    }

    /// Reports on a Workload, once per reason, that an object that it needs could not be created.
    fn report_not_created(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        workload: Option<ReconcileKey>,
        reason: &str,
    ) {
        let Some(ReconcileKey::Object(Kind::Workload, workload)) = workload else { return };
        let note = format!("Error creating {} \"{}\": {reason}", kind.resource().kind, key.name);
        let Some(record) = self.cache.workload(&workload) else { return };
        if self.warnings.record(Kind::Workload, &workload, &note) {
            self.writes.emit(workload_warning(record, "FailedCreate", note));
        }
    }
}
