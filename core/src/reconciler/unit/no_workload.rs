//! Why a job has no Workload: for the command line, the dashboard and simulations.
//!
//! Invariant: the present objects take precedence over an earlier report.

use super::members::EXCESS_POD_WAITS;
use super::units::Units;
use super::without_workload::missing_class;
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobKind, JobView, OwnerRef, Priority, Role};
use crate::lifecycle::conditions;
use crate::snapshot::NoWorkload;
use std::sync::Arc;

impl Units<'_> {
    /// Returns why a job or pod has no Workload; `None` if it has one, does not exist, or nothing keeps it from having one.
    /// `reported` has reason and note of the last warning about it.
    pub(crate) fn why_no_workload(
        self,
        kind: JobKind,
        key: &ObjectKey,
        reported: Option<(&str, &str)>,
    ) -> Option<NoWorkload> {
        let reported = reported.filter(|(reason, _)| !reason.is_empty());
        let reported = || reported.map(|(reason, note)| said(reason, note.to_owned()));
        if !self.settings.manages_kind(kind) {
            self.cache.link(&(Kind::of_job(kind), key.clone()))?;
            return Some(said("KindNotListed", format!("{} is not in integrations.frameworks", kind.name)));
        }
        if kind.is_pod() {
            let unit = self.cache.unit_of_pod(key).and_then(|unit| self.load(unit));
            let Some(unit) = unit else { return self.unreadable(kind, key).or_else(reported) };
            if self.workload_of(&unit).is_some() {
                // A surplus pod waits beside the Workload of its group.
                let waits = unit.member(key).is_some_and(|member| member.state.gated);
                return reported().filter(|found| waits && found.reason == EXCESS_POD_WAITS);
            }
            let above = self.above_unit(&unit);
            let above = above.as_ref().map(queued_above);
            return above.or_else(|| self.not_managed(kind, &unit.view)).or_else(reported);
        }
        let Some(view) = self.cache.job(&(kind, key.clone())) else {
            return self.unreadable(kind, key);
        };
        if view.status.finished.is_some() {
            return Some(said("Finished", "it has finished".to_owned()));
        }
        if let Some(above) = self.ancestor_of(kind, view) {
            return Some(queued_above(&above));
        }
        let found = self.not_managed(kind, view).or_else(|| match kind.role {
            Role::PassThrough => Some(said("PodsQueued", "its pods have Workloads of their own".to_owned())),
            _ => self.prebuilt_missing(view),
        });
        found.or_else(|| self.class_missing(view)).or_else(reported)
    }

    fn unreadable(self, kind: JobKind, key: &ObjectKey) -> Option<NoWorkload> {
        let problem = self.cache.unreadable().problem(Kind::of_job(kind), key)?;
        Some(said("Unreadable", format!("it cannot be read: {problem}")))
    }

    fn not_managed(self, kind: JobKind, view: &JobView) -> Option<NoWorkload> {
        if view.queue_name.is_none() && !self.settings.manage_jobs_without_queue_name {
            return Some(said("NoQueueName", format!("it has no label {}", names::QUEUE_NAME_LABEL)));
        }
        self.why_not_managed(kind, view).map(|(reason, cause)| said(reason, cause))
    }

    fn prebuilt_missing(self, view: &JobView) -> Option<NoWorkload> {
        let name = view.options.prebuilt_workload.as_deref()?;
        let key = ObjectKey { namespace: Arc::clone(&view.key.namespace), name: Arc::from(name) };
        let Some(record) = self.cache.workload(&key) else {
            return Some(said("PrebuiltWorkloadNotFound", format!("Workload {key} doesn't exist")));
        };
        if conditions::is_true(&record.status, ConditionType::Finished) {
            return None;
        }
        record.owner.as_ref().filter(|owner| owner.uid != view.uid)?;
        Some(said("WorkloadNameConflict", format!("Workload {key} belongs to another object")))
    }

    fn class_missing(self, view: &JobView) -> Option<NoWorkload> {
        let missing = Priority::resolve(view, &[], self.cache.priority_classes()).err()?;
        let (reason, note) = missing_class(&missing);
        Some(said(reason, note))
    }
}

fn said(reason: &str, message: String) -> NoWorkload {
    NoWorkload { reason: reason.to_owned(), message }
}

fn queued_above(above: &OwnerRef) -> NoWorkload {
    let message = format!("{} {}, which is above it, is queued in its place", above.kind, above.name);
    said("QueuedAbove", message)
}
