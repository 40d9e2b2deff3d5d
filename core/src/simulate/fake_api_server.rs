//! In-memory fake of the API server: resource versions, preconditions, finalizers, forced applies of one field manager,
//! and a watch that queues the versions of each object in order until the caller removes them.
//!
//! Invariants: the version of an object grows with every change and only then; an object with a deletion time is
//! deleted with its last finalizer. `core/tests/it/sim` runs the core against it; the end-to-end tests use a real API
//! server.

pub use super::objects::key_of;
use super::objects::{field, merge, set, text_at, value_at};
use super::schema::Schemas;
use crate::api::validation::aggregate;
use crate::api::{ByKey, ObjectKey};
use crate::cache::Kind;
use crate::frameworks::JobError;
use crate::lifecycle::conditions::to_api_time;
use crate::reconciler::{Delta, Verb, Write, WriteOutcome};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Objects, and the watch events that are not delivered yet.
#[derive(Clone, Debug, Default)]
pub struct FakeApiServer {
    objects: BTreeMap<Kind, ByKey<Value>>,
    /// Interned names of namespaces.
    namespaces: BTreeSet<Arc<str>>,
    version: u64,
    uid_counter: u64,
    /// Watch events that are not delivered yet, oldest first.
    pub watch_events: VecDeque<Delta>,
    echoes_writes: bool,
    /// Schemas by which Workloads are refused; `None`: whatever the core creates is stored.
    schemas: Option<&'static Schemas>,
}

impl FakeApiServer {
    /// Creates an empty server. With `echo`, the watch also delivers the core's own writes. Without it, responses to
    /// status writes of a Workload contain only metadata: such a write does not change the spec, and the status is
    /// known.
    pub fn new(echo: bool) -> Self {
        Self { echoes_writes: echo, ..Self::default() }
    }

    /// Refuses the Workloads that a server refuses by their schema, as of jobs whose templates no schema describes.
    ///
    /// # Errors
    /// The schemas of this build cannot be generated.
    pub fn with_schemas(self) -> Result<Self, String> {
        Ok(Self { schemas: Some(Schemas::shipped()?), ..self })
    }

    /// Returns an object.
    pub fn get(&self, kind: Kind, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(&kind)?.get(key)
    }

    fn get_mut(&mut self, kind: Kind, key: &ObjectKey) -> Option<&mut Value> {
        self.objects.get_mut(&kind)?.get_mut(key)
    }

    /// Returns the objects of a kind, ordered by key.
    fn sorted(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        let mut all: Vec<(&ObjectKey, &Value)> = self.objects.get(&kind).into_iter().flatten().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }

