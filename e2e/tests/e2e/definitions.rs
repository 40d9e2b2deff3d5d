//! A manager whose definitions in the cluster are missing, older or newer than its own, each on a control plane of its own.

use crate::fixture::{Fixture, QuotaSpec};
use crate::installation::Installation;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::audit::AuditCursor;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::objects::{Kind, condition, text};
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

const ROOT: &str = "/spec/versions/0/schema/openAPIV3Schema";
const ACCOUNT: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";
/// Quota of each ClusterQueue.
const QUOTA: QuotaSpec<'_> = &[("cpu", "2", None)];
/// Time in which a manager that repeats the status of two queues each second would write 24 times.
const SETTLED_TIME: Duration = Duration::from_secs(12);

/// Definitions are missing that no webhook needs: the manager names them, serves webhooks, does not lead, and continues when
/// they are created.
pub(crate) async fn missing_ones_are_awaited(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let missing = ["cohorts", "topologies"];
    let installed = Installation::start(cluster, fixture, |plural, _| Ok(!missing.contains(&plural))).await?;
    let outcome = async {
        for (kind, plural) in [("Cohort", "cohorts"), ("Topology", "topologies")] {
            installed.wait_for_log(&["is not served", "waiting for its definition", kind]).await?;
            let group = r#"group="kueue.x-k8s.io""#;
            let line = format!(r#"sluice_watch_served{{{group},resource="{plural}"}} 0"#);
            installed.wait_for_metric(&line).await?;
        }
        installed.wait_until_ready().await?;
        tokio::time::sleep(SETTLED_TIME).await;
        let leases = installed.fixture.objects.list(Kind::LEASE, NAMESPACE, "").await?;
        ensure!(leases.is_empty(), "it leads without all definitions: {leases:?}");
        let mut writes = AuditCursor::from_start(&installed.plane.audit_log()).new_writes_by(ACCOUNT)?;
        // Each replica issues the certificate.
        let of_certificate = |resource: &str| {
            ["secrets", "configmaps"].contains(&resource) || resource.ends_with("webhookconfigurations")
        };
        writes.retain(|write| !of_certificate(&write.resource));
        ensure!(writes.is_empty(), "it writes: {writes:?}");
        installed.upgrade()?;
        installed.wait_until_ready().await?;
        run_one_job(&installed.fixture).await
    }
    .await;
    installed.finish(outcome)
}

async fn run_one_job(fixture: &Fixture) -> Result<()> {
    fixture.prepare().await?;
    fixture.create_queue("main", "all", QUOTA, json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    fixture.finish_job("first").await
}

/// Removes a field from the schema of a definition.
fn remove_field(definition: &mut Value, field: &str) -> Result<()> {
    let (parent, name) = field.rsplit_once('.').unwrap_or(("", field));
    let mut path = ROOT.to_owned();
    for part in parent.split('.').filter(|part| !part.is_empty()) {
        path = path + "/properties/" + part;
    }
    let node = definition.pointer_mut(&(path + "/properties")).and_then(Value::as_object_mut);
    node.and_then(|fields| fields.remove(name)).with_context(|| format!("{field} is not defined")).map(drop)
}

/// Definitions lack fields: the manager names each, work that does not need them continues, a write that needs them is
/// refused as a whole and reported on its object, no write is repeated without effect, and when the definitions are
/// updated everything continues.
pub(crate) async fn older_ones_are_named(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let gaps = [
        ("workloads", "status.schedulingStats"),
        ("clusterqueues", "status.flavorsReservation"),
        ("localqueues", "status.reservingWorkloads"),
        ("admissionchecks", "spec.parameters"),
    ];
    let installed = Installation::start(cluster, fixture, |plural, definition| {
        for (_, field) in gaps.iter().filter(|(resource, _)| *resource == plural) {
            remove_field(definition, field)?;
        }
        Ok(true)
    })
    .await?;
    let outcome = check_older(&installed, &gaps).await;
    installed.finish(outcome)
}

async fn check_older(installed: &Installation, gaps: &[(&str, &str)]) -> Result<()> {
    let fixture = &installed.fixture;
    installed.wait_until_ready().await?;
    let metric = |resource: &str, number: u8| {
        format!(r#"sluice_definition_missing_fields{{resource="{resource}"}} {number}"#)
    };
    for (resource, field) in gaps {
        installed.wait_for_log(&["definition lacks fields", resource, field, "apply crds/"]).await?;
        installed.wait_for_metric(&metric(resource, 1)).await?;
    }
    run_one_job(&installed.fixture).await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_until_running("second").await?;
    let mut audit = AuditCursor::from_end(&installed.plane.audit_log())?;
    tokio::time::sleep(SETTLED_TIME).await;
    let writes = audit.new_writes_by(ACCOUNT)?;
    let repeated = writes.iter().filter(|write| write.resource != "leases").count();
    ensure!(repeated <= 12, "{repeated} writes of a settled cluster: {writes:?}");

    let workload = fixture.workload("second").await?;
    let name = text(&workload, "/metadata/name").to_owned();
    fixture.objects.merge(Kind::WORKLOAD, &fixture.name, &name, &json!({"spec": {"active": false}})).await?;
    let words = ["refused", "schedulingStats", "field not declared in schema"];
    installed.wait_for_event(&name, "WriteRejected", &words).await?;
    installed.wait_for_log(&["write refused", "schedulingStats"]).await?;
    fixture.wait_until_running("second").await?;
    ensure!(condition(&fixture.workload("second").await?, "Evicted").status != "True", "half an eviction");

    installed.upgrade()?;
    installed.wait_for_log(&["definitions have all fields"]).await?;
    let page = installed.manager.metrics().await?;
    ensure!(!page.contains("sluice_definition_missing_fields{"), "the metric still names a definition");
    fixture.wait_for_condition("second", "Evicted", "True", "").await?;
    eventually("the deactivated Job is stopped", async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "second").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "{}", job["spec"]["suspend"]);
        Ok(())
    })
    .await
}

