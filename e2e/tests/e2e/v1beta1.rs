//! v1beta1 beside v1beta2: a store that an earlier installation left in v1beta1, on a control plane of its own with a kubelet. No
//! object of such a kind can be read before a replica converts, and no replica is ready before it has read them.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::fixture::expect_refused;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::api::v1beta1::CONVERTED;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install;
use sluice_e2e::objects::{self, Kind, ObjectClient, condition_is_true, number, text};
use sluice_e2e::wait::eventually;
use std::time::Instant;

const OLD_WORKLOAD: Kind = Kind::new("kueue.x-k8s.io", "v1beta1", "Workload", "workloads");
const OLD_QUEUE: Kind = Kind::new("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues");
const WORK: &str = "stored";
/// Kinds of the objects that are stored.
const STORED: [Kind; 4] = [Kind::FLAVOR, Kind::CLUSTER_QUEUE, Kind::LOCAL_QUEUE, Kind::WORKLOAD];

/// Replicas that convert and need the conversion start together, from none.
pub(crate) async fn store_is_taken_over(_: &mut Cluster, _: &Fixture) -> Result<()> {
    take_over("v1beta1", &["v1beta1"]).await
}

/// The same where one Deployment converts, and the other one admits.
pub(crate) async fn split_deployments_take_over_a_store(_: &mut Cluster, _: &Fixture) -> Result<()> {
    take_over("v1beta1-split", &["split", "v1beta1"]).await
}

async fn take_over(name: &str, components: &[&str]) -> Result<()> {
    check_support()?;
    let (mut installation, manifests) = Installation::prepare(name, components).await?;
    let outcome = check(&installation, manifests).await;
    installation.report(outcome).await
}

async fn check(installation: &Installation, manifests: Vec<Value>) -> Result<()> {
    let objects = &installation.objects;
    store(installation, &manifests).await?;
    let definitions: Vec<Value> = manifests
        .iter()
        .filter(|object| text(object, "/kind") == "CustomResourceDefinition")
        .cloned()
        .collect();
    install::apply(&installation.kubectl, &definitions)?;
    // The client of the tests would try again and again.
    let read = ["get", "workloads", "--namespace", WORK, "--request-timeout=5s"];
    eventually("stored objects cannot be read", async || {
        ensure!(installation.kubectl.run(&read).is_err(), "the Workloads are read");
        Ok(())
    })
    .await?;
    let begun = Instant::now();
    installation.install(manifests).await?;
    note(format_args!("ready {:.0} s after the Deployments were applied", begun.elapsed().as_secs_f64()));
    admits_beside_the_stored(objects).await?;
    old_client_loses_nothing(objects).await?;
    component_is_removed(installation).await
}

