//! Watch events that are dropped, duplicated, delayed, replaced by 410 Gone, or withheld by a stalled stream, at each
//! step of a Job's life that matters. `SLUICE_CELL=word` runs the cells whose names contain the word.

use crate::fixture::Fixture;
use crate::history::History;
use crate::lost_writes::{EndState, end_state};
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{self, Kind, condition_is_true, text};
use sluice_e2e::proxy::Proxy;
use sluice_e2e::wait::{eventually, scaled_duration};
use sluice_e2e::watch_faults::EventFault;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Watch timeout and relist period are at most a tenth of their defaults.
const FLAGS: [&str; 3] = ["--metrics-insecure", "--watch-timeout=2s", "--relist-period=15s"];
/// Attempts per cell. If a relist delivers the change instead of the event, no fault is injected, and the scenario is
/// repeated.
const ATTEMPTS: usize = 4;
/// Concurrent scenarios.
const PARALLEL_SCENARIOS: usize = 10;
const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/cell";
/// Delay relative to the events of other watches; a tenth of it outside soak runs.
const DELAY: Duration = Duration::from_secs(20);

const EVENT_FAULTS: [(&str, EventFault); 5] = [
    ("dropped", EventFault::Dropped),
    ("doubled", EventFault::Duplicated),
    ("late", EventFault::Delayed(DELAY)),
    ("gone", EventFault::Expired),
    ("stalled", EventFault::Stalled),
];

/// Returns whether the event's object is in the state that selects the event.
type EventPredicate = fn(&Value) -> bool;

/// Name, end of the watch's path, event type, and required state of the object.
const EVENTS: [(&str, &str, &str, EventPredicate); 12] = [
    ("job-added", "/jobs", "ADDED", |_| true),
    ("job-ended", "/jobs", "MODIFIED", |job| condition_is_true(job, "Complete")),
    ("job-deleted", "/jobs", "DELETED", |_| true),
    ("workload-added", "/workloads", "ADDED", |_| true),
    ("workload-stopped", "/workloads", "MODIFIED", |workload| workload["spec"]["active"] == false),
    ("workload-deleted", "/workloads", "DELETED", |_| true),
    ("pod-added", "/pods", "ADDED", |_| true),
    ("pod-bound", "/pods", "MODIFIED", |pod| pod["spec"]["nodeName"].is_string()),
    ("pod-deleted", "/pods", "DELETED", |_| true),
    ("node-added", "/nodes", "ADDED", |_| true),
    ("node-ready", "/nodes", "MODIFIED", |node| condition_is_true(node, "Ready")),
    ("node-deleted", "/nodes", "DELETED", |_| true),
];

