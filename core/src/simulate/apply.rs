//! Applies manifests to the simulated cluster: new objects with defaulting, validation and webhooks, as an API server
//! does; objects exported from a server as they are.

use super::manifest::{Manifest, Manifests, Problem};
use super::objects::{describe, field, field_text, has_owner, key_of, merge, set, text_at, value_at};
use super::quantities;
use super::run_annotations::{self, ARRIVES_AFTER};
use super::schema::Schemas;
use super::server_rules;
use super::simulation::Simulation;
use crate::admission::{self, AdmissionSettings, ReviewContext};
use crate::api::time::parse_time;
use crate::api::validation::aggregate;
use crate::api::{GROUP, ObjectKey, names};
use crate::cache::Kind;
use crate::frameworks::{JobKind, Role, framework};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Metadata that only the server sets.
const SERVER_METADATA: [&str; 5] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"];
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Schemas and settings for admission, and the results.
pub(super) struct ManifestApplier {
    schemas: &'static Schemas,
    settings: AdmissionSettings,
    /// Number of names generated so far.
    generated_names: u64,
    /// Objects that were refused.
    pub(super) problems: Vec<Problem>,
    /// Objects among them that count as far as they can be read.
    pub(super) reported: BTreeSet<(Kind, ObjectKey)>,
    /// Warnings of admission reviews.
    pub(super) notes: Vec<String>,
    /// Number of objects of kinds that do not affect scheduling, by kind.
    pub(super) ignored: BTreeMap<String, usize>,
    /// Objects that name a queue and are of kinds that are not managed.
    pub(super) not_managed: Vec<String>,
}

impl ManifestApplier {
    pub(super) fn new(settings: AdmissionSettings) -> Result<Self, String> {
        let (problems, reported, notes, ignored, not_managed) = Default::default();
        let schemas = Schemas::shipped()?;
        Ok(Self { schemas, settings, generated_names: 0, problems, reported, notes, ignored, not_managed })
    }

    pub(super) const fn settings(&self) -> &AdmissionSettings {
        &self.settings
    }
}

impl Simulation {
    /// Applies manifests in dependency order: referenced kinds first, jobs and Workloads last, in the order in which a
    /// cluster created them: by creation time, else as they stand in the files. Each invalid manifest is a problem.
    pub fn apply_all(&mut self, manifests: Manifests) {
        let Manifests { objects: mut manifests, problems, ignored, not_managed, .. } = manifests;
        self.applier.problems.extend(problems);
        self.applier.not_managed.extend(not_managed);
        for (kind, count) in ignored {
            let total = self.applier.ignored.entry(kind).or_default();
            *total = total.saturating_add(count);
        }
        manifests.sort_by_cached_key(|manifest| (application_rank(manifest), self.creation_time(manifest)));
        let mut known = BTreeSet::new();
        for mut manifest in manifests {
            // What a simulation starts with is created, what changes it is applied.
            let name = (manifest.kind, key_of(&manifest.object));
            let named = !name.1.name.is_empty() && !manifest.dumped && !is_deleted(&manifest.object);
            if named && !self.harness.core.is_leading() && !known.insert(name) {
                let reason = already_exists(&manifest);
                self.reject(&manifest, reason);
                continue;
            }
            match self.arrival_time(&manifest) {
                Ok(None) => self.apply_manifest(manifest),
                Ok(Some(at)) => {
                    // It is created when it arrives.
                    remove_metadata(&mut manifest.object, &["creationTimestamp"]);
                    self.arrivals.entry(at).or_default().push(manifest);
                }
                Err(reason) => self.reject(&manifest, reason),
            }
        }
    }

    /// Stores an object exported from a server.
    pub fn load_stored(&mut self, kind: Kind, mut object: Value) {
        let former_owner = text_at(&object, "/metadata/ownerReferences/0/uid").to_owned();
        if kind == Kind::Workload {
            drop_unknown_owner(&mut object);
        }
        let uid = text_at(&object, "/metadata/ownerReferences/0/uid").to_owned();
        if kind == Kind::Workload && !uid.is_empty() {
            let owner = owner_of(&object).and_then(|(kind, key)| self.harness.server.get(kind, &key));
            if owner.is_none_or(|job| text_at(job, "/metadata/uid") != uid) {
                drop_owner(&mut object);
            }
        }
        if kind == Kind::Workload && !has_owner(&object) {
            self.pod_owners.note_without_owner(key_of(&object), former_owner);
        }
        self.ensure_namespace(&object);
        if is_queued(kind, &object) {
            // It is as in the cluster, where the annotations mean nothing.
            let faults = run_annotations::check(kind, &object).into_iter();
            let subject = describe(&object);
            self.applier.notes.extend(faults.map(|fault| format!("{subject}: {fault}; ignored")));
        }
        let key = key_of(&object);
        self.harness.server.load(kind, object, self.now);
        if kind == Kind::Workload {
            // A Workload that replaces this one would be younger.
            self.creation_times.remove(&uid);
        } else if let Some(stored) = self.harness.server.get(kind, &key) {
            let created = parse_time(text_at(stored, "/metadata/creationTimestamp")).unwrap_or(self.now);
            let uid = text_at(stored, "/metadata/uid").to_owned();
            self.remember_creation_time(kind, uid, created);
        }
    }

