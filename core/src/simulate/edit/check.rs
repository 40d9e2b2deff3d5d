//! Checks of what a change names, before anything is simulated: a misspelt name costs no simulation.
//!
//! Invariant: what is refused here is also refused after a simulation, with the same text; what a file, an earlier change or the
//! simulation may still make is left to the change itself.

use super::{Change, Edit, Target, check_status, class_name, describe};
use crate::api::ObjectKey;
use crate::api::names::POD_GROUP_NAME;
use crate::cache::Kind;
use crate::frameworks::{JobKind, job_name_in_workload_name};
use crate::simulate::manifest::Manifest;
use crate::simulate::objects::{field, key_of, text_at, value_at};
use crate::simulate::simulation::Simulation;
use serde_json::{Value, json};

/// What may exist only when a change is made.
#[derive(Clone, Copy)]
pub(in super::super) struct MadeLater<'a> {
    /// Objects of files.
    pub(in super::super) manifests: &'a [&'a Manifest],
    /// Changes that are made before.
    pub(in super::super) edits: &'a [Edit],
    /// Namespace of the changed objects.
    pub(in super::super) namespace: &'a str,
}

impl Simulation {
    /// Checks a change of an object.
    pub(in super::super) fn check_edit(&self, edit: &Edit, later: MadeLater<'_>) -> Result<(), String> {
        self.check_change(edit, later).map_err(|fault| format!("{}: {fault}", edit.text))
    }

    fn check_change(&self, Edit { target, change, .. }: &Edit, later: MadeLater<'_>) -> Result<(), String> {
        let is_implied = matches!(change, Change::Amount { .. }) && self.is_implied(target);
        if !is_implied {
            self.check_target(target, later)?;
        }
        match change {
            Change::Priority(class) => self.check_class(class, later),
            Change::Set(..) | Change::Amount { .. } if !self.may_differ(target, later) => {
                let key = ObjectKey::new(target.namespace(later.namespace), &target.name);
                let implied = json!({"spec": {}});
                let stored = self.harness.server.get(target.kind, &key);
                let Some(old) = stored.or(is_implied.then_some(&implied)) else { return Ok(()) };
                let mut new = old.clone();
                change.set_in(&mut new, &describe(target.kind, &key), self.adds_quota(target, change))?;
                check_status(target.kind, &key, (&new, old))?;
                self.check_schema(target.kind, new, old)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the object of a change exists, or may exist when the change is made.
    pub(in super::super) fn check_target(&self, target: &Target, later: MadeLater<'_>) -> Result<(), String> {
        let Err(fault) = self.find(target, later.namespace) else { return Ok(()) };
        let adds_nodes = |edit: &Edit| matches!(edit.change, Change::AddNodes(_));
        let may_exist = self.is_made(target.kind, &target.name, later)
            || (target.kind == Kind::Node && later.edits.iter().any(adds_nodes))
            || (target.kind == Kind::Workload && self.may_get_workload(&target.name, later));
        if may_exist { Ok(()) } else { Err(fault) }
    }

    /// Iterates over the objects of files that are not applied yet, those that arrive later included.
    fn manifests<'a>(&'a self, later: MadeLater<'a>) -> impl Iterator<Item = &'a Manifest> {
        self.arrivals.values().flatten().chain(later.manifests.iter().copied())
    }

    /// Returns whether a file has an object of this name, or one whose name begins with it.
    fn is_made(&self, kind: Kind, name: &str, later: MadeLater<'_>) -> bool {
        self.manifests(later).filter(|manifest| manifest.kind == kind).any(|manifest| {
            let (given, prefix) = (
                text_at(&manifest.object, "/metadata/name"),
                text_at(&manifest.object, "/metadata/generateName"),
            );
            if given.is_empty() { !prefix.is_empty() && name.starts_with(prefix) } else { given == name }
        })
    }

    /// Returns whether the object of a change may be another one when the change is made.
    fn may_differ(&self, target: &Target, later: MadeLater<'_>) -> bool {
        let is_before = |edit: &Edit| edit.target == *target || matches!(edit.change, Change::Set(..));
        self.is_made(target.kind, &target.name, later) || later.edits.iter().any(is_before)
    }

    fn check_class(&self, class: &str, later: MadeLater<'_>) -> Result<(), String> {
        let name = class_name(class);
        let is_number = |class: &str| class.parse::<i32>().is_ok();
        let makes = |edit: &Edit| matches!(&edit.change, Change::Priority(other) if is_number(other) && class_name(other) == name);
        let kind = Kind::WorkloadPriorityClass;
        let exists = self.harness.server.get(kind, &ObjectKey::cluster(&name)).is_some();
        if exists || is_number(class) || self.is_made(kind, &name, later) || later.edits.iter().any(makes) {
            return Ok(());
        }
        Err(format!("WorkloadPriorityClass {name} not found"))
    }

    /// Returns whether a job may get a Workload of this name: one without a Workload, or one of a file.
    fn may_get_workload(&self, name: &str, later: MadeLater<'_>) -> bool {
        let server = &self.harness.server;
        let kinds = Kind::all().into_iter().filter(|kind| matches!(kind, Kind::Job(_) | Kind::Pod));
        let mut stored = kinds.flat_map(|kind| server.all(kind).map(move |job| (kind, job)));
        let is_free = |kind: Kind, job: &Value| {
            makes_workload(kind, job, name)
                && text_at(job, "/metadata/namespace") == later.namespace
                && self.workloads_owned_by(kind, &key_of(job)).next().is_none()
        };
        stored.any(|(kind, job)| is_free(kind, job))
            || self.manifests(later).any(|manifest| makes_workload(manifest.kind, &manifest.object, name))
    }
}

/// Returns whether the Workload of a job, or of one of its replicas, may have this name.
fn makes_workload(kind: Kind, job: &Value, name: &str) -> bool {
    let row = match kind {
        Kind::Job(kind) => kind.row(),
        Kind::Pod => JobKind::POD.row(),
        _ => return false,
    };
    let group = value_at(job, "/metadata/labels").and_then(|labels| field(labels, POD_GROUP_NAME));
    if group.and_then(Value::as_str) == Some(name) {
        return true;
    }
    let own = text_at(job, "/metadata/name");
    let of_job = |start: &str| start.starts_with(own) || own.starts_with(start);
    // A name that the server makes is not known.
    job_name_in_workload_name(row, name).is_some_and(of_job)
}
