//! A double of the API server for fault injection: versions, preconditions, finalizers, forced applies of one field
//! manager, and a watch that delivers each object's versions in order, but late.

use serde_json::{Map, Value, json};
use sluice::api::ObjectKey;
use sluice::state::{Delta, Kind, Verb, Write, WriteOutcome};
use std::collections::{BTreeMap, VecDeque};

/// Objects, and the history that watches still have to deliver.
#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) objects: BTreeMap<(Kind, ObjectKey), Value>,
    version: u64,
    uids: u64,
    pub(crate) watch: VecDeque<Delta>,
    /// Every version of every Workload.
    pub(crate) history: Vec<Value>,
}

impl Server {
    pub(crate) fn get(&self, kind: Kind, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(&(kind, key.clone()))
    }

    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((k, _), _)| *k == kind).map(|(_, v)| v)
    }

    /// What a fresh start lists.
    pub(crate) fn list(&self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        for kind in Kind::all() {
            deltas.push(Delta::Restarted { kind });
            deltas.extend(self.all(kind).cloned().map(|object| Delta::Applied { kind, object }));
            deltas.push(Delta::Synced { kind });
        }
        deltas
    }

    pub(crate) fn create(&mut self, kind: Kind, mut object: Value, now: &str) -> Option<Value> {
        let resource = kind.resource();
        let key = key_of(&object);
        if self.objects.contains_key(&(kind, key.clone())) {
            return None;
        }
        self.uids += 1;
        object["apiVersion"] = json!(resource.api_version());
        object["kind"] = json!(resource.kind);
        object["metadata"]["uid"] = json!(format!("uid-{:08}", self.uids));
        object["metadata"]["creationTimestamp"] = json!(now);
        object["metadata"]["generation"] = json!(1);
        Some(self.store(kind, key, object))
    }

    fn store(&mut self, kind: Kind, key: ObjectKey, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let gone = object.pointer("/metadata/deletionTimestamp").is_some()
            && object.pointer("/metadata/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if kind == Kind::Workload {
            self.history.push(object.clone());
        }
        if gone {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.objects.remove(&(kind, key.clone()));
            self.watch.push_back(Delta::Deleted { kind, key, uid });
        } else {
            self.objects.insert((kind, key), object.clone());
            self.watch.push_back(Delta::Applied { kind, object: object.clone() });
        }
        object
    }

    /// A change by somebody else.
    pub(crate) fn edit(&mut self, kind: Kind, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.objects.get(&(kind, key.clone())).cloned() {
            let before = object.clone();
            change(&mut object);
            if object != before {
                if object["spec"] != before["spec"] {
                    object["metadata"]["generation"] =
                        json!(before["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
                }
                self.store(kind, key.clone(), object);
            }
        }
    }

    /// A deletion by somebody else; owned Workloads of a Job follow it, as the garbage collector has it.
    pub(crate) fn delete(&mut self, kind: Kind, key: &ObjectKey, now: &str) {
        let Some(mut object) = self.objects.get(&(kind, key.clone())).cloned() else { return };
        let uid = object["metadata"]["uid"].clone();
        object["metadata"]["deletionTimestamp"] = json!(now);
        self.store(kind, key.clone(), object);
        let owned: Vec<ObjectKey> = self
            .all(Kind::Workload)
            .filter(|w| w.pointer("/metadata/ownerReferences/0/uid") == Some(&uid))
            .map(key_of)
            .collect();
        for key in owned {
            self.delete(Kind::Workload, &key, now);
        }
    }

    /// Carries out a write of the core.
    pub(crate) fn write(&mut self, write: &Write, now: &str) -> WriteOutcome {
        if write.verb == Verb::Create {
            let made = self.create(write.kind, write.body.clone(), now);
            return made.map_or(WriteOutcome::Conflict, WriteOutcome::Done);
        }
        let Some(object) = self.get(write.kind, &write.key).cloned() else { return WriteOutcome::NotFound };
        let precondition = match write.verb {
            Verb::Delete => write.body.pointer("/preconditions/resourceVersion"),
            _ => write.body.pointer("/metadata/resourceVersion"),
        };
        assert!(precondition.is_some(), "a write without precondition: {write:?}");
        if precondition != object.pointer("/metadata/resourceVersion") {
            return WriteOutcome::Conflict;
        }
        let mut new = object.clone();
        match write.verb {
            Verb::Delete => new["metadata"]["deletionTimestamp"] = json!(now),
            Verb::Apply => apply_status(&mut new, &write.body),
            Verb::Merge => merge(&mut new, &write.body),
            Verb::Create => {}
        }
        if write.subresource == Some("status") {
            new["spec"] = object["spec"].clone();
        } else if write.verb != Verb::Delete && new.get("spec") != object.get("spec") {
            new["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        if new == object {
            return WriteOutcome::Done(object);
        }
        WriteOutcome::Done(self.store(write.kind, write.key.clone(), new))
    }
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let text = |p: &str| object.pointer(p).and_then(Value::as_str).unwrap_or_default();
    ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"))
}

/// A forced apply by the one manager that ever wrote the status: what it leaves out goes.
fn apply_status(object: &mut Value, body: &Value) {
    object["status"] = body["status"].clone();
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