    /// Returns when an object was created: at the time that its manifest says, unless it is in the future.
    fn creation_time(&self, manifest: &Manifest) -> Timestamp {
        let written = parse_time(text_at(&manifest.object, "/metadata/creationTimestamp"));
        written.map_or(self.now, |written: Timestamp| written.min(self.now))
    }

    /// Keeps the creation time of a job for its Workload.
    fn remember_creation_time(&mut self, kind: Kind, uid: String, created: Timestamp) {
        if matches!(kind, Kind::Job(_)) && created < self.now {
            self.creation_times.insert(uid, created);
        }
    }

    /// Returns the time at which the object is created, or `None` if it is created now.
    fn arrival_time(&self, manifest: &Manifest) -> Result<Option<Timestamp>, String> {
        let annotations = manifest.object.pointer("/metadata/annotations");
        if manifest.dumped {
            return Ok(None);
        }
        let mut errors = self.applier.schemas.metadata_errors(&manifest.object);
        if errors.is_empty() && is_queued(manifest.kind, &manifest.object) {
            errors = run_annotations::check(manifest.kind, &manifest.object);
        }
        if !errors.is_empty() {
            return Err(aggregate(&errors));
        }
        let text = annotations.and_then(|a| a.get(ARRIVES_AFTER)).and_then(Value::as_str);
        let Some(wait) = text.and_then(run_annotations::parse_duration) else {
            return Ok(None);
        };
        let at = self.start.checked_add(wait).unwrap_or(Timestamp::MAX);
        Ok((at > self.now).then_some(at))
    }

    fn reject(&mut self, manifest: &Manifest, reason: String) {
        self.applier.problems.push(manifest.problem(reason));
    }

    /// Applies one manifest now.
    pub(super) fn apply_manifest(&mut self, mut manifest: Manifest) {
        self.fill_generated_name(&mut manifest.object);
        let (kind, key) = (manifest.kind, key_of(&manifest.object));
        let old = self.harness.server.get(kind, &key).cloned();
        if manifest.dumped && old.is_none() {
            return self.load_stored(kind, manifest.object);
        }
        if is_deleted(&manifest.object) {
            return self.delete_object(&manifest, old.is_some());
        }
        if old.is_none() && is_stored(&manifest.object) {
            return self.load_exported(manifest);
        }
        // Reviews read the core's snapshot, so the core must process pending deltas first. Reviews of Workloads read no
        // other objects; not delivering here lets all Workloads of an instant be decided together.
        if kind != Kind::Workload || !self.harness.core.is_leading() {
            self.deliver_deltas();
        }
        match self.run_admission(&manifest, old.as_ref()) {
            Ok(object) if old.is_some() => {
                self.harness.server.edit(kind, &key, |stored| *stored = object);
            }
            Ok(object) => {
                self.ensure_namespace(&object);
                let created = self.creation_time(&manifest);
                self.harness.server.insert(kind, object, created, true);
                let uid = self
                    .harness
                    .server
                    .get(kind, &key)
                    .map(|stored| text_at(stored, "/metadata/uid").to_owned());
                self.remember_creation_time(kind, uid.unwrap_or_default(), created);
            }
            Err(reason) => self.reject(&manifest, reason),
        }
    }

    /// Stores an exported object; it is not validated again. One of Kueue's kinds that the definitions here would refuse, which
    /// another version has stored, counts as far as it can be read, as in a cluster.
    fn load_exported(&mut self, manifest: Manifest) {
        let (kind, object) = (manifest.kind, &manifest.object);
        let errors =
            self.applier.schemas.default_and_validate(kind.resource().kind, &mut object.clone(), None);
        let read =
            || check_decodes(kind, object).and_then(|()| check_charged(kind, object, &self.applier.settings));
        let checked = if errors.is_empty() { read() } else { Err(aggregate(&errors)) };
        let is_custom = kind.resource().group == GROUP;
        if let Err(reason) = checked {
            let of_status = errors.iter().all(|error| error.path.starts_with("status"));
            if is_custom && of_status {
                self.applier.notes.push(format!("{}: {}: {reason}", manifest.location, describe(object)));
            } else {
                self.reject(&manifest, reason);
                self.applier.reported.insert((kind, key_of(object)));
            }
            if !is_custom {
                return;
            }
        }
        self.load_stored(kind, manifest.object);
    }