    /// Returns all objects of a kind, ordered by key.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.sorted(kind).map(|(_, object)| object)
    }

    /// Returns whether any object of a kind matches the predicate.
    pub(super) fn any(&self, kind: Kind, predicate: impl Fn(&Value) -> bool) -> bool {
        self.objects.get(&kind).is_some_and(|objects| objects.values().any(predicate))
    }

    /// Returns the keys of all objects of a kind, in order.
    pub fn keys_of(&self, kind: Kind) -> Vec<ObjectKey> {
        self.sorted(kind).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the number of objects.
    pub(super) fn count(&self) -> usize {
        self.objects.values().map(ByKey::len).sum()
    }

    /// Returns the deltas of an initial list of these kinds.
    pub fn list(&self, kinds: impl IntoIterator<Item = Kind>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for kind in kinds {
            deltas.push(Delta::Restarted { kind });
            deltas.extend(self.all(kind).cloned().map(|object| Delta::Applied { kind, object }));
            deltas.push(Delta::Synced { kind });
        }
        deltas
    }

    /// Creates an object and returns it, or `None` if the name exists.
    pub fn create(&mut self, kind: Kind, object: Value, now: Timestamp) -> Option<Value> {
        let key = self.insert(kind, object, now, true)?;
        self.get(kind, &key).cloned()
    }

    /// Creates an object and returns its key, or `None` if the name exists. Emits a watch event if `notify` is set.
    pub(super) fn insert(
        &mut self,
        kind: Kind,
        mut object: Value,
        now: Timestamp,
        notify: bool,
    ) -> Option<ObjectKey> {
        let resource = kind.resource();
        let key = key_of(&object);
        if self.get(kind, &key).is_some() {
            return None;
        }
        self.uid_counter = self.uid_counter.saturating_add(1);
        // Workloads of one second are queued by UID: those of jobs in the order in which the jobs were created.
        let owner = text_at(&object, "/metadata/ownerReferences/0/uid");
        let uid = match owner.strip_prefix("uid-") {
            Some(_) => format!("{owner}-{:08}", self.uid_counter),
            None => format!("uid-{:08}", self.uid_counter),
        };
        set(&mut object, &["apiVersion"], json!(resource.api_version()));
        set(&mut object, &["kind"], json!(resource.kind));
        set(&mut object, &["metadata", "uid"], json!(uid));
        set(&mut object, &["metadata", "creationTimestamp"], json!(to_api_time(now)));
        set(&mut object, &["metadata", "generation"], json!(1));
        self.store(kind, key.clone(), object, WatchNotification::full_if(notify));
        Some(key)
    }

    /// Stores an object exported from another server; keeps its UID, version and creation time.
    pub fn load(&mut self, kind: Kind, mut object: Value, now: Timestamp) {
        self.uid_counter = self.uid_counter.saturating_add(1);
        let uid = format!("uid-{:08}", self.uid_counter);
        for (field, value) in
            [("uid", json!(uid)), ("creationTimestamp", json!(to_api_time(now))), ("generation", json!(1))]
        {
            if object.pointer(&format!("/metadata/{field}")).is_none_or(Value::is_null) {
                set(&mut object, &["metadata", field], value);
            }
        }
        let stored = value_at(&object, "/metadata/resourceVersion").and_then(Value::as_str);
        if let Some(version) = stored.and_then(|text| text.parse().ok()) {
            self.version = self.version.max(version);
        }
        self.store(kind, key_of(&object), object, WatchNotification::Full);
    }

    fn store(&mut self, kind: Kind, key: ObjectKey, mut object: Value, notification: WatchNotification) {
        self.version = self.version.saturating_add(1);
        set(&mut object, &["metadata", "resourceVersion"], json!(self.version.to_string()));
        if is_deleting(&object) && finalizer_count(&object) == 0 {
            let uid = text_at(&object, "/metadata/uid").to_owned();
            if let Some(objects) = self.objects.get_mut(&kind) {
                objects.swap_remove(&key);
            }
            self.watch_events.push_back(Delta::Deleted { kind, key, uid });
        } else {
            let delta = match notification {
                WatchNotification::Skip => None,
                WatchNotification::Full => Some(object.clone()),
                WatchNotification::WithoutSpec => Some(pick_fields(&object, &["metadata", "status"])),
            };
            self.watch_events.extend(delta.map(|object| Delta::Applied { kind, object }));
            let namespace = self.namespaces.get(&key.namespace).unwrap_or(&key.namespace).clone();
            self.namespaces.insert(namespace.clone());
            let key = ObjectKey { namespace, name: key.name };
            self.objects.entry(kind).or_default().insert(key, object);
        }
    }

    /// Changes an object as another client.
    pub fn edit(&mut self, kind: Kind, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        let Some(before) = self.get(kind, key) else {
            return;
        };
        let mut object = before.clone();
        change(&mut object);
        if object == *before {
            return;
        }
        if object.get("spec") != before.get("spec") {
            let generation = next_generation(before);
            set(&mut object, &["metadata", "generation"], generation);
        }
        self.store(kind, key.clone(), object, WatchNotification::Full);
    }

    /// Changes only the status of an object as another client. If `known`, the watch event of a Workload omits the
    /// spec. Returns whether the object has changed: it stays as it is if the change fails.
    pub(super) fn edit_status(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        known: bool,
        change: impl FnOnce(&mut Value) -> Result<(), JobError>,
    ) -> bool {
        let Some(stored) = self.get_mut(kind, key) else {
            return false;
        };
        let mut object = stored.clone();
        if change(&mut object).is_err() || object == *stored {
            return false;
        }
        let notification = if known && can_omit_spec(kind, &object) {
            WatchNotification::WithoutSpec
        } else {
            WatchNotification::Full
        };
        self.store(kind, key.clone(), object, notification);
        true
    }

    /// Deletes an object as another client, and the Workloads that it owns, as the garbage collector does.
    pub fn delete(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let Some(mut object) = self.get(kind, key).cloned() else {
            return;
        };
        let uid = value_at(&object, "/metadata/uid").cloned();
        set(&mut object, &["metadata", "deletionTimestamp"], json!(to_api_time(now)));
        self.store(kind, key.clone(), object, WatchNotification::Full);
        let owned = |w: &&Value| value_at(w, "/metadata/ownerReferences/0/uid") == uid.as_ref();
        let owned: Vec<ObjectKey> = self.all(Kind::Workload).filter(owned).map(key_of).collect();
        for key in owned.iter().filter(|owned| (kind, *owned) != (Kind::Workload, key)) {
            self.delete(Kind::Workload, key, now);
        }
    }

    /// Executes a write of the core.
    pub fn write(&mut self, mut write: Write, now: Timestamp) -> WriteOutcome {
        if let Some(status) = write.status.take() {
            set(&mut write.body, &["status"], json!(*status));
        }
        if write.verb == Verb::Create {
            if let Some(schemas) = self.schemas {
                let errors = schemas.default_and_validate(write.kind.resource().kind, &mut write.body, None);
                if !errors.is_empty() {
                    return WriteOutcome::Rejected { code: 422, message: aggregate(&errors) };
                }
            }
            let created = self.insert(write.kind, write.body, now, self.echoes_writes);
            let created = created.and_then(|key| self.get(write.kind, &key).cloned());
            return created.map_or(WriteOutcome::Conflict, WriteOutcome::Done);
        }
        let (kind, key) = (write.kind, write.key.clone());
        let Some(object) = self.get_mut(kind, &key) else {
            return WriteOutcome::NotFound;
        };
        let precondition = match write.verb {
            Verb::Delete => value_at(&write.body, "/preconditions/resourceVersion"),
            Verb::JsonPatch => value_at(&write.body, "/0/value"),
            _ => value_at(&write.body, "/metadata/resourceVersion"),
        };
        if precondition != value_at(object, "/metadata/resourceVersion") {
            return WriteOutcome::Conflict;
        }
        if write.verb == Verb::Apply
            && let Some(path) = emptied_field(object, &write.body)
        {
            let message = format!("status.{path}: Invalid value: \"null\": must be of type object");
            return WriteOutcome::Rejected { code: 422, message };
        }
        if kind == Kind::Pod && write.verb == Verb::Apply {
            // The kubelet owns the rest of the status, and the other conditions.
            let status = merged_status(object, &write.body);
            set(&mut write.body, &["status"], status);
        }
        // Fast path for the most frequent write.
        if (write.verb, write.subresource) == (Verb::Apply, Some("status")) {
            let status = write.body.get_mut("status").map(Value::take).unwrap_or_default();
            if object.get("status") == Some(&status) {
                return WriteOutcome::Done(object.clone());
            }
            let mut new = object.take();
            set(&mut new, &["status"], status);
            self.store(write.kind, write.key, new, WatchNotification::full_if(self.echoes_writes));
            let metadata_only = |object: &Value| {
                write.response_metadata_only || (!self.echoes_writes && can_omit_spec(write.kind, object))
            };
            let identity = |object: &Value| pick_fields(object, &["metadata"]);
            let response =
                |object: &Value| if metadata_only(object) { identity(object) } else { object.clone() };
            return self.get(kind, &key).map(response).map_or(WriteOutcome::NotFound, WriteOutcome::Done);
        }
        let mut new = object.clone();
        if apply_verb(&mut new, &write, now).is_none() {
            return WriteOutcome::Conflict;
        }
        if write.subresource == Some("status") {
            set(&mut new, &["spec"], object.get("spec").cloned().unwrap_or(Value::Null));
        } else if write.verb != Verb::Delete && new.get("spec") != object.get("spec") {
            let generation = next_generation(object);
            set(&mut new, &["metadata", "generation"], generation);
        }
        if new == *object {
            return WriteOutcome::Done(new);
        }
        self.store(write.kind, write.key, new.clone(), WatchNotification::full_if(self.echoes_writes));
        let gone = || match write.verb {
            Verb::Delete => {
                let uid = value_at(&new, "/metadata/uid");
                json!({"kind": "Status", "status": "Success", "details": {"name": key.name, "uid": uid}})
            }
            _ => new.clone(),
        };
        WriteOutcome::Done(self.get(kind, &key).cloned().unwrap_or_else(gone))
    }
}