/// Each event is dropped, duplicated, delayed, replaced by 410 Gone, or withheld by a stream that stalls without an
/// error, while other watches continue: end state and counts are as without faults, and no queue ever exceeds its
/// quota.
pub(crate) async fn lost_late_duplicate_events(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = FLAGS.map(str::to_owned).to_vec();
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    create_bystanders(fixture).await?;

    let matrix = async {
        let expected = scenario(fixture, &manager, "calm", None).await?;
        let word = std::env::var("SLUICE_CELL").unwrap_or_default();
        let all = EVENTS.iter().flat_map(|event| EVENT_FAULTS.iter().map(move |fault| (event, fault)));
        let cells: Vec<_> =
            all.map(|(e, h)| (format!("{}-{}", e.0, h.0), *e, h.1)).filter(|c| c.0.contains(&word)).collect();
        let failures: Vec<String> = stream::iter(cells)
            .map(async |(cell, (_, path, kind, predicate), fault)| {
                let fault = if fault == EventFault::Delayed(DELAY) {
                    EventFault::Delayed(scaled_duration(DELAY))
                } else {
                    fault
                };
                let run_cell = async || {
                    for attempt in 1..=ATTEMPTS {
                        let name = format!("{cell}-{attempt}");
                        let handle =
                            proxy.inject_watch_fault(fault_once(name.clone(), path, kind, predicate, fault));
                        scenario(fixture, &manager, &name, Some(&expected)).await?;
                        if handle.injected_faults() == 1 {
                            return Ok(());
                        }
                    }
                    bail!("no matching event in {ATTEMPTS} attempts")
                };
                run_cell().await.err().map(|error| format!("{cell}: {error:#}"))
            })
            .buffer_unordered(PARALLEL_SCENARIOS)
            .filter_map(async |failure| failure)
            .collect()
            .await;
        ensure!(failures.is_empty(), "{}\nend state without faults: {expected:#?}", failures.join("\n"));
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = matrix => outcome?,
        outcome = touch_bystanders(fixture) => outcome?,
    }
    let peak = max_reserved(&history.revisions()?, 1)?;
    ensure!(peak == 1, "at most {peak} workloads of a queue had quota at once");

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

/// Returns a policy that applies the fault to the first matching event of a cell.
fn fault_once(
    cell: String,
    path: &'static str,
    kind: &'static str,
    predicate: EventPredicate,
    fault: EventFault,
) -> impl FnMut(&sluice_e2e::proxy::Call, &Value) -> EventFault + Send {
    let mut done = false;
    move |call, event| {
        let object = &event["object"];
        let selected = !done
            && call.path.ends_with(path)
            && text(event, "/type") == kind
            && text(object, "/metadata/name").contains(&cell)
            && predicate(object);
        done |= selected;
        if selected { fault } else { EventFault::Pass }
    }
}

/// Runs three Jobs in a queue for one, on their own node. The first is deactivated by its user and runs again after the
/// second has finished. Both and the node are deleted; the third runs on a new node of the same name. Returns the state
/// before the deletion.
async fn scenario(
    fixture: &Fixture,
    manager: &Manager,
    cell: &str,
    expected: Option<&EndState>,
) -> Result<EndState> {
    let (next, last) = (format!("next-{cell}"), format!("last-{cell}"));
    create_queue_and_node(fixture, cell).await?;
    fixture.submit(fixture.job(cell, cell, "1")).await?;
    fixture.wait_until_running(cell).await?;
    fixture.submit(fixture.job(&next, cell, "1")).await?;
    fixture.wait_until_pending(&next, "WaitingForQuota").await?;
    fixture.set_workload_spec(cell, json!({"active": false})).await?;
    fixture.wait_until_running(&next).await?;
    fixture.wait_until_pending(cell, "Deactivated").await?;
    fixture.set_workload_spec(cell, json!({"active": true})).await?;
    fixture.finish_job(&next).await?;
    fixture.wait_until_running_and_reported(cell).await?;
    fixture.finish_job(cell).await?;
    fixture.wait_for_queue_counts(cell, (0, 0, 0), &[("cpu", "0")]).await?;
    let end = eventually("the end state is as without faults", async || {
        let end = end_state(fixture, manager, cell).await?.without_placement();
        ensure!(end.is_counted(), "counters are missing: {end:?}");
        ensure!(expected.is_none_or(|expected| *expected == end), "the end state is {end:#?}");
        Ok(end)
    })
    .await?;
    for job in [cell, &next] {
        fixture.objects.delete(Kind::JOB, &fixture.name, job, PropagationPolicy::Background).await?;
    }
    wait_until_gone(fixture, Kind::WORKLOAD, &fixture.name, cell).await?;
    fixture.objects.delete(Kind::NODE, "", &fixture.own_name(cell), PropagationPolicy::Background).await?;
    wait_until_gone(fixture, Kind::NODE, "", &fixture.own_name(cell)).await?;
    fixture.objects.create(Kind::NODE, &node(fixture, cell)).await?;
    fixture.submit(fixture.job(&last, cell, "1")).await?;
    fixture.wait_until_running(&last).await?;
    fixture.finish_job(&last).await?;
    fixture.wait_for_queue_counts(cell, (0, 0, 0), &[("cpu", "0")]).await?;
    Ok(end)
}

/// Creates a queue for one workload and its node, which no other pod tolerates.
async fn create_queue_and_node(fixture: &Fixture, cell: &str) -> Result<()> {
    let name = fixture.own_name(cell);
    fixture.create_tracked(Kind::NODE, node(fixture, cell)).await?;
    let levels = json!([{"nodeLabel": HOST}]);
    fixture
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": name}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: name}, "tolerations": [toleration], "topologyName": name});
    fixture.create_flavor(cell, spec).await?;
    let body = objects::cluster_queue(&name, "", &name, &[("cpu", "1", None)]);
    fixture.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, cell, &name)).await?;
    Ok(())
}