    fn delete_object(&mut self, manifest: &Manifest, exists: bool) {
        if exists {
            self.harness.server.delete(manifest.kind, &key_of(&manifest.object), self.now);
        } else {
            self.reject(manifest, "cannot delete: object not found".to_owned());
        }
    }

    /// Sets the name of an object that has only `generateName`.
    fn fill_generated_name(&mut self, object: &mut Value) {
        let prefix = text_at(object, "/metadata/generateName").to_owned();
        if text_at(object, "/metadata/name").is_empty() && !prefix.is_empty() {
            self.applier.generated_names = self.applier.generated_names.saturating_add(1);
            set(object, &["metadata", "name"], json!(format!("{prefix}{:05}", self.applier.generated_names)));
        }
    }

    /// Creates the namespace of an object if it does not exist.
    fn ensure_namespace(&mut self, object: &Value) {
        let name = text_at(object, "/metadata/namespace");
        if !name.is_empty() && self.harness.server.get(Kind::Namespace, &ObjectKey::cluster(name)).is_none() {
            let namespace = json!({"metadata": {"name": name, "labels": {NAMESPACE_LABEL: name}}});
            self.harness.server.insert(Kind::Namespace, namespace, self.now, true);
        }
    }

    /// Returns the object to store: merged into the old version, defaulted, validated and reviewed.
    fn run_admission(&mut self, manifest: &Manifest, old: Option<&Value>) -> Result<Value, String> {
        let mut object = old.cloned().unwrap_or_default();
        let mut own = manifest.object.clone();
        if let Some(fields) = own.as_object_mut().filter(|_| !keeps_status(manifest.kind)) {
            fields.shift_remove("status");
        }
        remove_metadata(&mut own, &SERVER_METADATA);
        merge(&mut object, &own);
        if manifest.kind == Kind::Namespace {
            set(
                &mut object,
                &["metadata", "labels", NAMESPACE_LABEL],
                json!(text_at(&own, "/metadata/name")),
            );
        }
        let (object, advice) = self.review(manifest.kind, object, old)?;
        let subject = describe(&object);
        self.applier
            .notes
            .extend(advice.into_iter().map(|text| format!("{}: {subject}: {text}", manifest.location)));
        Ok(object)
    }

    /// Returns the object to store: defaulted, validated and reviewed; and the warnings of the review.
    pub(super) fn review(
        &self,
        kind: Kind,
        mut object: Value,
        old: Option<&Value>,
    ) -> Result<(Value, Vec<String>), String> {
        let resource = kind.resource();
        // A server decodes built-in kinds before it calls webhooks, custom resources after.
        let is_custom = resource.group == GROUP;
        if !is_custom {
            let mut errors = self.applier.schemas.decode(resource.kind, &mut object);
            if errors.is_empty() {
                errors = quantities::check_quantities(&object);
            }
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
            server_rules::set_defaults(kind, &mut object);
        }
        let (schemas, snapshot) = (self.applier.schemas, self.harness.core.snapshot());
        let schema = |object: &mut Value| {
            let mut errors = schemas.default_and_validate(resource.kind, object, old);
            errors.extend(server_rules::validate(kind, object, old));
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
            check_decodes(kind, object)
        };
        let ctx = ReviewContext { objects: &snapshot, settings: &self.applier.settings };
        let admitted = admission::admit_object((resource.group, resource.kind), object, old, schema, &ctx)?;
        // A webhook names its rule, where there is one.
        check_charged(kind, &admitted.0, &self.applier.settings)?;
        Ok(admitted)
    }

    /// Checks a changed custom resource by its schema alone, before anything is simulated.
    pub(super) fn check_schema(&self, kind: Kind, mut new: Value, old: &Value) -> Result<(), String> {
        let resource = kind.resource();
        if resource.group != GROUP {
            return Ok(());
        }
        let errors = self.applier.schemas.default_and_validate(resource.kind, &mut new, Some(old));
        if errors.is_empty() { Ok(()) } else { Err(aggregate(&errors)) }
    }
}

/// Returns whether the status of an object comes from its manifest: no kubelet is simulated that would write it.
pub(super) const fn keeps_status(kind: Kind) -> bool {
    matches!(kind, Kind::Node | Kind::Pod)
}