/// Content of the watch event of a change.
#[derive(Clone, Copy)]
enum WatchNotification {
    Skip,
    Full,
    /// Metadata and status.
    WithoutSpec,
}

impl WatchNotification {
    const fn full_if(notify: bool) -> Self {
        if notify { Self::Full } else { Self::Skip }
    }
}

/// Returns whether metadata and status are sufficient for a client that already has an object of the same generation.
/// The spec is needed for admission checks, which copy pod templates.
fn can_omit_spec(kind: Kind, object: &Value) -> bool {
    kind == Kind::Workload && value_at(object, "/status/admissionChecks").is_none()
}

/// Returns an object with only the given fields.
fn pick_fields(object: &Value, fields: &[&str]) -> Value {
    let part = |name: &&str| ((*name).to_owned(), field(object, name).cloned().unwrap_or_default());
    Value::Object(fields.iter().map(part).collect())
}

/// Applies a write; `None` if it is a JSON patch that does not apply.
fn apply_verb(object: &mut Value, write: &Write, now: Timestamp) -> Option<()> {
    match write.verb {
        Verb::Delete => set(object, &["metadata", "deletionTimestamp"], json!(to_api_time(now))),
        // A forced apply by the only manager of the status removes all fields that it omits.
        Verb::Apply => {
            set(object, &["status"], write.body.get("status").cloned().unwrap_or_default());
        }
        Verb::Merge => merge(object, &write.body),
        Verb::JsonPatch => {
            let operations: json_patch::Patch = serde_json::from_value(write.body.clone()).ok()?;
            json_patch::patch(object, &operations).ok()?;
        }
        Verb::Create => {}
    }
    Some(())
}

