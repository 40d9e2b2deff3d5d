//! Changes of single fields of the simulated cluster, as a command line says them, without a file.
//!
//! Invariants: a change passes the same checks as a manifest; one that cannot be applied is an error that begins with its text, and
//! never an answer for a cluster without it.

mod amounts;
mod check;
mod drained;
mod field_path;
mod new_nodes;
mod parse;
mod rights;

pub(super) use check::MadeLater;
use new_nodes::MAX_ADDED_NODES;
pub use rights::ChangeRight;

use super::apply::keeps_status;
use super::objects::{is_true, key_of, set, text_at};
use super::quota_units::quota_units;
use super::simulation::Simulation;
use crate::api::names::PRIORITY_CLASS_LABEL;
use crate::api::similar;
use crate::api::{GROUP, ObjectKey};
use crate::cache::Kind;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::{self, Quantity};
use field_path::FieldPath;
use serde_json::{Value, json};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The flag and its value, for the timeline and for errors.
    text: String,
    target: Target,
    change: Change,
}

/// The object that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Kind,
    /// Its name; its namespace is given when the change is applied.
    name: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Sets a field; `null` removes it.
    Set(FieldPath, Value),
    /// Sets an amount of a flavor-resource, or removes a limit.
    Amount { field: &'static str, flavor: String, resource: String, quantity: Option<String> },
    /// Deletes the object.
    Delete,
    /// Deletes a job, or the owners of a Workload.
    DeleteJob,
    /// Adds this number of nodes that are like the object.
    AddNodes(usize),
    /// Stops a queue and what it runs, or a workload.
    Stop,
    /// Gives a job another priority class, which is made if the class is a number.
    Priority(String),
}

impl Target {
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the namespace of the object, if objects without one are in the given one.
    fn namespace<'a>(&self, given: &'a str) -> &'a str {
        if self.kind.resource().namespaced { given } else { "" }
    }
}

impl Simulation {
    /// Applies a change to the current state, for objects in this namespace.
    ///
    /// # Errors
    /// The object does not exist, has no such field or flavor, or the change is refused.
    pub fn apply_edit(&mut self, edit: &Edit, namespace: &str) -> Result<(), String> {
        self.begin_change(&edit.text);
        self.edit(&edit.target, &edit.change, namespace).map_err(|fault| format!("{}: {fault}", edit.text))
    }

    fn edit(&mut self, target: &Target, change: &Change, namespace: &str) -> Result<(), String> {
        if matches!(change, Change::Amount { .. }) && self.is_implied(target) {
            let cohort = json!({"metadata": {"name": target.name}, "spec": {}});
            self.harness.server.insert(Kind::Cohort, cohort, self.now, true);
        }
        let key = self.find(target, namespace)?;
        let is_queue = matches!(target.kind, Kind::ClusterQueue | Kind::LocalQueue);
        match change {
            Change::Set(..) | Change::Amount { .. } => {
                let (subject, adds_quota) = (describe(target.kind, &key), self.adds_quota(target, change));
                self.note_usage_above(target.kind, &key, change);
                if adds_quota {
                    self.applier
                        .notes
                        .push(format!("{subject} gets a quota of its own, which it does not have"));
                }
                self.edit_object(target.kind, &key, |object| change.set_in(object, &subject, adds_quota))
            }
            Change::Delete => {
                if target.kind == Kind::Node {
                    self.leave_node(&key);
                }
                self.harness.server.delete(target.kind, &key, self.now);
                Ok(())
            }
            Change::DeleteJob => {
                for (kind, key) in self.jobs_of(target.kind, &key) {
                    self.harness.server.delete(kind, &key, self.now);
                }
                Ok(())
            }
            Change::AddNodes(count) => {
                self.add_nodes(&key, *count);
                Ok(())
            }
            Change::Stop if is_queue => self.edit_object(target.kind, &key, |queue| {
                set(queue, &["spec", "stopPolicy"], json!("HoldAndDrain"));
                Ok(())
            }),
            Change::Stop => {
                let workload = self.workload_of(target.kind, &key)?;
                self.edit_object(Kind::Workload, &workload, |workload| {
                    set(workload, &["spec", "active"], json!(false));
                    Ok(())
                })
            }
            Change::Priority(class) => self.reprioritize(target.kind, &key, class),
        }
    }

    /// Returns the key of the object of a change.
    pub(super) fn find(&self, target: &Target, namespace: &str) -> Result<ObjectKey, String> {
        let key = ObjectKey::new(target.namespace(namespace), &target.name);
        let server = &self.harness.server;
        if server.get(target.kind, &key).is_some() {
            return Ok(key);
        }
        let all = server.keys_of(target.kind);
        let names = all.iter().filter(|other| other.namespace == key.namespace).map(|other| &*other.name);
        let hint = similar::hint(&target.name, names);
        Err(format!("{} not found{hint}", describe(target.kind, &key)))
    }

