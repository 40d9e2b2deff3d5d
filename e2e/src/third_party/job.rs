//! A job of the checked controller, in a namespace of its own: all pods of the namespace are its pods.

use crate::objects::{Kind, ObjectClient, text};
use anyhow::{Context as _, Result, bail, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::Value;
use std::collections::BTreeSet;

const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Name of the queue in the namespaces of the jobs.
pub(super) const QUEUE: &str = "contract";

/// The objects of a manifest: one job, which is the object with a queue name, and what it needs.
#[derive(Clone, Debug)]
pub struct Manifest {
    job: Value,
    others: Vec<Value>,
}

impl Manifest {
    /// Reads YAML documents.
    pub fn parse(yaml: &str) -> Result<Self> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).context("it is no YAML")?;
        let is_queued = |object: &Value| object["metadata"]["labels"][QUEUE_LABEL].is_string();
        let (mut jobs, others): (Vec<Value>, Vec<Value>) =
            objects.into_iter().filter(|object| !object.is_null()).partition(is_queued);
        let Some(job) = jobs.pop().filter(|_| jobs.is_empty()) else {
            bail!("it must have exactly one object with the label {QUEUE_LABEL}");
        };
        Ok(Self { job, others })
    }
}

/// A job in a namespace.
pub(super) struct CheckedJob<'a> {
    objects: &'a ObjectClient,
    manifest: &'a Manifest,
    pub(super) namespace: String,
    /// Its UID; empty until it is created.
    uid: String,
    /// UIDs of pods of an earlier start.
    former_pods: BTreeSet<String>,
}

impl<'a> CheckedJob<'a> {
    pub(super) const fn new(objects: &'a ObjectClient, manifest: &'a Manifest, namespace: String) -> Self {
        Self { objects, manifest, namespace, uid: String::new(), former_pods: BTreeSet::new() }
    }

    fn name(&self) -> &str {
        let name = text(&self.manifest.job, "/metadata/name");
        if name.is_empty() { "contract" } else { name }
    }

    /// Returns a name for messages.
    pub(super) fn described(&self) -> String {
        format!("{} {}/{}", text(&self.manifest.job, "/kind"), self.namespace, self.name())
    }

    async fn api_of(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities) = pinned_kind(self.objects.client(), &gvk)
            .await
            .with_context(|| format!("the cluster does not serve {kind} of {group}/{version}"))?;
        ensure!(capabilities.scope == Scope::Namespaced, "{kind} has no namespace");
        Ok(Api::namespaced_with(self.objects.client().clone(), &self.namespace, &resource))
    }

    /// Creates what the job needs, and the job, in the queue of the check.
    pub(super) async fn create(&mut self) -> Result<()> {
        for other in &self.manifest.others {
            self.create_object(other.clone()).await?;
        }
        let mut job = self.manifest.job.clone();
        job["metadata"]["labels"][QUEUE_LABEL] = QUEUE.into();
        job["metadata"]["name"] = self.name().into();
        self.uid = self.create_object(job).await?;
        Ok(())
    }

    async fn create_object(&self, mut object: Value) -> Result<String> {
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        let api = self.api_of(&object).await?;
        let what = format!("cannot create {} {}", text(&object, "/kind"), text(&object, "/metadata/name"));
        let object: DynamicObject = serde_json::from_value(object)?;
        let created = api.create(&PostParams::default(), &object).await.context(what)?;
        created.metadata.uid.context("the created object has no UID")
    }

    /// Deletes the job; the garbage collector deletes what it owns.
    pub(super) async fn delete(&self) -> Result<()> {
        let api = self.api_of(&self.manifest.job).await?;
        match api.delete(self.name(), &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).context("cannot delete the job"),
        }
    }

    /// Returns the Workloads of the namespace.
    pub(super) async fn workloads(&self) -> Result<Vec<Value>> {
        Ok(self.objects.list(Kind::WORKLOAD, &self.namespace, "").await?)
    }

    /// Returns its Workload; an error if the job controls none or several.
    pub(super) async fn workload(&self) -> Result<Value> {
        let mut workloads = self.workloads().await?;
        let all = workloads.len();
        workloads.retain(|workload| {
            let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.into_iter().any(|owner| owner["uid"] == self.uid.as_str() && owner["controller"] == true)
        });
        let count = workloads.len();
        let workload = workloads.pop().filter(|_| workloads.is_empty());
        workload.with_context(|| {
            format!(
                "{} controls {count} of the {all} Workloads in its namespace, expected 1",
                self.described()
            )
        })
    }

    /// Returns the pods of the present start.
    pub(super) async fn pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.objects.list(Kind::POD, &self.namespace, "").await?;
        pods.retain(|pod| !self.former_pods.contains(text(pod, "/metadata/uid")));
        Ok(pods)
    }

    /// Ignores the pods that are left of a start: a controller may keep those that have ended.
    pub(super) async fn forget_pods(&mut self) -> Result<()> {
        let pods = self.pods().await?;
        self.former_pods.extend(pods.iter().map(|pod| text(pod, "/metadata/uid").to_owned()));
        Ok(())
    }

    /// Returns the names of the pods that run: they may be scheduled and have not ended.
    pub(super) async fn running(&self) -> Result<Vec<String>> {
        let pods = self.pods().await?;
        let running = pods.iter().filter(|pod| is_started(pod) && !has_ended(pod));
        Ok(running.map(|pod| text(pod, "/metadata/name").to_owned()).collect())
    }

    /// Sets `spec.active` of its Workload.
    pub(super) async fn set_active(&self, active: bool) -> Result<()> {
        let workload = self.workload().await?;
        let patch = serde_json::json!({"spec": {"active": active}});
        let name = text(&workload, "/metadata/name");
        self.objects.merge(Kind::WORKLOAD, &self.namespace, name, &patch).await?;
        Ok(())
    }
}

/// Returns whether a pod may be scheduled: a scheduling gate holds it back otherwise.
pub(super) fn is_started(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

/// Returns whether a pod has succeeded or failed.
fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// Returns the number of pods that a Workload asks for, or those of its admission.
pub(super) fn pod_count(workload: &Value) -> i64 {
    let sets = workload.pointer("/status/admission/podSetAssignments");
    let sets = sets.unwrap_or(&workload["spec"]["podSets"]).as_array();
    sets.into_iter().flatten().map(|set| set["count"].as_i64().unwrap_or(1)).sum()
}
