//! How objects come into the simulated cluster: as a server takes them, with defaults, checks and webhooks; or as another
//! server stored them.

use super::manifest::{Manifest, Manifests, Problem};
use super::objects::{describe, key_of, merge, set, text_at};
use super::quantities;
use super::schema::Schemas;
use super::simulation::Simulation;
use crate::admission::{self, AdmissionSettings, ReviewContext};
use crate::api::config::Duration;
use crate::api::validation::syntax::{invalid_each, subdomain};
use crate::api::validation::{FieldError, aggregate};
use crate::api::{GROUP, ObjectKey, names};
use crate::jobs::{KINDS, kind_of};
use crate::state::Kind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ARRIVES_AFTER: &str = "sluice.dev/arrives-after";
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// What objects are checked by, and what was found.
pub(super) struct ManifestApplier {
    schemas: Schemas,
    settings: AdmissionSettings,
    /// Names made so far.
    generated_names: u64,
    /// Objects that were refused.
    pub(super) problems: Vec<Problem>,
    /// Advice.
    pub(super) notes: Vec<String>,
    /// Objects of kinds that no decision depends on, by kind.
    pub(super) ignored: BTreeMap<String, usize>,
}

impl ManifestApplier {
    pub(super) fn new(settings: AdmissionSettings) -> Result<Self, String> {
        let (problems, notes, ignored) = Default::default();
        Ok(Self { schemas: Schemas::shipped()?, settings, generated_names: 0, problems, notes, ignored })
    }
}

impl Simulation {
    /// Takes manifests in: those that others refer to first, jobs last. What cannot be used is a problem of its own.
    pub fn apply_all(&mut self, manifests: Manifests) {
        let Manifests { objects: mut manifests, problems, ignored } = manifests;
        self.applier.problems.extend(problems);
        for (kind, count) in ignored {
            let known = self.applier.ignored.entry(kind).or_default();
            *known = known.saturating_add(count);
        }
        let after_its_job = |m: &Manifest| m.kind == Kind::Workload && is_stored(&m.object);
        manifests.sort_by_key(|manifest| (after_its_job(manifest), manifest.kind));
        for manifest in manifests {
            match self.arrival_time(&manifest.object) {
                Ok(None) => self.apply_manifest(manifest),
                Ok(Some(at)) => self.arrivals.entry(at).or_default().push(manifest),
                Err(reason) => self.reject(&manifest, reason),
            }
        }
    }

    /// Takes an object in as another server stored it.
    pub fn load_stored(&mut self, kind: Kind, mut object: Value) {
        if kind == Kind::Workload {
            drop_unknown_owner(&mut object);
        }
        let uid = text_at(&object, "/metadata/ownerReferences/0/uid");
        if kind == Kind::Workload && !uid.is_empty() {
            let jobs = (0..KINDS.len()).map(Kind::Job);
            let known = jobs
                .into_iter()
                .any(|kind| self.server.any(kind, |job| text_at(job, "/metadata/uid") == uid));
            if !known {
                drop_owner(&mut object);
            }
        }
        self.ensure_namespace(&object);
        self.server.load(kind, object, self.now);
    }

    /// When the object comes, if not at once.
    fn arrival_time(&self, object: &Value) -> Result<Option<Timestamp>, String> {
        let Some(text) = object.pointer("/metadata/annotations").and_then(|a| a.get(ARRIVES_AFTER)) else {
            return Ok(None);
        };
        let wait =
            text.as_str().and_then(Duration::parse).map(Duration::signed).filter(|wait| !wait.is_negative());
        let wait = wait.ok_or_else(|| {
            format!("metadata.annotations[{ARRIVES_AFTER}]: Invalid value: {text}: must be a duration")
        })?;
        let at = self.start.checked_add(wait).unwrap_or(Timestamp::MAX);
        Ok((at > self.now).then_some(at))
    }

    fn reject(&mut self, manifest: &Manifest, reason: String) {
        self.applier.problems.push(manifest.problem(reason));
    }