    /// Changes an object as a client would: the change is defaulted, validated and reviewed.
    fn edit_object(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value) -> Result<(), String>,
    ) -> Result<(), String> {
        // Reviews read the core's snapshot.
        self.deliver_deltas();
        let old = self.harness.server.get(kind, key).cloned().unwrap_or_default();
        let mut new = old.clone();
        change(&mut new)?;
        check_status(kind, key, (&new, &old))?;
        let (reviewed, advice) = self.review(kind, new, Some(&old))?;
        let subject = describe(kind, key);
        self.applier.notes.extend(advice.into_iter().map(|text| format!("{subject}: {text}")));
        self.harness.server.edit(kind, key, |stored| *stored = reviewed);
        Ok(())
    }

    /// Returns the Workload of an object: the object, or the one that it owns.
    fn workload_of(&self, kind: Kind, key: &ObjectKey) -> Result<ObjectKey, String> {
        if kind == Kind::Workload {
            return Ok(key.clone());
        }
        let mut unfinished =
            self.workloads_owned_by(kind, key).filter(|workload| !is_true(workload, "Finished"));
        unfinished.next().map(key_of).ok_or_else(|| has_no_workload(kind, key))
    }

    /// Returns the Workloads that an object owns.
    pub(super) fn workloads_owned_by(&self, kind: Kind, key: &ObjectKey) -> impl Iterator<Item = &Value> {
        let server = &self.harness.server;
        let uid = server.get(kind, key).map(|object| text_at(object, "/metadata/uid")).unwrap_or_default();
        server.all(Kind::Workload).filter(move |workload| owner_uids(workload).any(|owner| owner == uid))
    }

    /// Gives a job, or a Workload without a job, another priority class.
    fn reprioritize(&mut self, kind: Kind, key: &ObjectKey, class: &str) -> Result<(), String> {
        let (name, value) = (class_name(class), class.parse::<i32>().ok());
        let class_key = ObjectKey::cluster(&name);
        let stored = self.harness.server.get(Kind::WorkloadPriorityClass, &class_key);
        match (stored, value) {
            (None, None) => return Err(format!("WorkloadPriorityClass {name} not found")),
            (None, Some(value)) => {
                let class = json!({"apiVersion": format!("{GROUP}/v1beta2"), "kind": "WorkloadPriorityClass",
                    "metadata": {"name": name}, "value": value, "description": "Made for this simulation"});
                self.harness.server.insert(Kind::WorkloadPriorityClass, class, self.now, true);
            }
            (Some(_), _) => {}
        }
        let (kind, key) = self.labelled_job(kind, key);
        self.edit_object(kind, &key, |object| {
            set(object, &["metadata", "labels", PRIORITY_CLASS_LABEL], json!(name));
            if kind == Kind::Workload {
                let class = json!({"group": GROUP, "kind": "WorkloadPriorityClass", "name": name});
                set(object, &["spec", "priorityClassRef"], class);
                set(object, &["spec", "priority"], json!(value));
            }
            Ok(())
        })
    }

    /// Returns the object whose label says the priority class: of a Workload its job.
    fn labelled_job(&self, kind: Kind, key: &ObjectKey) -> (Kind, ObjectKey) {
        self.jobs_of(kind, key).into_iter().next().unwrap_or_else(|| (kind, key.clone()))
    }

    /// Returns the jobs of a Workload, or the Workload if no owner of it exists; of another object, the object.
    fn jobs_of(&self, kind: Kind, key: &ObjectKey) -> Vec<(Kind, ObjectKey)> {
        let server = &self.harness.server;
        let Some(workload) = server.get(kind, key).filter(|_| kind == Kind::Workload) else {
            return vec![(kind, key.clone())];
        };
        let owners: Vec<&str> = owner_uids(workload).collect();
        let jobs = Kind::all().into_iter().filter(|kind| matches!(kind, Kind::Job(_) | Kind::Pod));
        let jobs = jobs.flat_map(|kind| server.all(kind).map(move |job| (kind, job)));
        let owners = jobs.filter(|(_, job)| owners.contains(&text_at(job, "/metadata/uid")));
        let found: Vec<(Kind, ObjectKey)> = owners.map(|(kind, job)| (kind, key_of(job))).collect();
        if found.is_empty() { vec![(kind, key.clone())] } else { found }
    }

    /// Notes that a nominal quota is set below what its ClusterQueue uses: nothing that runs is stopped for that.
    fn note_usage_above(&mut self, kind: Kind, key: &ObjectKey, change: &Change) {
        let Change::Amount { field: "nominalQuota", flavor, resource, quantity: Some(quantity) } = change
        else {
            return;
        };
        let Some(quota) = Quantity::parse(quantity).ok().filter(|_| kind == Kind::ClusterQueue) else {
            return;
        };
        let (node, fr) = (NodeRef::ClusterQueue(key.name.clone()), FlavorResource::new(flavor, resource));
        let usage = self.harness.core.engine().usage(&node).get(&fr).map(|usage| usage.usage);
        let Some(usage) = usage.filter(|usage| *usage > resources::amount(resource, &quota)) else { return };
        let used = quota_units(&self.harness.server).format(&node, &fr, usage);
        self.applier.notes.push(format!(
            "ClusterQueue {} uses {used} {resource} of {flavor}, more than {quantity}: what runs goes on, borrowing what it can",
            key.name
        ));
    }
}

/// Returns the name of a WorkloadPriorityClass that is given by its name or as a number.
fn class_name(class: &str) -> String {
    if class.parse::<i32>().is_ok() {
        format!("priority-{class}").replace("--", "-minus-")
    } else {
        class.to_owned()
    }
}

/// Checks that a change leaves the status alone.
fn check_status(kind: Kind, key: &ObjectKey, (new, old): (&Value, &Value)) -> Result<(), String> {
    if keeps_status(kind) || new.get("status") == old.get("status") {
        return Ok(());
    }
    Err(format!("{}: its status is written by controllers alone", describe(kind, key)))
}

/// Returns the UIDs of the owners of an object.
fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().map(|owner| text_at(owner, "/uid"))
}

fn describe(kind: Kind, key: &ObjectKey) -> String {
    format!("{} {key}", kind.resource().kind)
}

pub(super) fn has_no_workload(kind: Kind, key: &ObjectKey) -> String {
    format!("{} has no Workload", describe(kind, key))
}
