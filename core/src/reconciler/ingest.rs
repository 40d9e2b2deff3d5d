//! Received and deleted objects: the cache stores or drops each, and the rules of its kind configure the scheduler or add objects
//! to the work queue.

use super::Reconciler;
use super::events::unreadable_event;
use super::kinds::{Received, Unread, rules};
use super::messages::{Effect, Observation};
use crate::api::{ObjectKey, v1beta2};
use crate::cache::unreadable::UnreadableObject;
use crate::cache::{Arrival, Kind, ObjectIdentity, WorkloadObject};
use serde_json::Value;
use std::sync::Arc;

impl Reconciler {
    /// Handles an object from a watch or from the response to a write. A Workload, queue, flavor, topology or check that cannot
    /// be decoded is stored as far as possible: it keeps its quota, and admits nothing. Another undecodable object counts as
    /// absent. An event reports it. `written` is the status that a write set, if the response may lack spec and status.
    pub(super) fn ingest(
        &mut self,
        kind: Kind,
        object: Value,
        written: Option<Arc<v1beta2::WorkloadStatus>>,
    ) {
        let identity = ObjectIdentity::of_value(&object);
        if let Some(key) = self.accept(kind, &identity) {
            let (uid, version) = (identity.uid.to_owned(), identity.version.to_owned());
            let result = rules(&kind).store(self, &key, Received { object, written });
            self.record_decode_result(kind, &key, (&uid, &version), result);
        }
    }

    /// Like [`Self::ingest`], for a Workload from a watch.
    pub(super) fn ingest_workload(&mut self, object: &WorkloadObject) {
        let identity = ObjectIdentity::of_metadata(&object.metadata);
        if let Some(key) = self.accept(Kind::Workload, &identity) {
            let result = self.store_workload(&key, object, None);
            self.record_decode_result(Kind::Workload, &key, (identity.uid, identity.version), result);
        }
    }

    /// Handles the answer to a read: the object, or `None` if it does not exist.
    pub(super) fn handle_read(&mut self, kind: Kind, key: &ObjectKey, object: Option<Value>) {
        match object {
            Some(object) => self.ingest(kind, object, None),
            None => self.record_deletion(kind, key, None),
        }
        if kind == Kind::Workload {
            self.writes.confirm_workload(key, &mut self.work_queue);
        }
    }

    /// Returns the key of an object that must be stored; `None` if it is stale or deleted.
    fn accept(&mut self, kind: Kind, identity: &ObjectIdentity<'_>) -> Option<ObjectKey> {
        match self.cache.check_arrival(kind, identity) {
            Arrival::New(key) => Some(key),
            Arrival::Stale => None,
            Arrival::Deleted(key) => {
                self.record_deletion(kind, &key, Some(identity.uid));
                None
            }
        }
    }

    fn record_decode_result(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        (uid, version): (&str, &str),
        result: Result<(), Unread>,
    ) {
        let changed = match result {
            // The response lacks the fields to decode: nothing was stored.
            Ok(())
                if kind == Kind::Workload && self.cache.known_version(kind, key) != Some((uid, version)) =>
            {
                false
            }
            Ok(()) => self.cache.unreadable_mut().clear(kind, key),
            Err(Unread { problem, in_part }) => {
                if !in_part {
                    self.remove(kind, key, None);
                }
                let object = UnreadableObject { uid: uid.to_owned(), problem: problem.to_string() };
                let new = self.cache.unreadable_mut().record(kind, key, &object);
                let event = (new && self.leading).then(|| unreadable_event(kind, key, &object));
                self.writes.emit_all(event);
                new
            }
        };
        if changed {
            rules(&kind).follow_readability(self, key);
        }
    }

    pub(super) fn store_workload(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
        written: Option<Arc<v1beta2::WorkloadStatus>>,
    ) -> Result<(), Unread> {
        let before = self.cache.workload(key).map(Arc::clone);
        let (change, problem) = match self.cache.ingest_workload(key, object, written) {
            Ok(change) => (change, None),
            Err(problem) => (self.cache.ingest_readable_part(key, object), Some(problem)),
        };
        let in_part = change.is_some();
        if let Some(change) = change {
            self.history_feed().follow(key, before.as_deref());
            // The cache changes a record in place where it owns it alone.
            drop(before);
            self.compact_finished_status(key);
            self.follow_workload_change(key, change);
        }
        problem.map_or(Ok(()), |problem| Err(Unread { problem, in_part }))
    }

    /// Handles the deletion of an object. If a UID is given, only the object with that UID is removed.
    pub(super) fn record_deletion(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) {
        self.cache.bury(kind, key, uid);
        self.warnings.forget(kind, key);
        self.cache.unreadable_mut().clear(kind, key);
        if self.remove(kind, key, uid) && matches!(kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort)
        {
            self.writes.emit(Effect::Observe(Observation::QueueDeleted { kind, key: key.clone() }));
        }
    }

    /// Removes an object; if a UID is given, only the object with that UID. Returns false if another object exists under the key.
    fn remove(&mut self, kind: Kind, key: &ObjectKey, uid: Option<&str>) -> bool {
        let other = |uid: &str| self.cache.known_version(kind, key).is_some_and(|(known, _)| known != uid);
        if uid.is_some_and(|uid| !uid.is_empty() && other(uid)) {
            return false;
        }
        let never_created = kind == Kind::Workload && self.cache.workload(key).is_none();
        rules(&kind).remove(self, key);
        // A Workload whose creation failed does not exist: its backoff continues until the next attempt.
        if !never_created {
            self.writes.forget(kind, key);
        }
        true
    }
}
