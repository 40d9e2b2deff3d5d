//! All objects of the kinds of a dump at one time, and what has changed between two times.

use super::kinds;
use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use crate::switch::{differences, quota};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Parts of an object that are compared.
const PARTS: [&str; 7] = [
    "/metadata/uid",
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/finalizers",
    "/metadata/ownerReferences",
    "/metadata/deletionTimestamp",
    "/spec",
];
/// Compared beside those: of pods not why they are not scheduled, which names the number of nodes.
const STATUS: &str = "/status";
const STATUS_OF_PODS: &str = "/status/phase";

/// Objects by kind, namespace and name.
#[derive(Clone, Debug)]
pub struct Records(BTreeMap<(String, String, String), Value>);

impl Records {
    /// Takes these objects, which have kinds.
    pub fn new(objects: &[Value]) -> Self {
        let key = |object: &Value| {
            ["/kind", "/metadata/namespace", "/metadata/name"].map(|part| text(object, part).to_owned())
        };
        let of = |object: &Value| {
            let [kind, namespace, name] = key(object);
            ((kind, namespace, name), object.clone())
        };
        // The simulation of nodes writes to them.
        let kept = objects.iter().filter(|object| !["Node", "Namespace"].contains(&text(object, "/kind")));
        Self(kept.map(of).collect())
    }

    /// Reads all objects of the kinds of a dump in these namespaces, and those without one.
    pub async fn read(objects: &ObjectClient, namespaces: &[&str]) -> Result<Self> {
        let mut all = Vec::new();
        for kind in kinds::all() {
            for mut object in objects.list(kind, "", "").await? {
                object["kind"] = kind.singular().into();
                object["apiVersion"] = kind.api_version().into();
                let namespace = text(&object, "/metadata/namespace");
                if namespace.is_empty() || namespaces.contains(&namespace) {
                    all.push(object);
                }
            }
        }
        Ok(Self::new(&all))
    }

    /// Returns the objects of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        let is_kind = move |object: &&Value| {
            text(object, "/kind") == kind.singular() && text(object, "/apiVersion") == kind.api_version()
        };
        self.0.values().filter(is_kind)
    }

    /// Returns what differs later, one line each: objects that are new or gone, and parts of the others.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, was) in &self.0 {
            let place = format!("{} {}/{}", key.0, key.1, key.2);
            let Some(is) = later.0.get(key) else {
                found.push(format!("{place}: is gone"));
                continue;
            };
            let status = if key.0 == "Pod" { STATUS_OF_PODS } else { STATUS };
            for part in PARTS.into_iter().chain([status]) {
                let [was, is] = [was, is].map(|object| object.pointer(part).unwrap_or(&Value::Null));
                let lines = differences(part, was, is).into_iter();
                found.extend(lines.map(|(at, was, is)| format!("{place}: {at}: {was} became {is}")));
            }
        }
        let new = later.0.keys().filter(|key| !self.0.contains_key(*key));
        found.extend(new.map(|key| format!("{} {}/{}: is new", key.0, key.1, key.2)));
        found
    }

    /// An error unless each `ClusterQueue` publishes as reserved what its Workloads hold.
    pub fn check_usage(&self) -> Result<()> {
        let held = quota::held(self.of_kind(Kind::WORKLOAD))?;
        for queue in self.of_kind(Kind::CLUSTER_QUEUE) {
            let name = text(queue, "/metadata/name");
            let (sum, published) = (held.get(name).cloned().unwrap_or_default(), quota::published(queue)?);
            ensure!(sum == published, "{name} publishes {published:?}, its Workloads hold {sum:?}");
        }
        Ok(())
    }

    /// Returns the names of the Workloads that have not finished.
    pub fn unfinished(&self) -> Vec<&str> {
        let workloads =
            self.of_kind(Kind::WORKLOAD).filter(|workload| !condition_is_true(workload, "Finished"));
        workloads.map(|workload| text(workload, "/metadata/name")).collect()
    }
}
