//! Events on jobs, emitted once for each text, and deletes of Workloads that do not match their job.

use super::{Job, job_event};
use crate::api::v1beta2::CheckState;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::reservation;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::writes::bodies::delete_options;
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;

impl Reconciler {
    /// Emits a warning event on a job, once for each text.
    pub(super) fn warn_of_job(&mut self, job: Job<'_>, reason: &str, note: &str) {
        if self.warnings.record(job.kind(), &job.view.key, note) {
            self.writes.emit(job_event(job.row, job.view, true, reason, note));
        }
    }

    /// Emits the messages of pending admission checks while the job waits for them, once for each change.
    pub(super) fn report_check_messages(&mut self, job: Job<'_>, record: &WorkloadRecord) {
        if let Some(note) = self.new_check_messages(record) {
            self.writes.emit(job.event("UpdatedAdmissionCheck", &note));
        }
    }

    /// Returns the messages of pending admission checks if the job waits for them and they have changed.
    pub(crate) fn new_check_messages(&mut self, record: &WorkloadRecord) -> Option<String> {
        let checks = &record.status.admission_checks;
        let pending = checks.iter().filter(|check| check.state == CheckState::Pending);
        let with_message = pending.filter(|check| !check.message.is_empty());
        let messages: Vec<String> =
            with_message.map(|check| format!("{}: {}", check.name, check.message)).collect();
        let waits = !messages.is_empty() && reservation::holds_quota(&record.status);
        let note = waits.then(|| messages.join("; "));
        let new = self.warnings.record_check_messages(&record.meta.key, note.as_deref());
        note.filter(|_| new)
    }

    /// Replaces the Workload of a suspended job that asks for something else than the Workload: it is deleted, and another
    /// is created when it is gone. A prebuilt Workload is not replaced: its life cycle finishes it as out of sync.
    pub(super) fn replace_workload(&mut self, job: Job<'_>, record: &WorkloadRecord, now: Timestamp) {
        let key = &record.meta.key;
        if job.view.options.prebuilt_workload.is_some() || record.meta.deleting {
            return;
        }
        if !self.writes.may_write(Kind::Workload, key, now) {
            return self.writes.retry_after_backoff(
                (Kind::Workload, key),
                job.reconcile_key(),
                &mut self.work_queue,
                now,
            );
        }
        if self.writes.replacements.record(key, job.view.generation, now) {
            let note = format!(
                "Workload {key} is replaced again and again, because it does not say what the job asks for: see whether a \
                 webhook changes new Workloads; the next one is created with back-off"
            );
            self.warn_of_job(job, "WorkloadReplacedRepeatedly", &note);
        }
        let event = job.event("DeletedWorkload", &format!("Deleted not matching Workload: {key}"));
        let options = delete_options(&record.meta);
        let request = WriteRequest::new(Kind::Workload, key.clone(), Verb::Delete, options);
        self.writes.start(request.with_effects(vec![event]).on_behalf_of(job.reconcile_key()), now);
    }
}