/// Makes a definition newer: another served version, more fields, and more values of two enumerations.
fn make_newer(plural: &str, definition: &mut Value) -> Result<()> {
    let schema = definition.pointer_mut(ROOT).context("no schema")?;
    for part in ["spec", "status"] {
        let fields = schema.pointer_mut(&format!("/properties/{part}/properties"));
        if let Some(fields) = fields.and_then(Value::as_object_mut) {
            fields.insert("future".to_owned(), json!({"type": "string"}));
        }
    }
    let (path, value) = match plural {
        "clusterqueues" => ("/properties/spec/properties/queueingStrategy/enum", "Sideways"),
        "workloads" => {
            ("/properties/status/properties/admissionChecks/items/properties/state/enum", "Skipped")
        }
        _ => return add_version(definition),
    };
    let values = schema.pointer_mut(path).and_then(Value::as_array_mut);
    values.with_context(|| format!("{plural} has no {path}"))?.push(value.into());
    add_version(definition)
}

fn add_version(definition: &mut Value) -> Result<()> {
    let versions = definition["spec"]["versions"].as_array_mut().context("no versions")?;
    let mut next = versions.first().context("no version")?.clone();
    next["name"] = "v1beta3".into();
    next["storage"] = false.into();
    versions.push(next);
    Ok(())
}

/// Definitions have another version, fields and values that the manager does not know: fields that it does not know are
/// kept through a Job's life, a queue with a value that it does not know is named and affects no other, a running Job keeps
/// its quota whatever its Workload says, and all continue when the values are known.
pub(crate) async fn newer_ones_lose_nothing(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let installed = Installation::start(cluster, fixture, |plural, definition| {
        make_newer(plural, definition)?;
        Ok(true)
    })
    .await?;
    let outcome = async {
        installed.wait_until_ready().await?;
        unknown_fields_are_kept(&installed).await?;
        unknown_value_of_queue_is_named(&installed).await?;
        unknown_value_of_running_workload_keeps_quota(&installed).await?;
        let log = fs::read_to_string(installed.manager.log())?;
        ensure!(!log.contains("definition lacks fields"), "newer definitions count as older ones");
        Ok(())
    }
    .await;
    installed.finish(outcome)
}

async fn unknown_fields_are_kept(installed: &Installation) -> Result<()> {
    let (future, fixture) = (json!({"future": "kept"}), &installed.fixture);
    fixture.prepare().await?;
    let queue = fixture.create_queue("main", "", QUOTA, future.clone()).await?;
    fixture.submit(fixture.job("kept", "main", "1")).await?;
    fixture.wait_until_running("kept").await?;
    let name = text(&fixture.workload("kept").await?, "/metadata/name").to_owned();
    fixture.objects.merge(Kind::WORKLOAD, &fixture.name, &name, &json!({"spec": future.clone()})).await?;
    installed.merge_status(Kind::WORKLOAD, &fixture.name, &name, future.clone()).await?;
    installed.merge_status(Kind::CLUSTER_QUEUE, "", &queue, future).await?;
    fixture.finish_job("kept").await?;
    eventually("the queue counts no workload", async || {
        let queue = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
        ensure!(queue["status"]["admittedWorkloads"] == json!(0), "{}", queue["status"]);
        Ok(())
    })
    .await?;
    let queue = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
    for object in [fixture.workload("kept").await?, queue] {
        for part in ["spec", "status"] {
            ensure!(object[part]["future"] == "kept", "{part} of {} lost a field", object["kind"]);
        }
    }
    Ok(())
}

async fn unknown_value_of_queue_is_named(installed: &Installation) -> Result<()> {
    let fixture = &installed.fixture;
    let odd = fixture.create_queue("odd", "", QUOTA, json!({"queueingStrategy": "Sideways"})).await?;
    installed.wait_for_event(&odd, "Unreadable", &["queueingStrategy", "Sideways"]).await?;
    fixture.submit(fixture.job("waits", "odd", "1")).await?;
    fixture.wait_for_condition("waits", "QuotaReserved", "False", "Suspended").await?;
    fixture.submit(fixture.job("beside", "main", "1")).await?;
    fixture.wait_until_running("beside").await?;
    fixture.finish_job("beside").await?;
    let known = json!({"spec": {"queueingStrategy": "BestEffortFIFO"}});
    fixture.objects.merge(Kind::CLUSTER_QUEUE, "", &odd, &known).await?;
    fixture.wait_until_running("waits").await?;
    fixture.finish_job("waits").await
}

async fn unknown_value_of_running_workload_keeps_quota(installed: &Installation) -> Result<()> {
    let fixture = &installed.fixture;
    fixture.submit(fixture.job("running", "main", "2")).await?;
    fixture.wait_until_running("running").await?;
    let name = text(&fixture.workload("running").await?, "/metadata/name").to_owned();
    let check = |state: &str| {
        json!({"admissionChecks": [{"name": "check", "state": state, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    };
    installed.merge_status(Kind::WORKLOAD, &fixture.name, &name, check("Skipped")).await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_for_condition("next", "QuotaReserved", "False", "").await?;
    tokio::time::sleep(SETTLED_TIME).await;
    fixture.wait_for_condition("next", "QuotaReserved", "False", "").await?;
    fixture.wait_until_running("running").await?;
    installed.merge_status(Kind::WORKLOAD, &fixture.name, &name, check("Ready")).await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("next").await?;
    fixture.finish_job("next").await
}