fn node(fixture: &Fixture, cell: &str) -> Value {
    let name = fixture.own_name(cell);
    let capacity = json!({"cpu": "1", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": name, "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": {LABEL: name, HOST: name}}, "spec": {"taints": [taint]},
        "status": {"capacity": capacity, "allocatable": capacity},
    })
}

async fn wait_until_gone(fixture: &Fixture, kind: Kind, namespace: &str, part: &str) -> Result<()> {
    eventually(format!("{part} is deleted"), async || {
        let all = fixture.objects.list(kind, namespace, "").await?;
        let left = all.iter().find(|object| text(object, "/metadata/name").contains(part));
        ensure!(left.is_none(), "{left:?} still exists");
        Ok(())
    })
    .await
}

const BYSTANDERS: [Kind; 4] = [Kind::JOB, Kind::WORKLOAD, Kind::POD, Kind::NODE];

/// Creates one object of each watched kind that no scenario uses.
async fn create_bystanders(fixture: &Fixture) -> Result<()> {
    let name = fixture.own_name("other");
    let metadata = json!({"namespace": fixture.name, "name": name});
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "work:1"}]});
    let job = json!({"metadata": metadata, "spec": {"suspend": true, "template": {"spec": pod}}});
    fixture.objects.create(Kind::JOB, &job).await?;
    let sets = json!([{"name": "main", "count": 1, "template": {"spec": pod}}]);
    let workload = json!({"metadata": metadata, "spec": {"queueName": "none", "podSets": sets}});
    fixture.objects.create(Kind::WORKLOAD, &workload).await?;
    let mut gated = json!({"metadata": metadata, "spec": pod});
    gated["spec"]["schedulingGates"] = json!([{"name": "e2e.example/never"}]);
    fixture.objects.create(Kind::POD, &gated).await?;
    fixture
        .create_tracked(Kind::NODE, json!({"metadata": {"name": name}, "spec": {"unschedulable": true}}))
        .await?;
    Ok(())
}

/// Changes the bystanders until dropped, so that each dropped event is followed by a later one and is never sent again.
async fn touch_bystanders(fixture: &Fixture) -> Result<()> {
    let name = fixture.own_name("other");
    for round in 0_u64.. {
        for kind in BYSTANDERS {
            let namespace = if kind == Kind::NODE { "" } else { &fixture.name };
            let patch = json!({"metadata": {"annotations": {"e2e.example/round": round.to_string()}}});
            fixture.objects.merge(kind, namespace, &name, &patch).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Returns the maximum number of workloads with quota in one queue at any revision. An error if it exceeds `capacity`.
pub(crate) fn max_reserved(revisions: &[Value], capacity: usize) -> Result<usize> {
    let mut reserving: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut peak = 0;
    for object in revisions {
        if object.is_null() {
            // A relist: all stored objects follow.
            reserving.clear();
            continue;
        }
        let name = text(object, "/metadata/name");
        for names in reserving.values_mut() {
            names.remove(name);
        }
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if condition_is_true(object, "QuotaReserved") && !condition_is_true(object, "Finished") && !deleting {
            let names = reserving.entry(text(object, "/status/admission/clusterQueue")).or_default();
            names.insert(name);
            let revision = text(object, "/metadata/resourceVersion");
            ensure!(names.len() <= capacity, "{names:?} have quota at revision {revision}");
            peak = peak.max(names.len());
        }
    }
    Ok(peak)
}
