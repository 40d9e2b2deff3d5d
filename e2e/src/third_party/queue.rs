//! Namespaces and queue of the check. The queue counts pods: it has quota for as many as one job has, and enough of everything else.

use super::Check;
use super::job::{CheckedJob, QUEUE, pod_count};
use crate::objects::{Kind, cluster_queue, local_queue, text};
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Key of a taint that the flavor tolerates. No node has it.
pub(super) const TOLERATED: &str = "sluice.dev/third-party";
/// Quota of all resources but pods.
const PLENTY: &str = "1P";

/// Creates a namespace with a queue, whose ClusterQueue does not exist yet.
pub(super) async fn create_namespace(check: &Check, name: &str) -> Result<()> {
    let objects = &check.objects;
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": name}})).await?;
    objects.create(Kind::LOCAL_QUEUE, &local_queue(name, QUEUE, &check.name)).await?;
    within(check.limits.reaction, "the default service account", async || {
        objects.must_get(Kind::SERVICE_ACCOUNT, name, "default").await.map(drop)
    })
    .await
}

/// Creates the flavor, and a ClusterQueue with quota for one such Workload.
pub(super) async fn create_queue(check: &Check, workload: &Value) -> Result<()> {
    let (label, value) = &check.node_label;
    let tolerations = json!([{"key": TOLERATED, "operator": "Exists", "effect": "NoSchedule"}]);
    let spec = json!({"nodeLabels": {label: value}, "tolerations": tolerations});
    let flavor = json!({"metadata": {"name": check.name}, "spec": spec});
    check.objects.create(Kind::FLAVOR, &flavor).await.context("cannot create the flavor")?;
    let pods = pod_count(workload).to_string();
    let resources = requested_resources(workload);
    let mut quota: Vec<(&str, &str, Option<&str>)> =
        resources.iter().map(|resource| (resource.as_str(), PLENTY, None)).collect();
    quota.push(("pods", &pods, None));
    let queue = cluster_queue(&check.name, "", &check.name, &quota);
    check.objects.create(Kind::CLUSTER_QUEUE, &queue).await.context("cannot create the ClusterQueue")?;
    Ok(())
}

/// Returns the names of all resources that pods of a Workload request.
fn requested_resources(workload: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for set in workload["spec"]["podSets"].as_array().into_iter().flatten() {
        let spec = &set["template"]["spec"];
        let mut lists = vec![&spec["overhead"]];
        let containers = ["containers", "initContainers"].map(|list| spec[list].as_array());
        let containers = containers.into_iter().flatten().flatten();
        for resources in std::iter::once(spec).chain(containers).map(|part| &part["resources"]) {
            lists.extend([&resources["requests"], &resources["limits"]]);
        }
        names.extend(lists.into_iter().filter_map(Value::as_object).flat_map(|list| list.keys().cloned()));
    }
    names
}

/// Deletes all that the check has created. Workloads that the controller leaves behind lose their finalizers.
pub(super) async fn clean_up(check: &Check, jobs: &[&CheckedJob<'_>]) -> Result<()> {
    let objects = &check.objects;
    for job in jobs {
        if objects.get(Kind::NAMESPACE, "", &job.namespace).await?.is_none() {
            continue;
        }
        job.delete().await?;
        within(check.limits.reaction, "the Workloads of the check are deleted", async || {
            let left = job.workloads().await?;
            for workload in &left {
                let name = text(workload, "/metadata/name");
                objects.delete(Kind::WORKLOAD, &job.namespace, name, PropagationPolicy::Background).await?;
                let bare = json!({"metadata": {"finalizers": null}});
                // It may be gone by now.
                let _ = objects.merge(Kind::WORKLOAD, &job.namespace, name, &bare).await;
            }
            ensure!(left.is_empty(), "{} are left in {}", left.len(), job.namespace);
            Ok(())
        })
        .await?;
        objects.delete(Kind::NAMESPACE, "", &job.namespace, PropagationPolicy::Background).await?;
    }
    for kind in [Kind::CLUSTER_QUEUE, Kind::FLAVOR] {
        objects.delete(kind, "", &check.name, PropagationPolicy::Background).await?;
        within(check.limits.reaction, "the queue of the check is deleted", async || {
            let left = objects.get(kind, "", &check.name).await?;
            ensure!(left.is_none(), "{} {} is left", kind.resource(), check.name);
            Ok(())
        })
        .await?;
    }
    Ok(())
}
