//! Events on jobs, and the writes that each belongs to where there are several.

use crate::api::v1beta2::CheckState;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::JobView;
use crate::lifecycle::reservation;
use crate::reconciler::Reconciler;
use crate::reconciler::messages::{Effect, Event, Verb};
use crate::reconciler::workload::step::delete_options;

impl Reconciler {
    /// Warns of a job, once for each note.
    pub(in crate::reconciler) fn report_job_warning(
        &mut self,
        index: usize,
        view: &JobView,
        reason: &str,
        note: &str,
    ) {
        let id = (Kind::Job(index), view.key.clone());
        if self.reported_warnings.insert(id, note.to_owned()).as_deref() != Some(note) {
            self.effects.push(job_event(index, view, true, reason, note));
        }
    }

    /// Tells what pending checks say of themselves while the job waits for them, each time that it changes.
    pub(in crate::reconciler) fn report_check_messages(
        &mut self,
        index: usize,
        view: &JobView,
        record: &WorkloadRecord,
    ) {
        let pending =
            record.status.admission_checks.iter().filter(|check| check.state == CheckState::Pending);
        let said = pending.filter(|check| !check.message.is_empty());
        let notes: Vec<String> = said.map(|check| format!("{}: {}", check.name, check.message)).collect();
        let key = &record.meta.key;
        if notes.is_empty() || !reservation::holds_quota(&record.status) {
            self.reported_check_messages.remove(key);
            return;
        }
        let note = notes.join("; ");
        if self.reported_check_messages.insert(key.clone(), note.clone()).as_ref() != Some(&note) {
            self.effects.push(job_event(index, view, false, "UpdatedAdmissionCheck", &note));
        }
    }

    /// Deletes a Workload that is not what its job asks for: the job gets another.
    pub(in crate::reconciler) fn delete_not_matching(
        &mut self,
        index: usize,
        view: &JobView,
        record: &WorkloadRecord,
    ) {
        let key = &record.meta.key;
        let note = format!("Deleted not matching Workload: {key}");
        let tell = vec![job_event(index, view, false, "DeletedWorkload", &note)];
        self.send_write(Kind::Workload, key, Verb::Delete, None, delete_options(&record.meta), tell);
    }
}

/// An event on a job.
pub(in crate::reconciler) fn job_event(
    index: usize,
    view: &JobView,
    warning: bool,
    reason: &str,
    note: &str,
) -> Effect {
    Effect::Event(Event {
        kind: Kind::Job(index),
        key: view.key.clone(),
        uid: view.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note: note.to_owned(),
    })
}
