//! Pods between which and their job are other objects, on nodes with a topology: executors below the driver of a SparkApplication,
//! and the Deployment in an AppWrapper. And a definition that lacks the field that a start writes.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::job_kinds::{clear, create_related, sample_of};
use crate::topology::{HOST, RACK, REQUIRED, create_racks};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::frameworks::framework;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::time::Duration;

const SPARK: Kind = Kind::new("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications");
const WRAPPER: Kind = Kind::new("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers");
const TRAIN_JOB: Kind = Kind::new("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs");
/// A queue of the racks for CPU and memory.
const QUEUE: &str = "both";
const TRAIN_JOBS: &str = "trainjobs.trainer.kubeflow.org";

/// Each pod runs on the node that its Workload is assigned to. A TrainJob does not start where its definition has no field for what
/// its flavor adds.
pub(crate) async fn gates_are_removed_below_other_objects(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    create_racks(fixture).await?;
    let resources = ["cpu", "memory"].map(|name| json!({"name": name, "nominalQuota": "100Gi"}));
    let flavors = json!([{"name": fixture.own_name("racks"), "resources": resources}]);
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}]);
    fixture.create_queue(QUEUE, "", &[], json!({"resourceGroups": groups})).await?;
    executors_run(fixture).await?;
    note("SparkApplication");
    wrapped_deployment_runs(fixture).await?;
    note("AppWrapper");
    train_job_waits_for_its_definition(fixture).await?;
    note("TrainJob");
    clear(fixture).await
}

async fn started(fixture: &Fixture, kind: Kind, object: &Value) -> Result<Value> {
    fixture.objects.create(kind, object).await?;
    let name = text(object, "/metadata/name");
    eventually(format!("{name} is started"), async || {
        let object = fixture.objects.must_get(kind, &fixture.name, name).await?;
        ensure!(object["spec"]["suspend"] != json!(true), "it is suspended");
        Ok(object)
    })
    .await
}

fn controller(owner: &Value, api_version: &str, kind: &str) -> Value {
    let (name, uid) = (&owner["metadata"]["name"], &owner["metadata"]["uid"]);
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// As in Spark, the driver is the controller of its executors.
async fn executors_run(fixture: &Fixture) -> Result<()> {
    let mut application =
        sample_of(framework("sparkoperator.k8s.io", "SparkApplication").context("no row")?, fixture, QUEUE)?;
    for role in ["driver", "executor"] {
        application["spec"][role]["coreRequest"] = json!("500m");
    }
    application["spec"]["executor"]["annotations"] = json!({REQUIRED: RACK});
    let application = started(fixture, SPARK, &application).await?;
    let pod = |name: &str, role: &str, owner: Value| {
        let fields = &application["spec"][role];
        let resources = json!({"requests": {"cpu": fields["coreRequest"]}});
        json!({
            "metadata": {"name": name, "namespace": fixture.name, "labels": fields["labels"],
                "annotations": fields["annotations"], "ownerReferences": owner},
            "spec": {"nodeSelector": fields["nodeSelector"], "tolerations": fields["tolerations"],
                "schedulingGates": fields["template"]["spec"]["schedulingGates"],
                "containers": [{"name": "spark", "image": "work:1", "resources": resources}]},
        })
    };
    let owner = controller(&application, "sparkoperator.k8s.io/v1beta2", "SparkApplication");
    let driver = fixture.objects.create(Kind::POD, &pod("driver", "driver", owner)).await?;
    for name in ["executor-1", "executor-2"] {
        let owner = controller(&driver, "v1", "Pod");
        fixture.objects.create(Kind::POD, &pod(name, "executor", owner)).await?;
    }
    wait_until_placed(fixture, 3).await
}

/// The case makes the Deployment as the controller of AppWrappers does; the control plane makes its ReplicaSet and its pods.
async fn wrapped_deployment_runs(fixture: &Fixture) -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": "wrapped"}, "annotations": {REQUIRED: RACK}},
        "spec": {"containers": [
            {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}}]},
    });
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wrapped"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "wrapped"}}, "template": template}});
    let mut wrapper =
        sample_of(framework("workload.codeflare.dev", "AppWrapper").context("no row")?, fixture, QUEUE)?;
    wrapper["spec"]["components"] = json!([{"template": deployment}]);
    let wrapper = started(fixture, WRAPPER, &wrapper).await?;
    let component = &wrapper["spec"]["components"][0];
    let (mut deployment, added) = (component["template"].clone(), &component["podSetInfos"][0]);
    deployment["metadata"]["namespace"] = json!(fixture.name);
    deployment["metadata"]["ownerReferences"] =
        controller(&wrapper, "workload.codeflare.dev/v1beta2", "AppWrapper");
    let template = &mut deployment["spec"]["template"];
    for field in ["labels", "annotations"] {
        for (key, value) in added[field].as_object().into_iter().flatten() {
            template["metadata"][field][key] = value.clone();
        }
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        template["spec"][field] = added[field].clone();
    }
    fixture.objects.create(Kind::new("apps", "v1", "Deployment", "deployments"), &deployment).await?;
    wait_until_placed(fixture, 5).await
}