/// Stores objects as an installation that stores v1beta1: one Workload is admitted, two wait.
async fn store(installation: &Installation, manifests: &[Value]) -> Result<()> {
    let objects = &installation.objects;
    let mut early = Vec::new();
    for object in manifests {
        match text(object, "/kind") {
            "Namespace" => early.push(object.clone()),
            "CustomResourceDefinition" => {
                let mut definition = object.clone();
                definition["spec"]["conversion"] = json!({"strategy": "None"});
                for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
                    version["storage"] = (version["name"] == "v1beta1").into();
                }
                early.push(definition);
            }
            _ => {}
        }
    }
    install::apply(&installation.kubectl, &early)?;
    for name in CONVERTED {
        install::established(objects, name).await?;
    }
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": WORK}})).await?;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
    let queue = objects::cluster_queue("stored", "", "any", &[("cpu", "2", None)]);
    objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
    objects.create(OLD_QUEUE, &objects::local_queue(WORK, "main", "stored")).await?;
    for (name, priority) in [("admitted", 3), ("second", 2), ("third", 1)] {
        objects.create(OLD_WORKLOAD, &workload(name, priority)).await?;
    }
    // Pods of an earlier admission would be late.
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at});
    let assignment =
        json!({"name": "main", "count": 1, "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "1"}});
    let status = json!({"status": {
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": "stored", "podSetAssignments": [assignment]},
        "accumulatedPastExexcutionTimeSeconds": 7,
    }});
    objects.merge_status(OLD_WORKLOAD, WORK, "admitted", &status).await?;
    Ok(())
}

/// A Workload of v1beta1 without a job.
fn workload(name: &str, priority: i32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({
        "metadata": {"namespace": WORK, "name": name},
        "spec": {
            "queueName": "main", "priority": priority, "priorityClassName": "high",
            "priorityClassSource": "scheduling.k8s.io/priorityclass",
            "podSets": [{"name": "main", "count": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}],
        },
    })
}

/// The admission in the store counts: one of the two that wait fits beside it.
async fn admits_beside_the_stored(objects: &ObjectClient) -> Result<()> {
    eventually("the second Workload is admitted, the third waits", async || {
        let second = objects.must_get(Kind::WORKLOAD, WORK, "second").await?;
        ensure!(condition_is_true(&second, "Admitted"), "{}", second["status"]);
        let queue = objects.must_get(Kind::CLUSTER_QUEUE, "", "stored").await?;
        let counts = ["pendingWorkloads", "admittedWorkloads"]
            .map(|field| number(&queue, &format!("/status/{field}")));
        ensure!(counts == [1, 2], "{}", queue["status"]);
        Ok(())
    })
    .await?;
    let first = objects.must_get(Kind::WORKLOAD, WORK, "admitted").await?;
    let class = json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"});
    ensure!(first["spec"]["priorityClassRef"] == class, "{}", first["spec"]);
    ensure!(first["status"]["accumulatedPastExecutionTimeSeconds"] == 7, "{}", first["status"]);
    Ok(())
}

/// A client of v1beta1 reads and changes a Workload with fields that only v1beta2 has, is refused what the schema of v1beta1 refuses,
/// and finds the usage of a queue under its earlier name.
async fn old_client_loses_nothing(objects: &ObjectClient) -> Result<()> {
    let mut gated = workload("gated", 0);
    let spec = gated["spec"].as_object_mut().context("no spec")?;
    spec.retain(|field, _| !field.starts_with("priorityClass"));
    spec.insert("preemptionGates".to_owned(), json!([{"name": "example.com/gate"}]));
    gated["spec"]["podSets"][0]["topologyRequest"] = json!({"podsetSliceRequiredTopologyConstraints": [{"topology": "example.com/rack", "size": 1}], "required": "example.com/rack"});
    objects.create(Kind::WORKLOAD, &gated).await?;
    let at = "2026-01-01T00:00:00Z";
    let gates = json!([{"name": "example.com/gate", "position": "Closed", "lastTransitionTime": at}]);
    objects
        .merge_status(Kind::WORKLOAD, WORK, "gated", &json!({"status": {"preemptionGates": gates}}))
        .await?;
    let before = objects.must_get(Kind::WORKLOAD, WORK, "gated").await?;
    let seen = objects.must_get(OLD_WORKLOAD, WORK, "gated").await?;
    ensure!(
        seen["spec"]["preemptionGates"].is_null() && seen["status"]["preemptionGates"].is_null(),
        "{seen}"
    );
    objects.merge(OLD_WORKLOAD, WORK, "gated", &json!({"spec": {"priority": 1}})).await?;
    let condition = json!([{"type": "Example", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": at}]);
    let mut conditions = seen["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.extend(condition.as_array().into_iter().flatten().cloned());
    objects.merge_status(OLD_WORKLOAD, WORK, "gated", &json!({"status": {"conditions": conditions}})).await?;
    let after = objects.must_get(Kind::WORKLOAD, WORK, "gated").await?;
    let mut expected = before["spec"].clone();
    expected["priority"] = 1.into();
    ensure!(after["spec"] == expected, "{} instead of {expected}", after["spec"]);
    ensure!(after["status"]["preemptionGates"] == gates, "{}", after["status"]);
    ensure!(after["metadata"]["annotations"].is_null(), "{}", after["metadata"]["annotations"]);
    let empty = json!({"metadata": {"namespace": WORK, "name": "empty"}, "spec": {}});
    expect_refused(objects.create(OLD_WORKLOAD, &empty).await, 422)?;
    let queue = objects.must_get(OLD_QUEUE, WORK, "main").await?;
    ensure!(queue["status"]["flavorUsage"].is_array(), "{}", queue["status"]);
    Ok(())
}

/// With everything stored in v1beta2, the definitions without the component are applied over those with it.
async fn component_is_removed(installation: &Installation) -> Result<()> {
    let objects = &installation.objects;
    for kind in STORED {
        for object in objects.list(kind, "", "").await? {
            // A write without a change stores the object again if its version is not the stored one.
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            objects.merge(kind, namespace, name, &json!({})).await?;
        }
    }
    let definitions: Vec<Value> = install::manifests(&installation.kubectl)?
        .into_iter()
        .filter(|object| text(object, "/kind") == "CustomResourceDefinition")
        .collect();
    for definition in &definitions {
        let name = text(definition, "/metadata/name");
        let stored = json!({"status": {"storedVersions": ["v1beta2"]}});
        objects.merge_status(Kind::CRD, "", name, &stored).await?;
    }
    install::apply(&installation.kubectl, &definitions)?;
    for name in CONVERTED {
        let definition = objects.must_get(Kind::CRD, "", name).await?;
        ensure!(
            definition["spec"]["conversion"] == json!({"strategy": "None"}),
            "{}",
            definition["spec"]["conversion"]
        );
        ensure!(definition["spec"]["versions"].as_array().map(Vec::len) == Some(1), "{name}");
    }
    Ok(())
}
