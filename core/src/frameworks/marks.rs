//! What a start adds to the pod templates of a job: it is put back where another client removes it while the job runs, such as a tool
//! that applies the manifest and replaces a list of templates as a whole.
//!
//! Invariant: only what was there is put back. What flavors add by now may differ from what the start has added.

use super::JobError;
use super::job::{Changes, pair_by_name, patches_of};
use super::patch::{JobPatch, set_at};
use super::roles::without_server_labels;
use super::row::Framework;
use super::template::TemplateInfo;
use super::view::{JobView, PodSetInfo, PodSetView};
use crate::api::names;
use serde_json::{Map, Value, json};

impl Framework {
    /// Returns the patch that puts back what a start has added to the templates of a running job and another client has removed since;
    /// `elastic` says whether pods of a larger size are to wait. `None` if there is nothing to put back.
    pub fn marks_patch(&self, view: &JobView, infos: &[PodSetInfo], elastic: bool) -> Option<JobPatch> {
        let suspend = self.fields.suspend.filter(|_| self.may_lose_marks(view))?;
        let pairs = pair_by_name(view, infos).ok()?;
        if let Some(patches) = &view.options.patches {
            let additions: Result<Vec<_>, JobError> =
                pairs.iter().map(|(set, info)| Ok((&*set.name, patches_of(set, info)?))).collect();
            let additions = additions.ok()?;
            let has = |(name, added): &(&str, TemplateInfo)| {
                patches.of(name).is_some_and(|written| written.covers(added))
            };
            let not_suspended = (suspend, self.hooks.not_suspended());
            return (!additions.iter().all(has))
                .then(|| patches.start(&additions, &self.fields.roles.injected(), not_suspended));
        }
        let mut changes = Changes::default();
        let mut complete = true;
        for (set, info) in pairs {
            let now = set.marks(self);
            let mut additions = self.additions(set, info);
            self.set_elastic_gate(elastic, &mut additions);
            let has = now.covers(&additions);
            complete &= has;
            // The list of one object is written as a whole.
            if !has || self.fields.roles.is_listed() {
                let mut target = now.into_owned();
                target.overlay(&additions);
                self.set_elastic_gate(elastic, &mut target);
                changes.templates.push((set, target));
            }
        }
        if complete { None } else { changes.patch(self) }
    }

    /// Returns whether a running job lacks some of what a start adds, labels with the names of queues excepted: a setting may have
    /// added them since.
    pub fn lacks_additions(&self, view: &JobView, infos: &[PodSetInfo]) -> bool {
        let lacks = |(set, info): (&PodSetView, &PodSetInfo)| {
            let of_queue = [names::CLUSTER_QUEUE_LABEL, names::LOCAL_QUEUE_LABEL];
            !set.marks(self).covers_but_for(&info.template, &of_queue)
        };
        self.may_lose_marks(view) && pair_by_name(view, infos).is_ok_and(|pairs| pairs.into_iter().any(lacks))
    }

    /// Templates of a kind with a start time do not change while it runs.
    const fn may_lose_marks(&self, view: &JobView) -> bool {
        !view.suspended && self.fields.start_time.is_none()
    }

    /// Returns the patch that holds an object back that has no room beside its siblings, or lets it run where it has.
    pub fn room_patch(&self, waits: bool, suspended: bool) -> JobPatch {
        let mark = if waits { json!("true") } else { Value::Null };
        let marks =
            json!({names::WAITS_FOR_ROOM_ANNOTATION: mark, names::STOPPED_BELOW_ANNOTATION: Value::Null});
        let value = if suspended { Value::Bool(true) } else { self.hooks.not_suspended() };
        self.child_patch(&marks, Some(value))
    }

    /// Returns the patch that suspends an object because the job above it may not run, and says so.
    pub fn stop_below_patch(&self) -> JobPatch {
        self.child_patch(&json!({names::STOPPED_BELOW_ANNOTATION: "true"}), Some(Value::Bool(true)))
    }

    /// Returns the patch by which the operator of the job above an object copies it again, as what that job says now, so that it runs.
    pub fn copy_again_patch(&self) -> JobPatch {
        let marks = [names::STOPPED_BELOW_ANNOTATION, names::WAITS_FOR_ROOM_ANNOTATION];
        let removed = self.hooks.copy_annotations().iter().copied().chain(marks);
        self.child_patch(&removed.map(|name| (name.to_owned(), Value::Null)).collect(), None)
    }

    /// Returns a patch of the annotations of an object below a job, and of whether it is suspended.
    fn child_patch(&self, annotations: &Value, suspend: Option<Value>) -> JobPatch {
        let mut body = Map::new();
        body.insert("metadata".to_owned(), json!({"annotations": annotations}));
        if let Some((pointer, value)) = self.fields.suspend.zip(suspend) {
            set_at(&mut body, pointer, value);
        }
        JobPatch::merge(Value::Object(body))
    }

    /// Returns what a start adds to a pod set that is granted this.
    pub(super) fn additions(&self, set: &PodSetView, info: &PodSetInfo) -> TemplateInfo {
        let mut additions = without_server_labels(self, (*info.template).clone());
        additions.labels.insert(names::POD_SET_LABEL.to_owned(), set.name.to_string());
        additions
    }
}

/// Returns whether a job that runs has less in its templates than its earlier version, or an earlier one had.
pub(super) fn are_lost(before: &JobView, view: &JobView) -> bool {
    let loses = |old: &PodSetView| {
        let new = view.pod_sets.iter().find(|new| new.name == old.name);
        new.is_some_and(|new| !new.start_from().covers(old.start_from()))
    };
    before.uid == view.uid
        && !before.suspended
        && !view.suspended
        && (before.related.since_start.marks_lost || before.pod_sets.iter().any(loses))
}