/// Returns the status of an object after the status of another field manager was applied: conditions are merged by type.
fn merged_status(object: &Value, body: &Value) -> Value {
    let mut status = object.get("status").cloned().unwrap_or_default();
    let applied = body.get("status").cloned().unwrap_or_default();
    let type_of = |condition: &Value| condition.get("type").cloned();
    let list =
        |status: &Value| status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let new = list(&applied);
    let is_kept = |known: &Value| new.iter().all(|condition| type_of(condition) != type_of(known));
    let kept = list(&status).into_iter().filter(is_kept);
    let conditions: Vec<Value> = kept.chain(new.iter().cloned()).collect();
    merge(&mut status, &applied);
    set(&mut status, &["conditions"], Value::Array(conditions));
    status
}

/// Returns a status field that an apply changes to an empty object. The API server makes it null, and then refuses it.
fn emptied_field(object: &Value, body: &Value) -> Option<String> {
    let status = body.get("status")?.as_object()?;
    let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    let was_set =
        |name: &str| object.get("status").and_then(|status| status.get(name)).is_some_and(|v| !empty(v));
    status.iter().find(|(name, value)| empty(value) && was_set(name)).map(|(name, _)| name.clone())
}

fn is_deleting(object: &Value) -> bool {
    value_at(object, "/metadata/deletionTimestamp").is_some()
}

fn finalizer_count(object: &Value) -> usize {
    value_at(object, "/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

fn next_generation(object: &Value) -> Value {
    let generation = value_at(object, "/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    json!(generation.saturating_add(1))
}
