//! Jobs of all kinds, by key and by UID.

use super::pod_owners::RecheckedPods;
use super::{Cache, Kind};
use crate::api::{ObjectKey, names};
use crate::frameworks::{JobKind, JobView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kind and key of a job.
pub(crate) type JobId = (JobKind, ObjectKey);

/// Effects of storing a job.
#[derive(Clone, Debug)]
pub(crate) struct JobChange {
    /// UID of another job that had the same kind and key.
    pub(crate) replaced: Option<Arc<str>>,
    /// Pods below the job whose membership of a workload was checked again.
    pub(crate) pods: RecheckedPods,
}

/// Jobs by kind and key.
#[derive(Clone, Debug, Default)]
pub(super) struct JobRecords {
    views: BTreeMap<JobId, Arc<JobView>>,
    by_uid: BTreeMap<Arc<str>, JobId>,
}

impl JobRecords {
    pub(super) fn get(&self, id: &JobId) -> Option<&Arc<JobView>> {
        self.views.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&JobId, &Arc<JobView>)> {
        self.views.iter()
    }

    pub(super) fn id_of(&self, uid: &str) -> Option<&JobId> {
        self.by_uid.get(uid)
    }

    pub(super) fn keys_of_kind(&self, kind: JobKind) -> Vec<ObjectKey> {
        self.views.keys().filter(|(known, _)| *known == kind).map(|(_, key)| key.clone()).collect()
    }

    /// Returns the UID of another job that had the same kind and key.
    fn insert(&mut self, kind: JobKind, view: JobView) -> Option<Arc<str>> {
        let id = (kind, view.key.clone());
        let replaced = self.views.get(&id).filter(|before| before.uid != view.uid);
        let replaced = replaced.map(|before| before.uid.clone());
        if let Some(uid) = &replaced {
            self.by_uid.remove(uid);
        }
        self.by_uid.insert(view.uid.clone(), id.clone());
        self.views.insert(id, Arc::new(view));
        replaced
    }

    pub(super) fn remove(&mut self, id: &JobId) -> Option<Arc<JobView>> {
        let view = self.views.remove(id)?;
        self.by_uid.remove(&view.uid);
        Some(view)
    }
}

impl Cache {
    /// Stores a job.
    ///
    /// # Errors
    /// If the job cannot be decoded.
    pub(crate) fn ingest_job(
        &mut self,
        kind: JobKind,
        key: &ObjectKey,
        raw: Value,
    ) -> Result<JobChange, String> {
        let known = self.jobs.get(&(kind, key.clone())).cloned();
        let before = known.as_deref();
        let mut view = kind.decode_after(&raw, before).map_err(|error| error.to_string())?;
        self.apply_decode_gates(&mut view, &raw);
        self.shared.interned.intern_pod_set_views(&mut view.pod_sets);
        self.shared.raw_objects.insert((Kind::Job(kind), key.clone()), raw);
        let has_same_controller =
            before.is_some_and(|before| before.uid == view.uid && before.controller == view.controller);
        let uid = Arc::clone(&view.uid);
        let replaced = self.jobs.insert(kind, view);
        let pods = if has_same_controller { RecheckedPods::default() } else { self.recheck_pods_below(&uid) };
        Ok(JobChange { replaced, pods })
    }

    pub(crate) fn remove_job(
        &mut self,
        kind: JobKind,
        key: &ObjectKey,
    ) -> Option<(Arc<JobView>, RecheckedPods)> {
        let view = self.jobs.remove(&(kind, key.clone()))?;
        let pods = self.recheck_pods_below(&view.uid);
        Some((view, pods))
    }

    /// Clears the fields that belong to disabled features.
    fn apply_decode_gates(&self, view: &mut JobView, object: &Value) {
        if !self.gates.admission_gated_by {
            view.options.gated_by = None;
        }
        view.options.elastic &= self.gates.elastic_jobs;
        if !self.gates.identifier_annotations {
            let labels = object.pointer("/metadata/labels");
            let label = labels.and_then(|labels| labels.get(names::PREBUILT_WORKLOAD)?.as_str());
            view.options.prebuilt_workload = label.filter(|name| !name.is_empty()).map(Arc::from);
        }
    }
}