    /// Takes one manifest in now.
    pub(super) fn apply_manifest(&mut self, mut manifest: Manifest) {
        self.fill_generated_name(&mut manifest.object);
        let (kind, key) = (manifest.kind, key_of(&manifest.object));
        let old = self.server.get(kind, &key).cloned();
        if manifest.object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
            return self.delete_object(&manifest, old.is_some());
        }
        if old.is_none() && is_stored(&manifest.object) {
            return match self.check_readable(kind, &manifest.object) {
                Ok(()) => self.load_stored(kind, manifest.object),
                Err(reason) => self.reject(&manifest, reason),
            };
        }
        // What the core has not seen yet may be what the review asks for, but for a Workload's, which asks for nothing: those
        // that come at one moment are decided on together.
        if kind != Kind::Workload || !self.state.is_leading() {
            self.deliver_deltas();
        }
        match self.run_admission(&manifest, old.as_ref()) {
            Ok(object) if old.is_some() => {
                self.server.edit(kind, &key, |stored| *stored = object);
            }
            Ok(object) => {
                self.ensure_namespace(&object);
                self.server.insert(kind, object, self.now, true);
            }
            Err(reason) => self.reject(&manifest, reason),
        }
    }

    /// What a server has stored is not checked again, but it must be readable.
    fn check_readable(&self, kind: Kind, object: &Value) -> Result<(), String> {
        let errors = self.applier.schemas.default_and_validate(kind.resource().kind, &mut object.clone());
        if errors.is_empty() { check_decodes(kind, object) } else { Err(aggregate(&errors)) }
    }

    fn delete_object(&mut self, manifest: &Manifest, there: bool) {
        if there {
            self.server.delete(manifest.kind, &key_of(&manifest.object), self.now);
        } else {
            self.reject(manifest, "is to be deleted, but is not there".to_owned());
        }
    }

    /// A name for an object that has only the beginning of one.
    fn fill_generated_name(&mut self, object: &mut Value) {
        let begins = text_at(object, "/metadata/generateName").to_owned();
        if text_at(object, "/metadata/name").is_empty() && !begins.is_empty() {
            self.applier.generated_names = self.applier.generated_names.saturating_add(1);
            set(object, &["metadata", "name"], json!(format!("{begins}{:05}", self.applier.generated_names)));
        }
    }

    /// Namespaces that somebody is in exist.
    fn ensure_namespace(&mut self, object: &Value) {
        let name = text_at(object, "/metadata/namespace");
        if !name.is_empty() && self.server.get(Kind::Namespace, &ObjectKey::cluster(name)).is_none() {
            let namespace = json!({"metadata": {"name": name, "labels": {NAMESPACE_LABEL: name}}});
            self.server.insert(Kind::Namespace, namespace, self.now, true);
        }
    }

    /// The object as it is stored: merged into the old one, defaulted, checked, reviewed.
    fn run_admission(&mut self, manifest: &Manifest, old: Option<&Value>) -> Result<Value, String> {
        let resource = manifest.kind.resource();
        let mut object = old.cloned().unwrap_or_default();
        let mut own = manifest.object.clone();
        // Nobody here makes a node ready: what its manifest says stands.
        let told = matches!(manifest.kind, Kind::Node | Kind::Pod);
        if let Some(fields) = own.as_object_mut().filter(|_| !told) {
            fields.shift_remove("status");
        }
        if let Some(metadata) = own.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
                metadata.shift_remove(field);
            }
        }
        merge(&mut object, &own);
        if manifest.kind == Kind::Namespace {
            set(
                &mut object,
                &["metadata", "labels", NAMESPACE_LABEL],
                json!(text_at(&own, "/metadata/name")),
            );
        }
        // A server reads its built-in kinds before it asks a webhook, ours after.
        let ours = resource.group == GROUP;
        if !ours {
            check_decodes(manifest.kind, &object)?;
        }
        let (schemas, snapshot) = (&self.applier.schemas, self.state.snapshot());
        let schema = |object: &mut Value| {
            let mut errors = validate_name(object);
            errors.extend(schemas.default_and_validate(resource.kind, object));
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
            if ours { check_decodes(manifest.kind, object) } else { Ok(()) }
        };
        let ctx = ReviewContext { objects: &snapshot, settings: &self.applier.settings };
        let named = (resource.group, resource.kind);
        let (object, advice) = admission::admit_object(named, object, old, schema, &ctx)?;
        let subject = describe(&object);
        self.applier
            .notes
            .extend(advice.into_iter().map(|text| format!("{}: {subject}: {text}", manifest.location)));
        Ok(object)
    }
}

/// The uid of nobody is ours: whatever carries one was stored by a server before.
fn is_stored(object: &Value) -> bool {
    !text_at(object, "/metadata/uid").is_empty()
}

fn validate_name(object: &Value) -> Vec<FieldError> {
    let name = text_at(object, "/metadata/name");
    invalid_each("metadata.name", name, subdomain(name))
}

/// Kinds whose schemas are not ours must at least be readable.
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
        Kind::Job(index) => {
            let Some(kind) = KINDS.get(index) else {
                return Ok(());
            };
            // The server gives it an identity later.
            let mut whole = object.clone();
            set(&mut whole, &["metadata", "uid"], json!("new"));
            let decoded = kind.decode(&whole).and_then(|_| kind.pod_sets(&whole));
            return decoded.map(drop).map_err(|error| error.to_string());
        }
        _ => Ok(()),
    };
    read.map_err(|error| error.to_string())
}

/// Takes from a stored Workload an owner of a kind that nobody plays here.
fn drop_unknown_owner(workload: &mut Value) {
    let group =
        text_at(workload, "/metadata/ownerReferences/0/apiVersion").split_once('/').map_or("", |(g, _)| g);
    if kind_of(group, text_at(workload, "/metadata/ownerReferences/0/kind")).is_none() {
        drop_owner(workload);
    }
}

/// A Workload without a job runs by itself.
fn drop_owner(workload: &mut Value) {
    if let Some(metadata) = workload.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("ownerReferences");
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.shift_remove(names::JOB_UID_LABEL);
        }
    }
}