/// Returns the rank in which manifests are applied. A stored Workload follows its job, by whose UID it is known.
fn application_rank(manifest: &Manifest) -> (bool, bool, Option<Kind>) {
    let queued = is_queued(manifest.kind, &manifest.object);
    let after_its_job = manifest.kind == Kind::Workload && is_stored(&manifest.object);
    (after_its_job, queued, (!queued).then_some(manifest.kind))
}

fn remove_metadata(object: &mut Value, fields: &[&str]) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in fields {
            metadata.shift_remove(*field);
        }
    }
}

/// Returns whether an object was exported from a server. Hand-written manifests have no UID.
fn is_stored(object: &Value) -> bool {
    !text_at(object, "/metadata/uid").is_empty()
}

fn is_deleted(object: &Value) -> bool {
    value_at(object, "/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// Returns whether an object may wait in a queue. Pods that name none only use nodes.
fn is_queued(kind: Kind, object: &Value) -> bool {
    match kind {
        Kind::Workload | Kind::Job(_) => true,
        Kind::Pod => value_at(object, "/metadata/labels")
            .is_some_and(|map| field(map, names::QUEUE_NAME_LABEL).is_some()),
        _ => false,
    }
}

/// Returns the message of a server for an object that is created a second time.
fn already_exists(manifest: &Manifest) -> String {
    let (resource, name) = (manifest.kind.resource(), text_at(&manifest.object, "/metadata/name"));
    let dot = if resource.group.is_empty() { "" } else { "." };
    format!("{}{dot}{} {name:?} already exists", resource.plural, resource.group)
}

/// Checks that an object of a built-in kind can be decoded.
fn check_decodes(kind: Kind, object: &Value) -> Result<(), String> {
    let errors =
        if kind.resource().group == GROUP { Vec::new() } else { quantities::check_quantities(object) };
    if !errors.is_empty() {
        return Err(aggregate(&errors));
    }
    let read = match kind {
        Kind::Namespace => serde_json::from_value::<Namespace>(object.clone()).map(drop),
        Kind::Node => serde_json::from_value::<Node>(object.clone()).map(drop),
        Kind::Pod => serde_json::from_value::<Pod>(object.clone()).map(drop),
        Kind::LimitRange => serde_json::from_value::<LimitRange>(object.clone()).map(drop),
        Kind::RuntimeClass => serde_json::from_value::<RuntimeClass>(object.clone()).map(drop),
        Kind::PriorityClass => serde_json::from_value::<PriorityClass>(object.clone()).map(drop),
        _ => Ok(()),
    };
    read.map_err(|error| error.to_string())
}

/// Checks that the pod sets of a job can be read, if the job would be charged for them. What is in no queue, or left to another
/// controller, is the concern of its own controller alone.
fn check_charged(kind: Kind, object: &Value, settings: &AdmissionSettings) -> Result<(), String> {
    let Kind::Job(kind) = kind else { return Ok(()) };
    let labels = value_at(object, "/metadata/labels");
    let named = labels.is_some_and(|labels| !field_text(labels, names::QUEUE_NAME_LABEL).is_empty());
    let by = kind.fields.managed_by.map(|field| (text_at(object, field.field), field.built_in));
    let by_others =
        by.is_some_and(|(by, own)| !by.is_empty() && by != own && by != names::MULTIKUEUE_CONTROLLER);
    if by_others || kind.hooks.skips(object) || !(named || settings.manage_jobs_without_queue_name) {
        return Ok(());
    }
    // The server sets the UID later.
    let mut whole = object.clone();
    set(&mut whole, &["metadata", "uid"], json!("new"));
    kind.decode(&whole).map_err(|error| error.to_string())?;
    match kind.role {
        // A kind that passes through has none: each of its pods has a Workload.
        Role::PassThrough | Role::Pods => Ok(()),
        Role::Suspended | Role::PodsOfOwner => {
            kind.pod_sets(&whole).map(drop).map_err(|error| error.to_string())
        }
    }
}

/// Removes the owner of a stored Workload if its kind is not simulated.
fn drop_unknown_owner(workload: &mut Value) {
    if owner_of(workload).is_none() {
        drop_owner(workload);
    }
}

/// Returns the job that owns a Workload, if its kind is simulated.
fn owner_of(workload: &Value) -> Option<(Kind, ObjectKey)> {
    let owner = value_at(workload, "/metadata/ownerReferences/0")?;
    let group = text_at(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = Kind::of_job(JobKind::new(framework(group, text_at(owner, "/kind"))?));
    Some((kind, ObjectKey::new(text_at(workload, "/metadata/namespace"), text_at(owner, "/name"))))
}

/// Removes the owner of a Workload, so that it runs without a job.
fn drop_owner(workload: &mut Value) {
    if let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("ownerReferences");
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.shift_remove(names::JOB_UID_LABEL);
        }
    }
}