/// Waits until this many pods run, each on the node that its Workload gave it.
async fn wait_until_placed(fixture: &Fixture, count: usize) -> Result<()> {
    eventually(format!("{count} pods run on their nodes"), async || {
        let pods = fixture.objects.list(Kind::POD, &fixture.name, "").await?;
        ensure!(pods.len() == count, "there are {} pods", pods.len());
        for pod in pods {
            let node = text(&pod, "/spec/nodeName");
            let is_placed = !node.is_empty() && pod["spec"]["nodeSelector"][HOST] == node;
            let name = text(&pod, "/metadata/name");
            ensure!(is_placed && condition_is_true(&pod, "Ready"), "{name}: {}", pod["spec"]);
        }
        Ok(())
    })
    .await
}

/// Trainer before 2.2 has no `runtimePatches`: the API server would drop the gates and node labels, and the pods would run anywhere.
async fn train_job_waits_for_its_definition(fixture: &Fixture) -> Result<()> {
    create_related(fixture).await?;
    let definition = fixture.objects.must_get(Kind::CRD, "", TRAIN_JOBS).await?;
    let mut versions = definition["spec"]["versions"].clone();
    let fields = versions.pointer_mut("/0/schema/openAPIV3Schema/properties/spec/properties");
    let fields = fields.and_then(Value::as_object_mut).context("no schema")?;
    fields.remove("runtimePatches").context("the definition has no runtimePatches")?;
    fixture.objects.merge(Kind::CRD, "", TRAIN_JOBS, &json!({"spec": {"versions": versions}})).await?;
    // The API server serves the schema before for some time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let job = sample_of(framework("trainer.kubeflow.org", "TrainJob").context("no row")?, fixture, QUEUE)?;
    fixture.objects.create(TRAIN_JOB, &job).await?;
    eventually("an event names the field", async || {
        let events = fixture.objects.list(Kind::new("", "v1", "Event", "events"), &fixture.name, "").await?;
        let found = events.iter().any(|event| {
            text(event, "/involvedObject/kind") == "TrainJob"
                && text(event, "/message").ends_with("unknown field \"spec.runtimePatches\"")
        });
        ensure!(found, "there is none");
        Ok(())
    })
    .await?;
    let job = fixture.objects.must_get(TRAIN_JOB, &fixture.name, text(&job, "/metadata/name")).await?;
    ensure!(job["spec"]["suspend"] == json!(true), "it was started: {}", job["spec"]);
    let versions = json!({"spec": {"versions": definition["spec"]["versions"]}});
    fixture.objects.merge(Kind::CRD, "", TRAIN_JOBS, &versions).await?;
    started_after_all(fixture, text(&job, "/metadata/name")).await
}

async fn started_after_all(fixture: &Fixture, name: &str) -> Result<()> {
    eventually("the TrainJob starts with the newer definition", async || {
        let job = fixture.objects.must_get(TRAIN_JOB, &fixture.name, name).await?;
        ensure!(job["spec"]["suspend"] == json!(false), "it is suspended");
        ensure!(!job["spec"]["runtimePatches"].is_null(), "nothing was added to it");
        Ok(())
    })
    .await
}
