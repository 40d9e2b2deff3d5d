//! When Workloads were admitted and pods lost their last gate, as a watch receives it.

use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::JoinHandle;

/// For each object, when it was first seen to have passed.
type Times = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Watches the objects of a namespace until dropped.
pub(super) struct PassedWatch {
    times: Times,
    task: JoinHandle<Result<()>>,
}

impl PassedWatch {
    /// Notes when Workloads are admitted.
    pub(super) async fn admissions(objects: &ObjectClient, namespace: &str) -> Result<Self> {
        Self::start(objects, Kind::WORKLOAD, namespace, |workload| condition_is_true(workload, "Admitted"))
            .await
    }

    /// Notes when pods have no scheduling gate.
    pub(super) async fn ungated_pods(objects: &ObjectClient, namespace: &str) -> Result<Self> {
        let is_ungated =
            |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_none_or(std::vec::Vec::is_empty);
        Self::start(objects, Kind::POD, namespace, is_ungated).await
    }

    async fn start(
        objects: &ObjectClient,
        kind: Kind,
        namespace: &str,
        has_passed: fn(&Value) -> bool,
    ) -> Result<Self> {
        let api = objects.api(kind, namespace);
        let mut position = api.list(&ListParams::default()).await?.metadata.resource_version;
        let times = Times::default();
        let sink = Arc::clone(&times);
        let task = tokio::spawn(async move {
            loop {
                let from = position.clone().context("no resourceVersion")?;
                let mut events = Box::pin(api.watch(&WatchParams::default(), &from).await?);
                while let Some(event) = events.next().await {
                    let object = match event? {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
                        WatchEvent::Error(status) => bail!("the watch lost changes: {}", status.message),
                        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
                    };
                    let received = Instant::now();
                    position.clone_from(&object.metadata.resource_version);
                    let object = serde_json::to_value(&object)?;
                    if has_passed(&object) {
                        let name = text(&object, "/metadata/name").to_owned();
                        let mut times = sink.lock().unwrap_or_else(PoisonError::into_inner);
                        times.entry(name).or_insert(received);
                    }
                }
            }
        });
        Ok(Self { times, task })
    }

    /// Returns the times so far; an error if the watch has ended.
    pub(super) fn times(&self) -> Result<BTreeMap<String, Instant>> {
        anyhow::ensure!(!self.task.is_finished(), "the watch has ended");
        Ok(self.times.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Drop for PassedWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
